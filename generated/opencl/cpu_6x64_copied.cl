// cpu_6x64_copied: C = alpha * A * B + beta * C; float32
//
// Schedule   6x64 of C at a time, in vectors of 16, up to 86x4 of those per work-item, one after
//            the other, groups in multiples of 2x1, 512 along K at a time
// A          buffer, loads of single elements
// B          buffer, loads of 16 elements, through a copy of a block in private memory
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0
// Launch     local size {1, 1}, global size {(n + 255) / 256, (m + 1031) / 1032 * 2}
// Needs      524,288 bytes of private memory for each work-item, beside its registers
// Build      clBuildProgram(..., "-cl-std=CL1.2", ...)

__attribute__((reqd_work_group_size(1, 1, 1)))
__kernel void cpu_6x64_copied(int m, int n, int k, float alpha, __global const float *restrict a,
                              int lda, __global const float *restrict b, int ldb, float beta,
                              __global float *restrict c, int ldc)
{
    const int blocks_down = (m + 1031) / 1032 * 2;
    const int blocks_across = (n + 255) / 256;
    const int rows_each = ((m + 5) / 6 + blocks_down - 1) / blocks_down * 6;
    const int row_begin = min(m, (int)get_group_id(1) * rows_each);
    const int row_end = min(m, row_begin + rows_each);
    const int cols_each = ((n + 63) / 64 + blocks_across - 1) / blocks_across * 64;
    const int col_begin = min(n, (int)get_group_id(0) * cols_each);
    const int col_end = min(n, col_begin + cols_each);

    float16 b_block[4][512][4];
    for (int k_block = 0; k_block < (0 < k ? k : 1); k_block += 512) {
        const int k_depth = min(512, k - k_block);

        // A block of B, up to 512 deep, in the order that it is read in.
        for (int k0 = 0; k0 < k_depth; ++k0) {
            for (int col0 = col_begin; col0 < col_end; col0 += 64) {
                const int panel = (col0 - col_begin) / 64;
                #pragma unroll
                for (int j = 0; j < 4; ++j) {
                    if (col0 + j * 16 + 16 <= n) {
                        b_block[panel][k0][j] =
                            vload16(0, &b[(k_block + k0) * ldb + col0 + j * 16]);
                    } else {
                        for (int e = 0; e < 16; ++e) {
                            ((float *)b_block[panel][k0])[j * 16 + e] =
                                b[(k_block + k0) * ldb + min(col0 + j * 16 + e, n - 1)];
                        }
                    }
                }
            }
        }

        // Sums wait in C from one block of K to the next.
        const float beta_now = k_block == 0 ? beta : 1.0f;
        for (int col0 = col_begin; col0 < col_end; col0 += 64) {
            const int panel = (col0 - col_begin) / 64;
            for (int row0 = row_begin; row0 < row_end; row0 += 6) {
                float16 acc[6][4];
                #pragma unroll
                for (int i = 0; i < 6; ++i) {
                    #pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        acc[i][j] = 0.0f;
                    }
                }
                __global const float *a_rows[6];
                #pragma unroll
                for (int i = 0; i < 6; ++i) {
                    a_rows[i] = &a[min(row0 + i, m - 1) * lda + k_block];
                }
                for (int k0 = 0; k0 < k_depth; ++k0) {
                    float16 b_frag[4];
                    #pragma unroll
                    for (int j = 0; j < 4; ++j) {
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
                        for (int j = 0; j < 4; ++j) {
                            acc[i][j] = fma((float16)(a_frag[i]), b_frag[j], acc[i][j]);
                        }
                    }
                }

                // C = alpha * A * B + beta * C; C is not read where beta is zero.
                if (row0 + 6 <= m && col0 + 64 <= n) {
                    #pragma unroll
                    for (int i = 0; i < 6; ++i) {
                        #pragma unroll
                        for (int j = 0; j < 4; ++j) {
                            float16 c_values = alpha * acc[i][j];
                            if (beta_now != 0.0f) {
                                float16 c_old = vload16(0, &c[(row0 + i) * ldc + col0 + j * 16]);
                                c_values = fma((float16)(beta_now), c_old, c_values);
                            }
                            vstore16(c_values, 0, &c[(row0 + i) * ldc + col0 + j * 16]);
                        }
                    }
                } else {
                    // At the edge of C, element by element.
                    float c_part[6][64];
                    #pragma unroll
                    for (int i = 0; i < 6; ++i) {
                        #pragma unroll
                        for (int j = 0; j < 4; ++j) {
                            vstore16(acc[i][j], 0, &c_part[i][j * 16]);
                        }
                    }
                    for (int i = 0; i < min(6, m - row0); ++i) {
                        for (int j = 0; j < min(64, n - col0); ++j) {
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
