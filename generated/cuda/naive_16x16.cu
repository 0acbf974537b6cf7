// naive_16x16: C = alpha * A * B + beta * C; float32
//
// Tile       16x16 of C per block, 1x1 per thread, 1 along K per step
// Threads    16x16 per block
// A          global memory, loads of single elements
// B          global memory, loads of single elements
// Multiply   fused multiply-add
// C          stores of single elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     block (16, 16), grid ((n + 15) / 16, (m + 15) / 16) of at most 65,535 along y
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c naive_16x16.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

namespace naive_16x16_detail {

constexpr int BM = 16, BN = 16; // block tile of C
constexpr int THREADS_M = 16, THREADS_N = 16; // threads along M and N
constexpr int THREADS = THREADS_M * THREADS_N; // threads of a block
static_assert(BM == 16 && BN == 16,
              "BM and BN cannot change here: "
              "gemmgen emit --preset naive_16x16 --backend cuda --set tile=2x1");
static_assert(THREADS_M == 16 && THREADS_N == 16,
              "THREADS_M and THREADS_N cannot change here: "
              "gemmgen emit --preset naive_16x16 --backend cuda --set group=8x16");

} // namespace naive_16x16_detail

extern "C" __global__ void __launch_bounds__(naive_16x16_detail::THREADS)
naive_16x16(int m, int n, int k, float alpha, const float *__restrict__ a, int lda,
            const float *__restrict__ b, int ldb, float beta, float *__restrict__ c, int ldc)
{
    using namespace naive_16x16_detail;

    const int row = int(blockIdx.y) * BM + int(threadIdx.y);
    const int col = int(blockIdx.x) * BN + int(threadIdx.x);

    if (row < m && col < n) {
        float acc = 0.0f;
        for (int k0 = 0; k0 < k; ++k0) {
            const float a_frag = a[row * lda + k0];
            const float b_frag = b[k0 * ldb + col];
            acc = fmaf(a_frag, b_frag, acc);
        }

        // C = alpha * A * B + beta * C; C is not read where beta is zero.
        c[row * ldc + col] =
            beta == 0.0f ? alpha * acc : fmaf(beta, c[row * ldc + col], alpha * acc);
    }
}

#ifndef __CUDACC_RTC__
namespace naive_16x16_detail {

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

} // namespace naive_16x16_detail

// Queues the kernel on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, if the arguments break the requirements above.
extern "C" cudaError_t naive_16x16_launch(int m, int n, int k, float alpha, const float *a, int lda,
                                          const float *b, int ldb, float beta, float *c, int ldc,
                                          cudaStream_t stream)
{
    using namespace naive_16x16_detail;

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
    naive_16x16<<<grid, block, 0, stream>>>(m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    return cudaGetLastError();
}
#endif
