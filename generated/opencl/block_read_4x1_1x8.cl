// block_read_4x1_1x8: C = alpha * A * B + beta * C; float32
//
// Tile       4x8 of C per group, 4x1 per work-item, 8 along K per step
// Work-items 1x8 per group, sub-groups of 8
// A          image, block reads of 4 rows, passed around the sub-group by shuffles
// B          image, block reads of 8 rows
// Multiply   fused multiply-add
// C          stores of single elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     local size {8, 1}, global size {(n + 7) / 8 * 8, (m + 3) / 4}
// Needs      cl_intel_subgroups, cl_intel_required_subgroup_size, sub-groups of 8, which Xe-HPC and
//                Xe2 don't have (--target xe_hpc)
//            images (CL_R, CL_FLOAT) as wide and high as the matrices: no more than
//                CL_DEVICE_IMAGE2D_MAX_WIDTH and CL_DEVICE_IMAGE2D_MAX_HEIGHT, 16384 on Intel's
//                GPUs
// Build      clBuildProgram(..., "-cl-std=CL2.0", ...)

// Helpers carry the kernel's name: several files fit into one program.
#define image_block_read4 block_read_4x1_1x8_image_block_read4
#define image_block_read8 block_read_4x1_1x8_image_block_read8

// Block tile: BM x BN of C, BK along K per step.
#define BM 4
#define BN 8
#define BK 8
// Rows of C of a work-item.
#define TM BM

#if BM != 4 || BN != 8
#error "BM and BN cannot change here:"
#error "gemmgen emit --preset block_read_4x1_1x8 --set tile=8x1"
#endif
#if BK != 8
#error "BK cannot change here:"
#error "gemmgen emit --preset block_read_4x1_1x8 --set block_k=16"
#endif

#pragma OPENCL EXTENSION cl_intel_subgroups : enable

// One element per lane of each of 4 rows.
static inline float4 image_block_read4(__read_only image2d_t image, int2 at)
{
    return as_float4(intel_sub_group_block_read4(image, at));
}

// One element per lane of each of 8 rows.
static inline float8 image_block_read8(__read_only image2d_t image, int2 at)
{
    return as_float8(intel_sub_group_block_read8(image, at));
}

__attribute__((reqd_work_group_size(8, 1, 1)))
__attribute__((intel_reqd_sub_group_size(8))) __kernel void
block_read_4x1_1x8(int m, int n, int k, float alpha, __read_only image2d_t a,
                   __read_only image2d_t b, float beta, __global float *restrict c, int ldc)
{
    const int lane = (int)get_sub_group_local_id();
    const int row0 = (int)get_group_id(1) * BM;
    const int col0 = (int)get_group_id(0) * BN;
    const int col = col0 + lane;
    const int k_main = k - k % BK;

    float acc[TM];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        acc[i] = 0.0f;
    }

    // Whole steps of BK along K.
    for (int k0 = 0; k0 < k_main; k0 += BK) {
        float b_frag[BK];
        vstore8(image_block_read8(b, (int2)(col0 * 4, k0)), 0, b_frag);
        float a_frag[TM];
        vstore4(image_block_read4(a, (int2)(k0 * 4, row0)), 0, a_frag);
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int p = 0; p < BK; ++p) {
                const float a_value = intel_sub_group_shuffle(a_frag[i], p);
                acc[i] = fma(a_value, b_frag[p], acc[i]);
            }
        }
    }
    if (k_main < k) {
        // The rest of K; what lies past it counts as zero.
        float b_frag[BK];
        vstore8(image_block_read8(b, (int2)(col0 * 4, k_main)), 0, b_frag);
        #pragma unroll
        for (int e = 0; e < 8; ++e) {
            b_frag[e] = k_main + e < k ? b_frag[e] : 0.0f;
        }
        float a_frag[TM];
        vstore4(image_block_read4(a, (int2)(k_main * 4, row0)), 0, a_frag);
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
            a_frag[e] = k_main + lane < k ? a_frag[e] : 0.0f;
        }
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int p = 0; p < BK; ++p) {
                const float a_value = intel_sub_group_shuffle(a_frag[i], p);
                acc[i] = fma(a_value, b_frag[p], acc[i]);
            }
        }
    }

    // C = alpha * A * B + beta * C; C is not read where beta is zero.
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        if (row0 + i < m && col < n) {
            c[(row0 + i) * ldc + col] = beta == 0.0f
                                            ? alpha * acc[i]
                                            : fma(beta, c[(row0 + i) * ldc + col], alpha * acc[i]);
        }
    }
}

#undef BM
#undef BN
#undef BK
#undef TM

#undef image_block_read4
#undef image_block_read8
