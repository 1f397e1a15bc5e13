// The mode `replace`: another library's patchkit_attention_run instead of the real function.
//
// Every Nth call both run: the caller gets the real result, and where the two differ only the real function is called
// from then on, until the mode is set again.
#pragma once

#include "hook.hpp"

#include "patchkit/attention.h"

#include <cmath>
#include <cstdlib>
#include <dlfcn.h>
#include <vector>

namespace patchkit
{

class Replacement
{
  public:
    // Whether this call is to be made by the other library.
    bool wanted() const { return run_ && __atomic_load_n(&stopped_, __ATOMIC_RELAXED) != era(); }

    // Makes the call. `elements` of o are contiguous from call.o on; `real` calls the real function, which writes them.
    template <typename Real>
    void make(patchkit_attention call, size_t elements, Real real)
    {
        uint32_t every = settings().every;
        bool comparing = every && __atomic_fetch_add(&calls_, 1, __ATOMIC_RELAXED) % every == 0;
        if (comparing)
            return compare(call, elements, real);
        if (run_(&call) != PATCHKIT_OK)
            return real();
        __atomic_fetch_add(&(*control)->replaced, 1, __ATOMIC_RELAXED);
    }

  private:
    using Run = int (*)(const patchkit_attention *);

    static Run open()
    {
        const char *path = std::getenv("PATCHKIT_SHIM_REPLACE");
        void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
        return library ? reinterpret_cast<Run>(dlsym(library, "patchkit_attention_run")) : nullptr;
    }

    static uint64_t era() { return __atomic_load_n(&settings().era, __ATOMIC_RELAXED) + 1; }

    template <typename Real>
    void compare(patchkit_attention call, size_t elements, Real real)
    {
        static thread_local std::vector<float> ours;
        const float *theirs = call.o;
        uint64_t now = era();
        ours.assign(elements, 0);
        call.o = ours.data();
        bool ran = run_(&call) == PATCHKIT_OK;
        real();
        __atomic_fetch_add(&(*control)->compared, 1, __ATOMIC_RELAXED);
        if (ran && agree(ours, theirs))
            return;
        __atomic_fetch_add(&(*control)->differed, 1, __ATOMIC_RELAXED);
        __atomic_store_n(&stopped_, now, __ATOMIC_RELAXED);
    }

    static bool agree(const std::vector<float> &ours, const float *theirs)
    {
        double tolerance = number(settings().tolerance);
        for (size_t i = 0; i < ours.size(); i++)
            if (!(std::fabs(double(ours[i]) - theirs[i]) <= tolerance)) // a NaN is a difference too
                return false;
        return true;
    }

    const Run run_ = open();
    uint64_t calls_ = 0, stopped_ = 0;
};

// A call with the version filled in; contiguous where nobody sets strides.
inline patchkit_attention wide_call()
{
    patchkit_attention call{};
    call.size = sizeof call;
    call.version = PATCHKIT_ATTENTION_VERSION;
    return call;
}

inline void set_stride(int64_t (&stride)[3], int64_t batch, int64_t token, int64_t head)
{
    stride[0] = batch;
    stride[1] = token;
    stride[2] = head;
}

} // namespace patchkit
