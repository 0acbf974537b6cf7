// L3_SIMD_16x2_1x8: C = alpha * A * B + beta * C; float32
//
// Schedule   16x2 of C per thread, 1x8 threads per block (16x16 of C), 32 along K per iteration, a
//            barrier after B's load to keep its reads out of the arithmetic, for the block is one
//            warp
// A          global memory, loads of single elements, passed around the warp by shuffles
// B          global memory, loads of single elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0
// Launch     block (8, 1), grid ((n + 15) / 16, (m + 15) / 16)
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c L3_SIMD_16x2_1x8.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

extern "C" __global__ void __launch_bounds__(8)
L3_SIMD_16x2_1x8(int m, int n, int k, float alpha, const float *__restrict__ a, int lda,
                 const float *__restrict__ b, int ldb, float beta, float *__restrict__ c, int ldc)
{
    const int lane = int(threadIdx.x);
    const int row0 = int(blockIdx.y) * 16;
    const int col = int(blockIdx.x) * 16 + lane;
    const int k_main = k - k % 32;

    float acc[16][2];
    #pragma unroll
    for (int i = 0; i < 16; ++i) {
        #pragma unroll
        for (int j = 0; j < 2; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Whole steps of 32 along K.
    for (int k0 = 0; k0 < k_main; k0 += 32) {
        float b_frag[32][2];
        #pragma unroll
        for (int i = 0; i < 32; ++i) {
            #pragma unroll
            for (int j = 0; j < 2; ++j) {
                b_frag[i][j] = b[(k0 + i) * ldb + min(col + j * 8, n - 1)];
            }
        }
        __syncthreads();
        float a_frag[16][4];
        #pragma unroll
        for (int i = 0; i < 16; ++i) {
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                a_frag[i][j] = a[min(row0 + i, m - 1) * lda + k0 + lane + j * 8];
            }
        }
        #pragma unroll
        for (int i = 0; i < 16; ++i) {
            #pragma unroll
            for (int p = 0; p < 32; ++p) {
                const float a_value = __shfl_sync(0xffu, a_frag[i][p / 8], p % 8, 8);
                #pragma unroll
                for (int j = 0; j < 2; ++j) {
                    acc[i][j] = fmaf(a_value, b_frag[p][j], acc[i][j]);
                }
            }
        }
    }

    // The rest of K; what lies past it counts as zero.
    for (int k0 = k_main; k0 < k; k0 += 8) {
        float b_frag[8][2];
        #pragma unroll
        for (int i = 0; i < 8; ++i) {
            #pragma unroll
            for (int j = 0; j < 2; ++j) {
                b_frag[i][j] = k0 + i < k ? b[(k0 + i) * ldb + min(col + j * 8, n - 1)] : 0.0f;
            }
        }
        __syncthreads();
        float a_frag[16];
        #pragma unroll
        for (int i = 0; i < 16; ++i) {
            a_frag[i] = k0 + lane < k ? a[min(row0 + i, m - 1) * lda + k0 + lane] : 0.0f;
        }
        #pragma unroll
        for (int i = 0; i < 16; ++i) {
            #pragma unroll
            for (int p = 0; p < 8; ++p) {
                const float a_value = __shfl_sync(0xffu, a_frag[i], p, 8);
                #pragma unroll
                for (int j = 0; j < 2; ++j) {
                    acc[i][j] = fmaf(a_value, b_frag[p][j], acc[i][j]);
                }
            }
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < 16; ++i) {
        if (row0 + i < m) {
            #pragma unroll
            for (int j = 0; j < 2; ++j) {
                if (col + j * 8 < n) {
                    c[(row0 + i) * ldc + col + j * 8] =
                        beta == 0.0f ? alpha * acc[i][j]
                                     : fmaf(beta, c[(row0 + i) * ldc + col + j * 8],
                                         alpha * acc[i][j]);
                }
            }
        }
    }
}

#ifndef __CUDACC_RTC__
// Queues the kernel on a stream; matrices are in the device's memory.
extern "C" cudaError_t L3_SIMD_16x2_1x8_launch(int m, int n, int k, float alpha, const float *a,
                                               int lda, const float *b, int ldb, float beta,
                                               float *c, int ldc, cudaStream_t stream)
{
    if (m < 1 || n < 1) {
        return cudaSuccess;
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    const dim3 grid((n + 15) / 16, (m + 15) / 16);
    const dim3 block(8, 1);
    L3_SIMD_16x2_1x8<<<grid, block, 0, stream>>>(
        m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    return cudaGetLastError();
}
#endif
