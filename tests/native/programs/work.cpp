// Holds native/attention/work.cuh against plain loops on random batches: `work SEED BATCHES`. It walks the keys as the
// producer and the consumer of prefill.cu do, and says on stdout what it met. The first fault is told on stderr, with
// status 1.
//
// -DSHAPES="SHAPE(head dim, keys of a tile, warpgroups) ..." are the shapes of prefill.cu, -DPAGED=1 asks for pages.

#include "work.cuh"

#include <algorithm>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

using namespace patchkit;

namespace
{

constexpr int WITHOUT_WINDOW = 1 << 30;
const long MEMORY_PAGE = sysconf(_SC_PAGESIZE);
constexpr int NOT_COPIED = -2, ZEROS = -1;

struct Counts {
    long pieces = 0, by_levels = 0, by_tiles = 0, scored = 0, halves = 0, before = 0, between = 0, unused = 0, keys = 0;
} counts;

struct Batch {
    std::vector<int> query_starts{0}, key_starts{0}, key_lengths;
    std::vector<int> pages, first_page{0}; // of all sequences, one after the other; where those of each begin
    std::vector<int> owner, place;         // of a page: sequence, and which of its pages it is
    int head_dim = 0, pack = 0, packs = 0, page_size = 1, max_query = 0;
    int window = 0, anchors = 0;
} batch;

[[noreturn]] void fail(const char *format, ...)
{
    std::va_list arguments;
    va_start(arguments, format);
    std::vfprintf(stderr, format, arguments);
    va_end(arguments);
    std::fprintf(
        stderr,
        "\nhead dim %d, pack %d of %d, window %d, anchors %d, pages of %d, max query %d; queries/keys:", batch.head_dim,
        batch.pack, batch.packs, batch.window, batch.anchors, batch.page_size, batch.max_query);
    for (size_t i = 0; i < batch.key_lengths.size(); ++i)
        std::fprintf(stderr, " %d/%d", batch.query_starts[i + 1] - batch.query_starts[i], batch.key_lengths[i]);
    std::fprintf(stderr, "\n");
    std::_Exit(1);
}

void fail_outside(int) { fail("the table is read behind the last page of a sequence"); }

std::mt19937 dice;

int pick(int least, int most) { return least + static_cast<int>(dice() % static_cast<unsigned>(most - least + 1)); }

// As many small numbers as large ones.
int pick_size(int most)
{
    int top = 1;
    for (int steps = pick(0, 12); steps-- && top < most;)
        top *= 2;
    return pick(0, std::min(top, most));
}

void fill_batch()
{
    batch = Batch{};
    batch.page_size = PAGED ? 8 * pick(1, 66) : 1;
    batch.window = pick(0, 5) ? std::max(pick_size(4000), 1) : WITHOUT_WINDOW;
    batch.anchors = pick(0, 3) ? pick_size(700) : 0;
    int sequences = pick(0, 2) ? pick(1, 5) : pick(1, 40), longest = pick(0, 4) ? 400 : 3000;
    if (sequences > 5)
        longest = pick(0, 4) ? 120 : 800;
    for (int i = 0; i < sequences; ++i) {
        int queries = pick_size(longest), keys = queries;
        if (int kind = pick(0, 3); kind < 2)
            keys += pick_size(3000);
        else if (kind == 2)
            keys = pick(0, queries);
        batch.query_starts.push_back(batch.query_starts.back() + queries);
        batch.key_starts.push_back(batch.key_starts.back() + keys);
        batch.key_lengths.push_back(keys);
        batch.first_page.push_back(batch.first_page.back() +
                                   (PAGED ? (keys + batch.page_size - 1) / batch.page_size : 0));
        batch.max_query = std::max(batch.max_query, queries);
    }
    batch.pages.resize(batch.first_page.back());
    for (size_t i = 0; i < batch.pages.size(); ++i)
        batch.pages[i] = i;
    std::shuffle(batch.pages.begin(), batch.pages.end(), dice);
    batch.owner.resize(batch.pages.size()), batch.place.resize(batch.pages.size());
    for (int i = 0; i < sequences; ++i)
        for (int page = batch.first_page[i]; page < batch.first_page[i + 1]; ++page)
            batch.owner[batch.pages[page]] = i, batch.place[batch.pages[page]] = page - batch.first_page[i];
}

// The arguments, with the row of the table that a sequence has before memory that cannot be read.
Arguments arguments_for(int sequence)
{
    static char *const memory = [] {
        void *found = mmap(nullptr, 2 * MEMORY_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (found == MAP_FAILED || mprotect(static_cast<char *>(found) + MEMORY_PAGE, MEMORY_PAGE, PROT_NONE))
            std::abort();
        return static_cast<char *>(found);
    }();
    Arguments a{};
    a.query_starts = batch.query_starts.data();
    a.key_starts = PAGED ? nullptr : batch.key_starts.data();
    a.key_lengths = PAGED ? batch.key_lengths.data() : nullptr;
    a.table_row = 1000;
    a.page_size = batch.page_size;
    a.unit = PAGED ? rows_at_once(batch.page_size) : BOX;
    a.tokens = batch.query_starts.back();
    a.batch = static_cast<int>(batch.key_lengths.size());
    a.packs = batch.packs;
    a.window = batch.window;
    a.anchors = batch.anchors;
    int first = batch.first_page[sequence], count = batch.first_page[sequence + 1] - first;
    int *row = reinterpret_cast<int *>(memory + MEMORY_PAGE) - count;
    std::copy_n(batch.pages.begin() + first, count, row);
    a.table = reinterpret_cast<int *>(reinterpret_cast<uintptr_t>(row) - sequence * a.table_row * sizeof(int));
    return a;
}

bool sees(int position, int key)
{
    return key >= 0 && key <= position && (key > position - batch.window || key < batch.anchors);
}

template <int D, int N, int Groups, int Pack>
struct Walk {
    static constexpr int QUERIES = Groups * GROUP_ROWS / Pack;
    const Arguments &a;
    const Work &w;
    std::vector<int> ring;      // [tiles][N], the key in each row of a tile, or what is there in place of one
    std::vector<uint64_t> seen; // [keys], a bit for each row of a warpgroup
    std::vector<int> visits;    // [tiles]
    View<N, Pack> view{};
    int group = 0;

    Walk(const Arguments &arguments, const Work &work) : a(arguments), w(work)
    {
        int tiles = (w.boxes + N / BOX - 1) / (N / BOX);
        ring.assign(static_cast<size_t>(tiles) * N, NOT_COPIED);
        for (int tile = 0; tile < tiles; ++tile)
            PAGED ? copy_pages(tile) : copy_tile(tile);
        for (group = 0; group < Groups; ++group) {
            seen.assign(w.keys, 0), visits.assign(tiles, 0);
            view.take(w, group, a);
            if (view.end != tiles)
                fail("%d tiles are awaited, %d copied", view.end, tiles);
            attend();
            for (int tile = 0; tile < tiles; ++tile)
                if (visits[tile] != 1)
                    fail("tile %d is taken %d times", tile, visits[tile]);
            count_keys();
        }
    }

    void put(int tile, int row, int key)
    {
        if (row >= N || ring[tile * N + row] != NOT_COPIED)
            fail("row %d of tile %d is copied twice, or outside", row, tile);
        ring[tile * N + row] = key;
    }

    void copy_tile(int tile)
    {
        int box = tile * (N / BOX), copied = 0;
        auto copy = [&](int row, int rows, int from) {
            for (int i = 0; i < rows; ++i, ++copied)
                put(tile, row + i, from + i);
        };
        if (is_run<N>(w, box))
            copy(0, N, first_key(w.low, w.window_boxes, box));
        else
            for (int i = 0; i < N / BOX && box + i < w.boxes; ++i)
                copy(i * BOX, BOX, first_key(w.low, w.window_boxes, box + i));
        if (copied != tile_boxes<N>(w, box) * BOX)
            fail("%d rows of tile %d are copied, %d awaited", copied, tile, tile_boxes<N>(w, box) * BOX);
    }

    void copy_pages(int tile)
    {
        constexpr int HALVES = D / 64;
        int box = tile * (N / BOX), rows = tile_boxes<N>(w, box) * BOX, copied = 0;
        for (int lane = 0; lane < 32; ++lane) {
            int row = lane / HALVES * a.unit;
            Spot spot = find_spot(a, w, box, row); // of all lanes, and of rows that are not copied
            int key =
                box + row / BOX < w.boxes ? first_key(w.low, w.window_boxes, box + row / BOX) + row % BOX : w.keys;
            Spot right = {-1, 0};
            if (key < w.keys)
                right = {batch.pages[batch.first_page[w.sequence] + key / a.page_size], key % a.page_size};
            if (spot.page != right.page || spot.row != right.row)
                fail("row %d of tile %d, key %d, lies in page %d at %d, not in page %d at %d", row, tile, key,
                     right.page, right.row, spot.page, spot.row);
            for (int i = 0; row < rows && i < a.unit; ++i, ++copied)
                if (lane % HALVES == 0)
                    put(tile, row + i, key_at(spot, i));
        }
        if (copied != rows * HALVES)
            fail("%d half rows of tile %d are copied, %d awaited", copied, tile, rows * HALVES);
    }

    int key_at(Spot spot, int i) const
    {
        if (spot.page < 0)
            return ZEROS;
        if (spot.row + i >= a.page_size || batch.owner[spot.page] != w.sequence)
            fail("row %d of page %d is none of sequence %d", spot.row + i, spot.page, w.sequence);
        return batch.place[spot.page] * a.page_size + spot.row + i;
    }

    // What follows is Consumer::attend.
    void attend()
    {
        int tile = 0;
        for (; tile < view.lead; ++tile)
            skip(tile), ++counts.before;
        if (!seek(tile))
            return;
        if (tile < view.whole) {
            score<N / 2>(tile);
            for (++tile; seek(tile) && tile < view.whole; ++tile)
                score<N / 2>(tile);
            if (tile == view.end)
                return;
        }
        score<BOX / 2>(tile);
        ++counts.halves;
    }

    // The values of a tile that was scored are held over the tiles that are skipped behind it: as many as keys lie
    // between the last ones of the first and of the last warpgroup, or the ring of buffers would not go round.
    bool seek(int &tile)
    {
        if (tile == view.gap && tile > view.lead && (view.tail - tile - 1) * N >= (Groups - 1) * GROUP_ROWS)
            fail("%d tiles are skipped at once", view.tail - tile);
        if (tile == view.gap)
            for (; tile < view.tail; ++tile)
                skip(tile), ++counts.between;
        return tile < view.end;
    }

    int first_query() const { return w.first + group * (GROUP_ROWS / Pack); }

    void skip(int tile)
    {
        ++visits[tile];
        for (int query = first_query(); query < std::min(first_query() + GROUP_ROWS / Pack, w.count); ++query)
            for (int i = 0; i < N; ++i)
                if (int key = ring[tile * N + i]; key < w.keys && sees(w.offset + query, key))
                    fail("query %d of sequence %d sees key %d, and tile %d is skipped", query, w.sequence, key, tile);
    }

    template <int Held>
    void score(int tile)
    {
        ++visits[tile], ++counts.scored;
        for (int column = 0; column < Held * 2; ++column)
            if (ring[tile * N + column] == NOT_COPIED)
                fail("column %d of tile %d is multiplied and not copied", column, tile);
        for (int thread = 0; thread < 128; ++thread) {
            float scores[Held] = {};
            Rows rows{view.position(thread), {}, {}};
            view.mask(scores, tile, rows, thread, a);
            for (int r = 0; r < Held; ++r) // as wgmma lays an accumulator out
                if (scores[r] == 0.f)
                    meet(tile, thread / 32 * 16 + r / 2 % 2 * 8 + thread % 32 / 4, r / 4 * 8 + thread % 4 * 2 + r % 2);
        }
    }

    void meet(int tile, int row, int column)
    {
        int key = ring[tile * N + column], query = first_query() + row / Pack;
        if (query >= w.count)
            return; // is not written
        if (key >= w.keys || !sees(w.offset + query, key))
            fail("query %d of sequence %d has key %d of %d, which it does not see", query, w.sequence, key, w.keys);
        if (seen[key] >> row & 1)
            fail("query %d of sequence %d has key %d twice", query, w.sequence, key);
        seen[key] |= uint64_t{1} << row;
    }

    void count_keys() const
    {
        uint64_t inside = 0;
        for (int row = 0; row < GROUP_ROWS; ++row)
            inside |= static_cast<uint64_t>(first_query() + row / Pack < w.count) << row;
        counts.unused += inside == 0;
        for (int key = 0; key < w.keys; ++key) {
            counts.keys += __builtin_popcountll(seen[key]);
            for (int row = 0; row < GROUP_ROWS; row += Pack)
                if (uint64_t rows = ((uint64_t{1} << Pack) - 1) << row & inside;
                    rows && (seen[key] & rows) != (sees(w.offset + first_query() + row / Pack, key) ? rows : 0))
                    fail("query %d of sequence %d misses key %d", first_query() + row / Pack, w.sequence, key);
        }
    }
};

// Takes all pieces of work as they are handed out; walks those of one pack of heads where asked to.
template <int D, int N, int Groups, int Pack>
void hand_out(const Arguments &a, bool walked)
{
    constexpr int QUERIES = Groups * GROUP_ROWS / Pack;
    std::vector<std::vector<int>> taken(a.batch);
    for (int i = 0; i < a.batch; ++i)
        taken[i].assign((batch.query_starts[i + 1] - batch.query_starts[i] + QUERIES - 1) / QUERIES * a.packs, 0);
    for (int number = 0; number < a.pieces; ++number) {
        Work w{};
        if (!find_work<Groups * GROUP_ROWS, Pack, PAGED>(a, number, w))
            continue;
        ++counts.pieces;
        int begin = batch.query_starts[w.sequence], count = batch.query_starts[w.sequence + 1] - begin;
        int keys = batch.key_lengths[w.sequence];
        if (w.begin != begin || w.count != count || w.keys != keys || w.offset != keys - count ||
            w.key_begin != (PAGED ? 0 : batch.key_starts[w.sequence]))
            fail("piece %d has other facts than sequence %d", number, w.sequence);
        if (w.pack < 0 || w.pack >= a.packs || w.first % QUERIES || w.first >= count)
            fail("piece %d has query %d and pack %d, which are not there", number, w.first, w.pack);
        ++taken[w.sequence][w.first / QUERIES * a.packs + w.pack];
        if (walked && w.pack == 0)
            Walk<D, N, Groups, Pack>(arguments_for(w.sequence), w);
    }
    for (int i = 0; i < a.batch; ++i)
        for (size_t tile = 0; tile < taken[i].size(); ++tile)
            if (taken[i][tile] != 1)
                fail("tile %zu of sequence %d is handed out %d times", tile, i, taken[i][tile]);
}

template <int D, int N, int Groups, int Pack>
void try_batch()
{
    constexpr int QUERIES = Groups * GROUP_ROWS / Pack;
    fill_batch();
    batch.head_dim = D, batch.pack = Pack, batch.packs = pick(1, 3);
    batch.max_query += pick(0, 3) ? 0 : pick_size(2000); // what a caller knows may be more than there is
    Arguments a = arguments_for(0);
    if (!cut_work(a, QUERIES, batch.max_query))
        fail("there are too many pieces of work");
    ++(a.levels ? counts.by_levels : counts.by_tiles);
    hand_out<D, N, Groups, Pack>(a, true);
    a.levels = a.levels ? 0 : (batch.max_query + QUERIES - 1) / QUERIES; // the other way
    a.pieces = (a.levels ? a.levels * a.batch : a.tiles) * a.packs;
    hand_out<D, N, Groups, Pack>(a, false);
}

// What 32 bits do not hold: levels of many sequences of which one may be long, and pieces of very many.
void try_large()
{
    Arguments a{};
    a.tokens = 1 << 20, a.batch = 1 << 16, a.packs = 2;
    for (int max_query : {1 << 21, 1 << 30, INT_MAX})
        if (!cut_work(a, 32, max_query) || a.levels || a.pieces != ((1 << 15) + (1 << 16)) * 2)
            fail("%d sequences of up to %d queries give %d levels and %d pieces", a.batch, max_query, a.levels,
                 a.pieces);
    a.packs = 1 << 15;
    if (cut_work(a, 32, 1))
        fail("%d sequences of %d packs of heads give %d pieces", a.batch, a.packs, a.pieces);
}

} // namespace

int main(int, char **given)
{
    std::signal(SIGSEGV, fail_outside);
    try_large();
    dice.seed(std::atoi(given[1]));
    for (int i = std::atoi(given[2]); i-- > 0;) {
#define SHAPE(dim, keys, groups)                                                                                       \
    try_batch<dim, keys, groups, 1>();                                                                                 \
    try_batch<dim, keys, groups, 2>();                                                                                 \
    try_batch<dim, keys, groups, 4>();                                                                                 \
    try_batch<dim, keys, groups, 8>();
        SHAPES
    }
    std::printf("pieces %ld\nby_levels %ld\nby_tiles %ld\nscored %ld\nhalves %ld\nbefore %ld\nbetween %ld\nunused %ld\n"
                "keys %ld\n",
                counts.pieces, counts.by_levels, counts.by_tiles, counts.scored, counts.halves, counts.before,
                counts.between, counts.unused, counts.keys);
}
