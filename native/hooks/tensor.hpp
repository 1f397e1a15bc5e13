// What a record says of torch's tensors. Only what reads a tensor's own fields: no allocation, no call into a device.
#pragma once

#include <ATen/core/Tensor.h>

#include "hook.hpp"

namespace patchkit
{

// A call as it is made: `left` is FlashAttention's window, -1 for none.
struct Attention {
    const at::Tensor &q, &k, &o;
    double scale;
    int64_t left;
    bool causal;
};

inline void put_shape(int32_t (&shape)[4], const at::Tensor &tensor)
{
    auto sizes = tensor.sizes();
    for (size_t i = 0; i < 4; i++)
        shape[i] = i < sizes.size() ? int32_t(sizes[i]) : 0;
}

// Makes a call and records it. The tensors are looked at before: FlashAttention 2 gives q another shape.
template <typename Real>
void trace_call(uint32_t symbol, uint32_t mode, const Attention &call, Real real)
{
    Traced traced(symbol, mode);
    traced->dtype = uint8_t(call.q.scalar_type());
    traced->device = uint8_t(call.q.device().type());
    put_shape(traced->q, call.q);
    put_shape(traced->k, call.k);
    put_shape(traced->o, call.o);
    traced->scale = bits(call.scale);
    traced->window = int32_t(call.left + 1);
    traced->causal = call.causal;
    real();
    traced.returned();
}

} // namespace patchkit
