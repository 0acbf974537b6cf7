// mma_f64_4x8_16x8: C = alpha * A * B + beta * C; float64
//
// Schedule   4x8 of C per thread, 16x8 threads per block (64x64 of C), 16 along K per iteration, by
//            matrix instructions of the warp, 4 tiles in shared memory at a time, operands read
//            from shared memory a step ahead, the next tile's before this one's last step, warps of
//            8x4 threads, blocks in bands of 8 rows, stores of 2 elements
// A          global memory, asynchronous copies of 2 elements, to shared memory, rows padded by 4
// B          global memory, asynchronous copies of 2 elements, to shared memory, rows padded by 4
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0
// Launch     block (8, 16), grid ((m + 63) / 64 * ((n + 63) / 64), 1)
// Needs      75,776 bytes of shared memory
//            matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c mma_f64_4x8_16x8.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error "mma_f64_4x8_16x8 needs sm_80 or later, for cp.async and mma.sync"
#endif

namespace mma_f64_4x8_16x8_detail {

// 2 neighbouring elements; both addresses are multiples of 16 bytes.
__device__ __forceinline__ void copy2(double *to, const double *from)
{
    *reinterpret_cast<double2 *>(to) = *reinterpret_cast<const double2 *>(from);
}

// Begins a copy of 16 bytes to shared memory.
__device__ __forceinline__ void async_copy2(double *to, const double *from)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 ::"r"(address), "l"(from) : "memory");
}

// Begins a copy of 8 bytes to shared memory; past `inside` elements it writes zeros.
__device__ __forceinline__ void async_copy_inside(double *to, const double *from, int inside)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;"
                 ::"r"(address), "l"(from), "r"(inside * 8) : "memory");
}

// Begins a copy of 16 bytes to shared memory; past `inside` elements it writes zeros.
__device__ __forceinline__ void async_copy2_inside(double *to, const double *from, int inside)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 ::"r"(address), "l"(from), "r"(inside * 8) : "memory");
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

// sums += a * b by a warp, 8 x 4 times 4 x 8.
__device__ __forceinline__ void mma_m8n8k4(double *sums, double a, double b)
{
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+d"(sums[0]), "+d"(sums[1]) : "d"(a), "d"(b));
}

// sums += a * b by a warp, 16 x 8 times 8 x 8. Of sums and a, a lane has two rows, `top` and
// `bottom`, eight apart; of b it has a column.
__device__ __forceinline__ void mma_m16n8k8(double *top, double *bottom, const double *a_top,
                                     const double *a_bottom, const double *b)
{
    mma_m8n8k4(top, a_top[0], b[0]);
    mma_m8n8k4(bottom, a_bottom[0], b[0]);
    mma_m8n8k4(top, a_top[1], b[1]);
    mma_m8n8k4(bottom, a_bottom[1], b[1]);
}

// What the launch brings.
extern __shared__ __align__(16) unsigned char shared[];

} // namespace mma_f64_4x8_16x8_detail

extern "C" __global__ void __launch_bounds__(128)
mma_f64_4x8_16x8(int m, int n, int k, double alpha, const double *__restrict__ a, int lda,
                 const double *__restrict__ b, int ldb, double beta, double *__restrict__ c,
                 int ldc)
{
    using namespace mma_f64_4x8_16x8_detail;

    const int local_index = int(threadIdx.y) * 8 + int(threadIdx.x);
    const int warp = local_index / 32;
    const int lane = local_index % 32;
    const int warp_col = warp % 2 * 8;
    const int local_row = warp / 2 * 8 + lane / 4;
    const int local_col = warp % 2 * 4 + lane % 4;
    const int blocks_down = (m + 63) / 64;
    const int blocks_across = (n + 63) / 64;
    const int block = int(blockIdx.x);
    const int band_row = block / (blocks_across * 8) * 8;
    const int in_band = block % (blocks_across * 8);
    const int block_row = band_row + in_band % min(8, blocks_down - band_row);
    const int block_col = in_band / min(8, blocks_down - band_row);
    const int row0 = block_row * 64;
    const int col0 = block_col * 64;
    const int row = row0 + local_row;
    const int col = col0 + local_col * 2;
    const int a_row = local_index / 8;
    const int a_k = local_index % 8 * 2;
    const int b_k = local_index / 32;
    const int b_col = local_index % 32 * 2;
    const int a_row_by1 = local_index / 16;
    const int a_k_by1 = local_index % 16;
    const int b_k_by1 = local_index / 64;
    const int b_col_by1 = local_index % 64;

    auto &a_shared = *reinterpret_cast<double(*)[4][64][20]>(shared);
    double a_frag[2][4][2];
    auto &b_shared = *reinterpret_cast<double(*)[4][16][68]>(shared + 40960);
    double b_frag[2][4][2];
    double acc[4][8];
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
            acc[i][j] = 0.0;
        }
    }

    // Along K; copies bring zeros for what lies past it.
    if (0 < k) {
        if (16 <= k && lda % 2 == 0 && ldb % 2 == 0) {
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                async_copy2(&a_shared[0][a_row + i * 16][a_k],
                    &a[min(row0 + a_row + i * 16, m - 1) * lda + a_k]);
            }
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int b_inside =
                    col0 + b_col + 2 <= n ? 2 : col0 + b_col < n ? n - (col0 + b_col) : 0;
                async_copy2_inside(&b_shared[0][b_k + i * 4][b_col],
                    &b[(b_k + i * 4) * ldb + col0 + b_col], b_inside);
            }
        } else {
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                const int a_inside = a_k_by1 < k ? 1 : 0;
                async_copy_inside(&a_shared[0][a_row_by1 + i * 8][a_k_by1],
                    &a[min(row0 + a_row_by1 + i * 8, m - 1) * lda + a_k_by1], a_inside);
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
        if (32 <= k && lda % 2 == 0 && ldb % 2 == 0) {
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                async_copy2(&a_shared[1][a_row + i * 16][a_k],
                    &a[min(row0 + a_row + i * 16, m - 1) * lda + a_k + 16]);
            }
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int b_inside =
                    col0 + b_col + 2 <= n ? 2 : col0 + b_col < n ? n - (col0 + b_col) : 0;
                async_copy2_inside(&b_shared[1][b_k + i * 4][b_col],
                    &b[(b_k + i * 4 + 16) * ldb + col0 + b_col], b_inside);
            }
        } else {
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                const int a_inside = a_k_by1 + 16 < k ? 1 : 0;
                async_copy_inside(&a_shared[1][a_row_by1 + i * 8][a_k_by1],
                    &a[min(row0 + a_row_by1 + i * 8, m - 1) * lda + a_k_by1 + 16], a_inside);
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
    if (32 < k) {
        if (48 <= k && lda % 2 == 0 && ldb % 2 == 0) {
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                async_copy2(&a_shared[2][a_row + i * 16][a_k],
                    &a[min(row0 + a_row + i * 16, m - 1) * lda + a_k + 32]);
            }
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int b_inside =
                    col0 + b_col + 2 <= n ? 2 : col0 + b_col < n ? n - (col0 + b_col) : 0;
                async_copy2_inside(&b_shared[2][b_k + i * 4][b_col],
                    &b[(b_k + i * 4 + 32) * ldb + col0 + b_col], b_inside);
            }
        } else {
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                const int a_inside = a_k_by1 + 32 < k ? 1 : 0;
                async_copy_inside(&a_shared[2][a_row_by1 + i * 8][a_k_by1],
                    &a[min(row0 + a_row_by1 + i * 8, m - 1) * lda + a_k_by1 + 32], a_inside);
            }
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                const int b_inside = b_k_by1 + i * 2 + 32 < k ? 1 : 0;
                async_copy_inside(&b_shared[2][b_k_by1 + i * 2][b_col_by1],
                    &b[(b_k_by1 + i * 2 + 32) * ldb + min(col0 + b_col_by1, n - 1)], b_inside);
            }
        }
    }
    async_commit();
    async_wait<2>();
    __syncthreads();
    if (0 < k) {
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            #pragma unroll
            for (int j = 0; j < 2; ++j) {
                a_frag[0][i][j] = a_shared[0][local_row + i * 16][lane % 4 + j * 4];
            }
        }
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                b_frag[0][j][i] = b_shared[0][lane % 4 + i * 4][warp_col + lane / 4 + j * 16];
            }
        }
    }
    for (int k0 = 0; k0 < k; k0 += 16) {
        const int slot = k0 / 16 % 4;
        const int next_slot = (k0 / 16 + 3) % 4;
        if (k0 + 48 < k) {
            if (k0 + 64 <= k && lda % 2 == 0 && ldb % 2 == 0) {
                #pragma unroll
                for (int i = 0; i < 4; ++i) {
                    async_copy2(&a_shared[next_slot][a_row + i * 16][a_k],
                        &a[min(row0 + a_row + i * 16, m - 1) * lda + k0 + a_k + 48]);
                }
                #pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const int b_inside =
                        col0 + b_col + 2 <= n ? 2 : col0 + b_col < n ? n - (col0 + b_col) : 0;
                    async_copy2_inside(&b_shared[next_slot][b_k + i * 4][b_col],
                        &b[(k0 + b_k + i * 4 + 48) * ldb + col0 + b_col], b_inside);
                }
            } else {
                #pragma unroll
                for (int i = 0; i < 8; ++i) {
                    const int a_inside = k0 + a_k_by1 + 48 < k ? 1 : 0;
                    async_copy_inside(&a_shared[next_slot][a_row_by1 + i * 8][a_k_by1],
                        &a[min(row0 + a_row_by1 + i * 8, m - 1) * lda + k0 + a_k_by1 + 48],
                        a_inside);
                }
                #pragma unroll
                for (int i = 0; i < 8; ++i) {
                    const int b_inside = k0 + b_k_by1 + i * 2 + 48 < k ? 1 : 0;
                    async_copy_inside(&b_shared[next_slot][b_k_by1 + i * 2][b_col_by1],
                        &b[(k0 + b_k_by1 + i * 2 + 48) * ldb + min(col0 + b_col_by1, n - 1)],
                        b_inside);
                }
            }
        }
        async_commit();
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            #pragma unroll
            for (int j = 0; j < 2; ++j) {
                a_frag[1][i][j] = a_shared[slot][local_row + i * 16][lane % 4 + j * 4 + 8];
            }
        }
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                b_frag[1][j][i] =
                    b_shared[slot][lane % 4 + i * 4 + 8][warp_col + lane / 4 + j * 16];
            }
        }
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                mma_m16n8k8(&acc[i * 2][j * 2], &acc[i * 2 + 1][j * 2], a_frag[0][i * 2],
                    a_frag[0][i * 2 + 1], b_frag[0][j]);
            }
        }
        async_wait<2>();
        __syncthreads();
        if (k0 + 16 < k) {
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                #pragma unroll
                for (int j = 0; j < 2; ++j) {
                    a_frag[0][i][j] =
                        a_shared[(k0 / 16 + 1) % 4][local_row + i * 16][lane % 4 + j * 4];
                }
            }
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                #pragma unroll
                for (int j = 0; j < 4; ++j) {
                    b_frag[0][j][i] =
                        b_shared[(k0 / 16 + 1) % 4][lane % 4 + i * 4][warp_col + lane / 4 + j * 16];
                }
            }
        }
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                mma_m16n8k8(&acc[i * 2][j * 2], &acc[i * 2 + 1][j * 2], a_frag[1][i * 2],
                    a_frag[1][i * 2 + 1], b_frag[1][j]);
            }
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (row + i * 16 < m) {
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                if (col + j * 16 + 2 <= n && ldc % 2 == 0) {
                    __align__(16) double c_values[2];
                    #pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        c_values[e] = alpha * acc[i][j * 2 + e];
                    }
                    if (beta != 0.0) {
                        __align__(16) double c_old[2];
                        copy2(c_old, &c[(row + i * 16) * ldc + col + j * 16]);
                        #pragma unroll
                        for (int e = 0; e < 2; ++e) {
                            c_values[e] = fma(beta, c_old[e], c_values[e]);
                        }
                    }
                    copy2(&c[(row + i * 16) * ldc + col + j * 16], c_values);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        if (col + j * 16 + e < n) {
                            c[(row + i * 16) * ldc + col + j * 16 + e] =
                                beta == 0.0 ? alpha * acc[i][j * 2 + e]
                                            : fma(beta, c[(row + i * 16) * ldc + col + j * 16 + e],
                                                alpha * acc[i][j * 2 + e]);
                        }
                    }
                }
            }
        }
    }
}

#ifndef __CUDACC_RTC__
namespace mma_f64_4x8_16x8_detail {

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

} // namespace mma_f64_4x8_16x8_detail

// Queues the kernel on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, where the kernels can't take them.
extern "C" cudaError_t mma_f64_4x8_16x8_launch(int m, int n, int k, double alpha, const double *a,
                                               int lda, const double *b, int ldb, double beta,
                                               double *c, int ldc, cudaStream_t stream)
{
    using namespace mma_f64_4x8_16x8_detail;

    if (m < 1 || n < 1) {
        return cudaSuccess;
    }
    if (alpha == 0.0) {
        k = 0; // so that A and B are not read
    }
    if (!is_aligned(a, 16) || !is_aligned(b, 16) || !is_aligned(c, 16)) {
        return cudaErrorMisalignedAddress;
    }
    if (k < 0 || !is_in_reach(m, k, lda) || !is_in_reach(k, n, ldb) || !is_in_reach(m, n, ldc)) {
        return cudaErrorInvalidValue;
    }
    const cudaError_t allowed = cudaFuncSetAttribute(
        mma_f64_4x8_16x8, cudaFuncAttributeMaxDynamicSharedMemorySize, 75776);
    if (allowed != cudaSuccess) {
        return allowed;
    }
    const dim3 grid((m + 63) / 64 * ((n + 63) / 64), 1);
    const dim3 block(8, 16);
    mma_f64_4x8_16x8<<<grid, block, 75776, stream>>>(
        m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    return cudaGetLastError();
}
#endif
