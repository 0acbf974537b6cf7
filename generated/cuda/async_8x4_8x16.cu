// async_8x4_8x16: C = alpha * A * B + beta * C; float32
//
// Schedule   8x4 of C per thread, 8x16 threads per block (64x64 of C), 16 along K per iteration, 3
//            tiles in shared memory at a time, operands read from shared memory a step ahead, the
//            next tile's before this one's last step, warps of 4x8 threads, stores of 4 elements,
//            every other row of the arithmetic backwards
// A          global memory, asynchronous copies of single elements, to shared memory, transposed,
//            rows padded by 4
// B          global memory, asynchronous copies of 4 elements, to shared memory
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0
// Launch     block (16, 8), grid ((n + 63) / 64, (m + 63) / 64)
// Needs      25,344 bytes of shared memory
//            matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c async_8x4_8x16.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error "async_8x4_8x16 needs sm_80 or later, for cp.async"
#endif

namespace async_8x4_8x16_detail {

// 4 neighbouring elements; both addresses are multiples of 16 bytes.
__device__ __forceinline__ void copy4(float *to, const float *from)
{
    *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(from);
}

// Begins a copy of 4 bytes to shared memory.
__device__ __forceinline__ void async_copy(float *to, const float *from)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
                 ::"r"(address), "l"(from) : "memory");
}

// Begins a copy of 4 bytes to shared memory; past `inside` elements it writes zeros.
__device__ __forceinline__ void async_copy_inside(float *to, const float *from, int inside)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 ::"r"(address), "l"(from), "r"(inside * 4) : "memory");
}

// Begins a copy of 16 bytes to shared memory; past `inside` elements it writes zeros.
__device__ __forceinline__ void async_copy4_inside(float *to, const float *from, int inside)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 ::"r"(address), "l"(from), "r"(inside * 4) : "memory");
}

// Makes a group of the copies begun since the last.
__device__ __forceinline__ void async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most `pending` groups, the newest, are under way.
template <int pending>
__device__ __forceinline__ void async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

} // namespace async_8x4_8x16_detail

extern "C" __global__ void __launch_bounds__(128)
async_8x4_8x16(int m, int n, int k, float alpha, const float *__restrict__ a, int lda,
               const float *__restrict__ b, int ldb, float beta, float *__restrict__ c, int ldc)
{
    using namespace async_8x4_8x16_detail;

    const int local_index = int(threadIdx.y) * 16 + int(threadIdx.x);
    const int warp = local_index / 32;
    const int lane = local_index % 32;
    const int local_row = warp / 2 * 4 + lane / 8;
    const int local_col = warp % 2 * 8 + lane % 8;
    const int row0 = int(blockIdx.y) * 64;
    const int col0 = int(blockIdx.x) * 64;
    const int row = row0 + local_row * 4;
    const int col = col0 + local_col * 4;
    const int a_row = local_index / 16;
    const int a_k = local_index % 16;
    const int b_k = local_index / 16;
    const int b_col = local_index % 16 * 4;
    const int b_k_by1 = local_index / 64;
    const int b_col_by1 = local_index % 64;

    __shared__ __align__(16) float a_shared[3][16][68];
    __align__(16) float a_frag[2][8];
    __shared__ __align__(16) float b_shared[3][16][64];
    __align__(16) float b_frag[2][4];
    float acc[8][4];
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Along K; copies bring zeros for what lies past it.
    if (0 < k) {
        if (16 <= k && ldb % 4 == 0) {
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                async_copy(&a_shared[0][a_k][a_row + i * 8],
                    &a[min(row0 + a_row + i * 8, m - 1) * lda + a_k]);
            }
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int b_inside =
                    col0 + b_col + 4 <= n ? 4 : col0 + b_col < n ? n - (col0 + b_col) : 0;
                async_copy4_inside(&b_shared[0][b_k + i * 8][b_col],
                    &b[(b_k + i * 8) * ldb + col0 + b_col], b_inside);
            }
        } else {
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                const int a_inside = a_k < k ? 1 : 0;
                async_copy_inside(&a_shared[0][a_k][a_row + i * 8],
                    &a[min(row0 + a_row + i * 8, m - 1) * lda + a_k], a_inside);
            }
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                const int b_inside = b_k_by1 + i * 2 < k ? 1 : 0;
                async_copy_inside(&b_shared[0][b_k_by1 + i * 2][b_col_by1],
                    &b[(b_k_by1 + i * 2) * ldb + min(col0 + b_col_by1, n - 1)], b_inside);
            }
        }
    }
    async_commit();
    if (16 < k) {
        if (32 <= k && ldb % 4 == 0) {
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                async_copy(&a_shared[1][a_k][a_row + i * 8],
                    &a[min(row0 + a_row + i * 8, m - 1) * lda + a_k + 16]);
            }
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int b_inside =
                    col0 + b_col + 4 <= n ? 4 : col0 + b_col < n ? n - (col0 + b_col) : 0;
                async_copy4_inside(&b_shared[1][b_k + i * 8][b_col],
                    &b[(b_k + i * 8 + 16) * ldb + col0 + b_col], b_inside);
            }
        } else {
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                const int a_inside = a_k + 16 < k ? 1 : 0;
                async_copy_inside(&a_shared[1][a_k][a_row + i * 8],
                    &a[min(row0 + a_row + i * 8, m - 1) * lda + a_k + 16], a_inside);
            }
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                const int b_inside = b_k_by1 + i * 2 + 16 < k ? 1 : 0;
                async_copy_inside(&b_shared[1][b_k_by1 + i * 2][b_col_by1],
                    &b[(b_k_by1 + i * 2 + 16) * ldb + min(col0 + b_col_by1, n - 1)], b_inside);
            }
        }
    }
    async_commit();
    async_wait<1>();
    __syncthreads();
    if (0 < k) {
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            copy4(&a_frag[0][i * 4], &a_shared[0][0][local_row * 4 + i * 32]);
        }
        copy4(b_frag[0], &b_shared[0][0][local_col * 4]);
    }
    for (int k0 = 0; k0 < k; k0 += 16) {
        const int slot = k0 / 16 % 3;
        const int next_slot = (k0 / 16 + 2) % 3;
        if (k0 + 32 < k) {
            if (k0 + 48 <= k && ldb % 4 == 0) {
                #pragma unroll
                for (int i = 0; i < 8; ++i) {
                    async_copy(&a_shared[next_slot][a_k][a_row + i * 8],
                        &a[min(row0 + a_row + i * 8, m - 1) * lda + k0 + a_k + 32]);
                }
                #pragma unroll
                for (int i = 0; i < 2; ++i) {
                    const int b_inside =
                        col0 + b_col + 4 <= n ? 4 : col0 + b_col < n ? n - (col0 + b_col) : 0;
                    async_copy4_inside(&b_shared[next_slot][b_k + i * 8][b_col],
                        &b[(k0 + b_k + i * 8 + 32) * ldb + col0 + b_col], b_inside);
                }
            } else {
                #pragma unroll
                for (int i = 0; i < 8; ++i) {
                    const int a_inside = k0 + a_k + 32 < k ? 1 : 0;
                    async_copy_inside(&a_shared[next_slot][a_k][a_row + i * 8],
                        &a[min(row0 + a_row + i * 8, m - 1) * lda + k0 + a_k + 32], a_inside);
                }
                #pragma unroll
                for (int i = 0; i < 8; ++i) {
                    const int b_inside = k0 + b_k_by1 + i * 2 + 32 < k ? 1 : 0;
                    async_copy_inside(&b_shared[next_slot][b_k_by1 + i * 2][b_col_by1],
                        &b[(k0 + b_k_by1 + i * 2 + 32) * ldb + min(col0 + b_col_by1, n - 1)],
                        b_inside);
                }
            }
        }
        async_commit();
        #pragma unroll
        for (int kk = 0; kk < 15; ++kk) {
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                copy4(&a_frag[(kk + 1) % 2][i * 4],
                    &a_shared[slot][kk + 1][local_row * 4 + i * 32]);
            }
            copy4(b_frag[(kk + 1) % 2], &b_shared[slot][kk + 1][local_col * 4]);
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                #pragma unroll
                for (int j = 0; j < 4; ++j) {
                    const int turn = i % 2 == 0 ? j : 3 - j;
                    acc[i][turn] = fmaf(a_frag[kk % 2][i], b_frag[kk % 2][turn], acc[i][turn]);
                }
            }
        }
        async_wait<1>();
        __syncthreads();
        if (k0 + 16 < k) {
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                copy4(&a_frag[0][i * 4], &a_shared[(k0 / 16 + 1) % 3][0][local_row * 4 + i * 32]);
            }
            copy4(b_frag[0], &b_shared[(k0 / 16 + 1) % 3][0][local_col * 4]);
        }
        #pragma unroll
        for (int i = 0; i < 8; ++i) {
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                const int turn = i % 2 == 0 ? j : 3 - j;
                acc[i][turn] = fmaf(a_frag[1][i], b_frag[1][turn], acc[i][turn]);
            }
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
        const int c_row = row + i / 4 * 32 + i % 4;
        if (c_row < m) {
            if (col + 4 <= n && ldc % 4 == 0) {
                __align__(16) float c_values[4];
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    c_values[e] = alpha * acc[i][e];
                }
                if (beta != 0.0f) {
                    __align__(16) float c_old[4];
                    copy4(c_old, &c[c_row * ldc + col]);
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        c_values[e] = fmaf(beta, c_old[e], c_values[e]);
                    }
                }
                copy4(&c[c_row * ldc + col], c_values);
            } else {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    if (col + e < n) {
                        c[c_row * ldc + col + e] =
                            beta == 0.0f ? alpha * acc[i][e]
                                         : fmaf(beta, c[c_row * ldc + col + e], alpha * acc[i][e]);
                    }
                }
            }
        }
    }
}

#ifndef __CUDACC_RTC__
namespace async_8x4_8x16_detail {

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

} // namespace async_8x4_8x16_detail

// Queues the kernel on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, where the kernels can't take them.
extern "C" cudaError_t async_8x4_8x16_launch(int m, int n, int k, float alpha, const float *a,
                                             int lda, const float *b, int ldb, float beta, float *c,
                                             int ldc, cudaStream_t stream)
{
    using namespace async_8x4_8x16_detail;

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
    const dim3 grid((n + 63) / 64, (m + 63) / 64);
    const dim3 block(16, 8);
    async_8x4_8x16<<<grid, block, 0, stream>>>(
        m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    return cudaGetLastError();
}
#endif
