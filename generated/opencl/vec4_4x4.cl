// vec4_4x4: C = alpha * A * B + beta * C; float32
//
// Tile       64x64 of C per group, 4x4 per work-item, 4 along K per step
// Work-items 16x16 per group
// A          buffer, loads of 4 elements
// B          buffer, loads of 4 elements
// Multiply   fused multiply-add
// C          stores of single elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     local size {16, 16}, global size {(n + 63) / 64 * 16, (m + 63) / 64 * 16}
// Build      clBuildProgram(..., "-cl-std=CL1.2", ...)

// Block tile: BM x BN of C, BK along K per step.
#define BM 64
#define BN 64
#define BK 4
// Work-items along M and N.
#define THREADS_M 16
#define THREADS_N 16
// Tile of C of a work-item.
#define TM (BM / THREADS_M)
#define TN (BN / THREADS_N)

#if BM != 64 || BN != 64
#error "BM and BN cannot change here: gemmgen emit --preset vec4_4x4 --set tile=8x4"
#endif
#if BK != 4
#error "BK cannot change here: gemmgen emit --preset vec4_4x4 --set block_k=8"
#endif
#if THREADS_M != 16 || THREADS_N != 16
#error "THREADS_M and THREADS_N cannot change here:"
#error "gemmgen emit --preset vec4_4x4 --set group=8x16"
#endif

// 4 neighbouring elements, at any alignment.
#define COPY4(to, from) vstore4(vload4(0, from), 0, to)

__attribute__((reqd_work_group_size(16, 16, 1))) __kernel void
vec4_4x4(int m, int n, int k, float alpha, __global const float *restrict a, int lda,
         __global const float *restrict b, int ldb, float beta, __global float *restrict c, int ldc)
{
    const int col0 = (int)get_group_id(0) * BN;
    const int row = (int)get_group_id(1) * BM + (int)get_local_id(1) * 4;
    const int col = col0 + (int)get_local_id(0) * 4;
    const int k_main = k - k % BK;

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
            float a_frag[TM][4];
            float b_frag[4][TN];
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                COPY4(a_frag[i], &a[min(row + i, m - 1) * lda + k0]);
            }
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                COPY4(b_frag[i], &b[(k0 + i) * ldb + col]);
            }
            #pragma unroll
            for (int p = 0; p < 4; ++p) {
                #pragma unroll
                for (int i = 0; i < TM; ++i) {
                    #pragma unroll
                    for (int j = 0; j < TN; ++j) {
                        acc[i][j] = fma(a_frag[i][p], b_frag[p][j], acc[i][j]);
                    }
                }
            }
        }
    } else {
        // A block at the edge of C: every load has a bounds check.
        for (int k0 = 0; k0 < k_main; k0 += BK) {
            float a_frag[TM][4];
            float b_frag[4][TN];
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                COPY4(a_frag[i], &a[min(row + i, m - 1) * lda + k0]);
            }
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                if (col + 4 <= n) {
                    COPY4(b_frag[i], &b[(k0 + i) * ldb + col]);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        b_frag[i][e] = b[(k0 + i) * ldb + min(col + e, n - 1)];
                    }
                }
            }
            #pragma unroll
            for (int p = 0; p < 4; ++p) {
                #pragma unroll
                for (int i = 0; i < TM; ++i) {
                    #pragma unroll
                    for (int j = 0; j < TN; ++j) {
                        acc[i][j] = fma(a_frag[i][p], b_frag[p][j], acc[i][j]);
                    }
                }
            }
        }
    }
    if (k_main < k) {
        // The rest of K; what lies past it counts as zero.
        float a_frag[TM][4];
        float b_frag[4][TN];
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                a_frag[i][e] = k_main + e < k ? a[min(row + i, m - 1) * lda + k_main + e] : 0.0f;
            }
        }
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (k_main + i < k && col + 4 <= n) {
                COPY4(b_frag[i], &b[(k_main + i) * ldb + col]);
            } else {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    b_frag[i][e] =
                        k_main + i < k ? b[(k_main + i) * ldb + min(col + e, n - 1)] : 0.0f;
                }
            }
        }
        #pragma unroll
        for (int p = 0; p < 4; ++p) {
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                #pragma unroll
                for (int j = 0; j < TN; ++j) {
                    acc[i][j] = fma(a_frag[i][p], b_frag[p][j], acc[i][j]);
                }
            }
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        if (row + i < m) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                if (col + j < n) {
                    c[(row + i) * ldc + col + j] =
                        beta == 0.0f ? alpha * acc[i][j]
                                     : fma(beta, c[(row + i) * ldc + col + j], alpha * acc[i][j]);
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
