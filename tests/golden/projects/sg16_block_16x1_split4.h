// sg16_block_16x1_split4: C = alpha * A * B + beta * C; float32
//
// Plain C99 or C++: include it, and link OpenCL. It holds the kernels as text and launches them.
//
//     struct sg16_block_16x1_split4 built;
//     char log[4096];
//     cl_int error;
//     error = sg16_block_16x1_split4_build(&built, context, device, log, sizeof log);
//     if (error != CL_SUCCESS) {
//         fprintf(stderr, "%s: %s\n", sg16_block_16x1_split4_error_name(error), log);
//     }
//     error = sg16_block_16x1_split4_launch(&built, queue, m, n, k, alpha, a, lda, b, ldb,
//                                           workspace, beta, c, ldc, 0, NULL, NULL);
//     sg16_block_16x1_split4_release(&built);

#ifndef sg16_block_16x1_split4_H
#define sg16_block_16x1_split4_H

#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 120
#endif
#ifdef __APPLE__
#include <OpenCL/opencl.h>
#else
#include <CL/cl.h>
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The program of these kernels, built for a device. One thread at a time may launch by it.
struct sg16_block_16x1_split4 {
    cl_program program;
    cl_kernel product;
    cl_kernel total;
};

// --- The kernels ---------------------------------------------------------------------------------

// In many strings, since a compiler need not take one of more than 4095 characters.
// clang-format off
static const char *const sg16_block_16x1_split4_source[] = {
"// sg16_block_16x1_split4: C = alpha * A * B + beta * C; float32\n",
"//\n",
"// Tile       16x16 of C per group, 16x1 per work-item, 32 along K per step\n",
"// Work-items 1x16 per group, sub-groups of 16\n",
"// A          buffer, block reads of 2 segments, passed around the sub-group by shuffles\n",
"// B          buffer, block reads\n",
"// Multiply   fused multiply-add\n",
"// C          stores of single elements, to the workspace\n",
"// Grid       split-K: 4 parts, added up by a second kernel\n",
"// Sizes      any m, n, k; A and B span less than 2^29 elements, C 2^31; the workspace less\n",
"//            than 2^31 elements\n",
"// Unread     A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0\n",
"// Launch     sg16_block_16x1_split4: local size {16, 1}, global size {(m + 15) / 16 * ((n +\n",
"//            15) /\n",
"//                16) * 64, 1}\n",
"//            sg16_block_16x1_split4_total: local size {256, 1}, global size {m * ((n + 255) /\n",
"//            256)\n",
"//                * 256, 1}\n",
"// Needs      a workspace of m * n * 4 elements\n",
"//            cl_intel_subgroups, cl_intel_required_subgroup_size, sub-groups of 16\n",
"// Build      clBuildProgram(..., \"-cl-std=CL2.0\", ...)\n",
"\n",
"// Helpers carry the kernel's name: several files fit into one program.\n",
"#define at sg16_block_16x1_split4_at\n",
"#define block_read sg16_block_16x1_split4_block_read\n",
"#define block_read2 sg16_block_16x1_split4_block_read2\n",
"\n",
"// Block tile of C.\n",
"#define BM 16\n",
"#define BN 16\n",
"// Parts of K (split-K).\n",
"#define SPLIT_K 4\n",
"// Rows of C of a work-item.\n",
"#define TM BM\n",
"\n",
"#if BM != 16 || BN != 16\n",
"#error \"BM and BN cannot change here:\"\n",
"#error \"gemmgen emit --preset sg16_block_16x1_split4 --form header --set tile=32x1\"\n",
"#endif\n",
"#if SPLIT_K != 4\n",
"#error \"SPLIT_K cannot change here:\"\n",
"#error \"gemmgen emit --preset sg16_block_16x1_split4 --form header --set split_k=8\"\n",
"#endif\n",
"\n",
"#pragma OPENCL EXTENSION cl_intel_subgroups : enable\n",
"\n",
"// The element that lies `bytes` bytes behind a matrix's first.\n",
"static inline const __global float *at(const __global float *matrix, int bytes)\n",
"{\n",
"    return (const __global float *)((const __global char *)matrix + bytes);\n",
"}\n",
"\n",
"// One element per lane.\n",
"static inline float block_read(const __global float *from)\n",
"{\n",
"    return as_float(intel_sub_group_block_read((const __global uint *)from));\n",
"}\n",
"\n",
"// One element per lane of each of 2 neighbouring segments.\n",
"static inline float2 block_read2(const __global float *from)\n",
"{\n",
"    return as_float2(intel_sub_group_block_read2((const __global uint *)from));\n",
"}\n",
"\n",
"__attribute__((reqd_work_group_size(16, 1, 1)))\n",
"__attribute__((intel_reqd_sub_group_size(16))) __kernel void\n",
"sg16_block_16x1_split4(int m, int n, int k, float alpha, __global const float *restrict a,\n",
"                       int lda, __global const float *restrict b, int ldb,\n",
"                       __global float *restrict workspace)\n",
"{\n",
"    const int lane = (int)get_sub_group_local_id();\n",
"    const int blocks_down = (m + BM - 1) / BM;\n",
"    const int blocks_across = (n + BN - 1) / BN;\n",
"    const int part = (int)get_group_id(0) / (blocks_down * blocks_across);\n",
"    const int block = (int)get_group_id(0) % (blocks_down * blocks_across);\n",
"    const int block_row = block / blocks_across;\n",
"    const int block_col = block % blocks_across;\n",
"    const int row0 = block_row * BM;\n",
"    const int col0 = block_col * BN;\n",
"    const int col = col0 + lane;\n",
"    const int k_part = (k + 127) / 128 * 32;\n",
"    const int k_begin = part * k_part;\n",
"    const int k_end = min(k, k_begin + k_part);\n",
"    const int k_main = col0 + BN <= n ? min(k - k % 32, k_end) : k_begin;\n",
"\n",
"    float acc[TM];\n",
"    #pragma unroll\n",
"    for (int i = 0; i < TM; ++i) {\n",
"        acc[i] = 0.0f;\n",
"    }\n",
"\n",
"    // Addresses of block reads in bytes, one (or half of one) a lane; the loop adds a step\n",
"    // first.\n",
"    int b_at[2];\n",
"    #pragma unroll\n",
"    for (int i = 0; i < 2; ++i) {\n",
"        b_at[i] = ((k_begin - 32 + i * 16 + lane) * ldb + col0) * 4;\n",
"    }\n",
"    int a_at = (min(row0 + lane, m - 1) * lda + k_begin - 32) * 4;\n",
"\n",
"    // Whole steps of 32 along K; at the edge of C there are none.\n",
"    for (int k0 = k_begin; k0 < k_main; k0 += 32) {\n",
"        #pragma unroll\n",
"        for (int i = 0; i < 2; ++i) {\n",
"            b_at[i] += ldb * 128;\n",
"        }\n",
"        a_at += 128;\n",
"        float b_frag[32];\n",
"        #pragma unroll\n",
"        for (int i = 0; i < 32; ++i) {\n",
"            b_frag[i] = block_read(at(b, intel_sub_group_shuffle(b_at[i / 16], i % 16)));\n",
"        }\n",
"        float a_frag[TM][2];\n",
"        #pragma unroll\n",
"        for (int i = 0; i < TM; ++i) {\n",
"            vstore2(block_read2(at(a, intel_sub_group_shuffle(a_at, i))), 0, a_frag[i]);\n",
"        }\n",
"        #pragma unroll\n",
"        for (int i = 0; i < TM; ++i) {\n",
"            #pragma unroll\n",
"            for (int p = 0; p < 32; ++p) {\n",
"                const float a_value = intel_sub_group_shuffle(a_frag[i][p / 16], p % 16);\n",
"                acc[i] = fma(a_value, b_frag[p], acc[i]);\n",
"            }\n",
"        }\n",
"    }\n",
"    if (k_begin <= k_main && k_main < k_end) {\n",
"        // The rest of K, at the edge of C all of it; what lies past it counts as zero.\n",
"        for (int k0 = k_main; k0 < k_end; k0 += 16) {\n",
"            float b_frag[16];\n",
"            #pragma unroll\n",
"            for (int i = 0; i < 16; ++i) {\n",
"                b_frag[i] = k0 + i < k ? b[(k0 + i) * ldb + min(col, n - 1)] : 0.0f;\n",
"            }\n",
"            float a_frag[TM];\n",
"            #pragma unroll\n",
"            for (int i = 0; i < TM; ++i) {\n",
"                a_frag[i] = k0 + lane < k ? a[min(row0 + i, m - 1) * lda + k0 + lane] : 0.0f;\n",
"            }\n",
"            #pragma unroll\n",
"            for (int i = 0; i < TM; ++i) {\n",
"                #pragma unroll\n",
"                for (int p = 0; p < 16; ++p) {\n",
"                    const float a_value = intel_sub_group_shuffle(a_frag[i], p);\n",
"                    acc[i] = fma(a_value, b_frag[p], acc[i]);\n",
"                }\n",
"            }\n",
"        }\n",
"    }\n",
"\n",
"    // Split-K: this part's partial sums.\n",
"    #pragma unroll\n",
"    for (int i = 0; i < TM; ++i) {\n",
"        if (row0 + i < m && col < n) {\n",
"            workspace[part * (m * n) + (row0 + i) * n + col] = alpha * acc[i];\n",
"        }\n",
"    }\n",
"}\n",
"\n",
"__attribute__((reqd_work_group_size(256, 1, 1))) __kernel void\n",
"sg16_block_16x1_split4_total(int m, int n, __global const float *restrict workspace,\n",
"                             float beta, __global float *restrict c, int ldc)\n",
"{\n",
"    const int blocks_across = (n + 255) / 256;\n",
"    const int row = (int)get_group_id(0) / blocks_across;\n",
"    const int col = (int)get_group_id(0) % blocks_across * 256 + (int)get_local_id(0);\n",
"\n",
"    if (col < n) {\n",
"        // Reduction of split-K: the partial sums in order.\n",
"        float total = workspace[row * n + col];\n",
"        #pragma unroll\n",
"        for (int s = 1; s < SPLIT_K; ++s) {\n",
"            total += workspace[s * (m * n) + row * n + col];\n",
"        }\n",
"        c[row * ldc + col] = beta == 0.0f ? total : fma(beta, c[row * ldc + col], total);\n",
"    }\n",
"}\n",
"\n",
"#undef BM\n",
"#undef BN\n",
"#undef SPLIT_K\n",
"#undef TM\n",
"\n",
"#undef at\n",
"#undef block_read\n",
"#undef block_read2\n",
};
// clang-format on

// --- Errors --------------------------------------------------------------------------------------

// What the OpenCL standard calls an error.
static inline const char *sg16_block_16x1_split4_error_name(cl_int error)
{
    // clang-format off
    static const char *const names[] = {
        "CL_SUCCESS", "CL_DEVICE_NOT_FOUND", "CL_DEVICE_NOT_AVAILABLE", "CL_COMPILER_NOT_AVAILABLE",
        "CL_MEM_OBJECT_ALLOCATION_FAILURE", "CL_OUT_OF_RESOURCES", "CL_OUT_OF_HOST_MEMORY",
        "CL_PROFILING_INFO_NOT_AVAILABLE", "CL_MEM_COPY_OVERLAP", "CL_IMAGE_FORMAT_MISMATCH",
        "CL_IMAGE_FORMAT_NOT_SUPPORTED", "CL_BUILD_PROGRAM_FAILURE", "CL_MAP_FAILURE",
        "CL_MISALIGNED_SUB_BUFFER_OFFSET", "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST",
        "CL_COMPILE_PROGRAM_FAILURE", "CL_LINKER_NOT_AVAILABLE", "CL_LINK_PROGRAM_FAILURE",
        "CL_DEVICE_PARTITION_FAILED", "CL_KERNEL_ARG_INFO_NOT_AVAILABLE", NULL, NULL, NULL, NULL,
        NULL, NULL, NULL, NULL, NULL, NULL, "CL_INVALID_VALUE", "CL_INVALID_DEVICE_TYPE",
        "CL_INVALID_PLATFORM", "CL_INVALID_DEVICE", "CL_INVALID_CONTEXT",
        "CL_INVALID_QUEUE_PROPERTIES", "CL_INVALID_COMMAND_QUEUE", "CL_INVALID_HOST_PTR",
        "CL_INVALID_MEM_OBJECT", "CL_INVALID_IMAGE_FORMAT_DESCRIPTOR", "CL_INVALID_IMAGE_SIZE",
        "CL_INVALID_SAMPLER", "CL_INVALID_BINARY", "CL_INVALID_BUILD_OPTIONS", "CL_INVALID_PROGRAM",
        "CL_INVALID_PROGRAM_EXECUTABLE", "CL_INVALID_KERNEL_NAME", "CL_INVALID_KERNEL_DEFINITION",
        "CL_INVALID_KERNEL", "CL_INVALID_ARG_INDEX", "CL_INVALID_ARG_VALUE", "CL_INVALID_ARG_SIZE",
        "CL_INVALID_KERNEL_ARGS", "CL_INVALID_WORK_DIMENSION", "CL_INVALID_WORK_GROUP_SIZE",
        "CL_INVALID_WORK_ITEM_SIZE", "CL_INVALID_GLOBAL_OFFSET", "CL_INVALID_EVENT_WAIT_LIST",
        "CL_INVALID_EVENT", "CL_INVALID_OPERATION", "CL_INVALID_GL_OBJECT",
        "CL_INVALID_BUFFER_SIZE", "CL_INVALID_MIP_LEVEL", "CL_INVALID_GLOBAL_WORK_SIZE",
        "CL_INVALID_PROPERTY", "CL_INVALID_IMAGE_DESCRIPTOR", "CL_INVALID_COMPILER_OPTIONS",
        "CL_INVALID_LINKER_OPTIONS", "CL_INVALID_DEVICE_PARTITION_COUNT", "CL_INVALID_PIPE_SIZE",
        "CL_INVALID_DEVICE_QUEUE", "CL_INVALID_SPEC_ID", "CL_MAX_SIZE_RESTRICTION_EXCEEDED",
    };
    // clang-format on
    const cl_int count = (cl_int)(sizeof names / sizeof names[0]);
    if (error == -1001) {
        return "CL_PLATFORM_NOT_FOUND_KHR";
    }
    const int is_known = error <= 0 && error > -count && names[-error] != NULL;
    return is_known ? names[-error] : "unknown error of OpenCL";
}

// --- Building ------------------------------------------------------------------------------------

// Whether a device has an extension.
static inline int sg16_block_16x1_split4_has_extension(cl_device_id device, const char *extension)
{
    size_t bytes = 0;
    clGetDeviceInfo(device, CL_DEVICE_EXTENSIONS, 0, NULL, &bytes);
    if (bytes == 0) {
        return 0;
    }
    char *const listed = (char *)malloc(bytes);
    int found = 0;
    if (listed != NULL &&
        clGetDeviceInfo(device, CL_DEVICE_EXTENSIONS, bytes, listed, NULL) == CL_SUCCESS) {
        const size_t length = strlen(extension);
        for (const char *at = strstr(listed, extension); at != NULL && !found;
             at = strstr(at + 1, extension)) {
            found = (at == listed || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0');
        }
    }
    free(listed);
    return found;
}

// Whether a device has sub-groups of so many lanes.
static inline int sg16_block_16x1_split4_has_sub_groups(cl_device_id device, size_t lanes)
{
    const cl_device_info sub_group_sizes = 0x4108; // CL_DEVICE_SUB_GROUP_SIZES_INTEL
    size_t sizes[16];
    size_t bytes = 0;
    if (clGetDeviceInfo(device, sub_group_sizes, sizeof sizes, sizes, &bytes) != CL_SUCCESS) {
        return 0;
    }
    int found = 0;
    for (size_t i = 0; i < bytes / sizeof sizes[0]; ++i) {
        found = found || sizes[i] == lanes;
    }
    return found;
}

// Whether a device has all that the kernels need; what it lacks goes to `log`.
static inline int sg16_block_16x1_split4_fits(cl_device_id device, char *log, size_t log_bytes)
{
    if (!sg16_block_16x1_split4_has_extension(device, "cl_intel_subgroups")) {
        snprintf(log, log_bytes, "the device lacks cl_intel_subgroups");
        return 0;
    }
    if (!sg16_block_16x1_split4_has_extension(device, "cl_intel_required_subgroup_size")) {
        snprintf(log, log_bytes, "the device lacks cl_intel_required_subgroup_size");
        return 0;
    }
    if (!sg16_block_16x1_split4_has_sub_groups(device, 16)) {
        snprintf(log, log_bytes, "the device has no sub-groups of 16");
        return 0;
    }
    size_t most_items = 0;
    if (clGetDeviceInfo(device, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof most_items, &most_items,
                        NULL) != CL_SUCCESS ||
        most_items < 256) {
        snprintf(log, log_bytes, "a group has 256 work-items, more than the device's %lu",
                 (unsigned long)most_items);
        return 0;
    }
    return 1;
}

// What the compiler has said, as much of it as there is room for.
static inline void sg16_block_16x1_split4_copy_log(cl_program program, cl_device_id device,
                                                   char *log, size_t log_bytes)
{
    size_t bytes = 0;
    clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, NULL, &bytes);
    char *const said = (char *)calloc(1, bytes + 1);
    if (said != NULL && clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, bytes, said,
                                              NULL) == CL_SUCCESS) {
        snprintf(log, log_bytes, "%s", said);
    }
    free(said);
}

// Gives back what sg16_block_16x1_split4_build has made.
static inline void sg16_block_16x1_split4_release(struct sg16_block_16x1_split4 *built)
{
    if (built->product != NULL) {
        clReleaseKernel(built->product);
        built->product = NULL;
    }
    if (built->total != NULL) {
        clReleaseKernel(built->total);
        built->total = NULL;
    }
    if (built->program != NULL) {
        clReleaseProgram(built->program);
        built->program = NULL;
    }
}

// Compiles for a device. Returns CL_INVALID_DEVICE where that lacks something. `log` gets what it
// lacks, or what its compiler said, in words; it may be NULL with `log_bytes` 0.
static inline cl_int sg16_block_16x1_split4_build(struct sg16_block_16x1_split4 *built,
                                                  cl_context context, cl_device_id device,
                                                  char *log, size_t log_bytes)
{
    const struct sg16_block_16x1_split4 nothing = {NULL, NULL, NULL};
    *built = nothing;
    if (log_bytes > 0) {
        log[0] = '\0';
    }
    if (!sg16_block_16x1_split4_fits(device, log, log_bytes)) {
        return CL_INVALID_DEVICE;
    }
    const char *const options = "-cl-std=CL2.0";
    const cl_uint lines = (cl_uint)(sizeof sg16_block_16x1_split4_source / sizeof(char *));
    cl_int error = CL_SUCCESS;
    const char **const source = (const char **)sg16_block_16x1_split4_source;
    built->program = clCreateProgramWithSource(context, lines, source, NULL, &error);
    if (error == CL_SUCCESS) {
        error = clBuildProgram(built->program, 1, &device, options, NULL, NULL);
        if (error != CL_SUCCESS) {
            sg16_block_16x1_split4_copy_log(built->program, device, log, log_bytes);
        }
    }
    if (error == CL_SUCCESS) {
        built->product = clCreateKernel(built->program, "sg16_block_16x1_split4", &error);
    }
    if (error == CL_SUCCESS) {
        built->total = clCreateKernel(built->program, "sg16_block_16x1_split4_total", &error);
    }
    if (error != CL_SUCCESS) {
        sg16_block_16x1_split4_release(built);
    }
    return error;
}

// --- Launching -----------------------------------------------------------------------------------

// Bytes that the buffer `workspace`, which one kernel fills for the next, must have.
static inline size_t sg16_block_16x1_split4_workspace_bytes(cl_long m, cl_long n)
{
    const cl_long elements = m * n * 4;
    return (size_t)(elements > 0 ? elements : 1) * sizeof(cl_float);
}

// How many elements a matrix spans whose lines begin `pitch` elements apart: 0 where it has none,
// -1 where lines overlap, or where loops step further past the end of a size than 32 bits might
// count.
static inline cl_long sg16_block_16x1_split4_span(cl_long lines, cl_long length, cl_long pitch)
{
    if (lines < 1 || length < 1) {
        return 0;
    }
    if (lines >= ((cl_long)1 << 31) - 1024 || length >= ((cl_long)1 << 31) - 1024) {
        return -1;
    }
    return lines > 1 && pitch < length ? -1 : (lines - 1) * pitch + length;
}

// Whether a buffer holds so many elements; an error where it does not.
static inline cl_int sg16_block_16x1_split4_expect(cl_mem buffer, cl_long elements,
                                                   size_t element_bytes)
{
    size_t bytes = 0;
    if (elements < 1) {
        return CL_SUCCESS;
    }
    const cl_int error = clGetMemObjectInfo(buffer, CL_MEM_SIZE, sizeof bytes, &bytes, NULL);
    if (error == CL_SUCCESS && bytes / element_bytes < (size_t)elements) {
        return CL_INVALID_BUFFER_SIZE;
    }
    return error;
}

// An argument of a kernel.
struct sg16_block_16x1_split4_argument {
    size_t bytes;
    const void *value;
};

// Queues a kernel after `wait_for`; where it has no groups, a marker.
static inline cl_int
sg16_block_16x1_split4_enqueue(cl_command_queue queue, cl_kernel kernel,
                               const struct sg16_block_16x1_split4_argument *arguments,
                               cl_uint argument_count, const size_t *groups, const size_t *group,
                               cl_uint wait_count, const cl_event *wait_for, cl_event *done)
{
    for (cl_uint i = 0; i < argument_count; ++i) {
        const cl_int error = clSetKernelArg(kernel, i, arguments[i].bytes, arguments[i].value);
        if (error != CL_SUCCESS) {
            return error;
        }
    }
    if (groups[0] == 0 || groups[1] == 0 || groups[2] == 0) {
        return clEnqueueMarkerWithWaitList(queue, wait_count, wait_for, done);
    }
    const size_t items[3] = {groups[0] * group[0], groups[1] * group[1], groups[2] * group[2]};
    return clEnqueueNDRangeKernel(queue, kernel, 3, NULL, items, group, wait_count, wait_for, done);
}

// Queues the kernels after the events `wait_for`; `done`, which may be NULL, gets the event of all.
// Returns CL_INVALID_VALUE for sizes or leading dimensions that can't be taken, and
// CL_INVALID_BUFFER_SIZE for a buffer that is too small; nothing is launched then.
static inline cl_int sg16_block_16x1_split4_launch(const struct sg16_block_16x1_split4 *built,
                                                   cl_command_queue queue, cl_int m, cl_int n,
                                                   cl_int k, cl_float alpha, cl_mem a, cl_int lda,
                                                   cl_mem b, cl_int ldb, cl_mem workspace,
                                                   cl_float beta, cl_mem c, cl_int ldc,
                                                   cl_uint wait_count, const cl_event *wait_for,
                                                   cl_event *done)
{
    if (m < 1 || n < 1) {
        return clEnqueueMarkerWithWaitList(queue, wait_count, wait_for, done);
    }
    if (alpha == 0.0f) {
        k = 0; // so that A and B are not read
    }
    const cl_long a_span = sg16_block_16x1_split4_span(m, k, lda);
    const cl_long b_span = sg16_block_16x1_split4_span(k, n, ldb);
    const cl_long c_span = sg16_block_16x1_split4_span(m, n, ldc);
    const size_t workspace_bytes = sg16_block_16x1_split4_workspace_bytes(m, n);
    if (k < 0 || a_span < 0 || a_span >= (cl_long)1 << 29 || b_span < 0 ||
        b_span >= (cl_long)1 << 29 || c_span < 0 || c_span >= (cl_long)1 << 31 ||
        workspace_bytes / sizeof(cl_float) >= (size_t)1 << 31) {
        return CL_INVALID_VALUE;
    }
    cl_int error = sg16_block_16x1_split4_expect(a, a_span, sizeof(cl_float));
    if (error == CL_SUCCESS) {
        error = sg16_block_16x1_split4_expect(b, b_span, sizeof(cl_float));
    }
    if (error == CL_SUCCESS) {
        error = sg16_block_16x1_split4_expect(workspace, (cl_long)workspace_bytes, 1);
    }
    if (error == CL_SUCCESS) {
        error = sg16_block_16x1_split4_expect(c, c_span, sizeof(cl_float));
    }
    if (error != CL_SUCCESS) {
        return error;
    }

    // clang-format off
    const struct sg16_block_16x1_split4_argument product_arguments[] = {
        {sizeof m, &m}, {sizeof n, &n}, {sizeof k, &k}, {sizeof alpha, &alpha},
        {sizeof(cl_mem), &a}, {sizeof lda, &lda}, {sizeof(cl_mem), &b}, {sizeof ldb, &ldb},
        {sizeof(cl_mem), &workspace},
    };
    // clang-format on
    const size_t product_groups[3] = {(size_t)((m + 15) / 16 * ((n + 15) / 16) * 4), 1, 1};
    const size_t product_group[3] = {16, 1, 1};
    cl_event product_done = NULL;
    error =
        sg16_block_16x1_split4_enqueue(queue, built->product, product_arguments, 9, product_groups,
                                       product_group, wait_count, wait_for, &product_done);
    if (error != CL_SUCCESS) {
        return error;
    }

    // clang-format off
    const struct sg16_block_16x1_split4_argument total_arguments[] = {
        {sizeof m, &m}, {sizeof n, &n}, {sizeof(cl_mem), &workspace}, {sizeof beta, &beta},
        {sizeof(cl_mem), &c}, {sizeof ldc, &ldc},
    };
    // clang-format on
    const size_t total_groups[3] = {(size_t)(m * ((n + 255) / 256)), 1, 1};
    const size_t total_group[3] = {256, 1, 1};
    error = sg16_block_16x1_split4_enqueue(queue, built->total, total_arguments, 6, total_groups,
                                           total_group, 1, &product_done, done);
    clReleaseEvent(product_done);
    return error;
}

#endif
