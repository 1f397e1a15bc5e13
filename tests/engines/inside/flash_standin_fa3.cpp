// A library with the entry point of FlashAttention 3 of vllm 0.26.0, computed on the CPU: what the shim's hook sees of
// it is what it sees of the real one.
#include "flash_standin.hpp"

#include <torch/library.h>

#include <optional>
#include <vector>

using Maybe = std::optional<const at::Tensor>;
using Given = std::optional<at::Tensor>;

// Packed sequences only, as that build of the release.
std::vector<at::Tensor> mha_fwd(at::Tensor &q, const at::Tensor &k, const at::Tensor &v, Maybe &, Maybe &, Maybe &,
                                Given &out, Maybe &q_starts, Maybe &k_starts, Maybe &, Maybe &, Maybe &seqused_k,
                                std::optional<int>, std::optional<int>, Maybe &page_table, Maybe &, Maybe &, Maybe &,
                                Maybe &, Maybe &, Given &, Given &, Given &, float scale, bool is_causal, int left,
                                int right, float, bool, Given &, int, std::optional<bool>, int, Maybe &, int, int,
                                Maybe &)
{
    TORCH_CHECK(q_starts.has_value() && out.has_value(), "only varlen");
    Sequences where{pointer(q_starts), pointer(k_starts), pointer(seqused_k), pointer(page_table)};
    at::Tensor lse = attend_packed(q, k, v, *out, where, {scale, is_causal, left, right});
    return {*out, lse, {}, {}};
}

namespace
{

std::vector<at::Tensor> fwd(at::Tensor q, at::Tensor k, at::Tensor v, Given k_new, Given v_new, Given q_v, Given out,
                            Given cu_seqlens_q, Given cu_seqlens_k, Given cu_seqlens_k_new, Given seqused_q,
                            Given seqused_k, std::optional<int64_t> max_seqlen_q, std::optional<int64_t> max_seqlen_k,
                            Given page_table, Given kv_batch_idx, Given leftpad_k, Given rotary_cos, Given rotary_sin,
                            Given seqlens_rotary, Given q_descale, Given k_descale, Given v_descale, double scale,
                            bool is_causal, int64_t left, int64_t right, double softcap, bool interleaved,
                            Given scheduler_metadata, int64_t num_splits, std::optional<bool> pack_gqa,
                            int64_t sm_margin, Given s_aux, int64_t cp_world_size, int64_t cp_rank,
                            Given cp_tot_seqused_k)
{
    auto maybe = [](const Given &tensor) { return tensor.has_value() ? Maybe(*tensor) : Maybe(); };
    Maybe m[] = {maybe(k_new),           maybe(v_new),          maybe(q_v),
                 maybe(cu_seqlens_q),    maybe(cu_seqlens_k),   maybe(cu_seqlens_k_new),
                 maybe(seqused_q),       maybe(seqused_k),      maybe(page_table),
                 maybe(kv_batch_idx),    maybe(leftpad_k),      maybe(rotary_cos),
                 maybe(rotary_sin),      maybe(seqlens_rotary), maybe(s_aux),
                 maybe(cp_tot_seqused_k)};
    return mha_fwd(q, k, v, m[0], m[1], m[2], out, m[3], m[4], m[5], m[6], m[7], std::optional<int>(max_seqlen_q),
                   std::optional<int>(max_seqlen_k), m[8], m[9], m[10], m[11], m[12], m[13], q_descale, k_descale,
                   v_descale, float(scale), is_causal, int(left), int(right), float(softcap), interleaved,
                   scheduler_metadata, int(num_splits), pack_gqa, int(sm_margin), m[14], int(cp_world_size),
                   int(cp_rank), m[15]);
}

} // namespace

TORCH_LIBRARY(_vllm_fa3_C, library)
{
    library.def("fwd(Tensor! q, Tensor k, Tensor v, Tensor? k_new, Tensor? v_new, Tensor? q_v, Tensor!? out, "
                "Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, Tensor? cu_seqlens_k_new, Tensor? seqused_q, "
                "Tensor? seqused_k, int? max_seqlen_q, int? max_seqlen_k, Tensor? page_table, Tensor? kv_batch_idx, "
                "Tensor? leftpad_k, Tensor? rotary_cos, Tensor? rotary_sin, Tensor? seqlens_rotary, "
                "Tensor? q_descale, Tensor? k_descale, Tensor? v_descale, float softmax_scale, bool is_causal, "
                "int window_size_left, int window_size_right, float softcap, bool is_rotary_interleaved, "
                "Tensor? scheduler_metadata, int num_splits, bool? pack_gqa, int sm_margin, Tensor? s_aux, "
                "int cp_world_size, int cp_rank, Tensor? cp_tot_seqused_k) -> Tensor[]");
    library.impl("fwd", c10::kCPU, &fwd);
}
