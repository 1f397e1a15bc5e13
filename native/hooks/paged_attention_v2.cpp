// vllm 0.6.3: long sequences, with the buffers of a reduction in two steps.
#include "paged_attention.hpp"

PK_HOOK(paged_attention_v2)

#define ARGUMENTS at::Tensor &out, at::Tensor &exp_sums, at::Tensor &max_logits, at::Tensor &tmp_out, PK_PAGED
#define WITH_SCALE(scale) out, exp_sums, max_logits, tmp_out, PK_PAGED_WITH(scale)

namespace
{

auto real_paged_attention_v2() { return reinterpret_cast<void (*)(ARGUMENTS)>(pk_real_paged_attention_v2); }

PK_APART void changed_paged_attention_v2(uint32_t mode, ARGUMENTS)
{
    auto real = [&](double wanted) { real_paged_attention_v2()(WITH_SCALE(wanted)); };
    bool is_plain = !alibi_slopes && vert_stride <= 1;
    patchkit::PagedAttention call{out, query, key_cache, value_cache, block_tables, seq_lens, scale, is_plain};
    patchkit::change_paged_attention(pk_index_paged_attention_v2, mode, call, real);
}

} // namespace

extern "C" void pk_call_paged_attention_v2(ARGUMENTS)
{
    uint32_t mode = patchkit::mode();
    if (PK_LIKELY(mode == PK_COUNT))
        return real_paged_attention_v2()(WITH_SCALE(scale));
    return changed_paged_attention_v2(mode, WITH_SCALE(scale));
}
