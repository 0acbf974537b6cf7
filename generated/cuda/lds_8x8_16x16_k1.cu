// lds_8x8_16x16_k1: C = alpha * A * B + beta * C; float32
//
// Tile       128x128 of C per block, 8x8 per thread, 1 along K per step
// Threads    16x16 per block
// A          global memory, loads of single elements, to shared memory, transposed
// B          global memory, loads of single elements, to shared memory
// Multiply   fused multiply-add
// C          stores of single elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     block (16, 16), grid ((n + 127) / 128, (m + 127) / 128) of at most 65,535 along y
// Needs      1,024 bytes of shared memory
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c lds_8x8_16x16_k1.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

namespace lds_8x8_16x16_k1_detail {

constexpr int BM = 128, BN = 128; // block tile of C
constexpr int THREADS_M = 16, THREADS_N = 16; // threads along M and N
constexpr int TM = BM / THREADS_M, TN = BN / THREADS_N; // tile of C of a thread
constexpr int THREADS = THREADS_M * THREADS_N; // threads of a block
static_assert(BM == 128 && BN == 128,
              "BM and BN cannot change here: "
              "gemmgen emit --preset lds_8x8_16x16_k1 --backend cuda --set tile=4x8");
static_assert(THREADS_M == 16 && THREADS_N == 16,
              "THREADS_M and THREADS_N cannot change here: "
              "gemmgen emit --preset lds_8x8_16x16_k1 --backend cuda --set group=8x16");

// 4 neighbouring elements; both addresses are multiples of 16 bytes.
__device__ __forceinline__ void copy4(float *to, const float *from)
{
    *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(from);
}

} // namespace lds_8x8_16x16_k1_detail

extern "C" __global__ void __launch_bounds__(lds_8x8_16x16_k1_detail::THREADS)
lds_8x8_16x16_k1(int m, int n, int k, float alpha, const float *__restrict__ a, int lda,
                 const float *__restrict__ b, int ldb, float beta, float *__restrict__ c, int ldc)
{
    using namespace lds_8x8_16x16_k1_detail;

    const int local_row = int(threadIdx.y);
    const int local_col = int(threadIdx.x);
    const int row0 = int(blockIdx.y) * BM;
    const int col0 = int(blockIdx.x) * BN;
    const int row = row0 + local_row * 4;
    const int col = col0 + local_col * 4;
    const int local_index = local_row * THREADS_N + local_col;
    const int b_k = local_index / BN;
    const int b_col = local_index % BN;

    __shared__ __align__(16) float a_shared[BM];
    __shared__ __align__(16) float b_shared[BN];
    float acc[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }
    for (int k0 = 0; k0 < k; ++k0) {
        __syncthreads();
        if (local_index < BM) {
            a_shared[local_index] = a[min(row0 + local_index, m - 1) * lda + k0];
        }
        if (local_index < BN) {
            b_shared[b_col] = b[(k0 + b_k) * ldb + min(col0 + b_col, n - 1)];
        }
        __syncthreads();
        __align__(16) float a_frag[TM];
        __align__(16) float b_frag[TN];
        #pragma unroll
        for (int i = 0; i < TM / 4; ++i) {
            copy4(&a_frag[i * 4], &a_shared[local_row * 4 + i * THREADS_M * 4]);
        }
        #pragma unroll
        for (int j = 0; j < TN / 4; ++j) {
            copy4(&b_frag[j * 4], &b_shared[local_col * 4 + j * THREADS_N * 4]);
        }
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                acc[i][j] = fmaf(a_frag[i], b_frag[j], acc[i][j]);
            }
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        const int c_row = row + i / 4 * THREADS_M * 4 + i % 4;
        if (c_row < m) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                if (col + j / 4 * THREADS_N * 4 + j % 4 < n) {
                    c[c_row * ldc + col + j / 4 * THREADS_N * 4 + j % 4] =
                        beta == 0.0f
                            ? alpha * acc[i][j]
                            : fmaf(beta, c[c_row * ldc + col + j / 4 * THREADS_N * 4 + j % 4],
                                   alpha * acc[i][j]);
                }
            }
        }
    }
}

#ifndef __CUDACC_RTC__
namespace lds_8x8_16x16_k1_detail {

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

} // namespace lds_8x8_16x16_k1_detail

// Queues the kernel on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, if the arguments break the requirements above.
extern "C" cudaError_t lds_8x8_16x16_k1_launch(int m, int n, int k, float alpha, const float *a,
                                               int lda, const float *b, int ldb, float beta,
                                               float *c, int ldc, cudaStream_t stream)
{
    using namespace lds_8x8_16x16_k1_detail;

    if (m < 1 || n < 1) {
        return cudaSuccess;
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    if (!is_aligned(a, 4) || !is_aligned(b, 4) || !is_aligned(c, 4)) {
        return cudaErrorMisalignedAddress;
    }
    if (k < 0 || !is_in_reach(m, k, lda) || !is_in_reach(k, n, ldb) || !is_in_reach(m, n, ldc)) {
        return cudaErrorInvalidValue;
    }
    const dim3 grid((n + BN - 1) / BN, (m + BM - 1) / BM);
    const dim3 block(THREADS_N, THREADS_M);
    lds_8x8_16x16_k1<<<grid, block, 0, stream>>>(m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    return cudaGetLastError();
}
#endif
