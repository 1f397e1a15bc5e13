// One query a sequence over a paged cache: window + anchors, or dense; a block for a sequence and a key/value head.
//
//     out = sum_j p_j v_j;   lse = log sum_j exp(scale q . k_j)   over the keys j that the query at keys - 1 sees
//
// It is memory that bounds it, so that all that counts is how many loads are under way from the first moment to the
// last. Blocks are small enough for five on a multiprocessor: with 132 of those, 660 sequences and heads are under way
// at once and end together. A warp has a ring of tiles of its own, filled by cp.async, and waits for no other warp
// until the end. Pages are looked up one tile ahead of the copies. Every key is read once by one block, so that the L2
// cache is asked to give its lines up first, and keeps what the rest of a model has in it.
//
// The keys that are seen are anchors and window, put end to end; a tile holds 16 of them. The product is turned: keys
// are the rows of an mma and up to 8 query heads its columns, so that scores, weights and results have the heads in
// the same lanes.

#include "call.h"
#include "hopper.cuh"

#include <cuda_runtime.h>

namespace patchkit
{

constexpr int TILE = 16;                      // keys
constexpr int COLUMNS = 8;                    // query heads of a key/value head, at most
constexpr int WARPS = 2, BLOCKS = 5;          // of a block; on a multiprocessor
constexpr int ROOM = 224 * 1024 / BLOCKS / 2; // bytes of shared memory for a warp
constexpr float GROWTH = 8.f; // how far, in units of log 2, a score may pass its base before all are rescaled

template <int HeadDim>
struct Ring {
    static constexpr int D = HeadDim;
    static constexpr int PITCH = D * 2 + 16;       // bytes of a key in shared memory: 8 of them lie in different banks
    static constexpr int BYTES = 2 * TILE * PITCH; // of a tile, keys and values
    static constexpr int STAGES = ROOM / BYTES;
};

__device__ __forceinline__ uint64_t evict_first()
{
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// Copies 16 bytes, or writes 16 bytes of zeros where `bytes` is 0.
__device__ __forceinline__ void copy(uint32_t to, const void *from, int bytes, uint64_t policy)
{
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(to), "l"(from), "r"(bytes),
                 "l"(policy)
                 : "memory");
}

__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int Pending>
__device__ __forceinline__ void wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], uint32_t from)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}

__device__ __forceinline__ void load_turned(uint32_t (&to)[4], uint32_t from)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}

__device__ __forceinline__ uint32_t turn(uint32_t matrix)
{
    uint32_t turned;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(matrix));
    return turned;
}

// d[16, 8] += a[16, 16] b[16, 8]
template <bool Bfloat>
__device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    if constexpr (Bfloat)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                     "{%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                     "{%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// What a warp has of a sequence. Accumulator r of an mma is row lane / 4 + r / 2 * 8, column lane % 4 * 2 + r % 2: rows
// are keys for scores and dims for `out`, columns are heads.
template <class R, bool Bfloat>
struct Reader {
    static constexpr int D = R::D, STAGES = R::STAGES, CHUNKS = D / 8; // 16 bytes each
    const PatchkitDecode &c;
    int kv_head, lane;
    int low, anchor_end, seen;
    const int *table;
    uint32_t ring; // shared memory
    uint64_t policy;
    uint32_t query[D / 16][2];
    float out[D / 16][4];
    float base[2], total[2];

    __device__ __forceinline__ int position(int number) const
    {
        return number < anchor_end ? number : low + number - anchor_end;
    }

    // The page of the key number lane % 16 of a tile.
    __device__ __forceinline__ int look_up(int tile) const
    {
        int number = tile * TILE + lane % TILE;
        return number < seen ? __ldg(table + (position(number) >> c.page_bits)) : 0;
    }

    __device__ __forceinline__ void start(int slot, int tile, int page) const
    {
        if (tile * TILE < seen) {
            uint32_t to = ring + slot * R::BYTES;
            auto *keys = static_cast<const uint16_t *>(c.key) + kv_head * c.key_head;
            auto *values = static_cast<const uint16_t *>(c.value) + kv_head * c.value_head;
#pragma unroll
            for (int i = 0; i < TILE * CHUNKS / 32; ++i) {
                int chunk = i * 32 + lane, row = chunk / CHUNKS, column = chunk % CHUNKS * 8;
                int64_t from = __shfl_sync(0xffffffff, page, row);
                int number = tile * TILE + row, bytes = number < seen ? 16 : 0;
                int inside = number < seen ? position(number) & ((1 << c.page_bits) - 1) : 0;
                uint32_t at = to + row * R::PITCH + column * 2;
                copy(at, keys + from * c.key_page + inside * c.key_row + column, bytes, policy);
                copy(at + TILE * R::PITCH, values + from * c.value_page + inside * c.value_row + column, bytes, policy);
            }
        }
        commit(); // also where there is none: groups are counted
    }

    __device__ __forceinline__ void rescale(const float (&scores)[4])
    {
#pragma unroll
        for (int side = 0; side < 2; ++side) {
            float top = fmaxf(scores[side], scores[side + 2]);
            for (int step = 4; step < 32; step *= 2)
                top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, step));
            top = fmaxf(top, base[side]);
            float shrink = top == -INFINITY ? 1.f : exp2_fast(base[side] - top);
            base[side] = top;
            total[side] *= shrink;
#pragma unroll
            for (int block = 0; block < D / 16; ++block)
                out[block][side] *= shrink, out[block][side + 2] *= shrink;
        }
    }

    __device__ __forceinline__ void attend(int slot, int tile)
    {
        uint32_t keys = ring + slot * R::BYTES + lane % 16 * R::PITCH + lane / 16 * 16;
        uint32_t values =
            ring + slot * R::BYTES + TILE * R::PITCH + (lane % 8 + lane / 16 * 8) * R::PITCH + lane / 8 % 2 * 16;
        float scores[4], chains[2][4] = {};
        uint32_t matrices[4];
#pragma unroll
        for (int step = 0; step < D / 16; ++step) {
            load_matrices(matrices, keys + step * 32);
            multiply<Bfloat>(chains[step % 2], matrices, query[step][0], query[step][1]);
        }
        bool grown = false;
#pragma unroll
        for (int r = 0; r < 4; ++r) {
            bool there = tile * TILE + lane / 4 + r / 2 * 8 < seen;
            scores[r] = there ? (chains[0][r] + chains[1][r]) * c.factor : -INFINITY;
            grown |= scores[r] > base[r % 2] + GROWTH;
        }
        if (__any_sync(0xffffffff, grown))
            rescale(scores);
#pragma unroll
        for (int r = 0; r < 4; ++r) {
            scores[r] = exp2_fast(scores[r] - (base[r % 2] == -INFINITY ? 0.f : base[r % 2]));
            total[r % 2] += scores[r];
        }
        uint32_t first = turn(pack_pair<Bfloat>(scores[0], scores[1]));
        uint32_t second = turn(pack_pair<Bfloat>(scores[2], scores[3]));
#pragma unroll
        for (int block = 0; block < D / 16; ++block) {
            load_turned(matrices, values + block * 32);
            multiply<Bfloat>(out[block], matrices, first, second);
        }
    }

    __device__ __forceinline__ void run(int warp)
    {
        int pages[STAGES], tiles = (seen + TILE - 1) / TILE, slot = 0;
#pragma unroll
        for (int i = 0; i < STAGES; ++i)
            pages[i] = look_up(warp + i * WARPS);
#pragma unroll
        for (int i = 0; i < STAGES; ++i)
            start(i, warp + i * WARPS, pages[i]);
        int page = look_up(warp + STAGES * WARPS);
        for (int tile = warp; tile < tiles; tile += WARPS) {
            wait<STAGES - 1>();
            __syncwarp();
            attend(slot, tile);
            __syncwarp(); // all have read the tile
            start(slot, tile + STAGES * WARPS, page);
            page = look_up(tile + (STAGES + 1) * WARPS);
            slot = slot + 1 == STAGES ? 0 : slot + 1;
        }
        wait<0>();
    }
};

// What warps leave for each other at the end, where the rings were.
template <int D>
struct States {
    float base[WARPS][COLUMNS], total[WARPS][COLUMNS];
    float out[WARPS][COLUMNS][D + 4];
};

template <class Reader, int D>
__device__ __forceinline__ void leave(const Reader &reader, States<D> &states, int warp, int lane)
{
#pragma unroll
    for (int side = 0; side < 2; ++side) {
        int head = lane % 4 * 2 + side;
        float total = reader.total[side];
        for (int step = 4; step < 32; step *= 2)
            total += __shfl_xor_sync(0xffffffff, total, step);
        if (lane < 4) { // a base of -inf counts as 0 where a weight was NaN
            states.base[warp][head] = reader.base[side] == -INFINITY && total != 0.f ? 0.f : reader.base[side];
            states.total[warp][head] = total;
        }
#pragma unroll
        for (int block = 0; block < D / 16; ++block) {
            states.out[warp][head][block * 16 + lane / 4] = reader.out[block][side];
            states.out[warp][head][block * 16 + lane / 4 + 8] = reader.out[block][side + 2];
        }
    }
}

template <bool Bfloat, int D>
__device__ __forceinline__ void merge(const PatchkitDecode &c, const States<D> &states, int kv_head, int64_t row)
{
    int group = c.heads / c.kv_heads;
    for (int pair = threadIdx.x; pair < group * D / 2; pair += WARPS * 32) {
        int column = pair / (D / 2), dim = pair % (D / 2) * 2;
        float top = -INFINITY, total = 0.f, left = 0.f, right = 0.f;
        for (int warp = 0; warp < WARPS; ++warp)
            top = fmaxf(top, states.base[warp][column]);
        for (int warp = 0; warp < WARPS; ++warp) {
            if (states.base[warp][column] == -INFINITY) // it had no key
                continue;
            float share = exp2_fast(states.base[warp][column] - top);
            total += share * states.total[warp][column];
            left += share * states.out[warp][column][dim];
            right += share * states.out[warp][column][dim + 1];
        }
        float inverse = total == 0.f ? 0.f : 1.f / total;
        int64_t head = kv_head * group + column;
        static_cast<uint32_t *>(c.out)[((row * c.heads + head) * D + dim) / 2] =
            pack_pair<Bfloat>(left * inverse, right * inverse);
        if (dim == 0)
            c.lse[head * c.tokens + row] = total == 0.f ? -INFINITY : (top + log2f(total)) * LN2;
    }
}

template <class R, bool Bfloat>
__global__ void __launch_bounds__(WARPS * 32, BLOCKS) decode(const __grid_constant__ PatchkitDecode c)
{
    extern __shared__ __align__(16) uint8_t raw[];
    constexpr int D = R::D;
    int sequence = blockIdx.y, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int row = __ldg(c.query_starts + sequence), end = __ldg(c.query_starts + sequence + 1);
    int keys = __ldg(c.key_lengths + sequence);
    if (row == end)
        return;
    Reader<R, Bfloat> reader{c, static_cast<int>(blockIdx.x), lane};
    reader.low = c.dense ? 0 : max(keys - c.window, 0);
    reader.anchor_end = c.dense ? 0 : min(c.anchors, reader.low);
    reader.seen = reader.anchor_end + keys - reader.low;
    reader.table = c.table + sequence * c.table_row;
    reader.ring = shared_address(raw) + warp * R::STAGES * R::BYTES;
    reader.policy = evict_first();
    int group = c.heads / c.kv_heads, column = lane / 4;
    auto *query = static_cast<const uint16_t *>(c.query) + row * c.query_row +
                  (static_cast<int64_t>(blockIdx.x) * group + column) * c.query_head + lane % 4 * 2;
#pragma unroll
    for (int step = 0; step < D / 16; ++step)
#pragma unroll
        for (int half = 0; half < 2; ++half)
            reader.query[step][half] =
                column < group ? __ldg(reinterpret_cast<const uint32_t *>(query + step * 16 + half * 8)) : 0;
#pragma unroll
    for (int side = 0; side < 2; ++side)
        reader.base[side] = -INFINITY, reader.total[side] = 0.f;
#pragma unroll
    for (int block = 0; block < D / 16; ++block)
#pragma unroll
        for (int r = 0; r < 4; ++r)
            reader.out[block][r] = 0.f;
    reader.run(warp);
    __syncthreads(); // the rings are free
    auto &states = *reinterpret_cast<States<D> *>(raw);
    leave(reader, states, warp, lane);
    __syncthreads();
    merge<Bfloat>(c, states, blockIdx.x, row);
}

template <class R, bool Bfloat>
cudaError_t launch(const PatchkitDecode &c, cudaStream_t stream)
{
    constexpr int BYTES = WARPS * R::STAGES * R::BYTES;
    static_assert(sizeof(States<R::D>) <= BYTES, "the states of the warps lie where their rings were");
    auto kernel = decode<R, Bfloat>;
    cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
    if (error != cudaSuccess)
        return error;
    kernel<<<dim3(c.kv_heads, c.batch), WARPS * 32, BYTES, stream>>>(c);
    return cudaGetLastError();
}

template <int HeadDim>
cudaError_t launch_type(const PatchkitDecode &c, cudaStream_t stream)
{
    return c.bfloat ? launch<Ring<HeadDim>, true>(c, stream) : launch<Ring<HeadDim>, false>(c, stream);
}

} // namespace patchkit

extern "C" __attribute__((visibility("default"))) const char *patchkit_decode_members()
{
    return PATCHKIT_MEMBERS(PATCHKIT_DECODE);
}

// Returns a cudaError_t; 0 is success.
extern "C" __attribute__((visibility("default"))) int patchkit_decode(const PatchkitDecode *c, void *stream)
{
    using namespace patchkit;
    auto on = static_cast<cudaStream_t>(stream);
    if (c->heads > c->kv_heads * COLUMNS)
        return cudaErrorInvalidValue;
    switch (c->head_dim) {
    case 64:
        return launch_type<64>(*c, on);
    case 96:
        return launch_type<96>(*c, on);
    case 128:
        return launch_type<128>(*c, on);
    default:
        return cudaErrorInvalidValue;
    }
}
