// The project's own entry point. What it has no argument for is done to a copy of q, which the thread keeps for the
// next call: the caller's q is never written. Transforms: QK scale and RoPE offset. Replace: another library's kernel.
#include "replace.hpp"

PK_HOOK(attention_forward)

using Forward = void (*)(float *, float *, float *, float *, int, int);
using Configured = int (*)(patchkit_attention_config *);

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

void replaced(const Call &call)
{
    static patchkit::Replacement replacement("patchkit_attention_run");
    auto by_the_real = [&call] { real()(call.q, call.k, call.v, call.o, call.batch, call.length); };
    patchkit_attention_config config;
    if (!replacement.wanted() || !configuration(config))
        return by_the_real();
    int64_t token = int64_t(config.heads) * config.head_dim, row = token * call.length;
    patchkit_attention wide = patchkit::wide_call();
    wide.q = call.q;
    wide.k = call.k;
    wide.v = call.v;
    for (auto stride : {&wide.q_stride, &wide.k_stride, &wide.v_stride, &wide.o_stride})
        patchkit::set_stride(*stride, row, token, config.head_dim);
    wide.batch = call.batch;
    wide.q_len = wide.kv_len = call.length;
    wide.heads = wide.kv_heads = config.heads;
    wide.head_dim = config.head_dim;
    wide.scale = config.scale;
    wide.causal = config.causal;
    auto ours = [&](float *output) {
        wide.o = output;
        return replacement.run(wide);
    };
    patchkit::replace_floats(replacement, call.o, size_t(row) * size_t(call.batch), ours, by_the_real);
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
