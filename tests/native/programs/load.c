/* Opens libraries as Python opens extensions, RTLD_LOCAL, and calls what each of them calls itself:
 * `load LIBRARY...` writes the answers. `direct`: this program calls probe itself. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

extern long probe(long) __attribute__((weak));

int main(int count, char **words)
{
    void *handles[8] = {0};
    for (int i = 1; i < count && i < 8; i++) {
        if (!strcmp(words[i], "direct")) {
            printf("%ld\n", probe(41));
            continue;
        }
        handles[i] = dlopen(words[i], RTLD_NOW | RTLD_LOCAL);
        if (!handles[i]) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
    }
    for (int i = 1; i < count && i < 8; i++) {
        long (*call)(long) = handles[i] ? (long (*)(long))dlsym(handles[i], "call_probe") : NULL;
        if (call)
            printf("%ld %ld\n", call(41), call(42));
    }
    return 0;
}
