// cpu_4x4_along_k: C = alpha * A * B + beta * C; float32
//
// Tile       4x4 of C at a time, in vectors of 16
// Loops      outermost first: k_block by 4096, row0 by 4, col0 by 4, k0 by 16
// Work-items 1x1 per group
// A          buffer, loads of 16 elements
// B          buffer, copied in blocks of 4x4x4096 to private memory, loads of 16 elements
// Multiply   dot products along K, in vectors of 16
// C          stores of single elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     local size {1, 1}, global size {(n + 15) / 16, (m + 2735) / 2736 * 2}
// Needs      262,144 bytes of private memory for each work-item, beside its registers
// Build      clBuildProgram(..., "-cl-std=CL1.2", ...)

// Micro-tile of C: rows and columns.
#define MR 4
#define NR 4
// Tiles of a work-item at most, along M and N.
#define TILES_M 342
#define TILES_N 4
// Depth of a panel of B.
#define KC 4096

#if MR != 4 || NR != 4
#error "MR and NR cannot change here:"
#error "gemmgen emit --preset cpu_4x4_along_k --set tile=2x4"
#endif
#if TILES_M != 342 || TILES_N != 4
#error "TILES_M and TILES_N cannot change here:"
#error "gemmgen emit --preset cpu_4x4_along_k --set macro_kernel=171x4"
#endif
#if KC != 4096
#error "KC cannot change here: gemmgen emit --preset cpu_4x4_along_k --set kc=8192"
#endif

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
cpu_4x4_along_k(int m, int n, int k, float alpha, __global const float *restrict a, int lda,
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

    float16 b_block[TILES_N][NR][KC / 16];
    for (int k_block = 0; k_block < (k > 0 ? k : 1); k_block += KC) {
        const int k_depth = min(KC, k - k_block);

        // A block of B, up to KC deep, in the order that it is read in.
        for (int col0 = col_begin; col0 < col_end; col0 += NR) {
            const int panel = (col0 - col_begin) / NR;
            for (int j = 0; j < NR; ++j) {
                for (int k0 = 0; k0 < k_depth; ++k0) {
                    ((float *)b_block[panel][j])[k0] =
                        b[(k_block + k0) * ldb + min(col0 + j, n - 1)];
                }
            }
        }

        // C holds the sums between blocks of K.
        const float beta_now = k_block == 0 ? beta : 1.0f;

        // Some rows of A are multiplied by all panels of B.
        for (int row0 = row_begin; row0 < row_end; row0 += MR) {
            for (int col0 = col_begin; col0 < col_end; col0 += NR) {
                const int panel = (col0 - col_begin) / NR;
                const int k_main = k_depth - k_depth % 16;
                float16 acc[MR][NR];
                #pragma unroll
                for (int i = 0; i < MR; ++i) {
                    #pragma unroll
                    for (int j = 0; j < NR; ++j) {
                        acc[i][j] = 0.0f;
                    }
                }
                for (int k0 = 0; k0 < k_main; k0 += 16) {
                    float16 b_frag[NR];
                    #pragma unroll
                    for (int j = 0; j < NR; ++j) {
                        b_frag[j] = b_block[panel][j][k0 / 16];
                    }
                    float16 a_frag[MR];
                    #pragma unroll
                    for (int i = 0; i < MR; ++i) {
                        a_frag[i] = vload16(0, &a[min(row0 + i, m - 1) * lda + k_block + k0]);
                    }
                    #pragma unroll
                    for (int i = 0; i < MR; ++i) {
                        #pragma unroll
                        for (int j = 0; j < NR; ++j) {
                            acc[i][j] = fma(a_frag[i], b_frag[j], acc[i][j]);
                        }
                    }
                }

                // The elements of each vector added up; then the rest of K.
                float total[MR][NR];
                #pragma unroll
                for (int i = 0; i < MR; ++i) {
                    #pragma unroll
                    for (int j = 0; j < NR; ++j) {
                        float8 by_8 = acc[i][j].lo + acc[i][j].hi;
                        float4 by_4 = by_8.lo + by_8.hi;
                        float2 by_2 = by_4.lo + by_4.hi;
                        total[i][j] = by_2.s0 + by_2.s1;
                    }
                }
                for (int k0 = k_main; k0 < k_depth; ++k0) {
                    float b_rest[NR];
                    #pragma unroll
                    for (int j = 0; j < NR; ++j) {
                        b_rest[j] = ((float *)b_block[panel][j])[k0];
                    }
                    float a_rest[MR];
                    #pragma unroll
                    for (int i = 0; i < MR; ++i) {
                        a_rest[i] = a[min(row0 + i, m - 1) * lda + k_block + k0];
                    }
                    #pragma unroll
                    for (int i = 0; i < MR; ++i) {
                        #pragma unroll
                        for (int j = 0; j < NR; ++j) {
                            total[i][j] = fma(a_rest[i], b_rest[j], total[i][j]);
                        }
                    }
                }

                // C = alpha * A * B + beta * C; C is not read where beta is zero.
                #pragma unroll
                for (int i = 0; i < MR; ++i) {
                    if (row0 + i < m) {
                        #pragma unroll
                        for (int j = 0; j < NR; ++j) {
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

#undef MR
#undef NR
#undef TILES_M
#undef TILES_N
#undef KC
