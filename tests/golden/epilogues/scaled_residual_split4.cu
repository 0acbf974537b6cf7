// scaled_residual_split4: C = alpha * A * B + beta * C, then scale, row_scale, residual, clamp(-4, 4), a formula; float16, sums in float32
//
// Schedule   4x4 of C per thread, 8x8 threads per block (32x32 of C), 4 along K per iteration, K in
//            4 parts that a second kernel adds up
// A          global memory, loads of single elements
// B          global memory, loads of single elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements; the workspace less than 2^31
//            elements
// Epilogue   scale: acc * scale
//            row_scale: acc * row_scale
//            residual: acc + residual
//            clamp: -4 if acc < -4 else 4 if acc > 4 else acc
//            expr: max(acc, 0.5 * c) if row != col else tanh(acc)
// Takes      scale: an element for each column of C
//            row_scale: an element for each row of C
//            residual: an element for each element of C, stored as C is
// Unread     A and B where k is 0, which serves for alpha = 0 as well
// Launch     scaled_residual_split4: block (8, 8), grid ((m + 31) / 32 * ((n + 31) / 32) * 4, 1)
//            scaled_residual_split4_total: block (256, 1), grid (m * ((n + 255) / 256), 1)
// Needs      a workspace of m * n * 4 elements
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c scaled_residual_split4.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif
#include <cuda_fp16.h>

extern "C" __global__ void __launch_bounds__(64)
scaled_residual_split4(int m, int n, int k, float alpha, const __half *__restrict__ a, int lda,
                       const __half *__restrict__ b, int ldb, float *__restrict__ workspace)
{
    const int blocks_down = (m + 31) / 32;
    const int blocks_across = (n + 31) / 32;
    const int part = int(blockIdx.x) / (blocks_down * blocks_across);
    const int block = int(blockIdx.x) % (blocks_down * blocks_across);
    const int block_row = block / blocks_across;
    const int block_col = block % blocks_across;
    const int row0 = block_row * 32;
    const int col0 = block_col * 32;
    const int row = row0 + int(threadIdx.y);
    const int col = col0 + int(threadIdx.x);
    const int k_part = (k + 15) / 16 * 4;
    const int k_begin = part * k_part;
    const int k_end = min(k, k_begin + k_part);
    const int k_main = min(k - k % 4, k_end);

    float acc[4][4];
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Whole steps of 4 along K.
    for (int k0 = k_begin; k0 < k_main; k0 += 4) {
        #pragma unroll
        for (int kk = 0; kk < 4; ++kk) {
            float a_frag[4];
            float b_frag[4];
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                a_frag[i] = float(a[min(row + i * 8, m - 1) * lda + k0 + kk]);
            }
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                b_frag[j] = float(b[(k0 + kk) * ldb + min(col + j * 8, n - 1)]);
            }
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                #pragma unroll
                for (int j = 0; j < 4; ++j) {
                    acc[i][j] = fmaf(a_frag[i], b_frag[j], acc[i][j]);
                }
            }
        }
    }
    if (k_begin <= k_main && k_main < k_end) {
        // The rest of K; what lies past it counts as zero.
        #pragma unroll
        for (int kk = 0; kk < 4; ++kk) {
            float a_frag[4];
            float b_frag[4];
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                a_frag[i] =
                    k_main + kk < k ? float(a[min(row + i * 8, m - 1) * lda + k_main + kk]) : 0.0f;
            }
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                b_frag[j] =
                    k_main + kk < k ? float(b[(k_main + kk) * ldb + min(col + j * 8, n - 1)])
                                    : 0.0f;
            }
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                #pragma unroll
                for (int j = 0; j < 4; ++j) {
                    acc[i][j] = fmaf(a_frag[i], b_frag[j], acc[i][j]);
                }
            }
        }
    }

    // This part's share of C.
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (row + i * 8 < m) {
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                if (col + j * 8 < n) {
                    workspace[part * (m * n) + (row + i * 8) * n + col + j * 8] = alpha * acc[i][j];
                }
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256)
scaled_residual_split4_total(int m, int n, const float *__restrict__ workspace, float beta,
                             __half *__restrict__ c, int ldc, const __half *__restrict__ scale,
                             const __half *__restrict__ row_scale,
                             const __half *__restrict__ residual, int ldr)
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
        const float value = beta == 0.0f ? total : fmaf(beta, float(c[row * ldc + col]), total);
        const float after_residual =
            value * float(scale[col]) * float(row_scale[row]) + float(residual[row * ldr + col]);
        const float after_clamp =
            after_residual < -4.0f ? -4.0f : 4.0f < after_residual ? 4.0f : after_residual;
        const float c_value =
            row != col ? fmaxf(after_clamp, 0.5f * float(c[row * ldc + col])) : tanhf(after_clamp);
        c[row * ldc + col] = __half(c_value);
    }
}

#ifndef __CUDACC_RTC__
namespace scaled_residual_split4_detail {

// Whether a matrix begins on a multiple of so many bytes.
static bool is_aligned(const void *matrix, size_t bytes)
{
    return reinterpret_cast<size_t>(matrix) % bytes == 0;
}

// Whether lines lie apart, `pitch` elements from one to the next, and 32-bit indices reach all of
// a matrix.
static bool is_in_reach(long long lines, long long length, long long pitch)
{
    if (lines < 1 || length < 1) {
        return true;
    }
    return (lines == 1 || pitch >= length) && (lines - 1) * pitch + length < 1LL << 31;
}

} // namespace scaled_residual_split4_detail

// Queues the kernels on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, where the kernels can't take them.
extern "C" cudaError_t scaled_residual_split4_launch(int m, int n, int k, float alpha,
                                                     const __half *a, int lda, const __half *b,
                                                     int ldb, float *workspace, float beta,
                                                     __half *c, int ldc, const __half *scale,
                                                     const __half *row_scale,
                                                     const __half *residual, int ldr,
                                                     cudaStream_t stream)
{
    using namespace scaled_residual_split4_detail;

    if (m < 1 || n < 1) {
        return cudaSuccess;
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    if (!is_aligned(a, 2) || !is_aligned(b, 2) || !is_aligned(workspace, 4) || !is_aligned(c, 2) ||
        !is_aligned(scale, 2) || !is_aligned(row_scale, 2) || !is_aligned(residual, 2)) {
        return cudaErrorMisalignedAddress;
    }
    if (k < 0 || !is_in_reach(m, k, lda) || !is_in_reach(k, n, ldb) || !is_in_reach(m, n, ldc) ||
        !is_in_reach(m, n, ldr) || 1LL * m * n * 4 >= 1LL << 31) {
        return cudaErrorInvalidValue;
    }
    {
        const dim3 grid((m + 31) / 32 * ((n + 31) / 32) * 4, 1);
        const dim3 block(8, 8);
        scaled_residual_split4<<<grid, block, 0, stream>>>(
            m, n, k, alpha, a, lda, b, ldb, workspace);
        const cudaError_t launched = cudaGetLastError();
        if (launched != cudaSuccess) {
            return launched;
        }
    }
    {
        const dim3 grid(m * ((n + 255) / 256), 1);
        const dim3 block(256, 1);
        scaled_residual_split4_total<<<grid, block, 0, stream>>>(
            m, n, workspace, beta, c, ldc, scale, row_scale, residual, ldr);
        return cudaGetLastError();
    }
}
#endif
