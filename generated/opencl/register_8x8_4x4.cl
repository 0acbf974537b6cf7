// register_8x8_4x4: C = alpha * A * B + beta * C; float32
//
// Tile       32x32 of C per group, 8x8 per work-item, 1 along K per step
// Work-items 4x4 per group
// A          buffer, loads of single elements
// B          buffer, loads of 8 elements
// Multiply   fused multiply-add
// C          stores of 4 elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     local size {4, 4}, global size {(n + 31) / 32 * 4, (m + 31) / 32 * 4}
// Build      clBuildProgram(..., "-cl-std=CL1.2", ...)

// Block tile of C.
#define BM 32
#define BN 32
// Work-items along M and N.
#define THREADS_M 4
#define THREADS_N 4
// Tile of C of a work-item.
#define TM (BM / THREADS_M)
#define TN (BN / THREADS_N)

#if BM != 32 || BN != 32
#error "BM and BN cannot change here:"
#error "gemmgen emit --preset register_8x8_4x4 --set tile=16x8"
#endif
#if THREADS_M != 4 || THREADS_N != 4
#error "THREADS_M and THREADS_N cannot change here:"
#error "gemmgen emit --preset register_8x8_4x4 --set group=2x4"
#endif

// 4 neighbouring elements, at any alignment.
#define COPY4(to, from) vstore4(vload4(0, from), 0, to)

// 8 neighbouring elements, at any alignment.
#define COPY8(to, from) vstore8(vload8(0, from), 0, to)

__attribute__((reqd_work_group_size(4, 4, 1))) __kernel void
register_8x8_4x4(int m, int n, int k, float alpha, __global const float *restrict a, int lda,
                 __global const float *restrict b, int ldb, float beta, __global float *restrict c,
                 int ldc)
{
    const int col0 = (int)get_group_id(0) * BN;
    const int row = (int)get_group_id(1) * BM + (int)get_local_id(1) * 8;
    const int col = col0 + (int)get_local_id(0) * 8;

    float acc[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }
    if (col0 + BN <= n) {
        for (int k0 = 0; k0 < k; ++k0) {
            float a_frag[TM];
            float b_frag[TN];
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                a_frag[i] = a[min(row + i, m - 1) * lda + k0];
            }
            COPY8(b_frag, &b[k0 * ldb + col]);
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                #pragma unroll
                for (int j = 0; j < TN; ++j) {
                    acc[i][j] = fma(a_frag[i], b_frag[j], acc[i][j]);
                }
            }
        }
    } else {
        // A block at the edge of C: every load has a bounds check.
        for (int k0 = 0; k0 < k; ++k0) {
            float a_frag[TM];
            float b_frag[TN];
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                a_frag[i] = a[min(row + i, m - 1) * lda + k0];
            }
            if (col + 8 <= n) {
                COPY8(b_frag, &b[k0 * ldb + col]);
            } else {
                #pragma unroll
                for (int e = 0; e < 8; ++e) {
                    b_frag[e] = b[k0 * ldb + min(col + e, n - 1)];
                }
            }
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                #pragma unroll
                for (int j = 0; j < TN; ++j) {
                    acc[i][j] = fma(a_frag[i], b_frag[j], acc[i][j]);
                }
            }
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        if (row + i < m) {
            #pragma unroll
            for (int j = 0; j < TN / 4; ++j) {
                if (col + j * 4 + 4 <= n) {
                    float c_values[4];
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        c_values[e] = alpha * acc[i][j * 4 + e];
                    }
                    if (beta != 0.0f) {
                        float c_old[4];
                        COPY4(c_old, &c[(row + i) * ldc + col + j * 4]);
                        #pragma unroll
                        for (int e = 0; e < 4; ++e) {
                            c_values[e] = fma(beta, c_old[e], c_values[e]);
                        }
                    }
                    COPY4(&c[(row + i) * ldc + col + j * 4], c_values);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        if (col + j * 4 + e < n) {
                            c[(row + i) * ldc + col + j * 4 + e] =
                                beta == 0.0f ? alpha * acc[i][j * 4 + e]
                                             : fma(beta, c[(row + i) * ldc + col + j * 4 + e],
                                                   alpha * acc[i][j * 4 + e]);
                        }
                    }
                }
            }
        }
    }
}

#undef BM
#undef BN
#undef THREADS_M
#undef THREADS_N
#undef TM
#undef TN

#undef COPY4
#undef COPY8
