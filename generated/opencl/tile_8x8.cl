// tile_8x8: C = alpha * A * B + beta * C; float32
//
// Schedule   8x8 of C per work-item, 16x16 work-items per group (128x128 of C), 4 along K per
//            iteration, stores of 4 elements
// A          buffer, loads of 4 elements
// B          buffer, loads of 4 elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0
// Launch     local size {16, 16}, global size {(n + 127) / 128 * 16, (m + 127) / 128 * 16}
// Needs      on Intel's GPUs, and only there, the build option -cl-intel-256-GRF-per-thread
// Build      clBuildProgram(..., "-cl-std=CL1.2", ...)

// 4 neighbouring elements, at any alignment.
#define COPY4(to, from) vstore4(vload4(0, from), 0, to)

__attribute__((reqd_work_group_size(16, 16, 1)))
__kernel void tile_8x8(int m, int n, int k, float alpha, __global const float *restrict a, int lda,
                       __global const float *restrict b, int ldb, float beta,
                       __global float *restrict c, int ldc)
{
    const int col0 = (int)get_group_id(0) * 128;
    const int row = (int)get_group_id(1) * 128 + (int)get_local_id(1) * 4;
    const int col = col0 + (int)get_local_id(0) * 4;
    const int k_main = k - k % 4;

    float acc[8][8];
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Whole steps of 4 along K.
    if (col0 + 128 <= n) {
        for (int k0 = 0; k0 < k_main; k0 += 4) {
            float a_frag[8][4];
            float b_frag[4][8];
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                COPY4(a_frag[i], &a[min(row + i / 4 * 64 + i % 4, m - 1) * lda + k0]);
            }
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                #pragma unroll
                for (int j = 0; j < 2; ++j) {
                    COPY4(&b_frag[i][j * 4], &b[(k0 + i) * ldb + col + j * 64]);
                }
            }
            #pragma unroll
            for (int p = 0; p < 4; ++p) {
                #pragma unroll
                for (int i = 0; i < 8; ++i) {
                    #pragma unroll
                    for (int j = 0; j < 8; ++j) {
                        acc[i][j] = fma(a_frag[i][p], b_frag[p][j], acc[i][j]);
                    }
                }
            }
        }
    } else {
        // At the edge of C, each load asks whether it is inside.
        for (int k0 = 0; k0 < k_main; k0 += 4) {
            float a_frag[8][4];
            float b_frag[4][8];
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                COPY4(a_frag[i], &a[min(row + i / 4 * 64 + i % 4, m - 1) * lda + k0]);
            }
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                #pragma unroll
                for (int j = 0; j < 2; ++j) {
                    if (col + j * 64 + 4 <= n) {
                        COPY4(&b_frag[i][j * 4], &b[(k0 + i) * ldb + col + j * 64]);
                    } else {
                        #pragma unroll
                        for (int e = 0; e < 4; ++e) {
                            b_frag[i][j * 4 + e] = b[(k0 + i) * ldb + min(col + j * 64 + e, n - 1)];
                        }
                    }
                }
            }
            #pragma unroll
            for (int p = 0; p < 4; ++p) {
                #pragma unroll
                for (int i = 0; i < 8; ++i) {
                    #pragma unroll
                    for (int j = 0; j < 8; ++j) {
                        acc[i][j] = fma(a_frag[i][p], b_frag[p][j], acc[i][j]);
                    }
                }
            }
        }
    }
    if (k_main < k) {
        // The rest of K; what lies past it counts as zero.
        float a_frag[8][4];
        float b_frag[4][8];
        #pragma unroll
        for (int i = 0; i < 8; ++i) {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                a_frag[i][e] =
                    k_main + e < k ? a[min(row + i / 4 * 64 + i % 4, m - 1) * lda + k_main + e]
                                   : 0.0f;
            }
        }
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            #pragma unroll
            for (int j = 0; j < 2; ++j) {
                if (k_main + i < k && col + j * 64 + 4 <= n) {
                    COPY4(&b_frag[i][j * 4], &b[(k_main + i) * ldb + col + j * 64]);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        b_frag[i][j * 4 + e] =
                            k_main + i < k ? b[(k_main + i) * ldb + min(col + j * 64 + e, n - 1)]
                                           : 0.0f;
                    }
                }
            }
        }
        #pragma unroll
        for (int p = 0; p < 4; ++p) {
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                #pragma unroll
                for (int j = 0; j < 8; ++j) {
                    acc[i][j] = fma(a_frag[i][p], b_frag[p][j], acc[i][j]);
                }
            }
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
        const int c_row = row + i / 4 * 64 + i % 4;
        if (c_row < m) {
            #pragma unroll
            for (int j = 0; j < 2; ++j) {
                if (col + j * 64 + 4 <= n) {
                    float c_values[4];
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        c_values[e] = alpha * acc[i][j * 4 + e];
                    }
                    if (beta != 0.0f) {
                        float c_old[4];
                        COPY4(c_old, &c[c_row * ldc + col + j * 64]);
                        #pragma unroll
                        for (int e = 0; e < 4; ++e) {
                            c_values[e] = fma(beta, c_old[e], c_values[e]);
                        }
                    }
                    COPY4(&c[c_row * ldc + col + j * 64], c_values);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        if (col + j * 64 + e < n) {
                            c[c_row * ldc + col + j * 64 + e] =
                                beta == 0.0f ? alpha * acc[i][j * 4 + e]
                                             : fma(beta, c[c_row * ldc + col + j * 64 + e],
                                                 alpha * acc[i][j * 4 + e]);
                        }
                    }
                }
            }
        }
    }
}

#undef COPY4
