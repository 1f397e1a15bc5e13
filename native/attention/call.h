// What Python hands to the kernels: a record for each, made from the list of its members. The library tells its lists
// (patchkit_..._members), and hopper_library.py lays a record out as the list of the library that it has loaded says.
#pragma once

#include <stdint.h>

// Raised with every change of a list, and of what a kernel expects of a member: a library of another one is not called.
#define PATCHKIT_CALLS "2"

// Strides count elements.
#define PATCHKIT_PREFILL(MEMBER)                                                                                       \
    MEMBER(const void *, query)       /* [Tq, H, D] */                                                                 \
    MEMBER(const void *, key)         /* [Tk, Hkv, D]; with a table [P, S, Hkv, D] */                                  \
    MEMBER(const void *, value)       /* as key */                                                                     \
    MEMBER(void *, out)               /* [Tq, H, D], contiguous */                                                     \
    MEMBER(float *, lse)              /* [H, Tq] */                                                                    \
    MEMBER(const int *, query_starts) /* [B + 1] */                                                                    \
    MEMBER(const int *, key_starts)   /* [B + 1]; not read with a table */                                             \
    MEMBER(const int *, key_lengths)  /* [B]; read with a table */                                                     \
    MEMBER(const int *, table)        /* [B, pages], or null: packed keys */                                           \
    MEMBER(int *, odd)                /* [1 + odd_room]: how many tiles are to be mended, and their numbers */         \
    MEMBER(int *, next)               /* how many pieces of work were handed out; the kernel sets both to zero */      \
    MEMBER(int64_t, query_row)                                                                                         \
    MEMBER(int64_t, query_head)                                                                                        \
    MEMBER(int64_t, key_page)                                                                                          \
    MEMBER(int64_t, key_row)                                                                                           \
    MEMBER(int64_t, key_head)                                                                                          \
    MEMBER(int64_t, value_page)                                                                                        \
    MEMBER(int64_t, value_row)                                                                                         \
    MEMBER(int64_t, value_head)                                                                                        \
    MEMBER(int64_t, table_row)                                                                                         \
    MEMBER(int64_t, tokens)     /* Tq */                                                                               \
    MEMBER(int64_t, key_tokens) /* Tk, of packed keys */                                                               \
    MEMBER(int64_t, pages)      /* P */                                                                                \
    MEMBER(int32_t, page_size)  /* S, a multiple of 8 */                                                               \
    MEMBER(int32_t, batch)                                                                                             \
    MEMBER(int32_t, heads)                                                                                             \
    MEMBER(int32_t, kv_heads)                                                                                          \
    MEMBER(int32_t, head_dim)                                                                                          \
    MEMBER(int32_t, pack) /* query heads that share a tile of rows */                                                  \
    MEMBER(int32_t, bfloat)                                                                                            \
    MEMBER(int32_t, odd_room)                                                                                          \
    MEMBER(int32_t, window)                                                                                            \
    MEMBER(int32_t, anchors)                                                                                           \
    MEMBER(int32_t, max_query)                                                                                         \
    MEMBER(float, factor) /* scale * log2(e) */

#define PATCHKIT_DECODE(MEMBER)                                                                                        \
    MEMBER(const void *, query)       /* [Tq, H, D] */                                                                 \
    MEMBER(const void *, key)         /* [P, S, Hkv, D] */                                                             \
    MEMBER(const void *, value)       /* [P, S, Hkv, D] */                                                             \
    MEMBER(void *, out)               /* [Tq, H, D], contiguous */                                                     \
    MEMBER(float *, lse)              /* [H, Tq] */                                                                    \
    MEMBER(const int *, query_starts) /* [B + 1] */                                                                    \
    MEMBER(const int *, key_lengths)  /* [B] */                                                                        \
    MEMBER(const int *, table)        /* [B, pages] */                                                                 \
    MEMBER(int64_t, query_row)                                                                                         \
    MEMBER(int64_t, query_head)                                                                                        \
    MEMBER(int64_t, key_page)                                                                                          \
    MEMBER(int64_t, key_row)                                                                                           \
    MEMBER(int64_t, key_head)                                                                                          \
    MEMBER(int64_t, value_page)                                                                                        \
    MEMBER(int64_t, value_row)                                                                                         \
    MEMBER(int64_t, value_head)                                                                                        \
    MEMBER(int64_t, table_row)                                                                                         \
    MEMBER(int64_t, tokens) /* Tq */                                                                                   \
    MEMBER(int32_t, batch)                                                                                             \
    MEMBER(int32_t, heads)                                                                                             \
    MEMBER(int32_t, kv_heads)                                                                                          \
    MEMBER(int32_t, head_dim)                                                                                          \
    MEMBER(int32_t, bfloat)                                                                                            \
    MEMBER(int32_t, page_bits) /* log2 of the page size */                                                             \
    MEMBER(int32_t, window)                                                                                            \
    MEMBER(int32_t, anchors)                                                                                           \
    MEMBER(int32_t, dense)                                                                                             \
    MEMBER(float, factor) /* scale * log2(e) */

#define PATCHKIT_DECLARED(type, name) type name;
#define PATCHKIT_TOLD(type, name) ";" #type " " #name

struct PatchkitPrefill {
    PATCHKIT_PREFILL(PATCHKIT_DECLARED)
};

struct PatchkitDecode {
    PATCHKIT_DECODE(PATCHKIT_DECLARED)
};

// "1;const void * query;..."
#define PATCHKIT_MEMBERS(list) PATCHKIT_CALLS list(PATCHKIT_TOLD)
