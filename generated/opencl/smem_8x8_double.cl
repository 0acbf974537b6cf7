// smem_8x8_double: C = alpha * A * B + beta * C; float32
//
// Tile       128x128 of C per group, 8x8 per work-item, 8 along K per step
// Work-items 16x16 per group
// A          buffer, loads of 4 elements, 2 stages in local memory, transposed, rows padded by 4,
//            registers double-buffered
// B          buffer, loads of 4 elements, 2 stages in local memory, registers double-buffered
// Pipeline   the next stage is loaded into registers before the arithmetic, and stored after it
// Multiply   fused multiply-add
// C          stores of 4 elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     local size {16, 16}, global size {(n + 127) / 128 * 16, (m + 127) / 128 * 16}
// Needs      16,640 bytes of local memory
//            on Intel's GPUs, and only there, the build option -cl-intel-256-GRF-per-thread
// Build      clBuildProgram(..., "-cl-std=CL1.2", ...)

// Block tile: BM x BN of C, BK along K per step.
#define BM 128
#define BN 128
#define BK 8
// Stages of the pipeline.
#define STAGES 2
// Work-items along M and N.
#define THREADS_M 16
#define THREADS_N 16
// Tile of C of a work-item.
#define TM (BM / THREADS_M)
#define TN (BN / THREADS_N)
// Work-items of a group.
#define THREADS (THREADS_M * THREADS_N)

#if STAGES != 2
#error "STAGES cannot change here:"
#error "gemmgen emit --preset smem_8x8_double --set stages=4"
#endif
#if THREADS_M != 16 || THREADS_N != 16
#error "THREADS_M and THREADS_N cannot change here:"
#error "gemmgen emit --preset smem_8x8_double --set group=8x16"
#endif
#if TM % 4 != 0 || TN % 4 != 0 || BK % 4 != 0
#error "TM, TN and BK must be multiples of 4"
#endif
#if BM * BK % (THREADS * 4) != 0 || BN * BK % (THREADS * 4) != 0
#error "BM * BK and BN * BK must be multiples of THREADS * 4"
#endif
#if THREADS * 4 % BK != 0
#error "THREADS * 4 must be a multiple of BK"
#endif
#if THREADS * 4 % BN != 0
#error "THREADS * 4 must be a multiple of BN"
#endif
#if BM % THREADS_M != 0
#error "BM must be a multiple of THREADS_M"
#endif
#if BN % THREADS_N != 0
#error "BN must be a multiple of THREADS_N"
#endif
#if TM <= 4 || TN <= 4
#error "TM and TN must exceed 4 here:"
#error "gemmgen emit --preset smem_8x8_double --set tile=4x8"
#endif

// 4 neighbouring elements, at any alignment.
#define COPY4(to, from) vstore4(vload4(0, from), 0, to)

// 4 neighbouring elements of local memory, from a multiple of 16 bytes.
#define COPY_LOCAL4(to, from) vstore4(*(const __local float4 *)(from), 0, to)

__attribute__((reqd_work_group_size(16, 16, 1))) __kernel void
smem_8x8_double(int m, int n, int k, float alpha, __global const float *restrict a, int lda,
                __global const float *restrict b, int ldb, float beta, __global float *restrict c,
                int ldc)
{
    const int local_row = (int)get_local_id(1);
    const int local_col = (int)get_local_id(0);
    const int row0 = (int)get_group_id(1) * BM;
    const int col0 = (int)get_group_id(0) * BN;
    const int row = row0 + local_row * 4;
    const int col = col0 + local_col * 4;
    const int k_main = k - k % BK;
    const int local_index = local_row * THREADS_N + local_col;
    const int a_row = local_index / (BK / 4);
    const int a_k = local_index % (BK / 4) * 4;
    const int b_k = local_index / (BN / 4);
    const int b_col = local_index % (BN / 4) * 4;

    __local float a_shared[STAGES][BK][BM + 4] __attribute__((aligned(16)));
    float a_next[BM * BK / (THREADS * 4)][4];
    __local float b_shared[STAGES][BK][BN] __attribute__((aligned(16)));
    float b_next[BN * BK / (THREADS * 4)][4];
    float acc[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Whole steps of BK along K.
    if (k_main >= BK) {
        #pragma unroll
        for (int i = 0; i < BM * BK / (THREADS * 4); ++i) {
            float a_vector[4];
            COPY4(a_vector, &a[min(row0 + a_row + i * (THREADS * 4 / BK), m - 1) * lda + a_k]);
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                a_shared[0][a_k + e][a_row + i * (THREADS * 4 / BK)] = a_vector[e];
            }
        }
        #pragma unroll
        for (int i = 0; i < BN * BK / (THREADS * 4); ++i) {
            if (col0 + b_col + 4 <= n) {
                COPY4(&b_shared[0][b_k + i * (THREADS * 4 / BN)][b_col],
                      &b[(b_k + i * (THREADS * 4 / BN)) * ldb + col0 + b_col]);
            } else {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    b_shared[0][b_k + i * (THREADS * 4 / BN)][b_col + e] =
                        b[(b_k + i * (THREADS * 4 / BN)) * ldb + min(col0 + b_col + e, n - 1)];
                }
            }
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k0 = 0; k0 < k_main; k0 += BK) {
        const int stage = k0 / BK % STAGES;
        const int load_stage = (k0 / BK + STAGES - 1) % STAGES;
        if (k0 + STAGES * BK <= k_main) {
            #pragma unroll
            for (int i = 0; i < BM * BK / (THREADS * 4); ++i) {
                COPY4(a_next[i], &a[min(row0 + a_row + i * (THREADS * 4 / BK), m - 1) * lda + k0 +
                                    a_k + (STAGES - 1) * BK]);
            }
            #pragma unroll
            for (int i = 0; i < BN * BK / (THREADS * 4); ++i) {
                if (col0 + b_col + 4 <= n) {
                    COPY4(b_next[i],
                          &b[(k0 + b_k + i * (THREADS * 4 / BN) + (STAGES - 1) * BK) * ldb + col0 +
                             b_col]);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        b_next[i][e] =
                            b[(k0 + b_k + i * (THREADS * 4 / BN) + (STAGES - 1) * BK) * ldb +
                              min(col0 + b_col + e, n - 1)];
                    }
                }
            }
        }
        float a_frag[2][TM];
        float b_frag[2][TN];
        #pragma unroll
        for (int i = 0; i < TM / 4; ++i) {
            COPY_LOCAL4(&a_frag[0][i * 4], &a_shared[stage][0][local_row * 4 + i * THREADS_M * 4]);
        }
        #pragma unroll
        for (int j = 0; j < TN / 4; ++j) {
            COPY_LOCAL4(&b_frag[0][j * 4], &b_shared[stage][0][local_col * 4 + j * THREADS_N * 4]);
        }
        #pragma unroll
        for (int kk = 0; kk < BK; ++kk) {
            if (kk + 1 < BK) {
                #pragma unroll
                for (int i = 0; i < TM / 4; ++i) {
                    COPY_LOCAL4(&a_frag[(kk + 1) % 2][i * 4],
                                &a_shared[stage][kk + 1][local_row * 4 + i * THREADS_M * 4]);
                }
                #pragma unroll
                for (int j = 0; j < TN / 4; ++j) {
                    COPY_LOCAL4(&b_frag[(kk + 1) % 2][j * 4],
                                &b_shared[stage][kk + 1][local_col * 4 + j * THREADS_N * 4]);
                }
            }
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                #pragma unroll
                for (int j = 0; j < TN; ++j) {
                    acc[i][j] = fma(a_frag[kk % 2][i], b_frag[kk % 2][j], acc[i][j]);
                }
            }
        }
        if (k0 + STAGES * BK <= k_main) {
            #pragma unroll
            for (int i = 0; i < BM * BK / (THREADS * 4); ++i) {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    a_shared[load_stage][a_k + e][a_row + i * (THREADS * 4 / BK)] = a_next[i][e];
                }
            }
            #pragma unroll
            for (int i = 0; i < BN * BK / (THREADS * 4); ++i) {
                COPY4(&b_shared[load_stage][b_k + i * (THREADS * 4 / BN)][b_col], b_next[i]);
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (k_main < k) {
        // The rest of K; what lies past it counts as zero.
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll
        for (int i = 0; i < BM * BK / (THREADS * 4); ++i) {
            float a_vector[4];
            if (k_main + a_k + 4 <= k) {
                COPY4(a_vector,
                      &a[min(row0 + a_row + i * (THREADS * 4 / BK), m - 1) * lda + k_main + a_k]);
            } else {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    a_vector[e] = k_main + a_k + e < k
                                      ? a[min(row0 + a_row + i * (THREADS * 4 / BK), m - 1) * lda +
                                          k_main + a_k + e]
                                      : 0.0f;
                }
            }
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                a_shared[0][a_k + e][a_row + i * (THREADS * 4 / BK)] = a_vector[e];
            }
        }
        #pragma unroll
        for (int i = 0; i < BN * BK / (THREADS * 4); ++i) {
            if (k_main + b_k + i * (THREADS * 4 / BN) < k && col0 + b_col + 4 <= n) {
                COPY4(&b_shared[0][b_k + i * (THREADS * 4 / BN)][b_col],
                      &b[(k_main + b_k + i * (THREADS * 4 / BN)) * ldb + col0 + b_col]);
            } else {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    b_shared[0][b_k + i * (THREADS * 4 / BN)][b_col + e] =
                        k_main + b_k + i * (THREADS * 4 / BN) < k
                            ? b[(k_main + b_k + i * (THREADS * 4 / BN)) * ldb +
                                min(col0 + b_col + e, n - 1)]
                            : 0.0f;
                }
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        float a_frag[2][TM];
        float b_frag[2][TN];
        #pragma unroll
        for (int i = 0; i < TM / 4; ++i) {
            COPY_LOCAL4(&a_frag[0][i * 4], &a_shared[0][0][local_row * 4 + i * THREADS_M * 4]);
        }
        #pragma unroll
        for (int j = 0; j < TN / 4; ++j) {
            COPY_LOCAL4(&b_frag[0][j * 4], &b_shared[0][0][local_col * 4 + j * THREADS_N * 4]);
        }
        #pragma unroll
        for (int kk = 0; kk < BK; ++kk) {
            if (kk + 1 < BK) {
                #pragma unroll
                for (int i = 0; i < TM / 4; ++i) {
                    COPY_LOCAL4(&a_frag[(kk + 1) % 2][i * 4],
                                &a_shared[0][kk + 1][local_row * 4 + i * THREADS_M * 4]);
                }
                #pragma unroll
                for (int j = 0; j < TN / 4; ++j) {
                    COPY_LOCAL4(&b_frag[(kk + 1) % 2][j * 4],
                                &b_shared[0][kk + 1][local_col * 4 + j * THREADS_N * 4]);
                }
            }
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                #pragma unroll
                for (int j = 0; j < TN; ++j) {
                    acc[i][j] = fma(a_frag[kk % 2][i], b_frag[kk % 2][j], acc[i][j]);
                }
            }
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        const int c_row = row + i / 4 * THREADS_M * 4 + i % 4;
        if (c_row < m) {
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
                        COPY4(c_old, &c[c_row * ldc + col + j * THREADS_N * 4]);
                        #pragma unroll
                        for (int e = 0; e < 4; ++e) {
                            c_values[e] = fma(beta, c_old[e], c_values[e]);
                        }
                    }
                    COPY4(&c[c_row * ldc + col + j * THREADS_N * 4], c_values);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        if (col + j * THREADS_N * 4 + e < n) {
                            c[c_row * ldc + col + j * THREADS_N * 4 + e] =
                                beta == 0.0f
                                    ? alpha * acc[i][j * 4 + e]
                                    : fma(beta, c[c_row * ldc + col + j * THREADS_N * 4 + e],
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
#undef STAGES
#undef THREADS_M
#undef THREADS_N
#undef TM
#undef TN
#undef THREADS

#undef COPY4
#undef COPY_LOCAL4
