// Calls the probe: `drive WHAT [N...]`. Ends with 0 where every answer was right; says what was not.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

struct Large {
    long values[6];
};

extern "C" {
long probe(long);
Large many(long, long, long, long, long, long, long, long, double, double, double, double, double, double, double,
           double, double);
double variadic(int, ...);
long thrower(long);
void nothing();
#if defined(__x86_64__)
typedef double Four __attribute__((vector_size(32)));
typedef double Eight __attribute__((vector_size(64)));
double wide4(Four, Four) __attribute__((target("avx")));
double wide8(Eight, Eight) __attribute__((target("avx512f")));
#endif
}

static void need(bool right, const char *what)
{
    if (!right) {
        std::fprintf(stderr, "wrong: %s\n", what);
        std::exit(1);
    }
}

static void in_threads(long threads, long calls)
{
    std::vector<std::thread> all;
    for (long i = 0; i < threads; i++)
        all.emplace_back([calls] {
            for (long n = 0; n < calls; n++)
                nothing();
        });
    for (std::thread &one : all)
        one.join();
}

static void one_after_the_other(long threads)
{
    for (long i = 0; i < threads; i++)
        std::thread([] { nothing(); }).join();
}

// Children are made while other threads call; each calls a few times itself, the first of them in a thread of its own.
static void forks(long children, long calls)
{
    bool stop = false;
    std::vector<long> made(4, 0);
    std::vector<std::thread> callers;
    for (long &count : made)
        callers.emplace_back([&count, &stop] {
            while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
                nothing();
                count++;
            }
        });
    for (long i = 0; i < children; i++) {
        pid_t child = fork();
        if (child == 0) {
            std::thread other([] { nothing(); });
            for (long n = 1; n < calls; n++)
                nothing();
            other.join();
            _exit(0);
        }
        int status;
        need(waitpid(child, &status, 0) == child && status == 0, "a child");
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    long sum = 0;
    for (size_t i = 0; i < callers.size(); i++) {
        callers[i].join();
        sum += made[i];
    }
    std::printf("%ld\n", sum);
}

static void exceptions()
{
    for (long value = 1; value < 100; value++) {
        bool thrown = false;
        try {
            need(thrower(value) == value, "an answer");
        } catch (const std::runtime_error &error) {
            thrown = !std::strcmp(error.what(), "odd");
        }
        need(thrown == (value % 2 == 1), "an exception");
    }
}

static void arguments()
{
    for (int time = 0; time < 3; time++) { // the first call takes the slow path
        errno = 1234;
        Large all = many(1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8, 9);
        need(errno == 1234, "errno");
        static const long wanted[] = {3, 7, 11, 15, 10, 35};
        need(!std::memcmp(all.values, wanted, sizeof wanted), "many arguments");
        need(variadic(9, 1., 2., 3., 4., 5., 6., 7., 8., 9.) == 45, "variable arguments");
        need(probe(41) == 42, "one argument");
    }
}

#if defined(__x86_64__)
__attribute__((target("avx"))) static double call4() { return wide4(Four{1, 0, 0, 20}, Four{300, 0, 0, 4000}); }
__attribute__((target("avx512f"))) static double call8()
{
    return wide8(Eight{1, 0, 0, 0, 0, 0, 0, 20}, Eight{300, 0, 0, 0, 0, 0, 0, 4000});
}
#endif

static int wide()
{
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx"))
        return 77;
    need(call4() == 4321 && call4() == 4321, "ymm arguments");
    if (__builtin_cpu_supports("avx512f"))
        need(call8() == 4321 && call8() == 4321, "zmm arguments");
    return 0;
#else
    return 77;
#endif
}

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "";
    long first = count > 2 ? std::atol(words[2]) : 0, second = count > 3 ? std::atol(words[3]) : 0;
    if (!std::strcmp(what, "threads"))
        in_threads(first, second);
    else if (!std::strcmp(what, "one-by-one"))
        one_after_the_other(first);
    else if (!std::strcmp(what, "forks"))
        forks(first, second);
    else if (!std::strcmp(what, "exceptions"))
        exceptions();
    else if (!std::strcmp(what, "arguments"))
        arguments();
    else if (!std::strcmp(what, "wide"))
        return wide();
    else if (!std::strcmp(what, "exec")) {
        nothing();
        return execl("/proc/self/exe", words[0], "threads", "1", "7", nullptr);
    } else if (!std::strcmp(what, "until-killed"))
        for (;;)
            nothing();
    else
        return 2;
    return 0;
}
