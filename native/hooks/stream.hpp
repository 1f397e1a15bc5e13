// Where torch launches: its stream, and whether a CUDA graph is being captured on it. torch's and CUDA's C functions
// are asked by name, since stage 2 is built without CUDA's headers.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <dlfcn.h>

namespace patchkit
{

struct Launching {
    void *stream; // cudaStream_t; none on the CPU
    bool capturing;
};

// False: it cannot be told. Allocates nothing, waits for nothing, and is allowed while capturing.
inline bool find_launching(const at::Tensor &tensor, Launching &found)
{
    using StreamOf = int32_t (*)(int32_t, void **);
    using IsCapturing = int (*)(void *, int *);
    found = {nullptr, false};
    if (tensor.device().is_cpu())
        return true;
    static void *const torch = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    static const auto stream_of =
        reinterpret_cast<StreamOf>(torch ? dlsym(torch, "aoti_torch_get_current_cuda_stream") : nullptr);
    static const auto is_capturing =
        reinterpret_cast<IsCapturing>(torch ? dlsym(torch, "cudaStreamIsCapturing") : nullptr);
    int status = 0;
    if (!tensor.device().is_cuda() || !stream_of || !is_capturing || stream_of(tensor.device().index(), &found.stream))
        return false;
    if (is_capturing(found.stream, &status))
        return false;
    found.capturing = status != 0;
    return true;
}

} // namespace patchkit
