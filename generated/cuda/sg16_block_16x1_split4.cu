// sg16_block_16x1_split4: C = alpha * A * B + beta * C; float32
//
// Schedule   16x1 of C per thread, 1x16 threads per block (16x16 of C), 32 along K per iteration, K
//            in 4 parts that a second kernel adds up
// A          global memory, loads of single elements, passed around the warp by shuffles
// B          global memory, loads of single elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements; the workspace less than 2^31
//            elements
// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0
// Launch     sg16_block_16x1_split4: block (16, 1), grid ((m + 15) / 16 * ((n + 15) / 16) * 4, 1)
//            sg16_block_16x1_split4_total: block (256, 1), grid (m * ((n + 255) / 256), 1)
// Needs      a workspace of m * n * 4 elements
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c sg16_block_16x1_split4.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

extern "C" __global__ void __launch_bounds__(16)
sg16_block_16x1_split4(int m, int n, int k, float alpha, const float *__restrict__ a, int lda,
                       const float *__restrict__ b, int ldb, float *__restrict__ workspace)
{
    const int lane = int(threadIdx.x);
    const int blocks_down = (m + 15) / 16;
    const int blocks_across = (n + 15) / 16;
    const int part = int(blockIdx.x) / (blocks_down * blocks_across);
    const int block = int(blockIdx.x) % (blocks_down * blocks_across);
    const int block_row = block / blocks_across;
    const int block_col = block % blocks_across;
    const int row0 = block_row * 16;
    const int col0 = block_col * 16;
    const int col = col0 + lane;
    const int k_part = (k + 127) / 128 * 32;
    const int k_begin = part * k_part;
    const int k_end = min(k, k_begin + k_part);
    const int k_main = min(k - k % 32, k_end);

    float acc[16];
    #pragma unroll
    for (int i = 0; i < 16; ++i) {
        acc[i] = 0.0f;
    }

    // Whole steps of 32 along K.
    for (int k0 = k_begin; k0 < k_main; k0 += 32) {
        float b_frag[32];
        #pragma unroll
        for (int i = 0; i < 32; ++i) {
            b_frag[i] = b[(k0 + i) * ldb + min(col, n - 1)];
        }
        float a_frag[16][2];
        #pragma unroll
        for (int i = 0; i < 16; ++i) {
            #pragma unroll
            for (int j = 0; j < 2; ++j) {
                a_frag[i][j] = a[min(row0 + i, m - 1) * lda + k0 + lane + j * 16];
            }
        }
        #pragma unroll
        for (int i = 0; i < 16; ++i) {
            #pragma unroll
            for (int p = 0; p < 32; ++p) {
                const float a_value = __shfl_sync(0xffffu, a_frag[i][p / 16], p % 16, 16);
                acc[i] = fmaf(a_value, b_frag[p], acc[i]);
            }
        }
    }
    if (k_begin <= k_main && k_main < k_end) {
        // The rest of K; what lies past it counts as zero.
        for (int k0 = k_main; k0 < k_end; k0 += 16) {
            float b_frag[16];
            #pragma unroll
            for (int i = 0; i < 16; ++i) {
                b_frag[i] = k0 + i < k ? b[(k0 + i) * ldb + min(col, n - 1)] : 0.0f;
            }
            float a_frag[16];
            #pragma unroll
            for (int i = 0; i < 16; ++i) {
                a_frag[i] = k0 + lane < k ? a[min(row0 + i, m - 1) * lda + k0 + lane] : 0.0f;
            }
            #pragma unroll
            for (int i = 0; i < 16; ++i) {
                #pragma unroll
                for (int p = 0; p < 16; ++p) {
                    const float a_value = __shfl_sync(0xffffu, a_frag[i], p, 16);
                    acc[i] = fmaf(a_value, b_frag[p], acc[i]);
                }
            }
        }
    }

    // This part's share of C.
    #pragma unroll
    for (int i = 0; i < 16; ++i) {
        if (row0 + i < m && col < n) {
            workspace[part * (m * n) + (row0 + i) * n + col] = alpha * acc[i];
        }
    }
}

extern "C" __global__ void __launch_bounds__(256)
sg16_block_16x1_split4_total(int m, int n, const float *__restrict__ workspace, float beta,
                             float *__restrict__ c, int ldc)
{
    const int blocks_across = (n + 255) / 256;
    const int row = int(blockIdx.x) / blocks_across;
    const int col = int(blockIdx.x) % blocks_across * 256 + int(threadIdx.x);

    if (col < n) {
        // The parts of K, one after the other.
        float total = workspace[row * n + col];
        #pragma unroll
        for (int s = 1; s < 4; ++s) {
            const float term = workspace[s * (m * n) + row * n + col];
            total += term;
        }
        c[row * ldc + col] = beta == 0.0f ? total : fmaf(beta, c[row * ldc + col], total);
    }
}

#ifndef __CUDACC_RTC__
// Queues the kernels on a stream; matrices are in the device's memory.
extern "C" cudaError_t sg16_block_16x1_split4_launch(int m, int n, int k, float alpha,
                                                     const float *a, int lda, const float *b,
                                                     int ldb, float *workspace, float beta,
                                                     float *c, int ldc, cudaStream_t stream)
{
    if (m < 1 || n < 1) {
        return cudaSuccess;
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    {
        const dim3 grid((m + 15) / 16 * ((n + 15) / 16) * 4, 1);
        const dim3 block(16, 1);
        sg16_block_16x1_split4<<<grid, block, 0, stream>>>(
            m, n, k, alpha, a, lda, b, ldb, workspace);
        const cudaError_t launched = cudaGetLastError();
        if (launched != cudaSuccess) {
            return launched;
        }
    }
    {
        const dim3 grid(m * ((n + 255) / 256), 1);
        const dim3 block(256, 1);
        sg16_block_16x1_split4_total<<<grid, block, 0, stream>>>(
            m, n, workspace, beta, c, ldc);
        return cudaGetLastError();
    }
}
#endif
