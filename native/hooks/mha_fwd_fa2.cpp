// FlashAttention 2 of vllm 0.6.3: a batch of sequences of one length. On CUDA the time in a record is that of the
// launch.
#include "tensor.hpp"

#include <ATen/core/Generator.h>
#include <optional>
#include <vector>

PK_HOOK(mha_fwd_fa2)

#define ARGUMENTS                                                                                                      \
    at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const std::optional<at::Tensor> &out,                     \
        const std::optional<at::Tensor> &alibi_slopes, double p_dropout, double softmax_scale, bool is_causal,         \
        int64_t window_left, int64_t window_right, double softcap, bool return_softmax,                                \
        std::optional<at::Generator> generator
#define WITH(scale, left)                                                                                              \
    q, k, v, out, alibi_slopes, p_dropout, scale, is_causal, left, window_right, softcap, return_softmax,              \
        std::move(generator)

namespace
{

auto real_mha_fwd_fa2() { return reinterpret_cast<std::vector<at::Tensor> (*)(ARGUMENTS)>(pk_real_mha_fwd_fa2); }

PK_APART std::vector<at::Tensor> changed_mha_fwd_fa2(uint32_t mode, ARGUMENTS)
{
    double scale = softmax_scale * patchkit::qk_scale(mode);
    int64_t left = patchkit::window(mode, window_left);
    patchkit::Traced traced(pk_index_mha_fwd_fa2, mode);
    patchkit::put_tensors(traced.operator->(), q, k, q);
    std::vector<at::Tensor> results = real_mha_fwd_fa2()(WITH(scale, left));
    traced->scale = patchkit::bits(scale);
    traced->window = int32_t(left + 1);
    traced->causal = is_causal;
    traced.returned();
    return results;
}

} // namespace

extern "C" std::vector<at::Tensor> pk_call_mha_fwd_fa2(ARGUMENTS)
{
    uint32_t mode = patchkit::mode();
    if (PK_LIKELY(mode != PK_TRACE && mode != PK_TRANSFORM))
        return real_mha_fwd_fa2()(WITH(softmax_scale, window_left));
    return changed_mha_fwd_fa2(mode, WITH(softmax_scale, window_left));
}
