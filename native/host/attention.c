/* The host library: attention on the CPU, by the definition, rows spread over threads.
 *
 * A row is one query of one head. Its keys are walked once with a running maximum and a running sum (Milakov and
 * Gimelshein, "Online normalizer calculation for softmax", 2018), so that no matrix of scores is kept. Sums are in
 * double: the result is the reference for others. */
#define _GNU_SOURCE
#include "patchkit/attention.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

enum { MOST_THREADS = 64, ROWS_AT_ONCE = 8 };

struct work {
    const struct patchkit_attention *call;
    atomic_llong next_row;
    long long rows;
    atomic_bool no_memory;
};

static pthread_mutex_t config_lock = PTHREAD_MUTEX_INITIALIZER;
static struct patchkit_attention_config configured; /* version 0: nothing yet */

static const float *at(const float *base, const int64_t stride[3], int64_t batch, int64_t token, int64_t head)
{
    return base + batch * stride[0] + token * stride[1] + head * stride[2];
}

static void keys_of(const struct patchkit_attention *call, int batch, int query, int *first, int *end)
{
    int counting = call->kv_lens ? call->kv_lens[batch] : call->kv_len;
    int position = counting - call->q_len + query;
    *end = call->causal ? position + 1 : counting;
    *first = call->window > 0 ? position + 1 - call->window : 0;
    if (*first < 0)
        *first = 0;
    if (*end > counting)
        *end = counting;
}

static void attend(const struct patchkit_attention *call, int batch, int query, int head, double *sums)
{
    int kv_head = head / (call->heads / call->kv_heads);
    const float *q = at(call->q, call->q_stride, batch, query, head);
    float *o = call->o + (at(call->o, call->o_stride, batch, query, head) - call->o);
    double largest = -INFINITY, total = 0;
    int first, end;
    keys_of(call, batch, query, &first, &end);
    for (int d = 0; d < call->head_dim; d++)
        sums[d] = 0;
    for (int key = first; key < end; key++) {
        const float *k = at(call->k, call->k_stride, batch, key, kv_head);
        const float *v = at(call->v, call->v_stride, batch, key, kv_head);
        double score = 0;
        for (int d = 0; d < call->head_dim; d++)
            score += (double)q[d] * k[d];
        score *= call->scale;
        if (score > largest) {
            double shrink = exp(largest - score);
            total *= shrink;
            for (int d = 0; d < call->head_dim; d++)
                sums[d] *= shrink;
            largest = score;
        }
        double weight = exp(score - largest);
        total += weight;
        for (int d = 0; d < call->head_dim; d++)
            sums[d] += weight * v[d];
    }
    for (int d = 0; d < call->head_dim; d++)
        o[d] = total > 0 ? (float)(sums[d] / total) : 0.0f;
}

static void *attend_rows(void *argument)
{
    struct work *work = argument;
    const struct patchkit_attention *call = work->call;
    double *sums = malloc(sizeof(double) * (size_t)call->head_dim);
    if (!sums) {
        atomic_store(&work->no_memory, true);
        return NULL;
    }
    for (;;) {
        long long row = atomic_fetch_add(&work->next_row, ROWS_AT_ONCE);
        if (row >= work->rows)
            break;
        for (long long end = row + ROWS_AT_ONCE; row < end && row < work->rows; row++) {
            int head = (int)(row % call->heads);
            int query = (int)(row / call->heads % call->q_len);
            attend(call, (int)(row / call->heads / call->q_len), query, head, sums);
        }
    }
    free(sums);
    return NULL;
}

static int threads_for(const struct patchkit_attention *call, long long rows)
{
    long wanted = call->threads ? (long)call->threads : sysconf(_SC_NPROCESSORS_ONLN);
    long long useful = (rows + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE;
    if (wanted > MOST_THREADS)
        wanted = MOST_THREADS;
    if (wanted > useful)
        wanted = (long)useful;
    return wanted < 1 ? 1 : (int)wanted;
}

static bool is_valid(const struct patchkit_attention *call)
{
    if (!call->q || !call->k || !call->v || !call->o)
        return false;
    if (call->batch < 1 || call->q_len < 1 || call->kv_len < 1 || call->head_dim < 1 || call->window < 0)
        return false;
    if (call->heads < 1 || call->kv_heads < 1 || call->heads % call->kv_heads)
        return false;
    for (int b = 0; call->kv_lens && b < call->batch; b++)
        if (call->kv_lens[b] < 0 || call->kv_lens[b] > call->kv_len)
            return false;
    return true;
}

EXPORTED int patchkit_attention_run(const struct patchkit_attention *call)
{
    if (!call || call->size != sizeof *call || call->version != PATCHKIT_ATTENTION_VERSION)
        return PATCHKIT_WRONG_VERSION;
    if (!is_valid(call))
        return PATCHKIT_INVALID;
    struct work work = {.call = call, .rows = (long long)call->batch * call->q_len * call->heads};
    pthread_t helpers[MOST_THREADS];
    int started = 0, threads = threads_for(call, work.rows);
    while (started < threads - 1 && !pthread_create(&helpers[started], NULL, attend_rows, &work))
        started++; /* what cannot be started is done by the others */
    attend_rows(&work);
    for (int i = 0; i < started; i++)
        pthread_join(helpers[i], NULL);
    /* A thread without memory leaves its rows to the others; only if all are without are there rows left. */
    return atomic_load(&work.next_row) < work.rows ? PATCHKIT_NO_MEMORY : PATCHKIT_OK;
}

EXPORTED int patchkit_attention_configure(const struct patchkit_attention_config *config)
{
    if (!config || config->size != sizeof *config || config->version != PATCHKIT_ATTENTION_VERSION)
        return PATCHKIT_WRONG_VERSION;
    if (config->heads < 1 || config->head_dim < 1)
        return PATCHKIT_INVALID;
    pthread_mutex_lock(&config_lock);
    configured = *config;
    pthread_mutex_unlock(&config_lock);
    return PATCHKIT_OK;
}

static struct patchkit_attention_config current(void)
{
    pthread_mutex_lock(&config_lock);
    struct patchkit_attention_config config = configured;
    pthread_mutex_unlock(&config_lock);
    return config;
}

EXPORTED int patchkit_attention_configured(struct patchkit_attention_config *config)
{
    struct patchkit_attention_config now = current();
    if (!config || config->size != sizeof *config)
        return PATCHKIT_WRONG_VERSION;
    if (!now.version)
        return PATCHKIT_INVALID;
    *config = now;
    return PATCHKIT_OK;
}

EXPORTED void attention_forward(float *q, float *k, float *v, float *o, int batch_size, int seq_len)
{
    struct patchkit_attention_config config = current();
    if (!config.version) {
        fputs("attention_forward: heads and head_dim are unknown: call patchkit_attention_configure() first\n", stderr);
        abort();
    }
    int64_t head = config.head_dim, token = head * config.heads, row = token * seq_len;
    struct patchkit_attention call = {
        .size = sizeof call,
        .version = PATCHKIT_ATTENTION_VERSION,
        .q = q,
        .k = k,
        .v = v,
        .o = o,
        .q_stride = {row, token, head},
        .k_stride = {row, token, head},
        .v_stride = {row, token, head},
        .o_stride = {row, token, head},
        .batch = batch_size,
        .q_len = seq_len,
        .kv_len = seq_len,
        .heads = config.heads,
        .kv_heads = config.heads,
        .head_dim = config.head_dim,
        .scale = config.scale,
        .causal = config.causal,
    };
    int status = patchkit_attention_run(&call);
    if (status != PATCHKIT_OK) {
        fprintf(stderr, "attention_forward: batch_size %d, seq_len %d: status %d\n", batch_size, seq_len, status);
        abort();
    }
}
