// naive: C = alpha * A * B + beta * C; float32
//
// Tile       8x8 of C per group, 1x1 per work-item, 1 along K per step
// Work-items 8x8 per group
// A          buffer, loads of single elements
// B          buffer, loads of single elements
// Multiply   fused multiply-add
// C          stores of single elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     local size {8, 8}, global size {(n + 7) / 8 * 8, (m + 7) / 8 * 8}
// Build      clBuildProgram(..., "-cl-std=CL1.2", ...)

// Block tile of C.
#define BM 8
#define BN 8

#if BM != 8 || BN != 8
#error "BM and BN cannot change here: gemmgen emit --preset naive --set tile=2x1"
#endif

__attribute__((reqd_work_group_size(8, 8, 1))) __kernel void
naive(int m, int n, int k, float alpha, __global const float *restrict a, int lda,
      __global const float *restrict b, int ldb, float beta, __global float *restrict c, int ldc)
{
    const int row = (int)get_group_id(1) * BM + (int)get_local_id(1);
    const int col = (int)get_group_id(0) * BN + (int)get_local_id(0);

    if (row < m && col < n) {
        float acc = 0.0f;
        for (int k0 = 0; k0 < k; ++k0) {
            const float a_frag = a[row * lda + k0];
            const float b_frag = b[k0 * ldb + col];
            acc = fma(a_frag, b_frag, acc);
        }

        // C = alpha * A * B + beta * C; C is not read where beta is zero.
        c[row * ldc + col] =
            beta == 0.0f ? alpha * acc : fma(beta, c[row * ldc + col], alpha * acc);
    }
}

#undef BM
#undef BN
