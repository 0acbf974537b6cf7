// scaled_residual_split4: C = alpha * A * B + beta * C, then scale, row_scale, residual, clamp(-4, 4), a formula; float16, sums in float32
//
// Schedule   4x4 of C per work-item, 8x8 work-items per group (32x32 of C), 4 along K per
//            iteration, K in 4 parts that a second kernel adds up
// A          buffer, loads of single elements
// B          buffer, loads of single elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements; the workspace less than 2^31
//            elements
// Epilogue   scale: acc * scale
//            row_scale: acc * row_scale
//            residual: acc + residual
//            clamp: -4 if acc < -4 else 4 if acc > 4 else acc
//            expr: max(acc, 0.5 * c) if row != col else tanh(acc)
// Takes      scale: an element for each column of C
//            row_scale: an element for each row of C
//            residual: an element for each element of C, stored as C is
// Unread     A and B where k is 0, which serves for alpha = 0 as well
// Launch     scaled_residual_split4: local size {8, 8}, global size {(m + 31) / 32 * ((n + 31) /
//                32) * 32, 8}
//            scaled_residual_split4_total: local size {256, 1}, global size {m * ((n + 255) / 256)
//                * 256, 1}
// Needs      a workspace of m * n * 4 elements
// Build      clBuildProgram(..., "-cl-std=CL1.2", ...)

// Names of this file alone, so that a program can hold others, too.
#define float_to_half scaled_residual_split4_float_to_half
#define half_to_float scaled_residual_split4_half_to_float

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

__attribute__((reqd_work_group_size(8, 8, 1)))
__kernel void scaled_residual_split4(int m, int n, int k, float alpha,
                                     __global const ushort *restrict a, int lda,
                                     __global const ushort *restrict b, int ldb,
                                     __global float *restrict workspace)
{
    const int blocks_down = (m + 31) / 32;
    const int blocks_across = (n + 31) / 32;
    const int part = (int)get_group_id(0) / (blocks_down * blocks_across);
    const int block = (int)get_group_id(0) % (blocks_down * blocks_across);
    const int block_row = block / blocks_across;
    const int block_col = block % blocks_across;
    const int row0 = block_row * 32;
    const int col0 = block_col * 32;
    const int row = row0 + (int)get_local_id(1);
    const int col = col0 + (int)get_local_id(0);
    const int k_part = (k + 15) / 16 * 4;
    const int k_begin = part * k_part;
    const int k_end = min(k, k_begin + k_part);
    const int k_main = min(k - k % 4, k_end);

    float acc[4][4];
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Whole steps of 4 along K.
    for (int k0 = k_begin; k0 < k_main; k0 += 4) {
        #pragma unroll
        for (int kk = 0; kk < 4; ++kk) {
            float a_frag[4];
            float b_frag[4];
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                a_frag[i] = half_to_float(a[min(row + i * 8, m - 1) * lda + k0 + kk]);
            }
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                b_frag[j] = half_to_float(b[(k0 + kk) * ldb + min(col + j * 8, n - 1)]);
            }
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                #pragma unroll
                for (int j = 0; j < 4; ++j) {
                    acc[i][j] = fma(a_frag[i], b_frag[j], acc[i][j]);
                }
            }
        }
    }
    if (k_begin <= k_main && k_main < k_end) {
        // The rest of K; what lies past it counts as zero.
        #pragma unroll
        for (int kk = 0; kk < 4; ++kk) {
            float a_frag[4];
            float b_frag[4];
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                a_frag[i] =
                    k_main + kk < k ? half_to_float(a[min(row + i * 8, m - 1) * lda + k_main + kk])
                                    : 0.0f;
            }
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                b_frag[j] =
                    k_main + kk < k
                        ? half_to_float(b[(k_main + kk) * ldb + min(col + j * 8, n - 1)])
                        : 0.0f;
            }
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                #pragma unroll
                for (int j = 0; j < 4; ++j) {
                    acc[i][j] = fma(a_frag[i], b_frag[j], acc[i][j]);
                }
            }
        }
    }

    // This part's share of C.
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (row + i * 8 < m) {
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                if (col + j * 8 < n) {
                    workspace[part * (m * n) + (row + i * 8) * n + col + j * 8] = alpha * acc[i][j];
                }
            }
        }
    }
}

__attribute__((reqd_work_group_size(256, 1, 1)))
__kernel void scaled_residual_split4_total(int m, int n, __global const float *restrict workspace,
                                           float beta, __global ushort *restrict c, int ldc,
                                           __global const ushort *restrict scale,
                                           __global const ushort *restrict row_scale,
                                           __global const ushort *restrict residual, int ldr)
{
    const int blocks_across = (n + 255) / 256;
    const int row = (int)get_group_id(0) / blocks_across;
    const int col = (int)get_group_id(0) % blocks_across * 256 + (int)get_local_id(0);

    if (col < n) {
        // The parts of K, one after the other.
        float total = workspace[row * n + col];
        #pragma unroll
        for (int s = 1; s < 4; ++s) {
            const float term = workspace[s * (m * n) + row * n + col];
            total += term;
        }
        const float value =
            beta == 0.0f ? total : fma(beta, half_to_float(c[row * ldc + col]), total);
        const float after_residual =
            value * half_to_float(scale[col]) * half_to_float(row_scale[row])
                + half_to_float(residual[row * ldr + col]);
        const float after_clamp =
            after_residual < -4.0f ? -4.0f : 4.0f < after_residual ? 4.0f : after_residual;
        const float c_value =
            row != col ? fmax(after_clamp, 0.5f * half_to_float(c[row * ldc + col]))
                       : tanh(after_clamp);
        c[row * ldc + col] = float_to_half(c_value);
    }
}

#undef float_to_half
#undef half_to_float
