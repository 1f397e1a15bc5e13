/* The start of the shim, and the slow path: what happens once a process, once a thread and once a symbol. */
#define _GNU_SOURCE
#include "stage1.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What the assembler knows by number. */
static_assert(offsetof(struct pk_control, settings.mode) == 64, "MODE");
static_assert(offsetof(struct pk_slot, calls) == 64, "CALLS");
static_assert(PK_OFF == 0 && PK_COUNT == 1, "COUNT: below it calls are passed, above it hooks are called");

const char *const pk_names[PK_HOW_MANY] = {
#define PK_SYMBOL(engine, releases, object, hook, symbol) #symbol,
#include "symbols.inc"
#undef PK_SYMBOL
};
const char *const pk_objects[PK_HOW_MANY] = {
#define PK_SYMBOL(engine, releases, object, hook, symbol) object,
#include "symbols.inc"
#undef PK_SYMBOL
};

static struct {
    char object[PK_PATH];
} known[PK_HOW_MANY]; /* written before pk_real says that there is something to read */

static bool is_engine(const char *engines)
{
    char program[PK_PATH];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program);
    if (length <= 0 || (size_t)length >= sizeof program)
        return false;
    while (*engines) {
        size_t part = strcspn(engines, ":");
        if (part == (size_t)length && !memcmp(engines, program, part))
            return true;
        engines += part + (engines[part] == ':');
    }
    return false;
}

/* Takes our own entry out of LD_PRELOAD, in place: the processes below are compilers and the like. */
static void spare_children(void)
{
    char *preload = getenv("LD_PRELOAD"), *to = preload, *from = preload;
    Dl_info own;
    if (!preload || !dladdr((void *)(uintptr_t)pk_decide, &own))
        return;
    size_t name = strlen(own.dli_fname);
    while (*from) {
        size_t part = strcspn(from, ": ");
        if (part != name || memcmp(from, own.dli_fname, part)) {
            if (to != preload)
                *to++ = ':';
            memmove(to, from, part);
            to += part;
        }
        from += part + (from[part] != 0);
    }
    *to = 0;
    if (!*preload)
        unsetenv("LD_PRELOAD");
}

/* Not opted in: nothing. In an engine: the segment, and a mark for its children. Below an engine, in a program that is
 * none: LD_PRELOAD is put right. */
__attribute__((constructor)) static void begin(void)
{
    int saved = errno;
    const char *engines = getenv("PATCHKIT_SHIM");
    char *inside = getenv("PATCHKIT_SHIM_INSIDE");
    if (engines && is_engine(engines)) {
        if (inside && *inside == '0')
            *inside = '1';
        if (pk_open_segment() && pthread_atfork(NULL, NULL, pk_forked))
            pk_say("no memory for pthread_atfork: a forked child counts into its parent's segment", "");
    } else if (engines && inside && *inside == '1') {
        spare_children();
    }
    errno = saved;
}

static void *real_function(unsigned index, void *return_address, struct pk_found *found)
{
    void *real = atomic_load_explicit(&pk_real[index], memory_order_acquire);
    if (real != pk_unbound[index])
        return real;
    if (!pk_resolve(index, return_address, found))
        pk_die(pk_names[index], found->others);
    if (found->way == PK_CALLER)
        return found->address; /* right for this caller only: never kept, never hooked */
    memcpy(known[index].object, found->object, sizeof known[index].object);
    atomic_store_explicit(&pk_real[index], found->address, memory_order_release);
    pk_bound_to(index, found->address, found->object, found->way);
    return found->address;
}

/* Returns where the call goes. `counted` is 0 where the thread has no slot yet: the call is counted here. */
void *pk_decide(unsigned index, void *return_address, int counted)
{
    int saved = errno;
    struct pk_found found = {.way = PK_UNBOUND};
    if (!counted)
        pk_count(index);
    void *real = real_function(index, return_address, &found);
    void *target = atomic_load_explicit(&pk_target[index], memory_order_acquire);
    if (found.way == PK_CALLER || pk_control->settings.mode == PK_OFF)
        target = real;
    else if (target == pk_unbound[index])
        target = pk_hook_for(index, real, known[index].object);
    errno = saved;
    return target;
}

#ifdef __x86_64__
#include <cpuid.h>

/* The parts of the state that may carry arguments: x87, SSE, AVX, AVX-512. AMX tiles never do. */
enum { ARGUMENTS = 0xe7, FXSAVE_BYTES = 512, XSAVE_LEAF = 13, OSXSAVE = 1 << 27 };

static bool has_xsave(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & OSXSAVE);
}

uint32_t pk_vector_mask(void)
{
    uint32_t low, high;
    if (!has_xsave())
        return 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low & ARGUMENTS;
}

uint64_t pk_vector_bytes(void)
{
    unsigned a, b, c, d;
    if (!has_xsave() || !__get_cpuid_count(XSAVE_LEAF, 0, &a, &b, &c, &d))
        return FXSAVE_BYTES;
    return b;
}
#else
#include <sys/auxv.h>

/* Bytes of z0-z31 and p0-p15; 0 where there is no SVE, for which the assembler keeps q0-q31. */
uint64_t pk_vector_bytes(void)
{
    uint64_t bytes;
    if (!(getauxval(AT_HWCAP) & 1ul << 22)) /* HWCAP_SVE */
        return 0;
    __asm__(".arch_extension sve\n\trdvl %0, #1" : "=r"(bytes));
    return 34 * bytes;
}
#endif
