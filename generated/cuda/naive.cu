// naive: C = alpha * A * B + beta * C; float32
//
// Schedule   1x1 of C per thread, 8x8 threads per block (8x8 of C), 1 along K per iteration
// A          global memory, loads of single elements
// B          global memory, loads of single elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0
// Launch     block (8, 8), grid ((n + 7) / 8, (m + 7) / 8)
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c naive.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

extern "C" __global__ void __launch_bounds__(64)
naive(int m, int n, int k, float alpha, const float *__restrict__ a, int lda,
      const float *__restrict__ b, int ldb, float beta, float *__restrict__ c, int ldc)
{
    const int row = int(blockIdx.y) * 8 + int(threadIdx.y);
    const int col = int(blockIdx.x) * 8 + int(threadIdx.x);

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
// Queues the kernel on a stream; matrices are in the device's memory.
extern "C" cudaError_t naive_launch(int m, int n, int k, float alpha, const float *a, int lda,
                                    const float *b, int ldb, float beta, float *c, int ldc,
                                    cudaStream_t stream)
{
    if (m < 1 || n < 1) {
        return cudaSuccess;
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    const dim3 grid((n + 7) / 8, (m + 7) / 8);
    const dim3 block(8, 8);
    naive<<<grid, block, 0, stream>>>(
        m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    return cudaGetLastError();
}
#endif
