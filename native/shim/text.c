/* Lines of text without printf: no buffer of stdio, no lock, no locale, nothing allocated. */
#define _GNU_SOURCE
#include "stage1.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

void pk_append(struct pk_text *text, const char *words)
{
    while (*words && text->at + 1 < text->end)
        *text->at++ = *words++;
    *text->at = 0;
}

void pk_append_number(struct pk_text *text, uint64_t number)
{
    char digits[24], *at = digits + sizeof digits - 1;
    *at = 0;
    do
        *--at = (char)('0' + number % 10);
    while (number /= 10);
    pk_append(text, at);
}

/* What comes from a file shall not steer the terminal. */
static void make_printable(char *from, const char *end)
{
    for (; from < end; from++)
        if (*from < ' ' || *from > '~')
            *from = '?';
}

/* One line of printable ASCII on stderr, by one write. */
void pk_say(const char *words, const char *detail)
{
    int saved = errno;
    char line[1024];
    struct pk_text text = {line, line + sizeof line - 1};
    pk_append(&text, "patchkit shim: ");
    pk_append(&text, words);
    pk_append(&text, detail);
    make_printable(line, text.at);
    *text.at++ = '\n';
    if (write(STDERR_FILENO, line, (size_t)(text.at - line)) < 0)
        errno = saved; /* nobody listens */
    errno = saved;
}

void pk_die(const char *words, const char *detail)
{
    pk_say(words, detail);
    abort();
}
