/* Where the real function is.
 *
 * dlsym(RTLD_NEXT) sees what was linked or opened RTLD_GLOBAL. A Python extension is opened RTLD_LOCAL: our definition
 * goes before its own, but RTLD_NEXT does not find it. So every loaded object's own table of symbols is looked at, in
 * the callback without a call into the loader; then the loader is asked for the address, so that an IFUNC is resolved
 * and a default version chosen. */
#define _GNU_SOURCE
#include "loaded.h"
#include "stage1.h"

#include <dlfcn.h>
#include <elf.h>
#include <fnmatch.h>
#include <link.h>
#include <string.h>

enum { MOST_CANDIDATES = 8 };

struct candidate {
    uintptr_t base;
    char path[PK_PATH];
};

struct search {
    const char *name;
    uintptr_t own_base;
    int count;
    struct candidate found[MOST_CANDIDATES];
};

/* glibc relocates these addresses in place, but not those of the vDSO. */
static const void *relocated(uintptr_t base, uintptr_t value)
{
    return (const void *)(value < base ? base + value : value);
}

bool pk_read_tables(const struct dl_phdr_info *object, struct pk_tables *tables)
{
    memset(tables, 0, sizeof *tables);
    for (int i = 0; i < object->dlpi_phnum; i++) {
        if (object->dlpi_phdr[i].p_type != PT_DYNAMIC)
            continue;
        const ElfW(Dyn) *at = (const void *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
        for (; at->d_tag != DT_NULL; at++) {
            const void *address = relocated(object->dlpi_addr, at->d_un.d_ptr);
            if (at->d_tag == DT_SYMTAB)
                tables->symbols = address;
            else if (at->d_tag == DT_STRTAB)
                tables->strings = address;
            else if (at->d_tag == DT_STRSZ)
                tables->strings_size = at->d_un.d_val;
            else if (at->d_tag == DT_GNU_HASH)
                tables->gnu_hash = address;
            else if (at->d_tag == DT_HASH)
                tables->hash = address;
        }
    }
    return tables->symbols && tables->strings && (tables->gnu_hash || tables->hash);
}

static bool is_it(const struct pk_tables *tables, uint32_t index, const char *name)
{
    const ElfW(Sym) *symbol = &tables->symbols[index];
    unsigned kind = ELF64_ST_TYPE(symbol->st_info);
    return symbol->st_shndx != SHN_UNDEF && (kind == STT_FUNC || kind == STT_GNU_IFUNC) &&
           ELF64_ST_BIND(symbol->st_info) != STB_LOCAL && !strcmp(tables->strings + symbol->st_name, name);
}

/* https://flapenguin.me/elf-dt-gnu-hash; the Bloom filter is left out: this is done once. */
static bool in_gnu_hash(const struct pk_tables *tables, const char *name)
{
    uint32_t hash = 5381;
    for (const char *at = name; *at; at++)
        hash = hash * 33 + (unsigned char)*at;
    uint32_t buckets = tables->gnu_hash[0], first = tables->gnu_hash[1], words = tables->gnu_hash[2];
    const uint32_t *bucket = tables->gnu_hash + 4 + words * (sizeof(ElfW(Addr)) / 4), *chain = bucket + buckets;
    uint32_t index = buckets ? bucket[hash % buckets] : 0;
    if (index < first)
        return false;
    for (;; index++) {
        uint32_t other = chain[index - first];
        if ((other | 1) == (hash | 1) && is_it(tables, index, name))
            return true;
        if (other & 1)
            return false;
    }
}

static bool in_hash(const struct pk_tables *tables, const char *name)
{
    for (uint32_t index = 1; index < tables->hash[1]; index++)
        if (is_it(tables, index, name))
            return true;
    return false;
}

/* What dladdr calls the base: where the first segment lies, which is not dlpi_addr in a program linked to one place. */
uintptr_t pk_base(const struct dl_phdr_info *object)
{
    for (int i = 0; i < object->dlpi_phnum; i++)
        if (object->dlpi_phdr[i].p_type == PT_LOAD)
            return object->dlpi_addr + (object->dlpi_phdr[i].p_vaddr & ~(uintptr_t)4095);
    return object->dlpi_addr;
}

static int visit(struct dl_phdr_info *object, size_t size, void *argument)
{
    struct search *search = argument;
    struct pk_tables tables;
    (void)size;
    if (pk_base(object) == search->own_base || !pk_read_tables(object, &tables))
        return 0;
    if (!(tables.gnu_hash ? in_gnu_hash(&tables, search->name) : in_hash(&tables, search->name)))
        return 0;
    if (search->count < MOST_CANDIDATES) {
        struct candidate *found = &search->found[search->count];
        struct pk_text text = {found->path, found->path + sizeof found->path};
        pk_append(&text, object->dlpi_name);
        found->base = pk_base(object);
    }
    search->count++;
    return 0;
}

/* The object is loaded: opening it gives a handle and loads nothing. "" is the program itself. */
static void *ask_loader(const struct candidate *candidate, const char *name)
{
    void *handle = dlopen(candidate->path[0] ? candidate->path : NULL, RTLD_LAZY | RTLD_NOLOAD);
    if (!handle)
        return NULL;
    void *address = dlsym(handle, name);
    dlclose(handle);
    return address;
}

static uintptr_t base_of(const void *address)
{
    Dl_info object;
    return dladdr(address, &object) ? (uintptr_t)object.dli_fbase : 0;
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Of several: the one that the caller is part of, else none. A plain choice would answer for the wrong library. */
static const struct candidate *choose(struct search *search, const void *return_address, const char *pattern,
                                      enum pk_way *way)
{
    const struct candidate *matching = NULL, *calling = NULL;
    int matches = 0, count = search->count < MOST_CANDIDATES ? search->count : MOST_CANDIDATES;
    uintptr_t caller = base_of(return_address);
    *way = PK_OBJECT;
    for (int i = 0; i < count; i++) {
        if (!fnmatch(pattern, last_part(search->found[i].path), 0)) {
            matching = &search->found[i];
            matches++;
        }
        if (search->found[i].base == caller)
            calling = &search->found[i];
    }
    if (matches == 1)
        return matching;
    *way = PK_CALLER;
    return calling;
}

static void name_others(struct pk_found *found, const struct search *search)
{
    struct pk_text text = {found->others, found->others + sizeof found->others};
    pk_append(&text, search->count ? ": several libraries define it, and the caller is none of them:"
                                   : ": no loaded library defines it");
    for (int i = 0; i < search->count && i < MOST_CANDIDATES; i++) {
        pk_append(&text, " ");
        pk_append(&text, search->found[i].path);
    }
}

bool pk_resolve(unsigned index, void *return_address, struct pk_found *found)
{
    struct search search = {.name = pk_names[index], .own_base = base_of((void *)(uintptr_t)pk_resolve)};
    const struct candidate *chosen;
    dl_iterate_phdr(visit, &search);
    found->address = NULL;
    if (search.count > 1) {
        chosen = choose(&search, return_address, pk_objects[index], &found->way);
    } else {
        found->address = dlsym(RTLD_NEXT, search.name);
        found->way = PK_NEXT;
        chosen = search.count ? &search.found[0] : NULL;
    }
    if (!found->address && chosen) {
        found->address = ask_loader(chosen, search.name);
        found->way = found->way == PK_NEXT ? PK_OBJECT : found->way;
    }
    Dl_info object;
    if (!found->address || !dladdr(found->address, &object)) {
        name_others(found, &search);
        return false;
    }
    struct pk_text text = {found->object, found->object + sizeof found->object};
    pk_append(&text, object.dli_fname);
    return true;
}
