// cpu_6x64_copied: C = alpha * A * B + beta * C; float32
//
// Tile       6x64 of C at a time, in vectors of 16
// Loops      outermost first: k_block by 512, col0 by 64, own_row by 6, k0 by 1
// Work-items 1x1 per group
// A          buffer, loads of single elements
// B          buffer, copied in blocks of 4x512x64 to private memory, loads of 16 elements
// Multiply   fused multiply-add of vectors of 16
// C          stores of 16 elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     local size {1, 1}, global size {(n + 255) / 256, (m + 1031) / 1032 * 2}
// Needs      524,288 bytes of private memory for each work-item, beside its registers
// Build      clBuildProgram(..., "-cl-std=CL1.2", ...)

// Micro-tile of C: rows and columns.
#define MR 6
#define NR 64
// Tiles of a work-item at most, along M and N.
#define TILES_M 86
#define TILES_N 4
// Depth of a panel of B.
#define KC 512
// Rows of B that are copied for all panels before the next ones.
#define ROWS 16

#if MR != 6 || NR != 64
#error "MR and NR cannot change here:"
#error "gemmgen emit --preset cpu_6x64_copied --set tile=3x64"
#endif
#if TILES_M != 86 || TILES_N != 4
#error "TILES_M and TILES_N cannot change here:"
#error "gemmgen emit --preset cpu_6x64_copied --set macro_kernel=43x4"
#endif
#if KC != 512
#error "KC cannot change here: gemmgen emit --preset cpu_6x64_copied --set kc=1024"
#endif

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
cpu_6x64_copied(int m, int n, int k, float alpha, __global const float *restrict a, int lda,
                __global const float *restrict b, int ldb, float beta, __global float *restrict c,
                int ldc)
{
    const int blocks_down = (m + MR * TILES_M * 2 - 1) / (MR * TILES_M * 2) * 2;
    const int blocks_across = (n + NR * TILES_N - 1) / (NR * TILES_N);
    const int rows_each = ((m + MR - 1) / MR + blocks_down - 1) / blocks_down * MR;
    const int row_begin = min(m, (int)get_group_id(1) * rows_each);
    const int row_end = min(m, row_begin + rows_each);
    const int cols_each = ((n + NR - 1) / NR + blocks_across - 1) / blocks_across * NR;
    const int col_begin = min(n, (int)get_group_id(0) * cols_each);
    const int col_end = min(n, col_begin + cols_each);

    float16 b_block[TILES_N][KC][NR / 16];
    for (int k_block = 0; k_block < (k > 0 ? k : 1); k_block += KC) {
        const int k_depth = min(KC, k - k_block);

        // A block of B, up to KC deep, in the order that it is read in.
        if (n >= 16) {
            // Vectors that would end past the last column begin earlier.
            for (int k_rows = 0; k_rows < k_depth; k_rows += ROWS) {
                const int k_rows_end = min(k_depth, k_rows + ROWS);
                for (int col0 = col_begin; col0 < col_end; col0 += NR) {
                    const int panel = (col0 - col_begin) / NR;
                    for (int k0 = k_rows; k0 < k_rows_end; ++k0) {
                        #pragma unroll
                        for (int j = 0; j < NR / 16; ++j) {
                            const int col = min(col0 + j * 16, n - 16);
                            b_block[panel][k0][j] = vload16(0, &b[(k_block + k0) * ldb + col]);
                        }
                    }
                }
            }
        } else {
            for (int k_rows = 0; k_rows < k_depth; k_rows += ROWS) {
                const int k_rows_end = min(k_depth, k_rows + ROWS);
                for (int col0 = col_begin; col0 < col_end; col0 += NR) {
                    const int panel = (col0 - col_begin) / NR;
                    for (int k0 = k_rows; k0 < k_rows_end; ++k0) {
                        for (int j = 0; j < NR; ++j) {
                            ((float *)b_block[panel][k0])[j] =
                                b[(k_block + k0) * ldb + min(col0 + j, n - 1)];
                        }
                    }
                }
            }
        }

        // C holds the sums between blocks of K.
        const float beta_now = k_block == 0 ? beta : 1.0f;
        for (int col0 = col_begin; col0 < col_end; col0 += NR) {
            const int panel = (col0 - col_begin) / NR;
            for (int own_row = row_begin; own_row < row_end; own_row += MR) {
                // Where C is not read, the last tile begins earlier, and stores rows again.
                const int row0 = beta_now == 0.0f && row_begin + MR <= row_end
                                     ? min(own_row, row_end - MR)
                                     : own_row;
                float16 acc[MR][NR / 16];
                #pragma unroll
                for (int i = 0; i < MR; ++i) {
                    #pragma unroll
                    for (int j = 0; j < NR / 16; ++j) {
                        acc[i][j] = 0.0f;
                    }
                }
                __global const float *a_rows[MR];
                #pragma unroll
                for (int i = 0; i < MR; ++i) {
                    a_rows[i] = &a[min(row0 + i, m - 1) * lda + k_block];
                }
                for (int k0 = 0; k0 < k_depth; ++k0) {
                    float16 b_frag[NR / 16];
                    #pragma unroll
                    for (int j = 0; j < NR / 16; ++j) {
                        b_frag[j] = b_block[panel][k0][j];
                    }
                    float a_frag[MR];
                    #pragma unroll
                    for (int i = 0; i < MR; ++i) {
                        a_frag[i] = a_rows[i][k0];
                    }
                    #pragma unroll
                    for (int i = 0; i < MR; ++i) {
                        #pragma unroll
                        for (int j = 0; j < NR / 16; ++j) {
                            acc[i][j] = fma((float16)(a_frag[i]), b_frag[j], acc[i][j]);
                        }
                    }
                }

                // Vectors that would end past the last column begin earlier.
                const int col = n >= 16 ? min(col0, n - 16) : col0;

                // Where C is not read, columns of the tile before are stored again.
                const int first_col = beta_now == 0.0f && col_begin <= col ? col : col0;

                // C = alpha * A * B + beta * C; C is not read where beta is zero.
                if (row0 + MR <= m && col + 16 <= n && first_col <= col) {
                    #pragma unroll
                    for (int i = 0; i < MR; ++i) {
                        float16 c_values[NR / 16];
                        #pragma unroll
                        for (int j = 0; j < NR / 16; ++j) {
                            c_values[j] = alpha * acc[i][j];
                            if (beta_now != 0.0f) {
                                float16 c_old =
                                    vload16(0, &c[(row0 + i) * ldc + min(col + j * 16, n - 16)]);
                                c_values[j] = fma((float16)(beta_now), c_old, c_values[j]);
                            }
                        }
                        #pragma unroll
                        for (int j = 0; j < NR / 16; ++j) {
                            vstore16(c_values[j], 0,
                                     &c[(row0 + i) * ldc + min(col + j * 16, n - 16)]);
                        }
                    }
                } else {
                    // At the edge of C, element by element.
                    float c_part[MR][NR];
                    #pragma unroll
                    for (int i = 0; i < MR; ++i) {
                        #pragma unroll
                        for (int j = 0; j < NR / 16; ++j) {
                            vstore16(acc[i][j], 0,
                                     &c_part[i][n >= 16 ? min(j * 16, n - 16 - col) : j * 16]);
                        }
                    }
                    for (int i = 0; i < min(MR, m - row0); ++i) {
                        for (int j = first_col - col; j < min(NR, n - col); ++j) {
                            c[(row0 + i) * ldc + col + j] =
                                beta_now == 0.0f ? alpha * c_part[i][j]
                                                 : fma(beta_now, c[(row0 + i) * ldc + col + j],
                                                       alpha * c_part[i][j]);
                        }
                    }
                }
            }
        }
    }
}

#undef MR
#undef NR
#undef TILES_M
#undef TILES_N
#undef KC
#undef ROWS
