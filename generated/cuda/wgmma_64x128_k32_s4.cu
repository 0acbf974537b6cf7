// wgmma_64x128_k32_s4: C = alpha * A * B + beta * C; bfloat16, sums in float32
//
// Schedule   2x32 of C per thread, 32x4 threads per block (64x128 of C), 32 along K per iteration,
//            by matrix instructions of four warps, 4 tiles in shared memory at a time, brought by
//            one of 32 more threads, which have nothing else to do, as many blocks as run at once,
//            one part of C after the other, blocks in bands of 8 rows, stores of boxes, by way of 2
//            slots in shared memory
// A          global memory, by tensor maps: boxes in lines of 64 bytes that swizzle, to shared memory
// B          global memory, by tensor maps: boxes in lines of 128 bytes that swizzle, to shared memory
// Sizes      any m, n, k; leading dimensions multiples of 8; every matrix spans less than 2^31
//            elements
// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0
// Launch     block (4, 40), grid (min((m + 63) / 64 * ((n + 127) / 128), as many as run at once))
// Needs      65,600 bytes of shared memory
//            matrices that begin on multiples of 16 bytes
// Build      nvcc -std=c++17 -O3 -gencode arch=compute_90a,code=sm_90a -Werror all-warnings -c wgmma_64x128_k32_s4.cu

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
#error "wgmma_64x128_k32_s4 needs sm_90a alone, for tensor maps (TMA) and instructions of warpgroups (wgmma, setmaxnreg)"
#endif

namespace wgmma_64x128_k32_s4_detail {

// 2 neighbouring elements; both addresses are multiples of 4 bytes.
__device__ __forceinline__ void copy2(__nv_bfloat16 *to, const __nv_bfloat16 *from)
{
    *reinterpret_cast<unsigned *>(to) = *reinterpret_cast<const unsigned *>(from);
}

// 2 neighbouring elements to registers, in their type; `from` is a multiple of 4 bytes.
__device__ __forceinline__ void copy2(float *to, const __nv_bfloat16 *from)
{
    __align__(4) __nv_bfloat16 elements[2];
    copy2(elements, from);
    #pragma unroll
    for (int e = 0; e < 2; ++e) {
        to[e] = float(elements[e]);
    }
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

// What matrix instructions take a tile by: lines of 64 bytes that swizzle, 512 bytes from eight of
// them to the next eight, `block` bytes from one block of lines to the next. It counts in 16 bytes.
template <int block>
__device__ __forceinline__ unsigned long long matrix_tile_of_64(const void *tile)
{
    const unsigned long long address = __cvta_generic_to_shared(tile);
    return address >> 4 | (unsigned long long)(block / 16) << 16 | 32ull << 32 | 2ull << 62;
}

// What matrix instructions take a tile by: lines of 128 bytes that swizzle, 1024 bytes from eight of
// them to the next eight, `block` bytes from one block of lines to the next. It counts in 16 bytes.
template <int block>
__device__ __forceinline__ unsigned long long matrix_tile(const void *tile)
{
    const unsigned long long address = __cvta_generic_to_shared(tile);
    return address >> 4 | (unsigned long long)(block / 16) << 16 | 64ull << 32 | 1ull << 62;
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
__device__ __forceinline__ void wgmma_wait(float (*sums)[32])
{
    asm volatile("wgmma.wait_group.sync.aligned 0;"
                 : SUMS(0), SUMS(2), SUMS(4), SUMS(6), SUMS(8), SUMS(10), SUMS(12),
                   SUMS(14), SUMS(16), SUMS(18), SUMS(20), SUMS(22), SUMS(24),
                   SUMS(26), SUMS(28), SUMS(30)
                 :: "memory");
}

// sums += a * b by a warpgroup, 64 x 16 times 16 x 128, of tiles in shared memory; it only
// begins that. Of the sums a thread has two rows, eight apart.
__device__ __forceinline__ void wgmma_m64n128k16(float (*sums)[32], unsigned long long a,
                                                 unsigned long long b)
{
    asm volatile("{\n"
                 ".reg .pred add;\n"
                 "setp.eq.u32 add, 0, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, "
                 "%15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, "
                 "%28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, "
                 "%41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, "
                 "%54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
                 "}, %64, %65, add, 1, 1, 0, 1;\n"
                 "}"
                 : SUMS(0), SUMS(2), SUMS(4), SUMS(6), SUMS(8), SUMS(10), SUMS(12),
                   SUMS(14), SUMS(16), SUMS(18), SUMS(20), SUMS(22), SUMS(24),
                   SUMS(26), SUMS(28), SUMS(30)
                 : "l"(a), "l"(b));
}

#undef SUMS

// Begins the store of a box to a matrix; what lies outside of the matrix is left out.
__device__ __forceinline__ void store_box(const CUtensorMap *matrix, int along, int line,
                                          const void *from)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(from));
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
                 ::"l"(matrix), "r"(along), "r"(line), "r"(address) : "memory");
}

// Lets stores of boxes see what this thread has written to shared memory.
__device__ __forceinline__ void stores_fence()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Makes a group of the stores of boxes that this thread has begun since the last.
__device__ __forceinline__ void stores_commit()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until at most `pending` groups of this thread's stores, the newest, still read shared memory.
template <int pending>
__device__ __forceinline__ void stores_wait()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

// Where a place in lines of 128 bytes that swizzle lies in shared memory: the number of its line, of
// eight, says which parts of 16 bytes change places.
__device__ __forceinline__ unsigned swizzled(const void *place)
{
    const unsigned address = unsigned(__cvta_generic_to_shared(place));
    return address ^ (address >> 3 & 112);
}

// A warp's sums to lines that swizzle, as __nv_bfloat16: each thread's of two rows, eight apart, two
// neighbours and two more eight columns on. It names a line of one of four matrices, 8 x 8.
__device__ __forceinline__ void put_matrices(__nv_bfloat16 *line, const float *upper,
                                             const float *lower)
{
    const __nv_bfloat162 pairs[4] = {
        __floats2bfloat162_rn(upper[0], upper[1]), __floats2bfloat162_rn(lower[0], lower[1]),
        __floats2bfloat162_rn(upper[2], upper[3]), __floats2bfloat162_rn(lower[2], lower[3])};
    const unsigned *words = reinterpret_cast<const unsigned *>(pairs);
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 ::"r"(swizzled(line)), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
                 : "memory");
}

// What the launch brings.
extern __shared__ __align__(1024) unsigned char shared[];

} // namespace wgmma_64x128_k32_s4_detail

extern "C" __global__ void __launch_bounds__(160)
wgmma_64x128_k32_s4(int m, int n, int k, float alpha, const __grid_constant__ CUtensorMap a_map,
                    const __grid_constant__ CUtensorMap b_map, float beta,
                    const __grid_constant__ CUtensorMap c_map, __nv_bfloat16 *c, int ldc)
{
    using namespace wgmma_64x128_k32_s4_detail;

    const int local_row = int(threadIdx.y);
    const int local_col = int(threadIdx.x);
    const int blocks_down = (m + 63) / 64;
    const int blocks_across = (n + 127) / 128;
    const int blocks = blocks_down * blocks_across;
    const int waves = (blocks - int(blockIdx.x) + int(gridDim.x) - 1) / int(gridDim.x);
    const int local_index = local_row * 4 + local_col;
    const int steps = (k + 31) / 32;

    auto &b_shared = *reinterpret_cast<__nv_bfloat16(*)[4][2][32][64]>(shared);
    auto &c_shared = *reinterpret_cast<__nv_bfloat16(*)[2][64][64]>(shared + 32768);
    auto &a_shared = *reinterpret_cast<__nv_bfloat16(*)[4][64][32]>(shared + 49152);
    auto &tiles_full = *reinterpret_cast<unsigned long long(*)[4]>(shared + 65536);
    auto &tiles_empty = *reinterpret_cast<unsigned long long(*)[4]>(shared + 65568);
    if (local_index == 0) {
        fetch_map(&a_map);
        fetch_map(&b_map);
        fetch_map(&c_map);
        #pragma unroll
        for (int slot = 0; slot < 4; ++slot) {
            mbarrier_init(&tiles_full[slot], 1);
            mbarrier_init(&tiles_empty[slot], 4);
        }
        mbarriers_ready();
    }
    __syncthreads();
    kernels_await();
    kernels_release();
    if (local_row < 32) {
        // Those that multiply, and store C.
        for (int wave = 0; wave < waves; ++wave) {
            const int block = wave * int(gridDim.x) + int(blockIdx.x);
            const int band_row = block / (blocks_across * 8) * 8;
            const int in_band = block % (blocks_across * 8);
            const int block_row = band_row + in_band % min(8, blocks_down - band_row);
            const int block_col = in_band / min(8, blocks_down - band_row);
            const int row0 = block_row * 64;
            const int col0 = block_col * 128;
            const int row = row0 + local_row / 8 * 16 + local_row % 8;
            const int col = col0 + local_col * 2;
            __align__(16) float acc[2][32];
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                #pragma unroll
                for (int j = 0; j < 32; ++j) {
                    acc[i][j] = 0.0f;
                }
            }
            for (int k0 = 0; k0 < k; k0 += 32) {
                const int step = wave * steps + k0 / 32;
                const int slot = step % 4;
                mbarrier_wait(&tiles_full[slot], step / 4 % 2);
                wgmma_fence();
                const unsigned long long a_tile = matrix_tile_of_64<16>(a_shared[slot][0]);
                const unsigned long long b_tile = matrix_tile<4096>(b_shared[slot][0][0]);
                #pragma unroll
                for (int kk = 0; kk < 32; kk += 16) {
                    wgmma_m64n128k16(acc, a_tile + kk / 8, b_tile + kk * 8);
                }
                wgmma_commit();

                // What the step before has read may be overwritten.
                wgmma_wait<1>();
                if (0 < k0 && local_index % 32 == 0) {
                    mbarrier_arrive(&tiles_empty[(step + 3) % 4]);
                }
            }
            wgmma_wait(acc);

            // So may what the last step has.
            if (0 < steps && local_index % 32 == 0) {
                mbarrier_arrive(&tiles_empty[(wave * steps + steps - 1) % 4]);
            }
            stores_wait<0>();
            __syncwarp();

            // C = alpha * A * B + beta * C; C is not read where beta is zero.
            #pragma unroll
            for (int i = 0; i < 2; ++i) {
                #pragma unroll
                for (int j = 0; j < 32; ++j) {
                    acc[i][j] = alpha * acc[i][j];
                }
            }
            if (beta != 0.0f) {
                #pragma unroll
                for (int i = 0; i < 2; ++i) {
                    const int c_row = row + i * 8;
                    if (c_row < m) {
                        #pragma unroll
                        for (int j = 0; j < 16; ++j) {
                            const int c_col = col + j * 8;
                            if (c_col + 2 <= n) {
                                __align__(16) float c_old[2];
                                copy2(c_old, &c[c_row * ldc + c_col]);
                                #pragma unroll
                                for (int e = 0; e < 2; ++e) {
                                    acc[i][j * 2 + e] = fmaf(beta, c_old[e], acc[i][j * 2 + e]);
                                }
                            } else if (c_col < n) {
                                acc[i][j * 2] =
                                    fmaf(beta, float(c[c_row * ldc + c_col]), acc[i][j * 2]);
                            }
                        }
                    }
                }
            }

            // Each warp's rows box by box; what lies past the edges of C is not stored.
            const int first_line = local_index / 32 * 16;
            const int own_line = first_line + local_index % 16;
            const int own_part = local_index % 32 / 16 * 8;
            #pragma unroll
            for (int box = 0; box < 2; ++box) {
                if (n % 8 != 0 && n < col0 + box * 64 + 64) {
                    // C ends between the 16 bytes that stores of boxes write at least.
                    #pragma unroll
                    for (int i = 0; i < 2; ++i) {
                        const int c_row = row + i * 8;
                        #pragma unroll
                        for (int j = 0; j < 16; ++j) {
                            const int c_col = col + box * 64 + j / 2 * 8 + j % 2;
                            if (c_row < m && c_col < n) {
                                c[c_row * ldc + c_col] = __nv_bfloat16(acc[i][box * 16 + j]);
                            }
                        }
                    }
                } else {
                    #pragma unroll
                    for (int p = 0; p < 4; ++p) {
                        put_matrices(&c_shared[box % 2][own_line][own_part + p * 16],
                            &acc[0][box * 16 + p * 4], &acc[1][box * 16 + p * 4]);
                    }
                    stores_fence();
                    __syncwarp();
                    if (local_col == 0 && local_row % 8 == 0) {
                        store_box(&c_map, col0 + box * 64, row0 + first_line,
                            c_shared[box % 2][first_line]);
                    }
                }
                stores_commit();
            }
        }

        // No one leaves before stores have read what they store.
        stores_wait<0>();
    } else {
        // One that copies, ahead of them as far as there is room.
        if (local_index == 128) {
            for (int wave = 0; wave < waves; ++wave) {
                const int block = wave * int(gridDim.x) + int(blockIdx.x);
                const int band_row = block / (blocks_across * 8) * 8;
                const int in_band = block % (blocks_across * 8);
                const int block_row = band_row + in_band % min(8, blocks_down - band_row);
                const int block_col = in_band / min(8, blocks_down - band_row);
                const int row0 = block_row * 64;
                const int col0 = block_col * 128;
                for (int k0 = 0; k0 < k; k0 += 32) {
                    const int step = wave * steps + k0 / 32;
                    const int slot = step % 4;
                    mbarrier_wait(&tiles_empty[slot], (step / 4 + 1) % 2);
                    mbarrier_expect(&tiles_full[slot], 12288);
                    copy_box(a_shared[slot][0], &a_map, k0, row0, &tiles_full[slot]);
                    #pragma unroll
                    for (int i = 0; i < 2; ++i) {
                        copy_box(b_shared[slot][i][0], &b_map, col0 + i * 64, k0,
                            &tiles_full[slot]);
                    }
                }
            }
        }
    }
}

#ifndef __CUDACC_RTC__
namespace wgmma_64x128_k32_s4_detail {

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

// How many blocks of a kernel the current device runs at once.
template <typename Kernel>
static cudaError_t blocks_at_once(int *blocks, Kernel *kernel, int threads, int shared_bytes)
{
    int device = 0;
    int multiprocessors = 0;
    int together = 0;
    cudaError_t done = cudaGetDevice(&device);
    if (done == cudaSuccess) {
        done = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    }
    if (done == cudaSuccess) {
        done = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&together, kernel, threads,
                                                             shared_bytes);
    }
    *blocks = multiprocessors * together;
    return done;
}

} // namespace wgmma_64x128_k32_s4_detail

// Queues the kernel on a stream; matrices are in the device's memory.
// It returns an error, and launches nothing, where the kernels can't take them.
extern "C" cudaError_t wgmma_64x128_k32_s4_launch(int m, int n, int k, float alpha,
                                                  const __nv_bfloat16 *a, int lda,
                                                  const __nv_bfloat16 *b, int ldb, float beta,
                                                  __nv_bfloat16 *c, int ldc, cudaStream_t stream)
{
    using namespace wgmma_64x128_k32_s4_detail;

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
            ? make_map(&a_map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, a, m, k, lda, 64, 32,
                CU_TENSOR_MAP_SWIZZLE_64B)
            : cudaSuccess;
    if (a_map_made != cudaSuccess) {
        return a_map_made;
    }
    CUtensorMap b_map = {};
    const cudaError_t b_map_made =
        k > 0
            ? make_map(&b_map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, b, k, n, ldb, 32, 64,
                CU_TENSOR_MAP_SWIZZLE_128B)
            : cudaSuccess;
    if (b_map_made != cudaSuccess) {
        return b_map_made;
    }
    CUtensorMap c_map = {};
    const cudaError_t c_map_made =
        make_map(&c_map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, c, m, n, ldc, 16, 64,
            CU_TENSOR_MAP_SWIZZLE_128B);
    if (c_map_made != cudaSuccess) {
        return c_map_made;
    }
    const cudaError_t allowed = cudaFuncSetAttribute(
        wgmma_64x128_k32_s4, cudaFuncAttributeMaxDynamicSharedMemorySize, 65600);
    if (allowed != cudaSuccess) {
        return allowed;
    }
    // No more blocks than run at once: each goes on until all of C is computed.
    int most = 0;
    const cudaError_t asked = blocks_at_once(&most, wgmma_64x128_k32_s4, 160, 65600);
    if (asked != cudaSuccess) {
        return asked;
    }
    const int blocks = (m + 63) / 64 * ((n + 127) / 128);
    const dim3 grid(blocks < most ? blocks : most);
    const dim3 block(4, 40);
    // It may begin while the kernel before ends, which it awaits.
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = 65600;
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, wgmma_64x128_k32_s4,
        m, n, k, alpha, a_map, b_map, beta, c_map, c, ldc);
}
#endif
