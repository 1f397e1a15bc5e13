/* What a stage 2 was built for, in a text file beside it: `KEY VALUE` lines that patchkit/native/manifest.py writes.
 *
 *   format 1, length, sha256     of stage 2 itself
 *   layout                       digest of the structs that it shares with stage 1
 *   torch, c10, cxx11            version, identity of libc10.so, C++ ABI flag; `torch -`: it needs none
 *   engine PATTERN IDENTITY      a library that the entry points may be in; repeated */
#define _GNU_SOURCE
#include "stage1.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Returns what follows a key, up to `space`; "" where the key is missing. `after` says where to go on. */
static const char *value_of(const char *text, const char *key, char *value, size_t room)
{
    size_t length = strlen(key);
    value[0] = 0;
    for (const char *line = text; line && *line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        if (strncmp(line, key, length) || line[length] != ' ')
            continue;
        const char *from = line + length + 1;
        size_t part = strcspn(from, "\n");
        if (part >= room)
            part = room - 1;
        memcpy(value, from, part);
        value[part] = 0;
        return from + part;
    }
    return NULL;
}

bool pk_read_manifest(struct pk_manifest *manifest, const char *stage2, struct pk_text *why)
{
    char path[PK_PATH], value[128];
    struct pk_text text = {path, path + sizeof path};
    pk_append(&text, stage2);
    pk_append(&text, ".manifest");
    int fd = pk_open_regular(path);
    ssize_t length = fd < 0 ? -1 : read(fd, manifest->text, sizeof manifest->text - 1);
    if (fd >= 0)
        close(fd);
    if (length < 0) {
        pk_append(why, "it has no manifest that can be read");
        return false;
    }
    manifest->text[length] = 0;
    value_of(manifest->text, "format", value, sizeof value);
    if (strcmp(value, "1")) {
        pk_append(why, "its manifest is of another format");
        return false;
    }
    value_of(manifest->text, "sha256", manifest->sha256, sizeof manifest->sha256);
    value_of(manifest->text, "length", value, sizeof value);
    manifest->length = strtoull(value, NULL, 10);
    return true;
}

static bool differs(struct pk_text *why, const char *what, const char *wanted, const char *here)
{
    if (!strcmp(wanted, here))
        return false;
    pk_append(why, "it was built for ");
    pk_append(why, what);
    pk_append(why, wanted);
    pk_append(why, ", the process has ");
    pk_append(why, *here ? here : "none");
    return true;
}

bool pk_fits_stage1(const struct pk_manifest *manifest, struct pk_text *why)
{
    char wanted[65], own[65];
    value_of(manifest->text, "layout", wanted, sizeof wanted);
    pk_own_layout(own);
    if (!strcmp(wanted, own))
        return true;
    pk_append(why, "it was built for shared structs with the layout ");
    pk_append(why, *wanted ? wanted : "unknown");
    pk_append(why, ", stage 1 for ");
    pk_append(why, own);
    return false;
}

bool pk_fits_torch(const struct pk_manifest *manifest, struct pk_text *why)
{
    struct pk_torch torch;
    char version[64], c10[PK_IDENTITY], cxx11[8];
    value_of(manifest->text, "torch", version, sizeof version);
    value_of(manifest->text, "c10", c10, sizeof c10);
    value_of(manifest->text, "cxx11", cxx11, sizeof cxx11);
    if (!strcmp(version, "-"))
        return true;
    pk_find_torch(&torch);
    return !differs(why, "torch ", version, torch.version) &&
           !differs(why, "the C++ ABI ", cxx11, torch.cxx11 ? "1" : "0") &&
           !differs(why, "a libc10.so with build-id ", c10, torch.identity);
}

bool pk_fits_engine(const struct pk_manifest *manifest, const char *object, struct pk_text *why)
{
    char identity[PK_IDENTITY], line[PK_PATH];
    if (!pk_identify(object, identity)) {
        pk_append(why, "the library of the entry point cannot be read");
        return false;
    }
    for (const char *at = manifest->text; at; at = value_of(at, "engine", line, sizeof line)) {
        const char *space = at == manifest->text ? NULL : strrchr(line, ' ');
        if (space && !strcmp(space + 1, identity))
            return true;
    }
    pk_append(why, "it was not built for the library with build-id ");
    pk_append(why, identity);
    return false;
}
