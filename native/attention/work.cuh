// What a block of `prefill` works on: which rows come with which piece of work, which keys they need, where those lie,
// and which of them a row sees. It is arithmetic alone: g++ compiles it too, and tests hold it against plain loops.
//
// Keys come in boxes of 32: first those of the window from its first key on, then those of the anchors, so that a tile
// of N keys may hold the end of the one and the other. Only tiles that some row does not see wholly are masked, box by
// box. Where the last tile has one box only, only that is copied and multiplied.
//
// Where keys lie in pages, the window begins at a whole box, and the rows of a box that share a page are a copy of
// their own.
#pragma once

#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__
#define PATCHKIT_DEVICE __device__ __forceinline__
#else
#include <algorithm>
#define PATCHKIT_DEVICE inline
#endif

namespace patchkit
{

#ifndef __CUDACC__
using std::max;
using std::min;
#endif

constexpr int BOX = 32;        // keys of a box
constexpr int LEAST_UNIT = 8;  // rows copied at once: those of a swizzle, and a warp has lanes for them
constexpr int GROUP_ROWS = 64; // of a warpgroup

struct Arguments {
    void *out;               // [Tq, H, D], contiguous
    float *lse;              // [H, Tq]
    const int *query_starts; // [B + 1]
    const int *key_starts;   // [B + 1], for packed keys
    const int *key_lengths;  // [B], for pages
    const int *table;        // [B, pages], or null
    int64_t table_row;       // its stride
    int page_size, unit;     // rows of a page, and of what is copied at once
    int *odd;                // how many tiles are listed behind it, then their numbers
    int odd_room;
    int *next; // how many pieces of work were handed out, beyond the first of every block
    int tokens, batch, heads, group, packs;
    int tiles;  // of all sequences, for a head
    int levels; // most tiles of a sequence, where work goes by them; else 0
    int pieces; // of work
    int window, anchors;
    float factor; // scale * log2(e)
};

// --- of the host -----------------------------------------------------------------------------------------------------

// Rows of a box that lie in one page wherever a box begins: the power of two in both.
inline int rows_at_once(int page_size)
{
    int unit = BOX;
    while (page_size % unit)
        unit /= 2;
    return unit;
}

// Says how the work of a call is cut: tiles of so many queries, of sequences that have at most `max_query`. False where
// there are more pieces than can be numbered.
inline bool cut_work(Arguments &a, int queries, int max_query)
{
    constexpr int64_t MOST_PIECES = 1 << 30; // every block asks for one more than there are
    int64_t tiles = int64_t{a.tokens / queries} + a.batch, levels = (int64_t{max_query} + queries - 1) / queries;
    if (levels * a.batch > 2 * tiles)
        levels = 0; // most levels of most sequences are empty
    int64_t pieces = (levels ? levels * a.batch : tiles) * a.packs;
    a.tiles = static_cast<int>(tiles), a.levels = static_cast<int>(levels), a.pieces = static_cast<int>(pieces);
    return pieces <= MOST_PIECES;
}

// --- of a block ------------------------------------------------------------------------------------------------------

// What a tile of rows has to do. The warp that copies finds it and hands it on with the queries; pack -1 is the end.
struct Work {
    int pack, sequence, begin, count, first, key_begin, keys, offset;
    int low, window_boxes, boxes, anchor_end;
};

// The longest pieces come first, the short ones at the beginning of a sequence last: they fill the time in which some
// multiprocessors are still at work. Heads go before tiles, so that a token's row of memory is read at one time.
template <int Rows, int Pack, bool Paged>
PATCHKIT_DEVICE bool find_work(const Arguments &a, int number, Work &w)
{
    constexpr int QUERIES = Rows / Pack;
    if (a.levels) { // the last tiles of all sequences, then those before them
        w.pack = number % a.packs;
        w.sequence = number / a.packs % a.batch;
        w.begin = a.query_starts[w.sequence];
        w.count = a.query_starts[w.sequence + 1] - w.begin;
        w.first = ((w.count + QUERIES - 1) / QUERIES - 1 - number / a.packs / a.batch) * QUERIES;
    } else {
        int tile = a.tiles - 1 - number / a.packs;
        w.pack = number % a.packs;
        int low = 0, high = a.batch; // sequence b owns the tiles from starts[b] / QUERIES + b on
        while (high - low > 1) {
            int middle = (low + high) / 2;
            if (a.query_starts[middle] / QUERIES + middle <= tile)
                low = middle;
            else
                high = middle;
        }
        w.sequence = low;
        w.begin = a.query_starts[low];
        w.count = a.query_starts[low + 1] - w.begin;
        w.first = (tile - w.begin / QUERIES - low) * QUERIES;
    }
    w.key_begin = Paged ? 0 : a.key_starts[w.sequence];
    w.keys = Paged ? a.key_lengths[w.sequence] : a.key_starts[w.sequence + 1] - w.key_begin;
    if (w.first < 0 || w.first >= w.count)
        return false;
    w.offset = w.keys - w.count;
    int last = min(w.first + QUERIES, w.count) - 1;
    int end = max(min(w.keys, w.offset + last + 1), 0);
    w.low = max(w.offset + w.first - a.window + 1, 0);
    if (w.low < BOX || Paged)
        w.low = w.low / BOX * BOX; // one box for both; pages are copied from whole boxes on
    w.low = min(w.low, end);
    w.anchor_end = max(min(min(a.anchors, w.low), w.keys), 0);
    w.window_boxes = (end - w.low + BOX - 1) / BOX;
    w.boxes = w.window_boxes + (w.anchor_end + BOX - 1) / BOX;
    return true;
}

PATCHKIT_DEVICE int first_key(int low, int window_boxes, int box)
{
    return box < window_boxes ? low + box * BOX : (box - window_boxes) * BOX;
}

// How many boxes the tile has that begins with a box.
template <int N>
PATCHKIT_DEVICE int tile_boxes(const Work &w, int box)
{
    return min(w.boxes - box, N / BOX);
}

// Whether its keys are N that follow one another; else every box is looked for.
template <int N>
PATCHKIT_DEVICE bool is_run(const Work &w, int box)
{
    return box + N / BOX <= w.window_boxes;
}

// Where the rows lie that a lane copies of a tile in pages; page -1 is outside the tensor.
struct Spot {
    int page, row;
};

// Of `row` of the tile that begins with a box. Behind the last key come zeros, as the copy engine gives for what lies
// outside the tensor: the table has no pages there.
PATCHKIT_DEVICE Spot find_spot(const Arguments &a, const Work &w, int box, int row)
{
    box += row / BOX;
    int key = box < w.boxes ? first_key(w.low, w.window_boxes, box) + row % BOX : w.keys;
    if (key >= w.keys)
        return {-1, 0};
    uint32_t place = key, size = a.page_size; // division of what has no sign takes fewer registers
    return {a.table[w.sequence * a.table_row + place / size], static_cast<int>(place % size)};
}

// --- of a warpgroup --------------------------------------------------------------------------------------------------

// The same number, known to the compiler to be the same in all threads of a warp: addresses made from it cost them no
// steps.
PATCHKIT_DEVICE int same(int number)
{
#ifdef __CUDACC__
    return __shfl_sync(0xffffffff, number, 0);
#else
    return number;
#endif
}

// The two rows that a thread holds: accumulator r of [n / 8][4] is row r / 2 % 2, column n + thread % 4 * 2 + r % 2.
// Weights are 2^(score * factor - base); the base follows the largest score, but not at every step.
struct Rows {
    int position; // of the first; the other is 8 rows below
    float base[2], total[2];
};

// What a warpgroup's rows see of the keys of their work, in tiles of N.
template <int N, int Pack>
struct View {
    int low, window_boxes, boxes,
        anchor_end;                  // of the work; registers are dear, the rest of it is read where it is needed
    int low_position, high_position; // of these rows
    int lead, gap, tail, whole, end; // tiles, as `span` says

    PATCHKIT_DEVICE void take(const Work &w, int group, const Arguments &a)
    {
        low = same(w.low), window_boxes = same(w.window_boxes), boxes = same(w.boxes), anchor_end = same(w.anchor_end);
        int from = same(w.first) + group * (GROUP_ROWS / Pack);
        low_position = same(w.offset) + from;
        high_position = same(w.offset) + min(from + GROUP_ROWS / Pack, same(w.count)) - 1;
        span(a);
    }

    // The tiles that none of the rows sees: 0 .. lead, before their window, and gap .. tail, between their last key and
    // what shares a tile with anchors. Tiles from `whole` on have one box.
    PATCHKIT_DEVICE void span(const Arguments &a)
    {
        int all = (boxes + N / BOX - 1) / (N / BOX), from = low_position - a.window + 1 - low;
        whole = boxes / (N / BOX);
        tail = boxes == window_boxes ? all : window_boxes / (N / BOX);
        lead = low < a.anchors ? 0 : min(max(from, 0) / N, tail);
        gap = max(min((high_position - low + N) / N, tail), lead);
        if (low_position > high_position)
            lead = gap = tail = all;
        end = all;
    }

    // Of the first row of a thread.
    PATCHKIT_DEVICE int position(int thread) const
    {
        return low_position + (thread / 32 * 16 + thread % 32 / 4) / Pack;
    }

    // Hides keys from the rows of a thread. A box of the window is looked at by position; one of the anchors only has
    // an end.
    template <int Held>
    PATCHKIT_DEVICE void mask(float (&scores)[Held], int tile, const Rows &rows, int thread, const Arguments &a) const
    {
        int box = tile * (N / BOX), start = low + tile * N;
        if (tile < tail && start + N - 1 <= low_position && high_position - start < a.window)
            return;
#pragma unroll
        for (int i = 0; i < Held * 2 / BOX; ++i) {
            int key = first_key(low, window_boxes, box + i), window = a.window, column = thread % 4 * 2;
            int own = rows.position - key - column, anchors = a.anchors - key - column;
            bool after = key + BOX - 1 > low_position, before = high_position - key >= window;
            if (box + i >= window_boxes) {
                int end = box + i < boxes ? anchor_end - key : 0;
                if (end < BOX)
                    mask_box(scores, i, [end = end - column](int step, int) { return step < end; });
            } else if (before && (after || key < a.anchors)) {
                mask_box(scores, i, [=](int step, int more) {
                    return (step <= own + more) & ((step > own + more - window) | (step < anchors));
                });
            } else if (after) {
                mask_box(scores, i, [=](int step, int more) { return step <= own + more; });
            } else if (before) {
                mask_box(scores, i, [=](int step, int more) { return step > own + more - window; });
            }
        }
    }

    // `seen` is asked about columns, as steps from the thread's first one, and told how far a row stands behind the
    // first.
    template <int Held, class Seen>
    PATCHKIT_DEVICE void mask_box(float (&scores)[Held], int i, Seen seen) const
    {
#pragma unroll
        for (int r = 0; r < 16; ++r)
            if (!seen(r / 4 * 8 + r % 2, r / 2 % 2 * (8 / Pack)))
                scores[i * 16 + r] = -INFINITY;
    }
};

} // namespace patchkit
