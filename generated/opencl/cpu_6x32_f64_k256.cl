// cpu_6x32_f64_k256: C = alpha * A * B + beta * C; float64
//
// Schedule   6x32 of C at a time, in vectors of 8, up to 22x2 of those per work-item, one after the
//            other, groups in multiples of 2x1, 256 along K at a time
// A          buffer, loads of single elements
// B          buffer, loads of 8 elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0
// Launch     local size {1, 1}, global size {(n + 63) / 64, (m + 263) / 264 * 2}
// Build      clBuildProgram(..., "-cl-std=CL1.2", ...)

#pragma OPENCL EXTENSION cl_khr_fp64 : enable

__attribute__((reqd_work_group_size(1, 1, 1)))
__kernel void cpu_6x32_f64_k256(int m, int n, int k, double alpha,
                                __global const double *restrict a, int lda,
                                __global const double *restrict b, int ldb, double beta,
                                __global double *restrict c, int ldc)
{
    const int blocks_down = (m + 263) / 264 * 2;
    const int blocks_across = (n + 63) / 64;
    const int rows_each = ((m + 5) / 6 + blocks_down - 1) / blocks_down * 6;
    const int row_begin = min(m, (int)get_group_id(1) * rows_each);
    const int row_end = min(m, row_begin + rows_each);
    const int cols_each = ((n + 31) / 32 + blocks_across - 1) / blocks_across * 32;
    const int col_begin = min(n, (int)get_group_id(0) * cols_each);
    const int col_end = min(n, col_begin + cols_each);

    for (int k_block = 0; k_block < (0 < k ? k : 1); k_block += 256) {
        const int k_stop = min(k, k_block + 256);

        // Sums wait in C from one block of K to the next.
        const double beta_now = k_block == 0 ? beta : 1.0;
        for (int own_col = col_begin; own_col < col_end; own_col += 32) {
            // The last tile of a line begins earlier, so that its vectors of B end inside.
            const int col0 = 32 <= n ? min(own_col, n - 32) : own_col;
            const int k_main = col0 + 32 <= n ? k_stop : k_block;
            for (int row0 = row_begin; row0 < row_end; row0 += 6) {
                double8 acc[6][4];
                #pragma unroll
                for (int i = 0; i < 6; ++i) {
                    #pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        acc[i][j] = 0.0;
                    }
                }
                for (int k0 = k_block; k0 < k_main; ++k0) {
                    double8 b_frag[4];
                    #pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        b_frag[j] = vload8(0, &b[k0 * ldb + col0 + j * 8]);
                    }
                    double a_frag[6];
                    #pragma unroll
                    for (int i = 0; i < 6; ++i) {
                        a_frag[i] = a[min(row0 + i, m - 1) * lda + k0];
                    }
                    #pragma unroll
                    for (int i = 0; i < 6; ++i) {
                        #pragma unroll
                        for (int j = 0; j < 4; ++j) {
                            acc[i][j] = fma((double8)(a_frag[i]), b_frag[j], acc[i][j]);
                        }
                    }
                }
                for (int k0 = k_main; k0 < k_stop; ++k0) {
                    double8 b_frag[4];
                    for (int j = 0; j < 32; ++j) {
                        ((double *)b_frag)[j] = b[k0 * ldb + min(col0 + j, n - 1)];
                    }
                    double a_frag[6];
                    #pragma unroll
                    for (int i = 0; i < 6; ++i) {
                        a_frag[i] = a[min(row0 + i, m - 1) * lda + k0];
                    }
                    #pragma unroll
                    for (int i = 0; i < 6; ++i) {
                        #pragma unroll
                        for (int j = 0; j < 4; ++j) {
                            acc[i][j] = fma((double8)(a_frag[i]), b_frag[j], acc[i][j]);
                        }
                    }
                }

                // C = alpha * A * B + beta * C; C is not read where beta is zero.
                if (row0 + 6 <= m && col0 + 32 <= n && own_col <= col0) {
                    #pragma unroll
                    for (int i = 0; i < 6; ++i) {
                        #pragma unroll
                        for (int j = 0; j < 4; ++j) {
                            double8 c_values = alpha * acc[i][j];
                            if (beta_now != 0.0) {
                                double8 c_old = vload8(0, &c[(row0 + i) * ldc + col0 + j * 8]);
                                c_values = fma((double8)(beta_now), c_old, c_values);
                            }
                            vstore8(c_values, 0, &c[(row0 + i) * ldc + col0 + j * 8]);
                        }
                    }
                } else {
                    // At the edge of C, element by element.
                    double c_part[6][32];
                    #pragma unroll
                    for (int i = 0; i < 6; ++i) {
                        #pragma unroll
                        for (int j = 0; j < 4; ++j) {
                            vstore8(acc[i][j], 0, &c_part[i][j * 8]);
                        }
                    }
                    for (int i = 0; i < min(6, m - row0); ++i) {
                        for (int j = own_col - col0; j < min(32, n - col0); ++j) {
                            c[(row0 + i) * ldc + col0 + j] =
                                beta_now == 0.0 ? alpha * c_part[i][j]
                                                : fma(beta_now, c[(row0 + i) * ldc + col0 + j],
                                                    alpha * c_part[i][j]);
                        }
                    }
                }
            }
        }
    }
}
