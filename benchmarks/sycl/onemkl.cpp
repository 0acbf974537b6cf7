// oneMKL's SYCL product of row-major matrices in any memory that the device reaches, behind a C function.

#include <oneapi/mkl/blas.hpp>
#include <sycl/sycl.hpp>

#include <cstdio>
#include <exception>

namespace {

sycl::queue &queue(unsigned number)
{
    static sycl::queue made = [&] {
        for (const auto &platform : sycl::platform::get_platforms()) {
            for (const auto &device : platform.get_devices()) {
                if (number-- == 0) {
                    return sycl::queue(device);
                }
            }
        }
        throw std::runtime_error("no such device");
    }();
    return made;
}

} // namespace

// C = A * B, waited for; 0 on success. `device` counts as in gemmgen devices.
extern "C" int onemkl_gemm(unsigned device, int m, int n, int k, const float *a, const float *b,
                           float *c)
{
    try {
        using oneapi::mkl::transpose;
        oneapi::mkl::blas::row_major::gemm(queue(device), transpose::nontrans, transpose::nontrans,
                                           m, n, k, 1.0f, a, k, b, n, 0.0f, c, n)
            .wait_and_throw();
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
