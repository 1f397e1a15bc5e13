// The mode `replace`: a function of another library instead of the real one.
//
// Every Nth call both run: the caller gets the real result, and where the two differ only the real function is called
// from then on, until the mode is set again.
#pragma once

#include "hook.hpp"

#include "patchkit/attention.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <vector>

namespace patchkit
{

// One entry point's other function: whose turn it is, and what came of it.
class Replacement
{
  public:
    explicit Replacement(const char *name) : function_(find(name)) {}

    // Whether this call is to be made by the other library.
    bool wanted() const { return function_ && __atomic_load_n(&stopped_, __ATOMIC_RELAXED) != era(); }

    // Whether it is to be made by both. Asked once a call.
    bool is_to_compare()
    {
        uint32_t every = settings().every;
        return every && __atomic_fetch_add(&calls_, 1, __ATOMIC_RELAXED) % every == 0;
    }

    template <typename Call>
    bool run(const Call &call) const
    {
        return reinterpret_cast<int (*)(const Call *)>(function_)(&call) == PATCHKIT_OK;
    }

    static void replaced() { __atomic_fetch_add(&(*control)->replaced, 1, __ATOMIC_RELAXED); }

    void compared(bool agreed)
    {
        __atomic_fetch_add(&(*control)->compared, 1, __ATOMIC_RELAXED);
        if (agreed)
            return;
        __atomic_fetch_add(&(*control)->differed, 1, __ATOMIC_RELAXED);
        __atomic_store_n(&stopped_, era(), __ATOMIC_RELAXED);
    }

  private:
    static void *find(const char *name)
    {
        const char *path = std::getenv("PATCHKIT_SHIM_REPLACE");
        void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
        void *function = library ? dlsym(library, name) : nullptr;
        if (!function)
            std::fprintf(stderr, "patchkit shim: no %s to replace with: %s; calls are passed through\n", name,
                         path ? dlerror() : "PATCHKIT_SHIM_REPLACE names no library");
        return function;
    }

    static uint64_t era() { return __atomic_load_n(&settings().era, __ATOMIC_RELAXED) + 1; }

    void *const function_;
    uint64_t calls_ = 0, stopped_ = 0;
};

// Within the tolerance that is set; a NaN is a difference.
inline bool is_close(double difference) { return std::fabs(difference) <= number(settings().tolerance); }

// Makes a call whose output is `elements` contiguous floats at `output`. `ours` takes the place to write to and says
// whether it did; `real` calls the real function, which writes to `output`.
template <typename Ours, typename Real>
void replace_floats(Replacement &replacement, float *output, size_t elements, Ours ours, Real real)
{
    static thread_local std::vector<float> other;
    if (!replacement.is_to_compare()) {
        if (!ours(output))
            return real();
        return Replacement::replaced();
    }
    other.assign(elements, 0);
    bool agreed = ours(other.data());
    real();
    for (size_t i = 0; agreed && i < elements; i++)
        agreed = is_close(double(other[i]) - output[i]);
    replacement.compared(agreed);
}

// A call with the version filled in.
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
