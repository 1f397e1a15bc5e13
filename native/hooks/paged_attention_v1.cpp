// vllm 0.6.3: sequences that one block of threads can reduce; the only one on a CPU.
#include "paged_attention.hpp"

PK_HOOK(paged_attention_v1)

#define ARGUMENTS at::Tensor &out, PK_PAGED
#define WITH_SCALE(scale) out, PK_PAGED_WITH(scale)

namespace
{

auto real_paged_attention_v1() { return reinterpret_cast<void (*)(ARGUMENTS)>(pk_real_paged_attention_v1); }

PK_APART void changed_paged_attention_v1(uint32_t mode, ARGUMENTS)
{
    auto real = [&](double wanted) { real_paged_attention_v1()(WITH_SCALE(wanted)); };
    bool is_plain = !alibi_slopes && vert_stride <= 1;
    patchkit::PagedAttention call{out, query, key_cache, value_cache, block_tables, seq_lens, scale, is_plain};
    patchkit::change_paged_attention(pk_index_paged_attention_v1, mode, call, real);
}

} // namespace

extern "C" void pk_call_paged_attention_v1(ARGUMENTS)
{
    uint32_t mode = patchkit::mode();
    if (PK_LIKELY(mode == PK_COUNT))
        return real_paged_attention_v1()(WITH_SCALE(scale));
    return changed_paged_attention_v1(mode, WITH_SCALE(scale));
}
