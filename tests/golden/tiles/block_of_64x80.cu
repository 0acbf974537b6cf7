// block_of_64x80: C = A * B; float32
//
// Tile       64x80 of C per block, 8x5 per thread, 16 along K per step
// Threads    8x16 per block, warps of 4x8 threads
//            a warp reads few different elements of A and B, next to one another: no bank conflicts
// A          global memory, cp.async of single elements, 3 stages in shared memory, transposed,
//            rows padded by 4, registers double-buffered across tiles
// B          global memory, cp.async of 4 elements, 3 stages in shared memory, registers
//            double-buffered across tiles
// Pipeline   cp.async groups, then a barrier
// Multiply   fused multiply-add, rows in serpentine order
// C          stores of single elements
// Sizes      any m, n, k; leading dimensions multiples of 4; every matrix spans less than 2^31
//            elements
// Unread     A and B where k is 0
// Launch     block (16, 8), grid ((n + 79) / 80, (m + 63) / 64) of at most 65,535 along y
// Needs      28,416 bytes of shared memory
//            matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c block_of_64x80.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
// It has cp.async.
#error "block_of_64x80 needs sm_80 or later"
#endif

namespace block_of_64x80_detail {

constexpr int BM = 64, BN = 80, BK = 16; // block tile: BM x BN of C, BK along K per step
constexpr int STAGES = 3; // stages of the pipeline
constexpr int THREADS_M = 8, THREADS_N = 16; // threads along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a thread
constexpr int THREADS = THREADS_M * THREADS_N; // threads of a block
static_assert(THREADS_M == 8 && THREADS_N == 16,
              "THREADS_M and THREADS_N cannot change here: emit it again with --set group=4x16");
static_assert(TM % 4 == 0 && BN % 4 == 0, "TM and BN must be multiples of 4");
static_assert(BK % 2 == 0, "BK must be a multiple of 2");
static_assert(BM * BK % THREADS == 0 && BN * BK % THREADS == 0,
              "BM * BK and BN * BK must be multiples of THREADS");
static_assert(THREADS % BK == 0, "THREADS must be a multiple of BK");
static_assert(BM % THREADS_M == 0, "BM must be a multiple of THREADS_M");
static_assert(BN % THREADS_N == 0, "BN must be a multiple of THREADS_N");
static_assert(TM > 4, "TM must exceed 4 here: emit it again with --set tile=4x5");
static_assert(STAGES >= 2, "STAGES must be 2 or more");

// 4 neighbouring elements; both addresses are multiples of 16 bytes.
__device__ __forceinline__ void copy4(float *to, const float *from)
{
    *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(from);
}

// An address in shared memory as PTX instructions take it.
__device__ __forceinline__ unsigned shared_address(const void *pointer)
{
    return unsigned(__cvta_generic_to_shared(pointer));
}

// cp.async: begins the copy of 4 bytes to shared memory.
__device__ __forceinline__ void cp_async_4(float *to, const float *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
                 :
                 : "r"(shared_address(to)), "l"(from)
                 : "memory");
}

// cp.async with zero fill: begins the copy of 4 bytes to shared memory, the first `valid` elements
// from global memory and zeros for the others.
__device__ __forceinline__ void cp_async_4_zfill(float *to, const float *from, int valid)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :
                 : "r"(shared_address(to)), "l"(from), "r"(valid * 4)
                 : "memory");
}

// cp.async with zero fill: begins the copy of 16 bytes to shared memory, the first `valid` elements
// from global memory and zeros for the others.
__device__ __forceinline__ void cp_async_16_zfill(float *to, const float *from, int valid)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(shared_address(to)), "l"(from), "r"(valid * 4)
                 : "memory");
}

// cp.async.commit_group: makes a group of this thread's cp.async since the last commit.
__device__ __forceinline__ void cp_async_commit_group()
{
    asm volatile("cp.async.commit_group;" : : : "memory");
}

// cp.async.wait_group: waits until at most the `pending` newest groups are incomplete.
template <int pending>
__device__ __forceinline__ void cp_async_wait_group()
{
    asm volatile("cp.async.wait_group %0;" : : "n"(pending) : "memory");
}

// Shared memory of a block.
struct Shared {
    alignas(16) float a[STAGES][BK][BM + 4]; // padded: lines begin in different banks
    alignas(16) float b[STAGES][BK][BN];
};

// Its size is an argument of the launch.
extern __shared__ __align__(16) unsigned char shared_memory[];

} // namespace block_of_64x80_detail

extern "C" __global__ void __launch_bounds__(block_of_64x80_detail::THREADS)
block_of_64x80(int m, int n, int k, const float *__restrict__ a, int lda,
               const float *__restrict__ b, int ldb, float *__restrict__ c, int ldc)
{
    using namespace block_of_64x80_detail;
    Shared &shared = *reinterpret_cast<Shared *>(shared_memory);

    const int local_index = int(threadIdx.y) * THREADS_N + int(threadIdx.x);
    const int warp = local_index / 32;
    const int lane = local_index % 32;
    const int local_row = warp / (THREADS_N / 8) * 4 + lane / 8;
    const int local_col = warp % (THREADS_N / 8) * 8 + lane % 8;
    const int row0 = int(blockIdx.y) * BM;
    const int col0 = int(blockIdx.x) * BN;
    const int row = row0 + local_row * 4;
    const int col = col0 + local_col;
    const int a_row = local_index / BK;
    const int a_k = local_index % BK;

    __align__(16) float a_frag[2][TM];
    float b_frag[2][TN];
    float acc[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Begins the loads of the tiles at k_load to a stage.
    const auto load_tiles = [&](int k_load, int load_stage) {
        if (k_load < k) {
            if (k_load + BK <= k) {
                #pragma unroll
                for (int i = 0; i < BM * BK / THREADS; ++i) {
                    cp_async_4(
                        &shared.a[load_stage][a_k][a_row + i * (THREADS / BK)],
                        &a[min(row0 + a_row + i * (THREADS / BK), m - 1) * lda + k_load + a_k]);
                }
                #pragma unroll
                for (int i = 0; i < (BN * BK / 4 + THREADS - 1) / THREADS; ++i) {
                    if (local_index + i * THREADS < BN * BK / 4) {
                        const int b_line = (local_index + i * THREADS) / (BN / 4);
                        const int b_at = (local_index + i * THREADS) % (BN / 4) * 4;
                        const int b_inside = col0 + b_at + 4 <= n ? 4
                                             : col0 + b_at < n    ? n - (col0 + b_at)
                                                                  : 0;
                        cp_async_16_zfill(&shared.b[load_stage][b_line][b_at],
                                          &b[(k_load + b_line) * ldb + col0 + b_at], b_inside);
                    }
                }
            } else {
                #pragma unroll
                for (int i = 0; i < BM * BK / THREADS; ++i) {
                    const int a_inside = k_load + a_k < k ? 1 : 0;
                    cp_async_4_zfill(
                        &shared.a[load_stage][a_k][a_row + i * (THREADS / BK)],
                        &a[min(row0 + a_row + i * (THREADS / BK), m - 1) * lda + k_load + a_k],
                        a_inside);
                }
                #pragma unroll
                for (int i = 0; i < BN * BK / THREADS; ++i) {
                    const int b_inside = k_load + (local_index + i * THREADS) / BN < k &&
                                                 col0 + (local_index + i * THREADS) % BN < n
                                             ? 1
                                             : 0;
                    cp_async_4_zfill(&shared.b[load_stage][(local_index + i * THREADS) / BN]
                                              [(local_index + i * THREADS) % BN],
                                     &b[(k_load + (local_index + i * THREADS) / BN) * ldb + col0 +
                                        (local_index + i * THREADS) % BN],
                                     b_inside);
                }
            }
        }
    };

    // Main loop; cp.async fills in zeros past K.
    #pragma unroll
    for (int load_stage = 0; load_stage < STAGES - 1; ++load_stage) {
        load_tiles(load_stage * BK, load_stage);
        cp_async_commit_group();
    }
    cp_async_wait_group<STAGES - 2>();
    __syncthreads();
    if (k > 0) {
        #pragma unroll
        for (int i = 0; i < TM / 4; ++i) {
            copy4(&a_frag[0][i * 4], &shared.a[0][0][local_row * 4 + i * THREADS_M * 4]);
        }
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            b_frag[0][j] = shared.b[0][0][local_col + j * THREADS_N];
        }
    }
    for (int k0 = 0; k0 < k; k0 += BK) {
        const int stage = k0 / BK % STAGES;
        const int load_stage = (k0 / BK + STAGES - 1) % STAGES;
        load_tiles(k0 + (STAGES - 1) * BK, load_stage);
        cp_async_commit_group();
        #pragma unroll
        for (int kk = 0; kk < BK - 1; ++kk) {
            #pragma unroll
            for (int i = 0; i < TM / 4; ++i) {
                copy4(&a_frag[(kk + 1) % 2][i * 4],
                      &shared.a[stage][kk + 1][local_row * 4 + i * THREADS_M * 4]);
            }
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                b_frag[(kk + 1) % 2][j] = shared.b[stage][kk + 1][local_col + j * THREADS_N];
            }
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                #pragma unroll
                for (int j = 0; j < TN; ++j) {
                    const int turn = i % 2 == 0 ? j : TN - 1 - j;
                    acc[i][turn] = fmaf(a_frag[kk % 2][i], b_frag[kk % 2][turn], acc[i][turn]);
                }
            }
        }
        cp_async_wait_group<STAGES - 2>();
        __syncthreads();
        if (k0 + BK < k) {
            #pragma unroll
            for (int i = 0; i < TM / 4; ++i) {
                copy4(&a_frag[0][i * 4],
                      &shared.a[(k0 / BK + 1) % STAGES][0][local_row * 4 + i * THREADS_M * 4]);
            }
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                b_frag[0][j] = shared.b[(k0 / BK + 1) % STAGES][0][local_col + j * THREADS_N];
            }
        }
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                const int turn = i % 2 == 0 ? j : TN - 1 - j;
                acc[i][turn] = fmaf(a_frag[1][i], b_frag[1][turn], acc[i][turn]);
            }
        }
    }

    // C = A * B.
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        const int c_row = row + i / 4 * THREADS_M * 4 + i % 4;
        if (c_row < m) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                if (col + j * THREADS_N < n) {
                    c[c_row * ldc + col + j * THREADS_N] = acc[i][j];
                }
            }
        }
    }
}

#ifndef __CUDACC_RTC__
namespace block_of_64x80_detail {

// Whether a matrix is aligned to `bytes` bytes.
static bool is_aligned(const void *matrix, size_t bytes)
{
    return reinterpret_cast<size_t>(matrix) % bytes == 0;
}

// Loops step past the end of a size: from here on, 32 bits might not hold where they stop.
constexpr long long TOO_MANY = (1LL << 31) - 1024;

// Whether lines do not overlap, at `pitch` elements from one to the next, and 32-bit indices reach
// the whole matrix.
static bool is_in_reach(long long lines, long long length, long long pitch)
{
    if (lines < 1 || length < 1) {
        return true;
    }
    return lines < TOO_MANY && length < TOO_MANY && (lines == 1 || pitch >= length) &&
           (lines - 1) * pitch + length < 1LL << 31;
}

} // namespace block_of_64x80_detail

// Queues the kernel on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, if the arguments break the requirements above.
extern "C" cudaError_t block_of_64x80_launch(int m, int n, int k, const float *a, int lda,
                                             const float *b, int ldb, float *c, int ldc,
                                             cudaStream_t stream)
{
    using namespace block_of_64x80_detail;

    if (m < 1 || n < 1) {
        return cudaSuccess;
    }
    if (!is_aligned(a, 16) || !is_aligned(b, 16) || !is_aligned(c, 16)) {
        return cudaErrorMisalignedAddress;
    }
    if (k < 0 || lda % 4 != 0 || ldb % 4 != 0 || ldc % 4 != 0 || !is_in_reach(m, k, lda) ||
        !is_in_reach(k, n, ldb) || !is_in_reach(m, n, ldc)) {
        return cudaErrorInvalidValue;
    }
    if (const cudaError_t error = cudaFuncSetAttribute(
            block_of_64x80, cudaFuncAttributeMaxDynamicSharedMemorySize, int(sizeof(Shared)))) {
        return error;
    }
    const dim3 grid((n + BN - 1) / BN, (m + BM - 1) / BM);
    const dim3 block(THREADS_N, THREADS_M);
    block_of_64x80<<<grid, block, sizeof(Shared), stream>>>(m, n, k, a, lda, b, ldb, c, ldc);
    return cudaGetLastError();
}
#endif
