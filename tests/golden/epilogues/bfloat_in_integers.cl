// bfloat_in_integers: C = alpha * A * B + beta * C; bfloat16, sums in float32; 16-bit floats in
// integers
//
// Tile       16x16 of C per group, 2x2 per work-item, 8 along K per step
// Work-items 8x8 per group
// A          buffer, loads of single elements, to local memory
// B          buffer, loads of 4 elements, to local memory
// Multiply   fused multiply-add
// C          stores of single elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     local size {8, 8}, global size {(n + 15) / 16 * 8, (m + 15) / 16 * 8}
// Needs      512 bytes of local memory
// Build      clBuildProgram(..., "-cl-std=CL1.2", ...)

// Helpers carry the kernel's name: several files fit into one program.
#define bfloat16_to_float bfloat_in_integers_bfloat16_to_float
#define float_to_bfloat16 bfloat_in_integers_float_to_bfloat16

// Block tile: BM x BN of C, BK along K per step.
#define BM 16
#define BN 16
#define BK 8
// Work-items along M and N.
#define THREADS_M 8
#define THREADS_N 8
// Tile of C of a work-item.
#define TM (BM / THREADS_M)
#define TN (BN / THREADS_N)
// Work-items of a group.
#define THREADS (THREADS_M * THREADS_N)

#if BM != 16 || BN != 16
#error "BM and BN cannot change here: emit it again with --set tile=1x2"
#endif
#if THREADS_M != 8 || THREADS_N != 8
#error "THREADS_M and THREADS_N cannot change here:"
#error "emit it again with --set group=4x8"
#endif
#if BM * BK % THREADS != 0
#error "BM * BK must be a multiple of THREADS"
#endif
#if THREADS % BK != 0
#error "THREADS must be a multiple of BK"
#endif
#if BN * BK % 4 != 0
#error "BN * BK must be a multiple of 4"
#endif

// 4 neighbouring elements, at any alignment.
#define COPY4(to, from) vstore4(vload4(0, from), 0, to)

// bfloat16, the upper half of a float, as float.
static inline float bfloat16_to_float(ushort bits)
{
    return as_float(convert_uint(bits) << 16);
}

// A float as bfloat16, its upper half, rounded to nearest; NaN stays NaN.
static inline ushort float_to_bfloat16(float value)
{
    const uint bits = as_uint(value);
    const uint rounded = bits + 0x7fff + (bits >> 16 & 1);
    return convert_ushort(select(rounded, bits | 0x400000, isnan(value)) >> 16);
}

__attribute__((reqd_work_group_size(8, 8, 1))) __kernel void
bfloat_in_integers(int m, int n, int k, float alpha, __global const ushort *restrict a, int lda,
                   __global const ushort *restrict b, int ldb, float beta,
                   __global ushort *restrict c, int ldc)
{
    const int local_row = (int)get_local_id(1);
    const int local_col = (int)get_local_id(0);
    const int row0 = (int)get_group_id(1) * BM;
    const int col0 = (int)get_group_id(0) * BN;
    const int row = row0 + local_row;
    const int col = col0 + local_col;
    const int k_main = k - k % BK;
    const int local_index = local_row * THREADS_N + local_col;
    const int a_row = local_index / BK;
    const int a_k = local_index % BK;
    const int b_k = local_index / (BN / 4);
    const int b_col = local_index % (BN / 4) * 4;

    __local ushort a_shared[BM][BK];
    __local ushort b_shared[BK][BN];
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
        for (int i = 0; i < BM * BK / THREADS; ++i) {
            a_shared[a_row + i * (THREADS / BK)][a_k] =
                a[min(row0 + a_row + i * (THREADS / BK), m - 1) * lda + k0 + a_k];
        }
        #pragma unroll
        for (int i = 0; i < (BN * BK / 4 + THREADS - 1) / THREADS; ++i) {
            if (local_index + i * THREADS < BN * BK / 4) {
                if (k0 + b_k + i * (THREADS * 4 / BN) < k && col0 + b_col + 4 <= n) {
                    COPY4(&b_shared[b_k + i * (THREADS * 4 / BN)][b_col],
                          &b[(k0 + b_k + i * (THREADS * 4 / BN)) * ldb + col0 + b_col]);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        b_shared[b_k + i * (THREADS * 4 / BN)][b_col + e] =
                            k0 + b_k + i * (THREADS * 4 / BN) < k
                                ? b[(k0 + b_k + i * (THREADS * 4 / BN)) * ldb +
                                    min(col0 + b_col + e, n - 1)]
                                : 0;
                    }
                }
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll 2
        for (int kk = 0; kk < BK; ++kk) {
            float a_frag[TM];
            float b_frag[TN];
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                a_frag[i] = bfloat16_to_float(a_shared[local_row + i * THREADS_M][kk]);
            }
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                b_frag[j] = bfloat16_to_float(b_shared[kk][local_col + j * THREADS_N]);
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
        for (int i = 0; i < BM * BK / THREADS; ++i) {
            a_shared[a_row + i * (THREADS / BK)][a_k] =
                k_main + a_k < k
                    ? a[min(row0 + a_row + i * (THREADS / BK), m - 1) * lda + k_main + a_k]
                    : 0;
        }
        #pragma unroll
        for (int i = 0; i < (BN * BK / 4 + THREADS - 1) / THREADS; ++i) {
            if (local_index + i * THREADS < BN * BK / 4) {
                if (k_main + b_k + i * (THREADS * 4 / BN) < k && col0 + b_col + 4 <= n) {
                    COPY4(&b_shared[b_k + i * (THREADS * 4 / BN)][b_col],
                          &b[(k_main + b_k + i * (THREADS * 4 / BN)) * ldb + col0 + b_col]);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        b_shared[b_k + i * (THREADS * 4 / BN)][b_col + e] =
                            k_main + b_k + i * (THREADS * 4 / BN) < k
                                ? b[(k_main + b_k + i * (THREADS * 4 / BN)) * ldb +
                                    min(col0 + b_col + e, n - 1)]
                                : 0;
                    }
                }
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll 2
        for (int kk = 0; kk < BK; ++kk) {
            float a_frag[TM];
            float b_frag[TN];
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                a_frag[i] = bfloat16_to_float(a_shared[local_row + i * THREADS_M][kk]);
            }
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                b_frag[j] = bfloat16_to_float(b_shared[kk][local_col + j * THREADS_N]);
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
        if (row + i * THREADS_M < m) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                if (col + j * THREADS_N < n) {
                    const float c_value =
                        beta == 0.0f
                            ? alpha * acc[i][j]
                            : fma(beta,
                                  bfloat16_to_float(
                                      c[(row + i * THREADS_M) * ldc + col + j * THREADS_N]),
                                  alpha * acc[i][j]);
                    c[(row + i * THREADS_M) * ldc + col + j * THREADS_N] =
                        float_to_bfloat16(c_value);
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

#undef bfloat16_to_float
#undef float_to_bfloat16
#undef COPY4
