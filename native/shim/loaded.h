/* How a loaded object is looked at, from within the callback of dl_iterate_phdr. */
#ifndef PATCHKIT_LOADED_H
#define PATCHKIT_LOADED_H

#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pk_tables {
    const ElfW(Sym) * symbols;
    const char *strings;
    size_t strings_size;
    const uint32_t *gnu_hash;
    const uint32_t *hash;
};

bool pk_read_tables(const struct dl_phdr_info *object, struct pk_tables *tables);
uintptr_t pk_base(const struct dl_phdr_info *object);

#endif
