// gemv_4x4: C = alpha * A * B + beta * C; float32; B col-major
//
// Tile       4x4 of C per group, 4x4 per work-item, 1024 along K per step
// Work-items 256 per group, 8 slices of each step along K (sliced-K), each of 32 lanes, sub-groups
//            of 32
// A          buffer, loads of 4 elements
// B          buffer, loads of 4 elements
// Multiply   fused multiply-add
// C          slices added up in local memory, stores of single elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     local size {32, 8}, global size {(n + 3) / 4 * 32, (m + 3) / 4 * 8}
// Needs      512 bytes of local memory
//            cl_intel_subgroups, cl_intel_required_subgroup_size, sub-groups of 32
// Build      clBuildProgram(..., "-cl-std=CL2.0", ...)

// Block tile of C.
#define BM 4
#define BN 4
// Parts of a block's K (sliced-K).
#define SLICES 8
// Lanes along K, and elements of a lane's load along K.
#define LANES_K 32
#define LOAD_K 4
// Tile of C of a work-item.
#define TM BM
#define TN BN

#if BM != 4 || BN != 4
#error "BM and BN cannot change here: gemmgen emit --preset gemv_4x4 --set tile=8x4"
#endif
#if SLICES != 8
#error "SLICES cannot change here: gemmgen emit --preset gemv_4x4 --set sliced_k=4"
#endif
#if LANES_K != 32
#error "LANES_K cannot change here:"
#error "gemmgen emit --preset gemv_4x4 --set lanes_along_k=16"
#endif
#if LOAD_K != 4
#error "LOAD_K cannot change here: gemmgen emit --preset gemv_4x4 --set b.width=2"
#endif

#pragma OPENCL EXTENSION cl_intel_subgroups : enable

// 4 neighbouring elements, at any alignment.
#define COPY4(to, from) vstore4(vload4(0, from), 0, to)

__attribute__((reqd_work_group_size(32, 8, 1)))
__attribute__((intel_reqd_sub_group_size(32))) __kernel void
gemv_4x4(int m, int n, int k, float alpha, __global const float *restrict a, int lda,
         __global const float *restrict b, int ldb, float beta, __global float *restrict c, int ldc)
{
    const int slice = (int)get_local_id(1);
    const int lane_k = (int)get_local_id(0);
    const int row0 = (int)get_group_id(1) * BM;
    const int col0 = (int)get_group_id(0) * BN;
    const int local_index = (int)get_local_id(1) * LANES_K + (int)get_local_id(0);

    float acc[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Each lane goes along K by LOAD_K elements at a time.
    for (int k0 = (slice * LANES_K + lane_k) * LOAD_K; k0 < k - (LOAD_K - 1);
         k0 += SLICES * LANES_K * LOAD_K) {
        float a_frag[TM][LOAD_K];
        float b_frag[TN][LOAD_K];
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            COPY4(a_frag[i], &a[min(row0 + i, m - 1) * lda + k0]);
        }
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            COPY4(b_frag[j], &b[min(col0 + j, n - 1) * ldb + k0]);
        }
        #pragma unroll
        for (int p = 0; p < LOAD_K; ++p) {
            #pragma unroll
            for (int i = 0; i < TM; ++i) {
                #pragma unroll
                for (int j = 0; j < TN; ++j) {
                    acc[i][j] = fma(a_frag[i][p], b_frag[j][p], acc[i][j]);
                }
            }
        }
    }

    // What is left of K: a lane has one element of it.
    const int k_left = k - k % LOAD_K + slice * LANES_K + lane_k;

    if (k_left < k) {
        float a_frag[TM];
        float b_frag[TN];
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            a_frag[i] = a[min(row0 + i, m - 1) * lda + k_left];
        }
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            b_frag[j] = b[min(col0 + j, n - 1) * ldb + k_left];
        }
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                acc[i][j] = fma(a_frag[i], b_frag[j], acc[i][j]);
            }
        }
    }

    // Butterfly reduction: lanes exchange halves of their sums, and each ends with its own.
    const bool is_low_16 = lane_k / 16 % 2 == 0;

    #pragma unroll
    for (int i = 0; i < TM / 2; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            const float received =
                intel_sub_group_shuffle_xor(is_low_16 ? acc[i + TM / 2][j] : acc[i][j], 16);
            acc[i][j] = (is_low_16 ? acc[i][j] : acc[i + TM / 2][j]) + received;
        }
    }

    const bool is_low_8 = lane_k / 8 % 2 == 0;

    #pragma unroll
    for (int j = 0; j < TN; ++j) {
        const float received =
            intel_sub_group_shuffle_xor(is_low_8 ? acc[TM / 4][j] : acc[0][j], 8);
        acc[0][j] = (is_low_8 ? acc[0][j] : acc[TM / 4][j]) + received;
    }

    const bool is_low_4 = lane_k / 4 % 2 == 0;

    #pragma unroll
    for (int j = 0; j < TN / 2; ++j) {
        const float received =
            intel_sub_group_shuffle_xor(is_low_4 ? acc[0][j + TN / 2] : acc[0][j], 4);
        acc[0][j] = (is_low_4 ? acc[0][j] : acc[0][j + TN / 2]) + received;
    }

    const bool is_low_2 = lane_k / 2 % 2 == 0;
    const float received = intel_sub_group_shuffle_xor(is_low_2 ? acc[0][TN / 4] : acc[0][0], 2);

    acc[0][0] = (is_low_2 ? acc[0][0] : acc[0][TN / 4]) + received;
    acc[0][0] += intel_sub_group_shuffle_xor(acc[0][0], 1);

    // Every slice writes its partial sums; then they are added up.
    __local float partial[SLICES][BM][BN];
    if (lane_k % 2 == 0) {
        partial[slice][lane_k / 8][lane_k / 2 % 4] = alpha * acc[0][0];
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    const int sum_row = local_index / BN;
    const int sum_col = local_index % BN;
    const int first_col = col0 + sum_col;

    if (local_index < BM * BN) {
        float total = partial[0][sum_row][sum_col];
        #pragma unroll
        for (int s = 1; s < SLICES; ++s) {
            total += partial[s][sum_row][sum_col];
        }

        // C = alpha * A * B + beta * C; C is not read where beta is zero.
        const int c_row = row0 + sum_row;
        if (c_row < m && first_col < n) {
            c[c_row * ldc + first_col] =
                beta == 0.0f ? total : fma(beta, c[c_row * ldc + first_col], total);
        }
    }
}

#undef BM
#undef BN
#undef SLICES
#undef LANES_K
#undef LOAD_K
#undef TM
#undef TN

#undef COPY4
