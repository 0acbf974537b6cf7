// mma_8x16_16x16: C = alpha * A * B + beta * C; bfloat16, sums in float32
//
// Schedule   8x16 of C per thread, 16x16 threads per block (128x256 of C), 64 along K per
//            iteration, by matrix instructions of the warp, 3 tiles in shared memory at a time,
//            operands read from shared memory a step ahead, the next tile's before this one's last
//            step, warps of 8x4 threads, blocks in bands of 8 rows, stores of 2 elements
// A          global memory, asynchronous copies of 8 elements, to shared memory, rows padded by 8
// B          global memory, asynchronous copies of 8 elements, to shared memory, rows padded by 8
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0
// Launch     block (16, 16), grid ((m + 127) / 128 * ((n + 255) / 256), 1)
// Needs      156,672 bytes of shared memory
//            matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c mma_8x16_16x16.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif
#include <cuda_bf16.h>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error "mma_8x16_16x16 needs sm_80 or later, for cp.async and mma.sync"
#endif

namespace mma_8x16_16x16_detail {

// 2 neighbouring elements; both addresses are multiples of 4 bytes.
__device__ __forceinline__ void copy2(__nv_bfloat16 *to, const __nv_bfloat16 *from)
{
    *reinterpret_cast<unsigned *>(to) = *reinterpret_cast<const unsigned *>(from);
}

// 2 neighbouring elements to registers, in their type; `from` is a multiple of 4 bytes.
__device__ __forceinline__ void copy2(float *to, const __nv_bfloat16 *from)
{
    __align__(4) __nv_bfloat16 elements[2];
    copy2(elements, from);
    #pragma unroll
    for (int e = 0; e < 2; ++e) {
        to[e] = float(elements[e]);
    }
}

// 2 neighbouring elements from registers, in the type of memory; `to` is a multiple of 4 bytes.
__device__ __forceinline__ void copy2(__nv_bfloat16 *to, const float *from)
{
    __align__(4) __nv_bfloat16 elements[2];
    #pragma unroll
    for (int e = 0; e < 2; ++e) {
        elements[e] = __nv_bfloat16(from[e]);
    }
    copy2(to, elements);
}

// Begins a copy of 16 bytes to shared memory; past `inside` elements it writes zeros.
__device__ __forceinline__ void async_copy8_inside(__nv_bfloat16 *to, const __nv_bfloat16 *from, int inside)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 ::"r"(address), "l"(from), "r"(inside * 2) : "memory");
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

// Of A, eight rows and eight others, both 32 bytes deep in K, as four matrices: lane 8 q + i
// says where line i of matrix q begins. Each lane gets two neighbours of a line of each,
// first those of the eight, then those of the others.
__device__ __forceinline__ void load_a4(__nv_bfloat16 *to, const __nv_bfloat16 *line)
{
    unsigned *words = reinterpret_cast<unsigned *>(to);
    const unsigned address = unsigned(__cvta_generic_to_shared(line));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[2]), "=r"(words[1]), "=r"(words[3])
                 : "r"(address) : "memory");
}

// Of B, eight columns and eight others, both 32 bytes deep in K, as four matrices: lane 8 q + i
// says where line i of matrix q begins. Each lane gets two neighbours of a column of each.
__device__ __forceinline__ void load_b4_turned(__nv_bfloat16 *to, const __nv_bfloat16 *line)
{
    unsigned *words = reinterpret_cast<unsigned *>(to);
    const unsigned address = unsigned(__cvta_generic_to_shared(line));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address) : "memory");
}

// sums += a * b by a warp, 16 x 16 times 16 x 8. Of sums and a, a lane has two rows, `top`
// and `bottom`, eight apart; of b it has a column.
__device__ __forceinline__ void mma_m16n8k16(float *top, float *bottom, const __nv_bfloat16 *a_top,
                                     const __nv_bfloat16 *a_bottom, const __nv_bfloat16 *b)
{
    const unsigned *a0 = reinterpret_cast<const unsigned *>(a_top);
    const unsigned *a1 = reinterpret_cast<const unsigned *>(a_bottom);
    const unsigned *b0 = reinterpret_cast<const unsigned *>(b);
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(top[0]), "+f"(top[1]), "+f"(bottom[0]), "+f"(bottom[1])
        : "r"(a0[0]), "r"(a1[0]), "r"(a0[1]), "r"(a1[1]), "r"(b0[0]), "r"(b0[1]));
}

// What the launch brings.
extern __shared__ __align__(16) unsigned char shared[];

} // namespace mma_8x16_16x16_detail

extern "C" __global__ void __launch_bounds__(256)
mma_8x16_16x16(int m, int n, int k, float alpha, const __nv_bfloat16 *__restrict__ a, int lda,
               const __nv_bfloat16 *__restrict__ b, int ldb, float beta,
               __nv_bfloat16 *__restrict__ c, int ldc)
{
    using namespace mma_8x16_16x16_detail;

    const int local_index = int(threadIdx.y) * 16 + int(threadIdx.x);
    const int warp = local_index / 32;
    const int lane = local_index % 32;
    const int warp_row = warp / 4 * 8;
    const int warp_col = warp % 4 * 8;
    const int local_row = warp / 4 * 8 + lane / 4;
    const int local_col = warp % 4 * 4 + lane % 4;
    const int blocks_down = (m + 127) / 128;
    const int blocks_across = (n + 255) / 256;
    const int block = int(blockIdx.x);
    const int band_row = block / (blocks_across * 8) * 8;
    const int in_band = block % (blocks_across * 8);
    const int block_row = band_row + in_band % min(8, blocks_down - band_row);
    const int block_col = in_band / min(8, blocks_down - band_row);
    const int row0 = block_row * 128;
    const int col0 = block_col * 256;
    const int row = row0 + local_row;
    const int col = col0 + local_col * 2;
    const int a_row = local_index / 8;
    const int a_k = local_index % 8 * 8;
    const int b_k = local_index / 32;
    const int b_col = local_index % 32 * 8;
    const int a_row_by1 = local_index / 64;
    const int a_k_by1 = local_index % 64;
    const int a_line_row = lane / 8 % 2 * 16 + warp_row + lane % 8;
    const int a_line_k = lane / 16 * 8;
    const int b_line_col = lane / 16 * 32 + warp_col;
    const int b_line_k = lane / 8 % 2 * 8 + lane % 8;

    auto &a_shared = *reinterpret_cast<__nv_bfloat16(*)[3][128][72]>(shared);
    __align__(16) __nv_bfloat16 a_frag[2][8][4];
    auto &b_shared = *reinterpret_cast<__nv_bfloat16(*)[3][64][264]>(shared + 55296);
    __align__(16) __nv_bfloat16 b_frag[2][8][4];
    float acc[8][16];
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
        #pragma unroll
        for (int j = 0; j < 16; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Along K; copies bring zeros for what lies past it.
    if (0 < k) {
        if (lda % 8 == 0 && ldb % 8 == 0) {
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int a_inside = a_k + 8 <= k ? 8 : a_k < k ? k - a_k : 0;
                async_copy8_inside(&a_shared[0][a_row + i * 32][a_k],
                    &a[min(row0 + a_row + i * 32, m - 1) * lda + a_k], a_inside);
            }
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                const int b_fits =
                    col0 + b_col + 8 <= n ? 8 : col0 + b_col < n ? n - (col0 + b_col) : 0;
                const int b_inside = b_k + i * 8 < k ? b_fits : 0;
                async_copy8_inside(&b_shared[0][b_k + i * 8][b_col],
                    &b[(b_k + i * 8) * ldb + col0 + b_col], b_inside);
            }
        } else {
            #pragma unroll 4
            for (int i = 0; i < 32; ++i) {
                a_shared[0][a_row_by1 + i * 4][a_k_by1] =
                    a_k_by1 < k ? a[min(row0 + a_row_by1 + i * 4, m - 1) * lda + a_k_by1]
                                : __nv_bfloat16();
            }
            #pragma unroll 4
            for (int i = 0; i < 64; ++i) {
                b_shared[0][i][local_index] =
                    i < k ? b[i * ldb + min(col0 + local_index, n - 1)] : __nv_bfloat16();
            }
        }
    }
    async_commit();
    if (64 < k) {
        if (lda % 8 == 0 && ldb % 8 == 0) {
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int a_inside = a_k + 72 <= k ? 8 : a_k + 64 < k ? k - (a_k + 64) : 0;
                async_copy8_inside(&a_shared[1][a_row + i * 32][a_k],
                    &a[min(row0 + a_row + i * 32, m - 1) * lda + a_k + 64], a_inside);
            }
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                const int b_fits =
                    col0 + b_col + 8 <= n ? 8 : col0 + b_col < n ? n - (col0 + b_col) : 0;
                const int b_inside = b_k + i * 8 + 64 < k ? b_fits : 0;
                async_copy8_inside(&b_shared[1][b_k + i * 8][b_col],
                    &b[(b_k + i * 8 + 64) * ldb + col0 + b_col], b_inside);
            }
        } else {
            #pragma unroll 4
            for (int i = 0; i < 32; ++i) {
                a_shared[1][a_row_by1 + i * 4][a_k_by1] =
                    a_k_by1 + 64 < k ? a[min(row0 + a_row_by1 + i * 4, m - 1) * lda + a_k_by1 + 64]
                                     : __nv_bfloat16();
            }
            #pragma unroll 4
            for (int i = 0; i < 64; ++i) {
                b_shared[1][i][local_index] =
                    i + 64 < k ? b[(i + 64) * ldb + min(col0 + local_index, n - 1)]
                               : __nv_bfloat16();
            }
        }
    }
    async_commit();
    async_wait<1>();
    __syncthreads();
    if (0 < k) {
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            load_a4(a_frag[0][i * 2], &a_shared[0][a_line_row + i * 32][a_line_k]);
        }
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
            load_b4_turned(b_frag[0][j * 2], &b_shared[0][b_line_k][b_line_col + j * 64]);
        }
    }
    for (int k0 = 0; k0 < k; k0 += 64) {
        const int slot = k0 / 64 % 3;
        const int next_slot = (k0 / 64 + 2) % 3;
        if (k0 + 128 < k) {
            if (lda % 8 == 0 && ldb % 8 == 0) {
                #pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const int a_inside =
                        k0 + a_k + 136 <= k ? 8 : k0 + a_k + 128 < k ? k - (k0 + a_k + 128) : 0;
                    async_copy8_inside(&a_shared[next_slot][a_row + i * 32][a_k],
                        &a[min(row0 + a_row + i * 32, m - 1) * lda + k0 + a_k + 128], a_inside);
                }
                #pragma unroll
                for (int i = 0; i < 8; ++i) {
                    const int b_fits =
                        col0 + b_col + 8 <= n ? 8 : col0 + b_col < n ? n - (col0 + b_col) : 0;
                    const int b_inside = k0 + b_k + i * 8 + 128 < k ? b_fits : 0;
                    async_copy8_inside(&b_shared[next_slot][b_k + i * 8][b_col],
                        &b[(k0 + b_k + i * 8 + 128) * ldb + col0 + b_col], b_inside);
                }
            } else {
                #pragma unroll 4
                for (int i = 0; i < 32; ++i) {
                    a_shared[next_slot][a_row_by1 + i * 4][a_k_by1] =
                        k0 + a_k_by1 + 128 < k
                            ? a[min(row0 + a_row_by1 + i * 4, m - 1) * lda + k0 + a_k_by1 + 128]
                            : __nv_bfloat16();
                }
                #pragma unroll 4
                for (int i = 0; i < 64; ++i) {
                    b_shared[next_slot][i][local_index] =
                        k0 + i + 128 < k ? b[(k0 + i + 128) * ldb + min(col0 + local_index, n - 1)]
                                         : __nv_bfloat16();
                }
            }
        }
        async_commit();
        #pragma unroll
        for (int kk = 0; kk < 48; kk += 16) {
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                load_a4(a_frag[(kk / 16 + 1) % 2][i * 2],
                    &a_shared[slot][a_line_row + i * 32][kk + a_line_k + 16]);
            }
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                load_b4_turned(b_frag[(kk / 16 + 1) % 2][j * 2],
                    &b_shared[slot][kk + b_line_k + 16][b_line_col + j * 64]);
            }
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                #pragma unroll
                for (int j = 0; j < 8; ++j) {
                    mma_m16n8k16(&acc[i * 2][j * 2], &acc[i * 2 + 1][j * 2],
                        a_frag[kk / 16 % 2][i * 2], a_frag[kk / 16 % 2][i * 2 + 1],
                        b_frag[kk / 16 % 2][j]);
                }
            }
        }
        async_wait<1>();
        __syncthreads();
        if (k0 + 64 < k) {
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                load_a4(a_frag[0][i * 2],
                    &a_shared[(k0 / 64 + 1) % 3][a_line_row + i * 32][a_line_k]);
            }
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                load_b4_turned(b_frag[0][j * 2],
                    &b_shared[(k0 / 64 + 1) % 3][b_line_k][b_line_col + j * 64]);
            }
        }
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            #pragma unroll
            for (int j = 0; j < 8; ++j) {
                mma_m16n8k16(&acc[i * 2][j * 2], &acc[i * 2 + 1][j * 2], a_frag[1][i * 2],
                    a_frag[1][i * 2 + 1], b_frag[1][j]);
            }
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
        if (row + i * 16 < m) {
            #pragma unroll
            for (int j = 0; j < 8; ++j) {
                if (col + j * 32 + 2 <= n && ldc % 2 == 0) {
                    __align__(16) float c_values[2];
                    #pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        c_values[e] = alpha * acc[i][j * 2 + e];
                    }
                    if (beta != 0.0f) {
                        __align__(16) float c_old[2];
                        copy2(c_old, &c[(row + i * 16) * ldc + col + j * 32]);
                        #pragma unroll
                        for (int e = 0; e < 2; ++e) {
                            c_values[e] = fmaf(beta, c_old[e], c_values[e]);
                        }
                    }
                    copy2(&c[(row + i * 16) * ldc + col + j * 32], c_values);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        if (col + j * 32 + e < n) {
                            const float c_value =
                                beta == 0.0f ? alpha * acc[i][j * 2 + e]
                                             : fmaf(beta,
                                                 float(c[(row + i * 16) * ldc + col + j * 32 + e]),
                                                 alpha * acc[i][j * 2 + e]);
                            c[(row + i * 16) * ldc + col + j * 32 + e] = __nv_bfloat16(c_value);
                        }
                    }
                }
            }
        }
    }
}

#ifndef __CUDACC_RTC__
namespace mma_8x16_16x16_detail {

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

} // namespace mma_8x16_16x16_detail

// Queues the kernel on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, where the kernels can't take them.
extern "C" cudaError_t mma_8x16_16x16_launch(int m, int n, int k, float alpha,
                                             const __nv_bfloat16 *a, int lda,
                                             const __nv_bfloat16 *b, int ldb, float beta,
                                             __nv_bfloat16 *c, int ldc, cudaStream_t stream)
{
    using namespace mma_8x16_16x16_detail;

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
    const cudaError_t allowed = cudaFuncSetAttribute(
        mma_8x16_16x16, cudaFuncAttributeMaxDynamicSharedMemorySize, 156672);
    if (allowed != cudaSuccess) {
        return allowed;
    }
    const dim3 grid((m + 127) / 128 * ((n + 255) / 256), 1);
    const dim3 block(16, 16);
    mma_8x16_16x16<<<grid, block, 156672, stream>>>(
        m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    return cudaGetLastError();
}
#endif
