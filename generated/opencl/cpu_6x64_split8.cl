// cpu_6x64_split8: C = alpha * A * B + beta * C; float32
//
// Schedule   6x64 of C at a time, in vectors of 16, up to 22x2 of those per work-item, one after
//            the other, 512 along K at a time, K in 8 parts that a second kernel adds up
// A          buffer, loads of single elements
// B          buffer, loads of 16 elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0
// Launch     cpu_6x64_split8: local size {1, 1}, global size {(m + 131) / 132 * ((n + 127) / 128) *
//                8, 1}
//            cpu_6x64_split8_total: local size {256, 1}, global size {m * ((n + 255) / 256) * 256,
//                1}
// Needs      a workspace of m * n * 8 elements
// Build      clBuildProgram(..., "-cl-std=CL1.2", ...)

__attribute__((reqd_work_group_size(1, 1, 1)))
__kernel void cpu_6x64_split8(int m, int n, int k, float alpha, __global const float *restrict a,
                              int lda, __global const float *restrict b, int ldb,
                              __global float *restrict workspace)
{
    const int blocks_down = (m + 131) / 132;
    const int blocks_across = (n + 127) / 128;
    const int part = (int)get_group_id(0) / (blocks_down * blocks_across);
    const int block = (int)get_group_id(0) % (blocks_down * blocks_across);
    const int rows_each = ((m + 5) / 6 + blocks_down - 1) / blocks_down * 6;
    const int row_begin = min(m, block / blocks_across * rows_each);
    const int row_end = min(m, row_begin + rows_each);
    const int cols_each = ((n + 63) / 64 + blocks_across - 1) / blocks_across * 64;
    const int col_begin = min(n, block % blocks_across * cols_each);
    const int col_end = min(n, col_begin + cols_each);
    const int k_part = (k + 7) / 8;
    const int k_begin = part * k_part;
    const int k_end = min(k, k_begin + k_part);

    for (int k_block = k_begin; k_block < (k_begin < k_end ? k_end : k_begin + 1); k_block += 512) {
        const int k_stop = min(k_end, k_block + 512);

        // Sums wait in C from one block of K to the next.
        const float beta_now = k_block == k_begin ? 0.0f : 1.0f;
        for (int own_col = col_begin; own_col < col_end; own_col += 64) {
            // The last tile of a line begins earlier, so that its vectors of B end inside.
            const int col0 = 64 <= n ? min(own_col, n - 64) : own_col;
            const int k_main = col0 + 64 <= n ? k_stop : k_block;
            for (int row0 = row_begin; row0 < row_end; row0 += 6) {
                float16 acc[6][4];
                #pragma unroll
                for (int i = 0; i < 6; ++i) {
                    #pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        acc[i][j] = 0.0f;
                    }
                }
                for (int k0 = k_block; k0 < k_main; ++k0) {
                    float16 b_frag[4];
                    #pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        b_frag[j] = vload16(0, &b[k0 * ldb + col0 + j * 16]);
                    }
                    float a_frag[6];
                    #pragma unroll
                    for (int i = 0; i < 6; ++i) {
                        a_frag[i] = a[min(row0 + i, m - 1) * lda + k0];
                    }
                    #pragma unroll
                    for (int i = 0; i < 6; ++i) {
                        #pragma unroll
                        for (int j = 0; j < 4; ++j) {
                            acc[i][j] = fma((float16)(a_frag[i]), b_frag[j], acc[i][j]);
                        }
                    }
                }
                for (int k0 = k_main; k0 < k_stop; ++k0) {
                    float16 b_frag[4];
                    #pragma unroll
                    for (int j = 0; j < 64; ++j) {
                        ((float *)b_frag)[j] = b[k0 * ldb + min(col0 + j, n - 1)];
                    }
                    float a_frag[6];
                    #pragma unroll
                    for (int i = 0; i < 6; ++i) {
                        a_frag[i] = a[min(row0 + i, m - 1) * lda + k0];
                    }
                    #pragma unroll
                    for (int i = 0; i < 6; ++i) {
                        #pragma unroll
                        for (int j = 0; j < 4; ++j) {
                            acc[i][j] = fma((float16)(a_frag[i]), b_frag[j], acc[i][j]);
                        }
                    }
                }

                // This part's share of C.
                if (row0 + 6 <= m && col0 + 64 <= n && own_col <= col0) {
                    #pragma unroll
                    for (int i = 0; i < 6; ++i) {
                        #pragma unroll
                        for (int j = 0; j < 4; ++j) {
                            float16 workspace_values = alpha * acc[i][j];
                            if (beta_now != 0.0f) {
                                float16 workspace_old =
                                    vload16(0,
                                        &workspace[part * (m * n) + (row0 + i) * n + col0
                                            + j * 16]);
                                workspace_values =
                                    fma((float16)(beta_now), workspace_old, workspace_values);
                            }
                            vstore16(workspace_values, 0,
                                &workspace[part * (m * n) + (row0 + i) * n + col0 + j * 16]);
                        }
                    }
                } else {
                    // At the edge of C, element by element.
                    float workspace_part[6][64];
                    #pragma unroll
                    for (int i = 0; i < 6; ++i) {
                        #pragma unroll
                        for (int j = 0; j < 4; ++j) {
                            vstore16(acc[i][j], 0, &workspace_part[i][j * 16]);
                        }
                    }
                    for (int i = 0; i < min(6, m - row0); ++i) {
                        for (int j = own_col - col0; j < min(64, n - col0); ++j) {
                            workspace[part * (m * n) + (row0 + i) * n + col0 + j] =
                                beta_now == 0.0f ? alpha * workspace_part[i][j]
                                                 : fma(beta_now,
                                                     workspace[part * (m * n) + (row0 + i) * n
                                                         + col0 + j], alpha * workspace_part[i][j]);
                        }
                    }
                }
            }
        }
    }
}

__attribute__((reqd_work_group_size(256, 1, 1)))
__kernel void cpu_6x64_split8_total(int m, int n, __global const float *restrict workspace,
                                    float beta, __global float *restrict c, int ldc)
{
    const int blocks_across = (n + 255) / 256;
    const int row = (int)get_group_id(0) / blocks_across;
    const int col = (int)get_group_id(0) % blocks_across * 256 + (int)get_local_id(0);

    if (col < n) {
        // The parts of K, one after the other.
        float total = workspace[row * n + col];
        #pragma unroll
        for (int s = 1; s < 8; ++s) {
            const float term = workspace[s * (m * n) + row * n + col];
            total = total + term;
        }
        c[row * ldc + col] = beta == 0.0f ? total : fma(beta, c[row * ldc + col], total);
    }
}
