// L3_SLM_8x8_4x16: C = alpha * A * B + beta * C; float32
//
// Schedule   8x8 of C per work-item, 4x16 work-items per group (32x128 of C), 8 along K per
//            iteration, stores of 4 elements
// A          buffer, loads of 4 elements, through local memory
// B          buffer, loads of 4 elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0
// Launch     local size {16, 4}, global size {(n + 127) / 128 * 16, (m + 31) / 32 * 4}
// Needs      1,024 bytes of local memory
// Build      clBuildProgram(..., "-cl-std=CL1.2", ...)

// 4 neighbouring elements, at any alignment.
#define COPY4(to, from) vstore4(vload4(0, from), 0, to)

__attribute__((reqd_work_group_size(16, 4, 1)))
__kernel void L3_SLM_8x8_4x16(int m, int n, int k, float alpha, __global const float *restrict a,
                              int lda, __global const float *restrict b, int ldb, float beta,
                              __global float *restrict c, int ldc)
{
    const int local_row = (int)get_local_id(1);
    const int local_col = (int)get_local_id(0);
    const int row0 = (int)get_group_id(1) * 32;
    const int col0 = (int)get_group_id(0) * 128;
    const int row = row0 + local_row * 8;
    const int col = col0 + local_col * 4;
    const int k_main = k - k % 8;
    const int local_index = local_row * 16 + local_col;
    const int a_row = local_index / 2;
    const int a_k = local_index % 2 * 4;

    __local float a_shared[32][8];
    float acc[8][8];
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Whole steps of 8 along K.
    if (col0 + 128 <= n) {
        for (int k0 = 0; k0 < k_main; k0 += 8) {
            barrier(CLK_LOCAL_MEM_FENCE);
            COPY4(&a_shared[a_row][a_k], &a[min(row0 + a_row, m - 1) * lda + k0 + a_k]);
            barrier(CLK_LOCAL_MEM_FENCE);
            #pragma unroll 2
            for (int kk = 0; kk < 8; ++kk) {
                float a_frag[8];
                float b_frag[8];
                #pragma unroll
                for (int i = 0; i < 8; ++i) {
                    a_frag[i] = a_shared[local_row * 8 + i][kk];
                }
                #pragma unroll
                for (int j = 0; j < 2; ++j) {
                    COPY4(&b_frag[j * 4], &b[(k0 + kk) * ldb + col + j * 64]);
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
    } else {
        // At the edge of C, each load asks whether it is inside.
        for (int k0 = 0; k0 < k_main; k0 += 8) {
            barrier(CLK_LOCAL_MEM_FENCE);
            COPY4(&a_shared[a_row][a_k], &a[min(row0 + a_row, m - 1) * lda + k0 + a_k]);
            barrier(CLK_LOCAL_MEM_FENCE);
            #pragma unroll 2
            for (int kk = 0; kk < 8; ++kk) {
                float a_frag[8];
                float b_frag[8];
                #pragma unroll
                for (int i = 0; i < 8; ++i) {
                    a_frag[i] = a_shared[local_row * 8 + i][kk];
                }
                #pragma unroll
                for (int j = 0; j < 2; ++j) {
                    if (col + j * 64 + 4 <= n) {
                        COPY4(&b_frag[j * 4], &b[(k0 + kk) * ldb + col + j * 64]);
                    } else {
                        #pragma unroll
                        for (int e = 0; e < 4; ++e) {
                            b_frag[j * 4 + e] = b[(k0 + kk) * ldb + min(col + j * 64 + e, n - 1)];
                        }
                    }
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
    }
    if (k_main < k) {
        // The rest of K; what lies past it counts as zero.
        barrier(CLK_LOCAL_MEM_FENCE);
        if (k_main + a_k + 4 <= k) {
            COPY4(&a_shared[a_row][a_k], &a[min(row0 + a_row, m - 1) * lda + k_main + a_k]);
        } else {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                a_shared[a_row][a_k + e] =
                    k_main + a_k + e < k ? a[min(row0 + a_row, m - 1) * lda + k_main + a_k + e]
                                         : 0.0f;
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll 2
        for (int kk = 0; kk < 8; ++kk) {
            float a_frag[8];
            float b_frag[8];
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                a_frag[i] = a_shared[local_row * 8 + i][kk];
            }
            #pragma unroll
            for (int j = 0; j < 2; ++j) {
                if (k_main + kk < k && col + j * 64 + 4 <= n) {
                    COPY4(&b_frag[j * 4], &b[(k_main + kk) * ldb + col + j * 64]);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        b_frag[j * 4 + e] =
                            k_main + kk < k ? b[(k_main + kk) * ldb + min(col + j * 64 + e, n - 1)]
                                            : 0.0f;
                    }
                }
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
        if (row + i < m) {
            #pragma unroll
            for (int j = 0; j < 2; ++j) {
                if (col + j * 64 + 4 <= n) {
                    float c_values[4];
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        c_values[e] = alpha * acc[i][j * 4 + e];
                    }
                    if (beta != 0.0f) {
                        float c_old[4];
                        COPY4(c_old, &c[(row + i) * ldc + col + j * 64]);
                        #pragma unroll
                        for (int e = 0; e < 4; ++e) {
                            c_values[e] = fma(beta, c_old[e], c_values[e]);
                        }
                    }
                    COPY4(&c[(row + i) * ldc + col + j * 64], c_values);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        if (col + j * 64 + e < n) {
                            c[(row + i) * ldc + col + j * 64 + e] =
                                beta == 0.0f ? alpha * acc[i][j * 4 + e]
                                             : fma(beta, c[(row + i) * ldc + col + j * 64 + e],
                                                 alpha * acc[i][j * 4 + e]);
                        }
                    }
                }
            }
        }
    }
}

#undef COPY4
