// A library with what an entry point may be called with: every kind of argument, and a way to leave by an exception.
#include <cstdarg>
#include <stdexcept>

struct Large {
    long values[6];
};

extern "C" {
#ifndef ANSWER
#define ANSWER 1
#endif

long probe(long value) { return value + ANSWER; }

// Called from within the library, through its own table: what an extension does. Not by a jump: the return address
// tells which library the caller is in.
long call_probe(long value)
{
    long answer = probe(value);
    __asm__ volatile("" : "+r"(answer));
    return answer;
}

Large many(long a, long b, long c, long d, long e, long f, long g, long h, double i, double j, double k, double l,
           double m, double n, double o, double p, double q)
{
    Large all = {{a + b, c + d, e + f, g + h, long(i + j + k + l), long(m + n + o + p + q)}};
    return all;
}

double variadic(int count, ...)
{
    va_list arguments;
    va_start(arguments, count);
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += va_arg(arguments, double);
    va_end(arguments);
    return sum;
}

long thrower(long value)
{
    if (value % 2)
        throw std::runtime_error("odd");
    return value;
}

void nothing() {}

#if defined(__x86_64__)
typedef double Four __attribute__((vector_size(32)));
typedef double Eight __attribute__((vector_size(64)));
__attribute__((target("avx"))) double wide4(Four a, Four b) { return a[0] + a[3] + b[0] + b[3]; }
__attribute__((target("avx512f"))) double wide8(Eight a, Eight b) { return a[0] + a[7] + b[0] + b[7]; }
#endif
}
