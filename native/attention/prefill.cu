// Forward over packed or paged sequences for Hopper: causal window + anchors, or dense causal; GQA packed.
//
//     out_i = sum_j p_ij v_j;   lse_i = log sum_j exp(scale q_i . k_j)   over the keys j that query i sees
//
// A block stays on a multiprocessor and takes one tile of rows after the other. One warp copies tiles of queries, keys
// and values by TMA, ahead of the others; three or four warpgroups hold 64 rows each (queries times Pack heads of one
// key/value head). While the tensor cores multiply weights and values of one tile, a warpgroup takes the exponentials
// of the next.
//
// What bounds it is how many steps a warp needs for a tile beside the 5 that every score costs, and how many warps
// there are to take them in turn; not the unit for exponentials: with polynomials for a quarter of them (as in
// FlashAttention 4) it was slower.
//
// Which keys that are, in which order, and which of them are masked is arithmetic in work.cuh. Where keys lie in pages,
// a warp starts the copies of keys, another those of values: small copies cost as much to start as large ones.

#include "call.h"
#include "hopper.cuh"
#include "work.cuh"

#include <cuda_runtime.h>

namespace patchkit
{

constexpr int QUERY_STAGES = 2;
constexpr float GROWTH = 8.f; // how far, in units of log 2, a row's scores may pass its base before it is rescaled

// Head dim, keys of a tile, warpgroups that compute.
template <int HeadDim, int Keys, int Groups>
struct Shape {
    static constexpr int D = HeadDim, N = Keys, GROUPS = Groups;
    static constexpr int ROWS = Groups * GROUP_ROWS;
    static constexpr int THREADS = 128 * (Groups + 1);
    static constexpr int FITTING = (224 * 1024 - 2048 - QUERY_STAGES * ROWS * D * 2) / (2 * D * 2 * N);
    static constexpr int STAGES = FITTING >= 8 ? 8 : FITTING >= 4 ? 4 : FITTING; // a power of two is divided by at once
    // What setmaxnreg moves from the warpgroup that copies to those that compute.
    static constexpr int COPY_REGISTERS = 32;
    static constexpr int SHARE = 65536 / THREADS / 8 * 8 < 168 ? 65536 / THREADS / 8 * 8 : 168;
    static constexpr int REGISTERS = (SHARE * (Groups + 1) - COPY_REGISTERS) / Groups / 8 * 8;
};

template <class S>
struct Storage {
    static constexpr int D = S::D, N = S::N, ROWS = S::ROWS, STAGES = S::STAGES;
    alignas(1024) uint16_t query[QUERY_STAGES][D / 64][ROWS][64];
    alignas(1024) uint16_t key[STAGES][D / 64][N][64];
    alignas(1024) uint16_t value[STAGES][D / 64][N][64];
    Work work[QUERY_STAGES]; // of the queries beside it
    uint64_t query_full[QUERY_STAGES], query_empty[QUERY_STAGES];
    uint64_t key_full[STAGES], key_empty[STAGES], value_full[STAGES], value_empty[STAGES];
};

// A place in a ring of buffers, and the parity with which its use number is waited for.
struct Place {
    int slot;
    uint32_t parity;
};

template <int Stages>
__device__ __forceinline__ Place place_of(uint32_t use)
{
    return {static_cast<int>(use % Stages), (use / Stages) & 1};
}

// How the copy engine sees the tensors: a warpgroup's rows of queries, a whole tile of keys or values, and a box of
// them; of pages, as many rows as are copied at once in place of a tile, and no boxes.
struct Maps {
    CUtensorMap query, key, value, key_box, value_box;
};

// Read anew wherever it is asked for: registers are few in the warps that copy.
__device__ __forceinline__ int lane_number()
{
    int lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}

// What copies: a thread, or for pages two warps.
template <class S, int Pack, bool Paged>
struct Producer {
    static constexpr int D = S::D, N = S::N, ROWS = S::ROWS, STAGES = S::STAGES, HALVES = D / 64;
    static constexpr int THREADS = Paged ? 64 : 1;
    const Arguments &a;
    Storage<S> &s;
    const Maps &maps;

    __device__ __forceinline__ bool leads() const { return !Paged || lane_number() == 0; }

    __device__ __forceinline__ void copy_queries(const Work &w, int slot) const
    {
        uint64_t *full = &s.query_full[slot];
        s.work[slot] = w;
        if (w.boxes == 0) {
            barrier_arrive(full);
            return;
        }
        barrier_expect(full, ROWS * D * 2);
        for (int half = 0; half < HALVES; ++half)
            for (int group = 0; group < ROWS / GROUP_ROWS; ++group)
                copy_box(s.query[slot][half][group * GROUP_ROWS], &maps.query, full, half * 64, w.pack * Pack,
                         w.begin + w.first + group * (GROUP_ROWS / Pack));
    }

    // Copies a tile of packed keys or values in as few steps as can be: one thread starts them, and they would not keep
    // up box by box.
    __device__ __forceinline__ void copy_tile(uint16_t (&to)[HALVES][N][64], const CUtensorMap *tile,
                                              const CUtensorMap *one, uint64_t *full, const Work &w, int box,
                                              int kv_head) const
    {
        barrier_expect(full, tile_boxes<N>(w, box) * BOX * D * 2);
        if (is_run<N>(w, box)) {
            for (int half = 0; half < HALVES; ++half)
                copy_box(to[half][0], tile, full, half * 64, w.key_begin + first_key(w.low, w.window_boxes, box),
                         kv_head);
            return;
        }
        for (int i = 0; i < N / BOX && box + i < w.boxes; ++i) {
            int row = w.key_begin + first_key(w.low, w.window_boxes, box + i);
            for (int half = 0; half < HALVES; ++half)
                copy_box(to[half][i * BOX], one, full, half * 64, row, kv_head);
        }
    }

    __device__ __forceinline__ void copy_packed(const Work &w, int kv_head, uint32_t &tiles) const
    {
        for (int box = 0; box < w.boxes; box += N / BOX) {
            Place p = place_of<STAGES>(tiles++);
            barrier_wait(&s.key_empty[p.slot], p.parity ^ 1);
            copy_tile(s.key[p.slot], &maps.key, &maps.key_box, &s.key_full[p.slot], w, box, kv_head);
            barrier_wait(&s.value_empty[p.slot], p.parity ^ 1);
            copy_tile(s.value[p.slot], &maps.value, &maps.value_box, &s.value_full[p.slot], w, box, kv_head);
        }
    }

    // Copies the keys or the values of some work out of their pages; every lane of a warp has rows of its own.
    template <bool Values>
    __device__ __forceinline__ void copy_pages(const Work &w, int kv_head, uint32_t &tiles) const
    {
        int lane = lane_number(), half = lane % HALVES,
            row = lane / HALVES * a.unit; // beyond the tile for lanes without a share
        Spot next = find_spot(a, w, 0, row);
        for (int box = 0; box < w.boxes; box += N / BOX) {
            Place p = place_of<STAGES>(tiles++);
            Spot spot = next;
            next = find_spot(a, w, box + N / BOX, row); // early: the answer takes a while
            int rows = tile_boxes<N>(w, box) * BOX;
            barrier_wait(&(Values ? s.value_empty : s.key_empty)[p.slot], p.parity ^ 1);
            uint64_t *full = &(Values ? s.value_full : s.key_full)[p.slot];
            if (leads())
                barrier_expect(full, rows * D * 2);
            __syncwarp();
            if (row < rows)
                copy_box((Values ? s.value : s.key)[p.slot][half][row], Values ? &maps.value : &maps.key, full,
                         half * 64, spot.row, kv_head, spot.page);
        }
    }

    // The warp for values in pages: it follows the one for keys, as the warpgroups that compute do.
    __device__ __forceinline__ void follow() const
    {
        uint32_t tiles = 0;
        for (uint32_t queries = 0;; ++queries) {
            Place q = place_of<QUERY_STAGES>(queries);
            barrier_wait(&s.query_full[q.slot], q.parity);
            const Work &w = s.work[q.slot];
            if (w.pack < 0)
                return;
            copy_pages<true>(w, w.pack * Pack / a.group, tiles);
            __syncwarp();
            if (leads())
                barrier_arrive(&s.query_empty[q.slot]);
        }
    }

    __device__ __forceinline__ void run() const
    {
        uint32_t queries = 0, tiles = 0;
        int number = blockIdx.x, following = 0;
        for (; number < a.pieces; number = Paged ? same(following) : following) {
            Work w;
            bool found = find_work<ROWS, Pack, Paged>(a, number, w);
            wait_for_kernel_before(); // `clear`
            if (leads())
                following = gridDim.x + atomicAdd(a.next, 1); // asked for early: the answer takes a while
            if (!found)
                continue;
            int kv_head = w.pack * Pack / a.group;
            Place q = place_of<QUERY_STAGES>(queries++);
            barrier_wait(&s.query_empty[q.slot], q.parity ^ 1);
            if (leads())
                copy_queries(w, q.slot);
            if constexpr (Paged) {
                __syncwarp();
                copy_pages<false>(s.work[q.slot], kv_head, tiles);
            } else {
                copy_packed(w, kv_head, tiles);
            }
        }
        let_next_kernel_start(); // not earlier: its blocks would hold multiprocessors that others can use
        Place q = place_of<QUERY_STAGES>(queries);
        barrier_wait(&s.query_empty[q.slot], q.parity ^ 1);
        if (leads()) {
            s.work[q.slot].pack = -1;
            barrier_arrive(&s.query_full[q.slot]);
        }
    }
};

template <class S, int Pack, bool Bfloat>
struct Consumer {
    static constexpr int D = S::D, N = S::N, ROWS = S::ROWS, STAGES = S::STAGES;
    // A tile of keys: its number for these rows, and among all that the block has had.
    struct Tile {
        int number;
        uint32_t use;
        __device__ __forceinline__ Tile following() const { return {number + 1, use + 1}; }
    };
    const Arguments &a;
    Storage<S> &s;
    int group, thread; // number of the warpgroup, thread in it
    Rows rows;
    // The values of a tile are held while tiles behind it are skipped, which are those between the last keys of the
    // first and of the last warpgroup; with no buffer left for the next tile, both sides would wait for ever.
    static_assert((ROWS - GROUP_ROWS + N - 1) / N < STAGES);
    View<N, Pack> view;
    float out[D / 2];

    __device__ __forceinline__ void skip(uint32_t use) const
    {
        Place p = place_of<STAGES>(use);
        barrier_wait(&s.key_full[p.slot], p.parity);
        barrier_wait(&s.value_full[p.slot], p.parity);
        // No wgmma holds the four warps together here: none may run ahead by a whole ring.
        asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
        if (thread == 0)
            barrier_arrive(&s.key_empty[p.slot]), barrier_arrive(&s.value_empty[p.slot]);
    }

    template <int Held>
    __device__ __forceinline__ void multiply_keys(float (&scores)[Held], int query_slot, int slot)
    {
        uint32_t q = tile_address(s.query[query_slot][0][group * GROUP_ROWS], 0),
                 k = tile_address(s.key[slot][0][0], 0);
#pragma unroll
        for (int step = 0; step < D / 16; ++step) {
            int half = step / 4, inside = step % 4 * 2; // 16 columns are 32 bytes, in units of 16
            MultiplyShared<Held * 2, Bfloat>::run(scores, tile_descriptor(q + half * (ROWS * 128 >> 4) + inside),
                                                  tile_descriptor(k + half * (N * 128 >> 4) + inside), step != 0);
        }
    }

    template <int Steps>
    __device__ __forceinline__ void multiply_values(const uint32_t (&weights)[Steps][4], int slot)
    {
        uint32_t v = tile_address(s.value[slot][0][0], N * 128);
#pragma unroll
        for (int step = 0; step < Steps; ++step)
            MultiplyRegisters<D, Bfloat>::run(out, weights[step], tile_descriptor(v + step * (16 * 128 >> 4)));
    }

    // Moves the bases of the rows to their largest scores, and says by how much the rows shrink. As long as no score of
    // the warp passes its base by more than GROWTH nothing is moved: weights up to 2^GROWTH do no harm, and the
    // division at the end is by their sum. Four chains a row: few warps hide no latency.
    template <int Held>
    __device__ __forceinline__ bool rebase(const float (&scores)[Held], float (&shrink)[2])
    {
        float tops[2];
#pragma unroll
        for (int row = 0; row < 2; ++row) {
            float chains[4];
#pragma unroll
            for (int n = 0; n < Held / 4; ++n) {
                float larger = fmaxf(scores[n * 4 + row * 2], scores[n * 4 + row * 2 + 1]);
                chains[n % 4] = n < 4 ? larger : fmaxf(chains[n % 4], larger);
            }
            tops[row] = fmaxf(fmaxf(chains[0], chains[1]), fmaxf(chains[2], chains[3])) * a.factor;
        }
        if (!__any_sync(0xffffffff, tops[0] > rows.base[0] + GROWTH || tops[1] > rows.base[1] + GROWTH))
            return false;
#pragma unroll
        for (int row = 0; row < 2; ++row) {
            float top = fmaxf(tops[row], __shfl_xor_sync(0xffffffff, tops[row], 1));
            top = fmaxf(fmaxf(top, __shfl_xor_sync(0xffffffff, top, 2)), rows.base[row]);
            shrink[row] = top == -INFINITY ? 1.f : exp2_fast(rows.base[row] - top);
            rows.base[row] = top;
            rows.total[row] *= shrink[row];
        }
        return true;
    }

    // Turns scores into weights and adds them up.
    template <int Held>
    __device__ __forceinline__ void soften(float (&scores)[Held])
    {
#pragma unroll
        for (int row = 0; row < 2; ++row) {
            float base = rows.base[row] == -INFINITY ? 0.f : rows.base[row];
            float totals[4];
#pragma unroll
            for (int n = 0; n < Held / 4; ++n) {
#pragma unroll
                for (int side = 0; side < 2; ++side) {
                    float x = fmaf(scores[n * 4 + row * 2 + side], a.factor, -base);
                    float weight = exp2_fast(x);
                    scores[n * 4 + row * 2 + side] = weight;
                    totals[n % 2 * 2 + side] = n < 2 ? weight : totals[n % 2 * 2 + side] + weight;
                }
            }
            rows.total[row] += (totals[0] + totals[1]) + (totals[2] + totals[3]);
        }
    }

    __device__ __forceinline__ void rescale(const float (&shrink)[2])
    {
#pragma unroll
        for (int i = 0; i < D / 2; ++i)
            out[i] *= shrink[i / 2 % 2];
    }

    __device__ __forceinline__ void release(uint64_t *empty) const
    {
        if (thread == 0)
            barrier_arrive(empty);
    }

    // Finds the next tile that this warpgroup needs, from `tile` on, and hands back those before it; false where there
    // is none.
    __device__ __forceinline__ bool seek(Tile &tile) const
    {
        if (tile.number == view.gap)
            for (; tile.number < view.tail; ++tile.number)
                skip(tile.use++);
        return tile.number < view.end;
    }

    __device__ __forceinline__ Tile first_tile(uint32_t use) const
    {
        Tile tile{0, use};
        for (; tile.number < view.lead; ++tile.number)
            skip(tile.use++);
        return tile;
    }

    template <int Held>
    __device__ __forceinline__ void start_keys(float (&scores)[Held], int query_slot, const Tile &tile)
    {
        Place p = place_of<STAGES>(tile.use);
        barrier_wait(&s.key_full[p.slot], p.parity);
        wgmma_fence();
        pin(scores);
        multiply_keys(scores, query_slot, p.slot);
        wgmma_commit();
    }

    template <int Steps>
    __device__ __forceinline__ void start_values(const uint32_t (&weights)[Steps][4], const Tile &tile)
    {
        Place p = place_of<STAGES>(tile.use);
        barrier_wait(&s.value_full[p.slot], p.parity);
        wgmma_fence();
        pin(out);
        multiply_values(weights, p.slot);
        wgmma_commit();
    }

    __device__ __forceinline__ void release_keys(const Tile &tile) const
    {
        release(&s.key_empty[place_of<STAGES>(tile.use).slot]);
    }

    __device__ __forceinline__ void release_values(const Tile &tile) const
    {
        release(&s.value_empty[place_of<STAGES>(tile.use).slot]);
    }

    // Weights of the first tile of some rows.
    template <int Held>
    __device__ __forceinline__ void begin(uint32_t (&weights)[Held / 8][4], const Tile &tile, int query_slot)
    {
        float scores[Held], shrink[2];
        start_keys(scores, query_slot, tile);
        wgmma_wait<0>();
        pin(scores);
        release_keys(tile);
        view.mask(scores, tile.number, rows, thread, a);
        rebase(scores, shrink);
        soften(scores);
        pack_weights(scores, weights);
    }

    // Weights of a tile, in `following`, while the weights of the one before meet its values: what a softmax takes
    // overlaps with that, and with what the other warpgroups multiply.
    template <int Held>
    __device__ __forceinline__ void advance(const uint32_t (&weights)[N / 16][4], const Tile &before,
                                            uint32_t (&following)[Held / 8][4], const Tile &tile, int query_slot)
    {
        float scores[Held], shrink[2];
        start_keys(scores, query_slot, tile);
        Place v = place_of<STAGES>(before.use);
        barrier_wait(&s.value_full[v.slot], v.parity);
        pin(out);
        multiply_values(weights, v.slot);
        wgmma_commit();
        wgmma_wait<1>();
        pin(scores);
        release_keys(tile);
        view.mask(scores, tile.number, rows, thread, a);
        bool grown = rebase(scores, shrink);
        soften(scores);
        wgmma_wait<0>();
        pin(out);
        release_values(before);
        if (grown)
            rescale(shrink);
        pack_weights(scores, following);
    }

    template <int Steps>
    __device__ __forceinline__ void finish(const uint32_t (&weights)[Steps][4], const Tile &tile)
    {
        start_values(weights, tile);
        wgmma_wait<0>();
        pin(out);
        release_values(tile);
    }

    __device__ __forceinline__ void attend(Tile tile, int query_slot)
    {
        uint32_t weights[N / 16][4], last[BOX / 16][4];
        if (!seek(tile))
            return;
        if (tile.number < view.whole) {
            begin<N / 2>(weights, tile, query_slot);
            Tile before = tile;
            for (tile = tile.following(); seek(tile) && tile.number < view.whole; tile = tile.following()) {
                advance<N / 2>(weights, before, weights, tile, query_slot);
                before = tile;
            }
            if (tile.number == view.end) {
                finish(weights, before);
                return;
            }
            advance<BOX / 2>(weights, before, last, tile, query_slot);
        } else {
            begin<BOX / 2>(last, tile, query_slot);
        }
        finish(last, tile);
    }

    template <int Held>
    __device__ __forceinline__ void pack_weights(const float (&scores)[Held], uint32_t (&weights)[Held / 8][4])
    {
#pragma unroll
        for (int step = 0; step < Held / 8; ++step)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                weights[step][i] = pack_pair<Bfloat>(scores[step * 8 + i * 2], scores[step * 8 + i * 2 + 1]);
    }

    // Four lanes hold two columns of each of four blocks of eight; after it, each holds one whole block.
    __device__ __forceinline__ void exchange(uint32_t (&x)[4]) const
    {
        bool odd = thread & 1, high = thread & 2;
        uint32_t from = __shfl_xor_sync(0xffffffff, odd ? x[0] : x[1], 1);
        (odd ? x[0] : x[1]) = from;
        from = __shfl_xor_sync(0xffffffff, odd ? x[2] : x[3], 1);
        (odd ? x[2] : x[3]) = from;
        from = __shfl_xor_sync(0xffffffff, high ? x[0] : x[2], 2);
        (high ? x[0] : x[2]) = from;
        from = __shfl_xor_sync(0xffffffff, high ? x[1] : x[3], 2);
        (high ? x[1] : x[3]) = from;
    }

    __device__ __forceinline__ void store(const Work &w)
    {
        constexpr int QUERIES = GROUP_ROWS / Pack;
        bool odd = false;
#pragma unroll
        for (int row = 0; row < 2; ++row) {
            float strange = 0.f; // NaN or infinity where a result is
            float total = rows.total[row];
            total += __shfl_xor_sync(0xffffffff, total, 1);
            total += __shfl_xor_sync(0xffffffff, total, 2);
            int index = group * GROUP_ROWS + thread / 32 * 16 + thread % 32 / 4 + row * 8;
            int query = w.first + index / Pack;
            int head = w.pack * Pack + index % Pack;
            bool inside = query < w.count, empty = total == 0.f;
            float inverse = empty ? 0.f : 1.f / total;
            size_t token = static_cast<size_t>(w.begin) + query;
            uint4 *to = static_cast<uint4 *>(a.out) + (token * a.heads + head) * (D / 8) + thread % 4;
#pragma unroll
            for (int block = 0; block < D / 8; block += 4) {
                uint32_t packed[4];
#pragma unroll
                for (int n = 0; n < 4; ++n) {
                    float left = out[(block + n) * 4 + row * 2] * inverse;
                    float right = out[(block + n) * 4 + row * 2 + 1] * inverse;
                    strange += left + right;
                    packed[n] = pack_pair<Bfloat>(left, right);
                }
                exchange(packed);
                if (inside)
                    to[block] = make_uint4(packed[0], packed[1], packed[2], packed[3]);
            }
            odd |= inside && !(fabsf(strange) < INFINITY);
            if (inside && thread % 4 == 0)
                a.lse[static_cast<size_t>(head) * a.tokens + token] =
                    empty ? -INFINITY : (rows.base[row] + log2f(total)) * LN2;
        }
        if (__any_sync(0xffffffff, odd) && thread % 32 == 0) {
            // In tiles of a warpgroup's rows, numbered as tiles of a program are.
            int tile = w.begin / QUERIES + w.sequence + w.first / QUERIES + group;
            wait_for_kernel_before();
            int place = atomicAdd(a.odd, 1);
            if (place < a.odd_room)
                a.odd[1 + place] = tile * a.packs + w.pack;
        }
    }

    __device__ __forceinline__ void run()
    {
        uint32_t tiles = 0;
        for (uint32_t queries = 0;; ++queries) {
            Place q = place_of<QUERY_STAGES>(queries);
            barrier_wait(&s.query_full[q.slot], q.parity);
            const Work &w = s.work[q.slot];
            if (w.pack < 0)
                return;
            view.take(w, group, a);
            rows.position = view.position(thread);
#pragma unroll
            for (int row = 0; row < 2; ++row)
                rows.base[row] = -INFINITY, rows.total[row] = 0.f;
#pragma unroll
            for (int i = 0; i < D / 2; ++i)
                out[i] = 0.f;
            attend(first_tile(tiles), q.slot);
            tiles += view.end;
            store(w);
            asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory"); // all have read the work
            if (thread == 0)
                barrier_arrive(&s.query_empty[q.slot]);
        }
    }
};

template <class S, int Pack, bool Bfloat, bool Paged>
__global__ void __launch_bounds__(S::THREADS, 1) prefill(const Arguments a, const __grid_constant__ Maps maps)
{
    extern __shared__ uint8_t raw[];
    auto &s = *reinterpret_cast<Storage<S> *>((reinterpret_cast<uintptr_t>(raw) + 1023) & ~uintptr_t{1023});
    if (threadIdx.x == 0) {
        for (int i = 0; i < QUERY_STAGES; ++i)
            barrier_init(&s.query_full[i], 1), barrier_init(&s.query_empty[i], S::GROUPS + Paged);
        for (int i = 0; i < S::STAGES; ++i) {
            barrier_init(&s.key_full[i], 1), barrier_init(&s.key_empty[i], S::GROUPS);
            barrier_init(&s.value_full[i], 1), barrier_init(&s.value_empty[i], S::GROUPS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(S::COPY_REGISTERS));
        if (threadIdx.x == 0)
            prefetch_map(&maps.query), prefetch_map(&maps.key), prefetch_map(&maps.value);
        using Copier = Producer<S, Pack, Paged>;
        if (threadIdx.x < Copier::THREADS) {
            Copier copier{a, s, maps};
            if (threadIdx.x < 32)
                copier.run();
            else
                copier.follow();
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(S::REGISTERS < 240 ? S::REGISTERS : 240));
        Consumer<S, Pack, Bfloat> consumer{a, s, same(static_cast<int>(threadIdx.x) / 128 - 1),
                                           static_cast<int>(threadIdx.x) % 128};
        consumer.run();
    }
}

// Sets the counters of a call to zero while the blocks of `prefill` start: those wait before they count.
__global__ void clear(int *next, int *odd)
{
    let_next_kernel_start();
    *next = 0;
    *odd = 0;
}

using Encode = decltype(&cuTensorMapEncodeTiled);

Encode find_encode()
{
    void *found = nullptr;
    cudaDriverEntryPointQueryResult result;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result) !=
        cudaSuccess)
        return nullptr;
    return reinterpret_cast<Encode>(found);
}

// A map of a tensor of 2-byte numbers: extents from the innermost one, which is contiguous, strides of the others in
// elements, and a box of 64 of the innermost and so many of the others.
template <int Rank>
bool make_map(Encode encode, CUtensorMap *map, bool bfloat, const void *tensor, const int64_t (&extents)[Rank],
              const int64_t (&strides)[Rank - 1], const int (&box)[Rank - 1])
{
    cuuint64_t sizes[Rank], bytes[Rank - 1];
    cuuint32_t boxes[Rank], steps[Rank];
    for (int i = 0; i < Rank; ++i)
        sizes[i] = cuuint64_t(extents[i]), boxes[i] = i == 0 ? 64 : cuuint32_t(box[i - 1]), steps[i] = 1;
    for (int i = 0; i < Rank - 1; ++i)
        bytes[i] = cuuint64_t(strides[i]) * 2;
    return encode(map, bfloat ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, Rank,
                  const_cast<void *>(tensor), sizes, bytes, boxes, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                  CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// Of keys and values, packed or in pages.
template <class S, bool Paged>
bool map_keys(Encode encode, Maps &maps, const PatchkitPrefill &c, int unit)
{
    bool bfloat = c.bfloat;
    if constexpr (Paged) {
        const int64_t pages[4] = {c.head_dim, c.page_size, c.kv_heads, c.pages};
        const int box[3] = {unit, 1, 1};
        return make_map(encode, &maps.key, bfloat, c.key, pages, {c.key_row, c.key_head, c.key_page}, box) &&
               make_map(encode, &maps.value, bfloat, c.value, pages, {c.value_row, c.value_head, c.value_page}, box);
    }
    const int64_t keys[3] = {c.head_dim, c.key_tokens, c.kv_heads};
    const int64_t key_strides[2] = {c.key_row, c.key_head}, value_strides[2] = {c.value_row, c.value_head};
    return make_map(encode, &maps.key, bfloat, c.key, keys, key_strides, {S::N, 1}) &&
           make_map(encode, &maps.value, bfloat, c.value, keys, value_strides, {S::N, 1}) &&
           make_map(encode, &maps.key_box, bfloat, c.key, keys, key_strides, {BOX, 1}) &&
           make_map(encode, &maps.value_box, bfloat, c.value, keys, value_strides, {BOX, 1});
}

template <class S, int Pack, bool Bfloat, bool Paged>
cudaError_t launch(Arguments a, const PatchkitPrefill &c, int processors, cudaStream_t stream)
{
    static const Encode encode = find_encode();
    if (encode == nullptr)
        return cudaErrorNotSupported;
    Maps maps{};
    if (!make_map(encode, &maps.query, Bfloat, c.query, {c.head_dim, c.heads, c.tokens}, {c.query_head, c.query_row},
                  {Pack, GROUP_ROWS / Pack}) ||
        !map_keys<S, Paged>(encode, maps, c, a.unit))
        return cudaErrorInvalidValue;
    auto kernel = prefill<S, Pack, Bfloat, Paged>;
    constexpr int BYTES = sizeof(Storage<S>) + 1024;
    cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
    if (error != cudaSuccess)
        return error;
    constexpr int QUERIES = S::ROWS / Pack;
    if (!cut_work(a, QUERIES, c.max_query))
        return cudaErrorInvalidValue;
    clear<<<1, 1, 0, stream>>>(a.next, a.odd);
    if ((error = cudaGetLastError()) != cudaSuccess)
        return error;
    cudaLaunchAttribute early{};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = a.pieces < processors ? a.pieces : processors;
    config.blockDim = S::THREADS;
    config.dynamicSmemBytes = BYTES;
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, kernel, a, maps);
}

template <class S, bool Bfloat, bool Paged>
cudaError_t launch_pack(const Arguments &a, const PatchkitPrefill &c, int processors, cudaStream_t stream)
{
    switch (c.pack) {
    case 1:
        return launch<S, 1, Bfloat, Paged>(a, c, processors, stream);
    case 2:
        return launch<S, 2, Bfloat, Paged>(a, c, processors, stream);
    case 4:
        return launch<S, 4, Bfloat, Paged>(a, c, processors, stream);
    case 8:
        return launch<S, 8, Bfloat, Paged>(a, c, processors, stream);
    default:
        return cudaErrorInvalidValue;
    }
}

template <class S>
cudaError_t launch_type(const Arguments &a, const PatchkitPrefill &c, int processors, cudaStream_t stream)
{
    if (c.table)
        return c.bfloat ? launch_pack<S, true, true>(a, c, processors, stream)
                        : launch_pack<S, false, true>(a, c, processors, stream);
    return c.bfloat ? launch_pack<S, true, false>(a, c, processors, stream)
                    : launch_pack<S, false, false>(a, c, processors, stream);
}

// The fastest of those tried on an H200.
using Shape64 = Shape<64, 64, 4>;
using Shape128 = Shape<128, 64, 3>;

} // namespace patchkit

extern "C" __attribute__((visibility("default"))) const char *patchkit_prefill_members()
{
    return PATCHKIT_MEMBERS(PATCHKIT_PREFILL);
}

// Returns a cudaError_t; 0 is success.
extern "C" __attribute__((visibility("default"))) int patchkit_prefill(const PatchkitPrefill *c, void *stream)
{
    using namespace patchkit;
    int unit = c->table ? rows_at_once(c->page_size) : BOX;
    if (unit < LEAST_UNIT)
        return cudaErrorInvalidValue;
    Arguments a{c->out,
                c->lse,
                c->query_starts,
                c->key_starts,
                c->key_lengths,
                c->table,
                c->table_row,
                c->page_size,
                unit,
                c->odd,
                c->odd_room,
                c->next,
                static_cast<int>(c->tokens),
                c->batch,
                c->heads,
                c->heads / c->kv_heads,
                c->heads / c->pack,
                0,
                0,
                0,
                c->window,
                c->anchors,
                c->factor};
    int device = 0, processors = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    if (error != cudaSuccess)
        return error;
    auto on = static_cast<cudaStream_t>(stream);
    switch (c->head_dim) {
    case 64:
        return launch_type<Shape64>(a, *c, processors, on);
    case 128:
        return launch_type<Shape128>(a, *c, processors, on);
    default:
        return cudaErrorInvalidValue;
    }
}
