// The processor's own counter: two readings of it cost half of what two of CLOCK_MONOTONIC do.
//
// Its rate is the processor's word on AArch64; on x86-64 it is measured once, against CLOCK_MONOTONIC over 2 ms, to
// about 20 parts in a million: a duration is exact enough, a begin drifts from CLOCK_MONOTONIC by some 70 ms in an
// hour. A counter that may stop or change its rate is not used.
#pragma once

#include <cstdint>
#include <time.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace patchkit
{

inline uint64_t monotonic()
{
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return uint64_t(time.tv_sec) * 1000000000u + uint64_t(time.tv_nsec);
}

#if defined(__x86_64__)
inline bool counts; // Intel SDM volume 3, 18.17.1; AMD APM volume 3, Fn8000_0007: TscInvariant

inline bool is_invariant()
{
    unsigned a, b, c, d;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & 1u << 8);
}

inline uint64_t ticks() { return counts ? __rdtsc() : monotonic(); }
#elif defined(__aarch64__)
inline uint64_t ticks()
{
    uint64_t value;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(value));
    return value;
}
#endif

class Clock
{
  public:
    void start()
    {
#if defined(__x86_64__)
        counts = is_invariant();
        rate_ = counts ? measured() : 1;
#elif defined(__aarch64__)
        uint64_t frequency;
        __asm__ volatile("mrs %0, cntfrq_el0" : "=r"(frequency));
        rate_ = 1e9 / double(frequency);
#endif
        ticks_ = ticks();
        nanoseconds_ = monotonic();
    }
    uint64_t between(uint64_t one, uint64_t other) const { return uint64_t(double(int64_t(other - one)) * rate_); }
    uint64_t at(uint64_t when) const
    {
        return nanoseconds_ + uint64_t(int64_t(double(int64_t(when - ticks_)) * rate_));
    }

  private:
    static double measured()
    {
        uint64_t began = monotonic(), first = ticks(), now;
        do
            now = monotonic();
        while (now - began < 2000000);
        return double(now - began) / double(ticks() - first);
    }

    double rate_ = 1;
    uint64_t ticks_ = 0, nanoseconds_ = 0;
};

} // namespace patchkit
