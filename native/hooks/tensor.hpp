// What a record says of torch's tensors. Only what reads a tensor's own fields: no allocation, no call into a device.
#pragma once

#include <ATen/core/Tensor.h>

#include "hook.hpp"

namespace patchkit
{

inline void put_shape(int32_t (&shape)[4], const at::Tensor &tensor)
{
    auto sizes = tensor.sizes();
    for (size_t i = 0; i < 4; i++)
        shape[i] = i < sizes.size() ? int32_t(sizes[i]) : 0;
}

inline void put_tensors(pk_record *record, const at::Tensor &q, const at::Tensor &k, const at::Tensor &o)
{
    record->dtype = uint8_t(q.scalar_type());
    record->device = uint8_t(q.device().type());
    put_shape(record->q, q);
    put_shape(record->k, k);
    put_shape(record->o, o);
}

} // namespace patchkit
