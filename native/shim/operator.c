/* Operators of torch that were registered anew by patchkit/runtime/plugin.py: their calls come by no trampoline, and
 * are counted and recorded here. Floating point numbers travel as their bits: stage 1 uses no vector register. */
#include "stage1.h"

#include <string.h>

#define EXPORTED __attribute__((visibility("default")))

/* Returns the number by which the other functions know an entry point, and says in the segment how it is reached; -1:
 * it is none of this build, or this process has no segment. */
EXPORTED int patchkit_shim_operator(const char *symbol)
{
    for (unsigned i = 0; i < PK_HOW_MANY; i++)
        if (!strcmp(pk_names[i], symbol) && pk_is_awake()) {
            pk_bound_to(i, NULL, "torch", PK_DISPATCHER);
            return (int)i;
        }
    return -1;
}

/* Counts a call, but in the mode `off`; returns the mode. */
EXPORTED uint32_t patchkit_shim_call(unsigned index)
{
    uint32_t mode = __atomic_load_n(&pk_control->settings.mode, __ATOMIC_RELAXED);
    if (mode == PK_OFF)
        return mode;
    if (pk_self)
        pk_self->calls[index]++;
    else
        pk_count(index);
    return mode;
}

EXPORTED uint64_t patchkit_shim_qk_scale(void)
{
    return __atomic_load_n(&pk_control->settings.qk_scale, __ATOMIC_RELAXED);
}

/* `shapes`: of q, k and o, four numbers each. `kind`: the type, and 256 times the kind of the device. */
EXPORTED void patchkit_shim_traced(unsigned index, uint64_t begin, uint64_t nanoseconds, const int32_t *shapes,
                                   uint64_t scale, unsigned kind)
{
    struct pk_record record = {
        .begin = begin,
        .nanoseconds = nanoseconds,
        .symbol = (uint16_t)index,
        .dtype = (uint8_t)kind,
        .device = (uint8_t)(kind >> 8),
        .scale = scale,
        .mode = __atomic_load_n(&pk_control->settings.mode, __ATOMIC_RELAXED),
    };
    for (int i = 0; i < 4; i++) {
        record.q[i] = shapes[i];
        record.k[i] = shapes[4 + i];
        record.o[i] = shapes[8 + i];
    }
    pk_record(&record);
}
