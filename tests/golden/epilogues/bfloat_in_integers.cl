// bfloat_in_integers: C = alpha * A * B + beta * C; bfloat16, sums in float32; 16-bit floats in integers
//
// Schedule   2x2 of C per work-item, 8x8 work-items per group (16x16 of C), 8 along K per iteration
// A          buffer, loads of single elements, through local memory
// B          buffer, loads of 4 elements, through local memory
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0
// Launch     local size {8, 8}, global size {(n + 15) / 16 * 8, (m + 15) / 16 * 8}
// Needs      512 bytes of local memory
// Build      clBuildProgram(..., "-cl-std=CL1.2", ...)

// Names of this file alone, so that a program can hold others, too.
#define bfloat16_to_float bfloat_in_integers_bfloat16_to_float
#define float_to_bfloat16 bfloat_in_integers_float_to_bfloat16

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

// 4 neighbouring elements, at any alignment.
#define COPY4(to, from) vstore4(vload4(0, from), 0, to)

__attribute__((reqd_work_group_size(8, 8, 1)))
__kernel void bfloat_in_integers(int m, int n, int k, float alpha,
                                 __global const ushort *restrict a, int lda,
                                 __global const ushort *restrict b, int ldb, float beta,
                                 __global ushort *restrict c, int ldc)
{
    const int local_row = (int)get_local_id(1);
    const int local_col = (int)get_local_id(0);
    const int row0 = (int)get_group_id(1) * 16;
    const int col0 = (int)get_group_id(0) * 16;
    const int row = row0 + local_row;
    const int col = col0 + local_col;
    const int k_main = k - k % 8;
    const int local_index = local_row * 8 + local_col;
    const int a_row = local_index / 8;
    const int a_k = local_index % 8;
    const int b_k = local_index / 4;
    const int b_col = local_index % 4 * 4;

    __local ushort a_shared[16][8];
    __local ushort b_shared[8][16];
    float acc[2][2];
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
        #pragma unroll
        for (int j = 0; j < 2; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Whole steps of 8 along K.
    for (int k0 = 0; k0 < k_main; k0 += 8) {
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            a_shared[a_row + i * 8][a_k] = a[min(row0 + a_row + i * 8, m - 1) * lda + k0 + a_k];
        }
        if (local_index < 32) {
            if (k0 + b_k < k && col0 + b_col + 4 <= n) {
                COPY4(&b_shared[b_k][b_col], &b[(k0 + b_k) * ldb + col0 + b_col]);
            } else {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    b_shared[b_k][b_col + e] =
                        k0 + b_k < k ? b[(k0 + b_k) * ldb + min(col0 + b_col + e, n - 1)] : 0;
                }
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll 2
        for (int kk = 0; kk < 8; ++kk) {
            float a_frag[2];
            float b_frag[2];
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                a_frag[i] = bfloat16_to_float(a_shared[local_row + i * 8][kk]);
            }
            #pragma unroll
            for (int j = 0; j < 2; ++j) {
                b_frag[j] = bfloat16_to_float(b_shared[kk][local_col + j * 8]);
            }
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                #pragma unroll
                for (int j = 0; j < 2; ++j) {
                    acc[i][j] = fma(a_frag[i], b_frag[j], acc[i][j]);
                }
            }
        }
    }
    if (k_main < k) {
        // The rest of K; what lies past it counts as zero.
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            a_shared[a_row + i * 8][a_k] =
                k_main + a_k < k ? a[min(row0 + a_row + i * 8, m - 1) * lda + k_main + a_k] : 0;
        }
        if (local_index < 32) {
            if (k_main + b_k < k && col0 + b_col + 4 <= n) {
                COPY4(&b_shared[b_k][b_col], &b[(k_main + b_k) * ldb + col0 + b_col]);
            } else {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    b_shared[b_k][b_col + e] =
                        k_main + b_k < k ? b[(k_main + b_k) * ldb + min(col0 + b_col + e, n - 1)]
                                         : 0;
                }
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll 2
        for (int kk = 0; kk < 8; ++kk) {
            float a_frag[2];
            float b_frag[2];
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                a_frag[i] = bfloat16_to_float(a_shared[local_row + i * 8][kk]);
            }
            #pragma unroll
            for (int j = 0; j < 2; ++j) {
                b_frag[j] = bfloat16_to_float(b_shared[kk][local_col + j * 8]);
            }
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                #pragma unroll
                for (int j = 0; j < 2; ++j) {
                    acc[i][j] = fma(a_frag[i], b_frag[j], acc[i][j]);
                }
            }
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
        if (row + i * 8 < m) {
            #pragma unroll
            for (int j = 0; j < 2; ++j) {
                if (col + j * 8 < n) {
                    const float c_value =
                        beta == 0.0f ? alpha * acc[i][j]
                                     : fma(beta,
                                         bfloat16_to_float(c[(row + i * 8) * ldc + col + j * 8]),
                                         alpha * acc[i][j]);
                    c[(row + i * 8) * ldc + col + j * 8] = float_to_bfloat16(c_value);
                }
            }
        }
    }
}

#undef bfloat16_to_float
#undef float_to_bfloat16
#undef COPY4
