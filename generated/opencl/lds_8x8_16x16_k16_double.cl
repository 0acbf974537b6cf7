// lds_8x8_16x16_k16_double: C = alpha * A * B + beta * C; float32
//
// Schedule   8x8 of C per work-item, 16x16 work-items per group (128x128 of C), 16 along K per
//            iteration, 2 tiles in local memory at a time, the next tile loaded into registers
//            before the current one's arithmetic
// A          buffer, loads of 4 elements, through local memory, transposed
// B          buffer, loads of 8 elements, through local memory
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0
// Launch     local size {16, 16}, global size {(n + 127) / 128 * 16, (m + 127) / 128 * 16}
// Needs      32,768 bytes of local memory
// Build      clBuildProgram(..., "-cl-std=CL1.2", ...)

// 4 neighbouring elements, at any alignment.
#define COPY4(to, from) vstore4(vload4(0, from), 0, to)

// 8 neighbouring elements, at any alignment.
#define COPY8(to, from) vstore8(vload8(0, from), 0, to)

// 4 neighbouring elements of local memory, from a multiple of 16 bytes.
#define COPY_LOCAL4(to, from) vstore4(*(const __local float4 *)(from), 0, to)

__attribute__((reqd_work_group_size(16, 16, 1)))
__kernel void lds_8x8_16x16_k16_double(int m, int n, int k, float alpha,
                                       __global const float *restrict a, int lda,
                                       __global const float *restrict b, int ldb, float beta,
                                       __global float *restrict c, int ldc)
{
    const int local_row = (int)get_local_id(1);
    const int local_col = (int)get_local_id(0);
    const int row0 = (int)get_group_id(1) * 128;
    const int col0 = (int)get_group_id(0) * 128;
    const int row = row0 + local_row * 4;
    const int col = col0 + local_col * 4;
    const int k_main = k - k % 16;
    const int local_index = local_row * 16 + local_col;
    const int a_row = local_index / 4;
    const int a_k = local_index % 4 * 4;
    const int b_k = local_index / 16;
    const int b_col = local_index % 16 * 8;

    __local float a_shared[2][16][128] __attribute__((aligned(16)));
    float a_next[2][4];
    __local float b_shared[2][16][128] __attribute__((aligned(16)));
    float b_next[8];
    float acc[8][8];
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Whole steps of 16 along K.
    if (16 <= k_main) {
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            float a_vector[4];
            COPY4(a_vector, &a[min(row0 + a_row + i * 64, m - 1) * lda + a_k]);
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                a_shared[0][a_k + e][a_row + i * 64] = a_vector[e];
            }
        }
        if (col0 + b_col + 8 <= n) {
            COPY8(&b_shared[0][b_k][b_col], &b[b_k * ldb + col0 + b_col]);
        } else {
            #pragma unroll
            for (int e = 0; e < 8; ++e) {
                b_shared[0][b_k][b_col + e] = b[b_k * ldb + min(col0 + b_col + e, n - 1)];
            }
        }
    }
    for (int k0 = 0; k0 < k_main; k0 += 16) {
        const int slot = k0 / 16 % 2;
        const int next_slot = (k0 / 16 + 1) % 2;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (k0 + 32 <= k_main) {
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                COPY4(a_next[i], &a[min(row0 + a_row + i * 64, m - 1) * lda + k0 + a_k + 16]);
            }
            if (col0 + b_col + 8 <= n) {
                COPY8(b_next, &b[(k0 + b_k + 16) * ldb + col0 + b_col]);
            } else {
                #pragma unroll
                for (int e = 0; e < 8; ++e) {
                    b_next[e] = b[(k0 + b_k + 16) * ldb + min(col0 + b_col + e, n - 1)];
                }
            }
        }
        #pragma unroll 8
        for (int kk = 0; kk < 16; ++kk) {
            float a_frag[8];
            float b_frag[8];
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                COPY_LOCAL4(&a_frag[i * 4], &a_shared[slot][kk][local_row * 4 + i * 64]);
            }
            #pragma unroll
            for (int j = 0; j < 2; ++j) {
                COPY_LOCAL4(&b_frag[j * 4], &b_shared[slot][kk][local_col * 4 + j * 64]);
            }
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                #pragma unroll
                for (int j = 0; j < 8; ++j) {
                    acc[i][j] = fma(a_frag[i], b_frag[j], acc[i][j]);
                }
            }
        }
        if (k0 + 32 <= k_main) {
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    a_shared[next_slot][a_k + e][a_row + i * 64] = a_next[i][e];
                }
            }
            COPY8(&b_shared[next_slot][b_k][b_col], b_next);
        }
    }
    if (k_main < k) {
        // The rest of K; what lies past it counts as zero.
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            float a_vector[4];
            if (k_main + a_k + 4 <= k) {
                COPY4(a_vector, &a[min(row0 + a_row + i * 64, m - 1) * lda + k_main + a_k]);
            } else {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    a_vector[e] =
                        k_main + a_k + e < k
                            ? a[min(row0 + a_row + i * 64, m - 1) * lda + k_main + a_k + e]
                            : 0.0f;
                }
            }
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                a_shared[0][a_k + e][a_row + i * 64] = a_vector[e];
            }
        }
        if (k_main + b_k < k && col0 + b_col + 8 <= n) {
            COPY8(&b_shared[0][b_k][b_col], &b[(k_main + b_k) * ldb + col0 + b_col]);
        } else {
            #pragma unroll
            for (int e = 0; e < 8; ++e) {
                b_shared[0][b_k][b_col + e] =
                    k_main + b_k < k ? b[(k_main + b_k) * ldb + min(col0 + b_col + e, n - 1)]
                                     : 0.0f;
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll 8
        for (int kk = 0; kk < 16; ++kk) {
            float a_frag[8];
            float b_frag[8];
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                COPY_LOCAL4(&a_frag[i * 4], &a_shared[0][kk][local_row * 4 + i * 64]);
            }
            #pragma unroll
            for (int j = 0; j < 2; ++j) {
                COPY_LOCAL4(&b_frag[j * 4], &b_shared[0][kk][local_col * 4 + j * 64]);
            }
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                #pragma unroll
                for (int j = 0; j < 8; ++j) {
                    acc[i][j] = fma(a_frag[i], b_frag[j], acc[i][j]);
                }
            }
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
        const int c_row = row + i / 4 * 64 + i % 4;
        if (c_row < m) {
            #pragma unroll
            for (int j = 0; j < 8; ++j) {
                if (col + j / 4 * 64 + j % 4 < n) {
                    c[c_row * ldc + col + j / 4 * 64 + j % 4] =
                        beta == 0.0f ? alpha * acc[i][j]
                                     : fma(beta, c[c_row * ldc + col + j / 4 * 64 + j % 4],
                                         alpha * acc[i][j]);
                }
            }
        }
    }
}

#undef COPY4
#undef COPY8
#undef COPY_LOCAL4
