// What emitted files take of HIP's header, for tests where ROCm is not installed: clang's own built-ins behind HIP's
// names. The host's functions are declared and defined nowhere.
#pragma once

typedef __SIZE_TYPE__ size_t;

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(threads) __attribute__((amdgpu_flat_work_group_size(1, threads)))

// --- the host --------------------------------------------------------------------------------------------------------

struct dim3
{
    unsigned x, y, z;
    constexpr __host__ __device__ dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
typedef enum hipError_t { hipSuccess = 0, hipErrorInvalidValue = 1 } hipError_t;
typedef struct ihipStream_t *hipStream_t;
enum hipFuncAttribute { hipFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum hipDeviceAttribute_t { hipDeviceAttributeMultiprocessorCount = 63 };
extern "C" hipError_t hipGetLastError();
extern "C" hipError_t hipGetDevice(int *device);
extern "C" hipError_t hipDeviceGetAttribute(int *value, hipDeviceAttribute_t attribute, int device);
extern "C" hipError_t hipFuncSetAttribute(const void *function, hipFuncAttribute attribute, int value);
extern "C" hipError_t hipLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t bytes,
                                      hipStream_t stream);
extern "C" unsigned __hipPushCallConfiguration(dim3 grid, dim3 block, size_t bytes = 0, hipStream_t stream = nullptr);
extern "C" hipError_t __hipPopCallConfiguration(dim3 *grid, dim3 *block, size_t *bytes, hipStream_t *stream);
extern "C" hipError_t hipConfigureCall(dim3 grid, dim3 block, size_t bytes = 0, hipStream_t stream = nullptr);

// What programs of whole projects call.
typedef struct ihipEvent_t *hipEvent_t;
enum hipMemcpyKind { hipMemcpyHostToDevice = 1, hipMemcpyDeviceToHost = 2 };
struct hipDeviceProp_t
{
    char name[256];
    int multiProcessorCount;
};
extern "C" const char *hipGetErrorName(hipError_t error);
extern "C" const char *hipGetErrorString(hipError_t error);
extern "C" hipError_t hipMalloc(void **memory, size_t bytes);
extern "C" hipError_t hipFree(void *memory);
extern "C" hipError_t hipMemcpy(void *to, const void *from, size_t bytes, hipMemcpyKind kind);
extern "C" hipError_t hipEventCreate(hipEvent_t *event);
extern "C" hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream = nullptr);
extern "C" hipError_t hipEventSynchronize(hipEvent_t event);
extern "C" hipError_t hipEventElapsedTime(float *milliseconds, hipEvent_t begin, hipEvent_t end);
extern "C" hipError_t hipEventDestroy(hipEvent_t event);
extern "C" hipError_t hipGetDeviceProperties(hipDeviceProp_t *properties, int device);

// --- vectors ---------------------------------------------------------------------------------------------------------

struct __align__(8) float2 { float x, y; };
struct __align__(16) float4 { float x, y, z, w; };
struct __align__(16) double2 { double x, y; };
struct __align__(8) int2 { int x, y; };
struct __align__(16) int4 { int x, y, z, w; };
struct __align__(8) uint2 { unsigned x, y; };
struct __align__(16) uint4 { unsigned x, y, z, w; };
__host__ __device__ inline float2 make_float2(float x, float y) { return {x, y}; }
__host__ __device__ inline double2 make_double2(double x, double y) { return {x, y}; }

// --- threads ---------------------------------------------------------------------------------------------------------

#define GEMMGEN_INDEX(type, axis, builtin)                                                                             \
    struct type##_##axis { __device__ __forceinline__ operator unsigned() const { return builtin; } };
GEMMGEN_INDEX(thread, x, __builtin_amdgcn_workitem_id_x())
GEMMGEN_INDEX(thread, y, __builtin_amdgcn_workitem_id_y())
GEMMGEN_INDEX(thread, z, __builtin_amdgcn_workitem_id_z())
GEMMGEN_INDEX(block, x, __builtin_amdgcn_workgroup_id_x())
GEMMGEN_INDEX(block, y, __builtin_amdgcn_workgroup_id_y())
GEMMGEN_INDEX(block, z, __builtin_amdgcn_workgroup_id_z())
struct thread_index { thread_x x; thread_y y; thread_z z; };
struct block_index { block_x x; block_y y; block_z z; };
extern const __device__ __attribute__((weak)) thread_index threadIdx;
extern const __device__ __attribute__((weak)) block_index blockIdx;

// Orders shared memory alone, through which the threads of emitted kernels meet: what HIP's own adds for global memory
// on gfx11 (buffer_gl0_inv) is no instruction of the emulator's.
__device__ __forceinline__ void __syncthreads()
{
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
}

template <typename T>
__device__ __forceinline__ T gemmgen_of_lane(T value, unsigned lane)
{
    const unsigned words = (sizeof(T) + 3) / 4;
    int bits[words] = {};
    __builtin_memcpy(bits, &value, sizeof(T));
    for (unsigned i = 0; i < words; ++i) {
        bits[i] = __builtin_amdgcn_ds_bpermute(int(lane * 4), bits[i]);
    }
    __builtin_memcpy(&value, bits, sizeof(T));
    return value;
}

__device__ __forceinline__ unsigned gemmgen_lane()
{
    return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u));
}

template <typename T>
__device__ __forceinline__ T __shfl(T value, int lane, int width)
{
    return gemmgen_of_lane(value, gemmgen_lane() / width * width + unsigned(lane) % width);
}

template <typename T>
__device__ __forceinline__ T __shfl_xor(T value, int mask, int width)
{
    const unsigned own = gemmgen_lane(), other = own ^ unsigned(mask);
    return gemmgen_of_lane(value, other / width == own / width ? other : own);
}

__device__ __forceinline__ float atomicAdd(float *to, float value)
{
    return __hip_atomic_fetch_add(to, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

// --- arithmetic ------------------------------------------------------------------------------------------------------

__device__ __forceinline__ int min(int a, int b) { return a < b ? a : b; }
__device__ __forceinline__ int max(int a, int b) { return a < b ? b : a; }
__device__ __forceinline__ long long min(long long a, long long b) { return a < b ? a : b; }
__device__ __forceinline__ float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
__device__ __forceinline__ double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
__device__ __forceinline__ float fminf(float a, float b) { return __builtin_fminf(a, b); }
__device__ __forceinline__ float fmaxf(float a, float b) { return __builtin_fmaxf(a, b); }
