// block_read_32x1_1x8: C = alpha * A * B + beta * C; float32
//
// Tile       32x8 of C per group, 32x1 per work-item, 16 along K per step
// Work-items 1x8 per group, sub-groups of 8
// A          image, block reads of 8 rows, passed around the sub-group by shuffles
// B          image, block reads of 8 rows
// Multiply   fused multiply-add
// C          stores of single elements
// Sizes      any m, n, k; every matrix spans less than 2^31 elements
// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0
// Launch     local size {8, 1}, global size {(n + 7) / 8 * 8, (m + 31) / 32}
// Needs      cl_intel_subgroups, cl_intel_required_subgroup_size, sub-groups of 8, which Xe-HPC and
//                Xe2 don't have (--target xe_hpc)
//            images (CL_R, CL_FLOAT) as wide and high as the matrices: no more than
//                CL_DEVICE_IMAGE2D_MAX_WIDTH and CL_DEVICE_IMAGE2D_MAX_HEIGHT, 16384 on Intel's
//                GPUs
// Build      clBuildProgram(..., "-cl-std=CL2.0", ...)

// Helpers carry the kernel's name: several files fit into one program.
#define image_block_read8 block_read_32x1_1x8_image_block_read8

// Block tile of C.
#define BM 32
#define BN 8
// Rows of C of a work-item.
#define TM BM

#if BM != 32 || BN != 8
#error "BM and BN cannot change here:"
#error "gemmgen emit --preset block_read_32x1_1x8 --set tile=64x1"
#endif

#pragma OPENCL EXTENSION cl_intel_subgroups : enable

// One element per lane of each of 8 rows.
static inline float8 image_block_read8(__read_only image2d_t image, int2 at)
{
    return as_float8(intel_sub_group_block_read8(image, at));
}

__attribute__((reqd_work_group_size(8, 1, 1)))
__attribute__((intel_reqd_sub_group_size(8))) __kernel void
block_read_32x1_1x8(int m, int n, int k, float alpha, __read_only image2d_t a,
                    __read_only image2d_t b, float beta, __global float *restrict c, int ldc)
{
    const int lane = (int)get_sub_group_local_id();
    const int row0 = (int)get_group_id(1) * BM;
    const int col0 = (int)get_group_id(0) * BN;
    const int col = col0 + lane;
    const int k_main = k - k % 16;

    float acc[TM];
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        acc[i] = 0.0f;
    }

    // Addresses of block reads in bytes, one (or half of one) a lane; the loop adds a step first.
    int b_at = lane % 2 == 0 ? col0 * 4 : lane / 2 * 8 - 16;
    int a_at[2];
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
        a_at[i] = lane % 2 == 0 ? ((i * 4 + lane / 2) / (TM / 8) * 8 - 16) * 4
                                : row0 + (i * 4 + lane / 2) % (TM / 8) * 8;
    }

    // Whole steps of 16 along K.
    for (int k0 = 0; k0 < k_main; k0 += 16) {
        b_at += lane % 2 == 0 ? 0 : 16;
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            a_at[i] += lane % 2 == 0 ? 64 : 0;
        }
        float b_frag[16];
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            vstore8(image_block_read8(b, (int2)(intel_sub_group_shuffle(b_at, i * 2),
                                                intel_sub_group_shuffle(b_at, i * 2 + 1))),
                    0, &b_frag[i * 8]);
        }
        float a_frag[2][TM];
        #pragma unroll
        for (int j = 0; j < 2; ++j) {
            #pragma unroll
            for (int i = 0; i < TM / 8; ++i) {
                vstore8(image_block_read8(
                            a, (int2)(intel_sub_group_shuffle(a_at[(j * (TM / 8) + i) / 4],
                                                              (j * (TM / 8) + i) % 4 * 2),
                                      intel_sub_group_shuffle(a_at[(j * (TM / 8) + i) / 4],
                                                              (j * (TM / 8) + i) % 4 * 2 + 1))),
                        0, &a_frag[j][i * 8]);
            }
        }
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int p = 0; p < 16; ++p) {
                const float a_value = intel_sub_group_shuffle(a_frag[p / 8][i], p % 8);
                acc[i] = fma(a_value, b_frag[p], acc[i]);
            }
        }
    }

    // The rest of K; what lies past it counts as zero.
    for (int k0 = k_main; k0 < k; k0 += 8) {
        float b_frag[8];
        vstore8(image_block_read8(b, (int2)(col0 * 4, k0)), 0, b_frag);
        #pragma unroll
        for (int e = 0; e < 8; ++e) {
            b_frag[e] = k0 + e < k ? b_frag[e] : 0.0f;
        }
        float a_frag[TM];
        #pragma unroll
        for (int i = 0; i < TM / 8; ++i) {
            vstore8(image_block_read8(a, (int2)(k0 * 4, row0 + i * 8)), 0, &a_frag[i * 8]);
            #pragma unroll
            for (int e = 0; e < 8; ++e) {
                a_frag[i * 8 + e] = k0 + lane < k ? a_frag[i * 8 + e] : 0.0f;
            }
        }
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int p = 0; p < 8; ++p) {
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
#undef TM

#undef image_block_read8
