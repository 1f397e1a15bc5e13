/* A library for the mode `replace`: attention as its formula says it. nvcc makes one for a GPU of it, with a warp for
 * each query and head, g++ one for the CPU, in float32. */
#include "patchkit/attention.h"

#include <cmath>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#else
#define __device__
#endif

namespace
{

constexpr int MOST = 256; /* head_dim */

__device__ float number(float value) { return value; }
__device__ void put(float *to, float value) { *to = value; }

#ifdef __CUDACC__
constexpr int LANES = 32;

__device__ float number(__half value) { return __half2float(value); }
__device__ float number(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ void put(__half *to, float value) { *to = __float2half(value); }
__device__ void put(__nv_bfloat16 *to, float value) { *to = __float2bfloat16(value); }

__device__ float sum_of_lanes(float value)
{
    for (int apart = LANES / 2; apart; apart /= 2)
        value += __shfl_xor_sync(~0u, value, apart);
    return value;
}
#else
constexpr int LANES = 1;

float sum_of_lanes(float value) { return value; }
#endif

struct Place {
    int at, head, sequence, lane;
};

/* Where a key or value of a sequence stands. */
__device__ int64_t place(const patchkit_attention_device &call, const int64_t *stride, int sequence, int token)
{
    if (call.pages) {
        int page = call.pages[sequence * call.pages_stride + token / call.page_tokens];
        return page * stride[0] + token % call.page_tokens * stride[1];
    }
    if (call.kv_starts)
        return (call.kv_starts[sequence] + token) * stride[1];
    return sequence * stride[0] + token * stride[1];
}

__device__ int keys_of(const patchkit_attention_device &call, int sequence)
{
    if (call.kv_lens)
        return call.kv_lens[sequence];
    return call.kv_starts ? call.kv_starts[sequence + 1] - call.kv_starts[sequence] : call.kv_len;
}

template <typename T>
__device__ void attend(const patchkit_attention_device &call, Place where)
{
    int at = where.at, head = where.head, sequence = where.sequence, lane = where.lane;
    int first = call.q_starts ? call.q_starts[sequence] : 0;
    int queries = call.q_starts ? call.q_starts[sequence + 1] - first : call.q_len;
    if (at >= queries)
        return;
    int batch = call.q_starts ? 0 : sequence, token = first + at, kv_head = head / (call.heads / call.kv_heads);
    int keys = keys_of(call, sequence), own = keys - queries + at;
    int end = call.causal ? own + 1 : keys, begin = call.window && own + 1 > call.window ? own + 1 - call.window : 0;
    const T *q = (const T *)call.q + batch * call.q_stride[0] + token * call.q_stride[1] + head * call.q_stride[2];
    float largest = -INFINITY, sum = 0, out[MOST / LANES] = {};
    for (int key = begin; key < end; key++) {
        const T *k = (const T *)call.k + place(call, call.k_stride, sequence, key) + kv_head * call.k_stride[2];
        const T *v = (const T *)call.v + place(call, call.v_stride, sequence, key) + kv_head * call.v_stride[2];
        float part = 0;
        for (int d = lane; d < call.head_dim; d += LANES)
            part += number(q[d]) * number(k[d]);
        float score = call.scale * sum_of_lanes(part), higher = fmaxf(largest, score);
        float before = expf(largest - higher), weight = expf(score - higher);
        sum = sum * before + weight;
        for (int d = lane, i = 0; d < call.head_dim; d += LANES, i++)
            out[i] = out[i] * before + weight * number(v[d]);
        largest = higher;
    }
    T *o = (T *)call.o + batch * call.o_stride[0] + token * call.o_stride[1] + head * call.o_stride[2];
    for (int d = lane, i = 0; d < call.head_dim; d += LANES, i++)
        put(o + d, sum > 0 ? out[i] / sum : 0);
    if (lane == 0)
        call.lse[batch * call.lse_stride[0] + token * call.lse_stride[1] + head * call.lse_stride[2]] =
            sum > 0 ? largest + logf(sum) : INFINITY;
}

#ifdef __CUDACC__
template <typename T>
__global__ void attend_all(patchkit_attention_device call)
{
    attend<T>(call, {int(blockIdx.x), int(blockIdx.y), int(blockIdx.z), int(threadIdx.x)});
}

int launch(const patchkit_attention_device *call)
{
    if (!call->on_cuda)
        return PATCHKIT_INVALID;
    dim3 grid(unsigned(call->q_len), unsigned(call->heads), unsigned(call->batch));
    cudaStream_t stream = (cudaStream_t)call->stream;
    if (call->dtype == PATCHKIT_FLOAT16)
        attend_all<__half><<<grid, LANES, 0, stream>>>(*call);
    else if (call->dtype == PATCHKIT_BFLOAT16)
        attend_all<__nv_bfloat16><<<grid, LANES, 0, stream>>>(*call);
    else
        attend_all<float><<<grid, LANES, 0, stream>>>(*call);
    return cudaGetLastError() == cudaSuccess ? PATCHKIT_OK : PATCHKIT_INVALID;
}
#else
int launch(const patchkit_attention_device *call)
{
    if (call->on_cuda || call->dtype != PATCHKIT_FLOAT32)
        return PATCHKIT_INVALID;
    for (int sequence = 0; sequence < call->batch; sequence++)
        for (int head = 0; head < call->heads; head++)
            for (int at = 0; at < call->q_len; at++)
                attend<float>(*call, {at, head, sequence, 0});
    return PATCHKIT_OK;
}
#endif

} // namespace

extern "C" __attribute__((visibility("default"))) int patchkit_attention_launch(const patchkit_attention_device *call)
{
    if (call->size != sizeof *call || call->version != PATCHKIT_ATTENTION_VERSION)
        return PATCHKIT_WRONG_VERSION;
    if (call->head_dim > MOST || call->q_len < 1)
        return PATCHKIT_INVALID;
    return launch(call);
}
