// mma_3xtf32_8x8_8x16: C = alpha * A * B + beta * C; float32
//
// Schedule   8x8 of C per thread, 8x16 threads per block (64x128 of C), 32 along K per iteration,
//            by matrix instructions of the warp, three of TF32 for each product, 3 tiles in shared
//            memory at a time, operands read from shared memory a step ahead, the next tile's
//            before this one's last step, warps of 8x4 threads, blocks in bands of 8 rows, stores
//            of 2 elements
// A          global memory, asynchronous copies of 4 elements, to shared memory, rows padded by 4
// B          global memory, asynchronous copies of 4 elements, to shared memory, rows padded by 8
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0
// Launch     block (16, 8), grid ((m + 63) / 64 * ((n + 127) / 128), 1)
// Needs      79,872 bytes of shared memory
//            matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -arch=sm_80 -Werror all-warnings -c mma_3xtf32_8x8_8x16.cu

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error "mma_3xtf32_8x8_8x16 needs sm_80 or later, for cp.async and mma.sync"
#endif

namespace mma_3xtf32_8x8_8x16_detail {

// 2 neighbouring elements; both addresses are multiples of 8 bytes.
__device__ __forceinline__ void copy2(float *to, const float *from)
{
    *reinterpret_cast<float2 *>(to) = *reinterpret_cast<const float2 *>(from);
}

// Begins a copy of 16 bytes to shared memory.
__device__ __forceinline__ void async_copy4(float *to, const float *from)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
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

// What a number has more than the 10 bits after the point that TF32 has, and 2^-23 of it besides: of
// the number's sign, zero for zero alone. NaN of what is not finite.
__device__ __forceinline__ float finite_rest_in_tf32(float value)
{
    const float head = __uint_as_float(__float_as_uint(value) & 0xffffe000u);
    return fmaf(value, 0x1.000002p0f, -head);
}

// Of A, eight rows and eight others, both 32 bytes deep in K, as four matrices: lane 8 q + i
// says where line i of matrix q begins. Each lane gets an element of a line of each,
// first those of the eight, then those of the others.
__device__ __forceinline__ void load_a4(float *to, const float *line)
{
    unsigned *words = reinterpret_cast<unsigned *>(to);
    const unsigned address = unsigned(__cvta_generic_to_shared(line));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[2]), "=r"(words[1]), "=r"(words[3])
                 : "r"(address) : "memory");
}

// sums += a * b by a warp, 16 x 8 times 8 x 8. Of sums and a, a lane has two rows, `top`
// and `bottom`, eight apart; of b it has a column.
__device__ __forceinline__ void mma_m16n8k8(float *top, float *bottom, const float *a_top,
                                     const float *a_bottom, const float *b)
{
    const unsigned *a0 = reinterpret_cast<const unsigned *>(a_top);
    const unsigned *a1 = reinterpret_cast<const unsigned *>(a_bottom);
    const unsigned *b0 = reinterpret_cast<const unsigned *>(b);
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(top[0]), "+f"(top[1]), "+f"(bottom[0]), "+f"(bottom[1])
        : "r"(a0[0]), "r"(a1[0]), "r"(a0[1]), "r"(a1[1]), "r"(b0[0]), "r"(b0[1]));
}

// What the launch brings.
extern __shared__ __align__(16) unsigned char shared[];

} // namespace mma_3xtf32_8x8_8x16_detail

extern "C" __global__ void __launch_bounds__(128)
mma_3xtf32_8x8_8x16(int m, int n, int k, float alpha, const float *__restrict__ a, int lda,
                    const float *__restrict__ b, int ldb, float beta, float *__restrict__ c,
                    int ldc)
{
    using namespace mma_3xtf32_8x8_8x16_detail;

    const int local_index = int(threadIdx.y) * 16 + int(threadIdx.x);
    const int warp = local_index / 32;
    const int lane = local_index % 32;
    const int warp_row = warp / 4 * 8;
    const int warp_col = warp % 4 * 8;
    const int local_row = warp / 4 * 8 + lane / 4;
    const int local_col = warp % 4 * 4 + lane % 4;
    const int blocks_down = (m + 63) / 64;
    const int blocks_across = (n + 127) / 128;
    const int block = int(blockIdx.x);
    const int band_row = block / (blocks_across * 8) * 8;
    const int in_band = block % (blocks_across * 8);
    const int block_row = band_row + in_band % min(8, blocks_down - band_row);
    const int block_col = in_band / min(8, blocks_down - band_row);
    const int row0 = block_row * 64;
    const int col0 = block_col * 128;
    const int row = row0 + local_row;
    const int col = col0 + local_col * 2;
    const int a_row = local_index / 8;
    const int a_k = local_index % 8 * 4;
    const int b_k = local_index / 32;
    const int b_col = local_index % 32 * 4;
    const int a_row_by1 = local_index / 32;
    const int a_k_by1 = local_index % 32;
    const int a_line_row = lane / 8 % 2 * 8 + warp_row + lane % 8;
    const int a_line_k = lane / 16 * 4;

    auto &a_shared = *reinterpret_cast<float(*)[3][64][36]>(shared);
    __align__(16) float a_frag[2][8][2];
    auto &b_shared = *reinterpret_cast<float(*)[3][32][136]>(shared + 27648);
    float b_frag[2][4][2];
    float acc[8][8];
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
            acc[i][j] = 0.0f;
        }
    }
    float step_sums[8][8];
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
            step_sums[i][j] = 0.0f;
        }
    }

    // Along K; copies bring zeros for what lies past it.
    if (0 < k) {
        if (32 <= k && lda % 4 == 0 && ldb % 4 == 0) {
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                async_copy4(&a_shared[0][a_row + i * 16][a_k],
                    &a[min(row0 + a_row + i * 16, m - 1) * lda + a_k]);
            }
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                const int b_inside =
                    col0 + b_col + 4 <= n ? 4 : col0 + b_col < n ? n - (col0 + b_col) : 0;
                async_copy4_inside(&b_shared[0][b_k + i * 4][b_col],
                    &b[(b_k + i * 4) * ldb + col0 + b_col], b_inside);
            }
        } else {
            #pragma unroll
            for (int i = 0; i < 16; ++i) {
                const int a_inside = a_k_by1 < k ? 1 : 0;
                async_copy_inside(&a_shared[0][a_row_by1 + i * 4][a_k_by1],
                    &a[min(row0 + a_row_by1 + i * 4, m - 1) * lda + a_k_by1], a_inside);
            }
            #pragma unroll
            for (int i = 0; i < 32; ++i) {
                const int b_inside = i < k ? 1 : 0;
                async_copy_inside(&b_shared[0][i][local_index],
                    &b[i * ldb + min(col0 + local_index, n - 1)], b_inside);
            }
        }
    }
    async_commit();
    if (32 < k) {
        if (64 <= k && lda % 4 == 0 && ldb % 4 == 0) {
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                async_copy4(&a_shared[1][a_row + i * 16][a_k],
                    &a[min(row0 + a_row + i * 16, m - 1) * lda + a_k + 32]);
            }
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                const int b_inside =
                    col0 + b_col + 4 <= n ? 4 : col0 + b_col < n ? n - (col0 + b_col) : 0;
                async_copy4_inside(&b_shared[1][b_k + i * 4][b_col],
                    &b[(b_k + i * 4 + 32) * ldb + col0 + b_col], b_inside);
            }
        } else {
            #pragma unroll
            for (int i = 0; i < 16; ++i) {
                const int a_inside = a_k_by1 + 32 < k ? 1 : 0;
                async_copy_inside(&a_shared[1][a_row_by1 + i * 4][a_k_by1],
                    &a[min(row0 + a_row_by1 + i * 4, m - 1) * lda + a_k_by1 + 32], a_inside);
            }
            #pragma unroll
            for (int i = 0; i < 32; ++i) {
                const int b_inside = i + 32 < k ? 1 : 0;
                async_copy_inside(&b_shared[1][i][local_index],
                    &b[(i + 32) * ldb + min(col0 + local_index, n - 1)], b_inside);
            }
        }
    }
    async_commit();
    async_wait<1>();
    __syncthreads();
    if (0 < k) {
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            load_a4(a_frag[0][i * 2], &a_shared[0][a_line_row + i * 16][a_line_k]);
        }
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                b_frag[0][j][i] = b_shared[0][lane % 4 + i * 4][warp_col + lane / 4 + j * 32];
            }
        }
    }
    for (int k0 = 0; k0 < k; k0 += 32) {
        const int slot = k0 / 32 % 3;
        const int next_slot = (k0 / 32 + 2) % 3;
        if (k0 + 64 < k) {
            if (k0 + 96 <= k && lda % 4 == 0 && ldb % 4 == 0) {
                #pragma unroll
                for (int i = 0; i < 4; ++i) {
                    async_copy4(&a_shared[next_slot][a_row + i * 16][a_k],
                        &a[min(row0 + a_row + i * 16, m - 1) * lda + k0 + a_k + 64]);
                }
                #pragma unroll
                for (int i = 0; i < 8; ++i) {
                    const int b_inside =
                        col0 + b_col + 4 <= n ? 4 : col0 + b_col < n ? n - (col0 + b_col) : 0;
                    async_copy4_inside(&b_shared[next_slot][b_k + i * 4][b_col],
                        &b[(k0 + b_k + i * 4 + 64) * ldb + col0 + b_col], b_inside);
                }
            } else {
                #pragma unroll
                for (int i = 0; i < 16; ++i) {
                    const int a_inside = k0 + a_k_by1 + 64 < k ? 1 : 0;
                    async_copy_inside(&a_shared[next_slot][a_row_by1 + i * 4][a_k_by1],
                        &a[min(row0 + a_row_by1 + i * 4, m - 1) * lda + k0 + a_k_by1 + 64],
                        a_inside);
                }
                #pragma unroll
                for (int i = 0; i < 32; ++i) {
                    const int b_inside = k0 + i + 64 < k ? 1 : 0;
                    async_copy_inside(&b_shared[next_slot][i][local_index],
                        &b[(k0 + i + 64) * ldb + min(col0 + local_index, n - 1)], b_inside);
                }
            }
        }
        async_commit();
        #pragma unroll
        for (int kk = 0; kk < 24; kk += 8) {
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                load_a4(a_frag[(kk / 8 + 1) % 2][i * 2],
                    &a_shared[slot][a_line_row + i * 16][kk + a_line_k + 8]);
            }
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                #pragma unroll
                for (int j = 0; j < 4; ++j) {
                    b_frag[(kk / 8 + 1) % 2][j][i] =
                        b_shared[slot][kk + lane % 4 + i * 4 + 8][warp_col + lane / 4 + j * 32];
                }
            }
            float a_rest[8][2];
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                #pragma unroll
                for (int e = 0; e < 2; ++e) {
                    a_rest[i][e] = finite_rest_in_tf32(a_frag[kk / 8 % 2][i][e]);
                }
            }
            float b_rest[4][2];
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                #pragma unroll
                for (int e = 0; e < 2; ++e) {
                    b_rest[i][e] = finite_rest_in_tf32(b_frag[kk / 8 % 2][i][e]);
                }
            }
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                #pragma unroll
                for (int i = 0; i < 4; ++i) {
                    mma_m16n8k8(&step_sums[i * 2][j * 2], &step_sums[i * 2 + 1][j * 2],
                        a_rest[i * 2], a_rest[i * 2 + 1], b_frag[kk / 8 % 2][j]);
                }
                #pragma unroll
                for (int i = 0; i < 4; ++i) {
                    mma_m16n8k8(&step_sums[i * 2][j * 2], &step_sums[i * 2 + 1][j * 2],
                        a_frag[kk / 8 % 2][i * 2], a_frag[kk / 8 % 2][i * 2 + 1], b_rest[j]);
                }
                #pragma unroll
                for (int i = 0; i < 4; ++i) {
                    mma_m16n8k8(&step_sums[i * 2][j * 2], &step_sums[i * 2 + 1][j * 2],
                        a_frag[kk / 8 % 2][i * 2], a_frag[kk / 8 % 2][i * 2 + 1],
                        b_frag[kk / 8 % 2][j]);
                }
            }
        }
        async_wait<1>();
        __syncthreads();
        if (k0 + 32 < k) {
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                load_a4(a_frag[0][i * 2],
                    &a_shared[(k0 / 32 + 1) % 3][a_line_row + i * 16][a_line_k]);
            }
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                #pragma unroll
                for (int j = 0; j < 4; ++j) {
                    b_frag[0][j][i] =
                        b_shared[(k0 / 32 + 1) % 3][lane % 4 + i * 4][warp_col + lane / 4 + j * 32];
                }
            }
        }
        float a_rest[8][2];
        #pragma unroll
        for (int i = 0; i < 8; ++i) {
            #pragma unroll
            for (int e = 0; e < 2; ++e) {
                a_rest[i][e] = finite_rest_in_tf32(a_frag[1][i][e]);
            }
        }
        float b_rest[4][2];
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            #pragma unroll
            for (int e = 0; e < 2; ++e) {
                b_rest[i][e] = finite_rest_in_tf32(b_frag[1][i][e]);
            }
        }
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                mma_m16n8k8(&step_sums[i * 2][j * 2], &step_sums[i * 2 + 1][j * 2], a_rest[i * 2],
                    a_rest[i * 2 + 1], b_frag[1][j]);
            }
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                mma_m16n8k8(&step_sums[i * 2][j * 2], &step_sums[i * 2 + 1][j * 2],
                    a_frag[1][i * 2], a_frag[1][i * 2 + 1], b_rest[j]);
            }
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                mma_m16n8k8(&step_sums[i * 2][j * 2], &step_sums[i * 2 + 1][j * 2],
                    a_frag[1][i * 2], a_frag[1][i * 2 + 1], b_frag[1][j]);
            }
        }

        // As float32, which is rounded.
        #pragma unroll
        for (int i = 0; i < 8; ++i) {
            #pragma unroll
            for (int j = 0; j < 8; ++j) {
                acc[i][j] += step_sums[i][j];
            }
        }
        #pragma unroll
        for (int i = 0; i < 8; ++i) {
            #pragma unroll
            for (int j = 0; j < 8; ++j) {
                step_sums[i][j] = 0.0f;
            }
        }
    }

    // What is not finite has no rest: where it made NaN of a sum, heads alone say what that is.
    float doubt = 0.0f;
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
            doubt = fmaf(acc[i][j], 0.0f, doubt);
        }
    }
    if (__syncthreads_or(doubt != 0.0f)) {
        for (int k0 = 0; k0 < k; k0 += 32) {
            __syncthreads();
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                if (lda % 4 == 0) {
                    const int a_inside = k0 + a_k + 4 <= k ? 4 : k0 + a_k < k ? k - (k0 + a_k) : 0;
                    async_copy4_inside(&a_shared[0][a_row + i * 16][a_k],
                        &a[min(row0 + a_row + i * 16, m - 1) * lda + k0 + a_k], a_inside);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        const int a_inside = k0 + a_k + e < k ? 1 : 0;
                        async_copy_inside(&a_shared[0][a_row + i * 16][a_k + e],
                            &a[min(row0 + a_row + i * 16, m - 1) * lda + k0 + a_k + e], a_inside);
                    }
                }
            }
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                if (ldb % 4 == 0) {
                    const int b_fits =
                        col0 + b_col + 4 <= n ? 4 : col0 + b_col < n ? n - (col0 + b_col) : 0;
                    const int b_inside = k0 + b_k + i * 4 < k ? b_fits : 0;
                    async_copy4_inside(&b_shared[0][b_k + i * 4][b_col],
                        &b[(k0 + b_k + i * 4) * ldb + col0 + b_col], b_inside);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        const int b_inside = k0 + b_k + i * 4 < k ? 1 : 0;
                        async_copy_inside(&b_shared[0][b_k + i * 4][b_col + e],
                            &b[(k0 + b_k + i * 4) * ldb + min(col0 + b_col + e, n - 1)], b_inside);
                    }
                }
            }
            async_commit();
            async_wait<0>();
            __syncthreads();
            #pragma unroll
            for (int kk = 0; kk < 32; kk += 8) {
                __align__(16) float a_head[8][2];
                float b_head[4][2];
                #pragma unroll
                for (int i = 0; i < 4; ++i) {
                    load_a4(a_head[i * 2], &a_shared[0][a_line_row + i * 16][kk + a_line_k]);
                }
                #pragma unroll
                for (int i = 0; i < 2; ++i) {
                    #pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        b_head[j][i] =
                            b_shared[0][kk + lane % 4 + i * 4][warp_col + lane / 4 + j * 32];
                    }
                }
                #pragma unroll
                for (int i = 0; i < 4; ++i) {
                    #pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        mma_m16n8k8(&step_sums[i * 2][j * 2], &step_sums[i * 2 + 1][j * 2],
                            a_head[i * 2], a_head[i * 2 + 1], b_head[j]);
                    }
                }
            }
        }
        #pragma unroll
        for (int i = 0; i < 8; ++i) {
            #pragma unroll
            for (int j = 0; j < 8; ++j) {
                acc[i][j] = acc[i][j] == acc[i][j] ? acc[i][j] : step_sums[i][j];
            }
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
        if (row + i * 8 < m) {
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                if (col + j * 32 + 2 <= n && ldc % 2 == 0) {
                    __align__(16) float c_values[2];
                    #pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        c_values[e] = alpha * acc[i][j * 2 + e];
                    }
                    if (beta != 0.0f) {
                        __align__(16) float c_old[2];
                        copy2(c_old, &c[(row + i * 8) * ldc + col + j * 32]);
                        #pragma unroll
                        for (int e = 0; e < 2; ++e) {
                            c_values[e] = fmaf(beta, c_old[e], c_values[e]);
                        }
                    }
                    copy2(&c[(row + i * 8) * ldc + col + j * 32], c_values);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        if (col + j * 32 + e < n) {
                            c[(row + i * 8) * ldc + col + j * 32 + e] =
                                beta == 0.0f ? alpha * acc[i][j * 2 + e]
                                             : fmaf(beta, c[(row + i * 8) * ldc + col + j * 32 + e],
                                                 alpha * acc[i][j * 2 + e]);
                        }
                    }
                }
            }
        }
    }
}

#ifndef __CUDACC_RTC__
namespace mma_3xtf32_8x8_8x16_detail {

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

} // namespace mma_3xtf32_8x8_8x16_detail

// Queues the kernel on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, where the kernels can't take them.
extern "C" cudaError_t mma_3xtf32_8x8_8x16_launch(int m, int n, int k, float alpha, const float *a,
                                                  int lda, const float *b, int ldb, float beta,
                                                  float *c, int ldc, cudaStream_t stream)
{
    using namespace mma_3xtf32_8x8_8x16_detail;

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
        mma_3xtf32_8x8_8x16, cudaFuncAttributeMaxDynamicSharedMemorySize, 79872);
    if (allowed != cudaSuccess) {
        return allowed;
    }
    const dim3 grid((m + 63) / 64 * ((n + 127) / 128), 1);
    const dim3 block(16, 8);
    mma_3xtf32_8x8_8x16<<<grid, block, 79872, stream>>>(
        m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    return cudaGetLastError();
}
#endif
