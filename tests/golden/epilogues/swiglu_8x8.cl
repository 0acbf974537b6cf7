// swiglu_8x8: C = alpha * A * B, then swiglu, residual; float32
//
// Tile       64x64 of C per group, 8x4 per work-item, 8 along K per step
// Work-items 8x16 per group
// A          buffer, loads of 4 elements, to local memory, transposed
// B          buffer, loads of 4 elements, to local memory
// Multiply   fused multiply-add
// C          stores of 4 elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Epilogue   swiglu: acc / (1 + exp(-acc)) * up
//            residual: acc + residual
// Takes      B: 2 n columns; acc is the sum of column j of them, up that of column n + j
//            residual: an element for each element of C, stored as C is, and no part of it
// Unread     A and B where k is 0: pass k = 0 where alpha is 0
// Launch     local size {16, 8}, global size {(n + 63) / 64 * 16, (m + 63) / 64 * 8}
// Needs      6,144 bytes of local memory
// Build      clBuildProgram(..., "-cl-std=CL1.2", ...)

// Block tile: BM x BN of A * B, BK along K per step.
#define BM 64
#define BN 128
#define BK 8
// Work-items along M and N.
#define THREADS_M 8
#define THREADS_N 16
// Tile of A * B of a work-item.
#define TM (BM / THREADS_M)
#define TN (BN / THREADS_N)
// Work-items of a group.
#define THREADS (THREADS_M * THREADS_N)

#if THREADS_M != 8 || THREADS_N != 16
#error "THREADS_M and THREADS_N cannot change here:"
#error "emit it again with --set group=4x16"
#endif
#if TM % 4 != 0 || BK % 4 != 0
#error "TM and BK must be multiples of 4"
#endif
#if BM * BK % (THREADS * 4) != 0
#error "BM * BK must be a multiple of THREADS * 4"
#endif
#if THREADS * 4 % BK != 0
#error "THREADS * 4 must be a multiple of BK"
#endif
#if BN * BK % (THREADS * 8) != 0
#error "BN * BK must be a multiple of THREADS * 8"
#endif
#if THREADS * 8 % BN != 0
#error "THREADS * 8 must be a multiple of BN"
#endif
#if TN % 8 != 0
#error "TN must be a multiple of 8"
#endif
#if BM % THREADS_M != 0
#error "BM must be a multiple of THREADS_M"
#endif
#if BN % THREADS_N != 0
#error "BN must be a multiple of THREADS_N"
#endif
#if TM <= 4
#error "TM must exceed 4 here: emit it again with --set tile=4x8"
#endif
#if TN != 8
#error "TN must be 8 here: emit it again with --set tile=4x8"
#endif
#if TN != 8
#error "TN must be 8: each half of it is one vector"
#endif

// 4 neighbouring elements, at any alignment.
#define COPY4(to, from) vstore4(vload4(0, from), 0, to)

// 4 neighbouring elements of local memory, from a multiple of 16 bytes.
#define COPY_LOCAL4(to, from) vstore4(*(const __local float4 *)(from), 0, to)

__attribute__((reqd_work_group_size(16, 8, 1))) __kernel void
swiglu_8x8(int m, int n, int k, float alpha, __global const float *restrict a, int lda,
           __global const float *restrict b, int ldb, __global float *restrict c, int ldc,
           __global const float *restrict residual, int ldr)
{
    const int local_row = (int)get_local_id(1);
    const int local_col = (int)get_local_id(0);
    const int row0 = (int)get_group_id(1) * BM;
    const int col0 = (int)get_group_id(0) * (BN / 2);
    const int row = row0 + local_row * 4;
    const int col = col0 + local_col * 4;
    const int k_main = k - k % BK;
    const int local_index = local_row * THREADS_N + local_col;
    const int a_row = local_index / (BK / 4);
    const int a_k = local_index % (BK / 4) * 4;
    const int b_k = local_index / (BN / 8);
    const int b_col = local_index % (BN / 8) * 4;

    __local float a_shared[BK][BM] __attribute__((aligned(16)));
    __local float b_shared[BK][BN] __attribute__((aligned(16)));
    float acc[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Whole steps of BK along K.
    for (int k0 = 0; k0 < k_main; k0 += BK) {
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll
        for (int i = 0; i < BM * BK / (THREADS * 4); ++i) {
            float a_vector[4];
            COPY4(a_vector, &a[min(row0 + a_row + i * (THREADS * 4 / BK), m - 1) * lda + k0 + a_k]);
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                a_shared[a_k + e][a_row + i * (THREADS * 4 / BK)] = a_vector[e];
            }
        }
        #pragma unroll
        for (int i = 0; i < BN * BK / (THREADS * 8); ++i) {
            if (col0 + b_col + 4 <= n * 2) {
                COPY4(&b_shared[b_k + i * (THREADS * 8 / BN)][b_col],
                      &b[(k0 + b_k + i * (THREADS * 8 / BN)) * ldb + col0 + b_col]);
            } else {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    b_shared[b_k + i * (THREADS * 8 / BN)][b_col + e] =
                        b[(k0 + b_k + i * (THREADS * 8 / BN)) * ldb +
                          min(col0 + b_col + e, n * 2 - 1)];
                }
            }
        }
        #pragma unroll
        for (int i = 0; i < BN * BK / (THREADS * 8); ++i) {
            if (col0 + b_col + 4 <= n) {
                COPY4(&b_shared[b_k + i * (THREADS * 8 / BN)][b_col + BN / 2],
                      &b[(k0 + b_k + i * (THREADS * 8 / BN)) * ldb + n + col0 + b_col]);
            } else {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    b_shared[b_k + i * (THREADS * 8 / BN)][b_col + e + BN / 2] =
                        b[(k0 + b_k + i * (THREADS * 8 / BN)) * ldb +
                          min(n + col0 + b_col + e, n * 2 - 1)];
                }
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll 4
        for (int kk = 0; kk < BK; ++kk) {
            float a_frag[TM];
            float b_frag[TN];
            #pragma unroll
            for (int i = 0; i < TM / 4; ++i) {
                COPY_LOCAL4(&a_frag[i * 4], &a_shared[kk][local_row * 4 + i * THREADS_M * 4]);
            }
            #pragma unroll
            for (int j = 0; j < TN / 4; ++j) {
                COPY_LOCAL4(&b_frag[j * 4], &b_shared[kk][local_col * 4 + j * THREADS_N * 4]);
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
                a_shared[a_k + e][a_row + i * (THREADS * 4 / BK)] = a_vector[e];
            }
        }
        #pragma unroll
        for (int i = 0; i < BN * BK / (THREADS * 8); ++i) {
            if (k_main + b_k + i * (THREADS * 8 / BN) < k && col0 + b_col + 4 <= n * 2) {
                COPY4(&b_shared[b_k + i * (THREADS * 8 / BN)][b_col],
                      &b[(k_main + b_k + i * (THREADS * 8 / BN)) * ldb + col0 + b_col]);
            } else {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    b_shared[b_k + i * (THREADS * 8 / BN)][b_col + e] =
                        k_main + b_k + i * (THREADS * 8 / BN) < k
                            ? b[(k_main + b_k + i * (THREADS * 8 / BN)) * ldb +
                                min(col0 + b_col + e, n * 2 - 1)]
                            : 0.0f;
                }
            }
        }
        #pragma unroll
        for (int i = 0; i < BN * BK / (THREADS * 8); ++i) {
            if (k_main + b_k + i * (THREADS * 8 / BN) < k && col0 + b_col + 4 <= n) {
                COPY4(&b_shared[b_k + i * (THREADS * 8 / BN)][b_col + BN / 2],
                      &b[(k_main + b_k + i * (THREADS * 8 / BN)) * ldb + n + col0 + b_col]);
            } else {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    b_shared[b_k + i * (THREADS * 8 / BN)][b_col + e + BN / 2] =
                        k_main + b_k + i * (THREADS * 8 / BN) < k
                            ? b[(k_main + b_k + i * (THREADS * 8 / BN)) * ldb +
                                min(n + col0 + b_col + e, n * 2 - 1)]
                            : 0.0f;
                }
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll 4
        for (int kk = 0; kk < BK; ++kk) {
            float a_frag[TM];
            float b_frag[TN];
            #pragma unroll
            for (int i = 0; i < TM / 4; ++i) {
                COPY_LOCAL4(&a_frag[i * 4], &a_shared[kk][local_row * 4 + i * THREADS_M * 4]);
            }
            #pragma unroll
            for (int j = 0; j < TN / 4; ++j) {
                COPY_LOCAL4(&b_frag[j * 4], &b_shared[kk][local_col * 4 + j * THREADS_N * 4]);
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

    // swiglu: one element of C of the sums in both halves of B's columns.
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN / 2; ++j) {
            const float gate = alpha * acc[i][j];
            const float up = alpha * acc[i][j + TN / 2];
            acc[i][j] = gate / (1.0f + exp(-gate)) * up;
        }
    }

    // C = alpha * A * B, then swiglu, residual.
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        const int c_row = row + i / 4 * THREADS_M * 4 + i % 4;
        if (c_row < m) {
            #pragma unroll
            for (int j = 0; j < TN / 8; ++j) {
                if (col + j * 4 + 4 <= n) {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        acc[i][j * 4 + e] += residual[c_row * ldr + col + j * 4 + e];
                    }
                    COPY4(&c[c_row * ldc + col + j * 4], &acc[i][j * 4]);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        if (col + j * 4 + e < n) {
                            const int c_col = col + j * 4 + e;
                            c[c_row * ldc + c_col] =
                                acc[i][j * 4 + e] + residual[c_row * ldr + c_col];
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
#undef THREADS

#undef COPY4
#undef COPY_LOCAL4
