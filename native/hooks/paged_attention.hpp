// vllm 0.6.3, csrc/ops.h and csrc/cpu/attention.cpp: one query a sequence against a paged cache. Decoding only. What
// both kernels do; the second has the buffers of a reduction in two steps before these arguments.
#pragma once

#include "paged.hpp"

#include <optional>
#include <string>

#define PK_PAGED                                                                                                       \
    at::Tensor &query, at::Tensor &key_cache, at::Tensor &value_cache, int64_t num_kv_heads, double scale,             \
        at::Tensor &block_tables, at::Tensor &seq_lens, int64_t block_size, int64_t max_seq_len,                       \
        const std::optional<at::Tensor> &alibi_slopes, const std::string &kv_cache_dtype, double k_scale,              \
        double v_scale, int64_t tp_rank, int64_t local_blocks, int64_t vert_stride, int64_t sparse_block_size,         \
        int64_t head_sliding_step
#define PK_PAGED_WITH(scale)                                                                                           \
    query, key_cache, value_cache, num_kv_heads, scale, block_tables, seq_lens, block_size, max_seq_len, alibi_slopes, \
        kv_cache_dtype, k_scale, v_scale, tp_rank, local_blocks, vert_stride, sparse_block_size, head_sliding_step

namespace patchkit
{

// Of such a call what changes it. `is_plain`: without ALiBi and sparse blocks.
struct PagedAttention {
    const at::Tensor &out, &query, &key_cache, &value_cache, &block_tables, &seq_lens;
    double scale;
    bool is_plain;
};

// `real` takes the scale; each entry point has a type of its own for it, and so a replacement of its own.
template <typename Real>
void replace_paged_attention(const PagedAttention &call, Real real)
{
    static Replacement replacement("patchkit_attention_run");
    auto by_the_real = [&] { real(call.scale); };
    bool is_plain = call.is_plain && is_float(call.query) && is_float(call.key_cache) && are_integers(call.seq_lens) &&
                    call.out.is_contiguous();
    if (!is_plain || !replacement.wanted())
        return by_the_real();
    int64_t heads = call.value_cache.size(1), dim = call.value_cache.size(2), tokens = call.value_cache.size(3);
    Pages keys{call.key_cache, heads, dim, tokens, call.key_cache.size(4)},
        values{call.value_cache, heads, dim, tokens, 1};
    PagedCall paged{call.query, call.out, keys, values, call.scale, true};
    replace_paged(replacement, paged, nullptr, call.seq_lens, call.block_tables, by_the_real);
}

template <typename Real>
void change_paged_attention(uint32_t symbol, uint32_t mode, const PagedAttention &call, Real real)
{
    if (mode == PK_REPLACE)
        return replace_paged_attention(call, real);
    double scale = call.scale * qk_scale(mode);
    trace_call(symbol, mode, {call.query, call.key_cache, call.out, scale, -1, true}, [&] { real(scale); });
}

} // namespace patchkit
