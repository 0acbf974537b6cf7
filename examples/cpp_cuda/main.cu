// One product on an NVIDIA GPU, by a file that gemmgen wrote. CMakeLists.txt emits it.
#include <algorithm>
#include <cstdio>
#include <vector>

#include <cuda_runtime.h>

// The last function of async_8x8_16x16.cu.
extern "C" cudaError_t async_8x8_16x16_launch(int m, int n, int k, float alpha, const float *a,
                                              int lda, const float *b, int ldb, float beta,
                                              float *c, int ldc, cudaStream_t stream);

namespace {

struct OnDevice {
    float *at = nullptr;
    explicit OnDevice(const std::vector<float> &values)
    {
        const size_t bytes = values.size() * sizeof(float);
        if (cudaMalloc(&at, bytes) != cudaSuccess || cudaMemcpy(at, values.data(), bytes, cudaMemcpyHostToDevice) != cudaSuccess) {
            std::puts("no memory on the GPU, or no GPU");
        }
    }
    OnDevice(const OnDevice &) = delete;
    OnDevice &operator=(const OnDevice &) = delete;
    ~OnDevice() { cudaFree(at); }
};

} // namespace

int main()
{
    const int m = 300, n = 200, k = 100;
    const std::vector<float> ones(m * k, 1.0f), twos(k * n, 2.0f);
    std::vector<float> result(m * n);
    const OnDevice a(ones), b(twos), c(result);

    // C = 1 * A * B + 0 * C, all three by rows without gaps, on the default stream.
    cudaError_t error = async_8x8_16x16_launch(m, n, k, 1.0f, a.at, k, b.at, n, 0.0f, c.at, n, nullptr);
    if (error == cudaSuccess) {
        error = cudaMemcpy(result.data(), c.at, result.size() * sizeof(float), cudaMemcpyDeviceToHost);
    }
    const bool is_right = std::all_of(result.begin(), result.end(), [](float x) { return x == 200.0f; });
    std::printf("%s: %s\n", cudaGetErrorName(error), is_right ? "right" : "wrong");
    return error == cudaSuccess && is_right ? 0 : 1;
}
