/* Stage 2: opened at the first call, if it is what its manifest says and fits this process. Else calls pass through.
 *
 * What is checked is what is opened: the file is copied into memory that nobody else can write to, on the way its
 * length and digest are taken, and the copy is opened. A file that is cut short later is no SIGBUS either. */
#define _GNU_SOURCE
#include "stage1.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef MFD_CLOEXEC
#define MFD_CLOEXEC 1u
#endif
#define EXECUTABLE 0x10u /* MFD_EXEC, since Linux 6.3 */

enum { PATIENCE = 1000 }; /* ms that a thread waits for another to open stage 2 */

static _Atomic int state = PK_NONE;
static _Thread_local bool opening;
static _Atomic bool refused[PK_HOW_MANY]; /* said of a symbol that its library is another */
static const struct pk_hook *hooks;
static struct pk_manifest manifest;
static const char *stage2_path;

static const struct pk_services services = {
    .size = sizeof services,
    .version = PK_VERSION,
    .control = (struct pk_control *const *)&pk_control,
    .record = pk_record,
};

static bool refuse(const char *why)
{
    char line[PK_PATH + 256];
    struct pk_text text = {line, line + sizeof line};
    pk_append(&text, "stage 2 ");
    pk_append(&text, stage2_path);
    pk_append(&text, ": ");
    pk_append(&text, why);
    pk_append(&text, "; calls are passed through");
    pk_tell_stage2(PK_REFUSED, line);
    pk_say(line, "");
    return false;
}

static int memory_file(void)
{
    long fd = syscall(SYS_memfd_create, "patchkit-stage2", MFD_CLOEXEC | EXECUTABLE);
    if (fd < 0 && errno == EINVAL)
        fd = syscall(SYS_memfd_create, "patchkit-stage2", MFD_CLOEXEC);
    return (int)fd;
}

static bool copy(int from, int to, struct pk_sha256 *sha)
{
    char block[16384];
    for (;;) {
        ssize_t got = read(from, block, sizeof block);
        if (got <= 0)
            return !got;
        pk_sha256_add(sha, block, (size_t)got);
        for (ssize_t done = 0, part; done < got; done += part) {
            part = write(to, block + done, (size_t)(got - done));
            if (part <= 0)
                return false;
        }
    }
}

static bool is_as_built(const struct pk_sha256 *sha, const char *digest)
{
    char why[160];
    struct pk_text text = {why, why + sizeof why};
    if (sha->length == manifest.length && !strcmp(digest, manifest.sha256))
        return true;
    if (sha->length != manifest.length) {
        pk_append(&text, "it has ");
        pk_append_number(&text, sha->length);
        pk_append(&text, " bytes, its manifest says ");
        pk_append_number(&text, manifest.length);
    } else {
        pk_append(&text, "its digest is not that of its manifest");
    }
    return refuse(why);
}

/* Returns a descriptor of the checked copy. It stays open, so that its number names nothing else to the loader. */
static int checked_copy(void)
{
    struct pk_sha256 sha;
    char digest[65];
    int from = pk_open_regular(stage2_path), to = from < 0 ? -1 : memory_file();
    pk_sha256_begin(&sha);
    bool copied = to >= 0 && copy(from, to, &sha);
    if (from >= 0)
        close(from);
    if (!copied) {
        refuse(from < 0 ? "it cannot be opened" : "it cannot be copied into memory");
    } else {
        struct pk_sha256 ended = sha; /* the padding counts into its length */
        pk_sha256_end(&ended, digest);
        copied = is_as_built(&sha, digest);
    }
    if (copied || to < 0)
        return to;
    close(to);
    return -1;
}

static bool open_copy(int fd)
{
    char path[48], why[256];
    struct pk_text text = {path, path + sizeof path}, reason = {why, why + sizeof why};
    pk_append(&text, "/proc/self/fd/");
    pk_append_number(&text, (uint64_t)fd);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        pk_append(&reason, dlerror());
        return refuse(why);
    }
    const struct pk_hook *table = dlsym(handle, "pk_hooks");
    pk_start *start = (pk_start *)(uintptr_t)dlsym(handle, "pk_begin");
    if (!pk_fits_layout(dlsym(handle, "patchkit_layout_table")))
        return refuse("it was compiled with other shared structs than stage 1");
    if (!table || !start || start(&services))
        return refuse("it is of another version than stage 1");
    hooks = table;
    return true;
}

static bool open_stage2(void)
{
    char why[256] = "";
    struct pk_text text = {why, why + sizeof why};
    stage2_path = getenv("PATCHKIT_SHIM_STAGE2");
    if (!stage2_path || !*stage2_path)
        return false;
    if (!pk_read_manifest(&manifest, stage2_path, &text) || !pk_fits_stage1(&manifest, &text) ||
        !pk_fits_torch(&manifest, &text))
        return refuse(why);
    int fd = checked_copy();
    return fd >= 0 && open_copy(fd);
}

static const struct pk_hook *row_of(unsigned index)
{
    for (const struct pk_hook *row = hooks; row && row->symbol; row++)
        if (!strcmp(row->symbol, pk_names[index]))
            return row;
    return NULL;
}

/* Another thread opens stage 2: this call shall not go by it unchanged. Not for ever: the caller may hold the loader's
 * lock, which the other thread needs. */
static bool wait_for_it(void)
{
    struct timespec pause = {0, 1000000};
    for (int i = 0; i < PATIENCE && !opening && atomic_load(&state) == PK_BINDING; i++)
        nanosleep(&pause, NULL);
    return atomic_load(&state) != PK_BINDING;
}

void *pk_hook_for(unsigned index, void *real, const char *object)
{
    char why[256] = "";
    struct pk_text text = {why, why + sizeof why};
    int expected = PK_NONE;
    void *target = real;
    if (atomic_compare_exchange_strong(&state, &expected, PK_BINDING)) {
        opening = true;
        bool open = open_stage2();
        opening = false;
        if (open)
            pk_tell_stage2(PK_BOUND, "");
        atomic_store(&state, open ? PK_BOUND : PK_REFUSED);
    } else if (expected == PK_BINDING && !wait_for_it()) {
        return real; /* the next call asks again */
    }
    const struct pk_hook *row = atomic_load(&state) == PK_BOUND ? row_of(index) : NULL;
    if (row && !pk_fits_engine(&manifest, object, &text)) {
        if (!atomic_exchange(&refused[index], true))
            refuse(why);
        row = NULL;
    }
    if (row) {
        *row->index = index;
        *row->real = real;
        target = row->hook;
        pk_typed(index);
    }
    atomic_store_explicit(&pk_target[index], target, memory_order_release);
    return target;
}

/* A fork while another thread was opening stage 2: in the child nobody will finish it. */
void pk_forked_binding(void)
{
    int expected = PK_BINDING;
    atomic_compare_exchange_strong(&state, &expected, PK_REFUSED);
}
