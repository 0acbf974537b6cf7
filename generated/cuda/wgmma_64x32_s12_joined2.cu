// wgmma_64x32_s12_joined2: C = alpha * A * B + beta * C; bfloat16, sums in float32
//
// Schedule   2x8 of C per thread, 32x4 threads per block (64x32 of C), 64 along K per iteration, by
//            matrix instructions of four warps, 12 tiles in shared memory at a time, brought by one
//            of 32 more threads, which have nothing else to do, K in 2 parts that clusters of 2
//            blocks add up, blocks in bands of 8 rows, stores of 4 elements
// A          global memory, by tensor maps: boxes in lines of 128 bytes that swizzle, to shared memory
// B          global memory, by tensor maps: boxes in lines of 64 bytes that swizzle, to shared memory
// Sizes      any m, n, k; leading dimensions multiples of 8; every matrix spans less than 2^31
//            elements
// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0
// Launch     block (4, 40), grid ((m + 63) / 64 * ((n + 31) / 32) * 2, 1)
// Needs      157,888 bytes of shared memory
//            matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -gencode arch=compute_90a,code=sm_90a -Werror all-warnings -c wgmma_64x32_s12_joined2.cu

#ifndef __CUDACC_RTC__
#include <cuda.h>
#include <cuda_runtime.h>
#elif !defined(GEMMGEN_TENSOR_MAP)
#define GEMMGEN_TENSOR_MAP
struct alignas(64) CUtensorMap
{
    unsigned long long words[16];
};
#endif
#include <cuda_bf16.h>

#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#error "wgmma_64x32_s12_joined2 needs sm_90a alone, for tensor maps (TMA) and instructions of warpgroups (wgmma, setmaxnreg)"
#endif

namespace wgmma_64x32_s12_joined2_detail {

// 2 neighbouring elements; both addresses are multiples of 8 bytes.
__device__ __forceinline__ void copy2(float *to, const float *from)
{
    *reinterpret_cast<float2 *>(to) = *reinterpret_cast<const float2 *>(from);
}

// 4 neighbouring elements; both addresses are multiples of 8 bytes.
__device__ __forceinline__ void copy4(__nv_bfloat16 *to, const __nv_bfloat16 *from)
{
    *reinterpret_cast<uint2 *>(to) = *reinterpret_cast<const uint2 *>(from);
}

// 4 neighbouring elements; both addresses are multiples of 16 bytes.
__device__ __forceinline__ void copy4(float *to, const float *from)
{
    *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(from);
}

// 4 neighbouring elements to registers, in their type; `from` is a multiple of 8 bytes.
__device__ __forceinline__ void copy4(float *to, const __nv_bfloat16 *from)
{
    __align__(8) __nv_bfloat16 elements[4];
    copy4(elements, from);
    #pragma unroll
    for (int e = 0; e < 4; ++e) {
        to[e] = float(elements[e]);
    }
}

// 4 neighbouring elements from registers, in the type of memory; `to` is a multiple of 8 bytes.
__device__ __forceinline__ void copy4(__nv_bfloat16 *to, const float *from)
{
    __align__(8) __nv_bfloat16 elements[4];
    #pragma unroll
    for (int e = 0; e < 4; ++e) {
        elements[e] = __nv_bfloat16(from[e]);
    }
    copy4(to, elements);
}

// Makes a barrier in shared memory ready, whose phases are over when `arrivals` threads have come.
__device__ __forceinline__ void mbarrier_init(unsigned long long *barrier, int arrivals)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(barrier));
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                 ::"r"(address), "r"(arrivals) : "memory");
}

// This thread has come.
__device__ __forceinline__ void mbarrier_arrive(unsigned long long *barrier)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(barrier));
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address) : "memory");
}

// Waits until the phase of this parity is over.
__device__ __forceinline__ void mbarrier_wait(unsigned long long *barrier, int parity)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(barrier));
    unsigned over;
    do {
        asm volatile("{\n"
                     ".reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n"
                     "}"
                     : "=r"(over) : "r"(address), "r"(parity) : "memory");
    } while (!over);
}

// Lets the next kernel's blocks begin, once every block of this one has come here.
__device__ __forceinline__ void kernels_release()
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Waits until the kernel before is over; what it has written is there.
__device__ __forceinline__ void kernels_await()
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

// This thread has come, and so many bytes are to come by copies of boxes.
__device__ __forceinline__ void mbarrier_expect(unsigned long long *barrier, int bytes)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(barrier));
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 ::"r"(address), "r"(bytes) : "memory");
}

// Lets copies see the barriers that this thread has made ready.
__device__ __forceinline__ void mbarriers_ready()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Lets a map be on its way to where copies look for it.
__device__ __forceinline__ void fetch_map(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Begins a copy of a box of a matrix to shared memory; outside of the matrix it brings zeros. The
// barrier counts its bytes.
__device__ __forceinline__ void copy_box(void *to, const CUtensorMap *matrix, int along, int line,
                                         unsigned long long *barrier)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(to));
    const unsigned counter = unsigned(__cvta_generic_to_shared(barrier));
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];"
                 ::"r"(address), "l"(matrix), "r"(along), "r"(line), "r"(counter) : "memory");
}

// Says to the cluster's other blocks that this thread has come so far.
__device__ __forceinline__ void cluster_arrive()
{
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}

// Waits until all threads of the cluster's blocks have said so.
__device__ __forceinline__ void cluster_wait()
{
    asm volatile("barrier.cluster.wait;" ::: "memory");
}

// Threads of the cluster's blocks meet, all but those that are through with everything; what each has
// written before the others see after.
__device__ __forceinline__ void cluster_sync()
{
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

// The array in shared memory that another block of the cluster has where this one has its own.
template <typename Array>
__device__ __forceinline__ Array &in_block(Array &own, int rank)
{
    Array *there;
    asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(&own), "r"(rank));
    return *there;
}

// What matrix instructions take a tile by: lines of 128 bytes that swizzle, 1024 bytes from eight of
// them to the next eight, `block` bytes from one block of lines to the next. It counts in 16 bytes.
// In a cluster the upper bits of an address say whose memory it is in, which is no part of the place.
template <int block>
__device__ __forceinline__ unsigned long long own_matrix_tile(const void *tile)
{
    const unsigned long long address = __cvta_generic_to_shared(tile) & 0x3ffff;
    return address >> 4 | (unsigned long long)(block / 16) << 16 | 64ull << 32 | 1ull << 62;
}

// What matrix instructions take a tile by: lines of 64 bytes that swizzle, 512 bytes from eight of
// them to the next eight, `block` bytes from one block of lines to the next. It counts in 16 bytes.
// In a cluster the upper bits of an address say whose memory it is in, which is no part of the place.
template <int block>
__device__ __forceinline__ unsigned long long own_matrix_tile_of_64(const void *tile)
{
    const unsigned long long address = __cvta_generic_to_shared(tile) & 0x3ffff;
    return address >> 4 | (unsigned long long)(block / 16) << 16 | 32ull << 32 | 2ull << 62;
}

// Comes before matrix instructions whose sums other instructions have written.
__device__ __forceinline__ void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// Makes a group of the matrix instructions begun since the last.
__device__ __forceinline__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most `pending` groups, the newest, are under way.
template <int pending>
__device__ __forceinline__ void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// Four of a thread's sums, as instructions have them: two neighbours of a row, two of the other.
#define SUMS(j) "+f"(sums[0][j]), "+f"(sums[0][j + 1]), "+f"(sums[1][j]), "+f"(sums[1][j + 1])

// Waits until no matrix instruction is under way: from here on these sums may be read.
__device__ __forceinline__ void wgmma_wait(float (*sums)[8])
{
    asm volatile("wgmma.wait_group.sync.aligned 0;"
                 : SUMS(0), SUMS(2), SUMS(4), SUMS(6)
                 :: "memory");
}

// sums += a * b by a warpgroup, 64 x 16 times 16 x 32, of tiles in shared memory; it only
// begins that. Of the sums a thread has two rows, eight apart.
__device__ __forceinline__ void wgmma_m64n32k16(float (*sums)[8], unsigned long long a,
                                                 unsigned long long b)
{
    asm volatile("{\n"
                 ".reg .pred add;\n"
                 "setp.eq.u32 add, 0, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, "
                 "%15"
                 "}, %16, %17, add, 1, 1, 0, 1;\n"
                 "}"
                 : SUMS(0), SUMS(2), SUMS(4), SUMS(6)
                 : "l"(a), "l"(b));
}

#undef SUMS

// What the launch brings.
extern __shared__ __align__(1024) unsigned char shared[];

} // namespace wgmma_64x32_s12_joined2_detail

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(160)
wgmma_64x32_s12_joined2(int m, int n, int k, float alpha, const __grid_constant__ CUtensorMap a_map,
                        const __grid_constant__ CUtensorMap b_map, float beta, __nv_bfloat16 *c,
                        int ldc)
{
    using namespace wgmma_64x32_s12_joined2_detail;

    const int local_row = int(threadIdx.y);
    const int local_col = int(threadIdx.x);
    const int rank = int(blockIdx.x) % 2;
    const int blocks_down = (m + 63) / 64;
    const int blocks_across = (n + 31) / 32;
    const int block = int(blockIdx.x) / 2;
    const int band_row = block / (blocks_across * 8) * 8;
    const int in_band = block % (blocks_across * 8);
    const int block_row = band_row + in_band % min(8, blocks_down - band_row);
    const int block_col = in_band / min(8, blocks_down - band_row);
    const int row0 = block_row * 64;
    const int col0 = block_col * 32;
    const int k_part = (k + 127) / 128 * 64;
    const int k_begin = rank * k_part;
    const int k_end = k_begin + k_part;
    const int local_index = local_row * 4 + local_col;

    auto &a_shared = *reinterpret_cast<__nv_bfloat16(*)[12][64][64]>(shared);
    auto &b_shared = *reinterpret_cast<__nv_bfloat16(*)[12][64][32]>(shared + 98304);
    auto &tiles_full = *reinterpret_cast<unsigned long long(*)[12]>(shared + 157696);
    auto &tiles_empty = *reinterpret_cast<unsigned long long(*)[12]>(shared + 157792);
    if (local_index == 0) {
        fetch_map(&a_map);
        fetch_map(&b_map);
        #pragma unroll
        for (int slot = 0; slot < 12; ++slot) {
            mbarrier_init(&tiles_full[slot], 1);
            mbarrier_init(&tiles_empty[slot], 4);
        }
        mbarriers_ready();
    }
    __syncthreads();
    cluster_arrive();
    kernels_await();
    kernels_release();
    if (local_row < 32) {
        // Those that multiply, and store C.
        float acc[2][8];
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            #pragma unroll
            for (int j = 0; j < 8; ++j) {
                acc[i][j] = 0.0f;
            }
        }
        for (int k0 = k_begin; k0 < k_end; k0 += 64) {
            const int slot = (k0 - k_begin) / 64 % 12;
            mbarrier_wait(&tiles_full[slot], (k0 - k_begin) / 64 / 12 % 2);
            wgmma_fence();
            const unsigned long long a_tile = own_matrix_tile<16>(a_shared[slot][0]);
            const unsigned long long b_tile = own_matrix_tile_of_64<16>(b_shared[slot][0]);
            #pragma unroll
            for (int kk = 0; kk < 64; kk += 16) {
                wgmma_m64n32k16(acc, a_tile + kk / 8, b_tile + kk * 4);
            }
            wgmma_commit();

            // What the step before has read may be overwritten.
            wgmma_wait<1>();
            if (k_begin < k0 && local_index % 32 == 0) {
                mbarrier_arrive(&tiles_empty[((k0 - k_begin) / 64 + 11) % 12]);
            }
        }
        wgmma_wait(acc);

        // By now all of the cluster have begun, and have shared memory.
        cluster_wait();

        // Each block of the cluster gets some lines of all parts of K, and adds them up.
        auto &sums = *reinterpret_cast<float(*)[2][32][40]>(shared + 147456);
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int line = local_row / 8 * 16 + local_row % 8 + i * 8;
            #pragma unroll
            for (int j = 0; j < 4; ++j) {
                __align__(16) float sums_values[2];
                #pragma unroll
                for (int e = 0; e < 2; ++e) {
                    sums_values[e] = alpha * acc[i][j * 2 + e];
                }
                copy2(&in_block(sums, line / 32)[rank][line % 32][local_col * 2 + j * 8],
                    sums_values);
            }
        }
        cluster_sync();
        const int sum_row = local_index / 8;
        const int sum_col = local_index % 8;
        const int first_col = col0 + sum_col * 4;
        __align__(16) float total[2][4];
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            copy4(total[i], &sums[0][sum_row + i * 16][sum_col * 4]);
            __align__(16) float term[4];
            copy4(term, &sums[1][sum_row + i * 16][sum_col * 4]);
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
                total[i][e] += term[e];
            }
        }

        // C = alpha * A * B + beta * C; C is not read where beta is zero.
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int c_row = row0 + rank * 32 + sum_row + i * 16;
            if (c_row < m) {
                if (first_col + 4 <= n) {
                    if (beta != 0.0f) {
                        __align__(16) float c_old[4];
                        copy4(c_old, &c[c_row * ldc + first_col]);
                        #pragma unroll
                        for (int e = 0; e < 4; ++e) {
                            total[i][e] = fmaf(beta, c_old[e], total[i][e]);
                        }
                    }
                    copy4(&c[c_row * ldc + first_col], total[i]);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        if (first_col + e < n) {
                            const float c_value =
                                beta == 0.0f ? total[i][e]
                                             : fmaf(beta, float(c[c_row * ldc + first_col + e]),
                                                 total[i][e]);
                            c[c_row * ldc + first_col + e] = __nv_bfloat16(c_value);
                        }
                    }
                }
            }
        }
    } else {
        // One that copies, ahead of them as far as there is room.
        if (local_index == 128) {
            for (int k0 = k_begin; k0 < k_end; k0 += 64) {
                const int slot = (k0 - k_begin) / 64 % 12;
                mbarrier_wait(&tiles_empty[slot], ((k0 - k_begin) / 64 / 12 + 1) % 2);
                mbarrier_expect(&tiles_full[slot], 12288);
                copy_box(a_shared[slot][0], &a_map, k0, row0, &tiles_full[slot]);
                copy_box(b_shared[slot][0], &b_map, col0, k0, &tiles_full[slot]);
            }
        }
    }
}

#ifndef __CUDACC_RTC__
namespace wgmma_64x32_s12_joined2_detail {

// Whether a matrix begins on a multiple of so many bytes.
static bool is_aligned(const void *matrix, size_t bytes)
{
    return reinterpret_cast<size_t>(matrix) % bytes == 0;
}

// Whether lines lie apart, `pitch` elements from one to the next, and 32-bit indices reach all of
// a matrix.
static bool is_in_reach(long long lines, long long length, long long pitch)
{
    if (lines < 1 || length < 1) {
        return true;
    }
    return (lines == 1 || pitch >= length) && (lines - 1) * pitch + length < 1LL << 31;
}

// The map of a matrix for copies of boxes: `lines` of `length` elements of `size` bytes, `pitch`
// elements apart. The driver makes it, which nothing has to be linked for. It refuses a matrix, or
// lines, that begin on no multiple of 16 bytes.
static cudaError_t make_map(CUtensorMap *map, CUtensorMapDataType type, int size,
                            const void *matrix, int lines, int length, long long pitch,
                            unsigned box_lines, unsigned box_length, CUtensorMapSwizzle swizzle)
{
    void *found = nullptr;
    cudaDriverEntryPointQueryResult known;
#if CUDART_VERSION >= 12050
    const cudaError_t asked = cudaGetDriverEntryPointByVersion(
        "cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &known);
#else
    const cudaError_t asked =
        cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &known);
#endif
    if (asked != cudaSuccess || known != cudaDriverEntryPointSuccess) {
        return asked != cudaSuccess ? asked : cudaErrorInsufficientDriver;
    }
    const cuuint64_t extents[2] = {cuuint64_t(length), cuuint64_t(lines)};
    // The pitch of a single line is never used, and need not be a multiple of 16 bytes.
    const cuuint64_t between = cuuint64_t(pitch) * cuuint64_t(size);
    const cuuint64_t strides[1] = {lines > 1 ? between : (extents[0] * size + 15) / 16 * 16};
    const cuuint32_t box[2] = {box_length, box_lines};
    const cuuint32_t steps[2] = {1, 1};
    const CUresult made = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found)(
        map, type, 2, const_cast<void *>(matrix), extents, strides, box, steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
        CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return made == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

} // namespace wgmma_64x32_s12_joined2_detail

// Queues the kernel on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, where the kernels can't take them.
extern "C" cudaError_t wgmma_64x32_s12_joined2_launch(int m, int n, int k, float alpha,
                                                      const __nv_bfloat16 *a, int lda,
                                                      const __nv_bfloat16 *b, int ldb, float beta,
                                                      __nv_bfloat16 *c, int ldc,
                                                      cudaStream_t stream)
{
    using namespace wgmma_64x32_s12_joined2_detail;

    if (m < 1 || n < 1) {
        return cudaSuccess;
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    if (!is_aligned(a, 16) || !is_aligned(b, 16) || !is_aligned(c, 16)) {
        return cudaErrorMisalignedAddress;
    }
    if (k < 0 || lda % 8 != 0 || ldb % 8 != 0 || ldc % 8 != 0 || !is_in_reach(m, k, lda) ||
        !is_in_reach(k, n, ldb) || !is_in_reach(m, n, ldc)) {
        return cudaErrorInvalidValue;
    }
    CUtensorMap a_map = {};
    const cudaError_t a_map_made =
        k > 0
            ? make_map(&a_map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, a, m, k, lda, 64, 64,
                CU_TENSOR_MAP_SWIZZLE_128B)
            : cudaSuccess;
    if (a_map_made != cudaSuccess) {
        return a_map_made;
    }
    CUtensorMap b_map = {};
    const cudaError_t b_map_made =
        k > 0
            ? make_map(&b_map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, b, k, n, ldb, 64, 32,
                CU_TENSOR_MAP_SWIZZLE_64B)
            : cudaSuccess;
    if (b_map_made != cudaSuccess) {
        return b_map_made;
    }
    const cudaError_t allowed = cudaFuncSetAttribute(
        wgmma_64x32_s12_joined2, cudaFuncAttributeMaxDynamicSharedMemorySize, 157888);
    if (allowed != cudaSuccess) {
        return allowed;
    }
    const dim3 grid((m + 63) / 64 * ((n + 31) / 32) * 2, 1);
    const dim3 block(4, 40);
    // It may begin while the kernel before ends, which it awaits.
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = 157888;
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, wgmma_64x32_s12_joined2,
        m, n, k, alpha, a_map, b_map, beta, c, ldc);
}
#endif
