// cpu_6x16_v8_copied: C = alpha * A * B + beta * C; float32
//
// Schedule   6x16 of C at a time, in vectors of 8, up to 86x16 of those per work-item, one after
//            the other, groups in multiples of 2x1, 384 along K at a time
// A          buffer, loads of single elements
// B          buffer, loads of 8 elements, through a copy of a block in private memory
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0
// Launch     local size {1, 1}, global size {(n + 255) / 256, (m + 1031) / 1032 * 2}
// Needs      393,216 bytes of private memory for each work-item, beside its registers
// Build      clBuildProgram(..., "-cl-std=CL1.2", ...)

__attribute__((reqd_work_group_size(1, 1, 1)))
__kernel void cpu_6x16_v8_copied(int m, int n, int k, float alpha, __global const float *restrict a,
                                 int lda, __global const float *restrict b, int ldb, float beta,
                                 __global float *restrict c, int ldc)
{
    const int blocks_down = (m + 1031) / 1032 * 2;
    const int blocks_across = (n + 255) / 256;
    const int rows_each = ((m + 5) / 6 + blocks_down - 1) / blocks_down * 6;
    const int row_begin = min(m, (int)get_group_id(1) * rows_each);
    const int row_end = min(m, row_begin + rows_each);
    const int cols_each = ((n + 15) / 16 + blocks_across - 1) / blocks_across * 16;
    const int col_begin = min(n, (int)get_group_id(0) * cols_each);
    const int col_end = min(n, col_begin + cols_each);

    float8 b_block[16][384][2];
    for (int k_block = 0; k_block < (0 < k ? k : 1); k_block += 384) {
        const int k_depth = min(384, k - k_block);

        // A block of B, up to 384 deep, in the order that it is read in.
        for (int k0 = 0; k0 < k_depth; ++k0) {
            for (int col0 = col_begin; col0 < col_end; col0 += 16) {
                const int panel = (col0 - col_begin) / 16;
                #pragma unroll
                for (int j = 0; j < 2; ++j) {
                    if (col0 + j * 8 + 8 <= n) {
                        b_block[panel][k0][j] = vload8(0, &b[(k_block + k0) * ldb + col0 + j * 8]);
                    } else {
                        for (int e = 0; e < 8; ++e) {
                            ((float *)b_block[panel][k0])[j * 8 + e] =
                                b[(k_block + k0) * ldb + min(col0 + j * 8 + e, n - 1)];
                        }
                    }
                }
            }
        }

        // Sums wait in C from one block of K to the next.
        const float beta_now = k_block == 0 ? beta : 1.0f;
        for (int col0 = col_begin; col0 < col_end; col0 += 16) {
            const int panel = (col0 - col_begin) / 16;
            for (int row0 = row_begin; row0 < row_end; row0 += 6) {
                float8 acc[6][2];
                #pragma unroll
                for (int i = 0; i < 6; ++i) {
                    #pragma unroll
                    for (int j = 0; j < 2; ++j) {
                        acc[i][j] = 0.0f;
                    }
                }
                __global const float *a_rows[6];
                #pragma unroll
                for (int i = 0; i < 6; ++i) {
                    a_rows[i] = &a[min(row0 + i, m - 1) * lda + k_block];
                }
                for (int k0 = 0; k0 < k_depth; ++k0) {
                    float8 b_frag[2];
                    #pragma unroll
                    for (int j = 0; j < 2; ++j) {
                        b_frag[j] = b_block[panel][k0][j];
                    }
                    float a_frag[6];
                    #pragma unroll
                    for (int i = 0; i < 6; ++i) {
                        a_frag[i] = a_rows[i][k0];
                    }
                    #pragma unroll
                    for (int i = 0; i < 6; ++i) {
                        #pragma unroll
                        for (int j = 0; j < 2; ++j) {
                            acc[i][j] = fma((float8)(a_frag[i]), b_frag[j], acc[i][j]);
                        }
                    }
                }

                // C = alpha * A * B + beta * C; C is not read where beta is zero.
                if (row0 + 6 <= m && col0 + 16 <= n) {
                    #pragma unroll
                    for (int i = 0; i < 6; ++i) {
                        #pragma unroll
                        for (int j = 0; j < 2; ++j) {
                            float8 c_values = alpha * acc[i][j];
                            if (beta_now != 0.0f) {
                                float8 c_old = vload8(0, &c[(row0 + i) * ldc + col0 + j * 8]);
                                c_values = fma((float8)(beta_now), c_old, c_values);
                            }
                            vstore8(c_values, 0, &c[(row0 + i) * ldc + col0 + j * 8]);
                        }
                    }
                } else {
                    // At the edge of C, element by element.
                    float c_part[6][16];
                    #pragma unroll
                    for (int i = 0; i < 6; ++i) {
                        #pragma unroll
                        for (int j = 0; j < 2; ++j) {
                            vstore8(acc[i][j], 0, &c_part[i][j * 8]);
                        }
                    }
                    for (int i = 0; i < min(6, m - row0); ++i) {
                        for (int j = 0; j < min(16, n - col0); ++j) {
                            c[(row0 + i) * ldc + col0 + j] =
                                beta_now == 0.0f ? alpha * c_part[i][j]
                                                 : fma(beta_now, c[(row0 + i) * ldc + col0 + j],
                                                     alpha * c_part[i][j]);
                        }
                    }
                }
            }
        }
    }
}
