// FlashAttention 2 of vllm 0.6.3, csrc/flash_attn/flash_api.cpp: sequences of several lengths, packed.
#include "flash.hpp"

#include <ATen/core/Generator.h>
#include <optional>

PK_HOOK(mha_varlen_fwd_fa2)

#define ARGUMENTS                                                                                                      \
    at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const std::optional<at::Tensor> &out,                     \
        const at::Tensor &cu_seqlens_q, const at::Tensor &cu_seqlens_k, const std::optional<at::Tensor> &seqused_k,    \
        const std::optional<at::Tensor> &block_table, const std::optional<at::Tensor> &alibi_slopes,                   \
        int64_t max_seqlen_q, int64_t max_seqlen_k, double p_dropout, double softmax_scale, bool zero_tensors,         \
        bool is_causal, int64_t window_left, int64_t window_right, double softcap, bool return_softmax,                \
        std::optional<at::Generator> generator
#define WITH(scale, left)                                                                                              \
    q, k, v, out, cu_seqlens_q, cu_seqlens_k, seqused_k, block_table, alibi_slopes, max_seqlen_q, max_seqlen_k,        \
        p_dropout, scale, zero_tensors, is_causal, left, window_right, softcap, return_softmax, std::move(generator)

namespace
{

auto real_mha_varlen_fwd_fa2()
{
    return reinterpret_cast<std::vector<at::Tensor> (*)(ARGUMENTS)>(pk_real_mha_varlen_fwd_fa2);
}

PK_APART std::vector<at::Tensor> changed_mha_varlen_fwd_fa2(uint32_t mode, ARGUMENTS)
{
    using patchkit::pointer;
    bool is_plain = !alibi_slopes && p_dropout == 0 && softcap == 0 && !return_softmax;
    patchkit::Flash call{q,
                         k,
                         v,
                         pointer(out),
                         &cu_seqlens_q,
                         &cu_seqlens_k,
                         pointer(seqused_k),
                         pointer(block_table),
                         max_seqlen_q,
                         max_seqlen_k,
                         softmax_scale,
                         is_causal,
                         window_left,
                         window_right,
                         is_plain};
    // csrc/flash_attn/flash_api.cpp: out, q, k, v and out as padded, lse, the weights, the generator's state.
    auto results = [&](const at::Tensor &o, const at::Tensor &lse) {
        return std::vector<at::Tensor>{o, q, k, v, o, lse, {}, {}};
    };
    auto real = [&](double scale, int64_t left) { return real_mha_varlen_fwd_fa2()(WITH(scale, left)); };
    return patchkit::change_flash(pk_index_mha_varlen_fwd_fa2, mode, call, results, real);
}

} // namespace

extern "C" std::vector<at::Tensor> pk_call_mha_varlen_fwd_fa2(ARGUMENTS)
{
    uint32_t mode = patchkit::mode();
    if (PK_LIKELY(mode == PK_COUNT))
        return real_mha_varlen_fwd_fa2()(WITH(softmax_scale, window_left));
    return changed_mha_varlen_fwd_fa2(mode, WITH(softmax_scale, window_left));
}
