// The project's own entry point. What it has no argument for is done to a copy of q, which the thread keeps for the
// next call: the caller's q is never written. Transforms: QK scale and RoPE offset. Replace: another library's kernel.
#include "hook.hpp"

#include "patchkit/attention.h"

#include <cmath>
#include <cstdlib>
#include <dlfcn.h>
#include <vector>

PK_HOOK(attention_forward)

using Forward = void (*)(float *, float *, float *, float *, int, int);
using Configured = int (*)(patchkit_attention_config *);
using Run = int (*)(const patchkit_attention *);

namespace
{

struct Call {
    float *q, *k, *v, *o;
    int batch, length;
};

Forward real() { return reinterpret_cast<Forward>(pk_real_attention_forward); }

// Asks the library of the real function for heads and head_dim, which are not in the arguments.
bool configuration(patchkit_attention_config &config)
{
    Dl_info object;
    if (!dladdr(pk_real_attention_forward, &object))
        return false;
    void *library = dlopen(object.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (!library)
        return false;
    auto ask = reinterpret_cast<Configured>(dlsym(library, "patchkit_attention_configured"));
    dlclose(library);
    config.size = sizeof config;
    return ask && ask(&config) == PATCHKIT_OK;
}

// Turns the pairs (d, d + head_dim/2) of every head by `offset` positions: Su et al., "RoFormer", 2021, the layout of
// GPT-NeoX and llama.
void turn(std::vector<float> &q, int head_dim, int offset, double theta)
{
    int half = head_dim / 2;
    for (size_t head = 0; head + size_t(head_dim) <= q.size(); head += size_t(head_dim)) {
        for (int d = 0; d < half; d++) {
            double angle = offset * std::pow(theta, -2.0 * d / head_dim);
            float one = q[head + size_t(d)], other = q[head + size_t(d + half)];
            q[head + size_t(d)] = float(one * std::cos(angle) - other * std::sin(angle));
            q[head + size_t(d + half)] = float(one * std::sin(angle) + other * std::cos(angle));
        }
    }
}

void transformed(const Call &call)
{
    static thread_local std::vector<float> copy;
    patchkit_attention_config config;
    if (!configuration(config))
        return real()(call.q, call.k, call.v, call.o, call.batch, call.length);
    size_t elements = size_t(call.batch) * size_t(call.length) * size_t(config.heads) * size_t(config.head_dim);
    copy.assign(call.q, call.q + elements);
    auto factor = float(patchkit::number(patchkit::settings().qk_scale));
    for (float &value : copy)
        value *= factor;
    if (int offset = patchkit::settings().rope_offset)
        turn(copy, config.head_dim, offset, patchkit::number(patchkit::settings().rope_theta));
    real()(copy.data(), call.k, call.v, call.o, call.batch, call.length);
}

Run open_replacement()
{
    const char *path = std::getenv("PATCHKIT_SHIM_REPLACE");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
    return library ? reinterpret_cast<Run>(dlsym(library, "patchkit_attention_run")) : nullptr;
}

bool run_replacement(Run run, const Call &call, const patchkit_attention_config &config, float *o)
{
    int64_t token = int64_t(config.heads) * config.head_dim, row = token * call.length;
    patchkit_attention wide{};
    wide.size = sizeof wide;
    wide.version = PATCHKIT_ATTENTION_VERSION;
    wide.q = call.q;
    wide.k = call.k;
    wide.v = call.v;
    wide.o = o;
    for (int64_t *stride : {wide.q_stride, wide.k_stride, wide.v_stride, wide.o_stride}) {
        stride[0] = row;
        stride[1] = token;
        stride[2] = config.head_dim;
    }
    wide.batch = call.batch;
    wide.q_len = wide.kv_len = call.length;
    wide.heads = wide.kv_heads = config.heads;
    wide.head_dim = config.head_dim;
    wide.scale = config.scale;
    wide.causal = config.causal;
    return run(&wide) == PATCHKIT_OK;
}

bool agree(const std::vector<float> &ours, const float *theirs)
{
    double tolerance = patchkit::number(patchkit::settings().tolerance);
    for (size_t i = 0; i < ours.size(); i++)
        if (!(std::fabs(double(ours[i]) - theirs[i]) <= tolerance)) // a NaN is a difference too
            return false;
    return true;
}

// Every Nth call both run: the caller gets the real result where they differ, and from then on only the real function
// is called, until the mode is set again.
void replaced(const Call &call)
{
    static const Run run = open_replacement();
    static uint64_t calls, stopped;
    pk_control *control = *patchkit::control;
    patchkit_attention_config config;
    uint32_t every = patchkit::settings().every;
    uint64_t era = __atomic_load_n(&control->settings.era, __ATOMIC_RELAXED) + 1;
    if (!run || __atomic_load_n(&stopped, __ATOMIC_RELAXED) == era || !configuration(config))
        return real()(call.q, call.k, call.v, call.o, call.batch, call.length);
    bool comparing = every && __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED) % every == 0;
    if (!comparing) {
        if (run_replacement(run, call, config, call.o))
            __atomic_fetch_add(&control->replaced, 1, __ATOMIC_RELAXED);
        else
            real()(call.q, call.k, call.v, call.o, call.batch, call.length);
        return;
    }
    static thread_local std::vector<float> ours;
    ours.assign(size_t(call.batch) * size_t(call.length) * size_t(config.heads) * size_t(config.head_dim), 0);
    bool ran = run_replacement(run, call, config, ours.data());
    real()(call.q, call.k, call.v, call.o, call.batch, call.length);
    __atomic_fetch_add(&control->compared, 1, __ATOMIC_RELAXED);
    if (ran && agree(ours, call.o))
        return;
    __atomic_fetch_add(&control->differed, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&stopped, era, __ATOMIC_RELAXED);
}

PK_APART void changed(uint32_t mode, float *q, float *k, float *v, float *o, int batch, int length)
{
    Call call{q, k, v, o, batch, length};
    if (mode == PK_REPLACE)
        return replaced(call);
    patchkit::Traced traced(pk_index_attention_forward, mode);
    if (mode == PK_TRANSFORM)
        transformed(call);
    else
        real()(call.q, call.k, call.v, call.o, call.batch, call.length);
    traced->dtype = 6; // c10::ScalarType::Float
    for (int32_t *shape : {traced->q, traced->k, traced->o}) {
        shape[0] = call.batch;
        shape[1] = call.length;
    }
    traced.returned();
}

} // namespace

extern "C" void pk_call_attention_forward(float *q, float *k, float *v, float *o, int batch, int length)
{
    uint32_t mode = patchkit::mode();
    if (PK_LIKELY(mode == PK_COUNT))
        return real()(q, k, v, o, batch, length);
    changed(mode, q, k, v, o, batch, length);
}
