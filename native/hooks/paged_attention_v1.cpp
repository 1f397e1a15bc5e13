// vllm 0.6.3, csrc/ops.h and csrc/cpu/attention.cpp: one query a sequence against a paged cache. Decoding only.
// Replace: on the CPU, in float32, without ALiBi; the pages of a sequence are laid one after the other for the call.
#include "replace.hpp"
#include "tensor.hpp"

#include <optional>
#include <string>

PK_HOOK(paged_attention_v1)

#define ARGUMENTS                                                                                                      \
    at::Tensor &out, at::Tensor &query, at::Tensor &key_cache, at::Tensor &value_cache, int64_t num_kv_heads,          \
        double scale, at::Tensor &block_tables, at::Tensor &seq_lens, int64_t block_size, int64_t max_seq_len,         \
        const std::optional<at::Tensor> &alibi_slopes, const std::string &kv_cache_dtype, double k_scale,              \
        double v_scale, int64_t tp_rank, int64_t local_blocks, int64_t vert_stride, int64_t sparse_block_size,         \
        int64_t head_sliding_step
#define WITH_SCALE(scale)                                                                                              \
    out, query, key_cache, value_cache, num_kv_heads, scale, block_tables, seq_lens, block_size, max_seq_len,          \
        alibi_slopes, kv_cache_dtype, k_scale, v_scale, tp_rank, local_blocks, vert_stride, sparse_block_size,         \
        head_sliding_step

namespace
{

auto real_paged_attention_v1() { return reinterpret_cast<void (*)(ARGUMENTS)>(pk_real_paged_attention_v1); }

const float *floats(const at::Tensor &tensor) { return static_cast<const float *>(tensor.data_ptr()); }

bool is_plain(const at::Tensor &query, const at::Tensor &seq_lens, const std::optional<at::Tensor> &alibi_slopes)
{
    return query.device().is_cpu() && query.scalar_type() == at::kFloat && seq_lens.scalar_type() == at::kInt &&
           seq_lens.is_contiguous() && !alibi_slopes.has_value();
}

// The cache of one sequence, page after page: keys lie as [block, head, dim / x, token, x], values as [block, head,
// dim, token] (csrc/cpu/cache.cpp); both become [token, head, dim].
void gather(const at::Tensor &key_cache, const at::Tensor &value_cache, const int32_t *blocks, int64_t length, float *k,
            float *v)
{
    int64_t heads = value_cache.size(1), dim = value_cache.size(2), page = value_cache.size(3), x = key_cache.size(4);
    for (int64_t token = 0; token < length; token++) {
        int64_t block = blocks[token / page], at = token % page;
        for (int64_t head = 0; head < heads; head++) {
            const float *keys = floats(key_cache) + block * key_cache.stride(0) + head * key_cache.stride(1);
            const float *values = floats(value_cache) + block * value_cache.stride(0) + head * value_cache.stride(1);
            for (int64_t d = 0; d < dim; d++, k++, v++) {
                *k = keys[(d / x) * page * x + at * x + d % x];
                *v = values[d * page + at];
            }
        }
    }
}

void replaced_paged_attention_v1(ARGUMENTS)
{
    static patchkit::Replacement replacement;
    static thread_local std::vector<float> k, v;
    auto by_the_real = [&] { real_paged_attention_v1()(WITH_SCALE(scale)); };
    if (!replacement.wanted() || !is_plain(query, seq_lens, alibi_slopes) || !out.is_contiguous())
        return by_the_real();
    auto lengths = static_cast<const int32_t *>(seq_lens.data_ptr());
    auto tables = static_cast<const int32_t *>(block_tables.data_ptr());
    int64_t sequences = query.size(0), dim = query.size(2), row = max_seq_len * num_kv_heads * dim;
    k.resize(size_t(sequences * row));
    v.resize(k.size());
    for (int64_t i = 0; i < sequences; i++)
        gather(key_cache, value_cache, tables + i * block_tables.stride(0), lengths[i], &k[size_t(i * row)],
               &v[size_t(i * row)]);
    patchkit_attention wide = patchkit::wide_call();
    wide.q = floats(query);
    wide.k = k.data();
    wide.v = v.data();
    wide.o = static_cast<float *>(out.data_ptr());
    patchkit::set_stride(wide.q_stride, query.stride(0), 0, query.stride(1));
    patchkit::set_stride(wide.k_stride, row, num_kv_heads * dim, dim);
    patchkit::set_stride(wide.v_stride, row, num_kv_heads * dim, dim);
    patchkit::set_stride(wide.o_stride, out.stride(0), 0, out.stride(1));
    wide.kv_lens = lengths;
    wide.batch = int32_t(sequences);
    wide.q_len = 1;
    wide.kv_len = int32_t(max_seq_len);
    wide.heads = int32_t(query.size(1));
    wide.kv_heads = int32_t(num_kv_heads);
    wide.head_dim = int32_t(dim);
    wide.scale = float(scale);
    wide.causal = 1;
    replacement.make(wide, size_t(out.numel()), by_the_real);
}

PK_APART void changed_paged_attention_v1(uint32_t mode, ARGUMENTS)
{
    if (mode == PK_REPLACE)
        return replaced_paged_attention_v1(WITH_SCALE(scale));
    double wanted = scale * patchkit::qk_scale(mode);
    patchkit::Traced traced(pk_index_paged_attention_v1, mode);
    real_paged_attention_v1()(WITH_SCALE(wanted));
    patchkit::put_tensors(traced.operator->(), query, key_cache, out);
    traced->scale = patchkit::bits(wanted);
    traced->causal = 1;
    traced.returned();
}

} // namespace

extern "C" void pk_call_paged_attention_v1(ARGUMENTS)
{
    uint32_t mode = patchkit::mode();
    if (PK_LIKELY(mode == PK_COUNT))
        return real_paged_attention_v1()(WITH_SCALE(scale));
    return changed_paged_attention_v1(mode, WITH_SCALE(scale));
}
