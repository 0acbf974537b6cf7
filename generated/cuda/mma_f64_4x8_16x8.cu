// mma_f64_4x8_16x8: C = alpha * A * B + beta * C; float64
//
// Tile       64x64 of C per block, 4x8 per thread, 16 along K per step
// Threads    16x8 per block, warps of 8x4 threads
//            lanes of a warp as mma.sync has its accumulators
// A          global memory, cp.async of 2 elements, 4 stages in shared memory, rows padded by 4,
//            registers double-buffered across tiles
// B          global memory, cp.async of 2 elements, 4 stages in shared memory, rows padded by 4,
//            registers double-buffered across tiles
// Pipeline   cp.async groups, then a barrier
// Multiply   mma.sync of 16x8x8, sums in float64
// C          stores of 2 elements
// Grid       threadblock swizzle over 8 rows of blocks
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     block (8, 16), grid ((m + 63) / 64 * ((n + 63) / 64), 1)
// Needs      75,776 bytes of shared memory
//            matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c mma_f64_4x8_16x8.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
// It has cp.async and mma.sync.
#error "mma_f64_4x8_16x8 needs sm_80 or later"
#endif

namespace mma_f64_4x8_16x8_detail {

constexpr int BM = 64, BN = 64, BK = 16; // block tile: BM x BN of C, BK along K per step
constexpr int STAGES = 4; // stages of the pipeline
constexpr int GROUP_M = 8; // threadblock swizzle: rows of blocks that run together
constexpr int THREADS_M = 16, THREADS_N = 8; // threads along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a thread
constexpr int THREADS = THREADS_M * THREADS_N; // threads of a block
static_assert(THREADS_M == 16 && THREADS_N == 8,
              "THREADS_M and THREADS_N cannot change here: "
              "gemmgen emit --preset mma_f64_4x8_16x8 --backend cuda --set group=8x8");
static_assert(TN % 2 == 0 && TM % 2 == 0, "TN and TM must be multiples of 2");
static_assert(BK % 16 == 0, "BK must be a multiple of 16");
static_assert(BM * BK % (THREADS * 2) == 0 && BN * BK % (THREADS * 2) == 0,
              "BM * BK and BN * BK must be multiples of THREADS * 2");
static_assert(THREADS % BK == 0, "THREADS must be a multiple of BK");
static_assert(THREADS % BN == 0, "THREADS must be a multiple of BN");
static_assert(BM % THREADS_M == 0, "BM must be a multiple of THREADS_M");
static_assert(BN % THREADS_N == 0, "BN must be a multiple of THREADS_N");
static_assert(TN > 2 && TM > 2,
              "TN and TM must exceed 2 here: "
              "gemmgen emit --preset mma_f64_4x8_16x8 --backend cuda --set tile=2x8");
static_assert(STAGES >= 2, "STAGES must be 2 or more");

// 2 neighbouring elements; both addresses are multiples of 16 bytes.
__device__ __forceinline__ void copy2(double *to, const double *from)
{
    *reinterpret_cast<double2 *>(to) = *reinterpret_cast<const double2 *>(from);
}

// An address in shared memory as PTX instructions take it.
__device__ __forceinline__ unsigned shared_address(const void *pointer)
{
    return unsigned(__cvta_generic_to_shared(pointer));
}

// cp.async with zero fill: begins the copy of 8 bytes to shared memory, the first `valid` elements
// from global memory and zeros for the others.
__device__ __forceinline__ void cp_async_8_zfill(double *to, const double *from, int valid)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;"
                 :
                 : "r"(shared_address(to)), "l"(from), "r"(valid * 8)
                 : "memory");
}

// cp.async with zero fill: begins the copy of 16 bytes to shared memory, the first `valid` elements
// from global memory and zeros for the others.
__device__ __forceinline__ void cp_async_16_zfill(double *to, const double *from, int valid)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(shared_address(to)), "l"(from), "r"(valid * 8)
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

// mma.sync: acc += A * B of a warp, 8 x 4 by 4 x 8.
__device__ __forceinline__ void mma_m8n8k4(double *acc, double a, double b)
{
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+d"(acc[0]), "+d"(acc[1])
        : "d"(a), "d"(b));
}

// Four of them: 16 x 8 by 8 x 8. A lane has two rows of A and of the accumulators, eight apart, and
// one column of B.
__device__ __forceinline__ void mma_m16n8k8(double *acc_upper, double *acc_lower,
                                            const double *a_upper, const double *a_lower,
                                            const double *b)
{
    mma_m8n8k4(acc_upper, a_upper[0], b[0]);
    mma_m8n8k4(acc_lower, a_lower[0], b[0]);
    mma_m8n8k4(acc_upper, a_upper[1], b[1]);
    mma_m8n8k4(acc_lower, a_lower[1], b[1]);
}

// Shared memory of a block.
struct Shared {
    alignas(16) double a[STAGES][BM][BK + 4]; // padded: lines begin in different banks
    alignas(16) double b[STAGES][BK][BN + 4]; // padded: lines begin in different banks
};

// Its size is an argument of the launch.
extern __shared__ __align__(16) unsigned char shared_memory[];

} // namespace mma_f64_4x8_16x8_detail

extern "C" __global__ void __launch_bounds__(mma_f64_4x8_16x8_detail::THREADS)
mma_f64_4x8_16x8(int m, int n, int k, double alpha, const double *__restrict__ a, int lda,
                 const double *__restrict__ b, int ldb, double beta, double *__restrict__ c,
                 int ldc)
{
    using namespace mma_f64_4x8_16x8_detail;
    Shared &shared = *reinterpret_cast<Shared *>(shared_memory);

    const int local_index = int(threadIdx.y) * THREADS_N + int(threadIdx.x);
    const int warp = local_index / 32;
    const int lane = local_index % 32;
    const int warp_col = warp % (THREADS_N / 4) * 8;
    const int local_row = warp / (THREADS_N / 4) * 8 + lane / 4;
    const int local_col = warp % (THREADS_N / 4) * 4 + lane % 4;
    const int blocks_down = (m + BM - 1) / BM;
    const int blocks_across = (n + BN - 1) / BN;
    const int block = int(blockIdx.x);
    const int band_row = block / (blocks_across * GROUP_M) * GROUP_M;
    const int in_band = block % (blocks_across * GROUP_M);
    const int block_row = band_row + in_band % min(GROUP_M, blocks_down - band_row);
    const int block_col = in_band / min(GROUP_M, blocks_down - band_row);
    const int row0 = block_row * BM;
    const int col0 = block_col * BN;
    const int row = row0 + local_row;
    const int col = col0 + local_col * 2;
    const int a_row = local_index / (BK / 2);
    const int a_k = local_index % (BK / 2) * 2;
    const int a_row_by1 = local_index / BK;
    const int a_k_by1 = local_index % BK;
    const int b_k = local_index / (BN / 2);
    const int b_col = local_index % (BN / 2) * 2;
    const int b_k_by1 = local_index / BN;
    const int b_col_by1 = local_index % BN;

    double a_frag[2][TM][2];
    double b_frag[2][TN / 2][2];
    double acc[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0;
        }
    }

    // Begins the loads of the tiles at k_load to a stage.
    const auto load_tiles = [&](int k_load, int load_stage) {
        if (k_load < k) {
            if (k_load + BK <= k && lda % 2 == 0) {
                #pragma unroll
                for (int i = 0; i < BM * BK / (THREADS * 2); ++i) {
                    const int a_inside = row0 + a_row + i * (THREADS * 2 / BK) < m ? 2 : 0;
                    cp_async_16_zfill(
                        &shared.a[load_stage][a_row + i * (THREADS * 2 / BK)][a_k],
                        &a[(row0 + a_row + i * (THREADS * 2 / BK)) * lda + k_load + a_k], a_inside);
                }
            } else {
                #pragma unroll
                for (int i = 0; i < BM * BK / THREADS; ++i) {
                    const int a_inside = k_load + a_k_by1 < k ? 1 : 0;
                    cp_async_8_zfill(&shared.a[load_stage][a_row_by1 + i * (THREADS / BK)][a_k_by1],
                                     &a[min(row0 + a_row_by1 + i * (THREADS / BK), m - 1) * lda +
                                        k_load + a_k_by1],
                                     a_inside);
                }
            }
            if (k_load + BK <= k && ldb % 2 == 0) {
                #pragma unroll
                for (int i = 0; i < BN * BK / (THREADS * 2); ++i) {
                    const int b_inside = col0 + b_col + 2 <= n ? 2
                                         : col0 + b_col < n    ? n - (col0 + b_col)
                                                               : 0;
                    cp_async_16_zfill(
                        &shared.b[load_stage][b_k + i * (THREADS * 2 / BN)][b_col],
                        &b[(k_load + b_k + i * (THREADS * 2 / BN)) * ldb + col0 + b_col], b_inside);
                }
            } else {
                #pragma unroll
                for (int i = 0; i < BN * BK / THREADS; ++i) {
                    const int b_inside =
                        k_load + b_k_by1 + i * (THREADS / BN) < k && col0 + b_col_by1 < n ? 1 : 0;
                    cp_async_8_zfill(
                        &shared.b[load_stage][b_k_by1 + i * (THREADS / BN)][b_col_by1],
                        &b[(k_load + b_k_by1 + i * (THREADS / BN)) * ldb + col0 + b_col_by1],
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
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int j = 0; j < 2; ++j) {
                a_frag[0][i][j] = shared.a[0][local_row + i * THREADS_M][lane % 4 + j * 4];
            }
        }
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            #pragma unroll
            for (int j = 0; j < TN / 2; ++j) {
                b_frag[0][j][i] =
                    shared.b[0][lane % 4 + i * 4][warp_col + lane / 4 + j * THREADS_N * 2];
            }
        }
    }
    for (int k0 = 0; k0 < k; k0 += BK) {
        const int stage = k0 / BK % STAGES;
        const int load_stage = (k0 / BK + STAGES - 1) % STAGES;
        load_tiles(k0 + (STAGES - 1) * BK, load_stage);
        cp_async_commit_group();
        #pragma unroll
        for (int kk = 0; kk < BK - 8; kk += 8) {
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                #pragma unroll
                for (int j = 0; j < 2; ++j) {
                    a_frag[(kk / 8 + 1) % 2][i][j] =
                        shared.a[stage][local_row + i * THREADS_M][kk + lane % 4 + j * 4 + 8];
                }
            }
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                #pragma unroll
                for (int j = 0; j < TN / 2; ++j) {
                    b_frag[(kk / 8 + 1) % 2][j][i] =
                        shared.b[stage][kk + lane % 4 + i * 4 + 8]
                                [warp_col + lane / 4 + j * THREADS_N * 2];
                }
            }
            #pragma unroll
            for (int i = 0; i < TM / 2; ++i) {
                #pragma unroll
                for (int j = 0; j < TN / 2; ++j) {
                    mma_m16n8k8(&acc[i * 2][j * 2], &acc[i * 2 + 1][j * 2],
                                a_frag[kk / 8 % 2][i * 2], a_frag[kk / 8 % 2][i * 2 + 1],
                                b_frag[kk / 8 % 2][j]);
                }
            }
        }
        cp_async_wait_group<STAGES - 2>();
        __syncthreads();
        if (k0 + BK < k) {
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                #pragma unroll
                for (int j = 0; j < 2; ++j) {
                    a_frag[0][i][j] =
                        shared
                            .a[(k0 / BK + 1) % STAGES][local_row + i * THREADS_M][lane % 4 + j * 4];
                }
            }
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                #pragma unroll
                for (int j = 0; j < TN / 2; ++j) {
                    b_frag[0][j][i] = shared.b[(k0 / BK + 1) % STAGES][lane % 4 + i * 4]
                                              [warp_col + lane / 4 + j * THREADS_N * 2];
                }
            }
        }
        #pragma unroll
        for (int i = 0; i < TM / 2; ++i) {
            #pragma unroll
            for (int j = 0; j < TN / 2; ++j) {
                mma_m16n8k8(&acc[i * 2][j * 2], &acc[i * 2 + 1][j * 2], a_frag[1][i * 2],
                            a_frag[1][i * 2 + 1], b_frag[1][j]);
            }
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        if (row + i * THREADS_M < m) {
            #pragma unroll
            for (int j = 0; j < TN / 2; ++j) {
                if (col + j * THREADS_N * 2 + 2 <= n && ldc % 2 == 0) {
                    __align__(16) double c_values[2];
                    #pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        c_values[e] = alpha * acc[i][j * 2 + e];
                    }
                    if (beta != 0.0) {
                        __align__(16) double c_old[2];
                        copy2(c_old, &c[(row + i * THREADS_M) * ldc + col + j * THREADS_N * 2]);
                        #pragma unroll
                        for (int e = 0; e < 2; ++e) {
                            c_values[e] = fma(beta, c_old[e], c_values[e]);
                        }
                    }
                    copy2(&c[(row + i * THREADS_M) * ldc + col + j * THREADS_N * 2], c_values);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        if (col + j * THREADS_N * 2 + e < n) {
                            c[(row + i * THREADS_M) * ldc + col + j * THREADS_N * 2 + e] =
                                beta == 0.0 ? alpha * acc[i][j * 2 + e]
                                            : fma(beta,
                                                  c[(row + i * THREADS_M) * ldc + col +
                                                    j * THREADS_N * 2 + e],
                                                  alpha * acc[i][j * 2 + e]);
                        }
                    }
                }
            }
        }
    }
}

#ifndef __CUDACC_RTC__
namespace mma_f64_4x8_16x8_detail {

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

} // namespace mma_f64_4x8_16x8_detail

// Queues the kernel on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, if the arguments break the requirements above.
extern "C" cudaError_t mma_f64_4x8_16x8_launch(int m, int n, int k, double alpha, const double *a,
                                               int lda, const double *b, int ldb, double beta,
                                               double *c, int ldc, cudaStream_t stream)
{
    using namespace mma_f64_4x8_16x8_detail;

    if (m < 1 || n < 1) {
        return cudaSuccess;
    }
    if (alpha == 0.0) {
        k = 0; // so that A and B are not read
    }
    if (!is_aligned(a, 16) || !is_aligned(b, 16) || !is_aligned(c, 16)) {
        return cudaErrorMisalignedAddress;
    }
    if (k < 0 || !is_in_reach(m, k, lda) || !is_in_reach(k, n, ldb) || !is_in_reach(m, n, ldc)) {
        return cudaErrorInvalidValue;
    }
    if (const cudaError_t error = cudaFuncSetAttribute(
            mma_f64_4x8_16x8, cudaFuncAttributeMaxDynamicSharedMemorySize, int(sizeof(Shared)))) {
        return error;
    }
    const dim3 grid((m + BM - 1) / BM * ((n + BN - 1) / BN), 1);
    const dim3 block(THREADS_N, THREADS_M);
    mma_f64_4x8_16x8<<<grid, block, sizeof(Shared), stream>>>(m, n, k, alpha, a, lda, b, ldb, beta,
                                                              c, ldc);
    return cudaGetLastError();
}
#endif
