// register_8x8_4x4: C = alpha * A * B + beta * C; float32
//
// Schedule   8x8 of C per thread, 4x4 threads per block (32x32 of C), 1 along K per iteration
// A          global memory, loads of single elements
// B          global memory, loads of 4 elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0
// Launch     block (4, 4), grid ((n + 31) / 32, (m + 31) / 32)
// Needs      matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c register_8x8_4x4.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

// 4 neighbouring elements; both addresses are multiples of 16 bytes.
__device__ __forceinline__ void copy4(float *to, const float *from)
{
    *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(from);
}

extern "C" __global__ void __launch_bounds__(16)
register_8x8_4x4(int m, int n, int k, float alpha, const float *__restrict__ a, int lda,
                 const float *__restrict__ b, int ldb, float beta, float *__restrict__ c, int ldc)
{
    const int row = int(blockIdx.y) * 32 + int(threadIdx.y) * 8;
    const int col = int(blockIdx.x) * 32 + int(threadIdx.x) * 8;

    float acc[8][8];
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
            acc[i][j] = 0.0f;
        }
    }
    for (int k0 = 0; k0 < k; ++k0) {
        float a_frag[8];
        __align__(16) float b_frag[8];
        #pragma unroll
        for (int i = 0; i < 8; ++i) {
            a_frag[i] = a[min(row + i, m - 1) * lda + k0];
        }
        #pragma unroll
        for (int j = 0; j < 2; ++j) {
            if (ldb % 4 == 0 && col + j * 4 + 4 <= n) {
                copy4(&b_frag[j * 4], &b[k0 * ldb + col + j * 4]);
            } else {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    b_frag[j * 4 + e] = b[k0 * ldb + min(col + j * 4 + e, n - 1)];
                }
            }
        }
        #pragma unroll
        for (int i = 0; i < 8; ++i) {
            #pragma unroll
            for (int j = 0; j < 8; ++j) {
                acc[i][j] = fmaf(a_frag[i], b_frag[j], acc[i][j]);
            }
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
        if (row + i < m) {
            #pragma unroll
            for (int j = 0; j < 8; ++j) {
                if (col + j < n) {
                    c[(row + i) * ldc + col + j] =
                        beta == 0.0f ? alpha * acc[i][j]
                                     : fmaf(beta, c[(row + i) * ldc + col + j], alpha * acc[i][j]);
                }
            }
        }
    }
}

#ifndef __CUDACC_RTC__
// Queues the kernel on a stream; matrices are in the device's memory.
extern "C" cudaError_t register_8x8_4x4_launch(int m, int n, int k, float alpha, const float *a,
                                               int lda, const float *b, int ldb, float beta,
                                               float *c, int ldc, cudaStream_t stream)
{
    if (m < 1 || n < 1) {
        return cudaSuccess;
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    const dim3 grid((n + 31) / 32, (m + 31) / 32);
    const dim3 block(4, 4);
    register_8x8_4x4<<<grid, block, 0, stream>>>(
        m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    return cudaGetLastError();
}
#endif
