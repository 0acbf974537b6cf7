// vec4_4x4: C = alpha * A * B + beta * C; float32
//
// Schedule   4x4 of C per work-item, 16x16 work-items per group (64x64 of C), 4 along K per
//            iteration
// A          buffer, loads of 4 elements
// B          buffer, loads of 4 elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0
// Launch     local size {16, 16}, global size {(n + 63) / 64 * 16, (m + 63) / 64 * 16}
// Build      clBuildProgram(..., "-cl-std=CL1.2", ...)

// 4 neighbouring elements, at any alignment.
#define COPY4(to, from) vstore4(vload4(0, from), 0, to)

__attribute__((reqd_work_group_size(16, 16, 1)))
__kernel void vec4_4x4(int m, int n, int k, float alpha, __global const float *restrict a, int lda,
                       __global const float *restrict b, int ldb, float beta,
                       __global float *restrict c, int ldc)
{
    const int col0 = (int)get_group_id(0) * 64;
    const int row = (int)get_group_id(1) * 64 + (int)get_local_id(1) * 4;
    const int col = col0 + (int)get_local_id(0) * 4;
    const int k_main = k - k % 4;

    float acc[4][4];
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Whole steps of 4 along K.
    if (col0 + 64 <= n) {
        for (int k0 = 0; k0 < k_main; k0 += 4) {
            float a_frag[4][4];
            float b_frag[4][4];
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                COPY4(a_frag[i], &a[min(row + i, m - 1) * lda + k0]);
            }
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                COPY4(b_frag[i], &b[(k0 + i) * ldb + col]);
            }
            #pragma unroll
            for (int p = 0; p < 4; ++p) {
                #pragma unroll
                for (int i = 0; i < 4; ++i) {
                    #pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        acc[i][j] = fma(a_frag[i][p], b_frag[p][j], acc[i][j]);
                    }
                }
            }
        }
    } else {
        // At the edge of C, each load asks whether it is inside.
        for (int k0 = 0; k0 < k_main; k0 += 4) {
            float a_frag[4][4];
            float b_frag[4][4];
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                COPY4(a_frag[i], &a[min(row + i, m - 1) * lda + k0]);
            }
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                if (col + 4 <= n) {
                    COPY4(b_frag[i], &b[(k0 + i) * ldb + col]);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        b_frag[i][e] = b[(k0 + i) * ldb + min(col + e, n - 1)];
                    }
                }
            }
            #pragma unroll
            for (int p = 0; p < 4; ++p) {
                #pragma unroll
                for (int i = 0; i < 4; ++i) {
                    #pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        acc[i][j] = fma(a_frag[i][p], b_frag[p][j], acc[i][j]);
                    }
                }
            }
        }
    }
    if (k_main < k) {
        // The rest of K; what lies past it counts as zero.
        float a_frag[4][4];
        float b_frag[4][4];
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                a_frag[i][e] = k_main + e < k ? a[min(row + i, m - 1) * lda + k_main + e] : 0.0f;
            }
        }
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (k_main + i < k && col + 4 <= n) {
                COPY4(b_frag[i], &b[(k_main + i) * ldb + col]);
            } else {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                    b_frag[i][e] =
                        k_main + i < k ? b[(k_main + i) * ldb + min(col + e, n - 1)] : 0.0f;
                }
            }
        }
        #pragma unroll
        for (int p = 0; p < 4; ++p) {
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
                #pragma unroll
                for (int j = 0; j < 4; ++j) {
                    acc[i][j] = fma(a_frag[i][p], b_frag[p][j], acc[i][j]);
                }
            }
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (row + i < m) {
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                if (col + j < n) {
                    c[(row + i) * ldc + col + j] =
                        beta == 0.0f ? alpha * acc[i][j]
                                     : fma(beta, c[(row + i) * ldc + col + j], alpha * acc[i][j]);
                }
            }
        }
    }
}

#undef COPY4
