/* ns per call through the PLT: of a function that nobody stands before, and of attention_forward.
 * `nanoseconds BATCHES`: the least of so many batches, in turn. `nanoseconds call N`: calls it N times, no more. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CALLS = 100000 };

void attention_forward(float *, float *, float *, float *, int, int);
void beside(float *, float *, float *, float *, int, int);

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static double measure(int hooked)
{
    double began = now();
    if (hooked)
        for (int i = 0; i < CALLS; i++)
            attention_forward(0, 0, 0, 0, i, 1);
    else
        for (int i = 0; i < CALLS; i++)
            beside(0, 0, 0, 0, i, 1);
    return (now() - began) / CALLS;
}

int main(int count, char **words)
{
    if (count > 2 && !strcmp(words[1], "call")) {
        for (long i = 0, calls = atol(words[2]); i < calls; i++)
            attention_forward(0, 0, 0, 0, (int)(i + 1), 1);
        return 0;
    }
    double direct = 1e9, hooked = 1e9;
    for (int i = 0, batches = count > 1 ? atoi(words[1]) : 50; i < batches; i++) {
        double one = measure(0), other = measure(1);
        direct = one < direct ? one : direct;
        hooked = other < hooked ? other : hooked;
    }
    printf("%.3f %.3f\n", direct, hooked);
    return 0;
}
