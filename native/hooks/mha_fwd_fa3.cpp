// FlashAttention 3 of vllm 0.26.0, hopper/flash_api.cpp.
#include "flash.hpp"

#include <optional>

PK_HOOK(mha_fwd_fa3)

#define MAYBE std::optional<const at::Tensor> &
#define ARGUMENTS                                                                                                      \
    at::Tensor &q, const at::Tensor &k, const at::Tensor &v, MAYBE k_new, MAYBE v_new, MAYBE q_v,                      \
        std::optional<at::Tensor> &out, MAYBE cu_seqlens_q, MAYBE cu_seqlens_k, MAYBE cu_seqlens_k_new,                \
        MAYBE seqused_q, MAYBE seqused_k, std::optional<int> max_seqlen_q, std::optional<int> max_seqlen_k,            \
        MAYBE page_table, MAYBE kv_batch_idx, MAYBE leftpad_k, MAYBE rotary_cos, MAYBE rotary_sin,                     \
        MAYBE seqlens_rotary, std::optional<at::Tensor> &q_descale, std::optional<at::Tensor> &k_descale,              \
        std::optional<at::Tensor> &v_descale, float softmax_scale, bool is_causal, int window_left, int window_right,  \
        float softcap, bool is_rotary_interleaved, std::optional<at::Tensor> &scheduler_metadata, int num_splits,      \
        std::optional<bool> pack_gqa, int sm_margin, MAYBE s_aux, int cp_world_size, int cp_rank,                      \
        MAYBE cp_tot_seqused_k
#define WITH(scale, left)                                                                                              \
    q, k, v, k_new, v_new, q_v, out, cu_seqlens_q, cu_seqlens_k, cu_seqlens_k_new, seqused_q, seqused_k, max_seqlen_q, \
        max_seqlen_k, page_table, kv_batch_idx, leftpad_k, rotary_cos, rotary_sin, seqlens_rotary, q_descale,          \
        k_descale, v_descale, scale, is_causal, left, window_right, softcap, is_rotary_interleaved,                    \
        scheduler_metadata, num_splits, pack_gqa, sm_margin, s_aux, cp_world_size, cp_rank, cp_tot_seqused_k

namespace
{

auto real_mha_fwd_fa3() { return reinterpret_cast<std::vector<at::Tensor> (*)(ARGUMENTS)>(pk_real_mha_fwd_fa3); }

PK_APART std::vector<at::Tensor> changed_mha_fwd_fa3(uint32_t mode, ARGUMENTS)
{
    using patchkit::pointer;
    bool is_plain = !k_new && !v_new && !q_v && !cu_seqlens_k_new && !seqused_q && !kv_batch_idx && !leftpad_k &&
                    !rotary_cos && !s_aux && softcap == 0 && cp_world_size <= 1;
    patchkit::Flash call{q,
                         k,
                         v,
                         pointer(out),
                         pointer(cu_seqlens_q),
                         pointer(cu_seqlens_k),
                         pointer(seqused_k),
                         pointer(page_table),
                         max_seqlen_q.value_or(0),
                         max_seqlen_k.value_or(0),
                         softmax_scale,
                         is_causal,
                         window_left,
                         window_right,
                         is_plain};
    auto results = [](const at::Tensor &o, const at::Tensor &lse) { return std::vector<at::Tensor>{o, lse, {}, {}}; };
    auto real = [&](double scale, int64_t left) { return real_mha_fwd_fa3()(WITH(float(scale), int(left))); };
    return patchkit::change_flash(pk_index_mha_fwd_fa3, mode, call, results, real);
}

} // namespace

extern "C" std::vector<at::Tensor> pk_call_mha_fwd_fa3(ARGUMENTS)
{
    uint32_t mode = patchkit::mode();
    if (PK_LIKELY(mode == PK_COUNT))
        return real_mha_fwd_fa3()(WITH(softmax_scale, window_left));
    return changed_mha_fwd_fa3(mode, WITH(softmax_scale, window_left));
}
