// gemv_4x4: C = alpha * A * B + beta * C; float32; B col-major
//
// Tile       4x4 of C per block, 4x4 per thread, 1024 along K per step
// Threads    256 per block, 8 slices of each step along K (sliced-K), each of 32 lanes
// A          global memory, loads of 4 elements
// B          global memory, loads of 4 elements
// Multiply   fused multiply-add
// C          slices added up in shared memory, stores of single elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     block (32, 8), grid ((n + 3) / 4, (m + 3) / 4) of at most 65,535 along y
// Needs      512 bytes of shared memory
//            matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c gemv_4x4.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

namespace gemv_4x4_detail {

constexpr int BM = 4, BN = 4; // block tile of C
constexpr int SLICES = 8; // parts of a block's K (sliced-K)
constexpr int LANES_K = 32, LOAD_K = 4; // lanes along K, and elements of a lane's load along K
constexpr int TM = BM, TN = BN; // tile of C of a thread
static_assert(BM == 4 && BN == 4, "BM and BN cannot change here: "
                                  "gemmgen emit --preset gemv_4x4 --backend cuda --set tile=8x4");
static_assert(SLICES == 8, "SLICES cannot change here: "
                           "gemmgen emit --preset gemv_4x4 --backend cuda --set sliced_k=4");
static_assert(LANES_K == 32,
              "LANES_K cannot change here: "
              "gemmgen emit --preset gemv_4x4 --backend cuda --set lanes_along_k=16");
static_assert(LOAD_K == 4, "LOAD_K cannot change here: "
                           "gemmgen emit --preset gemv_4x4 --backend cuda --set b.width=2");

constexpr int BLOCK_THREADS = SLICES * LANES_K;

// 4 neighbouring elements; both addresses are multiples of 16 bytes.
__device__ __forceinline__ void copy4(float *to, const float *from)
{
    *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(from);
}

} // namespace gemv_4x4_detail

extern "C" __global__ void __launch_bounds__(gemv_4x4_detail::BLOCK_THREADS)
gemv_4x4(int m, int n, int k, float alpha, const float *__restrict__ a, int lda,
         const float *__restrict__ b, int ldb, float beta, float *__restrict__ c, int ldc)
{
    using namespace gemv_4x4_detail;

    const int slice = int(threadIdx.y);
    const int lane_k = int(threadIdx.x);
    const int row0 = int(blockIdx.y) * BM;
    const int col0 = int(blockIdx.x) * BN;
    const int local_index = int(threadIdx.y) * LANES_K + int(threadIdx.x);

    float acc[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Each lane goes along K by LOAD_K elements at a time.
    const auto multiply_along_k = [&](bool aligned) {
        for (int k0 = (slice * LANES_K + lane_k) * LOAD_K; k0 < k - (LOAD_K - 1);
             k0 += SLICES * LANES_K * LOAD_K) {
            __align__(16) float a_frag[TM][LOAD_K];
            __align__(16) float b_frag[TN][LOAD_K];
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                if (aligned || lda % 4 == 0) {
                    copy4(a_frag[i], &a[min(row0 + i, m - 1) * lda + k0]);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        a_frag[i][e] = a[min(row0 + i, m - 1) * lda + k0 + e];
                    }
                }
            }
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                if (aligned || ldb % 4 == 0) {
                    copy4(b_frag[j], &b[min(col0 + j, n - 1) * ldb + k0]);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        b_frag[j][e] = b[min(col0 + j, n - 1) * ldb + k0 + e];
                    }
                }
            }
            #pragma unroll
            for (int p = 0; p < LOAD_K; ++p) {
                #pragma unroll
                for (int i = 0; i < TM; ++i) {
                    #pragma unroll
                    for (int j = 0; j < TN; ++j) {
                        acc[i][j] = fmaf(a_frag[i][p], b_frag[j][p], acc[i][j]);
                    }
                }
            }
        }
    };
    if (lda % 4 == 0 && ldb % 4 == 0) {
        multiply_along_k(true);
    } else {
        // Lines that begin anywhere, or end within a vector: every load has a check of its own.
        multiply_along_k(false);
    }

    // What is left of K: a lane has one element of it.
    const int k_left = k - k % LOAD_K + slice * LANES_K + lane_k;

    if (k_left < k) {
        float a_frag[TM];
        float b_frag[TN];
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            a_frag[i] = a[min(row0 + i, m - 1) * lda + k_left];
        }
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            b_frag[j] = b[min(col0 + j, n - 1) * ldb + k_left];
        }
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                acc[i][j] = fmaf(a_frag[i], b_frag[j], acc[i][j]);
            }
        }
    }

    // Butterfly reduction: lanes exchange halves of their sums, and each ends with its own.
    const bool is_low_16 = lane_k / 16 % 2 == 0;

    #pragma unroll
    for (int i = 0; i < TM / 2; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            const float received =
                __shfl_xor_sync(0xffffffffu, is_low_16 ? acc[i + TM / 2][j] : acc[i][j], 16, 32);
            acc[i][j] = (is_low_16 ? acc[i][j] : acc[i + TM / 2][j]) + received;
        }
    }

    const bool is_low_8 = lane_k / 8 % 2 == 0;

    #pragma unroll
    for (int j = 0; j < TN; ++j) {
        const float received =
            __shfl_xor_sync(0xffffffffu, is_low_8 ? acc[TM / 4][j] : acc[0][j], 8, 32);
        acc[0][j] = (is_low_8 ? acc[0][j] : acc[TM / 4][j]) + received;
    }

    const bool is_low_4 = lane_k / 4 % 2 == 0;

    #pragma unroll
    for (int j = 0; j < TN / 2; ++j) {
        const float received =
            __shfl_xor_sync(0xffffffffu, is_low_4 ? acc[0][j + TN / 2] : acc[0][j], 4, 32);
        acc[0][j] = (is_low_4 ? acc[0][j] : acc[0][j + TN / 2]) + received;
    }

    const bool is_low_2 = lane_k / 2 % 2 == 0;
    const float received =
        __shfl_xor_sync(0xffffffffu, is_low_2 ? acc[0][TN / 4] : acc[0][0], 2, 32);

    acc[0][0] = (is_low_2 ? acc[0][0] : acc[0][TN / 4]) + received;
    acc[0][0] += __shfl_xor_sync(0xffffffffu, acc[0][0], 1, 32);

    // Every slice writes its partial sums; then they are added up.
    __shared__ float partial[SLICES][BM][BN];
    if (lane_k % 2 == 0) {
        partial[slice][lane_k / 8][lane_k / 2 % 4] = alpha * acc[0][0];
    }
    __syncthreads();

    const int sum_row = local_index / BN;
    const int sum_col = local_index % BN;
    const int first_col = col0 + sum_col;

    if (local_index < BM * BN) {
        float total = partial[0][sum_row][sum_col];
        #pragma unroll
        for (int s = 1; s < SLICES; ++s) {
            total += partial[s][sum_row][sum_col];
        }

        // C = alpha * A * B + beta * C; C is not read where beta is zero.
        const int c_row = row0 + sum_row;
        if (c_row < m && first_col < n) {
            c[c_row * ldc + first_col] =
                beta == 0.0f ? total : fmaf(beta, c[c_row * ldc + first_col], total);
        }
    }
}

#ifndef __CUDACC_RTC__
namespace gemv_4x4_detail {

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

} // namespace gemv_4x4_detail

// Queues the kernel on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, if the arguments break the requirements above.
extern "C" cudaError_t gemv_4x4_launch(int m, int n, int k, float alpha, const float *a, int lda,
                                       const float *b, int ldb, float beta, float *c, int ldc,
                                       cudaStream_t stream)
{
    using namespace gemv_4x4_detail;

    if (m < 1 || n < 1) {
        return cudaSuccess;
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    if (!is_aligned(a, 16) || !is_aligned(b, 16) || !is_aligned(c, 16)) {
        return cudaErrorMisalignedAddress;
    }
    if (k < 0 || !is_in_reach(m, k, lda) || !is_in_reach(n, k, ldb) || !is_in_reach(m, n, ldc)) {
        return cudaErrorInvalidValue;
    }
    const dim3 grid((n + BN - 1) / BN, (m + BM - 1) / BM);
    const dim3 block(LANES_K, SLICES);
    gemv_4x4<<<grid, block, 0, stream>>>(m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    return cudaGetLastError();
}
#endif
