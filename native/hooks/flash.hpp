// FlashAttention, whatever its release: what its entry points' hooks have in common. On CUDA the time in a record is
// that of the launch; in a graph that is captured the arguments are kept as they are at the capture, and no host
// function sees a replay. While capturing, nothing here waits, reads back, or allocates where the real function does
// not.
#pragma once

#include "replace.hpp"
#include "stream.hpp"
#include "tensor.hpp"

#include <vector>

namespace patchkit
{

// A call. Pointers are null where the caller gave nothing. `is_plain`: it has nothing that
// struct patchkit_attention_device has no field for.
struct Flash {
    const at::Tensor &q, &k, &v;
    const at::Tensor *out, *q_starts, *kv_starts, *kv_lens, *pages;
    int64_t q_len, kv_len; // the longest, where sequences are packed
    double scale;
    bool causal;
    int64_t left, right;
    bool is_plain;
};

inline const at::Tensor *pointer(const std::optional<at::Tensor> &tensor) { return tensor ? &*tensor : nullptr; }
inline const at::Tensor *pointer(const std::optional<const at::Tensor> &tensor) { return tensor ? &*tensor : nullptr; }

inline bool are_lengths(const at::Tensor *tensor)
{
    return !tensor || (tensor->scalar_type() == at::kInt && tensor->stride(-1) == 1);
}

inline bool is_replaceable(const Flash &call)
{
    auto type = call.q.scalar_type();
    bool known = type == at::kHalf || type == at::kBFloat16 || type == at::kFloat;
    bool same = call.k.scalar_type() == type && call.v.scalar_type() == type && call.q.size(-1) == call.v.size(-1);
    bool out = !call.out || (call.out->scalar_type() == type && call.out->is_contiguous());
    // With `causal` the right side of a window counts for nothing; vllm 0.6.3 gives both sides the same.
    bool window = call.causal || (call.left < 0 && call.right < 0);
    return call.is_plain && known && same && out && window && call.q.stride(-1) == 1 && call.k.stride(-1) == 1 &&
           call.v.stride(-1) == 1 && are_lengths(call.q_starts) && are_lengths(call.kv_starts) &&
           are_lengths(call.kv_lens) && are_lengths(call.pages);
}

// [batch, token, head, dim], or [token, head, dim] of packed sequences.
inline void set_strides(int64_t (&stride)[3], const at::Tensor &tensor)
{
    set_stride(stride, tensor.dim() == 4 ? tensor.stride(0) : 0, tensor.stride(-3), tensor.stride(-2));
}

inline const int32_t *lengths(const at::Tensor *tensor)
{
    return tensor ? static_cast<const int32_t *>(tensor->data_ptr()) : nullptr;
}

inline patchkit_attention_device device_call(const Flash &call, const at::Tensor &out, const at::Tensor &lse,
                                             void *stream)
{
    patchkit_attention_device wide{};
    wide.size = sizeof wide;
    wide.version = PATCHKIT_ATTENTION_VERSION;
    auto type = call.q.scalar_type();
    wide.dtype = type == at::kHalf ? PATCHKIT_FLOAT16 : type == at::kBFloat16 ? PATCHKIT_BFLOAT16 : PATCHKIT_FLOAT32;
    wide.on_cuda = call.q.device().is_cuda();
    wide.stream = stream;
    wide.q = call.q.data_ptr();
    wide.k = call.k.data_ptr();
    wide.v = call.v.data_ptr();
    wide.o = out.data_ptr();
    wide.lse = static_cast<float *>(lse.data_ptr());
    set_strides(wide.q_stride, call.q);
    set_strides(wide.k_stride, call.k);
    set_strides(wide.v_stride, call.v);
    set_strides(wide.o_stride, out);
    set_stride(wide.lse_stride, lse.dim() == 3 ? lse.stride(0) : 0, 1, lse.stride(-2));
    wide.q_starts = lengths(call.q_starts);
    wide.kv_starts = lengths(call.kv_starts);
    wide.kv_lens = lengths(call.kv_lens);
    wide.pages = lengths(call.pages);
    wide.pages_stride = call.pages ? call.pages->stride(0) : 0;
    wide.page_tokens = call.pages ? int32_t(call.k.size(1)) : 0;
    wide.batch = int32_t(call.q_starts ? call.q_starts->size(0) - 1 : call.q.size(0));
    wide.q_len = int32_t(call.q_starts ? call.q_len : call.q.size(1));
    wide.kv_len = int32_t(call.kv_starts || call.pages ? call.kv_len : call.k.size(1));
    wide.heads = int32_t(call.q.size(-2));
    wide.kv_heads = int32_t(call.k.size(-2));
    wide.head_dim = int32_t(call.q.size(-1));
    wide.scale = float(call.scale);
    wide.window = int32_t(call.left + 1);
    wide.causal = call.causal;
    return wide;
}

// The log of the sums, as the real function shapes it: from torch's allocator, as the real function's is.
inline at::Tensor new_lse(const Flash &call)
{
    int64_t heads = call.q.size(-2);
    auto options = call.q.options().dtype(at::kFloat);
    if (call.q_starts)
        return call.q.new_empty({heads, call.q.size(0)}, options);
    return call.q.new_empty({call.q.size(0), heads, call.q.size(1)}, options);
}

// Both, one after the other: reads back, so never while capturing. What the real function wrote is what it returns
// first: the caller may have given no `out`.
template <typename Real>
std::vector<at::Tensor> compared(Replacement &replacement, const patchkit_attention_device &wide,
                                 const at::Tensor &ours, Real real)
{
    bool ran = replacement.run(wide);
    std::vector<at::Tensor> returned = real();
    at::Tensor difference = ours.to(at::kFloat).sub(returned[0].to(at::kFloat)).abs().max();
    replacement.compared(ran && is_close(difference.item<double>()));
    return returned;
}

template <typename Results, typename Real>
std::vector<at::Tensor> replaced(Replacement &replacement, const Flash &call, Results results, Real real)
{
    auto unchanged = [&] { return real(call.scale, call.left); };
    Launching launching;
    if (!replacement.wanted() || !is_replaceable(call) || !find_launching(call.q, launching) || !call.q.numel())
        return unchanged();
    bool both = !launching.capturing && replacement.is_to_compare();
    at::Tensor out = both || !call.out ? call.q.new_empty(call.q.sizes()) : *call.out;
    at::Tensor lse = new_lse(call);
    patchkit_attention_device wide = device_call(call, out, lse, launching.stream);
    if (both)
        return compared(replacement, wide, out, unchanged);
    if (!replacement.run(wide))
        return unchanged();
    Replacement::replaced();
    return results(out, lse);
}

// `real` takes scale and window; each entry point has a type of its own for it, and so a replacement of its own.
// `results` makes of the output and the log of the sums what the real function returns.
template <typename Results, typename Real>
std::vector<at::Tensor> change_flash(uint32_t symbol, uint32_t mode, const Flash &call, Results results, Real real)
{
    if (mode == PK_REPLACE) {
        static Replacement replacement("patchkit_attention_launch");
        return replaced(replacement, call, results, real);
    }
    double scale = call.scale * qk_scale(mode);
    int64_t left = window(mode, call.left);
    std::vector<at::Tensor> returned;
    trace_call(symbol, mode, {call.q, call.k, call.q, scale, left, call.causal}, [&] { returned = real(scale, left); });
    return returned;
}

} // namespace patchkit
