// relu(A * B + bias) on any OpenCL device, by a C header that gemmgen wrote. CMakeLists.txt emits it.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "fused.h"

int main()
{
    const int m = 300, n = 200, k = 100;
    const std::vector<float> a(m * k, 1.0f), b(k * n, 2.0f);
    std::vector<float> c(m * n), bias(n, -250.0f); // an element for each column of C
    bias[0] = 1.0f;

    cl_platform_id platform = nullptr;
    cl_device_id device = nullptr;
    if (clGetPlatformIDs(1, &platform, nullptr) != CL_SUCCESS
        || clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr) != CL_SUCCESS) {
        std::puts("no OpenCL device");
        return 2;
    }
    cl_context context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, nullptr);
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, nullptr);
    const auto buffer = [context](const std::vector<float> &values) {
        const cl_mem_flags flags = CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR;
        return clCreateBuffer(context, flags, values.size() * sizeof(float), const_cast<float *>(values.data()), nullptr);
    };
    cl_mem on_device[] = {buffer(a), buffer(b), buffer(c), buffer(bias)};

    smem_8x8 gemm;
    char log[4096];
    cl_int error = smem_8x8_build(&gemm, context, device, log, sizeof log);
    if (error != CL_SUCCESS) {
        std::printf("%s: %s\n", smem_8x8_error_name(error), log);
        return 2;
    }
    // Matrices by rows without gaps; alpha is 1, beta is 0, so that C is not read.
    error = smem_8x8_launch(&gemm, queue, m, n, k, 1.0f, on_device[0], k, on_device[1], n, 0.0f, on_device[2], n, on_device[3], 0, nullptr, nullptr);
    if (error == CL_SUCCESS) {
        error = clEnqueueReadBuffer(queue, on_device[2], CL_TRUE, 0, c.size() * sizeof(float), c.data(), 0, nullptr, nullptr);
    }
    smem_8x8_release(&gemm);
    std::for_each(on_device, on_device + 4, clReleaseMemObject);
    clReleaseCommandQueue(queue);
    clReleaseContext(context);

    bool is_right = true; // 200 + 1 in the first column, relu(200 - 250) in the others
    for (int i = 0; i < m * n; ++i) {
        is_right = is_right && c[i] == (i % n == 0 ? 201.0f : 0.0f);
    }
    std::printf("%s: %s, C[0] = %g\n", smem_8x8_error_name(error), is_right ? "right" : "wrong", c[0]);
    return error == CL_SUCCESS && is_right ? 0 : 1;
}
