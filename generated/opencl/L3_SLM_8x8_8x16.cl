// L3_SLM_8x8_8x16: C = alpha * A * B + beta * C; float32
//
// Tile       64x128 of C per group, 8x8 per work-item, 8 along K per step
// Work-items 8x16 per group
// A          buffer, loads of 4 elements, to local memory
// B          buffer, loads of 4 elements
// Multiply   fused multiply-add
// C          stores of 4 elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     local size {16, 8}, global size {(n + 127) / 128 * 16, (m + 63) / 64 * 8}
// Needs      2,048 bytes of local memory
// Build      clBuildProgram(..., "-cl-std=CL1.2", ...)

// Block tile: BM x BN of C, BK along K per step.
#define BM 64
#define BN 128
#define BK 8
// Work-items along M and N.
#define THREADS_M 8
#define THREADS_N 16
// Tile of C of a work-item.
#define TM (BM / THREADS_M)
#define TN (BN / THREADS_N)

#if BM != 64 || BN != 128
#error "BM and BN cannot change here:"
#error "gemmgen emit --preset L3_SLM_8x8_8x16 --set tile=8x4"
#endif
#if BK != 8
#error "BK cannot change here:"
#error "gemmgen emit --preset L3_SLM_8x8_8x16 --set block_k=16"
#endif
#if THREADS_M != 8 || THREADS_N != 16
#error "THREADS_M and THREADS_N cannot change here:"
#error "gemmgen emit --preset L3_SLM_8x8_8x16 --set group=4x16"
#endif

// 4 neighbouring elements, at any alignment.
#define COPY4(to, from) vstore4(vload4(0, from), 0, to)

__attribute__((reqd_work_group_size(16, 8, 1))) __kernel void
L3_SLM_8x8_8x16(int m, int n, int k, float alpha, __global const float *restrict a, int lda,
                __global const float *restrict b, int ldb, float beta, __global float *restrict c,
                int ldc)
{
    const int local_row = (int)get_local_id(1);
    const int local_col = (int)get_local_id(0);
    const int row0 = (int)get_group_id(1) * BM;
    const int col0 = (int)get_group_id(0) * BN;
    const int row = row0 + local_row * 8;
    const int col = col0 + local_col * 4;
    const int k_main = k - k % BK;
    const int local_index = local_row * THREADS_N + local_col;
    const int a_row = local_index / (BK / 4);
    const int a_k = local_index % (BK / 4) * 4;

    __local float a_shared[BM][BK];
    float acc[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Whole steps of BK along K.
    if (col0 + BN <= n) {
        for (int k0 = 0; k0 < k_main; k0 += BK) {
            barrier(CLK_LOCAL_MEM_FENCE);
            COPY4(&a_shared[a_row][a_k], &a[min(row0 + a_row, m - 1) * lda + k0 + a_k]);
            barrier(CLK_LOCAL_MEM_FENCE);
            #pragma unroll 2
            for (int kk = 0; kk < BK; ++kk) {
                float a_frag[TM];
                float b_frag[TN];
                #pragma unroll
                for (int i = 0; i < TM; ++i) {
                    a_frag[i] = a_shared[local_row * 8 + i][kk];
                }
                #pragma unroll
                for (int j = 0; j < TN / 4; ++j) {
                    COPY4(&b_frag[j * 4], &b[(k0 + kk) * ldb + col + j * THREADS_N * 4]);
                }
                #pragma unroll
                for (int i = 0; i < TM; ++i) {
                    #pragma unroll
                    for (int j = 0; j < TN; ++j) {
                        acc[i][j] = fma(a_frag[i], b_frag[j], acc[i][j]);
                    }
                }
            }
        }
    } else {
        // A block at the edge of C: every load has a bounds check.
        for (int k0 = 0; k0 < k_main; k0 += BK) {
            barrier(CLK_LOCAL_MEM_FENCE);
            COPY4(&a_shared[a_row][a_k], &a[min(row0 + a_row, m - 1) * lda + k0 + a_k]);
            barrier(CLK_LOCAL_MEM_FENCE);
            #pragma unroll 2
            for (int kk = 0; kk < BK; ++kk) {
                float a_frag[TM];
                float b_frag[TN];
                #pragma unroll
                for (int i = 0; i < TM; ++i) {
                    a_frag[i] = a_shared[local_row * 8 + i][kk];
                }
                #pragma unroll
                for (int j = 0; j < TN / 4; ++j) {
                    if (col + j * THREADS_N * 4 + 4 <= n) {
                        COPY4(&b_frag[j * 4], &b[(k0 + kk) * ldb + col + j * THREADS_N * 4]);
                    } else {
                        #pragma unroll
                        for (int e = 0; e < 4; ++e) {
                            b_frag[j * 4 + e] =
                                b[(k0 + kk) * ldb + min(col + j * THREADS_N * 4 + e, n - 1)];
                        }
                    }
                }
                #pragma unroll
                for (int i = 0; i < TM; ++i) {
                    #pragma unroll
                    for (int j = 0; j < TN; ++j) {
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
        for (int kk = 0; kk < BK; ++kk) {
            float a_frag[TM];
            float b_frag[TN];
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                a_frag[i] = a_shared[local_row * 8 + i][kk];
            }
            #pragma unroll
            for (int j = 0; j < TN / 4; ++j) {
                if (k_main + kk < k && col + j * THREADS_N * 4 + 4 <= n) {
                    COPY4(&b_frag[j * 4], &b[(k_main + kk) * ldb + col + j * THREADS_N * 4]);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        b_frag[j * 4 + e] =
                            k_main + kk < k
                                ? b[(k_main + kk) * ldb + min(col + j * THREADS_N * 4 + e, n - 1)]
                                : 0.0f;
                    }
                }
            }
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                #pragma unroll
                for (int j = 0; j < TN; ++j) {
                    acc[i][j] = fma(a_frag[i], b_frag[j], acc[i][j]);
                }
            }
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        if (row + i < m) {
            #pragma unroll
            for (int j = 0; j < TN / 4; ++j) {
                if (col + j * THREADS_N * 4 + 4 <= n) {
                    float c_values[4];
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        c_values[e] = alpha * acc[i][j * 4 + e];
                    }
                    if (beta != 0.0f) {
                        float c_old[4];
                        COPY4(c_old, &c[(row + i) * ldc + col + j * THREADS_N * 4]);
                        #pragma unroll
                        for (int e = 0; e < 4; ++e) {
                            c_values[e] = fma(beta, c_old[e], c_values[e]);
                        }
                    }
                    COPY4(&c[(row + i) * ldc + col + j * THREADS_N * 4], c_values);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        if (col + j * THREADS_N * 4 + e < n) {
                            c[(row + i) * ldc + col + j * THREADS_N * 4 + e] =
                                beta == 0.0f
                                    ? alpha * acc[i][j * 4 + e]
                                    : fma(beta, c[(row + i) * ldc + col + j * THREADS_N * 4 + e],
                                          alpha * acc[i][j * 4 + e]);
                        }
                    }
                }
            }
        }
    }
}

#undef BM
#undef BN
#undef BK
#undef THREADS_M
#undef THREADS_N
#undef TM
#undef TN

#undef COPY4
