// smem_8x8_double_packed: C = alpha * A * B + beta * C; float32
//
// Schedule   8x8 of C per thread, 16x16 threads per block (128x128 of C), 8 along K per iteration,
//            2 tiles in shared memory at a time, the next tile loaded into registers before the
//            current one's arithmetic, operands read from shared memory a step ahead, stores of 4
//            elements
// A          packed into whole tiles by a kernel before; global memory, loads of 4 elements,
//            through shared memory, transposed, rows padded by 4
// B          packed into whole tiles by a kernel before; global memory, loads of 4 elements,
//            through shared memory
// Sizes      any m, n, k; every matrix spans less than 2^31 elements; packed matrices less than
//            2^31 elements
// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0
// Launch     smem_8x8_double_packed_pack: block (32, 8), grid (((k + 7) / 8 * 8 + 31) / 32 * (((m +
//                127) / 128 * 128 + 31) / 32) + ((k + 7) / 8 * 8 + 31) / 32 * (((n + 127) / 128 *
//                128 + 31) / 32), 1)
//            smem_8x8_double_packed: block (16, 16), grid ((n + 127) / 128, (m + 127) / 128)
// Needs      16,640 bytes of shared memory
//            a_packed of (k + 7) / 8 * 8 * ((m + 127) / 128 * 128) elements, aligned to 16 bytes
//            b_packed of (k + 7) / 8 * 8 * ((n + 127) / 128 * 128) elements, aligned to 16 bytes
//            matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c smem_8x8_double_packed.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

namespace smem_8x8_double_packed_detail {

// 4 neighbouring elements; both addresses are multiples of 16 bytes.
__device__ __forceinline__ void copy4(float *to, const float *from)
{
    *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(from);
}

} // namespace smem_8x8_double_packed_detail

extern "C" __global__ void __launch_bounds__(256)
smem_8x8_double_packed_pack(int m, int n, int k, const float *__restrict__ a, int lda,
                            const float *__restrict__ b, int ldb, float *__restrict__ a_packed,
                            float *__restrict__ b_packed)
{
    const int m_whole = (m + 127) / 128 * 128;
    const int n_whole = (n + 127) / 128 * 128;
    const int k_whole = (k + 7) / 8 * 8;
    const int a_blocks = (k_whole + 31) / 32 * ((m_whole + 31) / 32);
    const int block = int(blockIdx.x) < a_blocks ? int(blockIdx.x) : int(blockIdx.x) - a_blocks;
    const int local_row = int(threadIdx.y);
    const int local_col = int(threadIdx.x);

    __shared__ float a_tile[32][33];
    if (int(blockIdx.x) < a_blocks) {
        const int a_slow = block / ((m_whole + 31) / 32) * 32;
        const int a_fast = block % ((m_whole + 31) / 32) * 32;

        // Read by lines, written by lines: turned in between.
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            a_tile[i * 8 + local_row][local_col] =
                a_fast + i * 8 + local_row < m && a_slow + local_col < k
                    ? a[(a_fast + i * 8 + local_row) * lda + a_slow + local_col]
                    : 0.0f;
        }
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (a_slow + i * 8 + local_row < k_whole && a_fast + local_col < m_whole) {
                a_packed[(a_slow + i * 8 + local_row) * m_whole + a_fast + local_col] =
                    a_tile[local_col][i * 8 + local_row];
            }
        }
    } else {
        const int b_slow = block / ((n_whole + 31) / 32) * 32;
        const int b_fast = block % ((n_whole + 31) / 32) * 32;
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (b_slow + i * 8 + local_row < k_whole && b_fast + local_col < n_whole) {
                b_packed[(b_slow + i * 8 + local_row) * n_whole + b_fast + local_col] =
                    b_slow + i * 8 + local_row < k && b_fast + local_col < n
                        ? b[(b_slow + i * 8 + local_row) * ldb + b_fast + local_col]
                        : 0.0f;
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256)
smem_8x8_double_packed(int m, int n, int k, float alpha, const float *__restrict__ a_packed,
                       const float *__restrict__ b_packed, float beta, float *__restrict__ c,
                       int ldc)
{
    using namespace smem_8x8_double_packed_detail;

    const int local_row = int(threadIdx.y);
    const int local_col = int(threadIdx.x);
    const int row0 = int(blockIdx.y) * 128;
    const int col0 = int(blockIdx.x) * 128;
    const int row = row0 + local_row * 4;
    const int col = col0 + local_col * 4;
    const int m_whole = (m + 127) / 128 * 128;
    const int n_whole = (n + 127) / 128 * 128;
    const int k_whole = (k + 7) / 8 * 8;
    const int local_index = local_row * 16 + local_col;
    const int a_packed_k = local_index / 32;
    const int a_packed_row = local_index % 32 * 4;
    const int b_packed_k = local_index / 32;
    const int b_packed_row = local_index % 32 * 4;

    __shared__ __align__(16) float a_shared[2][8][132];
    __align__(16) float a_next[4];
    __shared__ __align__(16) float b_shared[2][8][128];
    __align__(16) float b_next[4];
    float acc[8][8];
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
            acc[i][j] = 0.0f;
        }
    }
    if (8 <= k_whole) {
        copy4(&a_shared[0][a_packed_k][a_packed_row],
            &a_packed[a_packed_k * m_whole + row0 + a_packed_row]);
        copy4(&b_shared[0][b_packed_k][b_packed_row],
            &b_packed[b_packed_k * n_whole + col0 + b_packed_row]);
    }
    for (int k0 = 0; k0 < k_whole; k0 += 8) {
        const int slot = k0 / 8 % 2;
        const int next_slot = (k0 / 8 + 1) % 2;
        __syncthreads();
        if (k0 + 16 <= k_whole) {
            copy4(a_next, &a_packed[(k0 + a_packed_k + 8) * m_whole + row0 + a_packed_row]);
            copy4(b_next, &b_packed[(k0 + b_packed_k + 8) * n_whole + col0 + b_packed_row]);
        }
        __align__(16) float a_frag[2][8];
        __align__(16) float b_frag[2][8];
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            copy4(&a_frag[0][i * 4], &a_shared[slot][0][local_row * 4 + i * 64]);
        }
        #pragma unroll
        for (int j = 0; j < 2; ++j) {
            copy4(&b_frag[0][j * 4], &b_shared[slot][0][local_col * 4 + j * 64]);
        }
        #pragma unroll
        for (int kk = 0; kk < 8; ++kk) {
            if (kk + 1 < 8) {
                #pragma unroll
                for (int i = 0; i < 2; ++i) {
                    copy4(&a_frag[(kk + 1) % 2][i * 4],
                        &a_shared[slot][kk + 1][local_row * 4 + i * 64]);
                }
                #pragma unroll
                for (int j = 0; j < 2; ++j) {
                    copy4(&b_frag[(kk + 1) % 2][j * 4],
                        &b_shared[slot][kk + 1][local_col * 4 + j * 64]);
                }
            }
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                #pragma unroll
                for (int j = 0; j < 8; ++j) {
                    acc[i][j] = fmaf(a_frag[kk % 2][i], b_frag[kk % 2][j], acc[i][j]);
                }
            }
        }
        if (k0 + 16 <= k_whole) {
            copy4(&a_shared[next_slot][a_packed_k][a_packed_row], a_next);
            copy4(&b_shared[next_slot][b_packed_k][b_packed_row], b_next);
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
        const int c_row = row + i / 4 * 64 + i % 4;
        if (c_row < m) {
            #pragma unroll
            for (int j = 0; j < 2; ++j) {
                if (col + j * 64 + 4 <= n && ldc % 4 == 0) {
                    __align__(16) float c_values[4];
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        c_values[e] = alpha * acc[i][j * 4 + e];
                    }
                    if (beta != 0.0f) {
                        __align__(16) float c_old[4];
                        copy4(c_old, &c[c_row * ldc + col + j * 64]);
                        #pragma unroll
                        for (int e = 0; e < 4; ++e) {
                            c_values[e] = fmaf(beta, c_old[e], c_values[e]);
                        }
                    }
                    copy4(&c[c_row * ldc + col + j * 64], c_values);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        if (col + j * 64 + e < n) {
                            c[c_row * ldc + col + j * 64 + e] =
                                beta == 0.0f ? alpha * acc[i][j * 4 + e]
                                             : fmaf(beta, c[c_row * ldc + col + j * 64 + e],
                                                 alpha * acc[i][j * 4 + e]);
                        }
                    }
                }
            }
        }
    }
}

#ifndef __CUDACC_RTC__
namespace smem_8x8_double_packed_detail {

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

} // namespace smem_8x8_double_packed_detail

// Queues the kernels on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, where the kernels can't take them.
extern "C" cudaError_t smem_8x8_double_packed_launch(int m, int n, int k, float alpha,
                                                     const float *a, int lda, const float *b,
                                                     int ldb, float *a_packed, float *b_packed,
                                                     float beta, float *c, int ldc,
                                                     cudaStream_t stream)
{
    using namespace smem_8x8_double_packed_detail;

    if (m < 1 || n < 1) {
        return cudaSuccess;
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    if (!is_aligned(a, 16) || !is_aligned(b, 16) || !is_aligned(a_packed, 16) ||
        !is_aligned(b_packed, 16) || !is_aligned(c, 16)) {
        return cudaErrorMisalignedAddress;
    }
    if (k < 0 || !is_in_reach(m, k, lda) || !is_in_reach(k, n, ldb) || !is_in_reach(m, n, ldc) ||
        1LL * (k + 7) / 8 * 8 * ((m + 127) / 128 * 128) >= 1LL << 31 ||
        1LL * (k + 7) / 8 * 8 * ((n + 127) / 128 * 128) >= 1LL << 31) {
        return cudaErrorInvalidValue;
    }
    if (k > 0) {
        const dim3 grid(((k + 7) / 8 * 8 + 31) / 32 * (((m + 127) / 128 * 128 + 31) / 32) + ((k + 7) / 8 * 8 + 31) / 32 * (((n + 127) / 128 * 128 + 31) / 32), 1);
        const dim3 block(32, 8);
        smem_8x8_double_packed_pack<<<grid, block, 0, stream>>>(
            m, n, k, a, lda, b, ldb, a_packed, b_packed);
        const cudaError_t launched = cudaGetLastError();
        if (launched != cudaSuccess) {
            return launched;
        }
    }
    {
        const dim3 grid((n + 127) / 128, (m + 127) / 128);
        const dim3 block(16, 16);
        smem_8x8_double_packed<<<grid, block, 0, stream>>>(
            m, n, k, alpha, a_packed, b_packed, beta, c, ldc);
        return cudaGetLastError();
    }
}
#endif
