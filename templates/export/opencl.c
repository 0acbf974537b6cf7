
// --- What is used of OpenCL ----------------------------------------------------------------------

typedef struct platform *cl_platform_id;
typedef struct device *cl_device_id;
typedef struct context *cl_context;
typedef struct queue *cl_command_queue;
typedef struct program *cl_program;
typedef struct kernel_object *cl_kernel;
typedef struct memory *cl_mem;
typedef struct event *cl_event;

// Values of the standard's cl.h.
enum {
    CL_SUCCESS = 0,
    CL_DEVICE_TYPE_GPU = 1 << 2,
    CL_DEVICE_TYPE = 0x1000,
    CL_DEVICE_LOCAL_MEM_SIZE = 0x1023,
    CL_DEVICE_NAME = 0x102B,
    CL_DRIVER_VERSION = 0x102D,
    CL_DEVICE_VERSION = 0x102F,
    CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT = 0x103A,
    CL_DEVICE_EXTENSIONS = 0x1030,
    CL_DEVICE_SVM_CAPABILITIES = 0x1053,
    CL_DEVICE_SVM_FINE_GRAIN_SYSTEM = 1 << 2,
    CL_MEM_READ_WRITE = 1 << 0,
    CL_PROGRAM_BINARY_SIZES = 0x1165,
    CL_PROGRAM_BINARIES = 0x1166,
    CL_PROGRAM_BUILD_LOG = 0x1183,
    CL_KERNEL_MAX_SUB_GROUP_SIZE_FOR_NDRANGE = 0x2033,
};
#define CL_DEVICE_TYPE_ALL UINT64_C(0xFFFFFFFF)

// The result, the name and the parameters of each function.
#define OPENCL_FUNCTIONS(F) \
    F(int32_t, GetPlatformIDs, (uint32_t, cl_platform_id *, uint32_t *)) \
    F(int32_t, GetDeviceIDs, (cl_platform_id, uint64_t, uint32_t, cl_device_id *, uint32_t *)) \
    F(int32_t, GetDeviceInfo, (cl_device_id, uint32_t, size_t, void *, size_t *)) \
    F(cl_context, CreateContext, \
      (const intptr_t *, uint32_t, const cl_device_id *, \
       void (*)(const char *, const void *, size_t, void *), void *, int32_t *)) \
    F(cl_command_queue, CreateCommandQueue, (cl_context, cl_device_id, uint64_t, int32_t *)) \
    F(cl_program, CreateProgramWithSource, \
      (cl_context, uint32_t, const char **, const size_t *, int32_t *)) \
    F(cl_program, CreateProgramWithBinary, \
      (cl_context, uint32_t, const cl_device_id *, const size_t *, const unsigned char **, \
       int32_t *, int32_t *)) \
    F(int32_t, BuildProgram, \
      (cl_program, uint32_t, const cl_device_id *, const char *, void (*)(cl_program, void *), \
       void *)) \
    F(int32_t, GetProgramInfo, (cl_program, uint32_t, size_t, void *, size_t *)) \
    F(int32_t, GetProgramBuildInfo, \
      (cl_program, cl_device_id, uint32_t, size_t, void *, size_t *)) \
    F(int32_t, ReleaseProgram, (cl_program)) \
    F(cl_kernel, CreateKernel, (cl_program, const char *, int32_t *)) \
    F(int32_t, SetKernelArg, (cl_kernel, uint32_t, size_t, const void *)) \
    F(cl_mem, CreateBuffer, (cl_context, uint64_t, size_t, void *, int32_t *)) \
    F(int32_t, RetainMemObject, (cl_mem)) \
    F(int32_t, ReleaseMemObject, (cl_mem)) \
    F(int32_t, EnqueueNDRangeKernel, \
      (cl_command_queue, cl_kernel, uint32_t, const size_t *, const size_t *, const size_t *, \
       uint32_t, const cl_event *, cl_event *)) \
    F(int32_t, EnqueueWriteBufferRect, \
      (cl_command_queue, cl_mem, uint32_t, const size_t *, const size_t *, const size_t *, size_t, \
       size_t, size_t, size_t, const void *, uint32_t, const cl_event *, cl_event *)) \
    F(int32_t, EnqueueReadBufferRect, \
      (cl_command_queue, cl_mem, uint32_t, const size_t *, const size_t *, const size_t *, size_t, \
       size_t, size_t, size_t, void *, uint32_t, const cl_event *, cl_event *)) \
    F(int32_t, WaitForEvents, (uint32_t, const cl_event *)) \
    F(int32_t, ReleaseEvent, (cl_event))

#define DECLARE(result, name, parameters) result(*name) parameters;
struct opencl {
    OPENCL_FUNCTIONS(DECLARE)
    // Of OpenCL 2.0 and 2.1; NULL where they are missing.
    int32_t (*SetKernelArgSVMPointer)(cl_kernel, uint32_t, const void *);
    int32_t (*GetKernelSubGroupInfo)(cl_kernel, cl_device_id, uint32_t, size_t, const void *,
                                     size_t, void *, size_t *);
};

// A function of a library. ISO C has no cast from an object's address to a function's.
static bool find_function(void *library, const char *name, void *function)
{
    void *address = dlsym(library, name);
    memcpy(function, &address, sizeof address);
    return address != NULL;
}

// The library's functions, or false if it lacks some.
static bool load_opencl(const char *path, struct opencl *cl)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        return false;
    }
    bool complete = true;
#define FIND(result, name, parameters) \
    complete = find_function(library, "cl" #name, &cl->name) && complete;
    OPENCL_FUNCTIONS(FIND)
    find_function(library, "clSetKernelArgSVMPointer", &cl->SetKernelArgSVMPointer);
    find_function(library, "clGetKernelSubGroupInfo", &cl->GetKernelSubGroupInfo);
    return complete;
}
