// What every typed hook needs: the settings of the moment, a clock, and a record for the ring.
//
// A hook is a function with the entry point's own signature. It reads the mode once; with `count` it calls the real
// function and nothing else. Its file says PK_HOOK(name) once and defines `extern "C" ... pk_call_NAME(...)`.
#pragma once

#include "patchkit/shim.h"

#include <cstring>

#include "clock.hpp"

namespace patchkit
{

// Set by pk_begin, before any hook can be called.
inline const pk_services *services;
inline pk_control *const *control;
inline Clock ticking;

inline const pk_settings &settings() { return (*control)->settings; }
inline uint32_t mode() { return __atomic_load_n(&settings().mode, __ATOMIC_RELAXED); }

inline double number(const uint64_t &bits)
{
    uint64_t once = __atomic_load_n(&bits, __ATOMIC_RELAXED);
    double value;
    std::memcpy(&value, &once, sizeof value);
    return value;
}

inline uint64_t bits(double value)
{
    uint64_t same;
    std::memcpy(&same, &value, sizeof same);
    return same;
}

// The factor on the softmax scale: 1 but in the mode that changes arguments.
inline double qk_scale(uint32_t mode) { return mode == PK_TRANSFORM ? number(settings().qk_scale) : 1.0; }

// FlashAttention's left window, -1 for none, where the settings name a number of keys.
inline int64_t window(uint32_t mode, int64_t called)
{
    int32_t keys = __atomic_load_n(&settings().window, __ATOMIC_RELAXED);
    return mode == PK_TRANSFORM && keys > 0 ? keys - 1 : called;
}

// Fills the record of one call while the object lives; writes it when the call has returned, not when it has thrown.
class Traced
{
  public:
    Traced(uint32_t symbol, uint32_t mode) : record_{}
    {
        record_.symbol = uint16_t(symbol);
        record_.mode = mode;
        begun_ = ticks();
    }
    pk_record *operator->() { return &record_; }
    void returned()
    {
        uint64_t ended = ticks();
        record_.begin = ticking.at(begun_);
        record_.nanoseconds = ticking.between(begun_, ended);
        services->record(&record_);
    }

  private:
    pk_record record_;
    uint64_t begun_;
};

} // namespace patchkit

#define PK_HOOK(name)                                                                                                  \
    extern "C" {                                                                                                       \
    void *pk_real_##name;                                                                                              \
    uint32_t pk_index_##name;                                                                                          \
    }

#define PK_LIKELY(condition) __builtin_expect(!!(condition), 1)

// What is done in the other modes stands in a function of its own: its frame is not made where nothing is done.
#define PK_APART static __attribute__((noinline, cold))
