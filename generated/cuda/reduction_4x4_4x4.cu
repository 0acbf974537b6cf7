// reduction_4x4_4x4: C = alpha * A * B + beta * C; float32
//
// Tile       16x16 of C per block, 4x4 per thread, 32 along K per step
// Threads    128 per block, 8 slices of each step along K (sliced-K)
// A          global memory, loads of 4 elements
// B          global memory, loads of 4 elements
// Multiply   fused multiply-add
// C          slices added up in shared memory, atomic additions, in no fixed order
// Grid       split-K: 4 parts, added to C by atomic additions
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     reduction_4x4_4x4_start: block (256, 1), grid (m * ((n + 255) / 256), 1)
//            reduction_4x4_4x4: block (4, 32), grid ((m + 15) / 16 * ((n + 15) / 16) * 4, 1)
// Needs      8,192 bytes of shared memory
//            matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c reduction_4x4_4x4.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

namespace reduction_4x4_4x4_detail {

constexpr int BM = 16, BN = 16, BK = 32; // block tile: BM x BN of C, BK along K per step
constexpr int SPLIT_K = 4; // parts of K (split-K)
constexpr int SLICES = 8; // parts of a block's K (sliced-K)
constexpr int THREADS_M = 4, THREADS_N = 4; // threads along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a thread
constexpr int THREADS = THREADS_M * THREADS_N; // threads of a slice
static_assert(BM == 16 && BN == 16,
              "BM and BN cannot change here: "
              "gemmgen emit --preset reduction_4x4_4x4 --backend cuda --set tile=8x4");
static_assert(BK == 32, "BK cannot change here: "
                        "gemmgen emit --preset reduction_4x4_4x4 --backend cuda --set block_k=64");
static_assert(SPLIT_K == 4,
              "SPLIT_K cannot change here: "
              "gemmgen emit --preset reduction_4x4_4x4 --backend cuda --set split_k=8");
static_assert(SLICES == 8,
              "SLICES cannot change here: "
              "gemmgen emit --preset reduction_4x4_4x4 --backend cuda --set sliced_k=4");
static_assert(THREADS_M == 4 && THREADS_N == 4,
              "THREADS_M and THREADS_N cannot change here: "
              "gemmgen emit --preset reduction_4x4_4x4 --backend cuda --set group=2x4");

constexpr int BLOCK_THREADS = SLICES * THREADS;

// 4 neighbouring elements; both addresses are multiples of 16 bytes.
__device__ __forceinline__ void copy4(float *to, const float *from)
{
    *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(from);
}

// Adds an element to global memory, in one step.
__device__ __forceinline__ void atomic_add(float *to, const float *from)
{
    atomicAdd(to, *from);
}

} // namespace reduction_4x4_4x4_detail

extern "C" __global__ void __launch_bounds__(256)
reduction_4x4_4x4_start(int m, int n, float beta, float *__restrict__ c, int ldc)
{
    const int blocks_across = (n + 255) / 256;
    const int row = int(blockIdx.x) / blocks_across;
    const int col = int(blockIdx.x) % blocks_across * 256 + int(threadIdx.x);

    if (col < n) {
        // C = beta * C, to which the parts of K are added.
        c[row * ldc + col] = beta == 0.0f ? 0.0f : beta * c[row * ldc + col];
    }
}

extern "C" __global__ void __launch_bounds__(reduction_4x4_4x4_detail::BLOCK_THREADS)
reduction_4x4_4x4(int m, int n, int k, float alpha, const float *__restrict__ a, int lda,
                  const float *__restrict__ b, int ldb, float *__restrict__ c, int ldc)
{
    using namespace reduction_4x4_4x4_detail;

    const int slice = int(threadIdx.y) / THREADS_M;
    const int local_row = int(threadIdx.y) % THREADS_M;
    const int local_col = int(threadIdx.x);
    const int blocks_down = (m + BM - 1) / BM;
    const int blocks_across = (n + BN - 1) / BN;
    const int block = int(blockIdx.x) % (blocks_down * blocks_across);
    const int block_row = block / blocks_across;
    const int block_col = block % blocks_across;
    const int row0 = block_row * BM;
    const int col0 = block_col * BN;
    const int row = row0 + local_row * 4;
    const int col = col0 + local_col * 4;
    const int k_part = (k + SPLIT_K * BK - 1) / (SPLIT_K * BK) * BK;
    const int k_begin = int(blockIdx.x) / (blocks_down * blocks_across) * k_part;
    const int k_end = min(k, k_begin + k_part);
    const int k_main = min(k - k % BK, k_end);
    const int local_index = int(threadIdx.y) * THREADS_N + int(threadIdx.x);

    float acc[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Whole steps of BK along K.
    if (lda % 4 == 0 && ldb % 4 == 0 && n % 4 == 0) {
        for (int k0 = k_begin; k0 < k_main; k0 += BK) {
            __align__(16) float a_frag[TM][4];
            __align__(16) float b_frag[4][TN];
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                copy4(a_frag[i], &a[min(row + i, m - 1) * lda + k0 + slice * (BK / SLICES)]);
            }
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                copy4(b_frag[i], &b[(k0 + slice * (BK / SLICES) + i) * ldb + min(col, n - 4)]);
            }
            #pragma unroll
            for (int p = 0; p < 4; ++p) {
                #pragma unroll
                for (int i = 0; i < TM; ++i) {
                    #pragma unroll
                    for (int j = 0; j < TN; ++j) {
                        acc[i][j] = fmaf(a_frag[i][p], b_frag[p][j], acc[i][j]);
                    }
                }
            }
        }
    } else {
        // Lines that begin anywhere, or end within a vector: every load has a check of its own.
        for (int k0 = k_begin; k0 < k_main; k0 += BK) {
            __align__(16) float a_frag[TM][4];
            __align__(16) float b_frag[4][TN];
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                if (lda % 4 == 0) {
                    copy4(a_frag[i], &a[min(row + i, m - 1) * lda + k0 + slice * (BK / SLICES)]);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        a_frag[i][e] =
                            a[min(row + i, m - 1) * lda + k0 + slice * (BK / SLICES) + e];
                    }
                }
            }
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                if (ldb % 4 == 0 && col + 4 <= n) {
                    copy4(b_frag[i], &b[(k0 + slice * (BK / SLICES) + i) * ldb + col]);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        b_frag[i][e] =
                            b[(k0 + slice * (BK / SLICES) + i) * ldb + min(col + e, n - 1)];
                    }
                }
            }
            #pragma unroll
            for (int p = 0; p < 4; ++p) {
                #pragma unroll
                for (int i = 0; i < TM; ++i) {
                    #pragma unroll
                    for (int j = 0; j < TN; ++j) {
                        acc[i][j] = fmaf(a_frag[i][p], b_frag[p][j], acc[i][j]);
                    }
                }
            }
        }
    }
    if (k_begin <= k_main && k_main < k_end) {
        // The rest of K; what lies past it counts as zero.
        #pragma unroll
        for (int kk = 0; kk < BK / SLICES; ++kk) {
            float a_frag[TM];
            float b_frag[TN];
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                a_frag[i] = k_main + slice * (BK / SLICES) + kk < k
                                ? a[min(row + i, m - 1) * lda + k_main + slice * (BK / SLICES) + kk]
                                : 0.0f;
            }
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                b_frag[j] =
                    k_main + slice * (BK / SLICES) + kk < k
                        ? b[(k_main + slice * (BK / SLICES) + kk) * ldb + min(col + j, n - 1)]
                        : 0.0f;
            }
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                #pragma unroll
                for (int j = 0; j < TN; ++j) {
                    acc[i][j] = fmaf(a_frag[i], b_frag[j], acc[i][j]);
                }
            }
        }
    }

    // Sliced-K: every slice writes its partial sums; then they are added up.
    __shared__ __align__(16) float partial[SLICES][BM][BN];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        __align__(16) float partial_values[4];
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
            partial_values[e] = alpha * acc[i][e];
        }
        copy4(&partial[slice][local_row * 4 + i][local_col * 4], partial_values);
    }
    __syncthreads();

    const int sum_row = local_index / BN;
    const int sum_col = local_index % BN;
    const int first_col = col0 + sum_col;

    float total[BM / (SLICES * THREADS / BN)];
    #pragma unroll
    for (int i = 0; i < BM / (SLICES * THREADS / BN); ++i) {
        total[i] = partial[0][sum_row + i * (SLICES * THREADS / BN)][sum_col];
        #pragma unroll
        for (int s = 1; s < SLICES; ++s) {
            total[i] += partial[s][sum_row + i * (SLICES * THREADS / BN)][sum_col];
        }
    }

    // Split-K: add this part's partial sums to C.
    #pragma unroll
    for (int i = 0; i < BM / (SLICES * THREADS / BN); ++i) {
        const int c_row = row0 + sum_row + i * (SLICES * THREADS / BN);
        if (c_row < m && first_col < n) {
            atomic_add(&c[c_row * ldc + first_col], &total[i]);
        }
    }
}

#ifndef __CUDACC_RTC__
namespace reduction_4x4_4x4_detail {

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

} // namespace reduction_4x4_4x4_detail

// Queues the kernels on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, if the arguments break the requirements above.
extern "C" cudaError_t reduction_4x4_4x4_launch(int m, int n, int k, float alpha, const float *a,
                                                int lda, const float *b, int ldb, float beta,
                                                float *c, int ldc, cudaStream_t stream)
{
    using namespace reduction_4x4_4x4_detail;

    if (m < 1 || n < 1) {
        return cudaSuccess;
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    if (!is_aligned(a, 16) || !is_aligned(b, 16) || !is_aligned(c, 16)) {
        return cudaErrorMisalignedAddress;
    }
    if (k < 0 || !is_in_reach(m, k, lda) || !is_in_reach(k, n, ldb) || !is_in_reach(m, n, ldc)) {
        return cudaErrorInvalidValue;
    }
    {
        const dim3 grid(m * ((n + 255) / 256), 1);
        const dim3 block(256, 1);
        reduction_4x4_4x4_start<<<grid, block, 0, stream>>>(m, n, beta, c, ldc);
        const cudaError_t launched = cudaGetLastError();
        if (launched != cudaSuccess) {
            return launched;
        }
    }
    {
        const dim3 grid((m + BM - 1) / BM * ((n + BN - 1) / BN) * SPLIT_K, 1);
        const dim3 block(THREADS_N, SLICES * THREADS_M);
        reduction_4x4_4x4<<<grid, block, 0, stream>>>(m, n, k, alpha, a, lda, b, ldb, c, ldc);
        return cudaGetLastError();
    }
}
#endif
