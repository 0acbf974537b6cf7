//: aligned
// Whether a matrix begins on a multiple of so many bytes.
static bool is_aligned(const void *matrix, size_t bytes)
{
    return reinterpret_cast<size_t>(matrix) % bytes == 0;
}
//: reach
// Whether lines lie apart, `pitch` elements from one to the next, and 32-bit indices reach all of
// a matrix.
static bool is_in_reach(long long lines, long long length, long long pitch)
{
    if (lines < 1 || length < 1) {
        return true;
    }
    return (lines == 1 || pitch >= length) && (lines - 1) * pitch + length < 1LL << 31;
}
//: apart
// Whether lines lie apart, `pitch` elements from one to the next.
static bool lie_apart(long long lines, long long length, long long pitch)
{
    return lines < 2 || length < 1 || pitch >= length;
}
//: multiprocessors
// How many multiprocessors the current device has.
static cudaError_t multiprocessors(int *count)
{
    int device = 0;
    const cudaError_t found = cudaGetDevice(&device);
    return found != cudaSuccess
               ? found
               : cudaDeviceGetAttribute(count, cudaDevAttrMultiProcessorCount, device);
}
//: tensor_map
// The map of a matrix for copies of boxes: `lines` of `length` elements of `size` bytes, `pitch`
// elements apart. The driver makes it, which nothing has to be linked for. It refuses a matrix, or
// lines, that begin on no multiple of 16 bytes.
static cudaError_t make_map(CUtensorMap *map, CUtensorMapDataType type, int size,
                            const void *matrix, int lines, int length, long long pitch,
                            unsigned box_lines, unsigned box_lengthALSO)
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
        CU_TENSOR_MAP_INTERLEAVE_NONE, SWIZZLING,
        CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return made == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}
//: tensor_map_of_batch
// The map of a batch's matrices for copies of boxes: `count` of them, `step` elements apart, or one
// that serves for all where that is 0; each of `lines` of `length` elements of `size` bytes, `pitch`
// elements apart. The driver makes it, which nothing has to be linked for. It refuses a matrix, or
// lines, that begin on no multiple of 16 bytes.
static cudaError_t make_map(CUtensorMap *map, CUtensorMapDataType type, int size,
                            const void *matrix, int lines, int length, long long pitch,
                            int count, long long step, unsigned box_lines,
                            unsigned box_lengthALSO)
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
    const cuuint64_t extents[3] = {cuuint64_t(length), cuuint64_t(lines), cuuint64_t(count)};
    // The pitch of a single line and the step of a single matrix are never used, and need not be
    // multiples of 16 bytes.
    const cuuint64_t between = cuuint64_t(pitch) * cuuint64_t(size);
    const cuuint64_t apart = cuuint64_t(step) * cuuint64_t(size);
    const cuuint64_t strides[2] = {lines > 1 ? between : (extents[0] * size + 15) / 16 * 16,
                                   count > 1 ? apart : 0};
    const cuuint32_t box[3] = {box_length, box_lines, 1};
    const cuuint32_t steps[3] = {1, 1, 1};
    const CUresult made = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found)(
        map, type, 3, const_cast<void *>(matrix), extents, strides, box, steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE, SWIZZLING,
        CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return made == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}
//: blocks_at_once
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
//: clustered_at_once
// How many blocks of a kernel the current device runs at once, in clusters of so many: fewer than
// one by one, since a cluster lies within a part of the chip.
template <typename Kernel>
static cudaError_t clustered_at_once(int *blocks, Kernel *kernel, int threads, int shared_bytes,
                                     int together)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(unsigned(together));
    config.blockDim = dim3(unsigned(threads));
    config.dynamicSmemBytes = size_t(shared_bytes);
    int clusters = 0;
    const cudaError_t done = cudaOccupancyMaxActiveClusters(&clusters, kernel, &config);
    *blocks = clusters * together;
    return done;
}
