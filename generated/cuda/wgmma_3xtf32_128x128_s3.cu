// wgmma_3xtf32_128x128_s3: C = alpha * A * B + beta * C; float32
//
// Schedule   2x32 of C per thread, 64x4 threads per block (128x128 of C), 32 along K per iteration,
//            by matrix instructions of four warps, three of TF32 for each product, added up as
//            float32 after each step of K, 3 tiles in shared memory at a time, brought by one of
//            128 more threads, which have nothing else to do, registers handed over: 232 to each
//            that multiplies, 40 to each of the others, blocks in bands of 8 rows, stores of 4
//            elements
// A          packed into whole tiles by a kernel before; global memory, by tensor maps: boxes in
//            lines of 128 bytes that swizzle, to shared memory
// B          packed into whole tiles by a kernel before; global memory, by tensor maps: boxes in
//            lines of 128 bytes that swizzle, to shared memory
// Sizes      any m, n, k; every matrix spans less than 2^31 elements; packed matrices less than
//            2^31 elements
// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0
// Launch     wgmma_3xtf32_128x128_s3_pack: block (32, 8), grid (((m + 127) / 128 * 128 + 31) / 32 *
//                (((k + 31) / 32 * 32 + 31) / 32) + ((n + 127) / 128 * 128 + 31) / 32 * (((k + 31)
//                / 32 * 32 + 31) / 32), 1)
//            wgmma_3xtf32_128x128_s3: block (4, 96), grid ((m + 127) / 128 * ((n + 127) / 128), 1)
// Needs      196,656 bytes of shared memory
//            a_packed of (m + 127) / 128 * 128 * ((k + 31) / 32 * 64) elements, aligned to 16 bytes
//            b_packed of (n + 127) / 128 * 128 * ((k + 31) / 32 * 64) elements, aligned to 16 bytes
//            matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -gencode arch=compute_90a,code=sm_90a -Werror all-warnings -c wgmma_3xtf32_128x128_s3.cu

#ifndef __CUDACC_RTC__
#include <cuda.h>
#include <cuda_runtime.h>
#elif !defined(GEMMGEN_TENSOR_MAP)
#define GEMMGEN_TENSOR_MAP
struct alignas(64) CUtensorMap
{
    unsigned long long words[16];
};
#endif

#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#error "wgmma_3xtf32_128x128_s3 needs sm_90a alone, for tensor maps (TMA) and instructions of warpgroups (wgmma, setmaxnreg)"
#endif

namespace wgmma_3xtf32_128x128_s3_detail {

// 2 neighbouring elements; both addresses are multiples of 8 bytes.
__device__ __forceinline__ void copy2(float *to, const float *from)
{
    *reinterpret_cast<float2 *>(to) = *reinterpret_cast<const float2 *>(from);
}

// 4 neighbouring elements; both addresses are multiples of 16 bytes.
__device__ __forceinline__ void copy4(float *to, const float *from)
{
    *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(from);
}

// Makes a barrier in shared memory ready, whose phases are over when `arrivals` threads have come.
__device__ __forceinline__ void mbarrier_init(unsigned long long *barrier, int arrivals)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(barrier));
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                 ::"r"(address), "r"(arrivals) : "memory");
}

// This thread has come.
__device__ __forceinline__ void mbarrier_arrive(unsigned long long *barrier)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(barrier));
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address) : "memory");
}

// Waits until the phase of this parity is over.
__device__ __forceinline__ void mbarrier_wait(unsigned long long *barrier, int parity)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(barrier));
    unsigned over;
    do {
        asm volatile("{\n"
                     ".reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n"
                     "}"
                     : "=r"(over) : "r"(address), "r"(parity) : "memory");
    } while (!over);
}

// Lets the next kernel's blocks begin, once every block of this one has come here.
__device__ __forceinline__ void kernels_release()
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Waits until the kernel before is over; what it has written is there.
__device__ __forceinline__ void kernels_await()
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

// This thread has come, and so many bytes are to come by copies of boxes.
__device__ __forceinline__ void mbarrier_expect(unsigned long long *barrier, int bytes)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(barrier));
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 ::"r"(address), "r"(bytes) : "memory");
}

// Lets copies see the barriers that this thread has made ready.
__device__ __forceinline__ void mbarriers_ready()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Lets a map be on its way to where copies look for it.
__device__ __forceinline__ void fetch_map(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// A number with 10 bits after the point; the others are cut off.
__device__ __forceinline__ float head_in_tf32(float value)
{
    return __uint_as_float(__float_as_uint(value) & 0xffffe000u);
}

// What a number has more than its head, and 2^-23 of it besides: of the number's sign, zero for zero
// alone, so that infinite numbers make no NaN with it. What is not finite is its own rest: of Inf - Inf
// and of what is as large as its number or smaller, bits as integers, the number is the least.
__device__ __forceinline__ float rest_in_tf32(float value, float head)
{
    const int rest = __float_as_int(fmaf(value, 0x1.000002p0f, -head));
    return __int_as_float(min(rest, __float_as_int(value)));
}

// Begins a copy of a box of a matrix to shared memory; outside of the matrix it brings zeros. The
// barrier counts its bytes.
__device__ __forceinline__ void copy_box(void *to, const CUtensorMap *matrix, int along, int line,
                                         unsigned long long *barrier)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(to));
    const unsigned counter = unsigned(__cvta_generic_to_shared(barrier));
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];"
                 ::"r"(address), "l"(matrix), "r"(along), "r"(line), "r"(counter) : "memory");
}

// Takes registers that others give up, until this thread has so many.
template <int registers>
__device__ __forceinline__ void registers_more()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

// Gives up all registers but so many.
template <int registers>
__device__ __forceinline__ void registers_fewer()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

// These threads meet, and not the others of the block; barrier 0 is that of all.
template <int threads>
__device__ __forceinline__ void role_barrier()
{
    asm volatile("bar.sync 1, %0;" ::"n"(threads) : "memory");
}

// What matrix instructions take a tile by: lines of 128 bytes that swizzle, 1024 bytes from eight of
// them to the next eight, `block` bytes from one block of lines to the next. It counts in 16 bytes.
template <int block>
__device__ __forceinline__ unsigned long long matrix_tile(const void *tile)
{
    const unsigned long long address = __cvta_generic_to_shared(tile);
    return address >> 4 | (unsigned long long)(block / 16) << 16 | 64ull << 32 | 1ull << 62;
}

// Comes before matrix instructions whose sums other instructions have written.
__device__ __forceinline__ void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// Makes a group of the matrix instructions begun since the last.
__device__ __forceinline__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Four of a thread's sums, as instructions have them: two neighbours of a row, two of the other.
#define SUMS(j) "+f"(sums[0][j]), "+f"(sums[0][j + 1]), "+f"(sums[1][j]), "+f"(sums[1][j + 1])

// Waits until no matrix instruction is under way: from here on these sums may be read.
__device__ __forceinline__ void wgmma_wait(float (*sums)[32])
{
    asm volatile("wgmma.wait_group.sync.aligned 0;"
                 : SUMS(0), SUMS(2), SUMS(4), SUMS(6), SUMS(8), SUMS(10), SUMS(12),
                   SUMS(14), SUMS(16), SUMS(18), SUMS(20), SUMS(22), SUMS(24),
                   SUMS(26), SUMS(28), SUMS(30)
                 :: "memory");
}

// sums += a * b by a warpgroup, 64 x 8 times 8 x 128, of tiles in shared memory; it only
// begins that. Of the sums a thread has two rows, eight apart.
__device__ __forceinline__ void wgmma_m64n128k8(float (*sums)[32], unsigned long long a,
                                                 unsigned long long b)
{
    asm volatile("{\n"
                 ".reg .pred add;\n"
                 "setp.eq.u32 add, 0, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, "
                 "%15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, "
                 "%28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, "
                 "%41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, "
                 "%54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
                 "}, %64, %65, add, 1, 1;\n"
                 "}"
                 : SUMS(0), SUMS(2), SUMS(4), SUMS(6), SUMS(8), SUMS(10), SUMS(12),
                   SUMS(14), SUMS(16), SUMS(18), SUMS(20), SUMS(22), SUMS(24),
                   SUMS(26), SUMS(28), SUMS(30)
                 : "l"(a), "l"(b));
}

#undef SUMS

// What the launch brings.
extern __shared__ __align__(1024) unsigned char shared[];

} // namespace wgmma_3xtf32_128x128_s3_detail

extern "C" __global__ void __launch_bounds__(256)
wgmma_3xtf32_128x128_s3_pack(int m, int n, int k, const float *__restrict__ a, int lda,
                             const float *__restrict__ b, int ldb, float *__restrict__ a_packed,
                             float *__restrict__ b_packed)
{
    using namespace wgmma_3xtf32_128x128_s3_detail;

    kernels_release();

    const int m_whole = (m + 127) / 128 * 128;
    const int n_whole = (n + 127) / 128 * 128;
    const int k_whole = (k + 31) / 32 * 32;
    const int a_blocks = (m_whole + 31) / 32 * ((k_whole + 31) / 32);
    const int block = int(blockIdx.x) < a_blocks ? int(blockIdx.x) : int(blockIdx.x) - a_blocks;
    const int local_row = int(threadIdx.y);
    const int local_col = int(threadIdx.x);

    __shared__ float b_tile[32][33];
    if (int(blockIdx.x) < a_blocks) {
        const int a_slow = block / ((k_whole + 31) / 32) * 32;
        const int a_fast = block % ((k_whole + 31) / 32) * 32;
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (a_slow + i * 8 + local_row < m_whole && a_fast * 2 + local_col + 32 < k_whole * 2) {
                const float element =
                    a_slow + i * 8 + local_row < m && a_fast + local_col < k
                        ? a[(a_slow + i * 8 + local_row) * lda + a_fast + local_col]
                        : 0.0f;
                const float head = head_in_tf32(element);
                a_packed[(a_slow + i * 8 + local_row) * (k_whole * 2) + a_fast * 2 + local_col] =
                    head;
                a_packed[(a_slow + i * 8 + local_row) * (k_whole * 2) + a_fast * 2 + local_col
                    + 32] =
                    rest_in_tf32(element, head);
            }
        }
    } else {
        const int b_slow = block / ((k_whole + 31) / 32) * 32;
        const int b_fast = block % ((k_whole + 31) / 32) * 32;

        // Read by lines, written by lines: turned in between.
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            b_tile[i * 8 + local_row][local_col] =
                b_fast + i * 8 + local_row < k && b_slow + local_col < n
                    ? b[(b_fast + i * 8 + local_row) * ldb + b_slow + local_col]
                    : 0.0f;
        }
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (b_slow + i * 8 + local_row < n_whole && b_fast * 2 + local_col + 32 < k_whole * 2) {
                const float element = b_tile[local_col][i * 8 + local_row];
                const float head = head_in_tf32(element);
                b_packed[(b_slow + i * 8 + local_row) * (k_whole * 2) + b_fast * 2 + local_col] =
                    head;
                b_packed[(b_slow + i * 8 + local_row) * (k_whole * 2) + b_fast * 2 + local_col
                    + 32] =
                    rest_in_tf32(element, head);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(384, 1)
wgmma_3xtf32_128x128_s3(int m, int n, int k, float alpha,
                        const __grid_constant__ CUtensorMap a_packed_map,
                        const __grid_constant__ CUtensorMap b_packed_map, float beta, float *c,
                        int ldc)
{
    using namespace wgmma_3xtf32_128x128_s3_detail;

    const int local_row = int(threadIdx.y);
    const int local_col = int(threadIdx.x);
    const int blocks_down = (m + 127) / 128;
    const int blocks_across = (n + 127) / 128;
    const int block = int(blockIdx.x);
    const int band_row = block / (blocks_across * 8) * 8;
    const int in_band = block % (blocks_across * 8);
    const int block_row = band_row + in_band % min(8, blocks_down - band_row);
    const int block_col = in_band / min(8, blocks_down - band_row);
    const int row0 = block_row * 128;
    const int col0 = block_col * 128;
    const int k_whole = (k + 31) / 32 * 32;
    const int local_index = local_row * 4 + local_col;
    const int warpgroup = __shfl_sync(0xffffffffu, local_row / 32, 0, 32);

    auto &a_shared = *reinterpret_cast<float(*)[3][2][128][32]>(shared);
    auto &b_shared = *reinterpret_cast<float(*)[3][2][128][32]>(shared + 98304);
    auto &tiles_full = *reinterpret_cast<unsigned long long(*)[3]>(shared + 196608);
    auto &tiles_empty = *reinterpret_cast<unsigned long long(*)[3]>(shared + 196632);
    if (local_index == 0) {
        fetch_map(&a_packed_map);
        fetch_map(&b_packed_map);
        #pragma unroll
        for (int slot = 0; slot < 3; ++slot) {
            mbarrier_init(&tiles_full[slot], 1);
            mbarrier_init(&tiles_empty[slot], 8);
        }
        mbarriers_ready();
    }
    __syncthreads();
    kernels_await();
    kernels_release();
    if (local_row < 64) {
        // Those that multiply, and store C.
        registers_more<232>();
        float acc[2][32];
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            #pragma unroll
            for (int j = 0; j < 32; ++j) {
                acc[i][j] = 0.0f;
            }
        }
        float step_sums[2][32];
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            #pragma unroll
            for (int j = 0; j < 32; ++j) {
                step_sums[i][j] = 0.0f;
            }
        }
        for (int k0 = 0; k0 < k_whole; k0 += 32) {
            const int slot = k0 / 32 % 3;
            mbarrier_wait(&tiles_full[slot], k0 / 32 / 3 % 2);
            wgmma_fence();
            const unsigned long long a_tile = matrix_tile<16384>(a_shared[slot][0][warpgroup * 64]);
            const unsigned long long b_tile = matrix_tile<16384>(b_shared[slot][0][0]);
            #pragma unroll
            for (int kk = 0; kk < 32; kk += 8) {
                wgmma_m64n128k8(step_sums, a_tile + kk / 4 + 1024, b_tile + kk / 4);
                wgmma_m64n128k8(step_sums, a_tile + kk / 4, b_tile + kk / 4 + 1024);
                wgmma_m64n128k8(step_sums, a_tile + kk / 4, b_tile + kk / 4);
            }
            wgmma_commit();
            wgmma_wait(step_sums);
            if (local_index % 32 == 0) {
                mbarrier_arrive(&tiles_empty[slot]);
            }

            // As float32, which is rounded.
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                #pragma unroll
                for (int j = 0; j < 32; ++j) {
                    acc[i][j] += step_sums[i][j];
                }
            }
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                #pragma unroll
                for (int j = 0; j < 32; ++j) {
                    step_sums[i][j] = 0.0f;
                }
            }
        }

        // By way of where the tiles were, so that warps store whole lines.
        role_barrier<256>();
        auto &sums = *reinterpret_cast<float(*)[128][136]>(shared);
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int sums_row = local_row / 8 * 16 + local_row % 8 + i * 8;
            #pragma unroll
            for (int j = 0; j < 16; ++j) {
                __align__(16) float sums_values[2];
                #pragma unroll
                for (int e = 0; e < 2; ++e) {
                    sums_values[e] = alpha * acc[i][j * 2 + e];
                }
                copy2(&sums[sums_row][local_col * 2 + j * 8], sums_values);
            }
        }
        role_barrier<256>();
        const int sum_row = local_index / 32;
        const int sum_col = local_index % 32;
        const int first_col = col0 + sum_col * 4;
        __align__(16) float total[16][4];
        #pragma unroll
        for (int i = 0; i < 16; ++i) {
            copy4(total[i], &sums[sum_row + i * 8][sum_col * 4]);
        }

        // C = alpha * A * B + beta * C; C is not read where beta is zero.
        #pragma unroll
        for (int i = 0; i < 16; ++i) {
            const int c_row = row0 + sum_row + i * 8;
            if (c_row < m) {
                if (first_col + 4 <= n && ldc % 4 == 0) {
                    if (beta != 0.0f) {
                        __align__(16) float c_old[4];
                        copy4(c_old, &c[c_row * ldc + first_col]);
                        #pragma unroll
                        for (int e = 0; e < 4; ++e) {
                            total[i][e] = fmaf(beta, c_old[e], total[i][e]);
                        }
                    }
                    copy4(&c[c_row * ldc + first_col], total[i]);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        if (first_col + e < n) {
                            c[c_row * ldc + first_col + e] =
                                beta == 0.0f ? total[i][e]
                                             : fmaf(beta, c[c_row * ldc + first_col + e],
                                                 total[i][e]);
                        }
                    }
                }
            }
        }
    } else {
        // One that copies, ahead of them as far as there is room.
        registers_fewer<40>();
        if (local_index == 256) {
            for (int k0 = 0; k0 < k_whole; k0 += 32) {
                const int slot = k0 / 32 % 3;
                mbarrier_wait(&tiles_empty[slot], (k0 / 32 / 3 + 1) % 2);
                mbarrier_expect(&tiles_full[slot], 65536);
                #pragma unroll
                for (int i = 0; i < 2; ++i) {
                    copy_box(a_shared[slot][i][0], &a_packed_map, k0 * 2 + i * 32, row0,
                        &tiles_full[slot]);
                }
                #pragma unroll
                for (int i = 0; i < 2; ++i) {
                    copy_box(b_shared[slot][i][0], &b_packed_map, k0 * 2 + i * 32, col0,
                        &tiles_full[slot]);
                }
            }
        }
    }
}

#ifndef __CUDACC_RTC__
namespace wgmma_3xtf32_128x128_s3_detail {

// Whether a matrix begins on a multiple of so many bytes.
static bool is_aligned(const void *matrix, size_t bytes)
{
    return reinterpret_cast<size_t>(matrix) % bytes == 0;
}

// Whether lines lie apart, `pitch` elements from one to the next, and 32-bit indices reach all of
// a matrix.
static bool is_in_reach(long long lines, long long length, long long pitch)
{
    if (lines < 1 || length < 1) {
        return true;
    }
    return (lines == 1 || pitch >= length) && (lines - 1) * pitch + length < 1LL << 31;
}

// The map of a matrix for copies of boxes: `lines` of `length` elements of `size` bytes, `pitch`
// elements apart. The driver makes it, which nothing has to be linked for. It refuses a matrix, or
// lines, that begin on no multiple of 16 bytes.
static cudaError_t make_map(CUtensorMap *map, CUtensorMapDataType type, int size,
                            const void *matrix, int lines, int length, long long pitch,
                            unsigned box_lines, unsigned box_length)
{
    void *found = nullptr;
    cudaDriverEntryPointQueryResult known;
#if CUDART_VERSION >= 12050
    const cudaError_t asked = cudaGetDriverEntryPointByVersion(
        "cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &known);
#else
    const cudaError_t asked =
        cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &known);
#endif
    if (asked != cudaSuccess || known != cudaDriverEntryPointSuccess) {
        return asked != cudaSuccess ? asked : cudaErrorInsufficientDriver;
    }
    const cuuint64_t extents[2] = {cuuint64_t(length), cuuint64_t(lines)};
    // The pitch of a single line is never used, and need not be a multiple of 16 bytes.
    const cuuint64_t between = cuuint64_t(pitch) * cuuint64_t(size);
    const cuuint64_t strides[1] = {lines > 1 ? between : (extents[0] * size + 15) / 16 * 16};
    const cuuint32_t box[2] = {box_length, box_lines};
    const cuuint32_t steps[2] = {1, 1};
    const CUresult made = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found)(
        map, type, 2, const_cast<void *>(matrix), extents, strides, box, steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return made == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

} // namespace wgmma_3xtf32_128x128_s3_detail

// Queues the kernels on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, where the kernels can't take them.
extern "C" cudaError_t wgmma_3xtf32_128x128_s3_launch(int m, int n, int k, float alpha,
                                                      const float *a, int lda, const float *b,
                                                      int ldb, float *a_packed, float *b_packed,
                                                      float beta, float *c, int ldc,
                                                      cudaStream_t stream)
{
    using namespace wgmma_3xtf32_128x128_s3_detail;

    if (m < 1 || n < 1) {
        return cudaSuccess;
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    if (!is_aligned(a, 16) || !is_aligned(b, 16) || !is_aligned(a_packed, 16) ||
        !is_aligned(b_packed, 16) || !is_aligned(c, 16)) {
        return cudaErrorMisalignedAddress;
    }
    if (k < 0 || !is_in_reach(m, k, lda) || !is_in_reach(k, n, ldb) || !is_in_reach(m, n, ldc) ||
        1LL * (m + 127) / 128 * 128 * ((k + 31) / 32 * 64) >= 1LL << 31 ||
        1LL * (n + 127) / 128 * 128 * ((k + 31) / 32 * 64) >= 1LL << 31) {
        return cudaErrorInvalidValue;
    }
    if (k > 0) {
        const dim3 grid(((m + 127) / 128 * 128 + 31) / 32 * (((k + 31) / 32 * 32 + 31) / 32) + ((n + 127) / 128 * 128 + 31) / 32 * (((k + 31) / 32 * 32 + 31) / 32), 1);
        const dim3 block(32, 8);
        wgmma_3xtf32_128x128_s3_pack<<<grid, block, 0, stream>>>(
            m, n, k, a, lda, b, ldb, a_packed, b_packed);
        const cudaError_t launched = cudaGetLastError();
        if (launched != cudaSuccess) {
            return launched;
        }
    }
    {
        CUtensorMap a_packed_map = {};
        const cudaError_t a_packed_map_made =
            k > 0
                ? make_map(&a_packed_map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, a_packed,
                    (m + 127) / 128 * 128, (k + 31) / 32 * 64, (k + 31) / 32 * 64, 128, 32)
                : cudaSuccess;
        if (a_packed_map_made != cudaSuccess) {
            return a_packed_map_made;
        }
        CUtensorMap b_packed_map = {};
        const cudaError_t b_packed_map_made =
            k > 0
                ? make_map(&b_packed_map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, b_packed,
                    (n + 127) / 128 * 128, (k + 31) / 32 * 64, (k + 31) / 32 * 64, 128, 32)
                : cudaSuccess;
        if (b_packed_map_made != cudaSuccess) {
            return b_packed_map_made;
        }
        const cudaError_t allowed = cudaFuncSetAttribute(
            wgmma_3xtf32_128x128_s3, cudaFuncAttributeMaxDynamicSharedMemorySize, 196656);
        if (allowed != cudaSuccess) {
            return allowed;
        }
        const dim3 grid((m + 127) / 128 * ((n + 127) / 128), 1);
        const dim3 block(4, 96);
        // It may begin while the kernel before ends, which it awaits.
        cudaLaunchAttribute early = {};
        early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        early.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t config = {};
        config.gridDim = grid;
        config.blockDim = block;
        config.dynamicSmemBytes = 196656;
        config.stream = stream;
        config.attrs = &early;
        config.numAttrs = 1;
        return cudaLaunchKernelEx(&config, wgmma_3xtf32_128x128_s3,
            m, n, k, alpha, a_packed_map, b_packed_map, beta, c, ldc);
    }
}
#endif
