// lds_8x8_16x16_k1: C = alpha * A * B + beta * C; float32
//
// Tile       128x128 of C per group, 8x8 per work-item, 1 along K per step
// Work-items 16x16 per group
// A          buffer, loads of single elements, to local memory, transposed
// B          buffer, loads of single elements, to local memory
// Multiply   fused multiply-add
// C          stores of single elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     local size {16, 16}, global size {(n + 127) / 128 * 16, (m + 127) / 128 * 16}
// Needs      1,024 bytes of local memory
// Build      clBuildProgram(..., "-cl-std=CL1.2", ...)

// Block tile of C.
#define BM 128
#define BN 128
// Work-items along M and N.
#define THREADS_M 16
#define THREADS_N 16
// Tile of C of a work-item.
#define TM (BM / THREADS_M)
#define TN (BN / THREADS_N)

#if BM != 128 || BN != 128
#error "BM and BN cannot change here:"
#error "gemmgen emit --preset lds_8x8_16x16_k1 --set tile=4x8"
#endif
#if THREADS_M != 16 || THREADS_N != 16
#error "THREADS_M and THREADS_N cannot change here:"
#error "gemmgen emit --preset lds_8x8_16x16_k1 --set group=8x16"
#endif

// 4 neighbouring elements of local memory, from a multiple of 16 bytes.
#define COPY_LOCAL4(to, from) vstore4(*(const __local float4 *)(from), 0, to)

__attribute__((reqd_work_group_size(16, 16, 1))) __kernel void
lds_8x8_16x16_k1(int m, int n, int k, float alpha, __global const float *restrict a, int lda,
                 __global const float *restrict b, int ldb, float beta, __global float *restrict c,
                 int ldc)
{
    const int local_row = (int)get_local_id(1);
    const int local_col = (int)get_local_id(0);
    const int row0 = (int)get_group_id(1) * BM;
    const int col0 = (int)get_group_id(0) * BN;
    const int row = row0 + local_row * 4;
    const int col = col0 + local_col * 4;
    const int local_index = local_row * THREADS_N + local_col;
    const int b_k = local_index / BN;
    const int b_col = local_index % BN;

    __local float a_shared[BM] __attribute__((aligned(16)));
    __local float b_shared[BN] __attribute__((aligned(16)));
    float acc[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }
    for (int k0 = 0; k0 < k; ++k0) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (local_index < BM) {
            a_shared[local_index] = a[min(row0 + local_index, m - 1) * lda + k0];
        }
        if (local_index < BN) {
            b_shared[b_col] = b[(k0 + b_k) * ldb + min(col0 + b_col, n - 1)];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        float a_frag[TM];
        float b_frag[TN];
        #pragma unroll
        for (int i = 0; i < TM / 4; ++i) {
            COPY_LOCAL4(&a_frag[i * 4], &a_shared[local_row * 4 + i * THREADS_M * 4]);
        }
        #pragma unroll
        for (int j = 0; j < TN / 4; ++j) {
            COPY_LOCAL4(&b_frag[j * 4], &b_shared[local_col * 4 + j * THREADS_N * 4]);
        }
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                acc[i][j] = fma(a_frag[i], b_frag[j], acc[i][j]);
            }
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        const int c_row = row + i / 4 * THREADS_M * 4 + i % 4;
        if (c_row < m) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                if (col + j / 4 * THREADS_N * 4 + j % 4 < n) {
                    c[c_row * ldc + col + j / 4 * THREADS_N * 4 + j % 4] =
                        beta == 0.0f
                            ? alpha * acc[i][j]
                            : fma(beta, c[c_row * ldc + col + j / 4 * THREADS_N * 4 + j % 4],
                                  alpha * acc[i][j]);
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

#undef COPY_LOCAL4
