// gemv_1x4: C = alpha * A * B + beta * C; float32; B col-major
//
// Tile       1x4 of C per group, 1x4 per work-item, 1024 along K per step
// Work-items 256 per group, 256 slices of each step along K (sliced-K), sub-groups of 32
// A          buffer, loads of 4 elements
// B          buffer, loads of 4 elements
// Multiply   fused multiply-add
// C          slices added up in local memory, stores of single elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0
// Launch     local size {32, 8}, global size {(n + 3) / 4 * 32, m * 8}
// Needs      128 bytes of local memory
//            cl_intel_subgroups, cl_intel_required_subgroup_size, sub-groups of 32
// Build      clBuildProgram(..., "-cl-std=CL2.0", ...)

// Block tile: columns of C.
#define BN 4
// Parts of a block's K (sliced-K).
#define SLICES 8
// Columns of C of a work-item.
#define TN BN

#if BN != 4
#error "BN cannot change here: gemmgen emit --preset gemv_1x4 --set tile=2x4"
#endif
#if SLICES != 8
#error "SLICES cannot change here: gemmgen emit --preset gemv_1x4 --set sliced_k=4"
#endif

#pragma OPENCL EXTENSION cl_intel_subgroups : enable

// 4 neighbouring elements, at any alignment.
#define COPY4(to, from) vstore4(vload4(0, from), 0, to)

__attribute__((reqd_work_group_size(32, 8, 1)))
__attribute__((intel_reqd_sub_group_size(32))) __kernel void
gemv_1x4(int m, int n, int k, float alpha, __global const float *restrict a, int lda,
         __global const float *restrict b, int ldb, float beta, __global float *restrict c, int ldc)
{
    const int slice = (int)get_local_id(1);
    const int lane_k = (int)get_local_id(0) % 32;
    const int row0 = (int)get_group_id(1);
    const int col0 = (int)get_group_id(0) * BN;
    const int local_index = (int)get_local_id(1) * 32 + (int)get_local_id(0);

    float acc[TN];
    #pragma unroll
    for (int j = 0; j < TN; ++j) {
        acc[j] = 0.0f;
    }

    // Each lane goes along K by 4 elements at a time.
    for (int k0 = (slice * 32 + lane_k) * 4; k0 < k - 3; k0 += SLICES * 128) {
        float a_frag[4];
        float b_frag[TN][4];
        COPY4(a_frag, &a[row0 * lda + k0]);
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            COPY4(b_frag[j], &b[min(col0 + j, n - 1) * ldb + k0]);
        }
        #pragma unroll
        for (int p = 0; p < 4; ++p) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                acc[j] = fma(a_frag[p], b_frag[j][p], acc[j]);
            }
        }
    }

    // What is left of K: a lane has one element of it.
    const int k_left = k - k % 4 + slice * 32 + lane_k;

    if (k_left < k) {
        float b_frag[TN];
        const float a_frag = a[row0 * lda + k_left];
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            b_frag[j] = b[min(col0 + j, n - 1) * ldb + k_left];
        }
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            acc[j] = fma(a_frag, b_frag[j], acc[j]);
        }
    }

    // Lanes that share elements of C add up their sums, each for its share of these.
    const bool is_low_16 = lane_k / 16 % 2 == 0;

    #pragma unroll
    for (int j = 0; j < TN / 2; ++j) {
        const float received =
            intel_sub_group_shuffle_xor(is_low_16 ? acc[j + TN / 2] : acc[j], 16);
        acc[j] = (is_low_16 ? acc[j] : acc[j + TN / 2]) + received;
    }

    const bool is_low_8 = lane_k / 8 % 2 == 0;
    const float received = intel_sub_group_shuffle_xor(is_low_8 ? acc[TN / 4] : acc[0], 8);

    acc[0] = (is_low_8 ? acc[0] : acc[TN / 4]) + received;
    acc[0] += intel_sub_group_shuffle_xor(acc[0], 4);
    acc[0] += intel_sub_group_shuffle_xor(acc[0], 2);
    acc[0] += intel_sub_group_shuffle_xor(acc[0], 1);

    // Every slice writes its partial sums; then they are added up.
    __local float partial[SLICES][BN];
    if (lane_k % (32 / TN) == 0) {
        partial[slice][lane_k / (32 / TN) % TN] = alpha * acc[0];
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    const int sum_col = local_index % BN;
    const int first_col = col0 + sum_col;

    if (local_index < BN) {
        float total = partial[0][sum_col];
        #pragma unroll
        for (int s = 1; s < SLICES; ++s) {
            const float term = partial[s][sum_col];
            total += term;
        }

        // C = alpha * A * B + beta * C; C is not read where beta is zero.
        if (first_col < n) {
            c[row0 * ldc + first_col] =
                beta == 0.0f ? total : fma(beta, c[row0 * ldc + first_col], total);
        }
    }
}

#undef BN
#undef SLICES
#undef TN

#undef COPY4
