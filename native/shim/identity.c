/* What tells one build of a library from another, and which torch this process has.
 *
 * The identity is the linker's build-id, read from the memory of the loaded object; a library without one is known by
 * its length and a digest of its first MiB. patchkit/native/identity.py says the same of a file. */
#define _GNU_SOURCE
#include "loaded.h"
#include "stage1.h"

#include <elf.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEAD_BYTES = 1 << 20, VERSION_BYTES = 4096, MOST_ID_BYTES = 32 };

struct look {
    const char *object;
    char *identity;
    bool found;
};

static void as_hex(const unsigned char *bytes, size_t count, char *hex)
{
    for (size_t i = 0; i < count; i++) {
        *hex++ = "0123456789abcdef"[bytes[i] >> 4];
        *hex++ = "0123456789abcdef"[bytes[i] & 15];
    }
    *hex = 0;
}

static size_t padded(size_t size) { return (size + 3) & ~(size_t)3; }

static bool read_note(const char *at, const char *end, char *identity)
{
    while (at + sizeof(ElfW(Nhdr)) <= end) {
        const ElfW(Nhdr) *note = (const void *)at;
        const char *name = at + sizeof *note;
        const char *value = name + padded(note->n_namesz);
        if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && !memcmp(name, "GNU", 4)) {
            if (!note->n_descsz || note->n_descsz > MOST_ID_BYTES)
                return false;
            as_hex((const unsigned char *)value, note->n_descsz, identity);
            return true;
        }
        at = value + padded(note->n_descsz);
    }
    return false;
}

static int look_at(struct dl_phdr_info *object, size_t size, void *argument)
{
    struct look *look = argument;
    (void)size;
    if (strcmp(object->dlpi_name, look->object))
        return 0;
    for (int i = 0; i < object->dlpi_phnum && !look->found; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        const char *at = (const char *)(object->dlpi_addr + part->p_vaddr);
        if (part->p_type == PT_NOTE)
            look->found = read_note(at, at + part->p_memsz, look->identity);
    }
    return 1;
}

static bool digest_head(const char *path, char *identity)
{
    struct pk_sha256 sha;
    struct stat about;
    char block[4096], hex[65];
    int fd = pk_open_regular(path);
    if (fd < 0)
        return false;
    bool fine = !fstat(fd, &about);
    pk_sha256_begin(&sha);
    for (size_t total = 0; fine && total < HEAD_BYTES;) {
        ssize_t got = read(fd, block, sizeof block);
        if (got <= 0) {
            fine = !got;
            break;
        }
        pk_sha256_add(&sha, block, (size_t)got);
        total += (size_t)got;
    }
    close(fd);
    pk_sha256_end(&sha, hex);
    struct pk_text text = {identity, identity + PK_IDENTITY};
    hex[40] = 0;
    pk_append(&text, hex);
    pk_append(&text, "-");
    pk_append_number(&text, fine ? (uint64_t)about.st_size : 0);
    return fine;
}

bool pk_identify(const char *object, char identity[PK_IDENTITY])
{
    struct look look = {object, identity, false};
    identity[0] = 0;
    dl_iterate_phdr(look_at, &look);
    return look.found || digest_head(object, identity);
}

static int find_c10(struct dl_phdr_info *object, size_t size, void *argument)
{
    struct pk_torch *torch = argument;
    struct pk_tables tables;
    const char *slash = strrchr(object->dlpi_name, '/');
    (void)size;
    if (!slash || strcmp(slash + 1, "libc10.so") || !pk_read_tables(object, &tables))
        return 0;
    struct pk_text text = {torch->c10, torch->c10 + sizeof torch->c10};
    pk_append(&text, object->dlpi_name);
    /* A function that every release exports: the old kind of string is Ss in its name. */
    static const char old[] = "_ZN3c106detail14torchCheckFailEPKcS2_jRKSs";
    torch->cxx11 = !memmem(tables.strings, tables.strings_size, old, sizeof old);
    return 1;
}

/* torch/lib/libc10.so -> torch/version.py */
static void read_version(struct pk_torch *torch)
{
    char path[PK_PATH], content[VERSION_BYTES];
    static const char *const before = "__version__ = '";
    struct pk_text text = {path, path + sizeof path},
                   version = {torch->version, torch->version + sizeof torch->version};
    pk_append(&text, torch->c10);
    *strrchr(path, '/') = 0;
    text.at = path + strlen(path);
    pk_append(&text, "/../version.py");
    int fd = pk_open_regular(path);
    ssize_t length = fd < 0 ? 0 : read(fd, content, sizeof content - 1);
    if (fd >= 0)
        close(fd);
    content[length > 0 ? length : 0] = 0;
    char *at = strstr(content, before);
    char *end = at ? strchr(at + strlen(before), '\'') : NULL;
    if (!end)
        return;
    *end = 0;
    pk_append(&version, at + strlen(before));
}

void pk_find_torch(struct pk_torch *torch)
{
    memset(torch, 0, sizeof *torch);
    dl_iterate_phdr(find_c10, torch);
    if (!torch->c10[0])
        return;
    pk_identify(torch->c10, torch->identity);
    read_version(torch);
}
