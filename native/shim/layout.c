/* What the shared structs look like to this build, as a digest: of the lines NAME SIZE ALIGNMENT of each struct and
 * NAME OFFSET SIZE of each of its fields. patchkit/native/layout.py says the same of the header. */
#include "stage1.h"

#include "patchkit/layout.h"

#include <string.h>

static void add_line(struct pk_sha256 *sha, const char *name, uint32_t one, uint32_t other)
{
    char line[128];
    struct pk_text text = {line, line + sizeof line};
    pk_append(&text, name);
    pk_append(&text, " ");
    pk_append_number(&text, one);
    pk_append(&text, " ");
    pk_append_number(&text, other);
    pk_append(&text, "\n");
    pk_sha256_add(sha, line, (size_t)(text.at - line));
}

static void digest(const struct patchkit_layout_table *table, char hex[65])
{
    struct pk_sha256 sha;
    pk_sha256_begin(&sha);
    for (uint32_t i = 0; i < table->count; i++) {
        const struct patchkit_layout *one = &table->structs[i];
        add_line(&sha, one->name, one->size, one->alignment);
        for (uint32_t j = 0; j < one->count; j++)
            add_line(&sha, one->fields[j].name, one->fields[j].offset, one->fields[j].size);
    }
    pk_sha256_end(&sha, hex);
}

void pk_own_layout(char hex[65]) { digest(&patchkit_layout_table, hex); }

bool pk_fits_layout(const struct patchkit_layout_table *table)
{
    char own[65], other[65];
    if (!table || table->version != PATCHKIT_LAYOUT_VERSION)
        return false;
    pk_own_layout(own);
    digest(table, other);
    return !strcmp(own, other);
}
