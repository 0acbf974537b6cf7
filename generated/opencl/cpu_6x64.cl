// cpu_6x64: C = alpha * A * B + beta * C; float32
//
// Tile       6x64 of C at a time, in vectors of 16
// Loops      outermost first: own_col by 64, own_row by 6, k0 by 1
// Work-items 1x1 per group
// A          buffer, loads of single elements
// B          buffer, loads of 16 elements
// Multiply   fused multiply-add of vectors of 16
// C          stores of 16 elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     local size {1, 1}, global size {(n + 127) / 128, (m + 263) / 264 * 2}
// Build      clBuildProgram(..., "-cl-std=CL1.2", ...)

// Micro-tile of C: rows and columns.
#define MR 6
#define NR 64
// Tiles of a work-item at most, along M and N.
#define TILES_M 22
#define TILES_N 2

#if MR != 6 || NR != 64
#error "MR and NR cannot change here: gemmgen emit --preset cpu_6x64 --set tile=3x64"
#endif
#if TILES_M != 22 || TILES_N != 2
#error "TILES_M and TILES_N cannot change here:"
#error "gemmgen emit --preset cpu_6x64 --set macro_kernel=11x2"
#endif

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
cpu_6x64(int m, int n, int k, float alpha, __global const float *restrict a, int lda,
         __global const float *restrict b, int ldb, float beta, __global float *restrict c, int ldc)
{
    const int blocks_down = (m + MR * TILES_M * 2 - 1) / (MR * TILES_M * 2) * 2;
    const int blocks_across = (n + NR * TILES_N - 1) / (NR * TILES_N);
    const int rows_each = ((m + MR - 1) / MR + blocks_down - 1) / blocks_down * MR;
    const int row_begin = min(m, (int)get_group_id(1) * rows_each);
    const int row_end = min(m, row_begin + rows_each);
    const int cols_each = ((n + NR - 1) / NR + blocks_across - 1) / blocks_across * NR;
    const int col_begin = min(n, (int)get_group_id(0) * cols_each);
    const int col_end = min(n, col_begin + cols_each);

    for (int own_col = col_begin; own_col < col_end; own_col += NR) {
        // The last tile of a line begins earlier, so that its vectors of B end inside.
        const int col0 = n >= NR ? min(own_col, n - NR) : own_col;
        const int k_main = col0 + NR <= n ? k : 0;

        // Where C is not read, columns of the tile before are stored again.
        const int first_col = beta == 0.0f && col_begin <= col0 ? col0 : own_col;
        for (int own_row = row_begin; own_row < row_end; own_row += MR) {
            // Where C is not read, the last tile begins earlier, and stores rows again.
            const int row0 =
                beta == 0.0f && row_begin + MR <= row_end ? min(own_row, row_end - MR) : own_row;
            float16 acc[MR][NR / 16];
            #pragma unroll
            for (int i = 0; i < MR; ++i) {
                #pragma unroll
                for (int j = 0; j < NR / 16; ++j) {
                    acc[i][j] = 0.0f;
                }
            }
            for (int k0 = 0; k0 < k_main; ++k0) {
                float16 b_frag[NR / 16];
                #pragma unroll
                for (int j = 0; j < NR / 16; ++j) {
                    b_frag[j] = vload16(0, &b[k0 * ldb + col0 + j * 16]);
                }
                float a_frag[MR];
                #pragma unroll
                for (int i = 0; i < MR; ++i) {
                    a_frag[i] = a[min(row0 + i, m - 1) * lda + k0];
                }
                #pragma unroll
                for (int i = 0; i < MR; ++i) {
                    #pragma unroll
                    for (int j = 0; j < NR / 16; ++j) {
                        acc[i][j] = fma((float16)(a_frag[i]), b_frag[j], acc[i][j]);
                    }
                }
            }
            for (int k0 = k_main; k0 < k; ++k0) {
                float16 b_frag[NR / 16];
                for (int j = 0; j < NR; ++j) {
                    ((float *)b_frag)[j] = b[k0 * ldb + min(col0 + j, n - 1)];
                }
                float a_frag[MR];
                #pragma unroll
                for (int i = 0; i < MR; ++i) {
                    a_frag[i] = a[min(row0 + i, m - 1) * lda + k0];
                }
                #pragma unroll
                for (int i = 0; i < MR; ++i) {
                    #pragma unroll
                    for (int j = 0; j < NR / 16; ++j) {
                        acc[i][j] = fma((float16)(a_frag[i]), b_frag[j], acc[i][j]);
                    }
                }
            }

            // C = alpha * A * B + beta * C; C is not read where beta is zero.
            if (row0 + MR <= m && col0 + NR <= n && first_col <= col0) {
                #pragma unroll
                for (int i = 0; i < MR; ++i) {
                    #pragma unroll
                    for (int j = 0; j < NR / 16; ++j) {
                        float16 c_values = alpha * acc[i][j];
                        if (beta != 0.0f) {
                            float16 c_old = vload16(0, &c[(row0 + i) * ldc + col0 + j * 16]);
                            c_values = fma((float16)(beta), c_old, c_values);
                        }
                        vstore16(c_values, 0, &c[(row0 + i) * ldc + col0 + j * 16]);
                    }
                }
            } else {
                // At the edge of C, element by element.
                float c_part[MR][NR];
                #pragma unroll
                for (int i = 0; i < MR; ++i) {
                    #pragma unroll
                    for (int j = 0; j < NR / 16; ++j) {
                        vstore16(acc[i][j], 0, &c_part[i][j * 16]);
                    }
                }
                for (int i = 0; i < min(MR, m - row0); ++i) {
                    for (int j = first_col - col0; j < min(NR, n - col0); ++j) {
                        c[(row0 + i) * ldc + col0 + j] =
                            beta == 0.0f
                                ? alpha * c_part[i][j]
                                : fma(beta, c[(row0 + i) * ldc + col0 + j], alpha * c_part[i][j]);
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
