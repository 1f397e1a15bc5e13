// A library with two entry points of FlashAttention 2 of vllm 0.6.3, computed on the CPU: what the shim's hooks see of
// it is what they see of the real one.
#include "flash_standin.hpp"

#include <ATen/core/Generator.h>
#include <torch/library.h>

#include <optional>
#include <vector>

using Maybe = std::optional<at::Tensor>;

namespace
{

// The log of the sums is the sixth of eight, as the release returns them; without dropout the weights are no tensor.
std::vector<at::Tensor> returned(const at::Tensor &out, const at::Tensor &q, const at::Tensor &k, const at::Tensor &v,
                                 const at::Tensor &lse)
{
    return {out, q, k, v, out, lse, {}, at::zeros({2}, q.options().dtype(at::kLong))};
}

} // namespace

std::vector<at::Tensor> mha_fwd(at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const Maybe &given,
                                const Maybe &alibi_slopes, double p_dropout, double scale, bool is_causal, int64_t left,
                                int64_t right, double softcap, bool return_softmax, std::optional<at::Generator>)
{
    TORCH_CHECK(!alibi_slopes && p_dropout == 0 && softcap == 0 && !return_softmax, "only plain attention");
    at::Tensor out = given ? *given : at::empty_like(q);
    at::Tensor lse = at::empty({q.size(0), q.size(2), q.size(1)}, q.options().dtype(at::kFloat));
    for (int64_t i = 0; i < q.size(0); i++)
        attend(q[i], k[i], v[i], out[i], lse[i], {scale, is_causal, left, right});
    return returned(out, q, k, v, lse);
}

std::vector<at::Tensor> mha_varlen_fwd(at::Tensor &q, const at::Tensor &k, const at::Tensor &v, const Maybe &given,
                                       const at::Tensor &cu_seqlens_q, const at::Tensor &cu_seqlens_k,
                                       const Maybe &seqused_k, const Maybe &block_table, const Maybe &alibi_slopes,
                                       int64_t max_seqlen_q, int64_t, double p_dropout, double scale, bool,
                                       bool is_causal, int64_t left, int64_t right, double softcap, bool return_softmax,
                                       std::optional<at::Generator>)
{
    TORCH_CHECK(!alibi_slopes && p_dropout == 0 && softcap == 0 && !return_softmax, "only plain attention");
    at::Tensor out = given ? *given : at::empty_like(q);
    Sequences where{&cu_seqlens_q, &cu_seqlens_k, pointer(seqused_k), pointer(block_table)};
    at::Tensor lse = attend_packed(q, k, v, out, where, {scale, is_causal, left, right});
    // One query a sequence and several heads to a key head: the release leaves q in another shape.
    if (max_seqlen_q == 1 && q.size(1) > k.size(-2) && left < 0 && right < 0)
        q = q.reshape({-1, k.size(-2), q.size(2)});
    return returned(out, q, k, v, lse);
}

TORCH_LIBRARY(vllm_flash_attn_c, library)
{
    library.def("fwd(Tensor! q, Tensor k, Tensor v, Tensor!? out, Tensor? alibi_slopes, float p_dropout, "
                "float softmax_scale, bool is_causal, int window_size_left, int window_size_right, float softcap, "
                "bool return_softmax, Generator? gen) -> Tensor[]");
    library.impl("fwd", c10::kCPU, &mha_fwd);
    library.def("varlen_fwd(Tensor! q, Tensor k, Tensor v, Tensor!? out, Tensor cu_seqlens_q, Tensor cu_seqlens_k, "
                "Tensor? seqused_k, Tensor? block_table, Tensor? alibi_slopes, int max_seqlen_q, int max_seqlen_k, "
                "float p_dropout, float softmax_scale, bool zero_tensors, bool is_causal, int window_size_left, "
                "int window_size_right, float softcap, bool return_softmax, Generator? gen) -> Tensor[]");
    library.impl("varlen_fwd", c10::kCPU, &mha_varlen_fwd);
}
