// block_read_16x4_4x8: C = alpha * A * B + beta * C; float32
//
// Tile       64x32 of C per group, 16x4 per work-item, 8 along K per step
// Work-items 4x8 per group, sub-groups of 8
// A          image, block reads of 8 rows, passed around the sub-group by shuffles
// B          image, block reads of 8 rows
// Multiply   fused multiply-add
// C          stores of single elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     local size {8, 4}, global size {(n + 31) / 32 * 8, (m + 63) / 64 * 4}
// Needs      cl_intel_subgroups, cl_intel_required_subgroup_size, sub-groups of 8, which Xe-HPC and
//                Xe2 don't have (--target xe_hpc)
//            images (CL_R, CL_FLOAT) as wide and high as the matrices: no more than
//                CL_DEVICE_IMAGE2D_MAX_WIDTH and CL_DEVICE_IMAGE2D_MAX_HEIGHT, 16384 on Intel's
//                GPUs
// Build      clBuildProgram(..., "-cl-std=CL2.0", ...)

// Helpers carry the kernel's name: several files fit into one program.
#define image_block_read8 block_read_16x4_4x8_image_block_read8

// Block tile: BM x BN of C, BK along K per step.
#define BM 64
#define BN 32
#define BK 8
// Work-items along M and N.
#define THREADS_M 4
#define THREADS_N 8
// Tile of C of a work-item.
#define TM (BM / THREADS_M)
#define TN (BN / THREADS_N)

#if BM != 64 || BN != 32
#error "BM and BN cannot change here:"
#error "gemmgen emit --preset block_read_16x4_4x8 --set tile=16x2"
#endif
#if BK != 8
#error "BK cannot change here: this schedule has no other block_k"
#endif
#if THREADS_M != 4 || THREADS_N != 8
#error "THREADS_M and THREADS_N cannot change here:"
#error "gemmgen emit --preset block_read_16x4_4x8 --set group=2x8"
#endif

#pragma OPENCL EXTENSION cl_intel_subgroups : enable

// One element per lane of each of 8 rows.
static inline float8 image_block_read8(__read_only image2d_t image, int2 at)
{
    return as_float8(intel_sub_group_block_read8(image, at));
}

__attribute__((reqd_work_group_size(8, 4, 1)))
__attribute__((intel_reqd_sub_group_size(8))) __kernel void
block_read_16x4_4x8(int m, int n, int k, float alpha, __read_only image2d_t a,
                    __read_only image2d_t b, float beta, __global float *restrict c, int ldc)
{
    const int lane = (int)get_sub_group_local_id();
    const int col0 = (int)get_group_id(0) * BN;
    const int row = (int)get_group_id(1) * BM + (int)get_local_id(1) * 16;
    const int col = col0 + lane;
    const int k_main = k - k % BK;

    float acc[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            acc[i][j] = 0.0f;
        }
    }

    // Addresses of block reads in bytes, one (or half of one) a lane; the loop adds a step first.
    int b_at = lane % 2 == 0 ? (col0 + lane / 2 * THREADS_N) * 4 : -BK;
    int a_at = lane % 2 == 0 ? -(BK * 4) : row + lane / 2 * 8;

    // Whole steps of BK along K.
    for (int k0 = 0; k0 < k_main; k0 += BK) {
        b_at += lane % 2 == 0 ? 0 : BK;
        a_at += lane % 2 == 0 ? BK * 4 : 0;
        float b_frag[TN][BK];
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            vstore8(image_block_read8(b, (int2)(intel_sub_group_shuffle(b_at, j * 2),
                                                intel_sub_group_shuffle(b_at, j * 2 + 1))),
                    0, b_frag[j]);
        }
        float a_frag[TM];
        #pragma unroll
        for (int i = 0; i < TM / 8; ++i) {
            vstore8(image_block_read8(a, (int2)(intel_sub_group_shuffle(a_at, i * 2),
                                                intel_sub_group_shuffle(a_at, i * 2 + 1))),
                    0, &a_frag[i * 8]);
        }
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int p = 0; p < BK; ++p) {
                const float a_value = intel_sub_group_shuffle(a_frag[i], p);
                #pragma unroll
                for (int j = 0; j < TN; ++j) {
                    acc[i][j] = fma(a_value, b_frag[j][p], acc[i][j]);
                }
            }
        }
    }
    if (k_main < k) {
        // The rest of K; what lies past it counts as zero.
        float b_frag[TN][BK];
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            vstore8(image_block_read8(b, (int2)((col0 + j * THREADS_N) * 4, k_main)), 0, b_frag[j]);
            #pragma unroll
            for (int e = 0; e < 8; ++e) {
                b_frag[j][e] = k_main + e < k ? b_frag[j][e] : 0.0f;
            }
        }
        float a_frag[TM];
        #pragma unroll
        for (int i = 0; i < TM / 8; ++i) {
            vstore8(image_block_read8(a, (int2)(k_main * 4, row + i * 8)), 0, &a_frag[i * 8]);
            #pragma unroll
            for (int e = 0; e < 8; ++e) {
                a_frag[i * 8 + e] = k_main + lane < k ? a_frag[i * 8 + e] : 0.0f;
            }
        }
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int p = 0; p < BK; ++p) {
                const float a_value = intel_sub_group_shuffle(a_frag[i], p);
                #pragma unroll
                for (int j = 0; j < TN; ++j) {
                    acc[i][j] = fma(a_value, b_frag[j][p], acc[i][j]);
                }
            }
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        if (row + i < m) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                if (col + j * THREADS_N < n) {
                    c[(row + i) * ldc + col + j * THREADS_N] =
                        beta == 0.0f ? alpha * acc[i][j]
                                     : fma(beta, c[(row + i) * ldc + col + j * THREADS_N],
                                           alpha * acc[i][j]);
                }
            }
        }
    }
}

#undef BM
#undef BN
#undef BK
#undef THREADS_M
#undef THREADS_N
#undef TM
#undef TN

#undef image_block_read8
