/* A small program that is linked with the host library: `attention-host [CALLS [THREADS [SCALE]]]`.
 *
 * Each thread calls attention_forward on inputs of its own that are the same in every run. Writes how many calls were
 * made and a sum over the last outputs, so that two runs can be compared. */
#include "patchkit/attention.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 2, LENGTH = 9, HEADS = 4, HEAD_DIM = 16, ELEMENTS = BATCH * LENGTH * HEADS * HEAD_DIM, MOST = 64 };

struct part {
    pthread_t thread;
    long calls;
    double sum;
};

static void fill(float *values, unsigned seed)
{
    for (int i = 0; i < ELEMENTS; i++) {
        seed = seed * 1664525u + 1013904223u; /* Numerical Recipes, 7.1 */
        values[i] = (float)(seed >> 8) / (float)(1 << 23) - 1.0f;
    }
}

static void *call_it(void *argument)
{
    struct part *part = argument;
    static _Thread_local float q[ELEMENTS], k[ELEMENTS], v[ELEMENTS], o[ELEMENTS];
    fill(q, 1);
    fill(k, 2);
    fill(v, 3);
    for (long i = 0; i < part->calls; i++)
        attention_forward(q, k, v, o, BATCH, LENGTH);
    for (int i = 0; i < ELEMENTS; i++)
        part->sum += (double)o[i] * (i % 7 + 1);
    return NULL;
}

int main(int count, char **arguments)
{
    long calls = count > 1 ? strtol(arguments[1], NULL, 10) : 10;
    long threads = count > 2 ? strtol(arguments[2], NULL, 10) : 1;
    float scale = count > 3 ? strtof(arguments[3], NULL) : 0.25f;
    struct patchkit_attention_config config = {sizeof config, PATCHKIT_ATTENTION_VERSION, HEADS, HEAD_DIM, scale, 1};
    static struct part parts[MOST];
    if (calls < 1 || threads < 1 || threads > MOST) {
        fprintf(stderr, "usage: attention-host [CALLS [THREADS [SCALE]]], %d threads at most\n", MOST);
        return 2;
    }
    if (patchkit_attention_configure(&config) != PATCHKIT_OK)
        return 1;
    double sum = 0;
    for (long i = 0; i < threads; i++) {
        parts[i].calls = calls;
        if (pthread_create(&parts[i].thread, NULL, call_it, &parts[i]))
            return 1;
    }
    for (long i = 0; i < threads; i++) {
        pthread_join(parts[i].thread, NULL);
        sum += parts[i].sum;
    }
    printf("%ld calls, sum %.9g\n", calls * threads, sum);
    return 0;
}
