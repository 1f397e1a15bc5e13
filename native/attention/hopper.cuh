// Hopper's instructions as functions: wgmma with its shapes, bulk tensor copies, mbarriers, and the arithmetic of a
// softmax. PTX ISA 8.0, sm_90a.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

namespace patchkit
{

__device__ __forceinline__ uint32_t shared_address(const void *pointer)
{
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// --- numbers ---------------------------------------------------------------------------------------------------------

constexpr float LN2 = 0.6931471805599453f;

template <bool Bfloat>
__device__ __forceinline__ uint32_t pack_pair(float low, float high)
{
    uint32_t packed;
    if constexpr (Bfloat)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    else
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

__device__ __forceinline__ float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Of kernels that overlap with the one before them in their stream (programmatic dependent launch): waits until that
// one has ended and its writes can be read.
__device__ __forceinline__ void wait_for_kernel_before() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// The next kernel of the stream may start, if it was launched so, once all blocks have said this or ended.
__device__ __forceinline__ void let_next_kernel_start()
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// --- mbarrier -------------------------------------------------------------------------------------------------------

__device__ __forceinline__ void barrier_init(uint64_t *barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals));
}

__device__ __forceinline__ void barrier_expect(uint64_t *barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void barrier_arrive(uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

__device__ __forceinline__ void barrier_wait(uint64_t *barrier, uint32_t parity)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra.uni over;\n"
                 "bra.uni again;\n"
                 "over:\n"
                 "}\n" ::"r"(shared_address(barrier)),
                 "r"(parity)
                 : "memory");
}

// --- bulk tensor copy -----------------------------------------------------------------------------------------------

__device__ __forceinline__ void copy_box(void *to, const CUtensorMap *map, uint64_t *barrier, int x, int y, int z)
{
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::
            "r"(shared_address(to)),
        "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z)
        : "memory");
}

__device__ __forceinline__ void copy_box(void *to, const CUtensorMap *map, uint64_t *barrier, int x, int y, int z,
                                         int w)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, "
                 "%6}], [%2];" ::"r"(shared_address(to)),
                 "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "r"(w)
                 : "memory");
}

__device__ __forceinline__ void prefetch_map(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// --- wgmma ----------------------------------------------------------------------------------------------------------

// A tile in shared memory, in rows of 128 bytes, swizzled in groups of 8 rows (1024 bytes). `leading` is the distance
// in bytes of the second 64 columns, which counts only where the operand is not K-major. What moves within a tile is
// the lower half, in units of 16 bytes.
__device__ __forceinline__ uint32_t tile_address(const void *tile, uint32_t leading)
{
    return ((shared_address(tile) & 0x3FFFF) >> 4) | (leading >> 4) << 16;
}

__device__ __forceinline__ uint64_t tile_descriptor(uint32_t address)
{
    constexpr uint64_t SWIZZLE = 1ull << 62, STRIDE = static_cast<uint64_t>(1024 >> 4) << 32;
    return SWIZZLE | STRIDE | address;
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int Pending>
__device__ __forceinline__ void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

// The compiler may not move reads or writes of these registers over this point.
template <int Count>
__device__ __forceinline__ void pin(float (&registers)[Count])
{
#pragma unroll
    for (int i = 0; i < Count; ++i)
        asm volatile("" : "+f"(registers[i])::"memory");
}

// Sums of an instruction as it names them, and as they are bound to an array d.
#define PATCHKIT_NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define PATCHKIT_NAMES_32                                                                                              \
    PATCHKIT_NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define PATCHKIT_NAMES_64                                                                                              \
    PATCHKIT_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"               \
                      ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define PATCHKIT_SUMS_16                                                                                               \
    "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),        \
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
#define PATCHKIT_SUMS_32                                                                                               \
    PATCHKIT_SUMS_16, "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]),       \
        "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]),        \
        "+f"(d[31])
#define PATCHKIT_SUMS_64                                                                                               \
    PATCHKIT_SUMS_32, "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]),       \
        "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]),        \
        "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]),        \
        "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]),        \
        "+f"(d[63])

// d[64, N] (+)= a[64, 16] b[16, N], both in shared memory, K-major. `add` 0: d is overwritten.
template <int N, bool Bfloat>
struct MultiplyShared;
// d[64, N] += a[64, 16] b[16, N], a in registers, b in shared memory with N contiguous.
template <int N, bool Bfloat>
struct MultiplyRegisters;

// a_, b_ and add_ are what an instruction calls its operands: they are numbered on behind the sums.
#define PATCHKIT_SHARED(n, sums, bfloat, type, a_, b_, add_)                                                           \
    template <>                                                                                                        \
    struct MultiplyShared<n, bfloat> {                                                                                 \
        static __device__ __forceinline__ void run(float (&d)[sums], uint64_t a, uint64_t b, int add)                  \
        {                                                                                                              \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " add_ ", 0;\n"                                             \
                         "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" PATCHKIT_NAMES_##sums    \
                         "}, " a_ ", " b_ ", p, 1, 1, 0, 0;\n}\n"                                                      \
                         : PATCHKIT_SUMS_##sums                                                                        \
                         : "l"(a), "l"(b), "r"(add));                                                                  \
        }                                                                                                              \
    };

#define PATCHKIT_REGISTERS(n, sums, bfloat, type, a_, b_)                                                              \
    template <>                                                                                                        \
    struct MultiplyRegisters<n, bfloat> {                                                                              \
        static __device__ __forceinline__ void run(float (&d)[sums], const uint32_t (&a)[4], uint64_t b)               \
        {                                                                                                              \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" PATCHKIT_NAMES_##sums    \
                         "}, {" a_ "}, " b_ ", 1, 1, 1, 1;\n"                                                          \
                         : PATCHKIT_SUMS_##sums                                                                        \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                        \
        }                                                                                                              \
    };

#define PATCHKIT_MULTIPLY(bfloat, type)                                                                                \
    PATCHKIT_SHARED(32, 16, bfloat, type, "%16", "%17", "%18")                                                         \
    PATCHKIT_SHARED(64, 32, bfloat, type, "%32", "%33", "%34")                                                         \
    PATCHKIT_REGISTERS(64, 32, bfloat, type, "%32, %33, %34, %35", "%36")                                              \
    PATCHKIT_REGISTERS(128, 64, bfloat, type, "%64, %65, %66, %67", "%68")

PATCHKIT_MULTIPLY(true, "bf16")
PATCHKIT_MULTIPLY(false, "f16")

} // namespace patchkit
