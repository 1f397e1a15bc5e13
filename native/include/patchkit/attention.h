/* The attention entry point that patchkit calls its own: what a host library provides and the shim stands before.
 *
 * softmax(scale * Q K^T) V for each batch and head:
 *   attention_forward          the published form, float32. q, k, v, o are contiguous [batch_size, seq_len, heads,
 *                              head_dim]; what it has no argument for comes from patchkit_attention_configure().
 *   patchkit_attention_run     float32, everything in a struct that tells its size and version.
 *   patchkit_attention_launch  the same for packed sequences and pages, several types, on a CUDA stream or on the CPU.
 *                              The host library has none: a library that replaces FlashAttention does.
 * All may be called from any thread. None writes to q, k or v. */
#ifndef PATCHKIT_ATTENTION_H
#define PATCHKIT_ATTENTION_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PATCHKIT_ATTENTION_VERSION 1u

enum patchkit_status {
    PATCHKIT_OK = 0,
    PATCHKIT_WRONG_VERSION = 1, /* size or version is not the library's */
    PATCHKIT_INVALID = 2,       /* a null pointer, a length below one, query heads that key heads do not divide */
    PATCHKIT_NO_MEMORY = 3,
};

struct patchkit_attention_config {
    uint32_t size; /* sizeof(struct patchkit_attention_config) */
    uint32_t version;
    int32_t heads;
    int32_t head_dim;
    float scale; /* usually 1/sqrt(head_dim) */
    uint32_t causal;
};

struct patchkit_attention {
    uint32_t size; /* sizeof(struct patchkit_attention) */
    uint32_t version;
    const float *q; /* [batch, q_len, heads, head_dim] */
    const float *k; /* [batch, kv_len, kv_heads, head_dim] */
    const float *v; /* as k */
    float *o;       /* as q */
    /* Strides in elements: batch, token, head. The last dimension is contiguous. */
    int64_t q_stride[3], k_stride[3], v_stride[3], o_stride[3];
    const int32_t *kv_lens; /* [batch], how many keys of each row count; NULL: kv_len of them */
    int32_t batch, q_len, kv_len, heads, kv_heads, head_dim;
    float scale;
    int32_t window;   /* a query sees so many keys, itself the last of them; 0: all */
    uint32_t causal;  /* the last query stands at the last key that counts */
    uint32_t threads; /* 0: as many as there are processors */
};

enum patchkit_dtype { PATCHKIT_FLOAT32 = 0, PATCHKIT_FLOAT16 = 1, PATCHKIT_BFLOAT16 = 2 };

/* All pointers but `stream` are the device's. Sequence b has the queries q_starts[b]..q_starts[b+1] of packed ones,
 * else the q_len of row b; its keys are those in the pages pages[b * pages_stride], ..., else
 * kv_starts[b]..kv_starts[b+1] of packed ones, else those of row b. Of these kv_lens[b] count, else kv_starts[b+1] -
 * kv_starts[b], else kv_len. */
struct patchkit_attention_device {
    uint32_t size; /* sizeof(struct patchkit_attention_device) */
    uint32_t version;
    const void *q, *k, *v; /* [batch, token, head, dim]; k and v [page, token, head, dim] where there are pages */
    void *o;
    float *lse;   /* log of the sum of exp(scale * q k) for each query */
    void *stream; /* cudaStream_t. It may be capturing: launch, and do nothing else */
    int64_t q_stride[3], k_stride[3], v_stride[3], o_stride[3],
        lse_stride[3];                                     /* elements: batch or page, token, head */
    const int32_t *q_starts, *kv_starts, *kv_lens, *pages; /* each may be NULL */
    int64_t pages_stride;
    int32_t page_tokens;
    int32_t batch, q_len, kv_len; /* lengths: the longest */
    int32_t heads, kv_heads, head_dim;
    float scale;
    int32_t window; /* as above */
    uint32_t causal;
    uint32_t dtype;   /* enum patchkit_dtype, of q, k, v and o */
    uint32_t on_cuda; /* 0: on the CPU */
};

/* Returns an enum patchkit_status. A change is seen by the calls that begin after it. */
int patchkit_attention_configure(const struct patchkit_attention_config *config);

/* Fills what is configured; `size` is the caller's. PATCHKIT_INVALID where nothing is. */
int patchkit_attention_configured(struct patchkit_attention_config *config);

/* Aborts with a message where nothing is configured or an argument is invalid: it cannot return an error. */
void attention_forward(float *q, float *k, float *v, float *o, int batch_size, int seq_len);

/* Returns an enum patchkit_status; o is written only with PATCHKIT_OK. A query that sees no key gets zeros. */
int patchkit_attention_run(const struct patchkit_attention *call);

/* Returns an enum patchkit_status; with another than PATCHKIT_OK nothing was launched. */
int patchkit_attention_launch(const struct patchkit_attention_device *call);

static_assert(sizeof(struct patchkit_attention_config) == 24, "patchkit_attention_config");
static_assert(offsetof(struct patchkit_attention_config, scale) == 16, "patchkit_attention_config.scale");
static_assert(sizeof(struct patchkit_attention) == 184, "patchkit_attention");
static_assert(offsetof(struct patchkit_attention, q_stride) == 40, "patchkit_attention.q_stride");
static_assert(offsetof(struct patchkit_attention, kv_lens) == 136, "patchkit_attention.kv_lens");
static_assert(offsetof(struct patchkit_attention, scale) == 168, "patchkit_attention.scale");
static_assert(offsetof(struct patchkit_attention, threads) == 180, "patchkit_attention.threads");
static_assert(sizeof(struct patchkit_attention_device) == 264, "patchkit_attention_device");
static_assert(offsetof(struct patchkit_attention_device, q_stride) == 56, "patchkit_attention_device.q_stride");
static_assert(offsetof(struct patchkit_attention_device, q_starts) == 176, "patchkit_attention_device.q_starts");
static_assert(offsetof(struct patchkit_attention_device, on_cuda) == 260, "patchkit_attention_device.on_cuda");

#ifdef __cplusplus
}
#endif

#endif
