// gemmgen_blas: sgemm, dgemm, cgemm, zgemm of the BLAS on an OpenCL device
//
// Build      cc -std=c99 -O3 -fPIC -shared -Wall -Wextra -o libgemmgen_blas.so
//            gemmgen_blas.c -ldl -lpthread
// Link       cc program.c -L. -lgemmgen_blas, before any other BLAS; or leave a program as it is:
// Preload    LD_PRELOAD=$PWD/libgemmgen_blas.so program
// Symbols    sgemm_, dgemm_, cgemm_, zgemm_ and cblas_sgemm, cblas_dgemm, cblas_cgemm, cblas_zgemm,
//            with 32-bit integers; xerbla_ and cblas_xerbla report wrong parameters and return, and
//            a program's own take their place
// Device     a GPU if there is one, else any device; what runs nowhere is computed by loops here,
//            which is said once on standard error. OpenCL is looked for at the first product.
// Memory     only C's own elements are written, never what lies between its lines
// Threads    calls may come from any thread. After fork() a child computes by loops if its parent
//            had opened the device before: OpenCL does not survive a fork.
//
// Environment, read at the first call:
//   GEMMGEN_BLAS_OPENCL   the OpenCL library to load, in place of the usual ones
//   GEMMGEN_BLAS_DEVICE   a part of the name of the device to use
//   GEMMGEN_BLAS_SMALL    products of up to so many multiply-adds are computed by loops here, where
//                         handing them over would take longer (if unset: 0, all are handed over)
//   GEMMGEN_BLAS_CACHE    the folder where kernels are kept once they are built: yours, and nobody
//                         else may write to it; empty for none (if unset: gemmgen_blas in
//                         $XDG_CACHE_HOME or ~/.cache)
//   GEMMGEN_BLAS_VERBOSE  1 says on standard error which device and which kernels are used
//
// From the top: what is used of OpenCL; the device; its kernels; one product; the rules of the BLAS
// and its entry points; the kernels' texts.

#define _POSIX_C_SOURCE 200809L
#include <complex.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// A library of one vendor to try before libOpenCL.so.1: -DGEMMGEN_BLAS_OPENCL='"/path/of/it.so"'.
#ifndef GEMMGEN_BLAS_OPENCL
#define GEMMGEN_BLAS_OPENCL ""
#endif

// Kernels count in 32 bits: matrices that span more elements are multiplied in parts.
#ifndef GEMMGEN_BLAS_SPAN
#define GEMMGEN_BLAS_SPAN 536870912
#endif

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
#define OPENCL_FUNCTIONS(F)                                                                        \
    F(int32_t, GetPlatformIDs, (uint32_t, cl_platform_id *, uint32_t *))                           \
    F(int32_t, GetDeviceIDs, (cl_platform_id, uint64_t, uint32_t, cl_device_id *, uint32_t *))     \
    F(int32_t, GetDeviceInfo, (cl_device_id, uint32_t, size_t, void *, size_t *))                  \
    F(cl_context, CreateContext,                                                                   \
      (const intptr_t *, uint32_t, const cl_device_id *,                                           \
       void (*)(const char *, const void *, size_t, void *), void *, int32_t *))                   \
    F(cl_command_queue, CreateCommandQueue, (cl_context, cl_device_id, uint64_t, int32_t *))       \
    F(cl_program, CreateProgramWithSource,                                                         \
      (cl_context, uint32_t, const char **, const size_t *, int32_t *))                            \
    F(cl_program, CreateProgramWithBinary,                                                         \
      (cl_context, uint32_t, const cl_device_id *, const size_t *, const unsigned char **,         \
       int32_t *, int32_t *))                                                                      \
    F(int32_t, BuildProgram,                                                                       \
      (cl_program, uint32_t, const cl_device_id *, const char *, void (*)(cl_program, void *),     \
       void *))                                                                                    \
    F(int32_t, GetProgramInfo, (cl_program, uint32_t, size_t, void *, size_t *))                   \
    F(int32_t, GetProgramBuildInfo,                                                                \
      (cl_program, cl_device_id, uint32_t, size_t, void *, size_t *))                              \
    F(int32_t, ReleaseProgram, (cl_program))                                                       \
    F(cl_kernel, CreateKernel, (cl_program, const char *, int32_t *))                              \
    F(int32_t, SetKernelArg, (cl_kernel, uint32_t, size_t, const void *))                          \
    F(cl_mem, CreateBuffer, (cl_context, uint64_t, size_t, void *, int32_t *))                     \
    F(int32_t, RetainMemObject, (cl_mem))                                                          \
    F(int32_t, ReleaseMemObject, (cl_mem))                                                         \
    F(int32_t, EnqueueNDRangeKernel,                                                               \
      (cl_command_queue, cl_kernel, uint32_t, const size_t *, const size_t *, const size_t *,      \
       uint32_t, const cl_event *, cl_event *))                                                    \
    F(int32_t, EnqueueWriteBufferRect,                                                             \
      (cl_command_queue, cl_mem, uint32_t, const size_t *, const size_t *, const size_t *, size_t, \
       size_t, size_t, size_t, const void *, uint32_t, const cl_event *, cl_event *))              \
    F(int32_t, EnqueueReadBufferRect,                                                              \
      (cl_command_queue, cl_mem, uint32_t, const size_t *, const size_t *, const size_t *, size_t, \
       size_t, size_t, size_t, void *, uint32_t, const cl_event *, cl_event *))                    \
    F(int32_t, WaitForEvents, (uint32_t, const cl_event *))                                        \
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

// --- The device ----------------------------------------------------------------------------------

// Memory of the device that stays from call to call: to make it anew takes longer than to use it.
struct workspace {
    cl_mem buffer;
    size_t bytes;
};
enum { WORKSPACE_BYTES = 1 << 28 };  // what is larger goes with the call

static struct {
    enum { UNTRIED, OPEN, LEFT_BEHIND, MISSING } state;
    struct opencl cl;
    cl_device_id id;
    cl_context context;
    cl_command_queue queue;
    bool is_gpu;
    bool in_place;  // kernels reach any memory of the process
    uint64_t local_bytes, vector_bytes;
    char *extensions;  // a blank before and after each
    struct workspace workspaces[2];
} device;

static struct {
    const char *library, *name, *cache;
    double small;
    bool verbose;
} settings;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    flockfile(stderr);
    fputs("gemmgen_blas: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    funlockfile(stderr);
    va_end(arguments);
}

// From now on everything is computed by loops.
static void give_up(const char *why)
{
    device.state = MISSING;
    say("%s: products are computed by plain loops on the host", why);
}

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
    // The threads of the OpenCL runtime stayed with the parent.
    if (device.state == OPEN) {
        device.state = LEFT_BEHIND;
    }
    pthread_mutex_unlock(&lock);
}

// The environment, read once.
static void start(void)
{
    const char *small = getenv("GEMMGEN_BLAS_SMALL"), *verbose = getenv("GEMMGEN_BLAS_VERBOSE");
    settings.library = getenv("GEMMGEN_BLAS_OPENCL");
    settings.name = getenv("GEMMGEN_BLAS_DEVICE");
    settings.cache = getenv("GEMMGEN_BLAS_CACHE");
    settings.verbose = verbose != NULL && strcmp(verbose, "1") == 0;
    if (small != NULL) {
        char *end = NULL;
        const double value = strtod(small, &end);
        if (end == small || *end != '\0' || !(value >= 0)) {
            say("GEMMGEN_BLAS_SMALL=%s is no number of multiply-adds: taken as 0", small);
        } else {
            settings.small = value;
        }
    }
    pthread_atfork(before_fork, in_parent, in_child);
}

// What the device tells about itself, a blank before and after it; the caller's to free.
static char *device_text(const struct opencl *cl, cl_device_id id, uint32_t what)
{
    size_t size = 0;
    if (cl->GetDeviceInfo(id, what, 0, NULL, &size) != CL_SUCCESS) {
        size = 0;
    }
    char *text = calloc(1, size + 3);
    if (text == NULL) {
        return NULL;
    }
    text[0] = ' ';
    if (size > 0 && cl->GetDeviceInfo(id, what, size, text + 1, NULL) != CL_SUCCESS) {
        text[1] = '\0';
    }
    strcat(text, " ");
    return text;
}

static uint64_t device_number(const struct opencl *cl, cl_device_id id, uint32_t what)
{
    uint64_t number = 0;
    return cl->GetDeviceInfo(id, what, sizeof number, &number, NULL) == CL_SUCCESS ? number : 0;
}

// Whether the device is one that is meant.
static bool is_meant(const struct opencl *cl, cl_device_id id)
{
    if (settings.name == NULL) {
        return true;
    }
    char *name = device_text(cl, id, CL_DEVICE_NAME);
    const bool meant = name != NULL && strstr(name, settings.name) != NULL;
    free(name);
    return meant;
}

// The first device of a type that is meant.
static bool choose_device(const struct opencl *cl, uint64_t type, cl_device_id *chosen)
{
    cl_platform_id platforms[16];
    uint32_t platform_count = 0;
    if (cl->GetPlatformIDs(16, platforms, &platform_count) != CL_SUCCESS) {
        return false;
    }
    for (uint32_t i = 0; i < platform_count && i < 16; ++i) {
        cl_device_id ids[16];
        uint32_t count = 0;
        if (cl->GetDeviceIDs(platforms[i], type, 16, ids, &count) != CL_SUCCESS) {
            continue;
        }
        for (uint32_t j = 0; j < count && j < 16; ++j) {
            if (is_meant(cl, ids[j])) {
                *chosen = ids[j];
                return true;
            }
        }
    }
    return false;
}

// Looks through the libraries for a GPU, and then for any device.
static bool find_device(void)
{
    const char *paths[2] = {GEMMGEN_BLAS_OPENCL, "libOpenCL.so.1"};
    if (settings.library != NULL) {
        paths[0] = settings.library;
        paths[1] = "";
    }
    struct opencl libraries[2] = {0};
    bool loaded[2];
    for (int i = 0; i < 2; ++i) {
        loaded[i] = paths[i][0] != '\0' && load_opencl(paths[i], &libraries[i]);
    }
    if (settings.library != NULL && !loaded[0]) {
        say("GEMMGEN_BLAS_OPENCL=%s is no OpenCL library that can be loaded", settings.library);
    }
    const uint64_t types[2] = {CL_DEVICE_TYPE_GPU, CL_DEVICE_TYPE_ALL};
    for (int pass = 0; pass < 2; ++pass) {
        for (int i = 0; i < 2; ++i) {
            if (loaded[i] && choose_device(&libraries[i], types[pass], &device.id)) {
                device.cl = libraries[i];
                return true;
            }
        }
    }
    return false;
}

// Opens the device when it is first needed. To be called under the lock, as all below.
static bool open_device(void)
{
    if (device.state == LEFT_BEHIND) {
        give_up("a forked process cannot use the device that its parent opened");
    }
    if (device.state != UNTRIED) {
        return device.state == OPEN;
    }
    if (!find_device()) {
        give_up(settings.name == NULL ? "no OpenCL device found"
                                      : "no OpenCL device of the name in GEMMGEN_BLAS_DEVICE");
        return false;
    }
    const struct opencl *cl = &device.cl;
    int32_t error = CL_SUCCESS;
    device.context = cl->CreateContext(NULL, 1, &device.id, NULL, NULL, &error);
    if (error == CL_SUCCESS) {
        device.queue = cl->CreateCommandQueue(device.context, device.id, 0, &error);
    }
    device.extensions = device_text(cl, device.id, CL_DEVICE_EXTENSIONS);
    if (error != CL_SUCCESS || device.extensions == NULL) {
        give_up("the OpenCL device could not be opened");
        return false;
    }
    const uint64_t shared = device_number(cl, device.id, CL_DEVICE_SVM_CAPABILITIES);
    device.in_place =
        cl->SetKernelArgSVMPointer != NULL && (shared & CL_DEVICE_SVM_FINE_GRAIN_SYSTEM) != 0;
    device.is_gpu = device_number(cl, device.id, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_GPU;
    device.local_bytes = device_number(cl, device.id, CL_DEVICE_LOCAL_MEM_SIZE);
    device.vector_bytes =
        sizeof(float) * device_number(cl, device.id, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT);
    device.state = OPEN;
    if (settings.verbose) {
        char *name = device_text(cl, device.id, CL_DEVICE_NAME);
        say("device%s, matrices %s", name == NULL ? "" : name,
            device.in_place ? "used where they are" : "copied");
        free(name);
    }
    return true;
}

// --- Kernels, built once and kept in files -------------------------------------------------------

// A kernel and its launch geometry; whether it can be used is found out when it is first asked for.
struct kernel {
    const char *name, *text, *options;
    const char *extensions;  // what the device must have, a blank after each
    uint64_t local_bytes, vector_bytes;  // what it takes of local memory, and of native vectors
    enum { ANY, GPU, CPU } device;     // where it is of use: others may have a better one
    size_t sub_group;  // work-items of a sub-group that it is written for; 0: any
    size_t group_rows, group_columns;  // work-items of a group
    size_t block_rows, block_columns;  // elements of the result that some groups compute:
    size_t groups_down, groups_across;
    cl_kernel built;
    bool unusable;
};

// Whether the device has each extension of a list with a blank after each.
static bool has_extensions(const char *wanted)
{
    while (*wanted != '\0') {
        char word[64] = " ";
        const size_t length = strcspn(wanted, " ") + 1;
        if (length + 2 > sizeof word) {
            return false;
        }
        memcpy(word + 1, wanted, length);
        if (strstr(device.extensions, word) == NULL) {
            return false;
        }
        wanted += length;
    }
    return true;
}

// The first lines of what the compiler said.
static void say_build_log(const struct kernel *kernel, cl_program program)
{
    char log[2000] = "";
    size_t size = 0;
    device.cl.GetProgramBuildInfo(program, device.id, CL_PROGRAM_BUILD_LOG, 0, NULL, &size);
    char *whole = calloc(1, size + 1);
    if (whole != NULL) {
        device.cl.GetProgramBuildInfo(program, device.id, CL_PROGRAM_BUILD_LOG, size, whole, NULL);
        strncpy(log, whole, sizeof log - 1);
        free(whole);
    }
    say("kernel %s does not build on this device:\n%s", kernel->name, log);
}

// What a file begins with.
struct header {
    uint64_t key, checksum, size;
};

// FNV-1a: goes on from what was hashed before.
static uint64_t hash(uint64_t so_far, const void *data, size_t size)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size; ++i) {
        so_far = (so_far ^ bytes[i]) * UINT64_C(1099511628211);
    }
    return so_far;
}

static uint64_t hash_text(uint64_t so_far, const char *text)
{
    return text == NULL ? so_far : hash(so_far, text, strlen(text) + 1);
}

// The instructions that this machine's CPU has: devices of one name may differ in them.
static uint64_t hash_cpu(uint64_t so_far)
{
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[4096];
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "flags", 5) == 0 || strncmp(line, "Features", 8) == 0) {
            so_far = hash_text(so_far, line);
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return so_far;
}

// All that a binary depends on.
static uint64_t key_of(const struct kernel *kernel)
{
    const uint32_t told[] = {CL_DEVICE_NAME, CL_DRIVER_VERSION, CL_DEVICE_VERSION};
    uint64_t key = hash_cpu(UINT64_C(14695981039346656037));
    for (size_t i = 0; i < sizeof told / sizeof told[0]; ++i) {
        char *text = device_text(&device.cl, device.id, told[i]);
        key = hash_text(key, text);
        free(text);
    }
    key = hash_text(key, device.extensions);
    return hash_text(hash_text(key, kernel->options), kernel->text);
}

// Whether a file or a folder is this user's, and nobody else may write to it.
static bool is_ours(const struct stat *about)
{
    return about->st_uid == geteuid() && (about->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// Says once that kernels are not kept, and why.
static void say_unkept(const char *what, const char *why)
{
    static bool said;
    if (!said) {
        said = true;
        say("%s: %s: kernels are not kept, so that each process builds them anew", what, why);
    }
}

// The path of the folder where binaries are kept; false if nowhere.
static bool find_folder(char *path, size_t size)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int length = 0;
    if (settings.cache != NULL) {
        length = snprintf(path, size, "%s", settings.cache);
    } else if (cache != NULL && cache[0] == '/') {
        length = snprintf(path, size, "%s/gemmgen_blas", cache);
    } else if (home != NULL && home[0] == '/') {
        length = snprintf(path, size, "%s/.cache/gemmgen_blas", home);
    }
    return length > 0 && (size_t)length < size;
}

// Opens that folder, made if it is missing; -1 if it can't be, or others may put files there, which
// would be executed.
static int open_folder(void)
{
    char path[4096];
    if (!find_folder(path, sizeof path)) {
        return -1;
    }
    char *name = strrchr(path, '/');
    if (name != NULL && name != path) {
        *name = '\0';
        mkdir(path, 0700);
        *name = '/';
    }
    mkdir(path, 0700);
    const int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) {
        say_unkept(path, strerror(errno));
        return -1;
    }
    struct stat about;
    if (fstat(folder, &about) != 0 || !is_ours(&about)) {
        say_unkept(path, "it is another user's, or others may write to it");
        close(folder);
        return -1;
    }
    return folder;
}

// A file to read that is ours: no link is followed, and no pipe waited for.
static FILE *open_ours(int folder, const char *name)
{
    const int file = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat about;
    if (file >= 0 && fstat(file, &about) == 0 && S_ISREG(about.st_mode) && is_ours(&about)) {
        return fdopen(file, "rb");
    }
    if (file >= 0) {
        close(file);
    }
    return NULL;
}

// The program in a file; NULL if there is none, or it is not what was written there.
static cl_program load_binary(int folder, const char *name, uint64_t key)
{
    FILE *file = open_ours(folder, name);
    if (file == NULL) {
        return NULL;
    }
    struct header header = {0};
    unsigned char *binary = NULL;
    cl_program program = NULL;
    int32_t error = CL_SUCCESS, status = CL_SUCCESS;
    if (fread(&header, sizeof header, 1, file) == 1 && header.key == key &&
        header.size < INT32_MAX && (binary = malloc(header.size + 1)) != NULL &&
        fread(binary, 1, header.size + 1, file) == header.size &&
        hash(key, binary, header.size) == header.checksum) {
        const unsigned char *const_binary = binary;
        const size_t size = header.size;
        program = device.cl.CreateProgramWithBinary(device.context, 1, &device.id, &size,
                                                    &const_binary, &status, &error);
        program = error == CL_SUCCESS ? program : NULL;
    }
    free(binary);
    fclose(file);
    return program;
}

// Writes a file under another name until it is whole, one that did not exist before.
static bool write_file(int folder, const char *name, const struct header *header,
                       const unsigned char *binary)
{
    char draft[300];
    snprintf(draft, sizeof draft, "%s.%ld", name, (long)getpid());
    unlinkat(folder, draft, 0);  // of a process that had this number and was ended
    const int made = openat(folder, draft, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    FILE *file = made < 0 ? NULL : fdopen(made, "wb");
    if (file == NULL) {
        return false;
    }
    bool whole = fwrite(header, sizeof *header, 1, file) == 1 &&
                 fwrite(binary, 1, header->size, file) == header->size;
    whole = fclose(file) == 0 && whole;
    if (whole && renameat(folder, draft, folder, name) == 0) {
        return true;
    }
    const int reason = errno;
    unlinkat(folder, draft, 0);
    errno = reason;
    return false;
}

// Keeps a program. What goes wrong costs time later, no more.
static void save_binary(int folder, const char *name, uint64_t key, cl_program program)
{
    const struct opencl *cl = &device.cl;
    size_t size = 0;
    int32_t error =
        cl->GetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL);
    if (error != CL_SUCCESS || size == 0) {
        return;
    }
    unsigned char *binary = malloc(size);
    if (binary != NULL) {
        error = cl->GetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL);
    }
    if (binary != NULL && error == CL_SUCCESS) {
        const struct header header = {key, hash(key, binary, size), size};
        if (!write_file(folder, name, &header, binary)) {
            say_unkept(name, strerror(errno));
        }
    }
    free(binary);
}

static bool build_program(const struct kernel *kernel, cl_program program)
{
    return device.cl.BuildProgram(program, 1, &device.id, kernel->options, NULL, NULL) ==
           CL_SUCCESS;
}

// The kernel's program from its text.
static cl_program build_text(const struct kernel *kernel)
{
    const struct opencl *cl = &device.cl;
    int32_t error = CL_SUCCESS;
    const char *text = kernel->text;
    cl_program program = cl->CreateProgramWithSource(device.context, 1, &text, NULL, &error);
    if (error != CL_SUCCESS) {
        return NULL;
    }
    if (!build_program(kernel, program)) {
        say_build_log(kernel, program);
        cl->ReleaseProgram(program);
        return NULL;
    }
    if (settings.verbose) {
        say("built %s", kernel->name);
    }
    return program;
}

// The same from its file, if there is one that the device takes.
static cl_program build_file(const struct kernel *kernel, int folder, const char *name,
                             uint64_t key)
{
    cl_program program = load_binary(folder, name, key);
    if (program == NULL) {
        return NULL;
    }
    if (!build_program(kernel, program)) {
        device.cl.ReleaseProgram(program);
        return NULL;
    }
    if (settings.verbose) {
        say("loaded %s", kernel->name);
    }
    return program;
}

// The kernel's program from its file, or else from its text, and then kept in the file.
static cl_program find_program(const struct kernel *kernel)
{
    const int folder = open_folder();
    if (folder < 0) {
        return build_text(kernel);
    }
    const uint64_t key = key_of(kernel);
    char name[256];
    snprintf(name, sizeof name, "%s-%016" PRIx64 ".bin", kernel->name, key);
    cl_program program = build_file(kernel, folder, name, key);
    if (program == NULL && (program = build_text(kernel)) != NULL) {
        save_binary(folder, name, key, program);
    }
    close(folder);
    return program;
}

// Whether the compiler made sub-groups of the size that a kernel is written for, as far as it says.
static bool has_its_sub_groups(const struct kernel *kernel)
{
    if (kernel->sub_group == 0 || device.cl.GetKernelSubGroupInfo == NULL) {
        return true;
    }
    const size_t group[2] = {kernel->group_columns, kernel->group_rows};
    size_t size = 0;
    if (device.cl.GetKernelSubGroupInfo(kernel->built, device.id,
                                        CL_KERNEL_MAX_SUB_GROUP_SIZE_FOR_NDRANGE, sizeof group,
                                        group, sizeof size, &size, NULL) != CL_SUCCESS ||
        size == 0 || size == kernel->sub_group) {
        return true;
    }
    say("kernel %s is written for sub-groups of %zu, but this device compiled it for %zu",
        kernel->name, kernel->sub_group, size);
    return false;
}

// Makes a kernel; its program is let go again, as the kernel holds on to it.
static bool build(struct kernel *kernel)
{
    int32_t error = CL_SUCCESS;
    cl_program program = find_program(kernel);
    if (program == NULL) {
        return false;
    }
    kernel->built = device.cl.CreateKernel(program, kernel->name, &error);
    device.cl.ReleaseProgram(program);
    return error == CL_SUCCESS && has_its_sub_groups(kernel);
}

// Whether the device can run a kernel, which is then built.
static bool is_ready(struct kernel *kernel)
{
    if (kernel->built == NULL && !kernel->unusable) {
        const bool is_meant = kernel->device == ANY || (kernel->device == GPU) == device.is_gpu;
        const bool fits = is_meant && kernel->local_bytes <= device.local_bytes &&
                          kernel->vector_bytes <= device.vector_bytes &&
                          has_extensions(kernel->extensions);
        kernel->unusable = !fits || !build(kernel);
    }
    return !kernel->unusable;
}

// --- One product ---------------------------------------------------------------------------------

// What is done to a matrix before it is multiplied; the last one transposes it, too, and is for
// complex numbers.
enum op { AS_IS, TRANSPOSED, CONJUGATED };

// C = alpha * op(A) * op(B) + beta * C, all row by row: op(A) is m x k, op(B) k x n.
struct product {
    const struct type *type;
    enum op op_a, op_b;
    int m, n, k;
    const void *alpha, *beta;  // elements of the type
    const char *a, *b;
    char *c;
    int lda, ldb, ldc;
};

// How products with such ops are computed: by a kernel, which may need A or B turned around before.
struct recipe {
    enum op op_a, op_b;
    struct kernel *gemm, *turn_a, *turn_b;  // the last two NULL where the matrix is taken as it is
};

struct type {
    const char *fortran_name, *cblas_name;
    size_t size;
    bool is_complex;
    const void *one;
    bool (*equals)(const void *element, int number);
    void (*multiply)(const struct product *p);  // by loops
    void (*scale)(const struct product *p);     // C = beta * C
    const struct recipe *recipes;               // the best first; the last one has no kernel
};

// A matrix as kernels get it: in a buffer, or where it is.
struct operand {
    cl_mem buffer;
    const void *host;
    int ld;
};

struct job {
    struct operand a, b, c, turned_a, turned_b;
    cl_event done;
};

static cl_mem new_buffer(size_t bytes)
{
    int32_t error = CL_SUCCESS;
    cl_mem buffer = device.cl.CreateBuffer(device.context, CL_MEM_READ_WRITE, bytes, NULL, &error);
    return error == CL_SUCCESS ? buffer : NULL;
}

// A workspace of at least so many bytes, the caller's to release. The queue runs one thing after
// another, so that a product may take what the one before it still works on.
static cl_mem workspace_buffer(struct workspace *workspace, size_t bytes)
{
    if (workspace->bytes < bytes) {
        cl_mem buffer = new_buffer(bytes);
        if (buffer == NULL || bytes > WORKSPACE_BYTES) {
            return buffer;
        }
        if (workspace->buffer != NULL) {
            device.cl.ReleaseMemObject(workspace->buffer);
        }
        workspace->buffer = buffer;
        workspace->bytes = bytes;
    }
    device.cl.RetainMemObject(workspace->buffer);
    return workspace->buffer;
}

// Brings a matrix of so many lines to the device, unless that reaches it where it is.
static bool stage(struct operand *operand, const void *data, int lines, int length, int ld,
                  size_t size, bool is_read)
{
    // Kernels hold a complex number in a vector, which asks for more than C's alignment.
    if (device.in_place && (uintptr_t)data % size == 0) {
        operand->host = data;
        operand->ld = ld;
        return true;
    }
    const size_t origin[3] = {0, 0, 0}, region[3] = {(size_t)length * size, (size_t)lines, 1};
    operand->ld = length;
    operand->buffer = new_buffer(region[0] * region[1]);
    if (operand->buffer == NULL || !is_read) {
        return operand->buffer != NULL;
    }
    return device.cl.EnqueueWriteBufferRect(device.queue, operand->buffer, true, origin, origin,
                                            region, region[0], 0, (size_t)ld * size, 0, data, 0,
                                            NULL, NULL) == CL_SUCCESS;
}

// Copies C back: its own elements, not what lies between its lines.
static bool fetch(const struct product *p, const struct operand *c)
{
    const size_t size = p->type->size, origin[3] = {0, 0, 0};
    const size_t region[3] = {(size_t)p->n * size, (size_t)p->m, 1};
    return device.cl.EnqueueReadBufferRect(device.queue, c->buffer, true, origin, origin, region,
                                           region[0], 0, (size_t)p->ldc * size, 0, p->c, 0, NULL,
                                           NULL) == CL_SUCCESS;
}

static bool set_value(struct kernel *kernel, uint32_t index, size_t size, const void *value)
{
    return device.cl.SetKernelArg(kernel->built, index, size, value) == CL_SUCCESS;
}

// Sets a matrix and, behind it, its leading dimension.
static bool set_matrix(struct kernel *kernel, uint32_t index, const struct operand *operand)
{
    const bool is_set =
        operand->buffer != NULL
            ? set_value(kernel, index, sizeof operand->buffer, &operand->buffer)
            : device.cl.SetKernelArgSVMPointer(kernel->built, index, operand->host) == CL_SUCCESS;
    return is_set && set_value(kernel, index + 1, sizeof operand->ld, &operand->ld);
}

static bool launch(struct kernel *kernel, int rows, int columns, cl_event *done)
{
    const size_t down = ((size_t)rows + kernel->block_rows - 1) / kernel->block_rows;
    const size_t across = ((size_t)columns + kernel->block_columns - 1) / kernel->block_columns;
    const size_t group[2] = {kernel->group_columns, kernel->group_rows};
    const size_t all[2] = {across * kernel->groups_across * group[0],
                           down * kernel->groups_down * group[1]};
    return device.cl.EnqueueNDRangeKernel(device.queue, kernel->built, 2, NULL, all, group, 0, NULL,
                                          done) == CL_SUCCESS;
}

// Turns a matrix around on the device.
static bool turn(struct kernel *kernel, const struct operand *from, int lines, int length,
                 size_t size, struct workspace *workspace, struct operand *to)
{
    to->ld = lines;
    to->buffer = workspace_buffer(workspace, (size_t)lines * (size_t)length * size);
    return to->buffer != NULL && set_value(kernel, 0, sizeof lines, &lines) &&
           set_value(kernel, 1, sizeof length, &length) && set_matrix(kernel, 2, from) &&
           set_matrix(kernel, 4, to) && launch(kernel, lines, length, NULL);
}

// The first recipe for a product that the device can follow.
static const struct recipe *find_recipe(const struct product *p)
{
    for (const struct recipe *recipe = p->type->recipes; recipe->gemm != NULL; ++recipe) {
        if (recipe->op_a == p->op_a && recipe->op_b == p->op_b && is_ready(recipe->gemm) &&
            (recipe->turn_a == NULL || is_ready(recipe->turn_a)) &&
            (recipe->turn_b == NULL || is_ready(recipe->turn_b))) {
            return recipe;
        }
    }
    return NULL;
}

// Hands a product to the device. In order, so that each step finds what the one before it made.
static bool submit(const struct product *p, const struct recipe *recipe, struct job *job)
{
    const size_t size = p->type->size;
    const bool a_by_rows = p->op_a == AS_IS, b_by_rows = p->op_b == AS_IS;
    const int a_lines = a_by_rows ? p->m : p->k, a_length = a_by_rows ? p->k : p->m;
    const int b_lines = b_by_rows ? p->k : p->n, b_length = b_by_rows ? p->n : p->k;
    if (!stage(&job->a, p->a, a_lines, a_length, p->lda, size, true) ||
        !stage(&job->b, p->b, b_lines, b_length, p->ldb, size, true) ||
        !stage(&job->c, p->c, p->m, p->n, p->ldc, size, !p->type->equals(p->beta, 0))) {
        return false;
    }
    if (recipe->turn_a != NULL && !turn(recipe->turn_a, &job->a, a_lines, a_length, size,
                                        &device.workspaces[0], &job->turned_a)) {
        return false;
    }
    if (recipe->turn_b != NULL && !turn(recipe->turn_b, &job->b, b_lines, b_length, size,
                                        &device.workspaces[1], &job->turned_b)) {
        return false;
    }
    const struct operand *a = recipe->turn_a != NULL ? &job->turned_a : &job->a;
    const struct operand *b = recipe->turn_b != NULL ? &job->turned_b : &job->b;
    struct kernel *gemm = recipe->gemm;
    return set_value(gemm, 0, sizeof p->m, &p->m) && set_value(gemm, 1, sizeof p->n, &p->n) &&
           set_value(gemm, 2, sizeof p->k, &p->k) && set_value(gemm, 3, size, p->alpha) &&
           set_matrix(gemm, 4, a) && set_matrix(gemm, 6, b) && set_value(gemm, 8, size, p->beta) &&
           set_matrix(gemm, 9, &job->c) && launch(gemm, p->m, p->n, &job->done);
}

// Waits for a product, and has C where it belongs.
static bool finish(const struct product *p, const struct job *job)
{
    return device.cl.WaitForEvents(1, &job->done) == CL_SUCCESS &&
           (job->c.buffer == NULL || fetch(p, &job->c));
}

static void release(const struct job *job)
{
    const cl_mem buffers[] = {job->a.buffer, job->b.buffer, job->c.buffer, job->turned_a.buffer,
                              job->turned_b.buffer};
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; ++i) {
        if (buffers[i] != NULL) {
            device.cl.ReleaseMemObject(buffers[i]);
        }
    }
    if (job->done != NULL) {
        device.cl.ReleaseEvent(job->done);
    }
}

// Computes a product on the device; false if it has not begun to. Kernels take their arguments
// under the lock; waiting is done outside of it, so that other threads may hand over theirs.
static bool multiply_on_device(const struct product *p)
{
    static bool told;
    struct job job = {0};
    bool submitted = false;
    pthread_mutex_lock(&lock);
    if (open_device()) {
        const struct recipe *recipe = find_recipe(p);
        submitted = recipe != NULL && submit(p, recipe, &job);
        if (!submitted && !told) {
            told = true;
            say("%s cannot be computed on this device, where %s: done by plain loops on the host",
                p->type->cblas_name, recipe == NULL ? "no kernel runs" : "the work was refused");
        }
    }
    pthread_mutex_unlock(&lock);
    if (submitted && !finish(p, &job)) {
        say("%s failed on the device: C is undefined", p->type->cblas_name);
    }
    release(&job);
    return submitted;
}

// Whether a matrix reaches further than kernels can count.
static bool is_wide(int lines, int length, int ld)
{
    return (int64_t)(lines - 1) * ld + length >= GEMMGEN_BLAS_SPAN;
}

// The place so many rows and columns of op(matrix) further on.
static const char *further(const char *matrix, enum op op, int rows, int columns, int ld,
                           size_t size)
{
    const ptrdiff_t lines = op == AS_IS ? rows : columns, elements = op == AS_IS ? columns : rows;
    return matrix + (lines * ld + elements) * (ptrdiff_t)size;
}

// Computes a product; one with a wide matrix in parts.
static void multiply(const struct product *p)
{
    const size_t size = p->type->size;
    const bool a_by_rows = p->op_a == AS_IS, b_by_rows = p->op_b == AS_IS;
    const bool a_is_wide = a_by_rows ? is_wide(p->m, p->k, p->lda) : is_wide(p->k, p->m, p->lda);
    const bool b_is_wide = b_by_rows ? is_wide(p->k, p->n, p->ldb) : is_wide(p->n, p->k, p->ldb);
    const bool c_is_wide = is_wide(p->m, p->n, p->ldc);
    struct product first = *p, second = *p;
    if (p->m > 1 && (c_is_wide || (a_is_wide && a_by_rows))) {
        first.m = p->m / 2;
        second.m = p->m - first.m;
        second.a = further(p->a, p->op_a, first.m, 0, p->lda, size);
        second.c = p->c + (ptrdiff_t)first.m * p->ldc * (ptrdiff_t)size;
    } else if (p->n > 1 && (c_is_wide || (b_is_wide && !b_by_rows))) {
        first.n = p->n / 2;
        second.n = p->n - first.n;
        second.b = further(p->b, p->op_b, 0, first.n, p->ldb, size);
        second.c = p->c + (ptrdiff_t)first.n * (ptrdiff_t)size;
    } else if (p->k > 1 && (a_is_wide || b_is_wide)) {
        first.k = p->k / 2;
        second.k = p->k - first.k;
        second.a = further(p->a, p->op_a, 0, first.k, p->lda, size);
        second.b = further(p->b, p->op_b, first.k, 0, p->ldb, size);
        second.beta = p->type->one;
    } else {
        const bool is_small = (double)p->m * p->n * p->k <= settings.small;
        if (is_small || !multiply_on_device(p)) {
            p->type->multiply(p);
        }
        return;
    }
    multiply(&first);
    multiply(&second);
}

// --- The rules of the BLAS -----------------------------------------------------------------------

// Set while cblas_xerbla is called, as the reference CBLAS does: numbers of parameters are then
// those of the column-major call that a row-major one is made into.
__attribute__((weak)) int RowMajorStrg;

// A wrong parameter of a Fortran routine. A program's own function of that name takes its place.
__attribute__((weak)) void xerbla_(const char *routine, const int *parameter, size_t length)
{
    const int letters = length < 16 ? (int)length : 6;
    say("parameter %d of %.*s has an illegal value: nothing was computed", *parameter, letters,
        routine);
}

// The same for a routine of the CBLAS.
__attribute__((weak)) void cblas_xerbla(int parameter, const char *routine, const char *format, ...)
{
    // M and N, A and B change places in the product of the transposed matrices.
    static const int swapped[] = {[4] = 5, [5] = 4, [8] = 10, [9] = 11, [10] = 8, [11] = 9};
    if (RowMajorStrg && parameter < 12 && swapped[parameter] != 0) {
        parameter = swapped[parameter];
    }
    char reason[100] = "";
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    reason[strcspn(reason, "\n")] = '\0';
    say("parameter %d of %s has an illegal value%s%s: nothing was computed", parameter, routine,
        reason[0] != '\0' ? ": " : "", reason);
}

// What a letter says, or false if it says nothing.
static bool parse_op(const struct type *type, char letter, enum op *op)
{
    switch (letter) {
    case 'N':
    case 'n':
        *op = AS_IS;
        return true;
    case 'T':
    case 't':
        *op = TRANSPOSED;
        return true;
    case 'C':
    case 'c':
        *op = type->is_complex ? CONJUGATED : TRANSPOSED;
        return true;
    default:
        return false;
    }
}

static int at_least_one(int value)
{
    return value > 1 ? value : 1;
}

// C = alpha * op(A) * op(B) + beta * C, all column by column. Returns the number of the first wrong
// parameter, as Fortran counts them, or 0.
static int gemm(const struct type *type, char transa, char transb, int m, int n, int k,
                const void *alpha, const void *a, int lda, const void *b, int ldb, const void *beta,
                void *c, int ldc)
{
    enum op op_a = AS_IS, op_b = AS_IS;
    if (!parse_op(type, transa, &op_a)) {
        return 1;
    }
    if (!parse_op(type, transb, &op_b)) {
        return 2;
    }
    if (m < 0) {
        return 3;
    }
    if (n < 0) {
        return 4;
    }
    if (k < 0) {
        return 5;
    }
    if (lda < at_least_one(op_a == AS_IS ? m : k)) {
        return 8;
    }
    if (ldb < at_least_one(op_b == AS_IS ? k : n)) {
        return 10;
    }
    if (ldc < at_least_one(m)) {
        return 13;
    }

    if (m == 0 || n == 0) {
        return 0;
    }
    // What is read or written must be somewhere.
    if (alpha == NULL) {
        return 6;
    }
    if (beta == NULL) {
        return 11;
    }
    const bool is_zero = k == 0 || type->equals(alpha, 0);
    if (is_zero && type->equals(beta, 1)) {
        return 0;
    }
    if (a == NULL && !is_zero) {
        return 7;
    }
    if (b == NULL && !is_zero) {
        return 9;
    }
    if (c == NULL) {
        return 12;
    }
    // Column by column is row by row of the transposed matrices: C^T = op(B)^T * op(A)^T.
    const struct product product = {
        .type = type, .op_a = op_b, .op_b = op_a, .m = n, .n = m, .k = k, .alpha = alpha,
        .beta = beta, .a = b, .b = a, .c = c, .lda = ldb, .ldb = lda, .ldc = ldc,
    };
    if (is_zero) {
        type->scale(&product);
        return 0;
    }
    pthread_once(&once, start);
    multiply(&product);
    return 0;
}

// Values of the standard's cblas.h.
enum { CblasRowMajor = 101, CblasColMajor = 102 };
enum { CblasNoTrans = 111, CblasTrans = 112, CblasConjTrans = 113 };

static char letter_of(int trans)
{
    switch (trans) {
    case CblasNoTrans:
        return 'N';
    case CblasTrans:
        return 'T';
    case CblasConjTrans:
        return 'C';
    default:
        return '\0';
    }
}

static void cblas_gemm(const struct type *type, int layout, int transa, int transb, int m, int n,
                       int k, const void *alpha, const void *a, int lda, const void *b, int ldb,
                       const void *beta, void *c, int ldc)
{
    const char a_letter = letter_of(transa), b_letter = letter_of(transb);
    int wrong = 0;
    if (layout != CblasRowMajor && layout != CblasColMajor) {
        cblas_xerbla(1, type->cblas_name, "layout %d is neither 101 nor 102\n", layout);
    } else if (a_letter == '\0') {
        cblas_xerbla(2, type->cblas_name, "TransA %d is none of 111, 112, 113\n", transa);
    } else if (b_letter == '\0') {
        cblas_xerbla(3, type->cblas_name, "TransB %d is none of 111, 112, 113\n", transb);
    } else if (layout == CblasColMajor) {
        wrong = gemm(type, a_letter, b_letter, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    } else {
        wrong = gemm(type, b_letter, a_letter, n, m, k, alpha, b, ldb, a, lda, beta, c, ldc);
    }
    if (wrong != 0) {
        RowMajorStrg = layout == CblasRowMajor;
        cblas_xerbla(wrong + 1, type->cblas_name, "%s", "");
        RowMajorStrg = 0;
    }
}

static void fortran_gemm(const struct type *type, const char *transa, const char *transb,
                         const int *m, const int *n, const int *k, const void *alpha,
                         const void *a, const int *lda, const void *b, const int *ldb,
                         const void *beta, void *c, const int *ldc)
{
    const struct {
        const void *at;
        int parameter;
    } read[] = {
        {transa, 1}, {transb, 2}, {m, 3}, {n, 4}, {k, 5}, {lda, 8}, {ldb, 10}, {ldc, 13},
    };
    for (size_t i = 0; i < sizeof read / sizeof read[0]; ++i) {
        if (read[i].at == NULL) {
            xerbla_(type->fortran_name, &read[i].parameter, strlen(type->fortran_name));
            return;
        }
    }
    const int wrong =
        gemm(type, *transa, *transb, *m, *n, *k, alpha, a, *lda, b, *ldb, beta, c, *ldc);
    if (wrong != 0) {
        xerbla_(type->fortran_name, &wrong, strlen(type->fortran_name));
    }
}

// --- The entry points ----------------------------------------------------------------------------

// Fortran passes the lengths of its two strings behind the other arguments; callers clean up after
// themselves, so that a function which takes no notice of them can be called with or without.

static const struct recipe sgemm_recipes[21];

static bool s_equals(const void *element, int number)
{
    return *(const float *)element == (float)number;
}

// One row of C after the other, in pieces whose sums the compiler can keep in registers.
static void sgemm_by_loops(const struct product *p)
{
    enum { PIECE = 16 };
    const float alpha = *(const float *)p->alpha;
    const float beta = *(const float *)p->beta;
    const bool a_by_rows = p->op_a == AS_IS, b_by_rows = p->op_b == AS_IS;
    const ptrdiff_t a_down = a_by_rows ? p->lda : 1, a_across = a_by_rows ? 1 : p->lda;
    const ptrdiff_t b_down = b_by_rows ? p->ldb : 1, b_across = b_by_rows ? 1 : p->ldb;
    for (ptrdiff_t i = 0; i < p->m; ++i) {
        const float *a = (const float *)p->a + i * a_down;
        float *c = (float *)p->c + i * p->ldc;
        for (ptrdiff_t j0 = 0; j0 < p->n; j0 += PIECE) {
            const ptrdiff_t width = p->n - j0 < PIECE ? p->n - j0 : PIECE;
            const float *b = (const float *)p->b + j0 * b_across;
            float sums[PIECE] = {0};
            for (ptrdiff_t l = 0; l < p->k; ++l) {
                for (ptrdiff_t j = 0; j < width; ++j) {
                    sums[j] += a[l * a_across] * b[l * b_down + j * b_across];
                }
            }
            for (ptrdiff_t j = 0; j < width; ++j) {
                c[j0 + j] = beta == 0 ? alpha * sums[j] : alpha * sums[j] + beta * c[j0 + j];
            }
        }
    }
}

static void sgemm_scale(const struct product *p)
{
    const float beta = *(const float *)p->beta;
    for (ptrdiff_t i = 0; i < p->m; ++i) {
        float *c = (float *)p->c + i * p->ldc;
        for (ptrdiff_t j = 0; j < p->n; ++j) {
            c[j] = beta == 0 ? 0 : beta * c[j];
        }
    }
}

static const float s_one = 1;
static const struct type sgemm_type = {
    .fortran_name = "SGEMM ",
    .cblas_name = "cblas_sgemm",
    .size = sizeof(float),
    .is_complex = false,
    .one = &s_one,
    .equals = s_equals,
    .multiply = sgemm_by_loops,
    .scale = sgemm_scale,
    .recipes = sgemm_recipes,
};

void sgemm_(const char *transa, const char *transb, const int *m, const int *n, const int *k,
            const float *alpha, const float *a, const int *lda, const float *b, const int *ldb,
            const float *beta, float *c, const int *ldc)
{
    fortran_gemm(&sgemm_type, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

void cblas_sgemm(int layout, int transa, int transb, int m, int n, int k, float alpha,
                 const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc)
{
    cblas_gemm(&sgemm_type, layout, transa, transb, m, n, k, &alpha, a, lda, b, ldb,
               &beta, c, ldc);
}

static const struct recipe dgemm_recipes[17];

static bool d_equals(const void *element, int number)
{
    return *(const double *)element == (double)number;
}

// One row of C after the other, in pieces whose sums the compiler can keep in registers.
static void dgemm_by_loops(const struct product *p)
{
    enum { PIECE = 16 };
    const double alpha = *(const double *)p->alpha;
    const double beta = *(const double *)p->beta;
    const bool a_by_rows = p->op_a == AS_IS, b_by_rows = p->op_b == AS_IS;
    const ptrdiff_t a_down = a_by_rows ? p->lda : 1, a_across = a_by_rows ? 1 : p->lda;
    const ptrdiff_t b_down = b_by_rows ? p->ldb : 1, b_across = b_by_rows ? 1 : p->ldb;
    for (ptrdiff_t i = 0; i < p->m; ++i) {
        const double *a = (const double *)p->a + i * a_down;
        double *c = (double *)p->c + i * p->ldc;
        for (ptrdiff_t j0 = 0; j0 < p->n; j0 += PIECE) {
            const ptrdiff_t width = p->n - j0 < PIECE ? p->n - j0 : PIECE;
            const double *b = (const double *)p->b + j0 * b_across;
            double sums[PIECE] = {0};
            for (ptrdiff_t l = 0; l < p->k; ++l) {
                for (ptrdiff_t j = 0; j < width; ++j) {
                    sums[j] += a[l * a_across] * b[l * b_down + j * b_across];
                }
            }
            for (ptrdiff_t j = 0; j < width; ++j) {
                c[j0 + j] = beta == 0 ? alpha * sums[j] : alpha * sums[j] + beta * c[j0 + j];
            }
        }
    }
}

static void dgemm_scale(const struct product *p)
{
    const double beta = *(const double *)p->beta;
    for (ptrdiff_t i = 0; i < p->m; ++i) {
        double *c = (double *)p->c + i * p->ldc;
        for (ptrdiff_t j = 0; j < p->n; ++j) {
            c[j] = beta == 0 ? 0 : beta * c[j];
        }
    }
}

static const double d_one = 1;
static const struct type dgemm_type = {
    .fortran_name = "DGEMM ",
    .cblas_name = "cblas_dgemm",
    .size = sizeof(double),
    .is_complex = false,
    .one = &d_one,
    .equals = d_equals,
    .multiply = dgemm_by_loops,
    .scale = dgemm_scale,
    .recipes = dgemm_recipes,
};

void dgemm_(const char *transa, const char *transb, const int *m, const int *n, const int *k,
            const double *alpha, const double *a, const int *lda, const double *b, const int *ldb,
            const double *beta, double *c, const int *ldc)
{
    fortran_gemm(&dgemm_type, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

void cblas_dgemm(int layout, int transa, int transb, int m, int n, int k, double alpha,
                 const double *a, int lda, const double *b, int ldb, double beta, double *c,
                 int ldc)
{
    cblas_gemm(&dgemm_type, layout, transa, transb, m, n, k, &alpha, a, lda, b, ldb,
               &beta, c, ldc);
}

static const struct recipe cgemm_recipes[10];

static bool c_equals(const void *element, int number)
{
    return *(const float complex *)element == (float)number;
}

// One row of C after the other, in pieces whose sums the compiler can keep in registers.
static void cgemm_by_loops(const struct product *p)
{
    enum { PIECE = 16 };
    const float complex alpha = *(const float complex *)p->alpha;
    const float complex beta = *(const float complex *)p->beta;
    const bool a_by_rows = p->op_a == AS_IS, b_by_rows = p->op_b == AS_IS;
    const ptrdiff_t a_down = a_by_rows ? p->lda : 1, a_across = a_by_rows ? 1 : p->lda;
    const ptrdiff_t b_down = b_by_rows ? p->ldb : 1, b_across = b_by_rows ? 1 : p->ldb;
    for (ptrdiff_t i = 0; i < p->m; ++i) {
        const float complex *a = (const float complex *)p->a + i * a_down;
        float complex *c = (float complex *)p->c + i * p->ldc;
        for (ptrdiff_t j0 = 0; j0 < p->n; j0 += PIECE) {
            const ptrdiff_t width = p->n - j0 < PIECE ? p->n - j0 : PIECE;
            const float complex *b = (const float complex *)p->b + j0 * b_across;
            float complex sums[PIECE] = {0};
            for (ptrdiff_t l = 0; l < p->k; ++l) {
                const float complex given = a[l * a_across];
                const float complex left = p->op_a == CONJUGATED ? conjf(given) : given;
                for (ptrdiff_t j = 0; j < width; ++j) {
                    const float complex right = b[l * b_down + j * b_across];
                    sums[j] += left * (p->op_b == CONJUGATED ? conjf(right) : right);
                }
            }
            for (ptrdiff_t j = 0; j < width; ++j) {
                c[j0 + j] = beta == 0 ? alpha * sums[j] : alpha * sums[j] + beta * c[j0 + j];
            }
        }
    }
}

static void cgemm_scale(const struct product *p)
{
    const float complex beta = *(const float complex *)p->beta;
    for (ptrdiff_t i = 0; i < p->m; ++i) {
        float complex *c = (float complex *)p->c + i * p->ldc;
        for (ptrdiff_t j = 0; j < p->n; ++j) {
            c[j] = beta == 0 ? 0 : beta * c[j];
        }
    }
}

static const float complex c_one = 1;
static const struct type cgemm_type = {
    .fortran_name = "CGEMM ",
    .cblas_name = "cblas_cgemm",
    .size = sizeof(float complex),
    .is_complex = true,
    .one = &c_one,
    .equals = c_equals,
    .multiply = cgemm_by_loops,
    .scale = cgemm_scale,
    .recipes = cgemm_recipes,
};

void cgemm_(const char *transa, const char *transb, const int *m, const int *n, const int *k,
            const float complex *alpha, const float complex *a, const int *lda,
            const float complex *b, const int *ldb, const float complex *beta, float complex *c,
            const int *ldc)
{
    fortran_gemm(&cgemm_type, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

void cblas_cgemm(int layout, int transa, int transb, int m, int n, int k, const void *alpha,
                 const void *a, int lda, const void *b, int ldb, const void *beta, void *c, int ldc)
{
    cblas_gemm(&cgemm_type, layout, transa, transb, m, n, k, alpha, a, lda, b, ldb,
               beta, c, ldc);
}

static const struct recipe zgemm_recipes[10];

static bool z_equals(const void *element, int number)
{
    return *(const double complex *)element == (double)number;
}

// One row of C after the other, in pieces whose sums the compiler can keep in registers.
static void zgemm_by_loops(const struct product *p)
{
    enum { PIECE = 16 };
    const double complex alpha = *(const double complex *)p->alpha;
    const double complex beta = *(const double complex *)p->beta;
    const bool a_by_rows = p->op_a == AS_IS, b_by_rows = p->op_b == AS_IS;
    const ptrdiff_t a_down = a_by_rows ? p->lda : 1, a_across = a_by_rows ? 1 : p->lda;
    const ptrdiff_t b_down = b_by_rows ? p->ldb : 1, b_across = b_by_rows ? 1 : p->ldb;
    for (ptrdiff_t i = 0; i < p->m; ++i) {
        const double complex *a = (const double complex *)p->a + i * a_down;
        double complex *c = (double complex *)p->c + i * p->ldc;
        for (ptrdiff_t j0 = 0; j0 < p->n; j0 += PIECE) {
            const ptrdiff_t width = p->n - j0 < PIECE ? p->n - j0 : PIECE;
            const double complex *b = (const double complex *)p->b + j0 * b_across;
            double complex sums[PIECE] = {0};
            for (ptrdiff_t l = 0; l < p->k; ++l) {
                const double complex given = a[l * a_across];
                const double complex left = p->op_a == CONJUGATED ? conj(given) : given;
                for (ptrdiff_t j = 0; j < width; ++j) {
                    const double complex right = b[l * b_down + j * b_across];
                    sums[j] += left * (p->op_b == CONJUGATED ? conj(right) : right);
                }
            }
            for (ptrdiff_t j = 0; j < width; ++j) {
                c[j0 + j] = beta == 0 ? alpha * sums[j] : alpha * sums[j] + beta * c[j0 + j];
            }
        }
    }
}

static void zgemm_scale(const struct product *p)
{
    const double complex beta = *(const double complex *)p->beta;
    for (ptrdiff_t i = 0; i < p->m; ++i) {
        double complex *c = (double complex *)p->c + i * p->ldc;
        for (ptrdiff_t j = 0; j < p->n; ++j) {
            c[j] = beta == 0 ? 0 : beta * c[j];
        }
    }
}

static const double complex z_one = 1;
static const struct type zgemm_type = {
    .fortran_name = "ZGEMM ",
    .cblas_name = "cblas_zgemm",
    .size = sizeof(double complex),
    .is_complex = true,
    .one = &z_one,
    .equals = z_equals,
    .multiply = zgemm_by_loops,
    .scale = zgemm_scale,
    .recipes = zgemm_recipes,
};

void zgemm_(const char *transa, const char *transb, const int *m, const int *n, const int *k,
            const double complex *alpha, const double complex *a, const int *lda,
            const double complex *b, const int *ldb, const double complex *beta, double complex *c,
            const int *ldc)
{
    fortran_gemm(&zgemm_type, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

void cblas_zgemm(int layout, int transa, int transb, int m, int n, int k, const void *alpha,
                 const void *a, int lda, const void *b, int ldb, const void *beta, void *c, int ldc)
{
    cblas_gemm(&zgemm_type, layout, transa, transb, m, n, k, alpha, a, lda, b, ldb,
               beta, c, ldc);
}

// --- The kernels ---------------------------------------------------------------------------------

// As gemmgen emits them. In their names n says that a matrix lies row by row, t column by
// column, c the same with its elements conjugated: A's letter, then B's.

static struct kernel sgemm_nn_cpu_6x64_copied = {
    .name = "sgemm_nn_cpu_6x64_copied",
    .options = "-cl-std=CL1.2",
    .extensions = "",
    .local_bytes = 0,
    .vector_bytes = 64,
    .device = CPU,
    .sub_group = 0,
    .group_rows = 1,
    .group_columns = 1,
    .block_rows = 1032,
    .block_columns = 256,
    .groups_down = 2,
    .groups_across = 1,
    .text =
        "// sgemm_nn_cpu_6x64_copied: C = alpha * A * B + beta * C; float32\n"
        "//\n"
        "// Schedule   6x64 of C at a time, in vectors of 16, up to 86x4 of those per work-item, one after\n"
        "//            the other, groups in multiples of 2x1, 512 along K at a time\n"
        "// A          buffer, loads of single elements\n"
        "// B          buffer, loads of 16 elements, through a copy of a block in private memory\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {1, 1}, global size {(n + 255) / 256, (m + 1031) / 1032 * 2}\n"
        "// Needs      524,288 bytes of private memory for each work-item, beside its registers\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "__attribute__((reqd_work_group_size(1, 1, 1)))\n"
        "__kernel void sgemm_nn_cpu_6x64_copied(int m, int n, int k, float alpha,\n"
        "                                       __global const float *restrict a, int lda,\n"
        "                                       __global const float *restrict b, int ldb, float beta,\n"
        "                                       __global float *restrict c, int ldc)\n"
        "{\n"
        "    const int blocks_down = (m + 1031) / 1032 * 2;\n"
        "    const int blocks_across = (n + 255) / 256;\n"
        "    const int rows_each = ((m + 5) / 6 + blocks_down - 1) / blocks_down * 6;\n"
        "    const int row_begin = min(m, (int)get_group_id(1) * rows_each);\n"
        "    const int row_end = min(m, row_begin + rows_each);\n"
        "    const int cols_each = ((n + 63) / 64 + blocks_across - 1) / blocks_across * 64;\n"
        "    const int col_begin = min(n, (int)get_group_id(0) * cols_each);\n"
        "    const int col_end = min(n, col_begin + cols_each);\n"
        "\n"
        "    float16 b_block[4][512][4];\n"
        "    for (int k_block = 0; k_block < (0 < k ? k : 1); k_block += 512) {\n"
        "        const int k_depth = min(512, k - k_block);\n"
        "\n"
        "        // A block of B, up to 512 deep, in the order that it is read in.\n"
        "        for (int k0 = 0; k0 < k_depth; ++k0) {\n"
        "            for (int col0 = col_begin; col0 < col_end; col0 += 64) {\n"
        "                const int panel = (col0 - col_begin) / 64;\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 4; ++j) {\n"
        "                    if (col0 + j * 16 + 16 <= n) {\n"
        "                        b_block[panel][k0][j] =\n"
        "                            vload16(0, &b[(k_block + k0) * ldb + col0 + j * 16]);\n"
        "                    } else {\n"
        "                        for (int e = 0; e < 16; ++e) {\n"
        "                            ((float *)b_block[panel][k0])[j * 16 + e] =\n"
        "                                b[(k_block + k0) * ldb + min(col0 + j * 16 + e, n - 1)];\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "\n"
        "        // Sums wait in C from one block of K to the next.\n"
        "        const float beta_now = k_block == 0 ? beta : 1.0f;\n"
        "        for (int col0 = col_begin; col0 < col_end; col0 += 64) {\n"
        "            const int panel = (col0 - col_begin) / 64;\n"
        "            for (int row0 = row_begin; row0 < row_end; row0 += 6) {\n"
        "                float16 acc[6][4];\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 6; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 4; ++j) {\n"
        "                        acc[i][j] = 0.0f;\n"
        "                    }\n"
        "                }\n"
        "                __global const float *a_rows[6];\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 6; ++i) {\n"
        "                    a_rows[i] = &a[min(row0 + i, m - 1) * lda + k_block];\n"
        "                }\n"
        "                for (int k0 = 0; k0 < k_depth; ++k0) {\n"
        "                    float16 b_frag[4];\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 4; ++j) {\n"
        "                        b_frag[j] = b_block[panel][k0][j];\n"
        "                    }\n"
        "                    float a_frag[6];\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        a_frag[i] = a_rows[i][k0];\n"
        "                    }\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        #pragma unroll\n"
        "                        for (int j = 0; j < 4; ++j) {\n"
        "                            acc[i][j] = fma((float16)(a_frag[i]), b_frag[j], acc[i][j]);\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "\n"
        "                // C = alpha * A * B + beta * C; C is not read where beta is zero.\n"
        "                if (row0 + 6 <= m && col0 + 64 <= n) {\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        #pragma unroll\n"
        "                        for (int j = 0; j < 4; ++j) {\n"
        "                            float16 c_values = alpha * acc[i][j];\n"
        "                            if (beta_now != 0.0f) {\n"
        "                                float16 c_old = vload16(0, &c[(row0 + i) * ldc + col0 + j * 16]);\n"
        "                                c_values = fma((float16)(beta_now), c_old, c_values);\n"
        "                            }\n"
        "                            vstore16(c_values, 0, &c[(row0 + i) * ldc + col0 + j * 16]);\n"
        "                        }\n"
        "                    }\n"
        "                } else {\n"
        "                    // At the edge of C, element by element.\n"
        "                    float c_part[6][64];\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        #pragma unroll\n"
        "                        for (int j = 0; j < 4; ++j) {\n"
        "                            vstore16(acc[i][j], 0, &c_part[i][j * 16]);\n"
        "                        }\n"
        "                    }\n"
        "                    for (int i = 0; i < min(6, m - row0); ++i) {\n"
        "                        for (int j = 0; j < min(64, n - col0); ++j) {\n"
        "                            c[(row0 + i) * ldc + col0 + j] =\n"
        "                                beta_now == 0.0f ? alpha * c_part[i][j]\n"
        "                                                 : fma(beta_now, c[(row0 + i) * ldc + col0 + j],\n"
        "                                                     alpha * c_part[i][j]);\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n",
};

static struct kernel sgemm_nt_cpu_6x64_copied = {
    .name = "sgemm_nt_cpu_6x64_copied",
    .options = "-cl-std=CL1.2",
    .extensions = "",
    .local_bytes = 0,
    .vector_bytes = 64,
    .device = CPU,
    .sub_group = 0,
    .group_rows = 1,
    .group_columns = 1,
    .block_rows = 1032,
    .block_columns = 256,
    .groups_down = 2,
    .groups_across = 1,
    .text =
        "// sgemm_nt_cpu_6x64_copied: C = alpha * A * B + beta * C; float32; B col-major\n"
        "//\n"
        "// Schedule   6x64 of C at a time, in vectors of 16, up to 86x4 of those per work-item, one after\n"
        "//            the other, groups in multiples of 2x1, 512 along K at a time\n"
        "// A          buffer, loads of single elements\n"
        "// B          buffer, loads of single elements, through a copy of a block in private memory\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {1, 1}, global size {(n + 255) / 256, (m + 1031) / 1032 * 2}\n"
        "// Needs      524,288 bytes of private memory for each work-item, beside its registers\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "__attribute__((reqd_work_group_size(1, 1, 1)))\n"
        "__kernel void sgemm_nt_cpu_6x64_copied(int m, int n, int k, float alpha,\n"
        "                                       __global const float *restrict a, int lda,\n"
        "                                       __global const float *restrict b, int ldb, float beta,\n"
        "                                       __global float *restrict c, int ldc)\n"
        "{\n"
        "    const int blocks_down = (m + 1031) / 1032 * 2;\n"
        "    const int blocks_across = (n + 255) / 256;\n"
        "    const int rows_each = ((m + 5) / 6 + blocks_down - 1) / blocks_down * 6;\n"
        "    const int row_begin = min(m, (int)get_group_id(1) * rows_each);\n"
        "    const int row_end = min(m, row_begin + rows_each);\n"
        "    const int cols_each = ((n + 63) / 64 + blocks_across - 1) / blocks_across * 64;\n"
        "    const int col_begin = min(n, (int)get_group_id(0) * cols_each);\n"
        "    const int col_end = min(n, col_begin + cols_each);\n"
        "\n"
        "    float16 b_block[4][512][4];\n"
        "    for (int k_block = 0; k_block < (0 < k ? k : 1); k_block += 512) {\n"
        "        const int k_depth = min(512, k - k_block);\n"
        "\n"
        "        // A block of B, up to 512 deep, in the order that it is read in.\n"
        "        for (int col0 = col_begin; col0 < col_end; col0 += 64) {\n"
        "            const int panel = (col0 - col_begin) / 64;\n"
        "            for (int j = 0; j < 64; ++j) {\n"
        "                for (int k0 = 0; k0 < k_depth; ++k0) {\n"
        "                    ((float *)b_block[panel][k0])[j] = b[min(col0 + j, n - 1) * ldb + k_block + k0];\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "\n"
        "        // Sums wait in C from one block of K to the next.\n"
        "        const float beta_now = k_block == 0 ? beta : 1.0f;\n"
        "        for (int col0 = col_begin; col0 < col_end; col0 += 64) {\n"
        "            const int panel = (col0 - col_begin) / 64;\n"
        "            for (int row0 = row_begin; row0 < row_end; row0 += 6) {\n"
        "                float16 acc[6][4];\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 6; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 4; ++j) {\n"
        "                        acc[i][j] = 0.0f;\n"
        "                    }\n"
        "                }\n"
        "                __global const float *a_rows[6];\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 6; ++i) {\n"
        "                    a_rows[i] = &a[min(row0 + i, m - 1) * lda + k_block];\n"
        "                }\n"
        "                for (int k0 = 0; k0 < k_depth; ++k0) {\n"
        "                    float16 b_frag[4];\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 4; ++j) {\n"
        "                        b_frag[j] = b_block[panel][k0][j];\n"
        "                    }\n"
        "                    float a_frag[6];\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        a_frag[i] = a_rows[i][k0];\n"
        "                    }\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        #pragma unroll\n"
        "                        for (int j = 0; j < 4; ++j) {\n"
        "                            acc[i][j] = fma((float16)(a_frag[i]), b_frag[j], acc[i][j]);\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "\n"
        "                // C = alpha * A * B + beta * C; C is not read where beta is zero.\n"
        "                if (row0 + 6 <= m && col0 + 64 <= n) {\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        #pragma unroll\n"
        "                        for (int j = 0; j < 4; ++j) {\n"
        "                            float16 c_values = alpha * acc[i][j];\n"
        "                            if (beta_now != 0.0f) {\n"
        "                                float16 c_old = vload16(0, &c[(row0 + i) * ldc + col0 + j * 16]);\n"
        "                                c_values = fma((float16)(beta_now), c_old, c_values);\n"
        "                            }\n"
        "                            vstore16(c_values, 0, &c[(row0 + i) * ldc + col0 + j * 16]);\n"
        "                        }\n"
        "                    }\n"
        "                } else {\n"
        "                    // At the edge of C, element by element.\n"
        "                    float c_part[6][64];\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        #pragma unroll\n"
        "                        for (int j = 0; j < 4; ++j) {\n"
        "                            vstore16(acc[i][j], 0, &c_part[i][j * 16]);\n"
        "                        }\n"
        "                    }\n"
        "                    for (int i = 0; i < min(6, m - row0); ++i) {\n"
        "                        for (int j = 0; j < min(64, n - col0); ++j) {\n"
        "                            c[(row0 + i) * ldc + col0 + j] =\n"
        "                                beta_now == 0.0f ? alpha * c_part[i][j]\n"
        "                                                 : fma(beta_now, c[(row0 + i) * ldc + col0 + j],\n"
        "                                                     alpha * c_part[i][j]);\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n",
};

static struct kernel sgemm_tn_cpu_6x64_copied = {
    .name = "sgemm_tn_cpu_6x64_copied",
    .options = "-cl-std=CL1.2",
    .extensions = "",
    .local_bytes = 0,
    .vector_bytes = 64,
    .device = CPU,
    .sub_group = 0,
    .group_rows = 1,
    .group_columns = 1,
    .block_rows = 1032,
    .block_columns = 256,
    .groups_down = 2,
    .groups_across = 1,
    .text =
        "// sgemm_tn_cpu_6x64_copied: C = alpha * A * B + beta * C; float32; A col-major\n"
        "//\n"
        "// Schedule   6x64 of C at a time, in vectors of 16, up to 86x4 of those per work-item, one after\n"
        "//            the other, groups in multiples of 2x1, 512 along K at a time\n"
        "// A          buffer, loads of single elements\n"
        "// B          buffer, loads of 16 elements, through a copy of a block in private memory\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {1, 1}, global size {(n + 255) / 256, (m + 1031) / 1032 * 2}\n"
        "// Needs      524,288 bytes of private memory for each work-item, beside its registers\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "__attribute__((reqd_work_group_size(1, 1, 1)))\n"
        "__kernel void sgemm_tn_cpu_6x64_copied(int m, int n, int k, float alpha,\n"
        "                                       __global const float *restrict a, int lda,\n"
        "                                       __global const float *restrict b, int ldb, float beta,\n"
        "                                       __global float *restrict c, int ldc)\n"
        "{\n"
        "    const int blocks_down = (m + 1031) / 1032 * 2;\n"
        "    const int blocks_across = (n + 255) / 256;\n"
        "    const int rows_each = ((m + 5) / 6 + blocks_down - 1) / blocks_down * 6;\n"
        "    const int row_begin = min(m, (int)get_group_id(1) * rows_each);\n"
        "    const int row_end = min(m, row_begin + rows_each);\n"
        "    const int cols_each = ((n + 63) / 64 + blocks_across - 1) / blocks_across * 64;\n"
        "    const int col_begin = min(n, (int)get_group_id(0) * cols_each);\n"
        "    const int col_end = min(n, col_begin + cols_each);\n"
        "\n"
        "    float16 b_block[4][512][4];\n"
        "    for (int k_block = 0; k_block < (0 < k ? k : 1); k_block += 512) {\n"
        "        const int k_depth = min(512, k - k_block);\n"
        "\n"
        "        // A block of B, up to 512 deep, in the order that it is read in.\n"
        "        for (int k0 = 0; k0 < k_depth; ++k0) {\n"
        "            for (int col0 = col_begin; col0 < col_end; col0 += 64) {\n"
        "                const int panel = (col0 - col_begin) / 64;\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 4; ++j) {\n"
        "                    if (col0 + j * 16 + 16 <= n) {\n"
        "                        b_block[panel][k0][j] =\n"
        "                            vload16(0, &b[(k_block + k0) * ldb + col0 + j * 16]);\n"
        "                    } else {\n"
        "                        for (int e = 0; e < 16; ++e) {\n"
        "                            ((float *)b_block[panel][k0])[j * 16 + e] =\n"
        "                                b[(k_block + k0) * ldb + min(col0 + j * 16 + e, n - 1)];\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "\n"
        "        // Sums wait in C from one block of K to the next.\n"
        "        const float beta_now = k_block == 0 ? beta : 1.0f;\n"
        "        for (int col0 = col_begin; col0 < col_end; col0 += 64) {\n"
        "            const int panel = (col0 - col_begin) / 64;\n"
        "            for (int row0 = row_begin; row0 < row_end; row0 += 6) {\n"
        "                float16 acc[6][4];\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 6; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 4; ++j) {\n"
        "                        acc[i][j] = 0.0f;\n"
        "                    }\n"
        "                }\n"
        "                for (int k0 = 0; k0 < k_depth; ++k0) {\n"
        "                    float16 b_frag[4];\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 4; ++j) {\n"
        "                        b_frag[j] = b_block[panel][k0][j];\n"
        "                    }\n"
        "                    float a_frag[6];\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        a_frag[i] = a[(k_block + k0) * lda + min(row0 + i, m - 1)];\n"
        "                    }\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        #pragma unroll\n"
        "                        for (int j = 0; j < 4; ++j) {\n"
        "                            acc[i][j] = fma((float16)(a_frag[i]), b_frag[j], acc[i][j]);\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "\n"
        "                // C = alpha * A * B + beta * C; C is not read where beta is zero.\n"
        "                if (row0 + 6 <= m && col0 + 64 <= n) {\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        #pragma unroll\n"
        "                        for (int j = 0; j < 4; ++j) {\n"
        "                            float16 c_values = alpha * acc[i][j];\n"
        "                            if (beta_now != 0.0f) {\n"
        "                                float16 c_old = vload16(0, &c[(row0 + i) * ldc + col0 + j * 16]);\n"
        "                                c_values = fma((float16)(beta_now), c_old, c_values);\n"
        "                            }\n"
        "                            vstore16(c_values, 0, &c[(row0 + i) * ldc + col0 + j * 16]);\n"
        "                        }\n"
        "                    }\n"
        "                } else {\n"
        "                    // At the edge of C, element by element.\n"
        "                    float c_part[6][64];\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        #pragma unroll\n"
        "                        for (int j = 0; j < 4; ++j) {\n"
        "                            vstore16(acc[i][j], 0, &c_part[i][j * 16]);\n"
        "                        }\n"
        "                    }\n"
        "                    for (int i = 0; i < min(6, m - row0); ++i) {\n"
        "                        for (int j = 0; j < min(64, n - col0); ++j) {\n"
        "                            c[(row0 + i) * ldc + col0 + j] =\n"
        "                                beta_now == 0.0f ? alpha * c_part[i][j]\n"
        "                                                 : fma(beta_now, c[(row0 + i) * ldc + col0 + j],\n"
        "                                                     alpha * c_part[i][j]);\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n",
};

static struct kernel sgemm_tt_cpu_6x64_copied = {
    .name = "sgemm_tt_cpu_6x64_copied",
    .options = "-cl-std=CL1.2",
    .extensions = "",
    .local_bytes = 0,
    .vector_bytes = 64,
    .device = CPU,
    .sub_group = 0,
    .group_rows = 1,
    .group_columns = 1,
    .block_rows = 1032,
    .block_columns = 256,
    .groups_down = 2,
    .groups_across = 1,
    .text =
        "// sgemm_tt_cpu_6x64_copied: C = alpha * A * B + beta * C; float32; A col-major, B col-major\n"
        "//\n"
        "// Schedule   6x64 of C at a time, in vectors of 16, up to 86x4 of those per work-item, one after\n"
        "//            the other, groups in multiples of 2x1, 512 along K at a time\n"
        "// A          buffer, loads of single elements\n"
        "// B          buffer, loads of single elements, through a copy of a block in private memory\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {1, 1}, global size {(n + 255) / 256, (m + 1031) / 1032 * 2}\n"
        "// Needs      524,288 bytes of private memory for each work-item, beside its registers\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "__attribute__((reqd_work_group_size(1, 1, 1)))\n"
        "__kernel void sgemm_tt_cpu_6x64_copied(int m, int n, int k, float alpha,\n"
        "                                       __global const float *restrict a, int lda,\n"
        "                                       __global const float *restrict b, int ldb, float beta,\n"
        "                                       __global float *restrict c, int ldc)\n"
        "{\n"
        "    const int blocks_down = (m + 1031) / 1032 * 2;\n"
        "    const int blocks_across = (n + 255) / 256;\n"
        "    const int rows_each = ((m + 5) / 6 + blocks_down - 1) / blocks_down * 6;\n"
        "    const int row_begin = min(m, (int)get_group_id(1) * rows_each);\n"
        "    const int row_end = min(m, row_begin + rows_each);\n"
        "    const int cols_each = ((n + 63) / 64 + blocks_across - 1) / blocks_across * 64;\n"
        "    const int col_begin = min(n, (int)get_group_id(0) * cols_each);\n"
        "    const int col_end = min(n, col_begin + cols_each);\n"
        "\n"
        "    float16 b_block[4][512][4];\n"
        "    for (int k_block = 0; k_block < (0 < k ? k : 1); k_block += 512) {\n"
        "        const int k_depth = min(512, k - k_block);\n"
        "\n"
        "        // A block of B, up to 512 deep, in the order that it is read in.\n"
        "        for (int col0 = col_begin; col0 < col_end; col0 += 64) {\n"
        "            const int panel = (col0 - col_begin) / 64;\n"
        "            for (int j = 0; j < 64; ++j) {\n"
        "                for (int k0 = 0; k0 < k_depth; ++k0) {\n"
        "                    ((float *)b_block[panel][k0])[j] = b[min(col0 + j, n - 1) * ldb + k_block + k0];\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "\n"
        "        // Sums wait in C from one block of K to the next.\n"
        "        const float beta_now = k_block == 0 ? beta : 1.0f;\n"
        "        for (int col0 = col_begin; col0 < col_end; col0 += 64) {\n"
        "            const int panel = (col0 - col_begin) / 64;\n"
        "            for (int row0 = row_begin; row0 < row_end; row0 += 6) {\n"
        "                float16 acc[6][4];\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 6; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 4; ++j) {\n"
        "                        acc[i][j] = 0.0f;\n"
        "                    }\n"
        "                }\n"
        "                for (int k0 = 0; k0 < k_depth; ++k0) {\n"
        "                    float16 b_frag[4];\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 4; ++j) {\n"
        "                        b_frag[j] = b_block[panel][k0][j];\n"
        "                    }\n"
        "                    float a_frag[6];\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        a_frag[i] = a[(k_block + k0) * lda + min(row0 + i, m - 1)];\n"
        "                    }\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        #pragma unroll\n"
        "                        for (int j = 0; j < 4; ++j) {\n"
        "                            acc[i][j] = fma((float16)(a_frag[i]), b_frag[j], acc[i][j]);\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "\n"
        "                // C = alpha * A * B + beta * C; C is not read where beta is zero.\n"
        "                if (row0 + 6 <= m && col0 + 64 <= n) {\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        #pragma unroll\n"
        "                        for (int j = 0; j < 4; ++j) {\n"
        "                            float16 c_values = alpha * acc[i][j];\n"
        "                            if (beta_now != 0.0f) {\n"
        "                                float16 c_old = vload16(0, &c[(row0 + i) * ldc + col0 + j * 16]);\n"
        "                                c_values = fma((float16)(beta_now), c_old, c_values);\n"
        "                            }\n"
        "                            vstore16(c_values, 0, &c[(row0 + i) * ldc + col0 + j * 16]);\n"
        "                        }\n"
        "                    }\n"
        "                } else {\n"
        "                    // At the edge of C, element by element.\n"
        "                    float c_part[6][64];\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        #pragma unroll\n"
        "                        for (int j = 0; j < 4; ++j) {\n"
        "                            vstore16(acc[i][j], 0, &c_part[i][j * 16]);\n"
        "                        }\n"
        "                    }\n"
        "                    for (int i = 0; i < min(6, m - row0); ++i) {\n"
        "                        for (int j = 0; j < min(64, n - col0); ++j) {\n"
        "                            c[(row0 + i) * ldc + col0 + j] =\n"
        "                                beta_now == 0.0f ? alpha * c_part[i][j]\n"
        "                                                 : fma(beta_now, c[(row0 + i) * ldc + col0 + j],\n"
        "                                                     alpha * c_part[i][j]);\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n",
};

static struct kernel sgemm_nn_cpu_6x16_v8_copied = {
    .name = "sgemm_nn_cpu_6x16_v8_copied",
    .options = "-cl-std=CL1.2",
    .extensions = "",
    .local_bytes = 0,
    .vector_bytes = 32,
    .device = CPU,
    .sub_group = 0,
    .group_rows = 1,
    .group_columns = 1,
    .block_rows = 1032,
    .block_columns = 256,
    .groups_down = 2,
    .groups_across = 1,
    .text =
        "// sgemm_nn_cpu_6x16_v8_copied: C = alpha * A * B + beta * C; float32\n"
        "//\n"
        "// Schedule   6x16 of C at a time, in vectors of 8, up to 86x16 of those per work-item, one after\n"
        "//            the other, groups in multiples of 2x1, 384 along K at a time\n"
        "// A          buffer, loads of single elements\n"
        "// B          buffer, loads of 8 elements, through a copy of a block in private memory\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {1, 1}, global size {(n + 255) / 256, (m + 1031) / 1032 * 2}\n"
        "// Needs      393,216 bytes of private memory for each work-item, beside its registers\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "__attribute__((reqd_work_group_size(1, 1, 1)))\n"
        "__kernel void sgemm_nn_cpu_6x16_v8_copied(int m, int n, int k, float alpha,\n"
        "                                          __global const float *restrict a, int lda,\n"
        "                                          __global const float *restrict b, int ldb, float beta,\n"
        "                                          __global float *restrict c, int ldc)\n"
        "{\n"
        "    const int blocks_down = (m + 1031) / 1032 * 2;\n"
        "    const int blocks_across = (n + 255) / 256;\n"
        "    const int rows_each = ((m + 5) / 6 + blocks_down - 1) / blocks_down * 6;\n"
        "    const int row_begin = min(m, (int)get_group_id(1) * rows_each);\n"
        "    const int row_end = min(m, row_begin + rows_each);\n"
        "    const int cols_each = ((n + 15) / 16 + blocks_across - 1) / blocks_across * 16;\n"
        "    const int col_begin = min(n, (int)get_group_id(0) * cols_each);\n"
        "    const int col_end = min(n, col_begin + cols_each);\n"
        "\n"
        "    float8 b_block[16][384][2];\n"
        "    for (int k_block = 0; k_block < (0 < k ? k : 1); k_block += 384) {\n"
        "        const int k_depth = min(384, k - k_block);\n"
        "\n"
        "        // A block of B, up to 384 deep, in the order that it is read in.\n"
        "        for (int k0 = 0; k0 < k_depth; ++k0) {\n"
        "            for (int col0 = col_begin; col0 < col_end; col0 += 16) {\n"
        "                const int panel = (col0 - col_begin) / 16;\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 2; ++j) {\n"
        "                    if (col0 + j * 8 + 8 <= n) {\n"
        "                        b_block[panel][k0][j] = vload8(0, &b[(k_block + k0) * ldb + col0 + j * 8]);\n"
        "                    } else {\n"
        "                        for (int e = 0; e < 8; ++e) {\n"
        "                            ((float *)b_block[panel][k0])[j * 8 + e] =\n"
        "                                b[(k_block + k0) * ldb + min(col0 + j * 8 + e, n - 1)];\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "\n"
        "        // Sums wait in C from one block of K to the next.\n"
        "        const float beta_now = k_block == 0 ? beta : 1.0f;\n"
        "        for (int col0 = col_begin; col0 < col_end; col0 += 16) {\n"
        "            const int panel = (col0 - col_begin) / 16;\n"
        "            for (int row0 = row_begin; row0 < row_end; row0 += 6) {\n"
        "                float8 acc[6][2];\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 6; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 2; ++j) {\n"
        "                        acc[i][j] = 0.0f;\n"
        "                    }\n"
        "                }\n"
        "                __global const float *a_rows[6];\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 6; ++i) {\n"
        "                    a_rows[i] = &a[min(row0 + i, m - 1) * lda + k_block];\n"
        "                }\n"
        "                for (int k0 = 0; k0 < k_depth; ++k0) {\n"
        "                    float8 b_frag[2];\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 2; ++j) {\n"
        "                        b_frag[j] = b_block[panel][k0][j];\n"
        "                    }\n"
        "                    float a_frag[6];\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        a_frag[i] = a_rows[i][k0];\n"
        "                    }\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        #pragma unroll\n"
        "                        for (int j = 0; j < 2; ++j) {\n"
        "                            acc[i][j] = fma((float8)(a_frag[i]), b_frag[j], acc[i][j]);\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "\n"
        "                // C = alpha * A * B + beta * C; C is not read where beta is zero.\n"
        "                if (row0 + 6 <= m && col0 + 16 <= n) {\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        #pragma unroll\n"
        "                        for (int j = 0; j < 2; ++j) {\n"
        "                            float8 c_values = alpha * acc[i][j];\n"
        "                            if (beta_now != 0.0f) {\n"
        "                                float8 c_old = vload8(0, &c[(row0 + i) * ldc + col0 + j * 8]);\n"
        "                                c_values = fma((float8)(beta_now), c_old, c_values);\n"
        "                            }\n"
        "                            vstore8(c_values, 0, &c[(row0 + i) * ldc + col0 + j * 8]);\n"
        "                        }\n"
        "                    }\n"
        "                } else {\n"
        "                    // At the edge of C, element by element.\n"
        "                    float c_part[6][16];\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        #pragma unroll\n"
        "                        for (int j = 0; j < 2; ++j) {\n"
        "                            vstore8(acc[i][j], 0, &c_part[i][j * 8]);\n"
        "                        }\n"
        "                    }\n"
        "                    for (int i = 0; i < min(6, m - row0); ++i) {\n"
        "                        for (int j = 0; j < min(16, n - col0); ++j) {\n"
        "                            c[(row0 + i) * ldc + col0 + j] =\n"
        "                                beta_now == 0.0f ? alpha * c_part[i][j]\n"
        "                                                 : fma(beta_now, c[(row0 + i) * ldc + col0 + j],\n"
        "                                                     alpha * c_part[i][j]);\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n",
};

static struct kernel sgemm_nt_cpu_6x16_v8_copied = {
    .name = "sgemm_nt_cpu_6x16_v8_copied",
    .options = "-cl-std=CL1.2",
    .extensions = "",
    .local_bytes = 0,
    .vector_bytes = 32,
    .device = CPU,
    .sub_group = 0,
    .group_rows = 1,
    .group_columns = 1,
    .block_rows = 1032,
    .block_columns = 256,
    .groups_down = 2,
    .groups_across = 1,
    .text =
        "// sgemm_nt_cpu_6x16_v8_copied: C = alpha * A * B + beta * C; float32; B col-major\n"
        "//\n"
        "// Schedule   6x16 of C at a time, in vectors of 8, up to 86x16 of those per work-item, one after\n"
        "//            the other, groups in multiples of 2x1, 384 along K at a time\n"
        "// A          buffer, loads of single elements\n"
        "// B          buffer, loads of single elements, through a copy of a block in private memory\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {1, 1}, global size {(n + 255) / 256, (m + 1031) / 1032 * 2}\n"
        "// Needs      393,216 bytes of private memory for each work-item, beside its registers\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "__attribute__((reqd_work_group_size(1, 1, 1)))\n"
        "__kernel void sgemm_nt_cpu_6x16_v8_copied(int m, int n, int k, float alpha,\n"
        "                                          __global const float *restrict a, int lda,\n"
        "                                          __global const float *restrict b, int ldb, float beta,\n"
        "                                          __global float *restrict c, int ldc)\n"
        "{\n"
        "    const int blocks_down = (m + 1031) / 1032 * 2;\n"
        "    const int blocks_across = (n + 255) / 256;\n"
        "    const int rows_each = ((m + 5) / 6 + blocks_down - 1) / blocks_down * 6;\n"
        "    const int row_begin = min(m, (int)get_group_id(1) * rows_each);\n"
        "    const int row_end = min(m, row_begin + rows_each);\n"
        "    const int cols_each = ((n + 15) / 16 + blocks_across - 1) / blocks_across * 16;\n"
        "    const int col_begin = min(n, (int)get_group_id(0) * cols_each);\n"
        "    const int col_end = min(n, col_begin + cols_each);\n"
        "\n"
        "    float8 b_block[16][384][2];\n"
        "    for (int k_block = 0; k_block < (0 < k ? k : 1); k_block += 384) {\n"
        "        const int k_depth = min(384, k - k_block);\n"
        "\n"
        "        // A block of B, up to 384 deep, in the order that it is read in.\n"
        "        for (int col0 = col_begin; col0 < col_end; col0 += 16) {\n"
        "            const int panel = (col0 - col_begin) / 16;\n"
        "            for (int j = 0; j < 16; ++j) {\n"
        "                for (int k0 = 0; k0 < k_depth; ++k0) {\n"
        "                    ((float *)b_block[panel][k0])[j] = b[min(col0 + j, n - 1) * ldb + k_block + k0];\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "\n"
        "        // Sums wait in C from one block of K to the next.\n"
        "        const float beta_now = k_block == 0 ? beta : 1.0f;\n"
        "        for (int col0 = col_begin; col0 < col_end; col0 += 16) {\n"
        "            const int panel = (col0 - col_begin) / 16;\n"
        "            for (int row0 = row_begin; row0 < row_end; row0 += 6) {\n"
        "                float8 acc[6][2];\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 6; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 2; ++j) {\n"
        "                        acc[i][j] = 0.0f;\n"
        "                    }\n"
        "                }\n"
        "                __global const float *a_rows[6];\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 6; ++i) {\n"
        "                    a_rows[i] = &a[min(row0 + i, m - 1) * lda + k_block];\n"
        "                }\n"
        "                for (int k0 = 0; k0 < k_depth; ++k0) {\n"
        "                    float8 b_frag[2];\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 2; ++j) {\n"
        "                        b_frag[j] = b_block[panel][k0][j];\n"
        "                    }\n"
        "                    float a_frag[6];\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        a_frag[i] = a_rows[i][k0];\n"
        "                    }\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        #pragma unroll\n"
        "                        for (int j = 0; j < 2; ++j) {\n"
        "                            acc[i][j] = fma((float8)(a_frag[i]), b_frag[j], acc[i][j]);\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "\n"
        "                // C = alpha * A * B + beta * C; C is not read where beta is zero.\n"
        "                if (row0 + 6 <= m && col0 + 16 <= n) {\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        #pragma unroll\n"
        "                        for (int j = 0; j < 2; ++j) {\n"
        "                            float8 c_values = alpha * acc[i][j];\n"
        "                            if (beta_now != 0.0f) {\n"
        "                                float8 c_old = vload8(0, &c[(row0 + i) * ldc + col0 + j * 8]);\n"
        "                                c_values = fma((float8)(beta_now), c_old, c_values);\n"
        "                            }\n"
        "                            vstore8(c_values, 0, &c[(row0 + i) * ldc + col0 + j * 8]);\n"
        "                        }\n"
        "                    }\n"
        "                } else {\n"
        "                    // At the edge of C, element by element.\n"
        "                    float c_part[6][16];\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        #pragma unroll\n"
        "                        for (int j = 0; j < 2; ++j) {\n"
        "                            vstore8(acc[i][j], 0, &c_part[i][j * 8]);\n"
        "                        }\n"
        "                    }\n"
        "                    for (int i = 0; i < min(6, m - row0); ++i) {\n"
        "                        for (int j = 0; j < min(16, n - col0); ++j) {\n"
        "                            c[(row0 + i) * ldc + col0 + j] =\n"
        "                                beta_now == 0.0f ? alpha * c_part[i][j]\n"
        "                                                 : fma(beta_now, c[(row0 + i) * ldc + col0 + j],\n"
        "                                                     alpha * c_part[i][j]);\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n",
};

static struct kernel sgemm_tn_cpu_6x16_v8_copied = {
    .name = "sgemm_tn_cpu_6x16_v8_copied",
    .options = "-cl-std=CL1.2",
    .extensions = "",
    .local_bytes = 0,
    .vector_bytes = 32,
    .device = CPU,
    .sub_group = 0,
    .group_rows = 1,
    .group_columns = 1,
    .block_rows = 1032,
    .block_columns = 256,
    .groups_down = 2,
    .groups_across = 1,
    .text =
        "// sgemm_tn_cpu_6x16_v8_copied: C = alpha * A * B + beta * C; float32; A col-major\n"
        "//\n"
        "// Schedule   6x16 of C at a time, in vectors of 8, up to 86x16 of those per work-item, one after\n"
        "//            the other, groups in multiples of 2x1, 384 along K at a time\n"
        "// A          buffer, loads of single elements\n"
        "// B          buffer, loads of 8 elements, through a copy of a block in private memory\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {1, 1}, global size {(n + 255) / 256, (m + 1031) / 1032 * 2}\n"
        "// Needs      393,216 bytes of private memory for each work-item, beside its registers\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "__attribute__((reqd_work_group_size(1, 1, 1)))\n"
        "__kernel void sgemm_tn_cpu_6x16_v8_copied(int m, int n, int k, float alpha,\n"
        "                                          __global const float *restrict a, int lda,\n"
        "                                          __global const float *restrict b, int ldb, float beta,\n"
        "                                          __global float *restrict c, int ldc)\n"
        "{\n"
        "    const int blocks_down = (m + 1031) / 1032 * 2;\n"
        "    const int blocks_across = (n + 255) / 256;\n"
        "    const int rows_each = ((m + 5) / 6 + blocks_down - 1) / blocks_down * 6;\n"
        "    const int row_begin = min(m, (int)get_group_id(1) * rows_each);\n"
        "    const int row_end = min(m, row_begin + rows_each);\n"
        "    const int cols_each = ((n + 15) / 16 + blocks_across - 1) / blocks_across * 16;\n"
        "    const int col_begin = min(n, (int)get_group_id(0) * cols_each);\n"
        "    const int col_end = min(n, col_begin + cols_each);\n"
        "\n"
        "    float8 b_block[16][384][2];\n"
        "    for (int k_block = 0; k_block < (0 < k ? k : 1); k_block += 384) {\n"
        "        const int k_depth = min(384, k - k_block);\n"
        "\n"
        "        // A block of B, up to 384 deep, in the order that it is read in.\n"
        "        for (int k0 = 0; k0 < k_depth; ++k0) {\n"
        "            for (int col0 = col_begin; col0 < col_end; col0 += 16) {\n"
        "                const int panel = (col0 - col_begin) / 16;\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 2; ++j) {\n"
        "                    if (col0 + j * 8 + 8 <= n) {\n"
        "                        b_block[panel][k0][j] = vload8(0, &b[(k_block + k0) * ldb + col0 + j * 8]);\n"
        "                    } else {\n"
        "                        for (int e = 0; e < 8; ++e) {\n"
        "                            ((float *)b_block[panel][k0])[j * 8 + e] =\n"
        "                                b[(k_block + k0) * ldb + min(col0 + j * 8 + e, n - 1)];\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "\n"
        "        // Sums wait in C from one block of K to the next.\n"
        "        const float beta_now = k_block == 0 ? beta : 1.0f;\n"
        "        for (int col0 = col_begin; col0 < col_end; col0 += 16) {\n"
        "            const int panel = (col0 - col_begin) / 16;\n"
        "            for (int row0 = row_begin; row0 < row_end; row0 += 6) {\n"
        "                float8 acc[6][2];\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 6; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 2; ++j) {\n"
        "                        acc[i][j] = 0.0f;\n"
        "                    }\n"
        "                }\n"
        "                for (int k0 = 0; k0 < k_depth; ++k0) {\n"
        "                    float8 b_frag[2];\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 2; ++j) {\n"
        "                        b_frag[j] = b_block[panel][k0][j];\n"
        "                    }\n"
        "                    float a_frag[6];\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        a_frag[i] = a[(k_block + k0) * lda + min(row0 + i, m - 1)];\n"
        "                    }\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        #pragma unroll\n"
        "                        for (int j = 0; j < 2; ++j) {\n"
        "                            acc[i][j] = fma((float8)(a_frag[i]), b_frag[j], acc[i][j]);\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "\n"
        "                // C = alpha * A * B + beta * C; C is not read where beta is zero.\n"
        "                if (row0 + 6 <= m && col0 + 16 <= n) {\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        #pragma unroll\n"
        "                        for (int j = 0; j < 2; ++j) {\n"
        "                            float8 c_values = alpha * acc[i][j];\n"
        "                            if (beta_now != 0.0f) {\n"
        "                                float8 c_old = vload8(0, &c[(row0 + i) * ldc + col0 + j * 8]);\n"
        "                                c_values = fma((float8)(beta_now), c_old, c_values);\n"
        "                            }\n"
        "                            vstore8(c_values, 0, &c[(row0 + i) * ldc + col0 + j * 8]);\n"
        "                        }\n"
        "                    }\n"
        "                } else {\n"
        "                    // At the edge of C, element by element.\n"
        "                    float c_part[6][16];\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        #pragma unroll\n"
        "                        for (int j = 0; j < 2; ++j) {\n"
        "                            vstore8(acc[i][j], 0, &c_part[i][j * 8]);\n"
        "                        }\n"
        "                    }\n"
        "                    for (int i = 0; i < min(6, m - row0); ++i) {\n"
        "                        for (int j = 0; j < min(16, n - col0); ++j) {\n"
        "                            c[(row0 + i) * ldc + col0 + j] =\n"
        "                                beta_now == 0.0f ? alpha * c_part[i][j]\n"
        "                                                 : fma(beta_now, c[(row0 + i) * ldc + col0 + j],\n"
        "                                                     alpha * c_part[i][j]);\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n",
};

static struct kernel sgemm_tt_cpu_6x16_v8_copied = {
    .name = "sgemm_tt_cpu_6x16_v8_copied",
    .options = "-cl-std=CL1.2",
    .extensions = "",
    .local_bytes = 0,
    .vector_bytes = 32,
    .device = CPU,
    .sub_group = 0,
    .group_rows = 1,
    .group_columns = 1,
    .block_rows = 1032,
    .block_columns = 256,
    .groups_down = 2,
    .groups_across = 1,
    .text =
        "// sgemm_tt_cpu_6x16_v8_copied: C = alpha * A * B + beta * C; float32; A col-major, B col-major\n"
        "//\n"
        "// Schedule   6x16 of C at a time, in vectors of 8, up to 86x16 of those per work-item, one after\n"
        "//            the other, groups in multiples of 2x1, 384 along K at a time\n"
        "// A          buffer, loads of single elements\n"
        "// B          buffer, loads of single elements, through a copy of a block in private memory\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {1, 1}, global size {(n + 255) / 256, (m + 1031) / 1032 * 2}\n"
        "// Needs      393,216 bytes of private memory for each work-item, beside its registers\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "__attribute__((reqd_work_group_size(1, 1, 1)))\n"
        "__kernel void sgemm_tt_cpu_6x16_v8_copied(int m, int n, int k, float alpha,\n"
        "                                          __global const float *restrict a, int lda,\n"
        "                                          __global const float *restrict b, int ldb, float beta,\n"
        "                                          __global float *restrict c, int ldc)\n"
        "{\n"
        "    const int blocks_down = (m + 1031) / 1032 * 2;\n"
        "    const int blocks_across = (n + 255) / 256;\n"
        "    const int rows_each = ((m + 5) / 6 + blocks_down - 1) / blocks_down * 6;\n"
        "    const int row_begin = min(m, (int)get_group_id(1) * rows_each);\n"
        "    const int row_end = min(m, row_begin + rows_each);\n"
        "    const int cols_each = ((n + 15) / 16 + blocks_across - 1) / blocks_across * 16;\n"
        "    const int col_begin = min(n, (int)get_group_id(0) * cols_each);\n"
        "    const int col_end = min(n, col_begin + cols_each);\n"
        "\n"
        "    float8 b_block[16][384][2];\n"
        "    for (int k_block = 0; k_block < (0 < k ? k : 1); k_block += 384) {\n"
        "        const int k_depth = min(384, k - k_block);\n"
        "\n"
        "        // A block of B, up to 384 deep, in the order that it is read in.\n"
        "        for (int col0 = col_begin; col0 < col_end; col0 += 16) {\n"
        "            const int panel = (col0 - col_begin) / 16;\n"
        "            for (int j = 0; j < 16; ++j) {\n"
        "                for (int k0 = 0; k0 < k_depth; ++k0) {\n"
        "                    ((float *)b_block[panel][k0])[j] = b[min(col0 + j, n - 1) * ldb + k_block + k0];\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "\n"
        "        // Sums wait in C from one block of K to the next.\n"
        "        const float beta_now = k_block == 0 ? beta : 1.0f;\n"
        "        for (int col0 = col_begin; col0 < col_end; col0 += 16) {\n"
        "            const int panel = (col0 - col_begin) / 16;\n"
        "            for (int row0 = row_begin; row0 < row_end; row0 += 6) {\n"
        "                float8 acc[6][2];\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 6; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 2; ++j) {\n"
        "                        acc[i][j] = 0.0f;\n"
        "                    }\n"
        "                }\n"
        "                for (int k0 = 0; k0 < k_depth; ++k0) {\n"
        "                    float8 b_frag[2];\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 2; ++j) {\n"
        "                        b_frag[j] = b_block[panel][k0][j];\n"
        "                    }\n"
        "                    float a_frag[6];\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        a_frag[i] = a[(k_block + k0) * lda + min(row0 + i, m - 1)];\n"
        "                    }\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        #pragma unroll\n"
        "                        for (int j = 0; j < 2; ++j) {\n"
        "                            acc[i][j] = fma((float8)(a_frag[i]), b_frag[j], acc[i][j]);\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "\n"
        "                // C = alpha * A * B + beta * C; C is not read where beta is zero.\n"
        "                if (row0 + 6 <= m && col0 + 16 <= n) {\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        #pragma unroll\n"
        "                        for (int j = 0; j < 2; ++j) {\n"
        "                            float8 c_values = alpha * acc[i][j];\n"
        "                            if (beta_now != 0.0f) {\n"
        "                                float8 c_old = vload8(0, &c[(row0 + i) * ldc + col0 + j * 8]);\n"
        "                                c_values = fma((float8)(beta_now), c_old, c_values);\n"
        "                            }\n"
        "                            vstore8(c_values, 0, &c[(row0 + i) * ldc + col0 + j * 8]);\n"
        "                        }\n"
        "                    }\n"
        "                } else {\n"
        "                    // At the edge of C, element by element.\n"
        "                    float c_part[6][16];\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        #pragma unroll\n"
        "                        for (int j = 0; j < 2; ++j) {\n"
        "                            vstore8(acc[i][j], 0, &c_part[i][j * 8]);\n"
        "                        }\n"
        "                    }\n"
        "                    for (int i = 0; i < min(6, m - row0); ++i) {\n"
        "                        for (int j = 0; j < min(16, n - col0); ++j) {\n"
        "                            c[(row0 + i) * ldc + col0 + j] =\n"
        "                                beta_now == 0.0f ? alpha * c_part[i][j]\n"
        "                                                 : fma(beta_now, c[(row0 + i) * ldc + col0 + j],\n"
        "                                                     alpha * c_part[i][j]);\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n",
};

static struct kernel sgemm_nn_sg16_block_16x2 = {
    .name = "sgemm_nn_sg16_block_16x2",
    .options = "-cl-std=CL2.0",
    .extensions = "cl_intel_subgroups cl_intel_required_subgroup_size ",
    .local_bytes = 0,
    .vector_bytes = 0,
    .device = ANY,
    .sub_group = 16,
    .group_rows = 1,
    .group_columns = 16,
    .block_rows = 16,
    .block_columns = 32,
    .groups_down = 1,
    .groups_across = 1,
    .text =
        "// sgemm_nn_sg16_block_16x2: C = alpha * A * B + beta * C; float32\n"
        "//\n"
        "// Schedule   16x2 of C per work-item, 1x16 work-items per group (16x32 of C), 16 along K per\n"
        "//            iteration\n"
        "// A          buffer, block reads, passed around the sub-group by shuffles\n"
        "// B          buffer, block reads of 2 segments\n"
        "// Sizes      any m, n, k; A and B span less than 2^29 elements, C 2^31\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {16, 1}, global size {(n + 31) / 32 * 16, (m + 15) / 16}\n"
        "// Needs      cl_intel_subgroups, cl_intel_required_subgroup_size, sub-groups of 16\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL2.0\", ...)\n"
        "\n"
        "// Names of this file alone, so that a program can hold others, too.\n"
        "#define at sgemm_nn_sg16_block_16x2_at\n"
        "#define block_read sgemm_nn_sg16_block_16x2_block_read\n"
        "#define block_read2 sgemm_nn_sg16_block_16x2_block_read2\n"
        "\n"
        "#pragma OPENCL EXTENSION cl_intel_subgroups : enable\n"
        "\n"
        "// So many bytes into a matrix.\n"
        "static inline const __global float *at(const __global float *matrix, int bytes)\n"
        "{\n"
        "    return (const __global float *)((const __global char *)matrix + bytes);\n"
        "}\n"
        "\n"
        "// One element per lane.\n"
        "static inline float block_read(const __global float *from)\n"
        "{\n"
        "    return as_float(intel_sub_group_block_read((const __global uint *)from));\n"
        "}\n"
        "\n"
        "// One element per lane of each of 2 neighbouring segments.\n"
        "static inline float2 block_read2(const __global float *from)\n"
        "{\n"
        "    return as_float2(intel_sub_group_block_read2((const __global uint *)from));\n"
        "}\n"
        "\n"
        "__attribute__((reqd_work_group_size(16, 1, 1)))\n"
        "__attribute__((intel_reqd_sub_group_size(16)))\n"
        "__kernel void sgemm_nn_sg16_block_16x2(int m, int n, int k, float alpha,\n"
        "                                       __global const float *restrict a, int lda,\n"
        "                                       __global const float *restrict b, int ldb, float beta,\n"
        "                                       __global float *restrict c, int ldc)\n"
        "{\n"
        "    const int lane = (int)get_sub_group_local_id();\n"
        "    const int row0 = (int)get_group_id(1) * 16;\n"
        "    const int col0 = (int)get_group_id(0) * 32;\n"
        "    const int col = col0 + lane;\n"
        "    const int k_main = k - k % 16;\n"
        "\n"
        "    float acc[16][2];\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 16; ++i) {\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 2; ++j) {\n"
        "            acc[i][j] = 0.0f;\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // Whole steps of 16 along K.\n"
        "    if (col0 + 32 <= n) {\n"
        "        // Where block reads begin, in bytes, a read or half a read a lane; a step before the first.\n"
        "        int b_at = ((lane - 16) * ldb + col0) * 4;\n"
        "        int a_at = (min(row0 + lane, m - 1) * lda - 16) * 4;\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 16) {\n"
        "            b_at += ldb * 64;\n"
        "            a_at += 64;\n"
        "            float b_frag[16][2];\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 16; ++i) {\n"
        "                vstore2(block_read2(at(b, intel_sub_group_shuffle(b_at, i))), 0, b_frag[i]);\n"
        "            }\n"
        "            float a_frag[16];\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 16; ++i) {\n"
        "                a_frag[i] = block_read(at(a, intel_sub_group_shuffle(a_at, i)));\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 16; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int p = 0; p < 16; ++p) {\n"
        "                    const float a_value = intel_sub_group_shuffle(a_frag[i], p);\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 2; ++j) {\n"
        "                        acc[i][j] = fma(a_value, b_frag[p][j], acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    } else {\n"
        "        // At the edge of the matrix, each lane loads for itself.\n"
        "        // Where those along rows begin in the first step, in bytes, a read a lane.\n"
        "        int a_at = min(row0 + lane, m - 1) * lda * 4;\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 16) {\n"
        "            float b_frag[16][2];\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 16; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int e = 0; e < 2; ++e) {\n"
        "                    b_frag[i][e] = b[(k0 + i) * ldb + min(col0 + e * 16 + lane, n - 1)];\n"
        "                }\n"
        "            }\n"
        "            float a_frag[16];\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 16; ++i) {\n"
        "                a_frag[i] = block_read(at(a + k0, intel_sub_group_shuffle(a_at, i)));\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 16; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int p = 0; p < 16; ++p) {\n"
        "                    const float a_value = intel_sub_group_shuffle(a_frag[i], p);\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 2; ++j) {\n"
        "                        acc[i][j] = fma(a_value, b_frag[p][j], acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "    if (k_main < k) {\n"
        "        // The rest of K; what lies past it counts as zero.\n"
        "        float b_frag[16][2];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 16; ++i) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 2; ++j) {\n"
        "                b_frag[i][j] =\n"
        "                    k_main + i < k ? b[(k_main + i) * ldb + min(col + j * 16, n - 1)] : 0.0f;\n"
        "            }\n"
        "        }\n"
        "        float a_frag[16];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 16; ++i) {\n"
        "            a_frag[i] = k_main + lane < k ? a[min(row0 + i, m - 1) * lda + k_main + lane] : 0.0f;\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 16; ++i) {\n"
        "            #pragma unroll\n"
        "            for (int p = 0; p < 16; ++p) {\n"
        "                const float a_value = intel_sub_group_shuffle(a_frag[i], p);\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 2; ++j) {\n"
        "                    acc[i][j] = fma(a_value, b_frag[p][j], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // C = alpha * A * B + beta * C; C is not read where beta is zero.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 16; ++i) {\n"
        "        if (row0 + i < m) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 2; ++j) {\n"
        "                if (col + j * 16 < n) {\n"
        "                    c[(row0 + i) * ldc + col + j * 16] =\n"
        "                        beta == 0.0f ? alpha * acc[i][j]\n"
        "                                     : fma(beta, c[(row0 + i) * ldc + col + j * 16],\n"
        "                                         alpha * acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n"
        "\n"
        "#undef at\n"
        "#undef block_read\n"
        "#undef block_read2\n",
};

static struct kernel stranspose = {
    .name = "stranspose",
    .options = "-cl-std=CL2.0",
    .extensions = "cl_intel_subgroups cl_intel_required_subgroup_size ",
    .local_bytes = 0,
    .vector_bytes = 0,
    .device = ANY,
    .sub_group = 16,
    .group_rows = 1,
    .group_columns = 16,
    .block_rows = 16,
    .block_columns = 16,
    .groups_down = 1,
    .groups_across = 1,
    .text =
        "// stranspose: B = transpose of A; float32\n"
        "//\n"
        "// Schedule   16x16 of A per sub-group, transposed by 4 rounds of shuffles\n"
        "// Launch     local size {16, 1}, global size {(cols + 15) / 16 * 16, (rows + 15) / 16}\n"
        "// Needs      cl_intel_subgroups, cl_intel_required_subgroup_size, sub-groups of 16\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL2.0\", ...)\n"
        "\n"
        "#pragma OPENCL EXTENSION cl_intel_subgroups : enable\n"
        "\n"
        "__attribute__((reqd_work_group_size(16, 1, 1)))\n"
        "__attribute__((intel_reqd_sub_group_size(16)))\n"
        "__kernel void stranspose(int rows, int cols, __global const float *restrict a, int lda,\n"
        "                         __global float *restrict b, int ldb)\n"
        "{\n"
        "    const int lane = (int)get_sub_group_local_id();\n"
        "    const int row0 = (int)get_group_id(1) * 16;\n"
        "    const int col0 = (int)get_group_id(0) * 16;\n"
        "\n"
        "    float tile[16];\n"
        "\n"
        "    // Each lane reads a column of the block.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 16; ++i) {\n"
        "        tile[i] = a[min(row0 + i, rows - 1) * lda + min(col0 + lane, cols - 1)];\n"
        "    }\n"
        "\n"
        "    // Exchange between lanes that differ in bit 1 of their number.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 8; ++i) {\n"
        "        const int low = i * 2;\n"
        "        const bool is_low = (lane & 1) == 0;\n"
        "        const float received = intel_sub_group_shuffle_xor(is_low ? tile[low + 1] : tile[low], 1);\n"
        "        tile[low] = is_low ? tile[low] : received;\n"
        "        tile[low + 1] = is_low ? received : tile[low + 1];\n"
        "    }\n"
        "\n"
        "    // Exchange between lanes that differ in bit 2 of their number.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 8; ++i) {\n"
        "        const int low = i / 2 * 4 + i % 2;\n"
        "        const bool is_low = (lane & 2) == 0;\n"
        "        const float received = intel_sub_group_shuffle_xor(is_low ? tile[low + 2] : tile[low], 2);\n"
        "        tile[low] = is_low ? tile[low] : received;\n"
        "        tile[low + 2] = is_low ? received : tile[low + 2];\n"
        "    }\n"
        "\n"
        "    // Exchange between lanes that differ in bit 4 of their number.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 8; ++i) {\n"
        "        const int low = i / 4 * 8 + i % 4;\n"
        "        const bool is_low = (lane & 4) == 0;\n"
        "        const float received = intel_sub_group_shuffle_xor(is_low ? tile[low + 4] : tile[low], 4);\n"
        "        tile[low] = is_low ? tile[low] : received;\n"
        "        tile[low + 4] = is_low ? received : tile[low + 4];\n"
        "    }\n"
        "\n"
        "    // Exchange between lanes that differ in bit 8 of their number.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 8; ++i) {\n"
        "        const int low = i / 8 * 16 + i % 8;\n"
        "        const bool is_low = (lane & 8) == 0;\n"
        "        const float received = intel_sub_group_shuffle_xor(is_low ? tile[low + 8] : tile[low], 8);\n"
        "        tile[low] = is_low ? tile[low] : received;\n"
        "        tile[low + 8] = is_low ? received : tile[low + 8];\n"
        "    }\n"
        "\n"
        "    // Each lane now holds a row.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 16; ++i) {\n"
        "        if (col0 + i < cols && row0 + lane < rows) {\n"
        "            b[(col0 + i) * ldb + row0 + lane] = tile[i];\n"
        "        }\n"
        "    }\n"
        "}\n",
};

static struct kernel sgemm_tn_sg16_block_16x2 = {
    .name = "sgemm_tn_sg16_block_16x2",
    .options = "-cl-std=CL2.0",
    .extensions = "cl_intel_subgroups cl_intel_required_subgroup_size ",
    .local_bytes = 0,
    .vector_bytes = 0,
    .device = ANY,
    .sub_group = 16,
    .group_rows = 1,
    .group_columns = 16,
    .block_rows = 16,
    .block_columns = 32,
    .groups_down = 1,
    .groups_across = 1,
    .text =
        "// sgemm_tn_sg16_block_16x2: C = alpha * A * B + beta * C; float32; A col-major\n"
        "//\n"
        "// Schedule   16x2 of C per work-item, 1x16 work-items per group (16x32 of C), 16 along K per\n"
        "//            iteration\n"
        "// A          buffer, block reads, passed around the sub-group by shuffles\n"
        "// B          buffer, block reads of 2 segments\n"
        "// Sizes      any m, n, k; A and B span less than 2^29 elements, C 2^31\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {16, 1}, global size {(n + 31) / 32 * 16, (m + 15) / 16}\n"
        "// Needs      cl_intel_subgroups, cl_intel_required_subgroup_size, sub-groups of 16\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL2.0\", ...)\n"
        "\n"
        "// Names of this file alone, so that a program can hold others, too.\n"
        "#define at sgemm_tn_sg16_block_16x2_at\n"
        "#define block_read sgemm_tn_sg16_block_16x2_block_read\n"
        "#define block_read2 sgemm_tn_sg16_block_16x2_block_read2\n"
        "\n"
        "#pragma OPENCL EXTENSION cl_intel_subgroups : enable\n"
        "\n"
        "// So many bytes into a matrix.\n"
        "static inline const __global float *at(const __global float *matrix, int bytes)\n"
        "{\n"
        "    return (const __global float *)((const __global char *)matrix + bytes);\n"
        "}\n"
        "\n"
        "// One element per lane.\n"
        "static inline float block_read(const __global float *from)\n"
        "{\n"
        "    return as_float(intel_sub_group_block_read((const __global uint *)from));\n"
        "}\n"
        "\n"
        "// One element per lane of each of 2 neighbouring segments.\n"
        "static inline float2 block_read2(const __global float *from)\n"
        "{\n"
        "    return as_float2(intel_sub_group_block_read2((const __global uint *)from));\n"
        "}\n"
        "\n"
        "__attribute__((reqd_work_group_size(16, 1, 1)))\n"
        "__attribute__((intel_reqd_sub_group_size(16)))\n"
        "__kernel void sgemm_tn_sg16_block_16x2(int m, int n, int k, float alpha,\n"
        "                                       __global const float *restrict a, int lda,\n"
        "                                       __global const float *restrict b, int ldb, float beta,\n"
        "                                       __global float *restrict c, int ldc)\n"
        "{\n"
        "    const int lane = (int)get_sub_group_local_id();\n"
        "    const int row0 = (int)get_group_id(1) * 16;\n"
        "    const int col0 = (int)get_group_id(0) * 32;\n"
        "    const int col = col0 + lane;\n"
        "    const int k_main = k - k % 16;\n"
        "\n"
        "    float acc[16][2];\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 16; ++i) {\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 2; ++j) {\n"
        "            acc[i][j] = 0.0f;\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // Whole steps of 16 along K.\n"
        "    if (col0 + 32 <= n && row0 + 16 <= m) {\n"
        "        // Where block reads begin, in bytes, a read or half a read a lane; a step before the first.\n"
        "        int b_at = ((lane - 16) * ldb + col0) * 4;\n"
        "        int a_at = ((lane - 16) * lda + row0) * 4;\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 16) {\n"
        "            b_at += ldb * 64;\n"
        "            a_at += lda * 64;\n"
        "            float b_frag[16][2];\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 16; ++i) {\n"
        "                vstore2(block_read2(at(b, intel_sub_group_shuffle(b_at, i))), 0, b_frag[i]);\n"
        "            }\n"
        "            float a_frag[16];\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 16; ++j) {\n"
        "                a_frag[j] = block_read(at(a, intel_sub_group_shuffle(a_at, j)));\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 16; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int p = 0; p < 16; ++p) {\n"
        "                    const float a_value = intel_sub_group_shuffle(a_frag[p], i);\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 2; ++j) {\n"
        "                        acc[i][j] = fma(a_value, b_frag[p][j], acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    } else {\n"
        "        // At the edge of the matrix, each lane loads for itself.\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 16) {\n"
        "            float b_frag[16][2];\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 16; ++i) {\n"
        "                if (col0 + 32 <= n) {\n"
        "                    vstore2(block_read2(&b[(k0 + i) * ldb + col0]), 0, b_frag[i]);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 2; ++e) {\n"
        "                        b_frag[i][e] = b[(k0 + i) * ldb + min(col0 + e * 16 + lane, n - 1)];\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "            float a_frag[16];\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 16; ++j) {\n"
        "                if (row0 + 16 <= m) {\n"
        "                    a_frag[j] = block_read(&a[(k0 + j) * lda + row0]);\n"
        "                } else {\n"
        "                    a_frag[j] = a[(k0 + j) * lda + min(row0 + lane, m - 1)];\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 16; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int p = 0; p < 16; ++p) {\n"
        "                    const float a_value = intel_sub_group_shuffle(a_frag[p], i);\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 2; ++j) {\n"
        "                        acc[i][j] = fma(a_value, b_frag[p][j], acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "    if (k_main < k) {\n"
        "        // The rest of K; what lies past it counts as zero.\n"
        "        float b_frag[16][2];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 16; ++i) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 2; ++j) {\n"
        "                b_frag[i][j] =\n"
        "                    k_main + i < k ? b[(k_main + i) * ldb + min(col + j * 16, n - 1)] : 0.0f;\n"
        "            }\n"
        "        }\n"
        "        float a_frag[16];\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 16; ++j) {\n"
        "            a_frag[j] = k_main + j < k ? a[(k_main + j) * lda + min(row0 + lane, m - 1)] : 0.0f;\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 16; ++i) {\n"
        "            #pragma unroll\n"
        "            for (int p = 0; p < 16; ++p) {\n"
        "                const float a_value = intel_sub_group_shuffle(a_frag[p], i);\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 2; ++j) {\n"
        "                    acc[i][j] = fma(a_value, b_frag[p][j], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // C = alpha * A * B + beta * C; C is not read where beta is zero.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 16; ++i) {\n"
        "        if (row0 + i < m) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 2; ++j) {\n"
        "                if (col + j * 16 < n) {\n"
        "                    c[(row0 + i) * ldc + col + j * 16] =\n"
        "                        beta == 0.0f ? alpha * acc[i][j]\n"
        "                                     : fma(beta, c[(row0 + i) * ldc + col + j * 16],\n"
        "                                         alpha * acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n"
        "\n"
        "#undef at\n"
        "#undef block_read\n"
        "#undef block_read2\n",
};

static struct kernel sgemm_nn_smem_8x8_double = {
    .name = "sgemm_nn_smem_8x8_double",
    .options = "-cl-std=CL1.2",
    .extensions = "",
    .local_bytes = 16640,
    .vector_bytes = 0,
    .device = GPU,
    .sub_group = 0,
    .group_rows = 16,
    .group_columns = 16,
    .block_rows = 128,
    .block_columns = 128,
    .groups_down = 1,
    .groups_across = 1,
    .text =
        "// sgemm_nn_smem_8x8_double: C = alpha * A * B + beta * C; float32\n"
        "//\n"
        "// Schedule   8x8 of C per work-item, 16x16 work-items per group (128x128 of C), 8 along K per\n"
        "//            iteration, 2 tiles in local memory at a time, the next tile loaded into registers\n"
        "//            before the current one's arithmetic, operands read from local memory a step ahead,\n"
        "//            stores of 4 elements\n"
        "// A          buffer, loads of 4 elements, through local memory, transposed, rows padded by 4\n"
        "// B          buffer, loads of 4 elements, through local memory\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {16, 16}, global size {(n + 127) / 128 * 16, (m + 127) / 128 * 16}\n"
        "// Needs      16,640 bytes of local memory\n"
        "//            on Intel's GPUs, and only there, the build option -cl-intel-256-GRF-per-thread\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "// 4 neighbouring elements, at any alignment.\n"
        "#define COPY4(to, from) vstore4(vload4(0, from), 0, to)\n"
        "\n"
        "// 4 neighbouring elements of local memory, from a multiple of 16 bytes.\n"
        "#define COPY_LOCAL4(to, from) vstore4(*(const __local float4 *)(from), 0, to)\n"
        "\n"
        "__attribute__((reqd_work_group_size(16, 16, 1)))\n"
        "__kernel void sgemm_nn_smem_8x8_double(int m, int n, int k, float alpha,\n"
        "                                       __global const float *restrict a, int lda,\n"
        "                                       __global const float *restrict b, int ldb, float beta,\n"
        "                                       __global float *restrict c, int ldc)\n"
        "{\n"
        "    const int local_row = (int)get_local_id(1);\n"
        "    const int local_col = (int)get_local_id(0);\n"
        "    const int row0 = (int)get_group_id(1) * 128;\n"
        "    const int col0 = (int)get_group_id(0) * 128;\n"
        "    const int row = row0 + local_row * 4;\n"
        "    const int col = col0 + local_col * 4;\n"
        "    const int k_main = k - k % 8;\n"
        "    const int local_index = local_row * 16 + local_col;\n"
        "    const int a_row = local_index / 2;\n"
        "    const int a_k = local_index % 2 * 4;\n"
        "    const int b_k = local_index / 32;\n"
        "    const int b_col = local_index % 32 * 4;\n"
        "\n"
        "    __local float a_shared[2][8][132] __attribute__((aligned(16)));\n"
        "    float a_next[4];\n"
        "    __local float b_shared[2][8][128] __attribute__((aligned(16)));\n"
        "    float b_next[4];\n"
        "    float acc[8][8];\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 8; ++i) {\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 8; ++j) {\n"
        "            acc[i][j] = 0.0f;\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // Whole steps of 8 along K.\n"
        "    if (8 <= k_main) {\n"
        "        float a_vector[4];\n"
        "        COPY4(a_vector, &a[min(row0 + a_row, m - 1) * lda + a_k]);\n"
        "        #pragma unroll\n"
        "        for (int e = 0; e < 4; ++e) {\n"
        "            a_shared[0][a_k + e][a_row] = a_vector[e];\n"
        "        }\n"
        "        if (col0 + b_col + 4 <= n) {\n"
        "            COPY4(&b_shared[0][b_k][b_col], &b[b_k * ldb + col0 + b_col]);\n"
        "        } else {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                b_shared[0][b_k][b_col + e] = b[b_k * ldb + min(col0 + b_col + e, n - 1)];\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "    for (int k0 = 0; k0 < k_main; k0 += 8) {\n"
        "        const int slot = k0 / 8 % 2;\n"
        "        const int next_slot = (k0 / 8 + 1) % 2;\n"
        "        barrier(CLK_LOCAL_MEM_FENCE);\n"
        "        if (k0 + 16 <= k_main) {\n"
        "            COPY4(a_next, &a[min(row0 + a_row, m - 1) * lda + k0 + a_k + 8]);\n"
        "            if (col0 + b_col + 4 <= n) {\n"
        "                COPY4(b_next, &b[(k0 + b_k + 8) * ldb + col0 + b_col]);\n"
        "            } else {\n"
        "                #pragma unroll\n"
        "                for (int e = 0; e < 4; ++e) {\n"
        "                    b_next[e] = b[(k0 + b_k + 8) * ldb + min(col0 + b_col + e, n - 1)];\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "        float a_frag[2][8];\n"
        "        float b_frag[2][8];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 2; ++i) {\n"
        "            COPY_LOCAL4(&a_frag[0][i * 4], &a_shared[slot][0][local_row * 4 + i * 64]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 2; ++j) {\n"
        "            COPY_LOCAL4(&b_frag[0][j * 4], &b_shared[slot][0][local_col * 4 + j * 64]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int kk = 0; kk < 8; ++kk) {\n"
        "            if (kk + 1 < 8) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 2; ++i) {\n"
        "                    COPY_LOCAL4(&a_frag[(kk + 1) % 2][i * 4],\n"
        "                        &a_shared[slot][kk + 1][local_row * 4 + i * 64]);\n"
        "                }\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 2; ++j) {\n"
        "                    COPY_LOCAL4(&b_frag[(kk + 1) % 2][j * 4],\n"
        "                        &b_shared[slot][kk + 1][local_col * 4 + j * 64]);\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 8; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 8; ++j) {\n"
        "                    acc[i][j] = fma(a_frag[kk % 2][i], b_frag[kk % 2][j], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "        if (k0 + 16 <= k_main) {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                a_shared[next_slot][a_k + e][a_row] = a_next[e];\n"
        "            }\n"
        "            COPY4(&b_shared[next_slot][b_k][b_col], b_next);\n"
        "        }\n"
        "    }\n"
        "    if (k_main < k) {\n"
        "        // The rest of K; what lies past it counts as zero.\n"
        "        barrier(CLK_LOCAL_MEM_FENCE);\n"
        "        float a_vector[4];\n"
        "        if (k_main + a_k + 4 <= k) {\n"
        "            COPY4(a_vector, &a[min(row0 + a_row, m - 1) * lda + k_main + a_k]);\n"
        "        } else {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                a_vector[e] =\n"
        "                    k_main + a_k + e < k ? a[min(row0 + a_row, m - 1) * lda + k_main + a_k + e]\n"
        "                                         : 0.0f;\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int e = 0; e < 4; ++e) {\n"
        "            a_shared[0][a_k + e][a_row] = a_vector[e];\n"
        "        }\n"
        "        if (k_main + b_k < k && col0 + b_col + 4 <= n) {\n"
        "            COPY4(&b_shared[0][b_k][b_col], &b[(k_main + b_k) * ldb + col0 + b_col]);\n"
        "        } else {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                b_shared[0][b_k][b_col + e] =\n"
        "                    k_main + b_k < k ? b[(k_main + b_k) * ldb + min(col0 + b_col + e, n - 1)]\n"
        "                                     : 0.0f;\n"
        "            }\n"
        "        }\n"
        "        barrier(CLK_LOCAL_MEM_FENCE);\n"
        "        float a_frag[2][8];\n"
        "        float b_frag[2][8];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 2; ++i) {\n"
        "            COPY_LOCAL4(&a_frag[0][i * 4], &a_shared[0][0][local_row * 4 + i * 64]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 2; ++j) {\n"
        "            COPY_LOCAL4(&b_frag[0][j * 4], &b_shared[0][0][local_col * 4 + j * 64]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int kk = 0; kk < 8; ++kk) {\n"
        "            if (kk + 1 < 8) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 2; ++i) {\n"
        "                    COPY_LOCAL4(&a_frag[(kk + 1) % 2][i * 4],\n"
        "                        &a_shared[0][kk + 1][local_row * 4 + i * 64]);\n"
        "                }\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 2; ++j) {\n"
        "                    COPY_LOCAL4(&b_frag[(kk + 1) % 2][j * 4],\n"
        "                        &b_shared[0][kk + 1][local_col * 4 + j * 64]);\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 8; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 8; ++j) {\n"
        "                    acc[i][j] = fma(a_frag[kk % 2][i], b_frag[kk % 2][j], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // C = alpha * A * B + beta * C; C is not read where beta is zero.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 8; ++i) {\n"
        "        const int c_row = row + i / 4 * 64 + i % 4;\n"
        "        if (c_row < m) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 2; ++j) {\n"
        "                if (col + j * 64 + 4 <= n) {\n"
        "                    float c_values[4];\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        c_values[e] = alpha * acc[i][j * 4 + e];\n"
        "                    }\n"
        "                    if (beta != 0.0f) {\n"
        "                        float c_old[4];\n"
        "                        COPY4(c_old, &c[c_row * ldc + col + j * 64]);\n"
        "                        #pragma unroll\n"
        "                        for (int e = 0; e < 4; ++e) {\n"
        "                            c_values[e] = fma(beta, c_old[e], c_values[e]);\n"
        "                        }\n"
        "                    }\n"
        "                    COPY4(&c[c_row * ldc + col + j * 64], c_values);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        if (col + j * 64 + e < n) {\n"
        "                            c[c_row * ldc + col + j * 64 + e] =\n"
        "                                beta == 0.0f ? alpha * acc[i][j * 4 + e]\n"
        "                                             : fma(beta, c[c_row * ldc + col + j * 64 + e],\n"
        "                                                 alpha * acc[i][j * 4 + e]);\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n"
        "\n"
        "#undef COPY4\n"
        "#undef COPY_LOCAL4\n",
};

static struct kernel sgemm_nt_smem_8x8_double = {
    .name = "sgemm_nt_smem_8x8_double",
    .options = "-cl-std=CL1.2",
    .extensions = "",
    .local_bytes = 16640,
    .vector_bytes = 0,
    .device = GPU,
    .sub_group = 0,
    .group_rows = 16,
    .group_columns = 16,
    .block_rows = 128,
    .block_columns = 128,
    .groups_down = 1,
    .groups_across = 1,
    .text =
        "// sgemm_nt_smem_8x8_double: C = alpha * A * B + beta * C; float32; B col-major\n"
        "//\n"
        "// Schedule   8x8 of C per work-item, 16x16 work-items per group (128x128 of C), 8 along K per\n"
        "//            iteration, 2 tiles in local memory at a time, the next tile loaded into registers\n"
        "//            before the current one's arithmetic, operands read from local memory a step ahead,\n"
        "//            stores of 4 elements\n"
        "// A          buffer, loads of 4 elements, through local memory, transposed, rows padded by 4\n"
        "// B          buffer, loads of 4 elements, through local memory\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {16, 16}, global size {(n + 127) / 128 * 16, (m + 127) / 128 * 16}\n"
        "// Needs      16,640 bytes of local memory\n"
        "//            on Intel's GPUs, and only there, the build option -cl-intel-256-GRF-per-thread\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "// 4 neighbouring elements, at any alignment.\n"
        "#define COPY4(to, from) vstore4(vload4(0, from), 0, to)\n"
        "\n"
        "// 4 neighbouring elements of local memory, from a multiple of 16 bytes.\n"
        "#define COPY_LOCAL4(to, from) vstore4(*(const __local float4 *)(from), 0, to)\n"
        "\n"
        "__attribute__((reqd_work_group_size(16, 16, 1)))\n"
        "__kernel void sgemm_nt_smem_8x8_double(int m, int n, int k, float alpha,\n"
        "                                       __global const float *restrict a, int lda,\n"
        "                                       __global const float *restrict b, int ldb, float beta,\n"
        "                                       __global float *restrict c, int ldc)\n"
        "{\n"
        "    const int local_row = (int)get_local_id(1);\n"
        "    const int local_col = (int)get_local_id(0);\n"
        "    const int row0 = (int)get_group_id(1) * 128;\n"
        "    const int col0 = (int)get_group_id(0) * 128;\n"
        "    const int row = row0 + local_row * 4;\n"
        "    const int col = col0 + local_col * 4;\n"
        "    const int k_main = k - k % 8;\n"
        "    const int local_index = local_row * 16 + local_col;\n"
        "    const int a_row = local_index / 2;\n"
        "    const int a_k = local_index % 2 * 4;\n"
        "    const int b_col = local_index / 2;\n"
        "    const int b_k = local_index % 2 * 4;\n"
        "\n"
        "    __local float a_shared[2][8][132] __attribute__((aligned(16)));\n"
        "    float a_next[4];\n"
        "    __local float b_shared[2][8][128] __attribute__((aligned(16)));\n"
        "    float b_next[4];\n"
        "    float acc[8][8];\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 8; ++i) {\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 8; ++j) {\n"
        "            acc[i][j] = 0.0f;\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // Whole steps of 8 along K.\n"
        "    if (8 <= k_main) {\n"
        "        float a_vector[4];\n"
        "        COPY4(a_vector, &a[min(row0 + a_row, m - 1) * lda + a_k]);\n"
        "        #pragma unroll\n"
        "        for (int e = 0; e < 4; ++e) {\n"
        "            a_shared[0][a_k + e][a_row] = a_vector[e];\n"
        "        }\n"
        "        float b_vector[4];\n"
        "        COPY4(b_vector, &b[min(col0 + b_col, n - 1) * ldb + b_k]);\n"
        "        #pragma unroll\n"
        "        for (int e = 0; e < 4; ++e) {\n"
        "            b_shared[0][b_k + e][b_col] = b_vector[e];\n"
        "        }\n"
        "    }\n"
        "    for (int k0 = 0; k0 < k_main; k0 += 8) {\n"
        "        const int slot = k0 / 8 % 2;\n"
        "        const int next_slot = (k0 / 8 + 1) % 2;\n"
        "        barrier(CLK_LOCAL_MEM_FENCE);\n"
        "        if (k0 + 16 <= k_main) {\n"
        "            COPY4(a_next, &a[min(row0 + a_row, m - 1) * lda + k0 + a_k + 8]);\n"
        "            COPY4(b_next, &b[min(col0 + b_col, n - 1) * ldb + k0 + b_k + 8]);\n"
        "        }\n"
        "        float a_frag[2][8];\n"
        "        float b_frag[2][8];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 2; ++i) {\n"
        "            COPY_LOCAL4(&a_frag[0][i * 4], &a_shared[slot][0][local_row * 4 + i * 64]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 2; ++j) {\n"
        "            COPY_LOCAL4(&b_frag[0][j * 4], &b_shared[slot][0][local_col * 4 + j * 64]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int kk = 0; kk < 8; ++kk) {\n"
        "            if (kk + 1 < 8) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 2; ++i) {\n"
        "                    COPY_LOCAL4(&a_frag[(kk + 1) % 2][i * 4],\n"
        "                        &a_shared[slot][kk + 1][local_row * 4 + i * 64]);\n"
        "                }\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 2; ++j) {\n"
        "                    COPY_LOCAL4(&b_frag[(kk + 1) % 2][j * 4],\n"
        "                        &b_shared[slot][kk + 1][local_col * 4 + j * 64]);\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 8; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 8; ++j) {\n"
        "                    acc[i][j] = fma(a_frag[kk % 2][i], b_frag[kk % 2][j], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "        if (k0 + 16 <= k_main) {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                a_shared[next_slot][a_k + e][a_row] = a_next[e];\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                b_shared[next_slot][b_k + e][b_col] = b_next[e];\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "    if (k_main < k) {\n"
        "        // The rest of K; what lies past it counts as zero.\n"
        "        barrier(CLK_LOCAL_MEM_FENCE);\n"
        "        float a_vector[4];\n"
        "        if (k_main + a_k + 4 <= k) {\n"
        "            COPY4(a_vector, &a[min(row0 + a_row, m - 1) * lda + k_main + a_k]);\n"
        "        } else {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                a_vector[e] =\n"
        "                    k_main + a_k + e < k ? a[min(row0 + a_row, m - 1) * lda + k_main + a_k + e]\n"
        "                                         : 0.0f;\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int e = 0; e < 4; ++e) {\n"
        "            a_shared[0][a_k + e][a_row] = a_vector[e];\n"
        "        }\n"
        "        float b_vector[4];\n"
        "        if (k_main + b_k + 4 <= k) {\n"
        "            COPY4(b_vector, &b[min(col0 + b_col, n - 1) * ldb + k_main + b_k]);\n"
        "        } else {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                b_vector[e] =\n"
        "                    k_main + b_k + e < k ? b[min(col0 + b_col, n - 1) * ldb + k_main + b_k + e]\n"
        "                                         : 0.0f;\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int e = 0; e < 4; ++e) {\n"
        "            b_shared[0][b_k + e][b_col] = b_vector[e];\n"
        "        }\n"
        "        barrier(CLK_LOCAL_MEM_FENCE);\n"
        "        float a_frag[2][8];\n"
        "        float b_frag[2][8];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 2; ++i) {\n"
        "            COPY_LOCAL4(&a_frag[0][i * 4], &a_shared[0][0][local_row * 4 + i * 64]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 2; ++j) {\n"
        "            COPY_LOCAL4(&b_frag[0][j * 4], &b_shared[0][0][local_col * 4 + j * 64]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int kk = 0; kk < 8; ++kk) {\n"
        "            if (kk + 1 < 8) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 2; ++i) {\n"
        "                    COPY_LOCAL4(&a_frag[(kk + 1) % 2][i * 4],\n"
        "                        &a_shared[0][kk + 1][local_row * 4 + i * 64]);\n"
        "                }\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 2; ++j) {\n"
        "                    COPY_LOCAL4(&b_frag[(kk + 1) % 2][j * 4],\n"
        "                        &b_shared[0][kk + 1][local_col * 4 + j * 64]);\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 8; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 8; ++j) {\n"
        "                    acc[i][j] = fma(a_frag[kk % 2][i], b_frag[kk % 2][j], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // C = alpha * A * B + beta * C; C is not read where beta is zero.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 8; ++i) {\n"
        "        const int c_row = row + i / 4 * 64 + i % 4;\n"
        "        if (c_row < m) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 2; ++j) {\n"
        "                if (col + j * 64 + 4 <= n) {\n"
        "                    float c_values[4];\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        c_values[e] = alpha * acc[i][j * 4 + e];\n"
        "                    }\n"
        "                    if (beta != 0.0f) {\n"
        "                        float c_old[4];\n"
        "                        COPY4(c_old, &c[c_row * ldc + col + j * 64]);\n"
        "                        #pragma unroll\n"
        "                        for (int e = 0; e < 4; ++e) {\n"
        "                            c_values[e] = fma(beta, c_old[e], c_values[e]);\n"
        "                        }\n"
        "                    }\n"
        "                    COPY4(&c[c_row * ldc + col + j * 64], c_values);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        if (col + j * 64 + e < n) {\n"
        "                            c[c_row * ldc + col + j * 64 + e] =\n"
        "                                beta == 0.0f ? alpha * acc[i][j * 4 + e]\n"
        "                                             : fma(beta, c[c_row * ldc + col + j * 64 + e],\n"
        "                                                 alpha * acc[i][j * 4 + e]);\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n"
        "\n"
        "#undef COPY4\n"
        "#undef COPY_LOCAL4\n",
};

static struct kernel sgemm_tn_smem_8x8_double = {
    .name = "sgemm_tn_smem_8x8_double",
    .options = "-cl-std=CL1.2",
    .extensions = "",
    .local_bytes = 16640,
    .vector_bytes = 0,
    .device = GPU,
    .sub_group = 0,
    .group_rows = 16,
    .group_columns = 16,
    .block_rows = 128,
    .block_columns = 128,
    .groups_down = 1,
    .groups_across = 1,
    .text =
        "// sgemm_tn_smem_8x8_double: C = alpha * A * B + beta * C; float32; A col-major\n"
        "//\n"
        "// Schedule   8x8 of C per work-item, 16x16 work-items per group (128x128 of C), 8 along K per\n"
        "//            iteration, 2 tiles in local memory at a time, the next tile loaded into registers\n"
        "//            before the current one's arithmetic, operands read from local memory a step ahead,\n"
        "//            stores of 4 elements\n"
        "// A          buffer, loads of 4 elements, through local memory, transposed, rows padded by 4\n"
        "// B          buffer, loads of 4 elements, through local memory\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {16, 16}, global size {(n + 127) / 128 * 16, (m + 127) / 128 * 16}\n"
        "// Needs      16,640 bytes of local memory\n"
        "//            on Intel's GPUs, and only there, the build option -cl-intel-256-GRF-per-thread\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "// 4 neighbouring elements, at any alignment.\n"
        "#define COPY4(to, from) vstore4(vload4(0, from), 0, to)\n"
        "\n"
        "// 4 neighbouring elements of local memory, from a multiple of 16 bytes.\n"
        "#define COPY_LOCAL4(to, from) vstore4(*(const __local float4 *)(from), 0, to)\n"
        "\n"
        "__attribute__((reqd_work_group_size(16, 16, 1)))\n"
        "__kernel void sgemm_tn_smem_8x8_double(int m, int n, int k, float alpha,\n"
        "                                       __global const float *restrict a, int lda,\n"
        "                                       __global const float *restrict b, int ldb, float beta,\n"
        "                                       __global float *restrict c, int ldc)\n"
        "{\n"
        "    const int local_row = (int)get_local_id(1);\n"
        "    const int local_col = (int)get_local_id(0);\n"
        "    const int row0 = (int)get_group_id(1) * 128;\n"
        "    const int col0 = (int)get_group_id(0) * 128;\n"
        "    const int row = row0 + local_row * 4;\n"
        "    const int col = col0 + local_col * 4;\n"
        "    const int k_main = k - k % 8;\n"
        "    const int local_index = local_row * 16 + local_col;\n"
        "    const int a_k = local_index / 32;\n"
        "    const int a_row = local_index % 32 * 4;\n"
        "    const int b_k = local_index / 32;\n"
        "    const int b_col = local_index % 32 * 4;\n"
        "\n"
        "    __local float a_shared[2][8][132] __attribute__((aligned(16)));\n"
        "    float a_next[4];\n"
        "    __local float b_shared[2][8][128] __attribute__((aligned(16)));\n"
        "    float b_next[4];\n"
        "    float acc[8][8];\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 8; ++i) {\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 8; ++j) {\n"
        "            acc[i][j] = 0.0f;\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // Whole steps of 8 along K.\n"
        "    if (8 <= k_main) {\n"
        "        if (row0 + a_row + 4 <= m) {\n"
        "            COPY4(&a_shared[0][a_k][a_row], &a[a_k * lda + row0 + a_row]);\n"
        "        } else {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                a_shared[0][a_k][a_row + e] = a[a_k * lda + min(row0 + a_row + e, m - 1)];\n"
        "            }\n"
        "        }\n"
        "        if (col0 + b_col + 4 <= n) {\n"
        "            COPY4(&b_shared[0][b_k][b_col], &b[b_k * ldb + col0 + b_col]);\n"
        "        } else {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                b_shared[0][b_k][b_col + e] = b[b_k * ldb + min(col0 + b_col + e, n - 1)];\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "    for (int k0 = 0; k0 < k_main; k0 += 8) {\n"
        "        const int slot = k0 / 8 % 2;\n"
        "        const int next_slot = (k0 / 8 + 1) % 2;\n"
        "        barrier(CLK_LOCAL_MEM_FENCE);\n"
        "        if (k0 + 16 <= k_main) {\n"
        "            if (row0 + a_row + 4 <= m) {\n"
        "                COPY4(a_next, &a[(k0 + a_k + 8) * lda + row0 + a_row]);\n"
        "            } else {\n"
        "                #pragma unroll\n"
        "                for (int e = 0; e < 4; ++e) {\n"
        "                    a_next[e] = a[(k0 + a_k + 8) * lda + min(row0 + a_row + e, m - 1)];\n"
        "                }\n"
        "            }\n"
        "            if (col0 + b_col + 4 <= n) {\n"
        "                COPY4(b_next, &b[(k0 + b_k + 8) * ldb + col0 + b_col]);\n"
        "            } else {\n"
        "                #pragma unroll\n"
        "                for (int e = 0; e < 4; ++e) {\n"
        "                    b_next[e] = b[(k0 + b_k + 8) * ldb + min(col0 + b_col + e, n - 1)];\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "        float a_frag[2][8];\n"
        "        float b_frag[2][8];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 2; ++i) {\n"
        "            COPY_LOCAL4(&a_frag[0][i * 4], &a_shared[slot][0][local_row * 4 + i * 64]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 2; ++j) {\n"
        "            COPY_LOCAL4(&b_frag[0][j * 4], &b_shared[slot][0][local_col * 4 + j * 64]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int kk = 0; kk < 8; ++kk) {\n"
        "            if (kk + 1 < 8) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 2; ++i) {\n"
        "                    COPY_LOCAL4(&a_frag[(kk + 1) % 2][i * 4],\n"
        "                        &a_shared[slot][kk + 1][local_row * 4 + i * 64]);\n"
        "                }\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 2; ++j) {\n"
        "                    COPY_LOCAL4(&b_frag[(kk + 1) % 2][j * 4],\n"
        "                        &b_shared[slot][kk + 1][local_col * 4 + j * 64]);\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 8; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 8; ++j) {\n"
        "                    acc[i][j] = fma(a_frag[kk % 2][i], b_frag[kk % 2][j], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "        if (k0 + 16 <= k_main) {\n"
        "            COPY4(&a_shared[next_slot][a_k][a_row], a_next);\n"
        "            COPY4(&b_shared[next_slot][b_k][b_col], b_next);\n"
        "        }\n"
        "    }\n"
        "    if (k_main < k) {\n"
        "        // The rest of K; what lies past it counts as zero.\n"
        "        barrier(CLK_LOCAL_MEM_FENCE);\n"
        "        if (k_main + a_k < k && row0 + a_row + 4 <= m) {\n"
        "            COPY4(&a_shared[0][a_k][a_row], &a[(k_main + a_k) * lda + row0 + a_row]);\n"
        "        } else {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                a_shared[0][a_k][a_row + e] =\n"
        "                    k_main + a_k < k ? a[(k_main + a_k) * lda + min(row0 + a_row + e, m - 1)]\n"
        "                                     : 0.0f;\n"
        "            }\n"
        "        }\n"
        "        if (k_main + b_k < k && col0 + b_col + 4 <= n) {\n"
        "            COPY4(&b_shared[0][b_k][b_col], &b[(k_main + b_k) * ldb + col0 + b_col]);\n"
        "        } else {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                b_shared[0][b_k][b_col + e] =\n"
        "                    k_main + b_k < k ? b[(k_main + b_k) * ldb + min(col0 + b_col + e, n - 1)]\n"
        "                                     : 0.0f;\n"
        "            }\n"
        "        }\n"
        "        barrier(CLK_LOCAL_MEM_FENCE);\n"
        "        float a_frag[2][8];\n"
        "        float b_frag[2][8];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 2; ++i) {\n"
        "            COPY_LOCAL4(&a_frag[0][i * 4], &a_shared[0][0][local_row * 4 + i * 64]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 2; ++j) {\n"
        "            COPY_LOCAL4(&b_frag[0][j * 4], &b_shared[0][0][local_col * 4 + j * 64]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int kk = 0; kk < 8; ++kk) {\n"
        "            if (kk + 1 < 8) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 2; ++i) {\n"
        "                    COPY_LOCAL4(&a_frag[(kk + 1) % 2][i * 4],\n"
        "                        &a_shared[0][kk + 1][local_row * 4 + i * 64]);\n"
        "                }\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 2; ++j) {\n"
        "                    COPY_LOCAL4(&b_frag[(kk + 1) % 2][j * 4],\n"
        "                        &b_shared[0][kk + 1][local_col * 4 + j * 64]);\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 8; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 8; ++j) {\n"
        "                    acc[i][j] = fma(a_frag[kk % 2][i], b_frag[kk % 2][j], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // C = alpha * A * B + beta * C; C is not read where beta is zero.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 8; ++i) {\n"
        "        const int c_row = row + i / 4 * 64 + i % 4;\n"
        "        if (c_row < m) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 2; ++j) {\n"
        "                if (col + j * 64 + 4 <= n) {\n"
        "                    float c_values[4];\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        c_values[e] = alpha * acc[i][j * 4 + e];\n"
        "                    }\n"
        "                    if (beta != 0.0f) {\n"
        "                        float c_old[4];\n"
        "                        COPY4(c_old, &c[c_row * ldc + col + j * 64]);\n"
        "                        #pragma unroll\n"
        "                        for (int e = 0; e < 4; ++e) {\n"
        "                            c_values[e] = fma(beta, c_old[e], c_values[e]);\n"
        "                        }\n"
        "                    }\n"
        "                    COPY4(&c[c_row * ldc + col + j * 64], c_values);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        if (col + j * 64 + e < n) {\n"
        "                            c[c_row * ldc + col + j * 64 + e] =\n"
        "                                beta == 0.0f ? alpha * acc[i][j * 4 + e]\n"
        "                                             : fma(beta, c[c_row * ldc + col + j * 64 + e],\n"
        "                                                 alpha * acc[i][j * 4 + e]);\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n"
        "\n"
        "#undef COPY4\n"
        "#undef COPY_LOCAL4\n",
};

static struct kernel sgemm_tt_smem_8x8_double = {
    .name = "sgemm_tt_smem_8x8_double",
    .options = "-cl-std=CL1.2",
    .extensions = "",
    .local_bytes = 16640,
    .vector_bytes = 0,
    .device = GPU,
    .sub_group = 0,
    .group_rows = 16,
    .group_columns = 16,
    .block_rows = 128,
    .block_columns = 128,
    .groups_down = 1,
    .groups_across = 1,
    .text =
        "// sgemm_tt_smem_8x8_double: C = alpha * A * B + beta * C; float32; A col-major, B col-major\n"
        "//\n"
        "// Schedule   8x8 of C per work-item, 16x16 work-items per group (128x128 of C), 8 along K per\n"
        "//            iteration, 2 tiles in local memory at a time, the next tile loaded into registers\n"
        "//            before the current one's arithmetic, operands read from local memory a step ahead,\n"
        "//            stores of 4 elements\n"
        "// A          buffer, loads of 4 elements, through local memory, transposed, rows padded by 4\n"
        "// B          buffer, loads of 4 elements, through local memory\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {16, 16}, global size {(n + 127) / 128 * 16, (m + 127) / 128 * 16}\n"
        "// Needs      16,640 bytes of local memory\n"
        "//            on Intel's GPUs, and only there, the build option -cl-intel-256-GRF-per-thread\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "// 4 neighbouring elements, at any alignment.\n"
        "#define COPY4(to, from) vstore4(vload4(0, from), 0, to)\n"
        "\n"
        "// 4 neighbouring elements of local memory, from a multiple of 16 bytes.\n"
        "#define COPY_LOCAL4(to, from) vstore4(*(const __local float4 *)(from), 0, to)\n"
        "\n"
        "__attribute__((reqd_work_group_size(16, 16, 1)))\n"
        "__kernel void sgemm_tt_smem_8x8_double(int m, int n, int k, float alpha,\n"
        "                                       __global const float *restrict a, int lda,\n"
        "                                       __global const float *restrict b, int ldb, float beta,\n"
        "                                       __global float *restrict c, int ldc)\n"
        "{\n"
        "    const int local_row = (int)get_local_id(1);\n"
        "    const int local_col = (int)get_local_id(0);\n"
        "    const int row0 = (int)get_group_id(1) * 128;\n"
        "    const int col0 = (int)get_group_id(0) * 128;\n"
        "    const int row = row0 + local_row * 4;\n"
        "    const int col = col0 + local_col * 4;\n"
        "    const int k_main = k - k % 8;\n"
        "    const int local_index = local_row * 16 + local_col;\n"
        "    const int a_k = local_index / 32;\n"
        "    const int a_row = local_index % 32 * 4;\n"
        "    const int b_col = local_index / 2;\n"
        "    const int b_k = local_index % 2 * 4;\n"
        "\n"
        "    __local float a_shared[2][8][132] __attribute__((aligned(16)));\n"
        "    float a_next[4];\n"
        "    __local float b_shared[2][8][128] __attribute__((aligned(16)));\n"
        "    float b_next[4];\n"
        "    float acc[8][8];\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 8; ++i) {\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 8; ++j) {\n"
        "            acc[i][j] = 0.0f;\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // Whole steps of 8 along K.\n"
        "    if (8 <= k_main) {\n"
        "        if (row0 + a_row + 4 <= m) {\n"
        "            COPY4(&a_shared[0][a_k][a_row], &a[a_k * lda + row0 + a_row]);\n"
        "        } else {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                a_shared[0][a_k][a_row + e] = a[a_k * lda + min(row0 + a_row + e, m - 1)];\n"
        "            }\n"
        "        }\n"
        "        float b_vector[4];\n"
        "        COPY4(b_vector, &b[min(col0 + b_col, n - 1) * ldb + b_k]);\n"
        "        #pragma unroll\n"
        "        for (int e = 0; e < 4; ++e) {\n"
        "            b_shared[0][b_k + e][b_col] = b_vector[e];\n"
        "        }\n"
        "    }\n"
        "    for (int k0 = 0; k0 < k_main; k0 += 8) {\n"
        "        const int slot = k0 / 8 % 2;\n"
        "        const int next_slot = (k0 / 8 + 1) % 2;\n"
        "        barrier(CLK_LOCAL_MEM_FENCE);\n"
        "        if (k0 + 16 <= k_main) {\n"
        "            if (row0 + a_row + 4 <= m) {\n"
        "                COPY4(a_next, &a[(k0 + a_k + 8) * lda + row0 + a_row]);\n"
        "            } else {\n"
        "                #pragma unroll\n"
        "                for (int e = 0; e < 4; ++e) {\n"
        "                    a_next[e] = a[(k0 + a_k + 8) * lda + min(row0 + a_row + e, m - 1)];\n"
        "                }\n"
        "            }\n"
        "            COPY4(b_next, &b[min(col0 + b_col, n - 1) * ldb + k0 + b_k + 8]);\n"
        "        }\n"
        "        float a_frag[2][8];\n"
        "        float b_frag[2][8];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 2; ++i) {\n"
        "            COPY_LOCAL4(&a_frag[0][i * 4], &a_shared[slot][0][local_row * 4 + i * 64]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 2; ++j) {\n"
        "            COPY_LOCAL4(&b_frag[0][j * 4], &b_shared[slot][0][local_col * 4 + j * 64]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int kk = 0; kk < 8; ++kk) {\n"
        "            if (kk + 1 < 8) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 2; ++i) {\n"
        "                    COPY_LOCAL4(&a_frag[(kk + 1) % 2][i * 4],\n"
        "                        &a_shared[slot][kk + 1][local_row * 4 + i * 64]);\n"
        "                }\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 2; ++j) {\n"
        "                    COPY_LOCAL4(&b_frag[(kk + 1) % 2][j * 4],\n"
        "                        &b_shared[slot][kk + 1][local_col * 4 + j * 64]);\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 8; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 8; ++j) {\n"
        "                    acc[i][j] = fma(a_frag[kk % 2][i], b_frag[kk % 2][j], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "        if (k0 + 16 <= k_main) {\n"
        "            COPY4(&a_shared[next_slot][a_k][a_row], a_next);\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                b_shared[next_slot][b_k + e][b_col] = b_next[e];\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "    if (k_main < k) {\n"
        "        // The rest of K; what lies past it counts as zero.\n"
        "        barrier(CLK_LOCAL_MEM_FENCE);\n"
        "        if (k_main + a_k < k && row0 + a_row + 4 <= m) {\n"
        "            COPY4(&a_shared[0][a_k][a_row], &a[(k_main + a_k) * lda + row0 + a_row]);\n"
        "        } else {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                a_shared[0][a_k][a_row + e] =\n"
        "                    k_main + a_k < k ? a[(k_main + a_k) * lda + min(row0 + a_row + e, m - 1)]\n"
        "                                     : 0.0f;\n"
        "            }\n"
        "        }\n"
        "        float b_vector[4];\n"
        "        if (k_main + b_k + 4 <= k) {\n"
        "            COPY4(b_vector, &b[min(col0 + b_col, n - 1) * ldb + k_main + b_k]);\n"
        "        } else {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                b_vector[e] =\n"
        "                    k_main + b_k + e < k ? b[min(col0 + b_col, n - 1) * ldb + k_main + b_k + e]\n"
        "                                         : 0.0f;\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int e = 0; e < 4; ++e) {\n"
        "            b_shared[0][b_k + e][b_col] = b_vector[e];\n"
        "        }\n"
        "        barrier(CLK_LOCAL_MEM_FENCE);\n"
        "        float a_frag[2][8];\n"
        "        float b_frag[2][8];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 2; ++i) {\n"
        "            COPY_LOCAL4(&a_frag[0][i * 4], &a_shared[0][0][local_row * 4 + i * 64]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 2; ++j) {\n"
        "            COPY_LOCAL4(&b_frag[0][j * 4], &b_shared[0][0][local_col * 4 + j * 64]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int kk = 0; kk < 8; ++kk) {\n"
        "            if (kk + 1 < 8) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 2; ++i) {\n"
        "                    COPY_LOCAL4(&a_frag[(kk + 1) % 2][i * 4],\n"
        "                        &a_shared[0][kk + 1][local_row * 4 + i * 64]);\n"
        "                }\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 2; ++j) {\n"
        "                    COPY_LOCAL4(&b_frag[(kk + 1) % 2][j * 4],\n"
        "                        &b_shared[0][kk + 1][local_col * 4 + j * 64]);\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 8; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 8; ++j) {\n"
        "                    acc[i][j] = fma(a_frag[kk % 2][i], b_frag[kk % 2][j], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // C = alpha * A * B + beta * C; C is not read where beta is zero.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 8; ++i) {\n"
        "        const int c_row = row + i / 4 * 64 + i % 4;\n"
        "        if (c_row < m) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 2; ++j) {\n"
        "                if (col + j * 64 + 4 <= n) {\n"
        "                    float c_values[4];\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        c_values[e] = alpha * acc[i][j * 4 + e];\n"
        "                    }\n"
        "                    if (beta != 0.0f) {\n"
        "                        float c_old[4];\n"
        "                        COPY4(c_old, &c[c_row * ldc + col + j * 64]);\n"
        "                        #pragma unroll\n"
        "                        for (int e = 0; e < 4; ++e) {\n"
        "                            c_values[e] = fma(beta, c_old[e], c_values[e]);\n"
        "                        }\n"
        "                    }\n"
        "                    COPY4(&c[c_row * ldc + col + j * 64], c_values);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        if (col + j * 64 + e < n) {\n"
        "                            c[c_row * ldc + col + j * 64 + e] =\n"
        "                                beta == 0.0f ? alpha * acc[i][j * 4 + e]\n"
        "                                             : fma(beta, c[c_row * ldc + col + j * 64 + e],\n"
        "                                                 alpha * acc[i][j * 4 + e]);\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n"
        "\n"
        "#undef COPY4\n"
        "#undef COPY_LOCAL4\n",
};

static struct kernel sgemm_nn_tile_8x8 = {
    .name = "sgemm_nn_tile_8x8",
    .options = "-cl-std=CL1.2",
    .extensions = "",
    .local_bytes = 0,
    .vector_bytes = 0,
    .device = ANY,
    .sub_group = 0,
    .group_rows = 16,
    .group_columns = 16,
    .block_rows = 128,
    .block_columns = 128,
    .groups_down = 1,
    .groups_across = 1,
    .text =
        "// sgemm_nn_tile_8x8: C = alpha * A * B + beta * C; float32\n"
        "//\n"
        "// Schedule   8x8 of C per work-item, 16x16 work-items per group (128x128 of C), 4 along K per\n"
        "//            iteration, stores of 4 elements\n"
        "// A          buffer, loads of 4 elements\n"
        "// B          buffer, loads of 4 elements\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {16, 16}, global size {(n + 127) / 128 * 16, (m + 127) / 128 * 16}\n"
        "// Needs      on Intel's GPUs, and only there, the build option -cl-intel-256-GRF-per-thread\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "// 4 neighbouring elements, at any alignment.\n"
        "#define COPY4(to, from) vstore4(vload4(0, from), 0, to)\n"
        "\n"
        "__attribute__((reqd_work_group_size(16, 16, 1)))\n"
        "__kernel void sgemm_nn_tile_8x8(int m, int n, int k, float alpha, __global const float *restrict a,\n"
        "                                int lda, __global const float *restrict b, int ldb, float beta,\n"
        "                                __global float *restrict c, int ldc)\n"
        "{\n"
        "    const int col0 = (int)get_group_id(0) * 128;\n"
        "    const int row = (int)get_group_id(1) * 128 + (int)get_local_id(1) * 4;\n"
        "    const int col = col0 + (int)get_local_id(0) * 4;\n"
        "    const int k_main = k - k % 4;\n"
        "\n"
        "    float acc[8][8];\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 8; ++i) {\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 8; ++j) {\n"
        "            acc[i][j] = 0.0f;\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // Whole steps of 4 along K.\n"
        "    if (col0 + 128 <= n) {\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "            float a_frag[8][4];\n"
        "            float b_frag[4][8];\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 8; ++i) {\n"
        "                COPY4(a_frag[i], &a[min(row + i / 4 * 64 + i % 4, m - 1) * lda + k0]);\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 4; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 2; ++j) {\n"
        "                    COPY4(&b_frag[i][j * 4], &b[(k0 + i) * ldb + col + j * 64]);\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int p = 0; p < 4; ++p) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 8; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 8; ++j) {\n"
        "                        acc[i][j] = fma(a_frag[i][p], b_frag[p][j], acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    } else {\n"
        "        // At the edge of C, each load asks whether it is inside.\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "            float a_frag[8][4];\n"
        "            float b_frag[4][8];\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 8; ++i) {\n"
        "                COPY4(a_frag[i], &a[min(row + i / 4 * 64 + i % 4, m - 1) * lda + k0]);\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 4; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 2; ++j) {\n"
        "                    if (col + j * 64 + 4 <= n) {\n"
        "                        COPY4(&b_frag[i][j * 4], &b[(k0 + i) * ldb + col + j * 64]);\n"
        "                    } else {\n"
        "                        #pragma unroll\n"
        "                        for (int e = 0; e < 4; ++e) {\n"
        "                            b_frag[i][j * 4 + e] = b[(k0 + i) * ldb + min(col + j * 64 + e, n - 1)];\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int p = 0; p < 4; ++p) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 8; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 8; ++j) {\n"
        "                        acc[i][j] = fma(a_frag[i][p], b_frag[p][j], acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "    if (k_main < k) {\n"
        "        // The rest of K; what lies past it counts as zero.\n"
        "        float a_frag[8][4];\n"
        "        float b_frag[4][8];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 8; ++i) {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                a_frag[i][e] =\n"
        "                    k_main + e < k ? a[min(row + i / 4 * 64 + i % 4, m - 1) * lda + k_main + e]\n"
        "                                   : 0.0f;\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 4; ++i) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 2; ++j) {\n"
        "                if (k_main + i < k && col + j * 64 + 4 <= n) {\n"
        "                    COPY4(&b_frag[i][j * 4], &b[(k_main + i) * ldb + col + j * 64]);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        b_frag[i][j * 4 + e] =\n"
        "                            k_main + i < k ? b[(k_main + i) * ldb + min(col + j * 64 + e, n - 1)]\n"
        "                                           : 0.0f;\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int p = 0; p < 4; ++p) {\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 8; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 8; ++j) {\n"
        "                    acc[i][j] = fma(a_frag[i][p], b_frag[p][j], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // C = alpha * A * B + beta * C; C is not read where beta is zero.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 8; ++i) {\n"
        "        const int c_row = row + i / 4 * 64 + i % 4;\n"
        "        if (c_row < m) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 2; ++j) {\n"
        "                if (col + j * 64 + 4 <= n) {\n"
        "                    float c_values[4];\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        c_values[e] = alpha * acc[i][j * 4 + e];\n"
        "                    }\n"
        "                    if (beta != 0.0f) {\n"
        "                        float c_old[4];\n"
        "                        COPY4(c_old, &c[c_row * ldc + col + j * 64]);\n"
        "                        #pragma unroll\n"
        "                        for (int e = 0; e < 4; ++e) {\n"
        "                            c_values[e] = fma(beta, c_old[e], c_values[e]);\n"
        "                        }\n"
        "                    }\n"
        "                    COPY4(&c[c_row * ldc + col + j * 64], c_values);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        if (col + j * 64 + e < n) {\n"
        "                            c[c_row * ldc + col + j * 64 + e] =\n"
        "                                beta == 0.0f ? alpha * acc[i][j * 4 + e]\n"
        "                                             : fma(beta, c[c_row * ldc + col + j * 64 + e],\n"
        "                                                 alpha * acc[i][j * 4 + e]);\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n"
        "\n"
        "#undef COPY4\n",
};

static struct kernel sgemm_nt_tile_8x8 = {
    .name = "sgemm_nt_tile_8x8",
    .options = "-cl-std=CL1.2",
    .extensions = "",
    .local_bytes = 0,
    .vector_bytes = 0,
    .device = ANY,
    .sub_group = 0,
    .group_rows = 16,
    .group_columns = 16,
    .block_rows = 128,
    .block_columns = 128,
    .groups_down = 1,
    .groups_across = 1,
    .text =
        "// sgemm_nt_tile_8x8: C = alpha * A * B + beta * C; float32; B col-major\n"
        "//\n"
        "// Schedule   8x8 of C per work-item, 16x16 work-items per group (128x128 of C), 4 along K per\n"
        "//            iteration, stores of 4 elements\n"
        "// A          buffer, loads of 4 elements\n"
        "// B          buffer, loads of 4 elements\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {16, 16}, global size {(n + 127) / 128 * 16, (m + 127) / 128 * 16}\n"
        "// Needs      on Intel's GPUs, and only there, the build option -cl-intel-256-GRF-per-thread\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "// 4 neighbouring elements, at any alignment.\n"
        "#define COPY4(to, from) vstore4(vload4(0, from), 0, to)\n"
        "\n"
        "__attribute__((reqd_work_group_size(16, 16, 1)))\n"
        "__kernel void sgemm_nt_tile_8x8(int m, int n, int k, float alpha, __global const float *restrict a,\n"
        "                                int lda, __global const float *restrict b, int ldb, float beta,\n"
        "                                __global float *restrict c, int ldc)\n"
        "{\n"
        "    const int row = (int)get_group_id(1) * 128 + (int)get_local_id(1) * 4;\n"
        "    const int col = (int)get_group_id(0) * 128 + (int)get_local_id(0) * 4;\n"
        "    const int k_main = k - k % 4;\n"
        "\n"
        "    float acc[8][8];\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 8; ++i) {\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 8; ++j) {\n"
        "            acc[i][j] = 0.0f;\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // Whole steps of 4 along K.\n"
        "    for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "        float a_frag[8][4];\n"
        "        float b_frag[8][4];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 8; ++i) {\n"
        "            COPY4(a_frag[i], &a[min(row + i / 4 * 64 + i % 4, m - 1) * lda + k0]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 8; ++j) {\n"
        "            COPY4(b_frag[j], &b[min(col + j / 4 * 64 + j % 4, n - 1) * ldb + k0]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int p = 0; p < 4; ++p) {\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 8; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 8; ++j) {\n"
        "                    acc[i][j] = fma(a_frag[i][p], b_frag[j][p], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "    if (k_main < k) {\n"
        "        // The rest of K; what lies past it counts as zero.\n"
        "        float a_frag[8][4];\n"
        "        float b_frag[8][4];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 8; ++i) {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                a_frag[i][e] =\n"
        "                    k_main + e < k ? a[min(row + i / 4 * 64 + i % 4, m - 1) * lda + k_main + e]\n"
        "                                   : 0.0f;\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 8; ++j) {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                b_frag[j][e] =\n"
        "                    k_main + e < k ? b[min(col + j / 4 * 64 + j % 4, n - 1) * ldb + k_main + e]\n"
        "                                   : 0.0f;\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int p = 0; p < 4; ++p) {\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 8; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 8; ++j) {\n"
        "                    acc[i][j] = fma(a_frag[i][p], b_frag[j][p], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // C = alpha * A * B + beta * C; C is not read where beta is zero.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 8; ++i) {\n"
        "        const int c_row = row + i / 4 * 64 + i % 4;\n"
        "        if (c_row < m) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 2; ++j) {\n"
        "                if (col + j * 64 + 4 <= n) {\n"
        "                    float c_values[4];\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        c_values[e] = alpha * acc[i][j * 4 + e];\n"
        "                    }\n"
        "                    if (beta != 0.0f) {\n"
        "                        float c_old[4];\n"
        "                        COPY4(c_old, &c[c_row * ldc + col + j * 64]);\n"
        "                        #pragma unroll\n"
        "                        for (int e = 0; e < 4; ++e) {\n"
        "                            c_values[e] = fma(beta, c_old[e], c_values[e]);\n"
        "                        }\n"
        "                    }\n"
        "                    COPY4(&c[c_row * ldc + col + j * 64], c_values);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        if (col + j * 64 + e < n) {\n"
        "                            c[c_row * ldc + col + j * 64 + e] =\n"
        "                                beta == 0.0f ? alpha * acc[i][j * 4 + e]\n"
        "                                             : fma(beta, c[c_row * ldc + col + j * 64 + e],\n"
        "                                                 alpha * acc[i][j * 4 + e]);\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n"
        "\n"
        "#undef COPY4\n",
};

static struct kernel sgemm_tn_tile_8x8 = {
    .name = "sgemm_tn_tile_8x8",
    .options = "-cl-std=CL1.2",
    .extensions = "",
    .local_bytes = 0,
    .vector_bytes = 0,
    .device = ANY,
    .sub_group = 0,
    .group_rows = 16,
    .group_columns = 16,
    .block_rows = 128,
    .block_columns = 128,
    .groups_down = 1,
    .groups_across = 1,
    .text =
        "// sgemm_tn_tile_8x8: C = alpha * A * B + beta * C; float32; A col-major\n"
        "//\n"
        "// Schedule   8x8 of C per work-item, 16x16 work-items per group (128x128 of C), 4 along K per\n"
        "//            iteration, stores of 4 elements\n"
        "// A          buffer, loads of 4 elements\n"
        "// B          buffer, loads of 4 elements\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {16, 16}, global size {(n + 127) / 128 * 16, (m + 127) / 128 * 16}\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "// 4 neighbouring elements, at any alignment.\n"
        "#define COPY4(to, from) vstore4(vload4(0, from), 0, to)\n"
        "\n"
        "__attribute__((reqd_work_group_size(16, 16, 1)))\n"
        "__kernel void sgemm_tn_tile_8x8(int m, int n, int k, float alpha, __global const float *restrict a,\n"
        "                                int lda, __global const float *restrict b, int ldb, float beta,\n"
        "                                __global float *restrict c, int ldc)\n"
        "{\n"
        "    const int row0 = (int)get_group_id(1) * 128;\n"
        "    const int col0 = (int)get_group_id(0) * 128;\n"
        "    const int row = row0 + (int)get_local_id(1) * 4;\n"
        "    const int col = col0 + (int)get_local_id(0) * 4;\n"
        "    const int k_main = k - k % 4;\n"
        "\n"
        "    float acc[8][8];\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 8; ++i) {\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 8; ++j) {\n"
        "            acc[i][j] = 0.0f;\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // Whole steps of 4 along K.\n"
        "    if (row0 + 128 <= m && col0 + 128 <= n) {\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "            #pragma unroll\n"
        "            for (int kk = 0; kk < 4; ++kk) {\n"
        "                float a_frag[8];\n"
        "                float b_frag[8];\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 2; ++i) {\n"
        "                    COPY4(&a_frag[i * 4], &a[(k0 + kk) * lda + row + i * 64]);\n"
        "                }\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 2; ++j) {\n"
        "                    COPY4(&b_frag[j * 4], &b[(k0 + kk) * ldb + col + j * 64]);\n"
        "                }\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 8; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 8; ++j) {\n"
        "                        acc[i][j] = fma(a_frag[i], b_frag[j], acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    } else {\n"
        "        // At the edge of C, each load asks whether it is inside.\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "            #pragma unroll\n"
        "            for (int kk = 0; kk < 4; ++kk) {\n"
        "                float a_frag[8];\n"
        "                float b_frag[8];\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 2; ++i) {\n"
        "                    if (row + i * 64 + 4 <= m) {\n"
        "                        COPY4(&a_frag[i * 4], &a[(k0 + kk) * lda + row + i * 64]);\n"
        "                    } else {\n"
        "                        #pragma unroll\n"
        "                        for (int e = 0; e < 4; ++e) {\n"
        "                            a_frag[i * 4 + e] = a[(k0 + kk) * lda + min(row + i * 64 + e, m - 1)];\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 2; ++j) {\n"
        "                    if (col + j * 64 + 4 <= n) {\n"
        "                        COPY4(&b_frag[j * 4], &b[(k0 + kk) * ldb + col + j * 64]);\n"
        "                    } else {\n"
        "                        #pragma unroll\n"
        "                        for (int e = 0; e < 4; ++e) {\n"
        "                            b_frag[j * 4 + e] = b[(k0 + kk) * ldb + min(col + j * 64 + e, n - 1)];\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 8; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 8; ++j) {\n"
        "                        acc[i][j] = fma(a_frag[i], b_frag[j], acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "    if (k_main < k) {\n"
        "        // The rest of K; what lies past it counts as zero.\n"
        "        #pragma unroll\n"
        "        for (int kk = 0; kk < 4; ++kk) {\n"
        "            float a_frag[8];\n"
        "            float b_frag[8];\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 2; ++i) {\n"
        "                if (k_main + kk < k && row + i * 64 + 4 <= m) {\n"
        "                    COPY4(&a_frag[i * 4], &a[(k_main + kk) * lda + row + i * 64]);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        a_frag[i * 4 + e] =\n"
        "                            k_main + kk < k ? a[(k_main + kk) * lda + min(row + i * 64 + e, m - 1)]\n"
        "                                            : 0.0f;\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 2; ++j) {\n"
        "                if (k_main + kk < k && col + j * 64 + 4 <= n) {\n"
        "                    COPY4(&b_frag[j * 4], &b[(k_main + kk) * ldb + col + j * 64]);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        b_frag[j * 4 + e] =\n"
        "                            k_main + kk < k ? b[(k_main + kk) * ldb + min(col + j * 64 + e, n - 1)]\n"
        "                                            : 0.0f;\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 8; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 8; ++j) {\n"
        "                    acc[i][j] = fma(a_frag[i], b_frag[j], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // C = alpha * A * B + beta * C; C is not read where beta is zero.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 8; ++i) {\n"
        "        const int c_row = row + i / 4 * 64 + i % 4;\n"
        "        if (c_row < m) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 2; ++j) {\n"
        "                if (col + j * 64 + 4 <= n) {\n"
        "                    float c_values[4];\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        c_values[e] = alpha * acc[i][j * 4 + e];\n"
        "                    }\n"
        "                    if (beta != 0.0f) {\n"
        "                        float c_old[4];\n"
        "                        COPY4(c_old, &c[c_row * ldc + col + j * 64]);\n"
        "                        #pragma unroll\n"
        "                        for (int e = 0; e < 4; ++e) {\n"
        "                            c_values[e] = fma(beta, c_old[e], c_values[e]);\n"
        "                        }\n"
        "                    }\n"
        "                    COPY4(&c[c_row * ldc + col + j * 64], c_values);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        if (col + j * 64 + e < n) {\n"
        "                            c[c_row * ldc + col + j * 64 + e] =\n"
        "                                beta == 0.0f ? alpha * acc[i][j * 4 + e]\n"
        "                                             : fma(beta, c[c_row * ldc + col + j * 64 + e],\n"
        "                                                 alpha * acc[i][j * 4 + e]);\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n"
        "\n"
        "#undef COPY4\n",
};

static struct kernel sgemm_tt_tile_8x8 = {
    .name = "sgemm_tt_tile_8x8",
    .options = "-cl-std=CL1.2",
    .extensions = "",
    .local_bytes = 0,
    .vector_bytes = 0,
    .device = ANY,
    .sub_group = 0,
    .group_rows = 16,
    .group_columns = 16,
    .block_rows = 128,
    .block_columns = 128,
    .groups_down = 1,
    .groups_across = 1,
    .text =
        "// sgemm_tt_tile_8x8: C = alpha * A * B + beta * C; float32; A col-major, B col-major\n"
        "//\n"
        "// Schedule   8x8 of C per work-item, 16x16 work-items per group (128x128 of C), 4 along K per\n"
        "//            iteration, stores of 4 elements\n"
        "// A          buffer, loads of 4 elements\n"
        "// B          buffer, loads of 4 elements\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {16, 16}, global size {(n + 127) / 128 * 16, (m + 127) / 128 * 16}\n"
        "// Needs      on Intel's GPUs, and only there, the build option -cl-intel-256-GRF-per-thread\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "// 4 neighbouring elements, at any alignment.\n"
        "#define COPY4(to, from) vstore4(vload4(0, from), 0, to)\n"
        "\n"
        "__attribute__((reqd_work_group_size(16, 16, 1)))\n"
        "__kernel void sgemm_tt_tile_8x8(int m, int n, int k, float alpha, __global const float *restrict a,\n"
        "                                int lda, __global const float *restrict b, int ldb, float beta,\n"
        "                                __global float *restrict c, int ldc)\n"
        "{\n"
        "    const int row0 = (int)get_group_id(1) * 128;\n"
        "    const int row = row0 + (int)get_local_id(1) * 4;\n"
        "    const int col = (int)get_group_id(0) * 128 + (int)get_local_id(0) * 4;\n"
        "    const int k_main = k - k % 4;\n"
        "\n"
        "    float acc[8][8];\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 8; ++i) {\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 8; ++j) {\n"
        "            acc[i][j] = 0.0f;\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // Whole steps of 4 along K.\n"
        "    if (row0 + 128 <= m) {\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "            float a_frag[4][8];\n"
        "            float b_frag[8][4];\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 2; ++i) {\n"
        "                    COPY4(&a_frag[j][i * 4], &a[(k0 + j) * lda + row + i * 64]);\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 8; ++j) {\n"
        "                COPY4(b_frag[j], &b[min(col + j / 4 * 64 + j % 4, n - 1) * ldb + k0]);\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int p = 0; p < 4; ++p) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 8; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 8; ++j) {\n"
        "                        acc[i][j] = fma(a_frag[p][i], b_frag[j][p], acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    } else {\n"
        "        // At the edge of C, each load asks whether it is inside.\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "            float a_frag[4][8];\n"
        "            float b_frag[8][4];\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 2; ++i) {\n"
        "                    if (row + i * 64 + 4 <= m) {\n"
        "                        COPY4(&a_frag[j][i * 4], &a[(k0 + j) * lda + row + i * 64]);\n"
        "                    } else {\n"
        "                        #pragma unroll\n"
        "                        for (int e = 0; e < 4; ++e) {\n"
        "                            a_frag[j][i * 4 + e] = a[(k0 + j) * lda + min(row + i * 64 + e, m - 1)];\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 8; ++j) {\n"
        "                COPY4(b_frag[j], &b[min(col + j / 4 * 64 + j % 4, n - 1) * ldb + k0]);\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int p = 0; p < 4; ++p) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 8; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 8; ++j) {\n"
        "                        acc[i][j] = fma(a_frag[p][i], b_frag[j][p], acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "    if (k_main < k) {\n"
        "        // The rest of K; what lies past it counts as zero.\n"
        "        float a_frag[4][8];\n"
        "        float b_frag[8][4];\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 2; ++i) {\n"
        "                if (k_main + j < k && row + i * 64 + 4 <= m) {\n"
        "                    COPY4(&a_frag[j][i * 4], &a[(k_main + j) * lda + row + i * 64]);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        a_frag[j][i * 4 + e] =\n"
        "                            k_main + j < k ? a[(k_main + j) * lda + min(row + i * 64 + e, m - 1)]\n"
        "                                           : 0.0f;\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 8; ++j) {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                b_frag[j][e] =\n"
        "                    k_main + e < k ? b[min(col + j / 4 * 64 + j % 4, n - 1) * ldb + k_main + e]\n"
        "                                   : 0.0f;\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int p = 0; p < 4; ++p) {\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 8; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 8; ++j) {\n"
        "                    acc[i][j] = fma(a_frag[p][i], b_frag[j][p], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // C = alpha * A * B + beta * C; C is not read where beta is zero.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 8; ++i) {\n"
        "        const int c_row = row + i / 4 * 64 + i % 4;\n"
        "        if (c_row < m) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 2; ++j) {\n"
        "                if (col + j * 64 + 4 <= n) {\n"
        "                    float c_values[4];\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        c_values[e] = alpha * acc[i][j * 4 + e];\n"
        "                    }\n"
        "                    if (beta != 0.0f) {\n"
        "                        float c_old[4];\n"
        "                        COPY4(c_old, &c[c_row * ldc + col + j * 64]);\n"
        "                        #pragma unroll\n"
        "                        for (int e = 0; e < 4; ++e) {\n"
        "                            c_values[e] = fma(beta, c_old[e], c_values[e]);\n"
        "                        }\n"
        "                    }\n"
        "                    COPY4(&c[c_row * ldc + col + j * 64], c_values);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        if (col + j * 64 + e < n) {\n"
        "                            c[c_row * ldc + col + j * 64 + e] =\n"
        "                                beta == 0.0f ? alpha * acc[i][j * 4 + e]\n"
        "                                             : fma(beta, c[c_row * ldc + col + j * 64 + e],\n"
        "                                                 alpha * acc[i][j * 4 + e]);\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n"
        "\n"
        "#undef COPY4\n",
};

static struct kernel dgemm_nn_cpu_6x16_v8_copied = {
    .name = "dgemm_nn_cpu_6x16_v8_copied",
    .options = "-cl-std=CL1.2",
    .extensions = "cl_khr_fp64 ",
    .local_bytes = 0,
    .vector_bytes = 64,
    .device = CPU,
    .sub_group = 0,
    .group_rows = 1,
    .group_columns = 1,
    .block_rows = 1032,
    .block_columns = 256,
    .groups_down = 2,
    .groups_across = 1,
    .text =
        "// dgemm_nn_cpu_6x16_v8_copied: C = alpha * A * B + beta * C; float64\n"
        "//\n"
        "// Schedule   6x16 of C at a time, in vectors of 8, up to 86x16 of those per work-item, one after\n"
        "//            the other, groups in multiples of 2x1, 384 along K at a time\n"
        "// A          buffer, loads of single elements\n"
        "// B          buffer, loads of 8 elements, through a copy of a block in private memory\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {1, 1}, global size {(n + 255) / 256, (m + 1031) / 1032 * 2}\n"
        "// Needs      786,432 bytes of private memory for each work-item, beside its registers\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
        "\n"
        "__attribute__((reqd_work_group_size(1, 1, 1)))\n"
        "__kernel void dgemm_nn_cpu_6x16_v8_copied(int m, int n, int k, double alpha,\n"
        "                                          __global const double *restrict a, int lda,\n"
        "                                          __global const double *restrict b, int ldb, double beta,\n"
        "                                          __global double *restrict c, int ldc)\n"
        "{\n"
        "    const int blocks_down = (m + 1031) / 1032 * 2;\n"
        "    const int blocks_across = (n + 255) / 256;\n"
        "    const int rows_each = ((m + 5) / 6 + blocks_down - 1) / blocks_down * 6;\n"
        "    const int row_begin = min(m, (int)get_group_id(1) * rows_each);\n"
        "    const int row_end = min(m, row_begin + rows_each);\n"
        "    const int cols_each = ((n + 15) / 16 + blocks_across - 1) / blocks_across * 16;\n"
        "    const int col_begin = min(n, (int)get_group_id(0) * cols_each);\n"
        "    const int col_end = min(n, col_begin + cols_each);\n"
        "\n"
        "    double8 b_block[16][384][2];\n"
        "    for (int k_block = 0; k_block < (0 < k ? k : 1); k_block += 384) {\n"
        "        const int k_depth = min(384, k - k_block);\n"
        "\n"
        "        // A block of B, up to 384 deep, in the order that it is read in.\n"
        "        for (int k0 = 0; k0 < k_depth; ++k0) {\n"
        "            for (int col0 = col_begin; col0 < col_end; col0 += 16) {\n"
        "                const int panel = (col0 - col_begin) / 16;\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 2; ++j) {\n"
        "                    if (col0 + j * 8 + 8 <= n) {\n"
        "                        b_block[panel][k0][j] = vload8(0, &b[(k_block + k0) * ldb + col0 + j * 8]);\n"
        "                    } else {\n"
        "                        for (int e = 0; e < 8; ++e) {\n"
        "                            ((double *)b_block[panel][k0])[j * 8 + e] =\n"
        "                                b[(k_block + k0) * ldb + min(col0 + j * 8 + e, n - 1)];\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "\n"
        "        // Sums wait in C from one block of K to the next.\n"
        "        const double beta_now = k_block == 0 ? beta : 1.0;\n"
        "        for (int col0 = col_begin; col0 < col_end; col0 += 16) {\n"
        "            const int panel = (col0 - col_begin) / 16;\n"
        "            for (int row0 = row_begin; row0 < row_end; row0 += 6) {\n"
        "                double8 acc[6][2];\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 6; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 2; ++j) {\n"
        "                        acc[i][j] = 0.0;\n"
        "                    }\n"
        "                }\n"
        "                __global const double *a_rows[6];\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 6; ++i) {\n"
        "                    a_rows[i] = &a[min(row0 + i, m - 1) * lda + k_block];\n"
        "                }\n"
        "                for (int k0 = 0; k0 < k_depth; ++k0) {\n"
        "                    double8 b_frag[2];\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 2; ++j) {\n"
        "                        b_frag[j] = b_block[panel][k0][j];\n"
        "                    }\n"
        "                    double a_frag[6];\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        a_frag[i] = a_rows[i][k0];\n"
        "                    }\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        #pragma unroll\n"
        "                        for (int j = 0; j < 2; ++j) {\n"
        "                            acc[i][j] = fma((double8)(a_frag[i]), b_frag[j], acc[i][j]);\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "\n"
        "                // C = alpha * A * B + beta * C; C is not read where beta is zero.\n"
        "                if (row0 + 6 <= m && col0 + 16 <= n) {\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        #pragma unroll\n"
        "                        for (int j = 0; j < 2; ++j) {\n"
        "                            double8 c_values = alpha * acc[i][j];\n"
        "                            if (beta_now != 0.0) {\n"
        "                                double8 c_old = vload8(0, &c[(row0 + i) * ldc + col0 + j * 8]);\n"
        "                                c_values = fma((double8)(beta_now), c_old, c_values);\n"
        "                            }\n"
        "                            vstore8(c_values, 0, &c[(row0 + i) * ldc + col0 + j * 8]);\n"
        "                        }\n"
        "                    }\n"
        "                } else {\n"
        "                    // At the edge of C, element by element.\n"
        "                    double c_part[6][16];\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        #pragma unroll\n"
        "                        for (int j = 0; j < 2; ++j) {\n"
        "                            vstore8(acc[i][j], 0, &c_part[i][j * 8]);\n"
        "                        }\n"
        "                    }\n"
        "                    for (int i = 0; i < min(6, m - row0); ++i) {\n"
        "                        for (int j = 0; j < min(16, n - col0); ++j) {\n"
        "                            c[(row0 + i) * ldc + col0 + j] =\n"
        "                                beta_now == 0.0 ? alpha * c_part[i][j]\n"
        "                                                : fma(beta_now, c[(row0 + i) * ldc + col0 + j],\n"
        "                                                    alpha * c_part[i][j]);\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n",
};

static struct kernel dgemm_nt_cpu_6x16_v8_copied = {
    .name = "dgemm_nt_cpu_6x16_v8_copied",
    .options = "-cl-std=CL1.2",
    .extensions = "cl_khr_fp64 ",
    .local_bytes = 0,
    .vector_bytes = 64,
    .device = CPU,
    .sub_group = 0,
    .group_rows = 1,
    .group_columns = 1,
    .block_rows = 1032,
    .block_columns = 256,
    .groups_down = 2,
    .groups_across = 1,
    .text =
        "// dgemm_nt_cpu_6x16_v8_copied: C = alpha * A * B + beta * C; float64; B col-major\n"
        "//\n"
        "// Schedule   6x16 of C at a time, in vectors of 8, up to 86x16 of those per work-item, one after\n"
        "//            the other, groups in multiples of 2x1, 384 along K at a time\n"
        "// A          buffer, loads of single elements\n"
        "// B          buffer, loads of single elements, through a copy of a block in private memory\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {1, 1}, global size {(n + 255) / 256, (m + 1031) / 1032 * 2}\n"
        "// Needs      786,432 bytes of private memory for each work-item, beside its registers\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
        "\n"
        "__attribute__((reqd_work_group_size(1, 1, 1)))\n"
        "__kernel void dgemm_nt_cpu_6x16_v8_copied(int m, int n, int k, double alpha,\n"
        "                                          __global const double *restrict a, int lda,\n"
        "                                          __global const double *restrict b, int ldb, double beta,\n"
        "                                          __global double *restrict c, int ldc)\n"
        "{\n"
        "    const int blocks_down = (m + 1031) / 1032 * 2;\n"
        "    const int blocks_across = (n + 255) / 256;\n"
        "    const int rows_each = ((m + 5) / 6 + blocks_down - 1) / blocks_down * 6;\n"
        "    const int row_begin = min(m, (int)get_group_id(1) * rows_each);\n"
        "    const int row_end = min(m, row_begin + rows_each);\n"
        "    const int cols_each = ((n + 15) / 16 + blocks_across - 1) / blocks_across * 16;\n"
        "    const int col_begin = min(n, (int)get_group_id(0) * cols_each);\n"
        "    const int col_end = min(n, col_begin + cols_each);\n"
        "\n"
        "    double8 b_block[16][384][2];\n"
        "    for (int k_block = 0; k_block < (0 < k ? k : 1); k_block += 384) {\n"
        "        const int k_depth = min(384, k - k_block);\n"
        "\n"
        "        // A block of B, up to 384 deep, in the order that it is read in.\n"
        "        for (int col0 = col_begin; col0 < col_end; col0 += 16) {\n"
        "            const int panel = (col0 - col_begin) / 16;\n"
        "            for (int j = 0; j < 16; ++j) {\n"
        "                for (int k0 = 0; k0 < k_depth; ++k0) {\n"
        "                    ((double *)b_block[panel][k0])[j] =\n"
        "                        b[min(col0 + j, n - 1) * ldb + k_block + k0];\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "\n"
        "        // Sums wait in C from one block of K to the next.\n"
        "        const double beta_now = k_block == 0 ? beta : 1.0;\n"
        "        for (int col0 = col_begin; col0 < col_end; col0 += 16) {\n"
        "            const int panel = (col0 - col_begin) / 16;\n"
        "            for (int row0 = row_begin; row0 < row_end; row0 += 6) {\n"
        "                double8 acc[6][2];\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 6; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 2; ++j) {\n"
        "                        acc[i][j] = 0.0;\n"
        "                    }\n"
        "                }\n"
        "                __global const double *a_rows[6];\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 6; ++i) {\n"
        "                    a_rows[i] = &a[min(row0 + i, m - 1) * lda + k_block];\n"
        "                }\n"
        "                for (int k0 = 0; k0 < k_depth; ++k0) {\n"
        "                    double8 b_frag[2];\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 2; ++j) {\n"
        "                        b_frag[j] = b_block[panel][k0][j];\n"
        "                    }\n"
        "                    double a_frag[6];\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        a_frag[i] = a_rows[i][k0];\n"
        "                    }\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        #pragma unroll\n"
        "                        for (int j = 0; j < 2; ++j) {\n"
        "                            acc[i][j] = fma((double8)(a_frag[i]), b_frag[j], acc[i][j]);\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "\n"
        "                // C = alpha * A * B + beta * C; C is not read where beta is zero.\n"
        "                if (row0 + 6 <= m && col0 + 16 <= n) {\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        #pragma unroll\n"
        "                        for (int j = 0; j < 2; ++j) {\n"
        "                            double8 c_values = alpha * acc[i][j];\n"
        "                            if (beta_now != 0.0) {\n"
        "                                double8 c_old = vload8(0, &c[(row0 + i) * ldc + col0 + j * 8]);\n"
        "                                c_values = fma((double8)(beta_now), c_old, c_values);\n"
        "                            }\n"
        "                            vstore8(c_values, 0, &c[(row0 + i) * ldc + col0 + j * 8]);\n"
        "                        }\n"
        "                    }\n"
        "                } else {\n"
        "                    // At the edge of C, element by element.\n"
        "                    double c_part[6][16];\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        #pragma unroll\n"
        "                        for (int j = 0; j < 2; ++j) {\n"
        "                            vstore8(acc[i][j], 0, &c_part[i][j * 8]);\n"
        "                        }\n"
        "                    }\n"
        "                    for (int i = 0; i < min(6, m - row0); ++i) {\n"
        "                        for (int j = 0; j < min(16, n - col0); ++j) {\n"
        "                            c[(row0 + i) * ldc + col0 + j] =\n"
        "                                beta_now == 0.0 ? alpha * c_part[i][j]\n"
        "                                                : fma(beta_now, c[(row0 + i) * ldc + col0 + j],\n"
        "                                                    alpha * c_part[i][j]);\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n",
};

static struct kernel dgemm_tn_cpu_6x16_v8_copied = {
    .name = "dgemm_tn_cpu_6x16_v8_copied",
    .options = "-cl-std=CL1.2",
    .extensions = "cl_khr_fp64 ",
    .local_bytes = 0,
    .vector_bytes = 64,
    .device = CPU,
    .sub_group = 0,
    .group_rows = 1,
    .group_columns = 1,
    .block_rows = 1032,
    .block_columns = 256,
    .groups_down = 2,
    .groups_across = 1,
    .text =
        "// dgemm_tn_cpu_6x16_v8_copied: C = alpha * A * B + beta * C; float64; A col-major\n"
        "//\n"
        "// Schedule   6x16 of C at a time, in vectors of 8, up to 86x16 of those per work-item, one after\n"
        "//            the other, groups in multiples of 2x1, 384 along K at a time\n"
        "// A          buffer, loads of single elements\n"
        "// B          buffer, loads of 8 elements, through a copy of a block in private memory\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {1, 1}, global size {(n + 255) / 256, (m + 1031) / 1032 * 2}\n"
        "// Needs      786,432 bytes of private memory for each work-item, beside its registers\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
        "\n"
        "__attribute__((reqd_work_group_size(1, 1, 1)))\n"
        "__kernel void dgemm_tn_cpu_6x16_v8_copied(int m, int n, int k, double alpha,\n"
        "                                          __global const double *restrict a, int lda,\n"
        "                                          __global const double *restrict b, int ldb, double beta,\n"
        "                                          __global double *restrict c, int ldc)\n"
        "{\n"
        "    const int blocks_down = (m + 1031) / 1032 * 2;\n"
        "    const int blocks_across = (n + 255) / 256;\n"
        "    const int rows_each = ((m + 5) / 6 + blocks_down - 1) / blocks_down * 6;\n"
        "    const int row_begin = min(m, (int)get_group_id(1) * rows_each);\n"
        "    const int row_end = min(m, row_begin + rows_each);\n"
        "    const int cols_each = ((n + 15) / 16 + blocks_across - 1) / blocks_across * 16;\n"
        "    const int col_begin = min(n, (int)get_group_id(0) * cols_each);\n"
        "    const int col_end = min(n, col_begin + cols_each);\n"
        "\n"
        "    double8 b_block[16][384][2];\n"
        "    for (int k_block = 0; k_block < (0 < k ? k : 1); k_block += 384) {\n"
        "        const int k_depth = min(384, k - k_block);\n"
        "\n"
        "        // A block of B, up to 384 deep, in the order that it is read in.\n"
        "        for (int k0 = 0; k0 < k_depth; ++k0) {\n"
        "            for (int col0 = col_begin; col0 < col_end; col0 += 16) {\n"
        "                const int panel = (col0 - col_begin) / 16;\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 2; ++j) {\n"
        "                    if (col0 + j * 8 + 8 <= n) {\n"
        "                        b_block[panel][k0][j] = vload8(0, &b[(k_block + k0) * ldb + col0 + j * 8]);\n"
        "                    } else {\n"
        "                        for (int e = 0; e < 8; ++e) {\n"
        "                            ((double *)b_block[panel][k0])[j * 8 + e] =\n"
        "                                b[(k_block + k0) * ldb + min(col0 + j * 8 + e, n - 1)];\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "\n"
        "        // Sums wait in C from one block of K to the next.\n"
        "        const double beta_now = k_block == 0 ? beta : 1.0;\n"
        "        for (int col0 = col_begin; col0 < col_end; col0 += 16) {\n"
        "            const int panel = (col0 - col_begin) / 16;\n"
        "            for (int row0 = row_begin; row0 < row_end; row0 += 6) {\n"
        "                double8 acc[6][2];\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 6; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 2; ++j) {\n"
        "                        acc[i][j] = 0.0;\n"
        "                    }\n"
        "                }\n"
        "                for (int k0 = 0; k0 < k_depth; ++k0) {\n"
        "                    double8 b_frag[2];\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 2; ++j) {\n"
        "                        b_frag[j] = b_block[panel][k0][j];\n"
        "                    }\n"
        "                    double a_frag[6];\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        a_frag[i] = a[(k_block + k0) * lda + min(row0 + i, m - 1)];\n"
        "                    }\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        #pragma unroll\n"
        "                        for (int j = 0; j < 2; ++j) {\n"
        "                            acc[i][j] = fma((double8)(a_frag[i]), b_frag[j], acc[i][j]);\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "\n"
        "                // C = alpha * A * B + beta * C; C is not read where beta is zero.\n"
        "                if (row0 + 6 <= m && col0 + 16 <= n) {\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        #pragma unroll\n"
        "                        for (int j = 0; j < 2; ++j) {\n"
        "                            double8 c_values = alpha * acc[i][j];\n"
        "                            if (beta_now != 0.0) {\n"
        "                                double8 c_old = vload8(0, &c[(row0 + i) * ldc + col0 + j * 8]);\n"
        "                                c_values = fma((double8)(beta_now), c_old, c_values);\n"
        "                            }\n"
        "                            vstore8(c_values, 0, &c[(row0 + i) * ldc + col0 + j * 8]);\n"
        "                        }\n"
        "                    }\n"
        "                } else {\n"
        "                    // At the edge of C, element by element.\n"
        "                    double c_part[6][16];\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        #pragma unroll\n"
        "                        for (int j = 0; j < 2; ++j) {\n"
        "                            vstore8(acc[i][j], 0, &c_part[i][j * 8]);\n"
        "                        }\n"
        "                    }\n"
        "                    for (int i = 0; i < min(6, m - row0); ++i) {\n"
        "                        for (int j = 0; j < min(16, n - col0); ++j) {\n"
        "                            c[(row0 + i) * ldc + col0 + j] =\n"
        "                                beta_now == 0.0 ? alpha * c_part[i][j]\n"
        "                                                : fma(beta_now, c[(row0 + i) * ldc + col0 + j],\n"
        "                                                    alpha * c_part[i][j]);\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n",
};

static struct kernel dgemm_tt_cpu_6x16_v8_copied = {
    .name = "dgemm_tt_cpu_6x16_v8_copied",
    .options = "-cl-std=CL1.2",
    .extensions = "cl_khr_fp64 ",
    .local_bytes = 0,
    .vector_bytes = 64,
    .device = CPU,
    .sub_group = 0,
    .group_rows = 1,
    .group_columns = 1,
    .block_rows = 1032,
    .block_columns = 256,
    .groups_down = 2,
    .groups_across = 1,
    .text =
        "// dgemm_tt_cpu_6x16_v8_copied: C = alpha * A * B + beta * C; float64; A col-major, B col-major\n"
        "//\n"
        "// Schedule   6x16 of C at a time, in vectors of 8, up to 86x16 of those per work-item, one after\n"
        "//            the other, groups in multiples of 2x1, 384 along K at a time\n"
        "// A          buffer, loads of single elements\n"
        "// B          buffer, loads of single elements, through a copy of a block in private memory\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {1, 1}, global size {(n + 255) / 256, (m + 1031) / 1032 * 2}\n"
        "// Needs      786,432 bytes of private memory for each work-item, beside its registers\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
        "\n"
        "__attribute__((reqd_work_group_size(1, 1, 1)))\n"
        "__kernel void dgemm_tt_cpu_6x16_v8_copied(int m, int n, int k, double alpha,\n"
        "                                          __global const double *restrict a, int lda,\n"
        "                                          __global const double *restrict b, int ldb, double beta,\n"
        "                                          __global double *restrict c, int ldc)\n"
        "{\n"
        "    const int blocks_down = (m + 1031) / 1032 * 2;\n"
        "    const int blocks_across = (n + 255) / 256;\n"
        "    const int rows_each = ((m + 5) / 6 + blocks_down - 1) / blocks_down * 6;\n"
        "    const int row_begin = min(m, (int)get_group_id(1) * rows_each);\n"
        "    const int row_end = min(m, row_begin + rows_each);\n"
        "    const int cols_each = ((n + 15) / 16 + blocks_across - 1) / blocks_across * 16;\n"
        "    const int col_begin = min(n, (int)get_group_id(0) * cols_each);\n"
        "    const int col_end = min(n, col_begin + cols_each);\n"
        "\n"
        "    double8 b_block[16][384][2];\n"
        "    for (int k_block = 0; k_block < (0 < k ? k : 1); k_block += 384) {\n"
        "        const int k_depth = min(384, k - k_block);\n"
        "\n"
        "        // A block of B, up to 384 deep, in the order that it is read in.\n"
        "        for (int col0 = col_begin; col0 < col_end; col0 += 16) {\n"
        "            const int panel = (col0 - col_begin) / 16;\n"
        "            for (int j = 0; j < 16; ++j) {\n"
        "                for (int k0 = 0; k0 < k_depth; ++k0) {\n"
        "                    ((double *)b_block[panel][k0])[j] =\n"
        "                        b[min(col0 + j, n - 1) * ldb + k_block + k0];\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "\n"
        "        // Sums wait in C from one block of K to the next.\n"
        "        const double beta_now = k_block == 0 ? beta : 1.0;\n"
        "        for (int col0 = col_begin; col0 < col_end; col0 += 16) {\n"
        "            const int panel = (col0 - col_begin) / 16;\n"
        "            for (int row0 = row_begin; row0 < row_end; row0 += 6) {\n"
        "                double8 acc[6][2];\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 6; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 2; ++j) {\n"
        "                        acc[i][j] = 0.0;\n"
        "                    }\n"
        "                }\n"
        "                for (int k0 = 0; k0 < k_depth; ++k0) {\n"
        "                    double8 b_frag[2];\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 2; ++j) {\n"
        "                        b_frag[j] = b_block[panel][k0][j];\n"
        "                    }\n"
        "                    double a_frag[6];\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        a_frag[i] = a[(k_block + k0) * lda + min(row0 + i, m - 1)];\n"
        "                    }\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        #pragma unroll\n"
        "                        for (int j = 0; j < 2; ++j) {\n"
        "                            acc[i][j] = fma((double8)(a_frag[i]), b_frag[j], acc[i][j]);\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "\n"
        "                // C = alpha * A * B + beta * C; C is not read where beta is zero.\n"
        "                if (row0 + 6 <= m && col0 + 16 <= n) {\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        #pragma unroll\n"
        "                        for (int j = 0; j < 2; ++j) {\n"
        "                            double8 c_values = alpha * acc[i][j];\n"
        "                            if (beta_now != 0.0) {\n"
        "                                double8 c_old = vload8(0, &c[(row0 + i) * ldc + col0 + j * 8]);\n"
        "                                c_values = fma((double8)(beta_now), c_old, c_values);\n"
        "                            }\n"
        "                            vstore8(c_values, 0, &c[(row0 + i) * ldc + col0 + j * 8]);\n"
        "                        }\n"
        "                    }\n"
        "                } else {\n"
        "                    // At the edge of C, element by element.\n"
        "                    double c_part[6][16];\n"
        "                    #pragma unroll\n"
        "                    for (int i = 0; i < 6; ++i) {\n"
        "                        #pragma unroll\n"
        "                        for (int j = 0; j < 2; ++j) {\n"
        "                            vstore8(acc[i][j], 0, &c_part[i][j * 8]);\n"
        "                        }\n"
        "                    }\n"
        "                    for (int i = 0; i < min(6, m - row0); ++i) {\n"
        "                        for (int j = 0; j < min(16, n - col0); ++j) {\n"
        "                            c[(row0 + i) * ldc + col0 + j] =\n"
        "                                beta_now == 0.0 ? alpha * c_part[i][j]\n"
        "                                                : fma(beta_now, c[(row0 + i) * ldc + col0 + j],\n"
        "                                                    alpha * c_part[i][j]);\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n",
};

static struct kernel dgemm_nn_sg16_block_16x2 = {
    .name = "dgemm_nn_sg16_block_16x2",
    .options = "-cl-std=CL2.0",
    .extensions = "cl_khr_fp64 cl_intel_subgroups cl_intel_required_subgroup_size ",
    .local_bytes = 0,
    .vector_bytes = 0,
    .device = ANY,
    .sub_group = 16,
    .group_rows = 1,
    .group_columns = 16,
    .block_rows = 16,
    .block_columns = 32,
    .groups_down = 1,
    .groups_across = 1,
    .text =
        "// dgemm_nn_sg16_block_16x2: C = alpha * A * B + beta * C; float64\n"
        "//\n"
        "// Schedule   16x2 of C per work-item, 1x16 work-items per group (16x32 of C), 16 along K per\n"
        "//            iteration\n"
        "// A          buffer, loads of single elements, passed around the sub-group by shuffles\n"
        "// B          buffer, loads of single elements\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {16, 1}, global size {(n + 31) / 32 * 16, (m + 15) / 16}\n"
        "// Needs      cl_intel_subgroups, cl_intel_required_subgroup_size, sub-groups of 16\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL2.0\", ...)\n"
        "\n"
        "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
        "#pragma OPENCL EXTENSION cl_intel_subgroups : enable\n"
        "\n"
        "__attribute__((reqd_work_group_size(16, 1, 1)))\n"
        "__attribute__((intel_reqd_sub_group_size(16)))\n"
        "__kernel void dgemm_nn_sg16_block_16x2(int m, int n, int k, double alpha,\n"
        "                                       __global const double *restrict a, int lda,\n"
        "                                       __global const double *restrict b, int ldb, double beta,\n"
        "                                       __global double *restrict c, int ldc)\n"
        "{\n"
        "    const int lane = (int)get_sub_group_local_id();\n"
        "    const int row0 = (int)get_group_id(1) * 16;\n"
        "    const int col = (int)get_group_id(0) * 32 + lane;\n"
        "    const int k_main = k - k % 16;\n"
        "\n"
        "    double acc[16][2];\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 16; ++i) {\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 2; ++j) {\n"
        "            acc[i][j] = 0.0;\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // Whole steps of 16 along K.\n"
        "    for (int k0 = 0; k0 < k_main; k0 += 16) {\n"
        "        double b_frag[16][2];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 16; ++i) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 2; ++j) {\n"
        "                b_frag[i][j] = b[(k0 + i) * ldb + min(col + j * 16, n - 1)];\n"
        "            }\n"
        "        }\n"
        "        double a_frag[16];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 16; ++i) {\n"
        "            a_frag[i] = a[min(row0 + i, m - 1) * lda + k0 + lane];\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 16; ++i) {\n"
        "            #pragma unroll\n"
        "            for (int p = 0; p < 16; ++p) {\n"
        "                const double a_value = intel_sub_group_shuffle(a_frag[i], p);\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 2; ++j) {\n"
        "                    acc[i][j] = fma(a_value, b_frag[p][j], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "    if (k_main < k) {\n"
        "        // The rest of K; what lies past it counts as zero.\n"
        "        double b_frag[16][2];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 16; ++i) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 2; ++j) {\n"
        "                b_frag[i][j] =\n"
        "                    k_main + i < k ? b[(k_main + i) * ldb + min(col + j * 16, n - 1)] : 0.0;\n"
        "            }\n"
        "        }\n"
        "        double a_frag[16];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 16; ++i) {\n"
        "            a_frag[i] = k_main + lane < k ? a[min(row0 + i, m - 1) * lda + k_main + lane] : 0.0;\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 16; ++i) {\n"
        "            #pragma unroll\n"
        "            for (int p = 0; p < 16; ++p) {\n"
        "                const double a_value = intel_sub_group_shuffle(a_frag[i], p);\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 2; ++j) {\n"
        "                    acc[i][j] = fma(a_value, b_frag[p][j], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // C = alpha * A * B + beta * C; C is not read where beta is zero.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 16; ++i) {\n"
        "        if (row0 + i < m) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 2; ++j) {\n"
        "                if (col + j * 16 < n) {\n"
        "                    c[(row0 + i) * ldc + col + j * 16] =\n"
        "                        beta == 0.0 ? alpha * acc[i][j]\n"
        "                                    : fma(beta, c[(row0 + i) * ldc + col + j * 16],\n"
        "                                        alpha * acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n",
};

static struct kernel dtranspose = {
    .name = "dtranspose",
    .options = "-cl-std=CL2.0",
    .extensions = "cl_khr_fp64 cl_intel_subgroups cl_intel_required_subgroup_size ",
    .local_bytes = 0,
    .vector_bytes = 0,
    .device = ANY,
    .sub_group = 16,
    .group_rows = 1,
    .group_columns = 16,
    .block_rows = 16,
    .block_columns = 16,
    .groups_down = 1,
    .groups_across = 1,
    .text =
        "// dtranspose: B = transpose of A; float64\n"
        "//\n"
        "// Schedule   16x16 of A per sub-group, transposed by 4 rounds of shuffles\n"
        "// Launch     local size {16, 1}, global size {(cols + 15) / 16 * 16, (rows + 15) / 16}\n"
        "// Needs      cl_intel_subgroups, cl_intel_required_subgroup_size, sub-groups of 16\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL2.0\", ...)\n"
        "\n"
        "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
        "#pragma OPENCL EXTENSION cl_intel_subgroups : enable\n"
        "\n"
        "__attribute__((reqd_work_group_size(16, 1, 1)))\n"
        "__attribute__((intel_reqd_sub_group_size(16)))\n"
        "__kernel void dtranspose(int rows, int cols, __global const double *restrict a, int lda,\n"
        "                         __global double *restrict b, int ldb)\n"
        "{\n"
        "    const int lane = (int)get_sub_group_local_id();\n"
        "    const int row0 = (int)get_group_id(1) * 16;\n"
        "    const int col0 = (int)get_group_id(0) * 16;\n"
        "\n"
        "    double tile[16];\n"
        "\n"
        "    // Each lane reads a column of the block.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 16; ++i) {\n"
        "        tile[i] = a[min(row0 + i, rows - 1) * lda + min(col0 + lane, cols - 1)];\n"
        "    }\n"
        "\n"
        "    // Exchange between lanes that differ in bit 1 of their number.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 8; ++i) {\n"
        "        const int low = i * 2;\n"
        "        const bool is_low = (lane & 1) == 0;\n"
        "        const double received = intel_sub_group_shuffle_xor(is_low ? tile[low + 1] : tile[low], 1);\n"
        "        tile[low] = is_low ? tile[low] : received;\n"
        "        tile[low + 1] = is_low ? received : tile[low + 1];\n"
        "    }\n"
        "\n"
        "    // Exchange between lanes that differ in bit 2 of their number.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 8; ++i) {\n"
        "        const int low = i / 2 * 4 + i % 2;\n"
        "        const bool is_low = (lane & 2) == 0;\n"
        "        const double received = intel_sub_group_shuffle_xor(is_low ? tile[low + 2] : tile[low], 2);\n"
        "        tile[low] = is_low ? tile[low] : received;\n"
        "        tile[low + 2] = is_low ? received : tile[low + 2];\n"
        "    }\n"
        "\n"
        "    // Exchange between lanes that differ in bit 4 of their number.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 8; ++i) {\n"
        "        const int low = i / 4 * 8 + i % 4;\n"
        "        const bool is_low = (lane & 4) == 0;\n"
        "        const double received = intel_sub_group_shuffle_xor(is_low ? tile[low + 4] : tile[low], 4);\n"
        "        tile[low] = is_low ? tile[low] : received;\n"
        "        tile[low + 4] = is_low ? received : tile[low + 4];\n"
        "    }\n"
        "\n"
        "    // Exchange between lanes that differ in bit 8 of their number.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 8; ++i) {\n"
        "        const int low = i / 8 * 16 + i % 8;\n"
        "        const bool is_low = (lane & 8) == 0;\n"
        "        const double received = intel_sub_group_shuffle_xor(is_low ? tile[low + 8] : tile[low], 8);\n"
        "        tile[low] = is_low ? tile[low] : received;\n"
        "        tile[low + 8] = is_low ? received : tile[low + 8];\n"
        "    }\n"
        "\n"
        "    // Each lane now holds a row.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 16; ++i) {\n"
        "        if (col0 + i < cols && row0 + lane < rows) {\n"
        "            b[(col0 + i) * ldb + row0 + lane] = tile[i];\n"
        "        }\n"
        "    }\n"
        "}\n",
};

static struct kernel dgemm_tn_sg16_block_16x2 = {
    .name = "dgemm_tn_sg16_block_16x2",
    .options = "-cl-std=CL2.0",
    .extensions = "cl_khr_fp64 cl_intel_subgroups cl_intel_required_subgroup_size ",
    .local_bytes = 0,
    .vector_bytes = 0,
    .device = ANY,
    .sub_group = 16,
    .group_rows = 1,
    .group_columns = 16,
    .block_rows = 16,
    .block_columns = 32,
    .groups_down = 1,
    .groups_across = 1,
    .text =
        "// dgemm_tn_sg16_block_16x2: C = alpha * A * B + beta * C; float64; A col-major\n"
        "//\n"
        "// Schedule   16x2 of C per work-item, 1x16 work-items per group (16x32 of C), 16 along K per\n"
        "//            iteration\n"
        "// A          buffer, loads of single elements, passed around the sub-group by shuffles\n"
        "// B          buffer, loads of single elements\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {16, 1}, global size {(n + 31) / 32 * 16, (m + 15) / 16}\n"
        "// Needs      cl_intel_subgroups, cl_intel_required_subgroup_size, sub-groups of 16\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL2.0\", ...)\n"
        "\n"
        "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
        "#pragma OPENCL EXTENSION cl_intel_subgroups : enable\n"
        "\n"
        "__attribute__((reqd_work_group_size(16, 1, 1)))\n"
        "__attribute__((intel_reqd_sub_group_size(16)))\n"
        "__kernel void dgemm_tn_sg16_block_16x2(int m, int n, int k, double alpha,\n"
        "                                       __global const double *restrict a, int lda,\n"
        "                                       __global const double *restrict b, int ldb, double beta,\n"
        "                                       __global double *restrict c, int ldc)\n"
        "{\n"
        "    const int lane = (int)get_sub_group_local_id();\n"
        "    const int row0 = (int)get_group_id(1) * 16;\n"
        "    const int col = (int)get_group_id(0) * 32 + lane;\n"
        "    const int k_main = k - k % 16;\n"
        "\n"
        "    double acc[16][2];\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 16; ++i) {\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 2; ++j) {\n"
        "            acc[i][j] = 0.0;\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // Whole steps of 16 along K.\n"
        "    for (int k0 = 0; k0 < k_main; k0 += 16) {\n"
        "        double b_frag[16][2];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 16; ++i) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 2; ++j) {\n"
        "                b_frag[i][j] = b[(k0 + i) * ldb + min(col + j * 16, n - 1)];\n"
        "            }\n"
        "        }\n"
        "        double a_frag[16];\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 16; ++j) {\n"
        "            a_frag[j] = a[(k0 + j) * lda + min(row0 + lane, m - 1)];\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 16; ++i) {\n"
        "            #pragma unroll\n"
        "            for (int p = 0; p < 16; ++p) {\n"
        "                const double a_value = intel_sub_group_shuffle(a_frag[p], i);\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 2; ++j) {\n"
        "                    acc[i][j] = fma(a_value, b_frag[p][j], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "    if (k_main < k) {\n"
        "        // The rest of K; what lies past it counts as zero.\n"
        "        double b_frag[16][2];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 16; ++i) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 2; ++j) {\n"
        "                b_frag[i][j] =\n"
        "                    k_main + i < k ? b[(k_main + i) * ldb + min(col + j * 16, n - 1)] : 0.0;\n"
        "            }\n"
        "        }\n"
        "        double a_frag[16];\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 16; ++j) {\n"
        "            a_frag[j] = k_main + j < k ? a[(k_main + j) * lda + min(row0 + lane, m - 1)] : 0.0;\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 16; ++i) {\n"
        "            #pragma unroll\n"
        "            for (int p = 0; p < 16; ++p) {\n"
        "                const double a_value = intel_sub_group_shuffle(a_frag[p], i);\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 2; ++j) {\n"
        "                    acc[i][j] = fma(a_value, b_frag[p][j], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // C = alpha * A * B + beta * C; C is not read where beta is zero.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 16; ++i) {\n"
        "        if (row0 + i < m) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 2; ++j) {\n"
        "                if (col + j * 16 < n) {\n"
        "                    c[(row0 + i) * ldc + col + j * 16] =\n"
        "                        beta == 0.0 ? alpha * acc[i][j]\n"
        "                                    : fma(beta, c[(row0 + i) * ldc + col + j * 16],\n"
        "                                        alpha * acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n",
};

static struct kernel dgemm_nn_smem_8x8_double = {
    .name = "dgemm_nn_smem_8x8_double",
    .options = "-cl-std=CL1.2",
    .extensions = "cl_khr_fp64 ",
    .local_bytes = 33280,
    .vector_bytes = 0,
    .device = GPU,
    .sub_group = 0,
    .group_rows = 16,
    .group_columns = 16,
    .block_rows = 128,
    .block_columns = 128,
    .groups_down = 1,
    .groups_across = 1,
    .text =
        "// dgemm_nn_smem_8x8_double: C = alpha * A * B + beta * C; float64\n"
        "//\n"
        "// Schedule   8x8 of C per work-item, 16x16 work-items per group (128x128 of C), 8 along K per\n"
        "//            iteration, 2 tiles in local memory at a time, the next tile loaded into registers\n"
        "//            before the current one's arithmetic, operands read from local memory a step ahead,\n"
        "//            stores of 2 elements\n"
        "// A          buffer, loads of 4 elements, through local memory, transposed, rows padded by 4\n"
        "// B          buffer, loads of 4 elements, through local memory\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {16, 16}, global size {(n + 127) / 128 * 16, (m + 127) / 128 * 16}\n"
        "// Needs      33,280 bytes of local memory\n"
        "//            on Intel's GPUs, and only there, the build option -cl-intel-256-GRF-per-thread\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
        "\n"
        "// 4 neighbouring elements, at any alignment.\n"
        "#define COPY4(to, from) vstore4(vload4(0, from), 0, to)\n"
        "\n"
        "// 2 neighbouring elements of local memory, from a multiple of 16 bytes.\n"
        "#define COPY_LOCAL2(to, from) vstore2(*(const __local double2 *)(from), 0, to)\n"
        "\n"
        "__attribute__((reqd_work_group_size(16, 16, 1)))\n"
        "__kernel void dgemm_nn_smem_8x8_double(int m, int n, int k, double alpha,\n"
        "                                       __global const double *restrict a, int lda,\n"
        "                                       __global const double *restrict b, int ldb, double beta,\n"
        "                                       __global double *restrict c, int ldc)\n"
        "{\n"
        "    const int local_row = (int)get_local_id(1);\n"
        "    const int local_col = (int)get_local_id(0);\n"
        "    const int row0 = (int)get_group_id(1) * 128;\n"
        "    const int col0 = (int)get_group_id(0) * 128;\n"
        "    const int row = row0 + local_row * 4;\n"
        "    const int col = col0 + local_col * 4;\n"
        "    const int k_main = k - k % 8;\n"
        "    const int local_index = local_row * 16 + local_col;\n"
        "    const int a_row = local_index / 2;\n"
        "    const int a_k = local_index % 2 * 4;\n"
        "    const int b_k = local_index / 32;\n"
        "    const int b_col = local_index % 32 * 4;\n"
        "\n"
        "    __local double a_shared[2][8][132] __attribute__((aligned(16)));\n"
        "    double a_next[4];\n"
        "    __local double b_shared[2][8][128] __attribute__((aligned(16)));\n"
        "    double b_next[4];\n"
        "    double acc[8][8];\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 8; ++i) {\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 8; ++j) {\n"
        "            acc[i][j] = 0.0;\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // Whole steps of 8 along K.\n"
        "    if (8 <= k_main) {\n"
        "        double a_vector[4];\n"
        "        COPY4(a_vector, &a[min(row0 + a_row, m - 1) * lda + a_k]);\n"
        "        #pragma unroll\n"
        "        for (int e = 0; e < 4; ++e) {\n"
        "            a_shared[0][a_k + e][a_row] = a_vector[e];\n"
        "        }\n"
        "        if (col0 + b_col + 4 <= n) {\n"
        "            COPY4(&b_shared[0][b_k][b_col], &b[b_k * ldb + col0 + b_col]);\n"
        "        } else {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                b_shared[0][b_k][b_col + e] = b[b_k * ldb + min(col0 + b_col + e, n - 1)];\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "    for (int k0 = 0; k0 < k_main; k0 += 8) {\n"
        "        const int slot = k0 / 8 % 2;\n"
        "        const int next_slot = (k0 / 8 + 1) % 2;\n"
        "        barrier(CLK_LOCAL_MEM_FENCE);\n"
        "        if (k0 + 16 <= k_main) {\n"
        "            COPY4(a_next, &a[min(row0 + a_row, m - 1) * lda + k0 + a_k + 8]);\n"
        "            if (col0 + b_col + 4 <= n) {\n"
        "                COPY4(b_next, &b[(k0 + b_k + 8) * ldb + col0 + b_col]);\n"
        "            } else {\n"
        "                #pragma unroll\n"
        "                for (int e = 0; e < 4; ++e) {\n"
        "                    b_next[e] = b[(k0 + b_k + 8) * ldb + min(col0 + b_col + e, n - 1)];\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "        double a_frag[2][8];\n"
        "        double b_frag[2][8];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 4; ++i) {\n"
        "            COPY_LOCAL2(&a_frag[0][i * 2],\n"
        "                &a_shared[slot][0][local_row * 4 + i * 2 / 4 * 64 + i * 2 % 4]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            COPY_LOCAL2(&b_frag[0][j * 2],\n"
        "                &b_shared[slot][0][local_col * 4 + j * 2 / 4 * 64 + j * 2 % 4]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int kk = 0; kk < 8; ++kk) {\n"
        "            if (kk + 1 < 8) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 4; ++i) {\n"
        "                    COPY_LOCAL2(&a_frag[(kk + 1) % 2][i * 2],\n"
        "                        &a_shared[slot][kk + 1][local_row * 4 + i * 2 / 4 * 64 + i * 2 % 4]);\n"
        "                }\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 4; ++j) {\n"
        "                    COPY_LOCAL2(&b_frag[(kk + 1) % 2][j * 2],\n"
        "                        &b_shared[slot][kk + 1][local_col * 4 + j * 2 / 4 * 64 + j * 2 % 4]);\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 8; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 8; ++j) {\n"
        "                    acc[i][j] = fma(a_frag[kk % 2][i], b_frag[kk % 2][j], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "        if (k0 + 16 <= k_main) {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                a_shared[next_slot][a_k + e][a_row] = a_next[e];\n"
        "            }\n"
        "            COPY4(&b_shared[next_slot][b_k][b_col], b_next);\n"
        "        }\n"
        "    }\n"
        "    if (k_main < k) {\n"
        "        // The rest of K; what lies past it counts as zero.\n"
        "        barrier(CLK_LOCAL_MEM_FENCE);\n"
        "        double a_vector[4];\n"
        "        if (k_main + a_k + 4 <= k) {\n"
        "            COPY4(a_vector, &a[min(row0 + a_row, m - 1) * lda + k_main + a_k]);\n"
        "        } else {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                a_vector[e] =\n"
        "                    k_main + a_k + e < k ? a[min(row0 + a_row, m - 1) * lda + k_main + a_k + e]\n"
        "                                         : 0.0;\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int e = 0; e < 4; ++e) {\n"
        "            a_shared[0][a_k + e][a_row] = a_vector[e];\n"
        "        }\n"
        "        if (k_main + b_k < k && col0 + b_col + 4 <= n) {\n"
        "            COPY4(&b_shared[0][b_k][b_col], &b[(k_main + b_k) * ldb + col0 + b_col]);\n"
        "        } else {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                b_shared[0][b_k][b_col + e] =\n"
        "                    k_main + b_k < k ? b[(k_main + b_k) * ldb + min(col0 + b_col + e, n - 1)] : 0.0;\n"
        "            }\n"
        "        }\n"
        "        barrier(CLK_LOCAL_MEM_FENCE);\n"
        "        double a_frag[2][8];\n"
        "        double b_frag[2][8];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 4; ++i) {\n"
        "            COPY_LOCAL2(&a_frag[0][i * 2],\n"
        "                &a_shared[0][0][local_row * 4 + i * 2 / 4 * 64 + i * 2 % 4]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            COPY_LOCAL2(&b_frag[0][j * 2],\n"
        "                &b_shared[0][0][local_col * 4 + j * 2 / 4 * 64 + j * 2 % 4]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int kk = 0; kk < 8; ++kk) {\n"
        "            if (kk + 1 < 8) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 4; ++i) {\n"
        "                    COPY_LOCAL2(&a_frag[(kk + 1) % 2][i * 2],\n"
        "                        &a_shared[0][kk + 1][local_row * 4 + i * 2 / 4 * 64 + i * 2 % 4]);\n"
        "                }\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 4; ++j) {\n"
        "                    COPY_LOCAL2(&b_frag[(kk + 1) % 2][j * 2],\n"
        "                        &b_shared[0][kk + 1][local_col * 4 + j * 2 / 4 * 64 + j * 2 % 4]);\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 8; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 8; ++j) {\n"
        "                    acc[i][j] = fma(a_frag[kk % 2][i], b_frag[kk % 2][j], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // C = alpha * A * B + beta * C; C is not read where beta is zero.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 8; ++i) {\n"
        "        const int c_row = row + i / 4 * 64 + i % 4;\n"
        "        if (c_row < m) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 2; ++j) {\n"
        "                if (col + j * 64 + 4 <= n) {\n"
        "                    double c_values[4];\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        c_values[e] = alpha * acc[i][j * 4 + e];\n"
        "                    }\n"
        "                    if (beta != 0.0) {\n"
        "                        double c_old[4];\n"
        "                        COPY4(c_old, &c[c_row * ldc + col + j * 64]);\n"
        "                        #pragma unroll\n"
        "                        for (int e = 0; e < 4; ++e) {\n"
        "                            c_values[e] = fma(beta, c_old[e], c_values[e]);\n"
        "                        }\n"
        "                    }\n"
        "                    COPY4(&c[c_row * ldc + col + j * 64], c_values);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        if (col + j * 64 + e < n) {\n"
        "                            c[c_row * ldc + col + j * 64 + e] =\n"
        "                                beta == 0.0 ? alpha * acc[i][j * 4 + e]\n"
        "                                            : fma(beta, c[c_row * ldc + col + j * 64 + e],\n"
        "                                                alpha * acc[i][j * 4 + e]);\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n"
        "\n"
        "#undef COPY4\n"
        "#undef COPY_LOCAL2\n",
};

static struct kernel dgemm_nt_smem_8x8_double = {
    .name = "dgemm_nt_smem_8x8_double",
    .options = "-cl-std=CL1.2",
    .extensions = "cl_khr_fp64 ",
    .local_bytes = 33280,
    .vector_bytes = 0,
    .device = GPU,
    .sub_group = 0,
    .group_rows = 16,
    .group_columns = 16,
    .block_rows = 128,
    .block_columns = 128,
    .groups_down = 1,
    .groups_across = 1,
    .text =
        "// dgemm_nt_smem_8x8_double: C = alpha * A * B + beta * C; float64; B col-major\n"
        "//\n"
        "// Schedule   8x8 of C per work-item, 16x16 work-items per group (128x128 of C), 8 along K per\n"
        "//            iteration, 2 tiles in local memory at a time, the next tile loaded into registers\n"
        "//            before the current one's arithmetic, operands read from local memory a step ahead,\n"
        "//            stores of 2 elements\n"
        "// A          buffer, loads of 4 elements, through local memory, transposed, rows padded by 4\n"
        "// B          buffer, loads of 4 elements, through local memory\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {16, 16}, global size {(n + 127) / 128 * 16, (m + 127) / 128 * 16}\n"
        "// Needs      33,280 bytes of local memory\n"
        "//            on Intel's GPUs, and only there, the build option -cl-intel-256-GRF-per-thread\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
        "\n"
        "// 4 neighbouring elements, at any alignment.\n"
        "#define COPY4(to, from) vstore4(vload4(0, from), 0, to)\n"
        "\n"
        "// 2 neighbouring elements of local memory, from a multiple of 16 bytes.\n"
        "#define COPY_LOCAL2(to, from) vstore2(*(const __local double2 *)(from), 0, to)\n"
        "\n"
        "__attribute__((reqd_work_group_size(16, 16, 1)))\n"
        "__kernel void dgemm_nt_smem_8x8_double(int m, int n, int k, double alpha,\n"
        "                                       __global const double *restrict a, int lda,\n"
        "                                       __global const double *restrict b, int ldb, double beta,\n"
        "                                       __global double *restrict c, int ldc)\n"
        "{\n"
        "    const int local_row = (int)get_local_id(1);\n"
        "    const int local_col = (int)get_local_id(0);\n"
        "    const int row0 = (int)get_group_id(1) * 128;\n"
        "    const int col0 = (int)get_group_id(0) * 128;\n"
        "    const int row = row0 + local_row * 4;\n"
        "    const int col = col0 + local_col * 4;\n"
        "    const int k_main = k - k % 8;\n"
        "    const int local_index = local_row * 16 + local_col;\n"
        "    const int a_row = local_index / 2;\n"
        "    const int a_k = local_index % 2 * 4;\n"
        "    const int b_col = local_index / 2;\n"
        "    const int b_k = local_index % 2 * 4;\n"
        "\n"
        "    __local double a_shared[2][8][132] __attribute__((aligned(16)));\n"
        "    double a_next[4];\n"
        "    __local double b_shared[2][8][128] __attribute__((aligned(16)));\n"
        "    double b_next[4];\n"
        "    double acc[8][8];\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 8; ++i) {\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 8; ++j) {\n"
        "            acc[i][j] = 0.0;\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // Whole steps of 8 along K.\n"
        "    if (8 <= k_main) {\n"
        "        double a_vector[4];\n"
        "        COPY4(a_vector, &a[min(row0 + a_row, m - 1) * lda + a_k]);\n"
        "        #pragma unroll\n"
        "        for (int e = 0; e < 4; ++e) {\n"
        "            a_shared[0][a_k + e][a_row] = a_vector[e];\n"
        "        }\n"
        "        double b_vector[4];\n"
        "        COPY4(b_vector, &b[min(col0 + b_col, n - 1) * ldb + b_k]);\n"
        "        #pragma unroll\n"
        "        for (int e = 0; e < 4; ++e) {\n"
        "            b_shared[0][b_k + e][b_col] = b_vector[e];\n"
        "        }\n"
        "    }\n"
        "    for (int k0 = 0; k0 < k_main; k0 += 8) {\n"
        "        const int slot = k0 / 8 % 2;\n"
        "        const int next_slot = (k0 / 8 + 1) % 2;\n"
        "        barrier(CLK_LOCAL_MEM_FENCE);\n"
        "        if (k0 + 16 <= k_main) {\n"
        "            COPY4(a_next, &a[min(row0 + a_row, m - 1) * lda + k0 + a_k + 8]);\n"
        "            COPY4(b_next, &b[min(col0 + b_col, n - 1) * ldb + k0 + b_k + 8]);\n"
        "        }\n"
        "        double a_frag[2][8];\n"
        "        double b_frag[2][8];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 4; ++i) {\n"
        "            COPY_LOCAL2(&a_frag[0][i * 2],\n"
        "                &a_shared[slot][0][local_row * 4 + i * 2 / 4 * 64 + i * 2 % 4]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            COPY_LOCAL2(&b_frag[0][j * 2],\n"
        "                &b_shared[slot][0][local_col * 4 + j * 2 / 4 * 64 + j * 2 % 4]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int kk = 0; kk < 8; ++kk) {\n"
        "            if (kk + 1 < 8) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 4; ++i) {\n"
        "                    COPY_LOCAL2(&a_frag[(kk + 1) % 2][i * 2],\n"
        "                        &a_shared[slot][kk + 1][local_row * 4 + i * 2 / 4 * 64 + i * 2 % 4]);\n"
        "                }\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 4; ++j) {\n"
        "                    COPY_LOCAL2(&b_frag[(kk + 1) % 2][j * 2],\n"
        "                        &b_shared[slot][kk + 1][local_col * 4 + j * 2 / 4 * 64 + j * 2 % 4]);\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 8; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 8; ++j) {\n"
        "                    acc[i][j] = fma(a_frag[kk % 2][i], b_frag[kk % 2][j], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "        if (k0 + 16 <= k_main) {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                a_shared[next_slot][a_k + e][a_row] = a_next[e];\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                b_shared[next_slot][b_k + e][b_col] = b_next[e];\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "    if (k_main < k) {\n"
        "        // The rest of K; what lies past it counts as zero.\n"
        "        barrier(CLK_LOCAL_MEM_FENCE);\n"
        "        double a_vector[4];\n"
        "        if (k_main + a_k + 4 <= k) {\n"
        "            COPY4(a_vector, &a[min(row0 + a_row, m - 1) * lda + k_main + a_k]);\n"
        "        } else {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                a_vector[e] =\n"
        "                    k_main + a_k + e < k ? a[min(row0 + a_row, m - 1) * lda + k_main + a_k + e]\n"
        "                                         : 0.0;\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int e = 0; e < 4; ++e) {\n"
        "            a_shared[0][a_k + e][a_row] = a_vector[e];\n"
        "        }\n"
        "        double b_vector[4];\n"
        "        if (k_main + b_k + 4 <= k) {\n"
        "            COPY4(b_vector, &b[min(col0 + b_col, n - 1) * ldb + k_main + b_k]);\n"
        "        } else {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                b_vector[e] =\n"
        "                    k_main + b_k + e < k ? b[min(col0 + b_col, n - 1) * ldb + k_main + b_k + e]\n"
        "                                         : 0.0;\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int e = 0; e < 4; ++e) {\n"
        "            b_shared[0][b_k + e][b_col] = b_vector[e];\n"
        "        }\n"
        "        barrier(CLK_LOCAL_MEM_FENCE);\n"
        "        double a_frag[2][8];\n"
        "        double b_frag[2][8];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 4; ++i) {\n"
        "            COPY_LOCAL2(&a_frag[0][i * 2],\n"
        "                &a_shared[0][0][local_row * 4 + i * 2 / 4 * 64 + i * 2 % 4]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            COPY_LOCAL2(&b_frag[0][j * 2],\n"
        "                &b_shared[0][0][local_col * 4 + j * 2 / 4 * 64 + j * 2 % 4]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int kk = 0; kk < 8; ++kk) {\n"
        "            if (kk + 1 < 8) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 4; ++i) {\n"
        "                    COPY_LOCAL2(&a_frag[(kk + 1) % 2][i * 2],\n"
        "                        &a_shared[0][kk + 1][local_row * 4 + i * 2 / 4 * 64 + i * 2 % 4]);\n"
        "                }\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 4; ++j) {\n"
        "                    COPY_LOCAL2(&b_frag[(kk + 1) % 2][j * 2],\n"
        "                        &b_shared[0][kk + 1][local_col * 4 + j * 2 / 4 * 64 + j * 2 % 4]);\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 8; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 8; ++j) {\n"
        "                    acc[i][j] = fma(a_frag[kk % 2][i], b_frag[kk % 2][j], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // C = alpha * A * B + beta * C; C is not read where beta is zero.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 8; ++i) {\n"
        "        const int c_row = row + i / 4 * 64 + i % 4;\n"
        "        if (c_row < m) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 2; ++j) {\n"
        "                if (col + j * 64 + 4 <= n) {\n"
        "                    double c_values[4];\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        c_values[e] = alpha * acc[i][j * 4 + e];\n"
        "                    }\n"
        "                    if (beta != 0.0) {\n"
        "                        double c_old[4];\n"
        "                        COPY4(c_old, &c[c_row * ldc + col + j * 64]);\n"
        "                        #pragma unroll\n"
        "                        for (int e = 0; e < 4; ++e) {\n"
        "                            c_values[e] = fma(beta, c_old[e], c_values[e]);\n"
        "                        }\n"
        "                    }\n"
        "                    COPY4(&c[c_row * ldc + col + j * 64], c_values);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        if (col + j * 64 + e < n) {\n"
        "                            c[c_row * ldc + col + j * 64 + e] =\n"
        "                                beta == 0.0 ? alpha * acc[i][j * 4 + e]\n"
        "                                            : fma(beta, c[c_row * ldc + col + j * 64 + e],\n"
        "                                                alpha * acc[i][j * 4 + e]);\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n"
        "\n"
        "#undef COPY4\n"
        "#undef COPY_LOCAL2\n",
};

static struct kernel dgemm_tn_smem_8x8_double = {
    .name = "dgemm_tn_smem_8x8_double",
    .options = "-cl-std=CL1.2",
    .extensions = "cl_khr_fp64 ",
    .local_bytes = 33280,
    .vector_bytes = 0,
    .device = GPU,
    .sub_group = 0,
    .group_rows = 16,
    .group_columns = 16,
    .block_rows = 128,
    .block_columns = 128,
    .groups_down = 1,
    .groups_across = 1,
    .text =
        "// dgemm_tn_smem_8x8_double: C = alpha * A * B + beta * C; float64; A col-major\n"
        "//\n"
        "// Schedule   8x8 of C per work-item, 16x16 work-items per group (128x128 of C), 8 along K per\n"
        "//            iteration, 2 tiles in local memory at a time, the next tile loaded into registers\n"
        "//            before the current one's arithmetic, operands read from local memory a step ahead,\n"
        "//            stores of 2 elements\n"
        "// A          buffer, loads of 4 elements, through local memory, transposed, rows padded by 4\n"
        "// B          buffer, loads of 4 elements, through local memory\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {16, 16}, global size {(n + 127) / 128 * 16, (m + 127) / 128 * 16}\n"
        "// Needs      33,280 bytes of local memory\n"
        "//            on Intel's GPUs, and only there, the build option -cl-intel-256-GRF-per-thread\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
        "\n"
        "// 4 neighbouring elements, at any alignment.\n"
        "#define COPY4(to, from) vstore4(vload4(0, from), 0, to)\n"
        "\n"
        "// 2 neighbouring elements of local memory, from a multiple of 16 bytes.\n"
        "#define COPY_LOCAL2(to, from) vstore2(*(const __local double2 *)(from), 0, to)\n"
        "\n"
        "__attribute__((reqd_work_group_size(16, 16, 1)))\n"
        "__kernel void dgemm_tn_smem_8x8_double(int m, int n, int k, double alpha,\n"
        "                                       __global const double *restrict a, int lda,\n"
        "                                       __global const double *restrict b, int ldb, double beta,\n"
        "                                       __global double *restrict c, int ldc)\n"
        "{\n"
        "    const int local_row = (int)get_local_id(1);\n"
        "    const int local_col = (int)get_local_id(0);\n"
        "    const int row0 = (int)get_group_id(1) * 128;\n"
        "    const int col0 = (int)get_group_id(0) * 128;\n"
        "    const int row = row0 + local_row * 4;\n"
        "    const int col = col0 + local_col * 4;\n"
        "    const int k_main = k - k % 8;\n"
        "    const int local_index = local_row * 16 + local_col;\n"
        "    const int a_k = local_index / 32;\n"
        "    const int a_row = local_index % 32 * 4;\n"
        "    const int b_k = local_index / 32;\n"
        "    const int b_col = local_index % 32 * 4;\n"
        "\n"
        "    __local double a_shared[2][8][132] __attribute__((aligned(16)));\n"
        "    double a_next[4];\n"
        "    __local double b_shared[2][8][128] __attribute__((aligned(16)));\n"
        "    double b_next[4];\n"
        "    double acc[8][8];\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 8; ++i) {\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 8; ++j) {\n"
        "            acc[i][j] = 0.0;\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // Whole steps of 8 along K.\n"
        "    if (8 <= k_main) {\n"
        "        if (row0 + a_row + 4 <= m) {\n"
        "            COPY4(&a_shared[0][a_k][a_row], &a[a_k * lda + row0 + a_row]);\n"
        "        } else {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                a_shared[0][a_k][a_row + e] = a[a_k * lda + min(row0 + a_row + e, m - 1)];\n"
        "            }\n"
        "        }\n"
        "        if (col0 + b_col + 4 <= n) {\n"
        "            COPY4(&b_shared[0][b_k][b_col], &b[b_k * ldb + col0 + b_col]);\n"
        "        } else {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                b_shared[0][b_k][b_col + e] = b[b_k * ldb + min(col0 + b_col + e, n - 1)];\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "    for (int k0 = 0; k0 < k_main; k0 += 8) {\n"
        "        const int slot = k0 / 8 % 2;\n"
        "        const int next_slot = (k0 / 8 + 1) % 2;\n"
        "        barrier(CLK_LOCAL_MEM_FENCE);\n"
        "        if (k0 + 16 <= k_main) {\n"
        "            if (row0 + a_row + 4 <= m) {\n"
        "                COPY4(a_next, &a[(k0 + a_k + 8) * lda + row0 + a_row]);\n"
        "            } else {\n"
        "                #pragma unroll\n"
        "                for (int e = 0; e < 4; ++e) {\n"
        "                    a_next[e] = a[(k0 + a_k + 8) * lda + min(row0 + a_row + e, m - 1)];\n"
        "                }\n"
        "            }\n"
        "            if (col0 + b_col + 4 <= n) {\n"
        "                COPY4(b_next, &b[(k0 + b_k + 8) * ldb + col0 + b_col]);\n"
        "            } else {\n"
        "                #pragma unroll\n"
        "                for (int e = 0; e < 4; ++e) {\n"
        "                    b_next[e] = b[(k0 + b_k + 8) * ldb + min(col0 + b_col + e, n - 1)];\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "        double a_frag[2][8];\n"
        "        double b_frag[2][8];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 4; ++i) {\n"
        "            COPY_LOCAL2(&a_frag[0][i * 2],\n"
        "                &a_shared[slot][0][local_row * 4 + i * 2 / 4 * 64 + i * 2 % 4]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            COPY_LOCAL2(&b_frag[0][j * 2],\n"
        "                &b_shared[slot][0][local_col * 4 + j * 2 / 4 * 64 + j * 2 % 4]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int kk = 0; kk < 8; ++kk) {\n"
        "            if (kk + 1 < 8) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 4; ++i) {\n"
        "                    COPY_LOCAL2(&a_frag[(kk + 1) % 2][i * 2],\n"
        "                        &a_shared[slot][kk + 1][local_row * 4 + i * 2 / 4 * 64 + i * 2 % 4]);\n"
        "                }\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 4; ++j) {\n"
        "                    COPY_LOCAL2(&b_frag[(kk + 1) % 2][j * 2],\n"
        "                        &b_shared[slot][kk + 1][local_col * 4 + j * 2 / 4 * 64 + j * 2 % 4]);\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 8; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 8; ++j) {\n"
        "                    acc[i][j] = fma(a_frag[kk % 2][i], b_frag[kk % 2][j], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "        if (k0 + 16 <= k_main) {\n"
        "            COPY4(&a_shared[next_slot][a_k][a_row], a_next);\n"
        "            COPY4(&b_shared[next_slot][b_k][b_col], b_next);\n"
        "        }\n"
        "    }\n"
        "    if (k_main < k) {\n"
        "        // The rest of K; what lies past it counts as zero.\n"
        "        barrier(CLK_LOCAL_MEM_FENCE);\n"
        "        if (k_main + a_k < k && row0 + a_row + 4 <= m) {\n"
        "            COPY4(&a_shared[0][a_k][a_row], &a[(k_main + a_k) * lda + row0 + a_row]);\n"
        "        } else {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                a_shared[0][a_k][a_row + e] =\n"
        "                    k_main + a_k < k ? a[(k_main + a_k) * lda + min(row0 + a_row + e, m - 1)] : 0.0;\n"
        "            }\n"
        "        }\n"
        "        if (k_main + b_k < k && col0 + b_col + 4 <= n) {\n"
        "            COPY4(&b_shared[0][b_k][b_col], &b[(k_main + b_k) * ldb + col0 + b_col]);\n"
        "        } else {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                b_shared[0][b_k][b_col + e] =\n"
        "                    k_main + b_k < k ? b[(k_main + b_k) * ldb + min(col0 + b_col + e, n - 1)] : 0.0;\n"
        "            }\n"
        "        }\n"
        "        barrier(CLK_LOCAL_MEM_FENCE);\n"
        "        double a_frag[2][8];\n"
        "        double b_frag[2][8];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 4; ++i) {\n"
        "            COPY_LOCAL2(&a_frag[0][i * 2],\n"
        "                &a_shared[0][0][local_row * 4 + i * 2 / 4 * 64 + i * 2 % 4]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            COPY_LOCAL2(&b_frag[0][j * 2],\n"
        "                &b_shared[0][0][local_col * 4 + j * 2 / 4 * 64 + j * 2 % 4]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int kk = 0; kk < 8; ++kk) {\n"
        "            if (kk + 1 < 8) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 4; ++i) {\n"
        "                    COPY_LOCAL2(&a_frag[(kk + 1) % 2][i * 2],\n"
        "                        &a_shared[0][kk + 1][local_row * 4 + i * 2 / 4 * 64 + i * 2 % 4]);\n"
        "                }\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 4; ++j) {\n"
        "                    COPY_LOCAL2(&b_frag[(kk + 1) % 2][j * 2],\n"
        "                        &b_shared[0][kk + 1][local_col * 4 + j * 2 / 4 * 64 + j * 2 % 4]);\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 8; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 8; ++j) {\n"
        "                    acc[i][j] = fma(a_frag[kk % 2][i], b_frag[kk % 2][j], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // C = alpha * A * B + beta * C; C is not read where beta is zero.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 8; ++i) {\n"
        "        const int c_row = row + i / 4 * 64 + i % 4;\n"
        "        if (c_row < m) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 2; ++j) {\n"
        "                if (col + j * 64 + 4 <= n) {\n"
        "                    double c_values[4];\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        c_values[e] = alpha * acc[i][j * 4 + e];\n"
        "                    }\n"
        "                    if (beta != 0.0) {\n"
        "                        double c_old[4];\n"
        "                        COPY4(c_old, &c[c_row * ldc + col + j * 64]);\n"
        "                        #pragma unroll\n"
        "                        for (int e = 0; e < 4; ++e) {\n"
        "                            c_values[e] = fma(beta, c_old[e], c_values[e]);\n"
        "                        }\n"
        "                    }\n"
        "                    COPY4(&c[c_row * ldc + col + j * 64], c_values);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        if (col + j * 64 + e < n) {\n"
        "                            c[c_row * ldc + col + j * 64 + e] =\n"
        "                                beta == 0.0 ? alpha * acc[i][j * 4 + e]\n"
        "                                            : fma(beta, c[c_row * ldc + col + j * 64 + e],\n"
        "                                                alpha * acc[i][j * 4 + e]);\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n"
        "\n"
        "#undef COPY4\n"
        "#undef COPY_LOCAL2\n",
};

static struct kernel dgemm_tt_smem_8x8_double = {
    .name = "dgemm_tt_smem_8x8_double",
    .options = "-cl-std=CL1.2",
    .extensions = "cl_khr_fp64 ",
    .local_bytes = 33280,
    .vector_bytes = 0,
    .device = GPU,
    .sub_group = 0,
    .group_rows = 16,
    .group_columns = 16,
    .block_rows = 128,
    .block_columns = 128,
    .groups_down = 1,
    .groups_across = 1,
    .text =
        "// dgemm_tt_smem_8x8_double: C = alpha * A * B + beta * C; float64; A col-major, B col-major\n"
        "//\n"
        "// Schedule   8x8 of C per work-item, 16x16 work-items per group (128x128 of C), 8 along K per\n"
        "//            iteration, 2 tiles in local memory at a time, the next tile loaded into registers\n"
        "//            before the current one's arithmetic, operands read from local memory a step ahead,\n"
        "//            stores of 2 elements\n"
        "// A          buffer, loads of 4 elements, through local memory, transposed, rows padded by 4\n"
        "// B          buffer, loads of 4 elements, through local memory\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {16, 16}, global size {(n + 127) / 128 * 16, (m + 127) / 128 * 16}\n"
        "// Needs      33,280 bytes of local memory\n"
        "//            on Intel's GPUs, and only there, the build option -cl-intel-256-GRF-per-thread\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
        "\n"
        "// 4 neighbouring elements, at any alignment.\n"
        "#define COPY4(to, from) vstore4(vload4(0, from), 0, to)\n"
        "\n"
        "// 2 neighbouring elements of local memory, from a multiple of 16 bytes.\n"
        "#define COPY_LOCAL2(to, from) vstore2(*(const __local double2 *)(from), 0, to)\n"
        "\n"
        "__attribute__((reqd_work_group_size(16, 16, 1)))\n"
        "__kernel void dgemm_tt_smem_8x8_double(int m, int n, int k, double alpha,\n"
        "                                       __global const double *restrict a, int lda,\n"
        "                                       __global const double *restrict b, int ldb, double beta,\n"
        "                                       __global double *restrict c, int ldc)\n"
        "{\n"
        "    const int local_row = (int)get_local_id(1);\n"
        "    const int local_col = (int)get_local_id(0);\n"
        "    const int row0 = (int)get_group_id(1) * 128;\n"
        "    const int col0 = (int)get_group_id(0) * 128;\n"
        "    const int row = row0 + local_row * 4;\n"
        "    const int col = col0 + local_col * 4;\n"
        "    const int k_main = k - k % 8;\n"
        "    const int local_index = local_row * 16 + local_col;\n"
        "    const int a_k = local_index / 32;\n"
        "    const int a_row = local_index % 32 * 4;\n"
        "    const int b_col = local_index / 2;\n"
        "    const int b_k = local_index % 2 * 4;\n"
        "\n"
        "    __local double a_shared[2][8][132] __attribute__((aligned(16)));\n"
        "    double a_next[4];\n"
        "    __local double b_shared[2][8][128] __attribute__((aligned(16)));\n"
        "    double b_next[4];\n"
        "    double acc[8][8];\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 8; ++i) {\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 8; ++j) {\n"
        "            acc[i][j] = 0.0;\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // Whole steps of 8 along K.\n"
        "    if (8 <= k_main) {\n"
        "        if (row0 + a_row + 4 <= m) {\n"
        "            COPY4(&a_shared[0][a_k][a_row], &a[a_k * lda + row0 + a_row]);\n"
        "        } else {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                a_shared[0][a_k][a_row + e] = a[a_k * lda + min(row0 + a_row + e, m - 1)];\n"
        "            }\n"
        "        }\n"
        "        double b_vector[4];\n"
        "        COPY4(b_vector, &b[min(col0 + b_col, n - 1) * ldb + b_k]);\n"
        "        #pragma unroll\n"
        "        for (int e = 0; e < 4; ++e) {\n"
        "            b_shared[0][b_k + e][b_col] = b_vector[e];\n"
        "        }\n"
        "    }\n"
        "    for (int k0 = 0; k0 < k_main; k0 += 8) {\n"
        "        const int slot = k0 / 8 % 2;\n"
        "        const int next_slot = (k0 / 8 + 1) % 2;\n"
        "        barrier(CLK_LOCAL_MEM_FENCE);\n"
        "        if (k0 + 16 <= k_main) {\n"
        "            if (row0 + a_row + 4 <= m) {\n"
        "                COPY4(a_next, &a[(k0 + a_k + 8) * lda + row0 + a_row]);\n"
        "            } else {\n"
        "                #pragma unroll\n"
        "                for (int e = 0; e < 4; ++e) {\n"
        "                    a_next[e] = a[(k0 + a_k + 8) * lda + min(row0 + a_row + e, m - 1)];\n"
        "                }\n"
        "            }\n"
        "            COPY4(b_next, &b[min(col0 + b_col, n - 1) * ldb + k0 + b_k + 8]);\n"
        "        }\n"
        "        double a_frag[2][8];\n"
        "        double b_frag[2][8];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 4; ++i) {\n"
        "            COPY_LOCAL2(&a_frag[0][i * 2],\n"
        "                &a_shared[slot][0][local_row * 4 + i * 2 / 4 * 64 + i * 2 % 4]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            COPY_LOCAL2(&b_frag[0][j * 2],\n"
        "                &b_shared[slot][0][local_col * 4 + j * 2 / 4 * 64 + j * 2 % 4]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int kk = 0; kk < 8; ++kk) {\n"
        "            if (kk + 1 < 8) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 4; ++i) {\n"
        "                    COPY_LOCAL2(&a_frag[(kk + 1) % 2][i * 2],\n"
        "                        &a_shared[slot][kk + 1][local_row * 4 + i * 2 / 4 * 64 + i * 2 % 4]);\n"
        "                }\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 4; ++j) {\n"
        "                    COPY_LOCAL2(&b_frag[(kk + 1) % 2][j * 2],\n"
        "                        &b_shared[slot][kk + 1][local_col * 4 + j * 2 / 4 * 64 + j * 2 % 4]);\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 8; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 8; ++j) {\n"
        "                    acc[i][j] = fma(a_frag[kk % 2][i], b_frag[kk % 2][j], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "        if (k0 + 16 <= k_main) {\n"
        "            COPY4(&a_shared[next_slot][a_k][a_row], a_next);\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                b_shared[next_slot][b_k + e][b_col] = b_next[e];\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "    if (k_main < k) {\n"
        "        // The rest of K; what lies past it counts as zero.\n"
        "        barrier(CLK_LOCAL_MEM_FENCE);\n"
        "        if (k_main + a_k < k && row0 + a_row + 4 <= m) {\n"
        "            COPY4(&a_shared[0][a_k][a_row], &a[(k_main + a_k) * lda + row0 + a_row]);\n"
        "        } else {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                a_shared[0][a_k][a_row + e] =\n"
        "                    k_main + a_k < k ? a[(k_main + a_k) * lda + min(row0 + a_row + e, m - 1)] : 0.0;\n"
        "            }\n"
        "        }\n"
        "        double b_vector[4];\n"
        "        if (k_main + b_k + 4 <= k) {\n"
        "            COPY4(b_vector, &b[min(col0 + b_col, n - 1) * ldb + k_main + b_k]);\n"
        "        } else {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                b_vector[e] =\n"
        "                    k_main + b_k + e < k ? b[min(col0 + b_col, n - 1) * ldb + k_main + b_k + e]\n"
        "                                         : 0.0;\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int e = 0; e < 4; ++e) {\n"
        "            b_shared[0][b_k + e][b_col] = b_vector[e];\n"
        "        }\n"
        "        barrier(CLK_LOCAL_MEM_FENCE);\n"
        "        double a_frag[2][8];\n"
        "        double b_frag[2][8];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 4; ++i) {\n"
        "            COPY_LOCAL2(&a_frag[0][i * 2],\n"
        "                &a_shared[0][0][local_row * 4 + i * 2 / 4 * 64 + i * 2 % 4]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            COPY_LOCAL2(&b_frag[0][j * 2],\n"
        "                &b_shared[0][0][local_col * 4 + j * 2 / 4 * 64 + j * 2 % 4]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int kk = 0; kk < 8; ++kk) {\n"
        "            if (kk + 1 < 8) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 4; ++i) {\n"
        "                    COPY_LOCAL2(&a_frag[(kk + 1) % 2][i * 2],\n"
        "                        &a_shared[0][kk + 1][local_row * 4 + i * 2 / 4 * 64 + i * 2 % 4]);\n"
        "                }\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 4; ++j) {\n"
        "                    COPY_LOCAL2(&b_frag[(kk + 1) % 2][j * 2],\n"
        "                        &b_shared[0][kk + 1][local_col * 4 + j * 2 / 4 * 64 + j * 2 % 4]);\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 8; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 8; ++j) {\n"
        "                    acc[i][j] = fma(a_frag[kk % 2][i], b_frag[kk % 2][j], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // C = alpha * A * B + beta * C; C is not read where beta is zero.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 8; ++i) {\n"
        "        const int c_row = row + i / 4 * 64 + i % 4;\n"
        "        if (c_row < m) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 2; ++j) {\n"
        "                if (col + j * 64 + 4 <= n) {\n"
        "                    double c_values[4];\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        c_values[e] = alpha * acc[i][j * 4 + e];\n"
        "                    }\n"
        "                    if (beta != 0.0) {\n"
        "                        double c_old[4];\n"
        "                        COPY4(c_old, &c[c_row * ldc + col + j * 64]);\n"
        "                        #pragma unroll\n"
        "                        for (int e = 0; e < 4; ++e) {\n"
        "                            c_values[e] = fma(beta, c_old[e], c_values[e]);\n"
        "                        }\n"
        "                    }\n"
        "                    COPY4(&c[c_row * ldc + col + j * 64], c_values);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        if (col + j * 64 + e < n) {\n"
        "                            c[c_row * ldc + col + j * 64 + e] =\n"
        "                                beta == 0.0 ? alpha * acc[i][j * 4 + e]\n"
        "                                            : fma(beta, c[c_row * ldc + col + j * 64 + e],\n"
        "                                                alpha * acc[i][j * 4 + e]);\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n"
        "\n"
        "#undef COPY4\n"
        "#undef COPY_LOCAL2\n",
};

static struct kernel dgemm_nn_tile_8x8 = {
    .name = "dgemm_nn_tile_8x8",
    .options = "-cl-std=CL1.2",
    .extensions = "cl_khr_fp64 ",
    .local_bytes = 0,
    .vector_bytes = 0,
    .device = ANY,
    .sub_group = 0,
    .group_rows = 16,
    .group_columns = 16,
    .block_rows = 128,
    .block_columns = 128,
    .groups_down = 1,
    .groups_across = 1,
    .text =
        "// dgemm_nn_tile_8x8: C = alpha * A * B + beta * C; float64\n"
        "//\n"
        "// Schedule   8x8 of C per work-item, 16x16 work-items per group (128x128 of C), 4 along K per\n"
        "//            iteration, stores of 2 elements\n"
        "// A          buffer, loads of 4 elements\n"
        "// B          buffer, loads of 4 elements\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {16, 16}, global size {(n + 127) / 128 * 16, (m + 127) / 128 * 16}\n"
        "// Needs      on Intel's GPUs, and only there, the build option -cl-intel-256-GRF-per-thread\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
        "\n"
        "// 4 neighbouring elements, at any alignment.\n"
        "#define COPY4(to, from) vstore4(vload4(0, from), 0, to)\n"
        "\n"
        "__attribute__((reqd_work_group_size(16, 16, 1)))\n"
        "__kernel void dgemm_nn_tile_8x8(int m, int n, int k, double alpha,\n"
        "                                __global const double *restrict a, int lda,\n"
        "                                __global const double *restrict b, int ldb, double beta,\n"
        "                                __global double *restrict c, int ldc)\n"
        "{\n"
        "    const int col0 = (int)get_group_id(0) * 128;\n"
        "    const int row = (int)get_group_id(1) * 128 + (int)get_local_id(1) * 4;\n"
        "    const int col = col0 + (int)get_local_id(0) * 4;\n"
        "    const int k_main = k - k % 4;\n"
        "\n"
        "    double acc[8][8];\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 8; ++i) {\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 8; ++j) {\n"
        "            acc[i][j] = 0.0;\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // Whole steps of 4 along K.\n"
        "    if (col0 + 128 <= n) {\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "            double a_frag[8][4];\n"
        "            double b_frag[4][8];\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 8; ++i) {\n"
        "                COPY4(a_frag[i], &a[min(row + i / 4 * 64 + i % 4, m - 1) * lda + k0]);\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 4; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 2; ++j) {\n"
        "                    COPY4(&b_frag[i][j * 4], &b[(k0 + i) * ldb + col + j * 64]);\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int p = 0; p < 4; ++p) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 8; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 8; ++j) {\n"
        "                        acc[i][j] = fma(a_frag[i][p], b_frag[p][j], acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    } else {\n"
        "        // At the edge of C, each load asks whether it is inside.\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "            double a_frag[8][4];\n"
        "            double b_frag[4][8];\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 8; ++i) {\n"
        "                COPY4(a_frag[i], &a[min(row + i / 4 * 64 + i % 4, m - 1) * lda + k0]);\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 4; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 2; ++j) {\n"
        "                    if (col + j * 64 + 4 <= n) {\n"
        "                        COPY4(&b_frag[i][j * 4], &b[(k0 + i) * ldb + col + j * 64]);\n"
        "                    } else {\n"
        "                        #pragma unroll\n"
        "                        for (int e = 0; e < 4; ++e) {\n"
        "                            b_frag[i][j * 4 + e] = b[(k0 + i) * ldb + min(col + j * 64 + e, n - 1)];\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int p = 0; p < 4; ++p) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 8; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 8; ++j) {\n"
        "                        acc[i][j] = fma(a_frag[i][p], b_frag[p][j], acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "    if (k_main < k) {\n"
        "        // The rest of K; what lies past it counts as zero.\n"
        "        double a_frag[8][4];\n"
        "        double b_frag[4][8];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 8; ++i) {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                a_frag[i][e] =\n"
        "                    k_main + e < k ? a[min(row + i / 4 * 64 + i % 4, m - 1) * lda + k_main + e]\n"
        "                                   : 0.0;\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 4; ++i) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 2; ++j) {\n"
        "                if (k_main + i < k && col + j * 64 + 4 <= n) {\n"
        "                    COPY4(&b_frag[i][j * 4], &b[(k_main + i) * ldb + col + j * 64]);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        b_frag[i][j * 4 + e] =\n"
        "                            k_main + i < k ? b[(k_main + i) * ldb + min(col + j * 64 + e, n - 1)]\n"
        "                                           : 0.0;\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int p = 0; p < 4; ++p) {\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 8; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 8; ++j) {\n"
        "                    acc[i][j] = fma(a_frag[i][p], b_frag[p][j], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // C = alpha * A * B + beta * C; C is not read where beta is zero.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 8; ++i) {\n"
        "        const int c_row = row + i / 4 * 64 + i % 4;\n"
        "        if (c_row < m) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 2; ++j) {\n"
        "                if (col + j * 64 + 4 <= n) {\n"
        "                    double c_values[4];\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        c_values[e] = alpha * acc[i][j * 4 + e];\n"
        "                    }\n"
        "                    if (beta != 0.0) {\n"
        "                        double c_old[4];\n"
        "                        COPY4(c_old, &c[c_row * ldc + col + j * 64]);\n"
        "                        #pragma unroll\n"
        "                        for (int e = 0; e < 4; ++e) {\n"
        "                            c_values[e] = fma(beta, c_old[e], c_values[e]);\n"
        "                        }\n"
        "                    }\n"
        "                    COPY4(&c[c_row * ldc + col + j * 64], c_values);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        if (col + j * 64 + e < n) {\n"
        "                            c[c_row * ldc + col + j * 64 + e] =\n"
        "                                beta == 0.0 ? alpha * acc[i][j * 4 + e]\n"
        "                                            : fma(beta, c[c_row * ldc + col + j * 64 + e],\n"
        "                                                alpha * acc[i][j * 4 + e]);\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n"
        "\n"
        "#undef COPY4\n",
};

static struct kernel dgemm_nt_tile_8x8 = {
    .name = "dgemm_nt_tile_8x8",
    .options = "-cl-std=CL1.2",
    .extensions = "cl_khr_fp64 ",
    .local_bytes = 0,
    .vector_bytes = 0,
    .device = ANY,
    .sub_group = 0,
    .group_rows = 16,
    .group_columns = 16,
    .block_rows = 128,
    .block_columns = 128,
    .groups_down = 1,
    .groups_across = 1,
    .text =
        "// dgemm_nt_tile_8x8: C = alpha * A * B + beta * C; float64; B col-major\n"
        "//\n"
        "// Schedule   8x8 of C per work-item, 16x16 work-items per group (128x128 of C), 4 along K per\n"
        "//            iteration, stores of 2 elements\n"
        "// A          buffer, loads of 4 elements\n"
        "// B          buffer, loads of 4 elements\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {16, 16}, global size {(n + 127) / 128 * 16, (m + 127) / 128 * 16}\n"
        "// Needs      on Intel's GPUs, and only there, the build option -cl-intel-256-GRF-per-thread\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
        "\n"
        "// 4 neighbouring elements, at any alignment.\n"
        "#define COPY4(to, from) vstore4(vload4(0, from), 0, to)\n"
        "\n"
        "__attribute__((reqd_work_group_size(16, 16, 1)))\n"
        "__kernel void dgemm_nt_tile_8x8(int m, int n, int k, double alpha,\n"
        "                                __global const double *restrict a, int lda,\n"
        "                                __global const double *restrict b, int ldb, double beta,\n"
        "                                __global double *restrict c, int ldc)\n"
        "{\n"
        "    const int row = (int)get_group_id(1) * 128 + (int)get_local_id(1) * 4;\n"
        "    const int col = (int)get_group_id(0) * 128 + (int)get_local_id(0) * 4;\n"
        "    const int k_main = k - k % 4;\n"
        "\n"
        "    double acc[8][8];\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 8; ++i) {\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 8; ++j) {\n"
        "            acc[i][j] = 0.0;\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // Whole steps of 4 along K.\n"
        "    for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "        double a_frag[8][4];\n"
        "        double b_frag[8][4];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 8; ++i) {\n"
        "            COPY4(a_frag[i], &a[min(row + i / 4 * 64 + i % 4, m - 1) * lda + k0]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 8; ++j) {\n"
        "            COPY4(b_frag[j], &b[min(col + j / 4 * 64 + j % 4, n - 1) * ldb + k0]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int p = 0; p < 4; ++p) {\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 8; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 8; ++j) {\n"
        "                    acc[i][j] = fma(a_frag[i][p], b_frag[j][p], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "    if (k_main < k) {\n"
        "        // The rest of K; what lies past it counts as zero.\n"
        "        double a_frag[8][4];\n"
        "        double b_frag[8][4];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 8; ++i) {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                a_frag[i][e] =\n"
        "                    k_main + e < k ? a[min(row + i / 4 * 64 + i % 4, m - 1) * lda + k_main + e]\n"
        "                                   : 0.0;\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 8; ++j) {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                b_frag[j][e] =\n"
        "                    k_main + e < k ? b[min(col + j / 4 * 64 + j % 4, n - 1) * ldb + k_main + e]\n"
        "                                   : 0.0;\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int p = 0; p < 4; ++p) {\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 8; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 8; ++j) {\n"
        "                    acc[i][j] = fma(a_frag[i][p], b_frag[j][p], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // C = alpha * A * B + beta * C; C is not read where beta is zero.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 8; ++i) {\n"
        "        const int c_row = row + i / 4 * 64 + i % 4;\n"
        "        if (c_row < m) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 2; ++j) {\n"
        "                if (col + j * 64 + 4 <= n) {\n"
        "                    double c_values[4];\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        c_values[e] = alpha * acc[i][j * 4 + e];\n"
        "                    }\n"
        "                    if (beta != 0.0) {\n"
        "                        double c_old[4];\n"
        "                        COPY4(c_old, &c[c_row * ldc + col + j * 64]);\n"
        "                        #pragma unroll\n"
        "                        for (int e = 0; e < 4; ++e) {\n"
        "                            c_values[e] = fma(beta, c_old[e], c_values[e]);\n"
        "                        }\n"
        "                    }\n"
        "                    COPY4(&c[c_row * ldc + col + j * 64], c_values);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        if (col + j * 64 + e < n) {\n"
        "                            c[c_row * ldc + col + j * 64 + e] =\n"
        "                                beta == 0.0 ? alpha * acc[i][j * 4 + e]\n"
        "                                            : fma(beta, c[c_row * ldc + col + j * 64 + e],\n"
        "                                                alpha * acc[i][j * 4 + e]);\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n"
        "\n"
        "#undef COPY4\n",
};

static struct kernel dgemm_tn_tile_8x8 = {
    .name = "dgemm_tn_tile_8x8",
    .options = "-cl-std=CL1.2",
    .extensions = "cl_khr_fp64 ",
    .local_bytes = 0,
    .vector_bytes = 0,
    .device = ANY,
    .sub_group = 0,
    .group_rows = 16,
    .group_columns = 16,
    .block_rows = 128,
    .block_columns = 128,
    .groups_down = 1,
    .groups_across = 1,
    .text =
        "// dgemm_tn_tile_8x8: C = alpha * A * B + beta * C; float64; A col-major\n"
        "//\n"
        "// Schedule   8x8 of C per work-item, 16x16 work-items per group (128x128 of C), 4 along K per\n"
        "//            iteration, stores of 2 elements\n"
        "// A          buffer, loads of 4 elements\n"
        "// B          buffer, loads of 4 elements\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {16, 16}, global size {(n + 127) / 128 * 16, (m + 127) / 128 * 16}\n"
        "// Needs      on Intel's GPUs, and only there, the build option -cl-intel-256-GRF-per-thread\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
        "\n"
        "// 4 neighbouring elements, at any alignment.\n"
        "#define COPY4(to, from) vstore4(vload4(0, from), 0, to)\n"
        "\n"
        "__attribute__((reqd_work_group_size(16, 16, 1)))\n"
        "__kernel void dgemm_tn_tile_8x8(int m, int n, int k, double alpha,\n"
        "                                __global const double *restrict a, int lda,\n"
        "                                __global const double *restrict b, int ldb, double beta,\n"
        "                                __global double *restrict c, int ldc)\n"
        "{\n"
        "    const int row0 = (int)get_group_id(1) * 128;\n"
        "    const int col0 = (int)get_group_id(0) * 128;\n"
        "    const int row = row0 + (int)get_local_id(1) * 4;\n"
        "    const int col = col0 + (int)get_local_id(0) * 4;\n"
        "    const int k_main = k - k % 4;\n"
        "\n"
        "    double acc[8][8];\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 8; ++i) {\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 8; ++j) {\n"
        "            acc[i][j] = 0.0;\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // Whole steps of 4 along K.\n"
        "    if (row0 + 128 <= m && col0 + 128 <= n) {\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "            #pragma unroll\n"
        "            for (int kk = 0; kk < 4; ++kk) {\n"
        "                double a_frag[8];\n"
        "                double b_frag[8];\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 2; ++i) {\n"
        "                    COPY4(&a_frag[i * 4], &a[(k0 + kk) * lda + row + i * 64]);\n"
        "                }\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 2; ++j) {\n"
        "                    COPY4(&b_frag[j * 4], &b[(k0 + kk) * ldb + col + j * 64]);\n"
        "                }\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 8; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 8; ++j) {\n"
        "                        acc[i][j] = fma(a_frag[i], b_frag[j], acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    } else {\n"
        "        // At the edge of C, each load asks whether it is inside.\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "            #pragma unroll\n"
        "            for (int kk = 0; kk < 4; ++kk) {\n"
        "                double a_frag[8];\n"
        "                double b_frag[8];\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 2; ++i) {\n"
        "                    if (row + i * 64 + 4 <= m) {\n"
        "                        COPY4(&a_frag[i * 4], &a[(k0 + kk) * lda + row + i * 64]);\n"
        "                    } else {\n"
        "                        #pragma unroll\n"
        "                        for (int e = 0; e < 4; ++e) {\n"
        "                            a_frag[i * 4 + e] = a[(k0 + kk) * lda + min(row + i * 64 + e, m - 1)];\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 2; ++j) {\n"
        "                    if (col + j * 64 + 4 <= n) {\n"
        "                        COPY4(&b_frag[j * 4], &b[(k0 + kk) * ldb + col + j * 64]);\n"
        "                    } else {\n"
        "                        #pragma unroll\n"
        "                        for (int e = 0; e < 4; ++e) {\n"
        "                            b_frag[j * 4 + e] = b[(k0 + kk) * ldb + min(col + j * 64 + e, n - 1)];\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 8; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 8; ++j) {\n"
        "                        acc[i][j] = fma(a_frag[i], b_frag[j], acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "    if (k_main < k) {\n"
        "        // The rest of K; what lies past it counts as zero.\n"
        "        #pragma unroll\n"
        "        for (int kk = 0; kk < 4; ++kk) {\n"
        "            double a_frag[8];\n"
        "            double b_frag[8];\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 2; ++i) {\n"
        "                if (k_main + kk < k && row + i * 64 + 4 <= m) {\n"
        "                    COPY4(&a_frag[i * 4], &a[(k_main + kk) * lda + row + i * 64]);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        a_frag[i * 4 + e] =\n"
        "                            k_main + kk < k ? a[(k_main + kk) * lda + min(row + i * 64 + e, m - 1)]\n"
        "                                            : 0.0;\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 2; ++j) {\n"
        "                if (k_main + kk < k && col + j * 64 + 4 <= n) {\n"
        "                    COPY4(&b_frag[j * 4], &b[(k_main + kk) * ldb + col + j * 64]);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        b_frag[j * 4 + e] =\n"
        "                            k_main + kk < k ? b[(k_main + kk) * ldb + min(col + j * 64 + e, n - 1)]\n"
        "                                            : 0.0;\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 8; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 8; ++j) {\n"
        "                    acc[i][j] = fma(a_frag[i], b_frag[j], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // C = alpha * A * B + beta * C; C is not read where beta is zero.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 8; ++i) {\n"
        "        const int c_row = row + i / 4 * 64 + i % 4;\n"
        "        if (c_row < m) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 2; ++j) {\n"
        "                if (col + j * 64 + 4 <= n) {\n"
        "                    double c_values[4];\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        c_values[e] = alpha * acc[i][j * 4 + e];\n"
        "                    }\n"
        "                    if (beta != 0.0) {\n"
        "                        double c_old[4];\n"
        "                        COPY4(c_old, &c[c_row * ldc + col + j * 64]);\n"
        "                        #pragma unroll\n"
        "                        for (int e = 0; e < 4; ++e) {\n"
        "                            c_values[e] = fma(beta, c_old[e], c_values[e]);\n"
        "                        }\n"
        "                    }\n"
        "                    COPY4(&c[c_row * ldc + col + j * 64], c_values);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        if (col + j * 64 + e < n) {\n"
        "                            c[c_row * ldc + col + j * 64 + e] =\n"
        "                                beta == 0.0 ? alpha * acc[i][j * 4 + e]\n"
        "                                            : fma(beta, c[c_row * ldc + col + j * 64 + e],\n"
        "                                                alpha * acc[i][j * 4 + e]);\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n"
        "\n"
        "#undef COPY4\n",
};

static struct kernel dgemm_tt_tile_8x8 = {
    .name = "dgemm_tt_tile_8x8",
    .options = "-cl-std=CL1.2",
    .extensions = "cl_khr_fp64 ",
    .local_bytes = 0,
    .vector_bytes = 0,
    .device = ANY,
    .sub_group = 0,
    .group_rows = 16,
    .group_columns = 16,
    .block_rows = 128,
    .block_columns = 128,
    .groups_down = 1,
    .groups_across = 1,
    .text =
        "// dgemm_tt_tile_8x8: C = alpha * A * B + beta * C; float64; A col-major, B col-major\n"
        "//\n"
        "// Schedule   8x8 of C per work-item, 16x16 work-items per group (128x128 of C), 4 along K per\n"
        "//            iteration, stores of 2 elements\n"
        "// A          buffer, loads of 4 elements\n"
        "// B          buffer, loads of 4 elements\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {16, 16}, global size {(n + 127) / 128 * 16, (m + 127) / 128 * 16}\n"
        "// Needs      on Intel's GPUs, and only there, the build option -cl-intel-256-GRF-per-thread\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
        "\n"
        "// 4 neighbouring elements, at any alignment.\n"
        "#define COPY4(to, from) vstore4(vload4(0, from), 0, to)\n"
        "\n"
        "__attribute__((reqd_work_group_size(16, 16, 1)))\n"
        "__kernel void dgemm_tt_tile_8x8(int m, int n, int k, double alpha,\n"
        "                                __global const double *restrict a, int lda,\n"
        "                                __global const double *restrict b, int ldb, double beta,\n"
        "                                __global double *restrict c, int ldc)\n"
        "{\n"
        "    const int row0 = (int)get_group_id(1) * 128;\n"
        "    const int row = row0 + (int)get_local_id(1) * 4;\n"
        "    const int col = (int)get_group_id(0) * 128 + (int)get_local_id(0) * 4;\n"
        "    const int k_main = k - k % 4;\n"
        "\n"
        "    double acc[8][8];\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 8; ++i) {\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 8; ++j) {\n"
        "            acc[i][j] = 0.0;\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // Whole steps of 4 along K.\n"
        "    if (row0 + 128 <= m) {\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "            double a_frag[4][8];\n"
        "            double b_frag[8][4];\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 2; ++i) {\n"
        "                    COPY4(&a_frag[j][i * 4], &a[(k0 + j) * lda + row + i * 64]);\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 8; ++j) {\n"
        "                COPY4(b_frag[j], &b[min(col + j / 4 * 64 + j % 4, n - 1) * ldb + k0]);\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int p = 0; p < 4; ++p) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 8; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 8; ++j) {\n"
        "                        acc[i][j] = fma(a_frag[p][i], b_frag[j][p], acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    } else {\n"
        "        // At the edge of C, each load asks whether it is inside.\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "            double a_frag[4][8];\n"
        "            double b_frag[8][4];\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 2; ++i) {\n"
        "                    if (row + i * 64 + 4 <= m) {\n"
        "                        COPY4(&a_frag[j][i * 4], &a[(k0 + j) * lda + row + i * 64]);\n"
        "                    } else {\n"
        "                        #pragma unroll\n"
        "                        for (int e = 0; e < 4; ++e) {\n"
        "                            a_frag[j][i * 4 + e] = a[(k0 + j) * lda + min(row + i * 64 + e, m - 1)];\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 8; ++j) {\n"
        "                COPY4(b_frag[j], &b[min(col + j / 4 * 64 + j % 4, n - 1) * ldb + k0]);\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int p = 0; p < 4; ++p) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 8; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 8; ++j) {\n"
        "                        acc[i][j] = fma(a_frag[p][i], b_frag[j][p], acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "    if (k_main < k) {\n"
        "        // The rest of K; what lies past it counts as zero.\n"
        "        double a_frag[4][8];\n"
        "        double b_frag[8][4];\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 2; ++i) {\n"
        "                if (k_main + j < k && row + i * 64 + 4 <= m) {\n"
        "                    COPY4(&a_frag[j][i * 4], &a[(k_main + j) * lda + row + i * 64]);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        a_frag[j][i * 4 + e] =\n"
        "                            k_main + j < k ? a[(k_main + j) * lda + min(row + i * 64 + e, m - 1)]\n"
        "                                           : 0.0;\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 8; ++j) {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                b_frag[j][e] =\n"
        "                    k_main + e < k ? b[min(col + j / 4 * 64 + j % 4, n - 1) * ldb + k_main + e]\n"
        "                                   : 0.0;\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int p = 0; p < 4; ++p) {\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 8; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 8; ++j) {\n"
        "                    acc[i][j] = fma(a_frag[p][i], b_frag[j][p], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // C = alpha * A * B + beta * C; C is not read where beta is zero.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 8; ++i) {\n"
        "        const int c_row = row + i / 4 * 64 + i % 4;\n"
        "        if (c_row < m) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 2; ++j) {\n"
        "                if (col + j * 64 + 4 <= n) {\n"
        "                    double c_values[4];\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        c_values[e] = alpha * acc[i][j * 4 + e];\n"
        "                    }\n"
        "                    if (beta != 0.0) {\n"
        "                        double c_old[4];\n"
        "                        COPY4(c_old, &c[c_row * ldc + col + j * 64]);\n"
        "                        #pragma unroll\n"
        "                        for (int e = 0; e < 4; ++e) {\n"
        "                            c_values[e] = fma(beta, c_old[e], c_values[e]);\n"
        "                        }\n"
        "                    }\n"
        "                    COPY4(&c[c_row * ldc + col + j * 64], c_values);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        if (col + j * 64 + e < n) {\n"
        "                            c[c_row * ldc + col + j * 64 + e] =\n"
        "                                beta == 0.0 ? alpha * acc[i][j * 4 + e]\n"
        "                                            : fma(beta, c[c_row * ldc + col + j * 64 + e],\n"
        "                                                alpha * acc[i][j * 4 + e]);\n"
        "                        }\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n"
        "\n"
        "#undef COPY4\n",
};

static struct kernel cgemm_nn_vec4_4x4 = {
    .name = "cgemm_nn_vec4_4x4",
    .options = "-cl-std=CL1.2",
    .extensions = "",
    .local_bytes = 0,
    .vector_bytes = 0,
    .device = ANY,
    .sub_group = 0,
    .group_rows = 16,
    .group_columns = 16,
    .block_rows = 64,
    .block_columns = 64,
    .groups_down = 1,
    .groups_across = 1,
    .text =
        "// cgemm_nn_vec4_4x4: C = alpha * A * B + beta * C; complex64\n"
        "//\n"
        "// Schedule   4x4 of C per work-item, 16x16 work-items per group (64x64 of C), 4 along K per\n"
        "//            iteration\n"
        "// A          buffer, loads of 4 elements\n"
        "// B          buffer, loads of 4 elements\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {16, 16}, global size {(n + 63) / 64 * 16, (m + 63) / 64 * 16}\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "// Names of this file alone, so that a program can hold others, too.\n"
        "#define cmul cgemm_nn_vec4_4x4_cmul\n"
        "#define cfma cgemm_nn_vec4_4x4_cfma\n"
        "\n"
        "// a * b, of complex numbers.\n"
        "static inline float2 cmul(float2 a, float2 b)\n"
        "{\n"
        "    return (float2)(fma(a.x, b.x, -a.y * b.y), fma(a.x, b.y, a.y * b.x));\n"
        "}\n"
        "\n"
        "// a * b + c, of complex numbers: two multiply-adds for each part.\n"
        "static inline float2 cfma(float2 a, float2 b, float2 c)\n"
        "{\n"
        "    const float re = fma(a.x, b.x, fma(-a.y, b.y, c.x));\n"
        "    const float im = fma(a.x, b.y, fma(a.y, b.x, c.y));\n"
        "    return (float2)(re, im);\n"
        "}\n"
        "\n"
        "// 4 neighbouring complex numbers.\n"
        "#define GLOBAL_TO_PRIVATE4(to, from) \\\n"
        "    vstore8(vload8(0, (const __global float *)(from)), 0, (float *)(to))\n"
        "\n"
        "__attribute__((reqd_work_group_size(16, 16, 1)))\n"
        "__kernel void cgemm_nn_vec4_4x4(int m, int n, int k, float2 alpha,\n"
        "                                __global const float2 *restrict a, int lda,\n"
        "                                __global const float2 *restrict b, int ldb, float2 beta,\n"
        "                                __global float2 *restrict c, int ldc)\n"
        "{\n"
        "    const int col0 = (int)get_group_id(0) * 64;\n"
        "    const int row = (int)get_group_id(1) * 64 + (int)get_local_id(1) * 4;\n"
        "    const int col = col0 + (int)get_local_id(0) * 4;\n"
        "    const int k_main = k - k % 4;\n"
        "\n"
        "    float2 acc[4][4];\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 4; ++i) {\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            acc[i][j] = (float2)(0.0f, 0.0f);\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // Whole steps of 4 along K.\n"
        "    if (col0 + 64 <= n) {\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "            float2 a_frag[4][4];\n"
        "            float2 b_frag[4][4];\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 4; ++i) {\n"
        "                GLOBAL_TO_PRIVATE4(a_frag[i], &a[min(row + i, m - 1) * lda + k0]);\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 4; ++i) {\n"
        "                GLOBAL_TO_PRIVATE4(b_frag[i], &b[(k0 + i) * ldb + col]);\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int p = 0; p < 4; ++p) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 4; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 4; ++j) {\n"
        "                        acc[i][j] = cfma(a_frag[i][p], b_frag[p][j], acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    } else {\n"
        "        // At the edge of C, each load asks whether it is inside.\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "            float2 a_frag[4][4];\n"
        "            float2 b_frag[4][4];\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 4; ++i) {\n"
        "                GLOBAL_TO_PRIVATE4(a_frag[i], &a[min(row + i, m - 1) * lda + k0]);\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 4; ++i) {\n"
        "                if (col + 4 <= n) {\n"
        "                    GLOBAL_TO_PRIVATE4(b_frag[i], &b[(k0 + i) * ldb + col]);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        b_frag[i][e] = b[(k0 + i) * ldb + min(col + e, n - 1)];\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int p = 0; p < 4; ++p) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 4; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 4; ++j) {\n"
        "                        acc[i][j] = cfma(a_frag[i][p], b_frag[p][j], acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "    if (k_main < k) {\n"
        "        // The rest of K; what lies past it counts as zero.\n"
        "        float2 a_frag[4][4];\n"
        "        float2 b_frag[4][4];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 4; ++i) {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                a_frag[i][e] =\n"
        "                    k_main + e < k ? a[min(row + i, m - 1) * lda + k_main + e]\n"
        "                                   : (float2)(0.0f, 0.0f);\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 4; ++i) {\n"
        "            if (k_main + i < k && col + 4 <= n) {\n"
        "                GLOBAL_TO_PRIVATE4(b_frag[i], &b[(k_main + i) * ldb + col]);\n"
        "            } else {\n"
        "                #pragma unroll\n"
        "                for (int e = 0; e < 4; ++e) {\n"
        "                    b_frag[i][e] =\n"
        "                        k_main + i < k ? b[(k_main + i) * ldb + min(col + e, n - 1)]\n"
        "                                       : (float2)(0.0f, 0.0f);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int p = 0; p < 4; ++p) {\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 4; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 4; ++j) {\n"
        "                    acc[i][j] = cfma(a_frag[i][p], b_frag[p][j], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // C = alpha * A * B + beta * C; C is not read where beta is zero.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 4; ++i) {\n"
        "        if (row + i < m) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                if (col + j < n) {\n"
        "                    c[(row + i) * ldc + col + j] =\n"
        "                        beta.x == 0.0f && beta.y == 0.0f ? cmul(alpha, acc[i][j])\n"
        "                                                         : cfma(beta, c[(row + i) * ldc + col + j],\n"
        "                                                             cmul(alpha, acc[i][j]));\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n"
        "\n"
        "#undef cmul\n"
        "#undef cfma\n"
        "#undef GLOBAL_TO_PRIVATE4\n",
};

static struct kernel cgemm_nt_vec4_4x4 = {
    .name = "cgemm_nt_vec4_4x4",
    .options = "-cl-std=CL1.2",
    .extensions = "",
    .local_bytes = 0,
    .vector_bytes = 0,
    .device = ANY,
    .sub_group = 0,
    .group_rows = 16,
    .group_columns = 16,
    .block_rows = 64,
    .block_columns = 64,
    .groups_down = 1,
    .groups_across = 1,
    .text =
        "// cgemm_nt_vec4_4x4: C = alpha * A * B + beta * C; complex64; B col-major\n"
        "//\n"
        "// Schedule   4x4 of C per work-item, 16x16 work-items per group (64x64 of C), 4 along K per\n"
        "//            iteration\n"
        "// A          buffer, loads of 4 elements\n"
        "// B          buffer, loads of 4 elements\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {16, 16}, global size {(n + 63) / 64 * 16, (m + 63) / 64 * 16}\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "// Names of this file alone, so that a program can hold others, too.\n"
        "#define cmul cgemm_nt_vec4_4x4_cmul\n"
        "#define cfma cgemm_nt_vec4_4x4_cfma\n"
        "\n"
        "// a * b, of complex numbers.\n"
        "static inline float2 cmul(float2 a, float2 b)\n"
        "{\n"
        "    return (float2)(fma(a.x, b.x, -a.y * b.y), fma(a.x, b.y, a.y * b.x));\n"
        "}\n"
        "\n"
        "// a * b + c, of complex numbers: two multiply-adds for each part.\n"
        "static inline float2 cfma(float2 a, float2 b, float2 c)\n"
        "{\n"
        "    const float re = fma(a.x, b.x, fma(-a.y, b.y, c.x));\n"
        "    const float im = fma(a.x, b.y, fma(a.y, b.x, c.y));\n"
        "    return (float2)(re, im);\n"
        "}\n"
        "\n"
        "// 4 neighbouring complex numbers.\n"
        "#define GLOBAL_TO_PRIVATE4(to, from) \\\n"
        "    vstore8(vload8(0, (const __global float *)(from)), 0, (float *)(to))\n"
        "\n"
        "__attribute__((reqd_work_group_size(16, 16, 1)))\n"
        "__kernel void cgemm_nt_vec4_4x4(int m, int n, int k, float2 alpha,\n"
        "                                __global const float2 *restrict a, int lda,\n"
        "                                __global const float2 *restrict b, int ldb, float2 beta,\n"
        "                                __global float2 *restrict c, int ldc)\n"
        "{\n"
        "    const int row = (int)get_group_id(1) * 64 + (int)get_local_id(1) * 4;\n"
        "    const int col = (int)get_group_id(0) * 64 + (int)get_local_id(0) * 4;\n"
        "    const int k_main = k - k % 4;\n"
        "\n"
        "    float2 acc[4][4];\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 4; ++i) {\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            acc[i][j] = (float2)(0.0f, 0.0f);\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // Whole steps of 4 along K.\n"
        "    for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "        float2 a_frag[4][4];\n"
        "        float2 b_frag[4][4];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 4; ++i) {\n"
        "            GLOBAL_TO_PRIVATE4(a_frag[i], &a[min(row + i, m - 1) * lda + k0]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            GLOBAL_TO_PRIVATE4(b_frag[j], &b[min(col + j, n - 1) * ldb + k0]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int p = 0; p < 4; ++p) {\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 4; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 4; ++j) {\n"
        "                    acc[i][j] = cfma(a_frag[i][p], b_frag[j][p], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "    if (k_main < k) {\n"
        "        // The rest of K; what lies past it counts as zero.\n"
        "        float2 a_frag[4][4];\n"
        "        float2 b_frag[4][4];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 4; ++i) {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                a_frag[i][e] =\n"
        "                    k_main + e < k ? a[min(row + i, m - 1) * lda + k_main + e]\n"
        "                                   : (float2)(0.0f, 0.0f);\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                b_frag[j][e] =\n"
        "                    k_main + e < k ? b[min(col + j, n - 1) * ldb + k_main + e]\n"
        "                                   : (float2)(0.0f, 0.0f);\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int p = 0; p < 4; ++p) {\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 4; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 4; ++j) {\n"
        "                    acc[i][j] = cfma(a_frag[i][p], b_frag[j][p], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // C = alpha * A * B + beta * C; C is not read where beta is zero.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 4; ++i) {\n"
        "        if (row + i < m) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                if (col + j < n) {\n"
        "                    c[(row + i) * ldc + col + j] =\n"
        "                        beta.x == 0.0f && beta.y == 0.0f ? cmul(alpha, acc[i][j])\n"
        "                                                         : cfma(beta, c[(row + i) * ldc + col + j],\n"
        "                                                             cmul(alpha, acc[i][j]));\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n"
        "\n"
        "#undef cmul\n"
        "#undef cfma\n"
        "#undef GLOBAL_TO_PRIVATE4\n",
};

static struct kernel cgemm_nc_vec4_4x4 = {
    .name = "cgemm_nc_vec4_4x4",
    .options = "-cl-std=CL1.2",
    .extensions = "",
    .local_bytes = 0,
    .vector_bytes = 0,
    .device = ANY,
    .sub_group = 0,
    .group_rows = 16,
    .group_columns = 16,
    .block_rows = 64,
    .block_columns = 64,
    .groups_down = 1,
    .groups_across = 1,
    .text =
        "// cgemm_nc_vec4_4x4: C = alpha * A * conj(B) + beta * C; complex64; B col-major\n"
        "//\n"
        "// Schedule   4x4 of C per work-item, 16x16 work-items per group (64x64 of C), 4 along K per\n"
        "//            iteration\n"
        "// A          buffer, loads of 4 elements\n"
        "// B          buffer, loads of 4 elements\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {16, 16}, global size {(n + 63) / 64 * 16, (m + 63) / 64 * 16}\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "// Names of this file alone, so that a program can hold others, too.\n"
        "#define conjugate cgemm_nc_vec4_4x4_conjugate\n"
        "#define cmul cgemm_nc_vec4_4x4_cmul\n"
        "#define cfma cgemm_nc_vec4_4x4_cfma\n"
        "\n"
        "// The complex conjugate: the imaginary part with its sign changed.\n"
        "static inline float2 conjugate(float2 value)\n"
        "{\n"
        "    return (float2)(value.x, -value.y);\n"
        "}\n"
        "\n"
        "// a * b, of complex numbers.\n"
        "static inline float2 cmul(float2 a, float2 b)\n"
        "{\n"
        "    return (float2)(fma(a.x, b.x, -a.y * b.y), fma(a.x, b.y, a.y * b.x));\n"
        "}\n"
        "\n"
        "// a * b + c, of complex numbers: two multiply-adds for each part.\n"
        "static inline float2 cfma(float2 a, float2 b, float2 c)\n"
        "{\n"
        "    const float re = fma(a.x, b.x, fma(-a.y, b.y, c.x));\n"
        "    const float im = fma(a.x, b.y, fma(a.y, b.x, c.y));\n"
        "    return (float2)(re, im);\n"
        "}\n"
        "\n"
        "// 4 neighbouring complex numbers.\n"
        "#define GLOBAL_TO_PRIVATE4(to, from) \\\n"
        "    vstore8(vload8(0, (const __global float *)(from)), 0, (float *)(to))\n"
        "\n"
        "__attribute__((reqd_work_group_size(16, 16, 1)))\n"
        "__kernel void cgemm_nc_vec4_4x4(int m, int n, int k, float2 alpha,\n"
        "                                __global const float2 *restrict a, int lda,\n"
        "                                __global const float2 *restrict b, int ldb, float2 beta,\n"
        "                                __global float2 *restrict c, int ldc)\n"
        "{\n"
        "    const int row = (int)get_group_id(1) * 64 + (int)get_local_id(1) * 4;\n"
        "    const int col = (int)get_group_id(0) * 64 + (int)get_local_id(0) * 4;\n"
        "    const int k_main = k - k % 4;\n"
        "\n"
        "    float2 acc[4][4];\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 4; ++i) {\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            acc[i][j] = (float2)(0.0f, 0.0f);\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // Whole steps of 4 along K.\n"
        "    for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "        float2 a_frag[4][4];\n"
        "        float2 b_frag[4][4];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 4; ++i) {\n"
        "            GLOBAL_TO_PRIVATE4(a_frag[i], &a[min(row + i, m - 1) * lda + k0]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            GLOBAL_TO_PRIVATE4(b_frag[j], &b[min(col + j, n - 1) * ldb + k0]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int p = 0; p < 4; ++p) {\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 4; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 4; ++j) {\n"
        "                    acc[i][j] = cfma(a_frag[i][p], conjugate(b_frag[j][p]), acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "    if (k_main < k) {\n"
        "        // The rest of K; what lies past it counts as zero.\n"
        "        float2 a_frag[4][4];\n"
        "        float2 b_frag[4][4];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 4; ++i) {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                a_frag[i][e] =\n"
        "                    k_main + e < k ? a[min(row + i, m - 1) * lda + k_main + e]\n"
        "                                   : (float2)(0.0f, 0.0f);\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                b_frag[j][e] =\n"
        "                    k_main + e < k ? b[min(col + j, n - 1) * ldb + k_main + e]\n"
        "                                   : (float2)(0.0f, 0.0f);\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int p = 0; p < 4; ++p) {\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 4; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 4; ++j) {\n"
        "                    acc[i][j] = cfma(a_frag[i][p], conjugate(b_frag[j][p]), acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // C = alpha * A * conj(B) + beta * C; C is not read where beta is zero.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 4; ++i) {\n"
        "        if (row + i < m) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                if (col + j < n) {\n"
        "                    c[(row + i) * ldc + col + j] =\n"
        "                        beta.x == 0.0f && beta.y == 0.0f ? cmul(alpha, acc[i][j])\n"
        "                                                         : cfma(beta, c[(row + i) * ldc + col + j],\n"
        "                                                             cmul(alpha, acc[i][j]));\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n"
        "\n"
        "#undef conjugate\n"
        "#undef cmul\n"
        "#undef cfma\n"
        "#undef GLOBAL_TO_PRIVATE4\n",
};

static struct kernel cgemm_tn_vec4_4x4 = {
    .name = "cgemm_tn_vec4_4x4",
    .options = "-cl-std=CL1.2",
    .extensions = "",
    .local_bytes = 0,
    .vector_bytes = 0,
    .device = ANY,
    .sub_group = 0,
    .group_rows = 16,
    .group_columns = 16,
    .block_rows = 64,
    .block_columns = 64,
    .groups_down = 1,
    .groups_across = 1,
    .text =
        "// cgemm_tn_vec4_4x4: C = alpha * A * B + beta * C; complex64; A col-major\n"
        "//\n"
        "// Schedule   4x4 of C per work-item, 16x16 work-items per group (64x64 of C), 4 along K per\n"
        "//            iteration\n"
        "// A          buffer, loads of 4 elements\n"
        "// B          buffer, loads of 4 elements\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {16, 16}, global size {(n + 63) / 64 * 16, (m + 63) / 64 * 16}\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "// Names of this file alone, so that a program can hold others, too.\n"
        "#define cmul cgemm_tn_vec4_4x4_cmul\n"
        "#define cfma cgemm_tn_vec4_4x4_cfma\n"
        "\n"
        "// a * b, of complex numbers.\n"
        "static inline float2 cmul(float2 a, float2 b)\n"
        "{\n"
        "    return (float2)(fma(a.x, b.x, -a.y * b.y), fma(a.x, b.y, a.y * b.x));\n"
        "}\n"
        "\n"
        "// a * b + c, of complex numbers: two multiply-adds for each part.\n"
        "static inline float2 cfma(float2 a, float2 b, float2 c)\n"
        "{\n"
        "    const float re = fma(a.x, b.x, fma(-a.y, b.y, c.x));\n"
        "    const float im = fma(a.x, b.y, fma(a.y, b.x, c.y));\n"
        "    return (float2)(re, im);\n"
        "}\n"
        "\n"
        "// 4 neighbouring complex numbers.\n"
        "#define GLOBAL_TO_PRIVATE4(to, from) \\\n"
        "    vstore8(vload8(0, (const __global float *)(from)), 0, (float *)(to))\n"
        "\n"
        "__attribute__((reqd_work_group_size(16, 16, 1)))\n"
        "__kernel void cgemm_tn_vec4_4x4(int m, int n, int k, float2 alpha,\n"
        "                                __global const float2 *restrict a, int lda,\n"
        "                                __global const float2 *restrict b, int ldb, float2 beta,\n"
        "                                __global float2 *restrict c, int ldc)\n"
        "{\n"
        "    const int row0 = (int)get_group_id(1) * 64;\n"
        "    const int col0 = (int)get_group_id(0) * 64;\n"
        "    const int row = row0 + (int)get_local_id(1) * 4;\n"
        "    const int col = col0 + (int)get_local_id(0) * 4;\n"
        "    const int k_main = k - k % 4;\n"
        "\n"
        "    float2 acc[4][4];\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 4; ++i) {\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            acc[i][j] = (float2)(0.0f, 0.0f);\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // Whole steps of 4 along K.\n"
        "    if (row0 + 64 <= m && col0 + 64 <= n) {\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "            #pragma unroll\n"
        "            for (int kk = 0; kk < 4; ++kk) {\n"
        "                float2 a_frag[4];\n"
        "                float2 b_frag[4];\n"
        "                GLOBAL_TO_PRIVATE4(a_frag, &a[(k0 + kk) * lda + row]);\n"
        "                GLOBAL_TO_PRIVATE4(b_frag, &b[(k0 + kk) * ldb + col]);\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 4; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 4; ++j) {\n"
        "                        acc[i][j] = cfma(a_frag[i], b_frag[j], acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    } else {\n"
        "        // At the edge of C, each load asks whether it is inside.\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "            #pragma unroll\n"
        "            for (int kk = 0; kk < 4; ++kk) {\n"
        "                float2 a_frag[4];\n"
        "                float2 b_frag[4];\n"
        "                if (row + 4 <= m) {\n"
        "                    GLOBAL_TO_PRIVATE4(a_frag, &a[(k0 + kk) * lda + row]);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        a_frag[e] = a[(k0 + kk) * lda + min(row + e, m - 1)];\n"
        "                    }\n"
        "                }\n"
        "                if (col + 4 <= n) {\n"
        "                    GLOBAL_TO_PRIVATE4(b_frag, &b[(k0 + kk) * ldb + col]);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        b_frag[e] = b[(k0 + kk) * ldb + min(col + e, n - 1)];\n"
        "                    }\n"
        "                }\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 4; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 4; ++j) {\n"
        "                        acc[i][j] = cfma(a_frag[i], b_frag[j], acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "    if (k_main < k) {\n"
        "        // The rest of K; what lies past it counts as zero.\n"
        "        #pragma unroll\n"
        "        for (int kk = 0; kk < 4; ++kk) {\n"
        "            float2 a_frag[4];\n"
        "            float2 b_frag[4];\n"
        "            if (k_main + kk < k && row + 4 <= m) {\n"
        "                GLOBAL_TO_PRIVATE4(a_frag, &a[(k_main + kk) * lda + row]);\n"
        "            } else {\n"
        "                #pragma unroll\n"
        "                for (int e = 0; e < 4; ++e) {\n"
        "                    a_frag[e] =\n"
        "                        k_main + kk < k ? a[(k_main + kk) * lda + min(row + e, m - 1)]\n"
        "                                        : (float2)(0.0f, 0.0f);\n"
        "                }\n"
        "            }\n"
        "            if (k_main + kk < k && col + 4 <= n) {\n"
        "                GLOBAL_TO_PRIVATE4(b_frag, &b[(k_main + kk) * ldb + col]);\n"
        "            } else {\n"
        "                #pragma unroll\n"
        "                for (int e = 0; e < 4; ++e) {\n"
        "                    b_frag[e] =\n"
        "                        k_main + kk < k ? b[(k_main + kk) * ldb + min(col + e, n - 1)]\n"
        "                                        : (float2)(0.0f, 0.0f);\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 4; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 4; ++j) {\n"
        "                    acc[i][j] = cfma(a_frag[i], b_frag[j], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // C = alpha * A * B + beta * C; C is not read where beta is zero.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 4; ++i) {\n"
        "        if (row + i < m) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                if (col + j < n) {\n"
        "                    c[(row + i) * ldc + col + j] =\n"
        "                        beta.x == 0.0f && beta.y == 0.0f ? cmul(alpha, acc[i][j])\n"
        "                                                         : cfma(beta, c[(row + i) * ldc + col + j],\n"
        "                                                             cmul(alpha, acc[i][j]));\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n"
        "\n"
        "#undef cmul\n"
        "#undef cfma\n"
        "#undef GLOBAL_TO_PRIVATE4\n",
};

static struct kernel cgemm_tt_vec4_4x4 = {
    .name = "cgemm_tt_vec4_4x4",
    .options = "-cl-std=CL1.2",
    .extensions = "",
    .local_bytes = 0,
    .vector_bytes = 0,
    .device = ANY,
    .sub_group = 0,
    .group_rows = 16,
    .group_columns = 16,
    .block_rows = 64,
    .block_columns = 64,
    .groups_down = 1,
    .groups_across = 1,
    .text =
        "// cgemm_tt_vec4_4x4: C = alpha * A * B + beta * C; complex64; A col-major, B col-major\n"
        "//\n"
        "// Schedule   4x4 of C per work-item, 16x16 work-items per group (64x64 of C), 4 along K per\n"
        "//            iteration\n"
        "// A          buffer, loads of 4 elements\n"
        "// B          buffer, loads of 4 elements\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {16, 16}, global size {(n + 63) / 64 * 16, (m + 63) / 64 * 16}\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "// Names of this file alone, so that a program can hold others, too.\n"
        "#define cmul cgemm_tt_vec4_4x4_cmul\n"
        "#define cfma cgemm_tt_vec4_4x4_cfma\n"
        "\n"
        "// a * b, of complex numbers.\n"
        "static inline float2 cmul(float2 a, float2 b)\n"
        "{\n"
        "    return (float2)(fma(a.x, b.x, -a.y * b.y), fma(a.x, b.y, a.y * b.x));\n"
        "}\n"
        "\n"
        "// a * b + c, of complex numbers: two multiply-adds for each part.\n"
        "static inline float2 cfma(float2 a, float2 b, float2 c)\n"
        "{\n"
        "    const float re = fma(a.x, b.x, fma(-a.y, b.y, c.x));\n"
        "    const float im = fma(a.x, b.y, fma(a.y, b.x, c.y));\n"
        "    return (float2)(re, im);\n"
        "}\n"
        "\n"
        "// 4 neighbouring complex numbers.\n"
        "#define GLOBAL_TO_PRIVATE4(to, from) \\\n"
        "    vstore8(vload8(0, (const __global float *)(from)), 0, (float *)(to))\n"
        "\n"
        "__attribute__((reqd_work_group_size(16, 16, 1)))\n"
        "__kernel void cgemm_tt_vec4_4x4(int m, int n, int k, float2 alpha,\n"
        "                                __global const float2 *restrict a, int lda,\n"
        "                                __global const float2 *restrict b, int ldb, float2 beta,\n"
        "                                __global float2 *restrict c, int ldc)\n"
        "{\n"
        "    const int row0 = (int)get_group_id(1) * 64;\n"
        "    const int row = row0 + (int)get_local_id(1) * 4;\n"
        "    const int col = (int)get_group_id(0) * 64 + (int)get_local_id(0) * 4;\n"
        "    const int k_main = k - k % 4;\n"
        "\n"
        "    float2 acc[4][4];\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 4; ++i) {\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            acc[i][j] = (float2)(0.0f, 0.0f);\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // Whole steps of 4 along K.\n"
        "    if (row0 + 64 <= m) {\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "            float2 a_frag[4][4];\n"
        "            float2 b_frag[4][4];\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                GLOBAL_TO_PRIVATE4(a_frag[j], &a[(k0 + j) * lda + row]);\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                GLOBAL_TO_PRIVATE4(b_frag[j], &b[min(col + j, n - 1) * ldb + k0]);\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int p = 0; p < 4; ++p) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 4; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 4; ++j) {\n"
        "                        acc[i][j] = cfma(a_frag[p][i], b_frag[j][p], acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    } else {\n"
        "        // At the edge of C, each load asks whether it is inside.\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "            float2 a_frag[4][4];\n"
        "            float2 b_frag[4][4];\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                if (row + 4 <= m) {\n"
        "                    GLOBAL_TO_PRIVATE4(a_frag[j], &a[(k0 + j) * lda + row]);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        a_frag[j][e] = a[(k0 + j) * lda + min(row + e, m - 1)];\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                GLOBAL_TO_PRIVATE4(b_frag[j], &b[min(col + j, n - 1) * ldb + k0]);\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int p = 0; p < 4; ++p) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 4; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 4; ++j) {\n"
        "                        acc[i][j] = cfma(a_frag[p][i], b_frag[j][p], acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "    if (k_main < k) {\n"
        "        // The rest of K; what lies past it counts as zero.\n"
        "        float2 a_frag[4][4];\n"
        "        float2 b_frag[4][4];\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            if (k_main + j < k && row + 4 <= m) {\n"
        "                GLOBAL_TO_PRIVATE4(a_frag[j], &a[(k_main + j) * lda + row]);\n"
        "            } else {\n"
        "                #pragma unroll\n"
        "                for (int e = 0; e < 4; ++e) {\n"
        "                    a_frag[j][e] =\n"
        "                        k_main + j < k ? a[(k_main + j) * lda + min(row + e, m - 1)]\n"
        "                                       : (float2)(0.0f, 0.0f);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                b_frag[j][e] =\n"
        "                    k_main + e < k ? b[min(col + j, n - 1) * ldb + k_main + e]\n"
        "                                   : (float2)(0.0f, 0.0f);\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int p = 0; p < 4; ++p) {\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 4; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 4; ++j) {\n"
        "                    acc[i][j] = cfma(a_frag[p][i], b_frag[j][p], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // C = alpha * A * B + beta * C; C is not read where beta is zero.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 4; ++i) {\n"
        "        if (row + i < m) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                if (col + j < n) {\n"
        "                    c[(row + i) * ldc + col + j] =\n"
        "                        beta.x == 0.0f && beta.y == 0.0f ? cmul(alpha, acc[i][j])\n"
        "                                                         : cfma(beta, c[(row + i) * ldc + col + j],\n"
        "                                                             cmul(alpha, acc[i][j]));\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n"
        "\n"
        "#undef cmul\n"
        "#undef cfma\n"
        "#undef GLOBAL_TO_PRIVATE4\n",
};

static struct kernel cgemm_tc_vec4_4x4 = {
    .name = "cgemm_tc_vec4_4x4",
    .options = "-cl-std=CL1.2",
    .extensions = "",
    .local_bytes = 0,
    .vector_bytes = 0,
    .device = ANY,
    .sub_group = 0,
    .group_rows = 16,
    .group_columns = 16,
    .block_rows = 64,
    .block_columns = 64,
    .groups_down = 1,
    .groups_across = 1,
    .text =
        "// cgemm_tc_vec4_4x4: C = alpha * A * conj(B) + beta * C; complex64; A col-major, B col-major\n"
        "//\n"
        "// Schedule   4x4 of C per work-item, 16x16 work-items per group (64x64 of C), 4 along K per\n"
        "//            iteration\n"
        "// A          buffer, loads of 4 elements\n"
        "// B          buffer, loads of 4 elements\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {16, 16}, global size {(n + 63) / 64 * 16, (m + 63) / 64 * 16}\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "// Names of this file alone, so that a program can hold others, too.\n"
        "#define conjugate cgemm_tc_vec4_4x4_conjugate\n"
        "#define cmul cgemm_tc_vec4_4x4_cmul\n"
        "#define cfma cgemm_tc_vec4_4x4_cfma\n"
        "\n"
        "// The complex conjugate: the imaginary part with its sign changed.\n"
        "static inline float2 conjugate(float2 value)\n"
        "{\n"
        "    return (float2)(value.x, -value.y);\n"
        "}\n"
        "\n"
        "// a * b, of complex numbers.\n"
        "static inline float2 cmul(float2 a, float2 b)\n"
        "{\n"
        "    return (float2)(fma(a.x, b.x, -a.y * b.y), fma(a.x, b.y, a.y * b.x));\n"
        "}\n"
        "\n"
        "// a * b + c, of complex numbers: two multiply-adds for each part.\n"
        "static inline float2 cfma(float2 a, float2 b, float2 c)\n"
        "{\n"
        "    const float re = fma(a.x, b.x, fma(-a.y, b.y, c.x));\n"
        "    const float im = fma(a.x, b.y, fma(a.y, b.x, c.y));\n"
        "    return (float2)(re, im);\n"
        "}\n"
        "\n"
        "// 4 neighbouring complex numbers.\n"
        "#define GLOBAL_TO_PRIVATE4(to, from) \\\n"
        "    vstore8(vload8(0, (const __global float *)(from)), 0, (float *)(to))\n"
        "\n"
        "__attribute__((reqd_work_group_size(16, 16, 1)))\n"
        "__kernel void cgemm_tc_vec4_4x4(int m, int n, int k, float2 alpha,\n"
        "                                __global const float2 *restrict a, int lda,\n"
        "                                __global const float2 *restrict b, int ldb, float2 beta,\n"
        "                                __global float2 *restrict c, int ldc)\n"
        "{\n"
        "    const int row0 = (int)get_group_id(1) * 64;\n"
        "    const int row = row0 + (int)get_local_id(1) * 4;\n"
        "    const int col = (int)get_group_id(0) * 64 + (int)get_local_id(0) * 4;\n"
        "    const int k_main = k - k % 4;\n"
        "\n"
        "    float2 acc[4][4];\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 4; ++i) {\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            acc[i][j] = (float2)(0.0f, 0.0f);\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // Whole steps of 4 along K.\n"
        "    if (row0 + 64 <= m) {\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "            float2 a_frag[4][4];\n"
        "            float2 b_frag[4][4];\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                GLOBAL_TO_PRIVATE4(a_frag[j], &a[(k0 + j) * lda + row]);\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                GLOBAL_TO_PRIVATE4(b_frag[j], &b[min(col + j, n - 1) * ldb + k0]);\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int p = 0; p < 4; ++p) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 4; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 4; ++j) {\n"
        "                        acc[i][j] = cfma(a_frag[p][i], conjugate(b_frag[j][p]), acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    } else {\n"
        "        // At the edge of C, each load asks whether it is inside.\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "            float2 a_frag[4][4];\n"
        "            float2 b_frag[4][4];\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                if (row + 4 <= m) {\n"
        "                    GLOBAL_TO_PRIVATE4(a_frag[j], &a[(k0 + j) * lda + row]);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        a_frag[j][e] = a[(k0 + j) * lda + min(row + e, m - 1)];\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                GLOBAL_TO_PRIVATE4(b_frag[j], &b[min(col + j, n - 1) * ldb + k0]);\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int p = 0; p < 4; ++p) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 4; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 4; ++j) {\n"
        "                        acc[i][j] = cfma(a_frag[p][i], conjugate(b_frag[j][p]), acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "    if (k_main < k) {\n"
        "        // The rest of K; what lies past it counts as zero.\n"
        "        float2 a_frag[4][4];\n"
        "        float2 b_frag[4][4];\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            if (k_main + j < k && row + 4 <= m) {\n"
        "                GLOBAL_TO_PRIVATE4(a_frag[j], &a[(k_main + j) * lda + row]);\n"
        "            } else {\n"
        "                #pragma unroll\n"
        "                for (int e = 0; e < 4; ++e) {\n"
        "                    a_frag[j][e] =\n"
        "                        k_main + j < k ? a[(k_main + j) * lda + min(row + e, m - 1)]\n"
        "                                       : (float2)(0.0f, 0.0f);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                b_frag[j][e] =\n"
        "                    k_main + e < k ? b[min(col + j, n - 1) * ldb + k_main + e]\n"
        "                                   : (float2)(0.0f, 0.0f);\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int p = 0; p < 4; ++p) {\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 4; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 4; ++j) {\n"
        "                    acc[i][j] = cfma(a_frag[p][i], conjugate(b_frag[j][p]), acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // C = alpha * A * conj(B) + beta * C; C is not read where beta is zero.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 4; ++i) {\n"
        "        if (row + i < m) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                if (col + j < n) {\n"
        "                    c[(row + i) * ldc + col + j] =\n"
        "                        beta.x == 0.0f && beta.y == 0.0f ? cmul(alpha, acc[i][j])\n"
        "                                                         : cfma(beta, c[(row + i) * ldc + col + j],\n"
        "                                                             cmul(alpha, acc[i][j]));\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n"
        "\n"
        "#undef conjugate\n"
        "#undef cmul\n"
        "#undef cfma\n"
        "#undef GLOBAL_TO_PRIVATE4\n",
};

static struct kernel cgemm_cn_vec4_4x4 = {
    .name = "cgemm_cn_vec4_4x4",
    .options = "-cl-std=CL1.2",
    .extensions = "",
    .local_bytes = 0,
    .vector_bytes = 0,
    .device = ANY,
    .sub_group = 0,
    .group_rows = 16,
    .group_columns = 16,
    .block_rows = 64,
    .block_columns = 64,
    .groups_down = 1,
    .groups_across = 1,
    .text =
        "// cgemm_cn_vec4_4x4: C = alpha * conj(A) * B + beta * C; complex64; A col-major\n"
        "//\n"
        "// Schedule   4x4 of C per work-item, 16x16 work-items per group (64x64 of C), 4 along K per\n"
        "//            iteration\n"
        "// A          buffer, loads of 4 elements\n"
        "// B          buffer, loads of 4 elements\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {16, 16}, global size {(n + 63) / 64 * 16, (m + 63) / 64 * 16}\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "// Names of this file alone, so that a program can hold others, too.\n"
        "#define conjugate cgemm_cn_vec4_4x4_conjugate\n"
        "#define cmul cgemm_cn_vec4_4x4_cmul\n"
        "#define cfma cgemm_cn_vec4_4x4_cfma\n"
        "\n"
        "// The complex conjugate: the imaginary part with its sign changed.\n"
        "static inline float2 conjugate(float2 value)\n"
        "{\n"
        "    return (float2)(value.x, -value.y);\n"
        "}\n"
        "\n"
        "// a * b, of complex numbers.\n"
        "static inline float2 cmul(float2 a, float2 b)\n"
        "{\n"
        "    return (float2)(fma(a.x, b.x, -a.y * b.y), fma(a.x, b.y, a.y * b.x));\n"
        "}\n"
        "\n"
        "// a * b + c, of complex numbers: two multiply-adds for each part.\n"
        "static inline float2 cfma(float2 a, float2 b, float2 c)\n"
        "{\n"
        "    const float re = fma(a.x, b.x, fma(-a.y, b.y, c.x));\n"
        "    const float im = fma(a.x, b.y, fma(a.y, b.x, c.y));\n"
        "    return (float2)(re, im);\n"
        "}\n"
        "\n"
        "// 4 neighbouring complex numbers.\n"
        "#define GLOBAL_TO_PRIVATE4(to, from) \\\n"
        "    vstore8(vload8(0, (const __global float *)(from)), 0, (float *)(to))\n"
        "\n"
        "__attribute__((reqd_work_group_size(16, 16, 1)))\n"
        "__kernel void cgemm_cn_vec4_4x4(int m, int n, int k, float2 alpha,\n"
        "                                __global const float2 *restrict a, int lda,\n"
        "                                __global const float2 *restrict b, int ldb, float2 beta,\n"
        "                                __global float2 *restrict c, int ldc)\n"
        "{\n"
        "    const int row0 = (int)get_group_id(1) * 64;\n"
        "    const int col0 = (int)get_group_id(0) * 64;\n"
        "    const int row = row0 + (int)get_local_id(1) * 4;\n"
        "    const int col = col0 + (int)get_local_id(0) * 4;\n"
        "    const int k_main = k - k % 4;\n"
        "\n"
        "    float2 acc[4][4];\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 4; ++i) {\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            acc[i][j] = (float2)(0.0f, 0.0f);\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // Whole steps of 4 along K.\n"
        "    if (row0 + 64 <= m && col0 + 64 <= n) {\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "            #pragma unroll\n"
        "            for (int kk = 0; kk < 4; ++kk) {\n"
        "                float2 a_frag[4];\n"
        "                float2 b_frag[4];\n"
        "                GLOBAL_TO_PRIVATE4(a_frag, &a[(k0 + kk) * lda + row]);\n"
        "                GLOBAL_TO_PRIVATE4(b_frag, &b[(k0 + kk) * ldb + col]);\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 4; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 4; ++j) {\n"
        "                        acc[i][j] = cfma(conjugate(a_frag[i]), b_frag[j], acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    } else {\n"
        "        // At the edge of C, each load asks whether it is inside.\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "            #pragma unroll\n"
        "            for (int kk = 0; kk < 4; ++kk) {\n"
        "                float2 a_frag[4];\n"
        "                float2 b_frag[4];\n"
        "                if (row + 4 <= m) {\n"
        "                    GLOBAL_TO_PRIVATE4(a_frag, &a[(k0 + kk) * lda + row]);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        a_frag[e] = a[(k0 + kk) * lda + min(row + e, m - 1)];\n"
        "                    }\n"
        "                }\n"
        "                if (col + 4 <= n) {\n"
        "                    GLOBAL_TO_PRIVATE4(b_frag, &b[(k0 + kk) * ldb + col]);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        b_frag[e] = b[(k0 + kk) * ldb + min(col + e, n - 1)];\n"
        "                    }\n"
        "                }\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 4; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 4; ++j) {\n"
        "                        acc[i][j] = cfma(conjugate(a_frag[i]), b_frag[j], acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "    if (k_main < k) {\n"
        "        // The rest of K; what lies past it counts as zero.\n"
        "        #pragma unroll\n"
        "        for (int kk = 0; kk < 4; ++kk) {\n"
        "            float2 a_frag[4];\n"
        "            float2 b_frag[4];\n"
        "            if (k_main + kk < k && row + 4 <= m) {\n"
        "                GLOBAL_TO_PRIVATE4(a_frag, &a[(k_main + kk) * lda + row]);\n"
        "            } else {\n"
        "                #pragma unroll\n"
        "                for (int e = 0; e < 4; ++e) {\n"
        "                    a_frag[e] =\n"
        "                        k_main + kk < k ? a[(k_main + kk) * lda + min(row + e, m - 1)]\n"
        "                                        : (float2)(0.0f, 0.0f);\n"
        "                }\n"
        "            }\n"
        "            if (k_main + kk < k && col + 4 <= n) {\n"
        "                GLOBAL_TO_PRIVATE4(b_frag, &b[(k_main + kk) * ldb + col]);\n"
        "            } else {\n"
        "                #pragma unroll\n"
        "                for (int e = 0; e < 4; ++e) {\n"
        "                    b_frag[e] =\n"
        "                        k_main + kk < k ? b[(k_main + kk) * ldb + min(col + e, n - 1)]\n"
        "                                        : (float2)(0.0f, 0.0f);\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 4; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 4; ++j) {\n"
        "                    acc[i][j] = cfma(conjugate(a_frag[i]), b_frag[j], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // C = alpha * conj(A) * B + beta * C; C is not read where beta is zero.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 4; ++i) {\n"
        "        if (row + i < m) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                if (col + j < n) {\n"
        "                    c[(row + i) * ldc + col + j] =\n"
        "                        beta.x == 0.0f && beta.y == 0.0f ? cmul(alpha, acc[i][j])\n"
        "                                                         : cfma(beta, c[(row + i) * ldc + col + j],\n"
        "                                                             cmul(alpha, acc[i][j]));\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n"
        "\n"
        "#undef conjugate\n"
        "#undef cmul\n"
        "#undef cfma\n"
        "#undef GLOBAL_TO_PRIVATE4\n",
};

static struct kernel cgemm_ct_vec4_4x4 = {
    .name = "cgemm_ct_vec4_4x4",
    .options = "-cl-std=CL1.2",
    .extensions = "",
    .local_bytes = 0,
    .vector_bytes = 0,
    .device = ANY,
    .sub_group = 0,
    .group_rows = 16,
    .group_columns = 16,
    .block_rows = 64,
    .block_columns = 64,
    .groups_down = 1,
    .groups_across = 1,
    .text =
        "// cgemm_ct_vec4_4x4: C = alpha * conj(A) * B + beta * C; complex64; A col-major, B col-major\n"
        "//\n"
        "// Schedule   4x4 of C per work-item, 16x16 work-items per group (64x64 of C), 4 along K per\n"
        "//            iteration\n"
        "// A          buffer, loads of 4 elements\n"
        "// B          buffer, loads of 4 elements\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {16, 16}, global size {(n + 63) / 64 * 16, (m + 63) / 64 * 16}\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "// Names of this file alone, so that a program can hold others, too.\n"
        "#define conjugate cgemm_ct_vec4_4x4_conjugate\n"
        "#define cmul cgemm_ct_vec4_4x4_cmul\n"
        "#define cfma cgemm_ct_vec4_4x4_cfma\n"
        "\n"
        "// The complex conjugate: the imaginary part with its sign changed.\n"
        "static inline float2 conjugate(float2 value)\n"
        "{\n"
        "    return (float2)(value.x, -value.y);\n"
        "}\n"
        "\n"
        "// a * b, of complex numbers.\n"
        "static inline float2 cmul(float2 a, float2 b)\n"
        "{\n"
        "    return (float2)(fma(a.x, b.x, -a.y * b.y), fma(a.x, b.y, a.y * b.x));\n"
        "}\n"
        "\n"
        "// a * b + c, of complex numbers: two multiply-adds for each part.\n"
        "static inline float2 cfma(float2 a, float2 b, float2 c)\n"
        "{\n"
        "    const float re = fma(a.x, b.x, fma(-a.y, b.y, c.x));\n"
        "    const float im = fma(a.x, b.y, fma(a.y, b.x, c.y));\n"
        "    return (float2)(re, im);\n"
        "}\n"
        "\n"
        "// 4 neighbouring complex numbers.\n"
        "#define GLOBAL_TO_PRIVATE4(to, from) \\\n"
        "    vstore8(vload8(0, (const __global float *)(from)), 0, (float *)(to))\n"
        "\n"
        "__attribute__((reqd_work_group_size(16, 16, 1)))\n"
        "__kernel void cgemm_ct_vec4_4x4(int m, int n, int k, float2 alpha,\n"
        "                                __global const float2 *restrict a, int lda,\n"
        "                                __global const float2 *restrict b, int ldb, float2 beta,\n"
        "                                __global float2 *restrict c, int ldc)\n"
        "{\n"
        "    const int row0 = (int)get_group_id(1) * 64;\n"
        "    const int row = row0 + (int)get_local_id(1) * 4;\n"
        "    const int col = (int)get_group_id(0) * 64 + (int)get_local_id(0) * 4;\n"
        "    const int k_main = k - k % 4;\n"
        "\n"
        "    float2 acc[4][4];\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 4; ++i) {\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            acc[i][j] = (float2)(0.0f, 0.0f);\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // Whole steps of 4 along K.\n"
        "    if (row0 + 64 <= m) {\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "            float2 a_frag[4][4];\n"
        "            float2 b_frag[4][4];\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                GLOBAL_TO_PRIVATE4(a_frag[j], &a[(k0 + j) * lda + row]);\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                GLOBAL_TO_PRIVATE4(b_frag[j], &b[min(col + j, n - 1) * ldb + k0]);\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int p = 0; p < 4; ++p) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 4; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 4; ++j) {\n"
        "                        acc[i][j] = cfma(conjugate(a_frag[p][i]), b_frag[j][p], acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    } else {\n"
        "        // At the edge of C, each load asks whether it is inside.\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "            float2 a_frag[4][4];\n"
        "            float2 b_frag[4][4];\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                if (row + 4 <= m) {\n"
        "                    GLOBAL_TO_PRIVATE4(a_frag[j], &a[(k0 + j) * lda + row]);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        a_frag[j][e] = a[(k0 + j) * lda + min(row + e, m - 1)];\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                GLOBAL_TO_PRIVATE4(b_frag[j], &b[min(col + j, n - 1) * ldb + k0]);\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int p = 0; p < 4; ++p) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 4; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 4; ++j) {\n"
        "                        acc[i][j] = cfma(conjugate(a_frag[p][i]), b_frag[j][p], acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "    if (k_main < k) {\n"
        "        // The rest of K; what lies past it counts as zero.\n"
        "        float2 a_frag[4][4];\n"
        "        float2 b_frag[4][4];\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            if (k_main + j < k && row + 4 <= m) {\n"
        "                GLOBAL_TO_PRIVATE4(a_frag[j], &a[(k_main + j) * lda + row]);\n"
        "            } else {\n"
        "                #pragma unroll\n"
        "                for (int e = 0; e < 4; ++e) {\n"
        "                    a_frag[j][e] =\n"
        "                        k_main + j < k ? a[(k_main + j) * lda + min(row + e, m - 1)]\n"
        "                                       : (float2)(0.0f, 0.0f);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                b_frag[j][e] =\n"
        "                    k_main + e < k ? b[min(col + j, n - 1) * ldb + k_main + e]\n"
        "                                   : (float2)(0.0f, 0.0f);\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int p = 0; p < 4; ++p) {\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 4; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 4; ++j) {\n"
        "                    acc[i][j] = cfma(conjugate(a_frag[p][i]), b_frag[j][p], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // C = alpha * conj(A) * B + beta * C; C is not read where beta is zero.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 4; ++i) {\n"
        "        if (row + i < m) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                if (col + j < n) {\n"
        "                    c[(row + i) * ldc + col + j] =\n"
        "                        beta.x == 0.0f && beta.y == 0.0f ? cmul(alpha, acc[i][j])\n"
        "                                                         : cfma(beta, c[(row + i) * ldc + col + j],\n"
        "                                                             cmul(alpha, acc[i][j]));\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n"
        "\n"
        "#undef conjugate\n"
        "#undef cmul\n"
        "#undef cfma\n"
        "#undef GLOBAL_TO_PRIVATE4\n",
};

static struct kernel cgemm_cc_vec4_4x4 = {
    .name = "cgemm_cc_vec4_4x4",
    .options = "-cl-std=CL1.2",
    .extensions = "",
    .local_bytes = 0,
    .vector_bytes = 0,
    .device = ANY,
    .sub_group = 0,
    .group_rows = 16,
    .group_columns = 16,
    .block_rows = 64,
    .block_columns = 64,
    .groups_down = 1,
    .groups_across = 1,
    .text =
        "// cgemm_cc_vec4_4x4: C = alpha * conj(A) * conj(B) + beta * C; complex64; A col-major, B col-major\n"
        "//\n"
        "// Schedule   4x4 of C per work-item, 16x16 work-items per group (64x64 of C), 4 along K per\n"
        "//            iteration\n"
        "// A          buffer, loads of 4 elements\n"
        "// B          buffer, loads of 4 elements\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {16, 16}, global size {(n + 63) / 64 * 16, (m + 63) / 64 * 16}\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "// Names of this file alone, so that a program can hold others, too.\n"
        "#define conjugate cgemm_cc_vec4_4x4_conjugate\n"
        "#define cmul cgemm_cc_vec4_4x4_cmul\n"
        "#define cfma cgemm_cc_vec4_4x4_cfma\n"
        "\n"
        "// The complex conjugate: the imaginary part with its sign changed.\n"
        "static inline float2 conjugate(float2 value)\n"
        "{\n"
        "    return (float2)(value.x, -value.y);\n"
        "}\n"
        "\n"
        "// a * b, of complex numbers.\n"
        "static inline float2 cmul(float2 a, float2 b)\n"
        "{\n"
        "    return (float2)(fma(a.x, b.x, -a.y * b.y), fma(a.x, b.y, a.y * b.x));\n"
        "}\n"
        "\n"
        "// a * b + c, of complex numbers: two multiply-adds for each part.\n"
        "static inline float2 cfma(float2 a, float2 b, float2 c)\n"
        "{\n"
        "    const float re = fma(a.x, b.x, fma(-a.y, b.y, c.x));\n"
        "    const float im = fma(a.x, b.y, fma(a.y, b.x, c.y));\n"
        "    return (float2)(re, im);\n"
        "}\n"
        "\n"
        "// 4 neighbouring complex numbers.\n"
        "#define GLOBAL_TO_PRIVATE4(to, from) \\\n"
        "    vstore8(vload8(0, (const __global float *)(from)), 0, (float *)(to))\n"
        "\n"
        "__attribute__((reqd_work_group_size(16, 16, 1)))\n"
        "__kernel void cgemm_cc_vec4_4x4(int m, int n, int k, float2 alpha,\n"
        "                                __global const float2 *restrict a, int lda,\n"
        "                                __global const float2 *restrict b, int ldb, float2 beta,\n"
        "                                __global float2 *restrict c, int ldc)\n"
        "{\n"
        "    const int row0 = (int)get_group_id(1) * 64;\n"
        "    const int row = row0 + (int)get_local_id(1) * 4;\n"
        "    const int col = (int)get_group_id(0) * 64 + (int)get_local_id(0) * 4;\n"
        "    const int k_main = k - k % 4;\n"
        "\n"
        "    float2 acc[4][4];\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 4; ++i) {\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            acc[i][j] = (float2)(0.0f, 0.0f);\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // Whole steps of 4 along K.\n"
        "    if (row0 + 64 <= m) {\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "            float2 a_frag[4][4];\n"
        "            float2 b_frag[4][4];\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                GLOBAL_TO_PRIVATE4(a_frag[j], &a[(k0 + j) * lda + row]);\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                GLOBAL_TO_PRIVATE4(b_frag[j], &b[min(col + j, n - 1) * ldb + k0]);\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int p = 0; p < 4; ++p) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 4; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 4; ++j) {\n"
        "                        acc[i][j] =\n"
        "                            cfma(conjugate(a_frag[p][i]), conjugate(b_frag[j][p]), acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    } else {\n"
        "        // At the edge of C, each load asks whether it is inside.\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "            float2 a_frag[4][4];\n"
        "            float2 b_frag[4][4];\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                if (row + 4 <= m) {\n"
        "                    GLOBAL_TO_PRIVATE4(a_frag[j], &a[(k0 + j) * lda + row]);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        a_frag[j][e] = a[(k0 + j) * lda + min(row + e, m - 1)];\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                GLOBAL_TO_PRIVATE4(b_frag[j], &b[min(col + j, n - 1) * ldb + k0]);\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int p = 0; p < 4; ++p) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 4; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 4; ++j) {\n"
        "                        acc[i][j] =\n"
        "                            cfma(conjugate(a_frag[p][i]), conjugate(b_frag[j][p]), acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "    if (k_main < k) {\n"
        "        // The rest of K; what lies past it counts as zero.\n"
        "        float2 a_frag[4][4];\n"
        "        float2 b_frag[4][4];\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            if (k_main + j < k && row + 4 <= m) {\n"
        "                GLOBAL_TO_PRIVATE4(a_frag[j], &a[(k_main + j) * lda + row]);\n"
        "            } else {\n"
        "                #pragma unroll\n"
        "                for (int e = 0; e < 4; ++e) {\n"
        "                    a_frag[j][e] =\n"
        "                        k_main + j < k ? a[(k_main + j) * lda + min(row + e, m - 1)]\n"
        "                                       : (float2)(0.0f, 0.0f);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                b_frag[j][e] =\n"
        "                    k_main + e < k ? b[min(col + j, n - 1) * ldb + k_main + e]\n"
        "                                   : (float2)(0.0f, 0.0f);\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int p = 0; p < 4; ++p) {\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 4; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 4; ++j) {\n"
        "                    acc[i][j] = cfma(conjugate(a_frag[p][i]), conjugate(b_frag[j][p]), acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // C = alpha * conj(A) * conj(B) + beta * C; C is not read where beta is zero.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 4; ++i) {\n"
        "        if (row + i < m) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                if (col + j < n) {\n"
        "                    c[(row + i) * ldc + col + j] =\n"
        "                        beta.x == 0.0f && beta.y == 0.0f ? cmul(alpha, acc[i][j])\n"
        "                                                         : cfma(beta, c[(row + i) * ldc + col + j],\n"
        "                                                             cmul(alpha, acc[i][j]));\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n"
        "\n"
        "#undef conjugate\n"
        "#undef cmul\n"
        "#undef cfma\n"
        "#undef GLOBAL_TO_PRIVATE4\n",
};

static struct kernel zgemm_nn_vec4_4x4 = {
    .name = "zgemm_nn_vec4_4x4",
    .options = "-cl-std=CL1.2",
    .extensions = "cl_khr_fp64 ",
    .local_bytes = 0,
    .vector_bytes = 0,
    .device = ANY,
    .sub_group = 0,
    .group_rows = 16,
    .group_columns = 16,
    .block_rows = 64,
    .block_columns = 64,
    .groups_down = 1,
    .groups_across = 1,
    .text =
        "// zgemm_nn_vec4_4x4: C = alpha * A * B + beta * C; complex128\n"
        "//\n"
        "// Schedule   4x4 of C per work-item, 16x16 work-items per group (64x64 of C), 4 along K per\n"
        "//            iteration\n"
        "// A          buffer, loads of 4 elements\n"
        "// B          buffer, loads of 4 elements\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {16, 16}, global size {(n + 63) / 64 * 16, (m + 63) / 64 * 16}\n"
        "// Needs      on Intel's GPUs, and only there, the build option -cl-intel-256-GRF-per-thread\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "// Names of this file alone, so that a program can hold others, too.\n"
        "#define cmul zgemm_nn_vec4_4x4_cmul\n"
        "#define cfma zgemm_nn_vec4_4x4_cfma\n"
        "\n"
        "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
        "\n"
        "// a * b, of complex numbers.\n"
        "static inline double2 cmul(double2 a, double2 b)\n"
        "{\n"
        "    return (double2)(fma(a.x, b.x, -a.y * b.y), fma(a.x, b.y, a.y * b.x));\n"
        "}\n"
        "\n"
        "// a * b + c, of complex numbers: two multiply-adds for each part.\n"
        "static inline double2 cfma(double2 a, double2 b, double2 c)\n"
        "{\n"
        "    const double re = fma(a.x, b.x, fma(-a.y, b.y, c.x));\n"
        "    const double im = fma(a.x, b.y, fma(a.y, b.x, c.y));\n"
        "    return (double2)(re, im);\n"
        "}\n"
        "\n"
        "// 4 neighbouring complex numbers.\n"
        "#define GLOBAL_TO_PRIVATE4(to, from) \\\n"
        "    vstore8(vload8(0, (const __global double *)(from)), 0, (double *)(to))\n"
        "\n"
        "__attribute__((reqd_work_group_size(16, 16, 1)))\n"
        "__kernel void zgemm_nn_vec4_4x4(int m, int n, int k, double2 alpha,\n"
        "                                __global const double2 *restrict a, int lda,\n"
        "                                __global const double2 *restrict b, int ldb, double2 beta,\n"
        "                                __global double2 *restrict c, int ldc)\n"
        "{\n"
        "    const int col0 = (int)get_group_id(0) * 64;\n"
        "    const int row = (int)get_group_id(1) * 64 + (int)get_local_id(1) * 4;\n"
        "    const int col = col0 + (int)get_local_id(0) * 4;\n"
        "    const int k_main = k - k % 4;\n"
        "\n"
        "    double2 acc[4][4];\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 4; ++i) {\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            acc[i][j] = (double2)(0.0, 0.0);\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // Whole steps of 4 along K.\n"
        "    if (col0 + 64 <= n) {\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "            double2 a_frag[4][4];\n"
        "            double2 b_frag[4][4];\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 4; ++i) {\n"
        "                GLOBAL_TO_PRIVATE4(a_frag[i], &a[min(row + i, m - 1) * lda + k0]);\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 4; ++i) {\n"
        "                GLOBAL_TO_PRIVATE4(b_frag[i], &b[(k0 + i) * ldb + col]);\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int p = 0; p < 4; ++p) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 4; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 4; ++j) {\n"
        "                        acc[i][j] = cfma(a_frag[i][p], b_frag[p][j], acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    } else {\n"
        "        // At the edge of C, each load asks whether it is inside.\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "            double2 a_frag[4][4];\n"
        "            double2 b_frag[4][4];\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 4; ++i) {\n"
        "                GLOBAL_TO_PRIVATE4(a_frag[i], &a[min(row + i, m - 1) * lda + k0]);\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 4; ++i) {\n"
        "                if (col + 4 <= n) {\n"
        "                    GLOBAL_TO_PRIVATE4(b_frag[i], &b[(k0 + i) * ldb + col]);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        b_frag[i][e] = b[(k0 + i) * ldb + min(col + e, n - 1)];\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int p = 0; p < 4; ++p) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 4; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 4; ++j) {\n"
        "                        acc[i][j] = cfma(a_frag[i][p], b_frag[p][j], acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "    if (k_main < k) {\n"
        "        // The rest of K; what lies past it counts as zero.\n"
        "        double2 a_frag[4][4];\n"
        "        double2 b_frag[4][4];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 4; ++i) {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                a_frag[i][e] =\n"
        "                    k_main + e < k ? a[min(row + i, m - 1) * lda + k_main + e]\n"
        "                                   : (double2)(0.0, 0.0);\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 4; ++i) {\n"
        "            if (k_main + i < k && col + 4 <= n) {\n"
        "                GLOBAL_TO_PRIVATE4(b_frag[i], &b[(k_main + i) * ldb + col]);\n"
        "            } else {\n"
        "                #pragma unroll\n"
        "                for (int e = 0; e < 4; ++e) {\n"
        "                    b_frag[i][e] =\n"
        "                        k_main + i < k ? b[(k_main + i) * ldb + min(col + e, n - 1)]\n"
        "                                       : (double2)(0.0, 0.0);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int p = 0; p < 4; ++p) {\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 4; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 4; ++j) {\n"
        "                    acc[i][j] = cfma(a_frag[i][p], b_frag[p][j], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // C = alpha * A * B + beta * C; C is not read where beta is zero.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 4; ++i) {\n"
        "        if (row + i < m) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                if (col + j < n) {\n"
        "                    c[(row + i) * ldc + col + j] =\n"
        "                        beta.x == 0.0 && beta.y == 0.0 ? cmul(alpha, acc[i][j])\n"
        "                                                       : cfma(beta, c[(row + i) * ldc + col + j],\n"
        "                                                           cmul(alpha, acc[i][j]));\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n"
        "\n"
        "#undef cmul\n"
        "#undef cfma\n"
        "#undef GLOBAL_TO_PRIVATE4\n",
};

static struct kernel zgemm_nt_vec4_4x4 = {
    .name = "zgemm_nt_vec4_4x4",
    .options = "-cl-std=CL1.2",
    .extensions = "cl_khr_fp64 ",
    .local_bytes = 0,
    .vector_bytes = 0,
    .device = ANY,
    .sub_group = 0,
    .group_rows = 16,
    .group_columns = 16,
    .block_rows = 64,
    .block_columns = 64,
    .groups_down = 1,
    .groups_across = 1,
    .text =
        "// zgemm_nt_vec4_4x4: C = alpha * A * B + beta * C; complex128; B col-major\n"
        "//\n"
        "// Schedule   4x4 of C per work-item, 16x16 work-items per group (64x64 of C), 4 along K per\n"
        "//            iteration\n"
        "// A          buffer, loads of 4 elements\n"
        "// B          buffer, loads of 4 elements\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {16, 16}, global size {(n + 63) / 64 * 16, (m + 63) / 64 * 16}\n"
        "// Needs      on Intel's GPUs, and only there, the build option -cl-intel-256-GRF-per-thread\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "// Names of this file alone, so that a program can hold others, too.\n"
        "#define cmul zgemm_nt_vec4_4x4_cmul\n"
        "#define cfma zgemm_nt_vec4_4x4_cfma\n"
        "\n"
        "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
        "\n"
        "// a * b, of complex numbers.\n"
        "static inline double2 cmul(double2 a, double2 b)\n"
        "{\n"
        "    return (double2)(fma(a.x, b.x, -a.y * b.y), fma(a.x, b.y, a.y * b.x));\n"
        "}\n"
        "\n"
        "// a * b + c, of complex numbers: two multiply-adds for each part.\n"
        "static inline double2 cfma(double2 a, double2 b, double2 c)\n"
        "{\n"
        "    const double re = fma(a.x, b.x, fma(-a.y, b.y, c.x));\n"
        "    const double im = fma(a.x, b.y, fma(a.y, b.x, c.y));\n"
        "    return (double2)(re, im);\n"
        "}\n"
        "\n"
        "// 4 neighbouring complex numbers.\n"
        "#define GLOBAL_TO_PRIVATE4(to, from) \\\n"
        "    vstore8(vload8(0, (const __global double *)(from)), 0, (double *)(to))\n"
        "\n"
        "__attribute__((reqd_work_group_size(16, 16, 1)))\n"
        "__kernel void zgemm_nt_vec4_4x4(int m, int n, int k, double2 alpha,\n"
        "                                __global const double2 *restrict a, int lda,\n"
        "                                __global const double2 *restrict b, int ldb, double2 beta,\n"
        "                                __global double2 *restrict c, int ldc)\n"
        "{\n"
        "    const int row = (int)get_group_id(1) * 64 + (int)get_local_id(1) * 4;\n"
        "    const int col = (int)get_group_id(0) * 64 + (int)get_local_id(0) * 4;\n"
        "    const int k_main = k - k % 4;\n"
        "\n"
        "    double2 acc[4][4];\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 4; ++i) {\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            acc[i][j] = (double2)(0.0, 0.0);\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // Whole steps of 4 along K.\n"
        "    for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "        double2 a_frag[4][4];\n"
        "        double2 b_frag[4][4];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 4; ++i) {\n"
        "            GLOBAL_TO_PRIVATE4(a_frag[i], &a[min(row + i, m - 1) * lda + k0]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            GLOBAL_TO_PRIVATE4(b_frag[j], &b[min(col + j, n - 1) * ldb + k0]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int p = 0; p < 4; ++p) {\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 4; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 4; ++j) {\n"
        "                    acc[i][j] = cfma(a_frag[i][p], b_frag[j][p], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "    if (k_main < k) {\n"
        "        // The rest of K; what lies past it counts as zero.\n"
        "        double2 a_frag[4][4];\n"
        "        double2 b_frag[4][4];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 4; ++i) {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                a_frag[i][e] =\n"
        "                    k_main + e < k ? a[min(row + i, m - 1) * lda + k_main + e]\n"
        "                                   : (double2)(0.0, 0.0);\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                b_frag[j][e] =\n"
        "                    k_main + e < k ? b[min(col + j, n - 1) * ldb + k_main + e]\n"
        "                                   : (double2)(0.0, 0.0);\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int p = 0; p < 4; ++p) {\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 4; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 4; ++j) {\n"
        "                    acc[i][j] = cfma(a_frag[i][p], b_frag[j][p], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // C = alpha * A * B + beta * C; C is not read where beta is zero.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 4; ++i) {\n"
        "        if (row + i < m) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                if (col + j < n) {\n"
        "                    c[(row + i) * ldc + col + j] =\n"
        "                        beta.x == 0.0 && beta.y == 0.0 ? cmul(alpha, acc[i][j])\n"
        "                                                       : cfma(beta, c[(row + i) * ldc + col + j],\n"
        "                                                           cmul(alpha, acc[i][j]));\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n"
        "\n"
        "#undef cmul\n"
        "#undef cfma\n"
        "#undef GLOBAL_TO_PRIVATE4\n",
};

static struct kernel zgemm_nc_vec4_4x4 = {
    .name = "zgemm_nc_vec4_4x4",
    .options = "-cl-std=CL1.2",
    .extensions = "cl_khr_fp64 ",
    .local_bytes = 0,
    .vector_bytes = 0,
    .device = ANY,
    .sub_group = 0,
    .group_rows = 16,
    .group_columns = 16,
    .block_rows = 64,
    .block_columns = 64,
    .groups_down = 1,
    .groups_across = 1,
    .text =
        "// zgemm_nc_vec4_4x4: C = alpha * A * conj(B) + beta * C; complex128; B col-major\n"
        "//\n"
        "// Schedule   4x4 of C per work-item, 16x16 work-items per group (64x64 of C), 4 along K per\n"
        "//            iteration\n"
        "// A          buffer, loads of 4 elements\n"
        "// B          buffer, loads of 4 elements\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {16, 16}, global size {(n + 63) / 64 * 16, (m + 63) / 64 * 16}\n"
        "// Needs      on Intel's GPUs, and only there, the build option -cl-intel-256-GRF-per-thread\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "// Names of this file alone, so that a program can hold others, too.\n"
        "#define conjugate zgemm_nc_vec4_4x4_conjugate\n"
        "#define cmul zgemm_nc_vec4_4x4_cmul\n"
        "#define cfma zgemm_nc_vec4_4x4_cfma\n"
        "\n"
        "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
        "\n"
        "// The complex conjugate: the imaginary part with its sign changed.\n"
        "static inline double2 conjugate(double2 value)\n"
        "{\n"
        "    return (double2)(value.x, -value.y);\n"
        "}\n"
        "\n"
        "// a * b, of complex numbers.\n"
        "static inline double2 cmul(double2 a, double2 b)\n"
        "{\n"
        "    return (double2)(fma(a.x, b.x, -a.y * b.y), fma(a.x, b.y, a.y * b.x));\n"
        "}\n"
        "\n"
        "// a * b + c, of complex numbers: two multiply-adds for each part.\n"
        "static inline double2 cfma(double2 a, double2 b, double2 c)\n"
        "{\n"
        "    const double re = fma(a.x, b.x, fma(-a.y, b.y, c.x));\n"
        "    const double im = fma(a.x, b.y, fma(a.y, b.x, c.y));\n"
        "    return (double2)(re, im);\n"
        "}\n"
        "\n"
        "// 4 neighbouring complex numbers.\n"
        "#define GLOBAL_TO_PRIVATE4(to, from) \\\n"
        "    vstore8(vload8(0, (const __global double *)(from)), 0, (double *)(to))\n"
        "\n"
        "__attribute__((reqd_work_group_size(16, 16, 1)))\n"
        "__kernel void zgemm_nc_vec4_4x4(int m, int n, int k, double2 alpha,\n"
        "                                __global const double2 *restrict a, int lda,\n"
        "                                __global const double2 *restrict b, int ldb, double2 beta,\n"
        "                                __global double2 *restrict c, int ldc)\n"
        "{\n"
        "    const int row = (int)get_group_id(1) * 64 + (int)get_local_id(1) * 4;\n"
        "    const int col = (int)get_group_id(0) * 64 + (int)get_local_id(0) * 4;\n"
        "    const int k_main = k - k % 4;\n"
        "\n"
        "    double2 acc[4][4];\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 4; ++i) {\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            acc[i][j] = (double2)(0.0, 0.0);\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // Whole steps of 4 along K.\n"
        "    for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "        double2 a_frag[4][4];\n"
        "        double2 b_frag[4][4];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 4; ++i) {\n"
        "            GLOBAL_TO_PRIVATE4(a_frag[i], &a[min(row + i, m - 1) * lda + k0]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            GLOBAL_TO_PRIVATE4(b_frag[j], &b[min(col + j, n - 1) * ldb + k0]);\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int p = 0; p < 4; ++p) {\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 4; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 4; ++j) {\n"
        "                    acc[i][j] = cfma(a_frag[i][p], conjugate(b_frag[j][p]), acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "    if (k_main < k) {\n"
        "        // The rest of K; what lies past it counts as zero.\n"
        "        double2 a_frag[4][4];\n"
        "        double2 b_frag[4][4];\n"
        "        #pragma unroll\n"
        "        for (int i = 0; i < 4; ++i) {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                a_frag[i][e] =\n"
        "                    k_main + e < k ? a[min(row + i, m - 1) * lda + k_main + e]\n"
        "                                   : (double2)(0.0, 0.0);\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                b_frag[j][e] =\n"
        "                    k_main + e < k ? b[min(col + j, n - 1) * ldb + k_main + e]\n"
        "                                   : (double2)(0.0, 0.0);\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int p = 0; p < 4; ++p) {\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 4; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 4; ++j) {\n"
        "                    acc[i][j] = cfma(a_frag[i][p], conjugate(b_frag[j][p]), acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // C = alpha * A * conj(B) + beta * C; C is not read where beta is zero.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 4; ++i) {\n"
        "        if (row + i < m) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                if (col + j < n) {\n"
        "                    c[(row + i) * ldc + col + j] =\n"
        "                        beta.x == 0.0 && beta.y == 0.0 ? cmul(alpha, acc[i][j])\n"
        "                                                       : cfma(beta, c[(row + i) * ldc + col + j],\n"
        "                                                           cmul(alpha, acc[i][j]));\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n"
        "\n"
        "#undef conjugate\n"
        "#undef cmul\n"
        "#undef cfma\n"
        "#undef GLOBAL_TO_PRIVATE4\n",
};

static struct kernel zgemm_tn_vec4_4x4 = {
    .name = "zgemm_tn_vec4_4x4",
    .options = "-cl-std=CL1.2",
    .extensions = "cl_khr_fp64 ",
    .local_bytes = 0,
    .vector_bytes = 0,
    .device = ANY,
    .sub_group = 0,
    .group_rows = 16,
    .group_columns = 16,
    .block_rows = 64,
    .block_columns = 64,
    .groups_down = 1,
    .groups_across = 1,
    .text =
        "// zgemm_tn_vec4_4x4: C = alpha * A * B + beta * C; complex128; A col-major\n"
        "//\n"
        "// Schedule   4x4 of C per work-item, 16x16 work-items per group (64x64 of C), 4 along K per\n"
        "//            iteration\n"
        "// A          buffer, loads of 4 elements\n"
        "// B          buffer, loads of 4 elements\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {16, 16}, global size {(n + 63) / 64 * 16, (m + 63) / 64 * 16}\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "// Names of this file alone, so that a program can hold others, too.\n"
        "#define cmul zgemm_tn_vec4_4x4_cmul\n"
        "#define cfma zgemm_tn_vec4_4x4_cfma\n"
        "\n"
        "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
        "\n"
        "// a * b, of complex numbers.\n"
        "static inline double2 cmul(double2 a, double2 b)\n"
        "{\n"
        "    return (double2)(fma(a.x, b.x, -a.y * b.y), fma(a.x, b.y, a.y * b.x));\n"
        "}\n"
        "\n"
        "// a * b + c, of complex numbers: two multiply-adds for each part.\n"
        "static inline double2 cfma(double2 a, double2 b, double2 c)\n"
        "{\n"
        "    const double re = fma(a.x, b.x, fma(-a.y, b.y, c.x));\n"
        "    const double im = fma(a.x, b.y, fma(a.y, b.x, c.y));\n"
        "    return (double2)(re, im);\n"
        "}\n"
        "\n"
        "// 4 neighbouring complex numbers.\n"
        "#define GLOBAL_TO_PRIVATE4(to, from) \\\n"
        "    vstore8(vload8(0, (const __global double *)(from)), 0, (double *)(to))\n"
        "\n"
        "__attribute__((reqd_work_group_size(16, 16, 1)))\n"
        "__kernel void zgemm_tn_vec4_4x4(int m, int n, int k, double2 alpha,\n"
        "                                __global const double2 *restrict a, int lda,\n"
        "                                __global const double2 *restrict b, int ldb, double2 beta,\n"
        "                                __global double2 *restrict c, int ldc)\n"
        "{\n"
        "    const int row0 = (int)get_group_id(1) * 64;\n"
        "    const int col0 = (int)get_group_id(0) * 64;\n"
        "    const int row = row0 + (int)get_local_id(1) * 4;\n"
        "    const int col = col0 + (int)get_local_id(0) * 4;\n"
        "    const int k_main = k - k % 4;\n"
        "\n"
        "    double2 acc[4][4];\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 4; ++i) {\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            acc[i][j] = (double2)(0.0, 0.0);\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // Whole steps of 4 along K.\n"
        "    if (row0 + 64 <= m && col0 + 64 <= n) {\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "            #pragma unroll\n"
        "            for (int kk = 0; kk < 4; ++kk) {\n"
        "                double2 a_frag[4];\n"
        "                double2 b_frag[4];\n"
        "                GLOBAL_TO_PRIVATE4(a_frag, &a[(k0 + kk) * lda + row]);\n"
        "                GLOBAL_TO_PRIVATE4(b_frag, &b[(k0 + kk) * ldb + col]);\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 4; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 4; ++j) {\n"
        "                        acc[i][j] = cfma(a_frag[i], b_frag[j], acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    } else {\n"
        "        // At the edge of C, each load asks whether it is inside.\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "            #pragma unroll\n"
        "            for (int kk = 0; kk < 4; ++kk) {\n"
        "                double2 a_frag[4];\n"
        "                double2 b_frag[4];\n"
        "                if (row + 4 <= m) {\n"
        "                    GLOBAL_TO_PRIVATE4(a_frag, &a[(k0 + kk) * lda + row]);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        a_frag[e] = a[(k0 + kk) * lda + min(row + e, m - 1)];\n"
        "                    }\n"
        "                }\n"
        "                if (col + 4 <= n) {\n"
        "                    GLOBAL_TO_PRIVATE4(b_frag, &b[(k0 + kk) * ldb + col]);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        b_frag[e] = b[(k0 + kk) * ldb + min(col + e, n - 1)];\n"
        "                    }\n"
        "                }\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 4; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 4; ++j) {\n"
        "                        acc[i][j] = cfma(a_frag[i], b_frag[j], acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "    if (k_main < k) {\n"
        "        // The rest of K; what lies past it counts as zero.\n"
        "        #pragma unroll\n"
        "        for (int kk = 0; kk < 4; ++kk) {\n"
        "            double2 a_frag[4];\n"
        "            double2 b_frag[4];\n"
        "            if (k_main + kk < k && row + 4 <= m) {\n"
        "                GLOBAL_TO_PRIVATE4(a_frag, &a[(k_main + kk) * lda + row]);\n"
        "            } else {\n"
        "                #pragma unroll\n"
        "                for (int e = 0; e < 4; ++e) {\n"
        "                    a_frag[e] =\n"
        "                        k_main + kk < k ? a[(k_main + kk) * lda + min(row + e, m - 1)]\n"
        "                                        : (double2)(0.0, 0.0);\n"
        "                }\n"
        "            }\n"
        "            if (k_main + kk < k && col + 4 <= n) {\n"
        "                GLOBAL_TO_PRIVATE4(b_frag, &b[(k_main + kk) * ldb + col]);\n"
        "            } else {\n"
        "                #pragma unroll\n"
        "                for (int e = 0; e < 4; ++e) {\n"
        "                    b_frag[e] =\n"
        "                        k_main + kk < k ? b[(k_main + kk) * ldb + min(col + e, n - 1)]\n"
        "                                        : (double2)(0.0, 0.0);\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 4; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 4; ++j) {\n"
        "                    acc[i][j] = cfma(a_frag[i], b_frag[j], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // C = alpha * A * B + beta * C; C is not read where beta is zero.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 4; ++i) {\n"
        "        if (row + i < m) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                if (col + j < n) {\n"
        "                    c[(row + i) * ldc + col + j] =\n"
        "                        beta.x == 0.0 && beta.y == 0.0 ? cmul(alpha, acc[i][j])\n"
        "                                                       : cfma(beta, c[(row + i) * ldc + col + j],\n"
        "                                                           cmul(alpha, acc[i][j]));\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n"
        "\n"
        "#undef cmul\n"
        "#undef cfma\n"
        "#undef GLOBAL_TO_PRIVATE4\n",
};

static struct kernel zgemm_tt_vec4_4x4 = {
    .name = "zgemm_tt_vec4_4x4",
    .options = "-cl-std=CL1.2",
    .extensions = "cl_khr_fp64 ",
    .local_bytes = 0,
    .vector_bytes = 0,
    .device = ANY,
    .sub_group = 0,
    .group_rows = 16,
    .group_columns = 16,
    .block_rows = 64,
    .block_columns = 64,
    .groups_down = 1,
    .groups_across = 1,
    .text =
        "// zgemm_tt_vec4_4x4: C = alpha * A * B + beta * C; complex128; A col-major, B col-major\n"
        "//\n"
        "// Schedule   4x4 of C per work-item, 16x16 work-items per group (64x64 of C), 4 along K per\n"
        "//            iteration\n"
        "// A          buffer, loads of 4 elements\n"
        "// B          buffer, loads of 4 elements\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {16, 16}, global size {(n + 63) / 64 * 16, (m + 63) / 64 * 16}\n"
        "// Needs      on Intel's GPUs, and only there, the build option -cl-intel-256-GRF-per-thread\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "// Names of this file alone, so that a program can hold others, too.\n"
        "#define cmul zgemm_tt_vec4_4x4_cmul\n"
        "#define cfma zgemm_tt_vec4_4x4_cfma\n"
        "\n"
        "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
        "\n"
        "// a * b, of complex numbers.\n"
        "static inline double2 cmul(double2 a, double2 b)\n"
        "{\n"
        "    return (double2)(fma(a.x, b.x, -a.y * b.y), fma(a.x, b.y, a.y * b.x));\n"
        "}\n"
        "\n"
        "// a * b + c, of complex numbers: two multiply-adds for each part.\n"
        "static inline double2 cfma(double2 a, double2 b, double2 c)\n"
        "{\n"
        "    const double re = fma(a.x, b.x, fma(-a.y, b.y, c.x));\n"
        "    const double im = fma(a.x, b.y, fma(a.y, b.x, c.y));\n"
        "    return (double2)(re, im);\n"
        "}\n"
        "\n"
        "// 4 neighbouring complex numbers.\n"
        "#define GLOBAL_TO_PRIVATE4(to, from) \\\n"
        "    vstore8(vload8(0, (const __global double *)(from)), 0, (double *)(to))\n"
        "\n"
        "__attribute__((reqd_work_group_size(16, 16, 1)))\n"
        "__kernel void zgemm_tt_vec4_4x4(int m, int n, int k, double2 alpha,\n"
        "                                __global const double2 *restrict a, int lda,\n"
        "                                __global const double2 *restrict b, int ldb, double2 beta,\n"
        "                                __global double2 *restrict c, int ldc)\n"
        "{\n"
        "    const int row0 = (int)get_group_id(1) * 64;\n"
        "    const int row = row0 + (int)get_local_id(1) * 4;\n"
        "    const int col = (int)get_group_id(0) * 64 + (int)get_local_id(0) * 4;\n"
        "    const int k_main = k - k % 4;\n"
        "\n"
        "    double2 acc[4][4];\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 4; ++i) {\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            acc[i][j] = (double2)(0.0, 0.0);\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // Whole steps of 4 along K.\n"
        "    if (row0 + 64 <= m) {\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "            double2 a_frag[4][4];\n"
        "            double2 b_frag[4][4];\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                GLOBAL_TO_PRIVATE4(a_frag[j], &a[(k0 + j) * lda + row]);\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                GLOBAL_TO_PRIVATE4(b_frag[j], &b[min(col + j, n - 1) * ldb + k0]);\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int p = 0; p < 4; ++p) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 4; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 4; ++j) {\n"
        "                        acc[i][j] = cfma(a_frag[p][i], b_frag[j][p], acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    } else {\n"
        "        // At the edge of C, each load asks whether it is inside.\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "            double2 a_frag[4][4];\n"
        "            double2 b_frag[4][4];\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                if (row + 4 <= m) {\n"
        "                    GLOBAL_TO_PRIVATE4(a_frag[j], &a[(k0 + j) * lda + row]);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        a_frag[j][e] = a[(k0 + j) * lda + min(row + e, m - 1)];\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                GLOBAL_TO_PRIVATE4(b_frag[j], &b[min(col + j, n - 1) * ldb + k0]);\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int p = 0; p < 4; ++p) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 4; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 4; ++j) {\n"
        "                        acc[i][j] = cfma(a_frag[p][i], b_frag[j][p], acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "    if (k_main < k) {\n"
        "        // The rest of K; what lies past it counts as zero.\n"
        "        double2 a_frag[4][4];\n"
        "        double2 b_frag[4][4];\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            if (k_main + j < k && row + 4 <= m) {\n"
        "                GLOBAL_TO_PRIVATE4(a_frag[j], &a[(k_main + j) * lda + row]);\n"
        "            } else {\n"
        "                #pragma unroll\n"
        "                for (int e = 0; e < 4; ++e) {\n"
        "                    a_frag[j][e] =\n"
        "                        k_main + j < k ? a[(k_main + j) * lda + min(row + e, m - 1)]\n"
        "                                       : (double2)(0.0, 0.0);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                b_frag[j][e] =\n"
        "                    k_main + e < k ? b[min(col + j, n - 1) * ldb + k_main + e]\n"
        "                                   : (double2)(0.0, 0.0);\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int p = 0; p < 4; ++p) {\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 4; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 4; ++j) {\n"
        "                    acc[i][j] = cfma(a_frag[p][i], b_frag[j][p], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // C = alpha * A * B + beta * C; C is not read where beta is zero.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 4; ++i) {\n"
        "        if (row + i < m) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                if (col + j < n) {\n"
        "                    c[(row + i) * ldc + col + j] =\n"
        "                        beta.x == 0.0 && beta.y == 0.0 ? cmul(alpha, acc[i][j])\n"
        "                                                       : cfma(beta, c[(row + i) * ldc + col + j],\n"
        "                                                           cmul(alpha, acc[i][j]));\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n"
        "\n"
        "#undef cmul\n"
        "#undef cfma\n"
        "#undef GLOBAL_TO_PRIVATE4\n",
};

static struct kernel zgemm_tc_vec4_4x4 = {
    .name = "zgemm_tc_vec4_4x4",
    .options = "-cl-std=CL1.2",
    .extensions = "cl_khr_fp64 ",
    .local_bytes = 0,
    .vector_bytes = 0,
    .device = ANY,
    .sub_group = 0,
    .group_rows = 16,
    .group_columns = 16,
    .block_rows = 64,
    .block_columns = 64,
    .groups_down = 1,
    .groups_across = 1,
    .text =
        "// zgemm_tc_vec4_4x4: C = alpha * A * conj(B) + beta * C; complex128; A col-major, B col-major\n"
        "//\n"
        "// Schedule   4x4 of C per work-item, 16x16 work-items per group (64x64 of C), 4 along K per\n"
        "//            iteration\n"
        "// A          buffer, loads of 4 elements\n"
        "// B          buffer, loads of 4 elements\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {16, 16}, global size {(n + 63) / 64 * 16, (m + 63) / 64 * 16}\n"
        "// Needs      on Intel's GPUs, and only there, the build option -cl-intel-256-GRF-per-thread\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "// Names of this file alone, so that a program can hold others, too.\n"
        "#define conjugate zgemm_tc_vec4_4x4_conjugate\n"
        "#define cmul zgemm_tc_vec4_4x4_cmul\n"
        "#define cfma zgemm_tc_vec4_4x4_cfma\n"
        "\n"
        "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
        "\n"
        "// The complex conjugate: the imaginary part with its sign changed.\n"
        "static inline double2 conjugate(double2 value)\n"
        "{\n"
        "    return (double2)(value.x, -value.y);\n"
        "}\n"
        "\n"
        "// a * b, of complex numbers.\n"
        "static inline double2 cmul(double2 a, double2 b)\n"
        "{\n"
        "    return (double2)(fma(a.x, b.x, -a.y * b.y), fma(a.x, b.y, a.y * b.x));\n"
        "}\n"
        "\n"
        "// a * b + c, of complex numbers: two multiply-adds for each part.\n"
        "static inline double2 cfma(double2 a, double2 b, double2 c)\n"
        "{\n"
        "    const double re = fma(a.x, b.x, fma(-a.y, b.y, c.x));\n"
        "    const double im = fma(a.x, b.y, fma(a.y, b.x, c.y));\n"
        "    return (double2)(re, im);\n"
        "}\n"
        "\n"
        "// 4 neighbouring complex numbers.\n"
        "#define GLOBAL_TO_PRIVATE4(to, from) \\\n"
        "    vstore8(vload8(0, (const __global double *)(from)), 0, (double *)(to))\n"
        "\n"
        "__attribute__((reqd_work_group_size(16, 16, 1)))\n"
        "__kernel void zgemm_tc_vec4_4x4(int m, int n, int k, double2 alpha,\n"
        "                                __global const double2 *restrict a, int lda,\n"
        "                                __global const double2 *restrict b, int ldb, double2 beta,\n"
        "                                __global double2 *restrict c, int ldc)\n"
        "{\n"
        "    const int row0 = (int)get_group_id(1) * 64;\n"
        "    const int row = row0 + (int)get_local_id(1) * 4;\n"
        "    const int col = (int)get_group_id(0) * 64 + (int)get_local_id(0) * 4;\n"
        "    const int k_main = k - k % 4;\n"
        "\n"
        "    double2 acc[4][4];\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 4; ++i) {\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            acc[i][j] = (double2)(0.0, 0.0);\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // Whole steps of 4 along K.\n"
        "    if (row0 + 64 <= m) {\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "            double2 a_frag[4][4];\n"
        "            double2 b_frag[4][4];\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                GLOBAL_TO_PRIVATE4(a_frag[j], &a[(k0 + j) * lda + row]);\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                GLOBAL_TO_PRIVATE4(b_frag[j], &b[min(col + j, n - 1) * ldb + k0]);\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int p = 0; p < 4; ++p) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 4; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 4; ++j) {\n"
        "                        acc[i][j] = cfma(a_frag[p][i], conjugate(b_frag[j][p]), acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    } else {\n"
        "        // At the edge of C, each load asks whether it is inside.\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "            double2 a_frag[4][4];\n"
        "            double2 b_frag[4][4];\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                if (row + 4 <= m) {\n"
        "                    GLOBAL_TO_PRIVATE4(a_frag[j], &a[(k0 + j) * lda + row]);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        a_frag[j][e] = a[(k0 + j) * lda + min(row + e, m - 1)];\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                GLOBAL_TO_PRIVATE4(b_frag[j], &b[min(col + j, n - 1) * ldb + k0]);\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int p = 0; p < 4; ++p) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 4; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 4; ++j) {\n"
        "                        acc[i][j] = cfma(a_frag[p][i], conjugate(b_frag[j][p]), acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "    if (k_main < k) {\n"
        "        // The rest of K; what lies past it counts as zero.\n"
        "        double2 a_frag[4][4];\n"
        "        double2 b_frag[4][4];\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            if (k_main + j < k && row + 4 <= m) {\n"
        "                GLOBAL_TO_PRIVATE4(a_frag[j], &a[(k_main + j) * lda + row]);\n"
        "            } else {\n"
        "                #pragma unroll\n"
        "                for (int e = 0; e < 4; ++e) {\n"
        "                    a_frag[j][e] =\n"
        "                        k_main + j < k ? a[(k_main + j) * lda + min(row + e, m - 1)]\n"
        "                                       : (double2)(0.0, 0.0);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                b_frag[j][e] =\n"
        "                    k_main + e < k ? b[min(col + j, n - 1) * ldb + k_main + e]\n"
        "                                   : (double2)(0.0, 0.0);\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int p = 0; p < 4; ++p) {\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 4; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 4; ++j) {\n"
        "                    acc[i][j] = cfma(a_frag[p][i], conjugate(b_frag[j][p]), acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // C = alpha * A * conj(B) + beta * C; C is not read where beta is zero.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 4; ++i) {\n"
        "        if (row + i < m) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                if (col + j < n) {\n"
        "                    c[(row + i) * ldc + col + j] =\n"
        "                        beta.x == 0.0 && beta.y == 0.0 ? cmul(alpha, acc[i][j])\n"
        "                                                       : cfma(beta, c[(row + i) * ldc + col + j],\n"
        "                                                           cmul(alpha, acc[i][j]));\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n"
        "\n"
        "#undef conjugate\n"
        "#undef cmul\n"
        "#undef cfma\n"
        "#undef GLOBAL_TO_PRIVATE4\n",
};

static struct kernel zgemm_cn_vec4_4x4 = {
    .name = "zgemm_cn_vec4_4x4",
    .options = "-cl-std=CL1.2",
    .extensions = "cl_khr_fp64 ",
    .local_bytes = 0,
    .vector_bytes = 0,
    .device = ANY,
    .sub_group = 0,
    .group_rows = 16,
    .group_columns = 16,
    .block_rows = 64,
    .block_columns = 64,
    .groups_down = 1,
    .groups_across = 1,
    .text =
        "// zgemm_cn_vec4_4x4: C = alpha * conj(A) * B + beta * C; complex128; A col-major\n"
        "//\n"
        "// Schedule   4x4 of C per work-item, 16x16 work-items per group (64x64 of C), 4 along K per\n"
        "//            iteration\n"
        "// A          buffer, loads of 4 elements\n"
        "// B          buffer, loads of 4 elements\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {16, 16}, global size {(n + 63) / 64 * 16, (m + 63) / 64 * 16}\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "// Names of this file alone, so that a program can hold others, too.\n"
        "#define conjugate zgemm_cn_vec4_4x4_conjugate\n"
        "#define cmul zgemm_cn_vec4_4x4_cmul\n"
        "#define cfma zgemm_cn_vec4_4x4_cfma\n"
        "\n"
        "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
        "\n"
        "// The complex conjugate: the imaginary part with its sign changed.\n"
        "static inline double2 conjugate(double2 value)\n"
        "{\n"
        "    return (double2)(value.x, -value.y);\n"
        "}\n"
        "\n"
        "// a * b, of complex numbers.\n"
        "static inline double2 cmul(double2 a, double2 b)\n"
        "{\n"
        "    return (double2)(fma(a.x, b.x, -a.y * b.y), fma(a.x, b.y, a.y * b.x));\n"
        "}\n"
        "\n"
        "// a * b + c, of complex numbers: two multiply-adds for each part.\n"
        "static inline double2 cfma(double2 a, double2 b, double2 c)\n"
        "{\n"
        "    const double re = fma(a.x, b.x, fma(-a.y, b.y, c.x));\n"
        "    const double im = fma(a.x, b.y, fma(a.y, b.x, c.y));\n"
        "    return (double2)(re, im);\n"
        "}\n"
        "\n"
        "// 4 neighbouring complex numbers.\n"
        "#define GLOBAL_TO_PRIVATE4(to, from) \\\n"
        "    vstore8(vload8(0, (const __global double *)(from)), 0, (double *)(to))\n"
        "\n"
        "__attribute__((reqd_work_group_size(16, 16, 1)))\n"
        "__kernel void zgemm_cn_vec4_4x4(int m, int n, int k, double2 alpha,\n"
        "                                __global const double2 *restrict a, int lda,\n"
        "                                __global const double2 *restrict b, int ldb, double2 beta,\n"
        "                                __global double2 *restrict c, int ldc)\n"
        "{\n"
        "    const int row0 = (int)get_group_id(1) * 64;\n"
        "    const int col0 = (int)get_group_id(0) * 64;\n"
        "    const int row = row0 + (int)get_local_id(1) * 4;\n"
        "    const int col = col0 + (int)get_local_id(0) * 4;\n"
        "    const int k_main = k - k % 4;\n"
        "\n"
        "    double2 acc[4][4];\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 4; ++i) {\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            acc[i][j] = (double2)(0.0, 0.0);\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // Whole steps of 4 along K.\n"
        "    if (row0 + 64 <= m && col0 + 64 <= n) {\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "            #pragma unroll\n"
        "            for (int kk = 0; kk < 4; ++kk) {\n"
        "                double2 a_frag[4];\n"
        "                double2 b_frag[4];\n"
        "                GLOBAL_TO_PRIVATE4(a_frag, &a[(k0 + kk) * lda + row]);\n"
        "                GLOBAL_TO_PRIVATE4(b_frag, &b[(k0 + kk) * ldb + col]);\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 4; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 4; ++j) {\n"
        "                        acc[i][j] = cfma(conjugate(a_frag[i]), b_frag[j], acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    } else {\n"
        "        // At the edge of C, each load asks whether it is inside.\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "            #pragma unroll\n"
        "            for (int kk = 0; kk < 4; ++kk) {\n"
        "                double2 a_frag[4];\n"
        "                double2 b_frag[4];\n"
        "                if (row + 4 <= m) {\n"
        "                    GLOBAL_TO_PRIVATE4(a_frag, &a[(k0 + kk) * lda + row]);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        a_frag[e] = a[(k0 + kk) * lda + min(row + e, m - 1)];\n"
        "                    }\n"
        "                }\n"
        "                if (col + 4 <= n) {\n"
        "                    GLOBAL_TO_PRIVATE4(b_frag, &b[(k0 + kk) * ldb + col]);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        b_frag[e] = b[(k0 + kk) * ldb + min(col + e, n - 1)];\n"
        "                    }\n"
        "                }\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 4; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 4; ++j) {\n"
        "                        acc[i][j] = cfma(conjugate(a_frag[i]), b_frag[j], acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "    if (k_main < k) {\n"
        "        // The rest of K; what lies past it counts as zero.\n"
        "        #pragma unroll\n"
        "        for (int kk = 0; kk < 4; ++kk) {\n"
        "            double2 a_frag[4];\n"
        "            double2 b_frag[4];\n"
        "            if (k_main + kk < k && row + 4 <= m) {\n"
        "                GLOBAL_TO_PRIVATE4(a_frag, &a[(k_main + kk) * lda + row]);\n"
        "            } else {\n"
        "                #pragma unroll\n"
        "                for (int e = 0; e < 4; ++e) {\n"
        "                    a_frag[e] =\n"
        "                        k_main + kk < k ? a[(k_main + kk) * lda + min(row + e, m - 1)]\n"
        "                                        : (double2)(0.0, 0.0);\n"
        "                }\n"
        "            }\n"
        "            if (k_main + kk < k && col + 4 <= n) {\n"
        "                GLOBAL_TO_PRIVATE4(b_frag, &b[(k_main + kk) * ldb + col]);\n"
        "            } else {\n"
        "                #pragma unroll\n"
        "                for (int e = 0; e < 4; ++e) {\n"
        "                    b_frag[e] =\n"
        "                        k_main + kk < k ? b[(k_main + kk) * ldb + min(col + e, n - 1)]\n"
        "                                        : (double2)(0.0, 0.0);\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 4; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 4; ++j) {\n"
        "                    acc[i][j] = cfma(conjugate(a_frag[i]), b_frag[j], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // C = alpha * conj(A) * B + beta * C; C is not read where beta is zero.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 4; ++i) {\n"
        "        if (row + i < m) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                if (col + j < n) {\n"
        "                    c[(row + i) * ldc + col + j] =\n"
        "                        beta.x == 0.0 && beta.y == 0.0 ? cmul(alpha, acc[i][j])\n"
        "                                                       : cfma(beta, c[(row + i) * ldc + col + j],\n"
        "                                                           cmul(alpha, acc[i][j]));\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n"
        "\n"
        "#undef conjugate\n"
        "#undef cmul\n"
        "#undef cfma\n"
        "#undef GLOBAL_TO_PRIVATE4\n",
};

static struct kernel zgemm_ct_vec4_4x4 = {
    .name = "zgemm_ct_vec4_4x4",
    .options = "-cl-std=CL1.2",
    .extensions = "cl_khr_fp64 ",
    .local_bytes = 0,
    .vector_bytes = 0,
    .device = ANY,
    .sub_group = 0,
    .group_rows = 16,
    .group_columns = 16,
    .block_rows = 64,
    .block_columns = 64,
    .groups_down = 1,
    .groups_across = 1,
    .text =
        "// zgemm_ct_vec4_4x4: C = alpha * conj(A) * B + beta * C; complex128; A col-major, B col-major\n"
        "//\n"
        "// Schedule   4x4 of C per work-item, 16x16 work-items per group (64x64 of C), 4 along K per\n"
        "//            iteration\n"
        "// A          buffer, loads of 4 elements\n"
        "// B          buffer, loads of 4 elements\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {16, 16}, global size {(n + 63) / 64 * 16, (m + 63) / 64 * 16}\n"
        "// Needs      on Intel's GPUs, and only there, the build option -cl-intel-256-GRF-per-thread\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "// Names of this file alone, so that a program can hold others, too.\n"
        "#define conjugate zgemm_ct_vec4_4x4_conjugate\n"
        "#define cmul zgemm_ct_vec4_4x4_cmul\n"
        "#define cfma zgemm_ct_vec4_4x4_cfma\n"
        "\n"
        "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
        "\n"
        "// The complex conjugate: the imaginary part with its sign changed.\n"
        "static inline double2 conjugate(double2 value)\n"
        "{\n"
        "    return (double2)(value.x, -value.y);\n"
        "}\n"
        "\n"
        "// a * b, of complex numbers.\n"
        "static inline double2 cmul(double2 a, double2 b)\n"
        "{\n"
        "    return (double2)(fma(a.x, b.x, -a.y * b.y), fma(a.x, b.y, a.y * b.x));\n"
        "}\n"
        "\n"
        "// a * b + c, of complex numbers: two multiply-adds for each part.\n"
        "static inline double2 cfma(double2 a, double2 b, double2 c)\n"
        "{\n"
        "    const double re = fma(a.x, b.x, fma(-a.y, b.y, c.x));\n"
        "    const double im = fma(a.x, b.y, fma(a.y, b.x, c.y));\n"
        "    return (double2)(re, im);\n"
        "}\n"
        "\n"
        "// 4 neighbouring complex numbers.\n"
        "#define GLOBAL_TO_PRIVATE4(to, from) \\\n"
        "    vstore8(vload8(0, (const __global double *)(from)), 0, (double *)(to))\n"
        "\n"
        "__attribute__((reqd_work_group_size(16, 16, 1)))\n"
        "__kernel void zgemm_ct_vec4_4x4(int m, int n, int k, double2 alpha,\n"
        "                                __global const double2 *restrict a, int lda,\n"
        "                                __global const double2 *restrict b, int ldb, double2 beta,\n"
        "                                __global double2 *restrict c, int ldc)\n"
        "{\n"
        "    const int row0 = (int)get_group_id(1) * 64;\n"
        "    const int row = row0 + (int)get_local_id(1) * 4;\n"
        "    const int col = (int)get_group_id(0) * 64 + (int)get_local_id(0) * 4;\n"
        "    const int k_main = k - k % 4;\n"
        "\n"
        "    double2 acc[4][4];\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 4; ++i) {\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            acc[i][j] = (double2)(0.0, 0.0);\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // Whole steps of 4 along K.\n"
        "    if (row0 + 64 <= m) {\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "            double2 a_frag[4][4];\n"
        "            double2 b_frag[4][4];\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                GLOBAL_TO_PRIVATE4(a_frag[j], &a[(k0 + j) * lda + row]);\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                GLOBAL_TO_PRIVATE4(b_frag[j], &b[min(col + j, n - 1) * ldb + k0]);\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int p = 0; p < 4; ++p) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 4; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 4; ++j) {\n"
        "                        acc[i][j] = cfma(conjugate(a_frag[p][i]), b_frag[j][p], acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    } else {\n"
        "        // At the edge of C, each load asks whether it is inside.\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "            double2 a_frag[4][4];\n"
        "            double2 b_frag[4][4];\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                if (row + 4 <= m) {\n"
        "                    GLOBAL_TO_PRIVATE4(a_frag[j], &a[(k0 + j) * lda + row]);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        a_frag[j][e] = a[(k0 + j) * lda + min(row + e, m - 1)];\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                GLOBAL_TO_PRIVATE4(b_frag[j], &b[min(col + j, n - 1) * ldb + k0]);\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int p = 0; p < 4; ++p) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 4; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 4; ++j) {\n"
        "                        acc[i][j] = cfma(conjugate(a_frag[p][i]), b_frag[j][p], acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "    if (k_main < k) {\n"
        "        // The rest of K; what lies past it counts as zero.\n"
        "        double2 a_frag[4][4];\n"
        "        double2 b_frag[4][4];\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            if (k_main + j < k && row + 4 <= m) {\n"
        "                GLOBAL_TO_PRIVATE4(a_frag[j], &a[(k_main + j) * lda + row]);\n"
        "            } else {\n"
        "                #pragma unroll\n"
        "                for (int e = 0; e < 4; ++e) {\n"
        "                    a_frag[j][e] =\n"
        "                        k_main + j < k ? a[(k_main + j) * lda + min(row + e, m - 1)]\n"
        "                                       : (double2)(0.0, 0.0);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                b_frag[j][e] =\n"
        "                    k_main + e < k ? b[min(col + j, n - 1) * ldb + k_main + e]\n"
        "                                   : (double2)(0.0, 0.0);\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int p = 0; p < 4; ++p) {\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 4; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 4; ++j) {\n"
        "                    acc[i][j] = cfma(conjugate(a_frag[p][i]), b_frag[j][p], acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // C = alpha * conj(A) * B + beta * C; C is not read where beta is zero.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 4; ++i) {\n"
        "        if (row + i < m) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                if (col + j < n) {\n"
        "                    c[(row + i) * ldc + col + j] =\n"
        "                        beta.x == 0.0 && beta.y == 0.0 ? cmul(alpha, acc[i][j])\n"
        "                                                       : cfma(beta, c[(row + i) * ldc + col + j],\n"
        "                                                           cmul(alpha, acc[i][j]));\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n"
        "\n"
        "#undef conjugate\n"
        "#undef cmul\n"
        "#undef cfma\n"
        "#undef GLOBAL_TO_PRIVATE4\n",
};

static struct kernel zgemm_cc_vec4_4x4 = {
    .name = "zgemm_cc_vec4_4x4",
    .options = "-cl-std=CL1.2",
    .extensions = "cl_khr_fp64 ",
    .local_bytes = 0,
    .vector_bytes = 0,
    .device = ANY,
    .sub_group = 0,
    .group_rows = 16,
    .group_columns = 16,
    .block_rows = 64,
    .block_columns = 64,
    .groups_down = 1,
    .groups_across = 1,
    .text =
        "// zgemm_cc_vec4_4x4: C = alpha * conj(A) * conj(B) + beta * C; complex128; A col-major, B col-major\n"
        "//\n"
        "// Schedule   4x4 of C per work-item, 16x16 work-items per group (64x64 of C), 4 along K per\n"
        "//            iteration\n"
        "// A          buffer, loads of 4 elements\n"
        "// B          buffer, loads of 4 elements\n"
        "// Sizes      any m, n, k; every matrix spans less than 2^31 elements\n"
        "// Unread     A and B where k is 0, which serves for alpha = 0 as well; C where beta is 0\n"
        "// Launch     local size {16, 16}, global size {(n + 63) / 64 * 16, (m + 63) / 64 * 16}\n"
        "// Needs      on Intel's GPUs, and only there, the build option -cl-intel-256-GRF-per-thread\n"
        "// Build      clBuildProgram(..., \"-cl-std=CL1.2\", ...)\n"
        "\n"
        "// Names of this file alone, so that a program can hold others, too.\n"
        "#define conjugate zgemm_cc_vec4_4x4_conjugate\n"
        "#define cmul zgemm_cc_vec4_4x4_cmul\n"
        "#define cfma zgemm_cc_vec4_4x4_cfma\n"
        "\n"
        "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
        "\n"
        "// The complex conjugate: the imaginary part with its sign changed.\n"
        "static inline double2 conjugate(double2 value)\n"
        "{\n"
        "    return (double2)(value.x, -value.y);\n"
        "}\n"
        "\n"
        "// a * b, of complex numbers.\n"
        "static inline double2 cmul(double2 a, double2 b)\n"
        "{\n"
        "    return (double2)(fma(a.x, b.x, -a.y * b.y), fma(a.x, b.y, a.y * b.x));\n"
        "}\n"
        "\n"
        "// a * b + c, of complex numbers: two multiply-adds for each part.\n"
        "static inline double2 cfma(double2 a, double2 b, double2 c)\n"
        "{\n"
        "    const double re = fma(a.x, b.x, fma(-a.y, b.y, c.x));\n"
        "    const double im = fma(a.x, b.y, fma(a.y, b.x, c.y));\n"
        "    return (double2)(re, im);\n"
        "}\n"
        "\n"
        "// 4 neighbouring complex numbers.\n"
        "#define GLOBAL_TO_PRIVATE4(to, from) \\\n"
        "    vstore8(vload8(0, (const __global double *)(from)), 0, (double *)(to))\n"
        "\n"
        "__attribute__((reqd_work_group_size(16, 16, 1)))\n"
        "__kernel void zgemm_cc_vec4_4x4(int m, int n, int k, double2 alpha,\n"
        "                                __global const double2 *restrict a, int lda,\n"
        "                                __global const double2 *restrict b, int ldb, double2 beta,\n"
        "                                __global double2 *restrict c, int ldc)\n"
        "{\n"
        "    const int row0 = (int)get_group_id(1) * 64;\n"
        "    const int row = row0 + (int)get_local_id(1) * 4;\n"
        "    const int col = (int)get_group_id(0) * 64 + (int)get_local_id(0) * 4;\n"
        "    const int k_main = k - k % 4;\n"
        "\n"
        "    double2 acc[4][4];\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 4; ++i) {\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            acc[i][j] = (double2)(0.0, 0.0);\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // Whole steps of 4 along K.\n"
        "    if (row0 + 64 <= m) {\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "            double2 a_frag[4][4];\n"
        "            double2 b_frag[4][4];\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                GLOBAL_TO_PRIVATE4(a_frag[j], &a[(k0 + j) * lda + row]);\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                GLOBAL_TO_PRIVATE4(b_frag[j], &b[min(col + j, n - 1) * ldb + k0]);\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int p = 0; p < 4; ++p) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 4; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 4; ++j) {\n"
        "                        acc[i][j] =\n"
        "                            cfma(conjugate(a_frag[p][i]), conjugate(b_frag[j][p]), acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    } else {\n"
        "        // At the edge of C, each load asks whether it is inside.\n"
        "        for (int k0 = 0; k0 < k_main; k0 += 4) {\n"
        "            double2 a_frag[4][4];\n"
        "            double2 b_frag[4][4];\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                if (row + 4 <= m) {\n"
        "                    GLOBAL_TO_PRIVATE4(a_frag[j], &a[(k0 + j) * lda + row]);\n"
        "                } else {\n"
        "                    #pragma unroll\n"
        "                    for (int e = 0; e < 4; ++e) {\n"
        "                        a_frag[j][e] = a[(k0 + j) * lda + min(row + e, m - 1)];\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                GLOBAL_TO_PRIVATE4(b_frag[j], &b[min(col + j, n - 1) * ldb + k0]);\n"
        "            }\n"
        "            #pragma unroll\n"
        "            for (int p = 0; p < 4; ++p) {\n"
        "                #pragma unroll\n"
        "                for (int i = 0; i < 4; ++i) {\n"
        "                    #pragma unroll\n"
        "                    for (int j = 0; j < 4; ++j) {\n"
        "                        acc[i][j] =\n"
        "                            cfma(conjugate(a_frag[p][i]), conjugate(b_frag[j][p]), acc[i][j]);\n"
        "                    }\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "    if (k_main < k) {\n"
        "        // The rest of K; what lies past it counts as zero.\n"
        "        double2 a_frag[4][4];\n"
        "        double2 b_frag[4][4];\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            if (k_main + j < k && row + 4 <= m) {\n"
        "                GLOBAL_TO_PRIVATE4(a_frag[j], &a[(k_main + j) * lda + row]);\n"
        "            } else {\n"
        "                #pragma unroll\n"
        "                for (int e = 0; e < 4; ++e) {\n"
        "                    a_frag[j][e] =\n"
        "                        k_main + j < k ? a[(k_main + j) * lda + min(row + e, m - 1)]\n"
        "                                       : (double2)(0.0, 0.0);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int j = 0; j < 4; ++j) {\n"
        "            #pragma unroll\n"
        "            for (int e = 0; e < 4; ++e) {\n"
        "                b_frag[j][e] =\n"
        "                    k_main + e < k ? b[min(col + j, n - 1) * ldb + k_main + e]\n"
        "                                   : (double2)(0.0, 0.0);\n"
        "            }\n"
        "        }\n"
        "        #pragma unroll\n"
        "        for (int p = 0; p < 4; ++p) {\n"
        "            #pragma unroll\n"
        "            for (int i = 0; i < 4; ++i) {\n"
        "                #pragma unroll\n"
        "                for (int j = 0; j < 4; ++j) {\n"
        "                    acc[i][j] = cfma(conjugate(a_frag[p][i]), conjugate(b_frag[j][p]), acc[i][j]);\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "\n"
        "    // C = alpha * conj(A) * conj(B) + beta * C; C is not read where beta is zero.\n"
        "    #pragma unroll\n"
        "    for (int i = 0; i < 4; ++i) {\n"
        "        if (row + i < m) {\n"
        "            #pragma unroll\n"
        "            for (int j = 0; j < 4; ++j) {\n"
        "                if (col + j < n) {\n"
        "                    c[(row + i) * ldc + col + j] =\n"
        "                        beta.x == 0.0 && beta.y == 0.0 ? cmul(alpha, acc[i][j])\n"
        "                                                       : cfma(beta, c[(row + i) * ldc + col + j],\n"
        "                                                           cmul(alpha, acc[i][j]));\n"
        "                }\n"
        "            }\n"
        "        }\n"
        "    }\n"
        "}\n"
        "\n"
        "#undef conjugate\n"
        "#undef cmul\n"
        "#undef cfma\n"
        "#undef GLOBAL_TO_PRIVATE4\n",
};

static const struct recipe sgemm_recipes[21] = {
    {AS_IS, AS_IS, &sgemm_nn_cpu_6x64_copied, NULL, NULL},
    {AS_IS, TRANSPOSED, &sgemm_nt_cpu_6x64_copied, NULL, NULL},
    {TRANSPOSED, AS_IS, &sgemm_tn_cpu_6x64_copied, NULL, NULL},
    {TRANSPOSED, TRANSPOSED, &sgemm_tt_cpu_6x64_copied, NULL, NULL},
    {AS_IS, AS_IS, &sgemm_nn_cpu_6x16_v8_copied, NULL, NULL},
    {AS_IS, TRANSPOSED, &sgemm_nt_cpu_6x16_v8_copied, NULL, NULL},
    {TRANSPOSED, AS_IS, &sgemm_tn_cpu_6x16_v8_copied, NULL, NULL},
    {TRANSPOSED, TRANSPOSED, &sgemm_tt_cpu_6x16_v8_copied, NULL, NULL},
    {AS_IS, AS_IS, &sgemm_nn_sg16_block_16x2, NULL, NULL},
    {AS_IS, TRANSPOSED, &sgemm_nn_sg16_block_16x2, NULL, &stranspose},
    {TRANSPOSED, AS_IS, &sgemm_tn_sg16_block_16x2, NULL, NULL},
    {TRANSPOSED, TRANSPOSED, &sgemm_tn_sg16_block_16x2, NULL, &stranspose},
    {AS_IS, AS_IS, &sgemm_nn_smem_8x8_double, NULL, NULL},
    {AS_IS, TRANSPOSED, &sgemm_nt_smem_8x8_double, NULL, NULL},
    {TRANSPOSED, AS_IS, &sgemm_tn_smem_8x8_double, NULL, NULL},
    {TRANSPOSED, TRANSPOSED, &sgemm_tt_smem_8x8_double, NULL, NULL},
    {AS_IS, AS_IS, &sgemm_nn_tile_8x8, NULL, NULL},
    {AS_IS, TRANSPOSED, &sgemm_nt_tile_8x8, NULL, NULL},
    {TRANSPOSED, AS_IS, &sgemm_tn_tile_8x8, NULL, NULL},
    {TRANSPOSED, TRANSPOSED, &sgemm_tt_tile_8x8, NULL, NULL},
    {AS_IS, AS_IS, NULL, NULL, NULL},
};

static const struct recipe dgemm_recipes[17] = {
    {AS_IS, AS_IS, &dgemm_nn_cpu_6x16_v8_copied, NULL, NULL},
    {AS_IS, TRANSPOSED, &dgemm_nt_cpu_6x16_v8_copied, NULL, NULL},
    {TRANSPOSED, AS_IS, &dgemm_tn_cpu_6x16_v8_copied, NULL, NULL},
    {TRANSPOSED, TRANSPOSED, &dgemm_tt_cpu_6x16_v8_copied, NULL, NULL},
    {AS_IS, AS_IS, &dgemm_nn_sg16_block_16x2, NULL, NULL},
    {AS_IS, TRANSPOSED, &dgemm_nn_sg16_block_16x2, NULL, &dtranspose},
    {TRANSPOSED, AS_IS, &dgemm_tn_sg16_block_16x2, NULL, NULL},
    {TRANSPOSED, TRANSPOSED, &dgemm_tn_sg16_block_16x2, NULL, &dtranspose},
    {AS_IS, AS_IS, &dgemm_nn_smem_8x8_double, NULL, NULL},
    {AS_IS, TRANSPOSED, &dgemm_nt_smem_8x8_double, NULL, NULL},
    {TRANSPOSED, AS_IS, &dgemm_tn_smem_8x8_double, NULL, NULL},
    {TRANSPOSED, TRANSPOSED, &dgemm_tt_smem_8x8_double, NULL, NULL},
    {AS_IS, AS_IS, &dgemm_nn_tile_8x8, NULL, NULL},
    {AS_IS, TRANSPOSED, &dgemm_nt_tile_8x8, NULL, NULL},
    {TRANSPOSED, AS_IS, &dgemm_tn_tile_8x8, NULL, NULL},
    {TRANSPOSED, TRANSPOSED, &dgemm_tt_tile_8x8, NULL, NULL},
    {AS_IS, AS_IS, NULL, NULL, NULL},
};

static const struct recipe cgemm_recipes[10] = {
    {AS_IS, AS_IS, &cgemm_nn_vec4_4x4, NULL, NULL},
    {AS_IS, TRANSPOSED, &cgemm_nt_vec4_4x4, NULL, NULL},
    {AS_IS, CONJUGATED, &cgemm_nc_vec4_4x4, NULL, NULL},
    {TRANSPOSED, AS_IS, &cgemm_tn_vec4_4x4, NULL, NULL},
    {TRANSPOSED, TRANSPOSED, &cgemm_tt_vec4_4x4, NULL, NULL},
    {TRANSPOSED, CONJUGATED, &cgemm_tc_vec4_4x4, NULL, NULL},
    {CONJUGATED, AS_IS, &cgemm_cn_vec4_4x4, NULL, NULL},
    {CONJUGATED, TRANSPOSED, &cgemm_ct_vec4_4x4, NULL, NULL},
    {CONJUGATED, CONJUGATED, &cgemm_cc_vec4_4x4, NULL, NULL},
    {AS_IS, AS_IS, NULL, NULL, NULL},
};

static const struct recipe zgemm_recipes[10] = {
    {AS_IS, AS_IS, &zgemm_nn_vec4_4x4, NULL, NULL},
    {AS_IS, TRANSPOSED, &zgemm_nt_vec4_4x4, NULL, NULL},
    {AS_IS, CONJUGATED, &zgemm_nc_vec4_4x4, NULL, NULL},
    {TRANSPOSED, AS_IS, &zgemm_tn_vec4_4x4, NULL, NULL},
    {TRANSPOSED, TRANSPOSED, &zgemm_tt_vec4_4x4, NULL, NULL},
    {TRANSPOSED, CONJUGATED, &zgemm_tc_vec4_4x4, NULL, NULL},
    {CONJUGATED, AS_IS, &zgemm_cn_vec4_4x4, NULL, NULL},
    {CONJUGATED, TRANSPOSED, &zgemm_ct_vec4_4x4, NULL, NULL},
    {CONJUGATED, CONJUGATED, &zgemm_cc_vec4_4x4, NULL, NULL},
    {AS_IS, AS_IS, NULL, NULL, NULL},
};
