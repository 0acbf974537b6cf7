// scaled_residual_split4: C = alpha * A * B + beta * C, then scale, row_scale, residual, clamp(-4,
// 4), a formula; float16, sums in float32
//
// Tile       32x32 of C per group, 4x4 per work-item, 4 along K per step
// Work-items 8x8 per group
// A          buffer, loads of single elements
// B          buffer, loads of single elements
// Multiply   fused multiply-add
// C          stores of single elements, to the workspace
// Grid       split-K: 4 parts, added up by a second kernel
// Sizes      any m, n, k; every matrix spans less than 2^31 elements; the workspace less than 2^31
//            elements
// Epilogue   scale: acc * scale
//            row_scale: acc * row_scale
//            residual: acc + residual
//            clamp: -4 if acc < -4 else 4 if acc > 4 else acc
//            expr: max(acc, 0.5 * c) if row != col else tanh(acc)
// Takes      scale: an element for each column of C
//            row_scale: an element for each row of C
//            residual: an element for each element of C, stored as C is, and no part of it
// Unread     A and B where k is 0: pass k = 0 where alpha is 0
// Launch     scaled_residual_split4: local size {8, 8}, global size {(m + 31) / 32 * ((n + 31) /
//                32) * 32, 8}
//            scaled_residual_split4_total: local size {256, 1}, global size {m * ((n + 255) / 256)
//                * 256, 1}
// Needs      a workspace of m * n * 4 elements
// Build      clBuildProgram(..., "-cl-std=CL1.2", ...)

// Helpers carry the kernel's name: several files fit into one program.
#define float_to_half scaled_residual_split4_float_to_half
#define half_to_float scaled_residual_split4_half_to_float

// Block tile: BM x BN of C, BK along K per step.
#define BM 32
#define BN 32
#define BK 4
// Parts of K (split-K).
#define SPLIT_K 4
// Work-items along M and N.
#define THREADS_M 8
#define THREADS_N 8
// Tile of C of a work-item.
#define TM (BM / THREADS_M)
#define TN (BN / THREADS_N)

#if BM != 32 || BN != 32
#error "BM and BN cannot change here: emit it again with --set tile=2x4"
#endif
#if BK != 4
#error "BK cannot change here: emit it again with --set block_k=8"
#endif
#if SPLIT_K != 4
#error "SPLIT_K cannot change here: emit it again with --set split_k=8"
#endif
#if THREADS_M != 8 || THREADS_N != 8
#error "THREADS_M and THREADS_N cannot change here:"
#error "emit it again with --set group=4x8"
#endif

// A float as float16 lies in memory, rounded to nearest.
static inline ushort float_to_half(float value)
{
    ushort bits;
    vstore_half(value, 0, (half *)&bits);
    return bits;
}

// float16 as it lies in memory, as float.
static inline float half_to_float(ushort bits)
{
    return vload_half(0, (const half *)&bits);
}

__attribute__((reqd_work_group_size(8, 8, 1))) __kernel void
scaled_residual_split4(int m, int n, int k, float alpha, __global const ushort *restrict a, int lda,
                       __global const ushort *restrict b, int ldb,
                       __global float *restrict workspace)
{
    const int blocks_down = (m + BM - 1) / BM;
    const int blocks_across = (n + BN - 1) / BN;
    const int part = (int)get_group_id(0) / (blocks_down * blocks_across);
    const int block = (int)get_group_id(0) % (blocks_down * blocks_across);
    const int block_row = block / blocks_across;
    const int block_col = block % blocks_across;
    const int row0 = block_row * BM;
    const int col0 = block_col * BN;
    const int row = row0 + (int)get_local_id(1);
    const int col = col0 + (int)get_local_id(0);
    const int k_part = (k + SPLIT_K * BK - 1) / (SPLIT_K * BK) * BK;
    const int k_begin = part * k_part;
    const int k_end = min(k, k_begin + k_part);
    const int k_main = min(k - k % BK, k_end);

    float acc[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Whole steps of BK along K.
    for (int k0 = k_begin; k0 < k_main; k0 += BK) {
        #pragma unroll
        for (int kk = 0; kk < BK; ++kk) {
            float a_frag[TM];
            float b_frag[TN];
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                a_frag[i] = half_to_float(a[min(row + i * THREADS_M, m - 1) * lda + k0 + kk]);
            }
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                b_frag[j] = half_to_float(b[(k0 + kk) * ldb + min(col + j * THREADS_N, n - 1)]);
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
    if (k_begin <= k_main && k_main < k_end) {
        // The rest of K; what lies past it counts as zero.
        #pragma unroll
        for (int kk = 0; kk < BK; ++kk) {
            float a_frag[TM];
            float b_frag[TN];
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                a_frag[i] =
                    k_main + kk < k
                        ? half_to_float(a[min(row + i * THREADS_M, m - 1) * lda + k_main + kk])
                        : 0.0f;
            }
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                b_frag[j] =
                    k_main + kk < k
                        ? half_to_float(b[(k_main + kk) * ldb + min(col + j * THREADS_N, n - 1)])
                        : 0.0f;
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

    // Split-K: this part's partial sums.
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        if (row + i * THREADS_M < m) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                if (col + j * THREADS_N < n) {
                    workspace[part * (m * n) + (row + i * THREADS_M) * n + col + j * THREADS_N] =
                        alpha * acc[i][j];
                }
            }
        }
    }
}

__attribute__((reqd_work_group_size(256, 1, 1))) __kernel void scaled_residual_split4_total(
    int m, int n, __global const float *restrict workspace, float beta, __global ushort *restrict c,
    int ldc, __global const ushort *restrict scale, __global const ushort *restrict row_scale,
    __global const ushort *restrict residual, int ldr)
{
    const int blocks_across = (n + 255) / 256;
    const int row = (int)get_group_id(0) / blocks_across;
    const int col = (int)get_group_id(0) % blocks_across * 256 + (int)get_local_id(0);

    if (col < n) {
        // Reduction of split-K: the partial sums in order.
        float total = workspace[row * n + col];
        #pragma unroll
        for (int s = 1; s < SPLIT_K; ++s) {
            total += workspace[s * (m * n) + row * n + col];
        }
        const float value =
            beta == 0.0f ? total : fma(beta, half_to_float(c[row * ldc + col]), total);
        const float after_residual =
            value * half_to_float(scale[col]) * half_to_float(row_scale[row]) +
            half_to_float(residual[row * ldr + col]);
        const float after_clamp = after_residual < -4.0f  ? -4.0f
                                  : after_residual > 4.0f ? 4.0f
                                                          : after_residual;
        const float c_value = row != col
                                  ? fmax(after_clamp, 0.5f * half_to_float(c[row * ldc + col]))
                                  : tanh(after_clamp);
        c[row * ldc + col] = float_to_half(c_value);
    }
}

#undef BM
#undef BN
#undef BK
#undef SPLIT_K
#undef THREADS_M
#undef THREADS_N
#undef TM
#undef TN

#undef float_to_half
#undef half_to_float
