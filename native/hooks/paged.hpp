// Attention against a paged cache on a CPU: what the entry points of vllm's CPU libraries have in common. Replace: in
// float32; the pages of a sequence are laid one after the other for the call.
#pragma once

#include "replace.hpp"
#include "tensor.hpp"

namespace patchkit
{

// Keys or values of all pages. Within a page and a head element (token, d) stands at (d / x) * tokens * x + token * x +
// d % x: x is head_dim for rows of tokens, 1 for rows of dimensions, between them in vllm 0.6.3 (csrc/cpu/cache.cpp).
struct Pages {
    const at::Tensor &cache;
    int64_t heads, dim, tokens, x;
};

inline float *floats(const at::Tensor &tensor) { return static_cast<float *>(tensor.data_ptr()); }
inline const int32_t *integers(const at::Tensor &tensor) { return static_cast<const int32_t *>(tensor.data_ptr()); }

inline bool is_float(const at::Tensor &tensor)
{
    return tensor.device().is_cpu() && tensor.scalar_type() == at::kFloat;
}

inline bool are_integers(const at::Tensor &tensor)
{
    return tensor.device().is_cpu() && tensor.scalar_type() == at::kInt && tensor.is_contiguous();
}

// Copies `length` tokens of one sequence to [token, head, dim].
inline void gather(const Pages &pages, const int32_t *blocks, int64_t length, float *to)
{
    int64_t x = pages.x, across = pages.tokens * x;
    for (int64_t token = 0; token < length; token++) {
        const float *page = floats(pages.cache) + blocks[token / pages.tokens] * pages.cache.stride(0);
        const float *row = page + token % pages.tokens * x;
        for (int64_t head = 0; head < pages.heads; head++, row += pages.cache.stride(1))
            for (int64_t d = 0; d < pages.dim; d++)
                *to++ = row[d / x * across + d % x];
    }
}

// One sequence of a call: `queries` of them from `q` on, `length` keys in `blocks`.
struct Sequence {
    const float *q;
    float *o;
    int64_t queries, length;
    const int32_t *blocks;
};

// What all sequences of a call share.
struct PagedCall {
    const at::Tensor &query, &output; // [token, head, dim]
    Pages keys, values;
    double scale;
    bool causal;
};

inline bool run_sequence(const Replacement &replacement, const PagedCall &call, const Sequence &sequence)
{
    static thread_local std::vector<float> k, v;
    if (sequence.queries < 1)
        return true;
    int64_t token = call.keys.heads * call.keys.dim;
    k.resize(size_t(sequence.length * token));
    v.resize(k.size());
    gather(call.keys, sequence.blocks, sequence.length, k.data());
    gather(call.values, sequence.blocks, sequence.length, v.data());
    patchkit_attention wide = wide_call();
    wide.q = sequence.q;
    wide.k = k.data();
    wide.v = v.data();
    wide.o = sequence.o;
    set_stride(wide.q_stride, 0, call.query.stride(0), call.query.stride(1));
    set_stride(wide.o_stride, 0, call.output.stride(0), call.output.stride(1));
    set_stride(wide.k_stride, 0, token, call.keys.dim);
    set_stride(wide.v_stride, 0, token, call.keys.dim);
    wide.batch = 1;
    wide.q_len = int32_t(sequence.queries);
    wide.kv_len = int32_t(sequence.length);
    wide.heads = int32_t(call.query.size(1));
    wide.kv_heads = int32_t(call.keys.heads);
    wide.head_dim = int32_t(call.keys.dim);
    wide.scale = float(call.scale);
    wide.causal = call.causal;
    return replacement.run(wide);
}

// Makes the call sequence by sequence. `starts` is where the queries of each begin, NULL: one each.
template <typename Real>
void replace_paged(Replacement &replacement, const PagedCall &call, const int32_t *starts, const at::Tensor &lengths,
                   const at::Tensor &blocks, Real real)
{
    auto ours = [&](float *output) {
        for (int64_t i = 0; i < lengths.size(0); i++) {
            int64_t first = starts ? starts[i] : i, queries = starts ? starts[i + 1] - first : 1;
            Sequence sequence{floats(call.query) + first * call.query.stride(0), output + first * call.output.stride(0),
                              queries, integers(lengths)[i], integers(blocks) + i * blocks.stride(0)};
            if (!run_sequence(replacement, call, sequence))
                return false;
        }
        return true;
    };
    replace_floats(replacement, floats(call.output), size_t(call.output.numel()), ours, real);
}

} // namespace patchkit
