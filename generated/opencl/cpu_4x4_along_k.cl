// cpu_4x4_along_k: C = alpha * A * B + beta * C; float32
//
// Schedule   4x4 of C at a time, in vectors of 16 along K, up to 342x4 of those per work-item, one
//            after the other, each row of those before the one below it, groups in multiples of
//            2x1, 4096 along K at a time
// A          buffer, loads of 16 elements
// B          buffer, loads of single elements, through a copy of a block in private memory
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0
// Launch     local size {1, 1}, global size {(n + 15) / 16, (m + 2735) / 2736 * 2}
// Needs      262,144 bytes of private memory for each work-item, beside its registers
// Build      clBuildProgram(..., "-cl-std=CL1.2", ...)

__attribute__((reqd_work_group_size(1, 1, 1)))
__kernel void cpu_4x4_along_k(int m, int n, int k, float alpha, __global const float *restrict a,
                              int lda, __global const float *restrict b, int ldb, float beta,
                              __global float *restrict c, int ldc)
{
    const int blocks_down = (m + 2735) / 2736 * 2;
    const int blocks_across = (n + 15) / 16;
    const int rows_each = ((m + 3) / 4 + blocks_down - 1) / blocks_down * 4;
    const int row_begin = min(m, (int)get_group_id(1) * rows_each);
    const int row_end = min(m, row_begin + rows_each);
    const int cols_each = ((n + 3) / 4 + blocks_across - 1) / blocks_across * 4;
    const int col_begin = min(n, (int)get_group_id(0) * cols_each);
    const int col_end = min(n, col_begin + cols_each);

    float16 b_block[4][4][256];
    for (int k_block = 0; k_block < (0 < k ? k : 1); k_block += 4096) {
        const int k_depth = min(4096, k - k_block);

        // A block of B, up to 4096 deep, in the order that it is read in.
        for (int col0 = col_begin; col0 < col_end; col0 += 4) {
            const int panel = (col0 - col_begin) / 4;
            for (int j = 0; j < 4; ++j) {
                for (int k0 = 0; k0 < k_depth; ++k0) {
                    ((float *)b_block[panel][j])[k0] =
                        b[(k_block + k0) * ldb + min(col0 + j, n - 1)];
                }
            }
        }

        // Sums wait in C from one block of K to the next.
        const float beta_now = k_block == 0 ? beta : 1.0f;

        // Some rows of A pass all panels of B.
        for (int row0 = row_begin; row0 < row_end; row0 += 4) {
            for (int col0 = col_begin; col0 < col_end; col0 += 4) {
                const int panel = (col0 - col_begin) / 4;
                const int k_main = k_depth - k_depth % 16;
                float16 acc[4][4];
                #pragma unroll
                for (int i = 0; i < 4; ++i) {
                    #pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        acc[i][j] = 0.0f;
                    }
                }
                for (int k0 = 0; k0 < k_main; k0 += 16) {
                    float16 b_frag[4];
                    #pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        b_frag[j] = b_block[panel][j][k0 / 16];
                    }
                    float16 a_frag[4];
                    #pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        a_frag[i] = vload16(0, &a[min(row0 + i, m - 1) * lda + k_block + k0]);
                    }
                    #pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        #pragma unroll
                        for (int j = 0; j < 4; ++j) {
                            acc[i][j] = fma(a_frag[i], b_frag[j], acc[i][j]);
                        }
                    }
                }

                // The elements of each vector added up; then the rest of K.
                float total[4][4];
                #pragma unroll
                for (int i = 0; i < 4; ++i) {
                    #pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        float8 by_8 = acc[i][j].lo + acc[i][j].hi;
                        float4 by_4 = by_8.lo + by_8.hi;
                        float2 by_2 = by_4.lo + by_4.hi;
                        total[i][j] = by_2.s0 + by_2.s1;
                    }
                }
                for (int k0 = k_main; k0 < k_depth; ++k0) {
                    float b_rest[4];
                    #pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        b_rest[j] = ((float *)b_block[panel][j])[k0];
                    }
                    float a_rest[4];
                    #pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        a_rest[i] = a[min(row0 + i, m - 1) * lda + k_block + k0];
                    }
                    #pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        #pragma unroll
                        for (int j = 0; j < 4; ++j) {
                            total[i][j] = fma(a_rest[i], b_rest[j], total[i][j]);
                        }
                    }
                }

                // C = alpha * A * B + beta * C; C is not read where beta is zero.
                #pragma unroll
                for (int i = 0; i < 4; ++i) {
                    if (row0 + i < m) {
                        #pragma unroll
                        for (int j = 0; j < 4; ++j) {
                            if (col0 + j < n) {
                                c[(row0 + i) * ldc + col0 + j] =
                                    beta_now == 0.0f ? alpha * total[i][j]
                                                     : fma(beta_now, c[(row0 + i) * ldc + col0 + j],
                                                         alpha * total[i][j]);
                            }
                        }
                    }
                }
            }
        }
    }
}
