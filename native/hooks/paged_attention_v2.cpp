// vllm 0.6.3: as paged_attention_v1, for long sequences, with the buffers of a reduction in two steps.
#include "tensor.hpp"

#include <optional>
#include <string>

PK_HOOK(paged_attention_v2)

#define ARGUMENTS                                                                                                      \
    at::Tensor &out, at::Tensor &exp_sums, at::Tensor &max_logits, at::Tensor &tmp_out, at::Tensor &query,             \
        at::Tensor &key_cache, at::Tensor &value_cache, int64_t num_kv_heads, double scale, at::Tensor &block_tables,  \
        at::Tensor &seq_lens, int64_t block_size, int64_t max_seq_len, const std::optional<at::Tensor> &alibi_slopes,  \
        const std::string &kv_cache_dtype, double k_scale, double v_scale, int64_t tp_rank, int64_t local_blocks,      \
        int64_t vert_stride, int64_t sparse_block_size, int64_t head_sliding_step
#define WITH_SCALE(scale)                                                                                              \
    out, exp_sums, max_logits, tmp_out, query, key_cache, value_cache, num_kv_heads, scale, block_tables, seq_lens,    \
        block_size, max_seq_len, alibi_slopes, kv_cache_dtype, k_scale, v_scale, tp_rank, local_blocks, vert_stride,   \
        sparse_block_size, head_sliding_step

namespace
{

auto real_paged_attention_v2() { return reinterpret_cast<void (*)(ARGUMENTS)>(pk_real_paged_attention_v2); }

PK_APART void changed_paged_attention_v2(uint32_t mode, ARGUMENTS)
{
    double wanted = scale * patchkit::qk_scale(mode);
    patchkit::Traced traced(pk_index_paged_attention_v2, mode);
    real_paged_attention_v2()(WITH_SCALE(wanted));
    patchkit::put_tensors(traced.operator->(), query, key_cache, out);
    traced->scale = patchkit::bits(wanted);
    traced->causal = 1;
    traced.returned();
}

} // namespace

extern "C" void pk_call_paged_attention_v2(ARGUMENTS)
{
    uint32_t mode = patchkit::mode();
    if (PK_LIKELY(mode != PK_TRACE && mode != PK_TRANSFORM))
        return real_paged_attention_v2()(WITH_SCALE(scale));
    return changed_paged_attention_v2(mode, WITH_SCALE(scale));
}
