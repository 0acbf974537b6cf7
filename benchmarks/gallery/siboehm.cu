// The kernels of https://github.com/siboehm/SGEMM_CUDA that docs/gallery.md names, with the settings of its
// src/runner.cu. Compile with -I CLONE/src.
#include <cstdio>

#include "kernels.cuh"

// Queues a kernel by its number on the default stream; sizes that are multiples of 128.
extern "C" int peer(int number, int m, int n, int k, float *a, float *b, float *c)
{
    const dim3 tiles(n / 128, m / 128);
    if (number == 1) {
        sgemm_naive<<<dim3(m / 32, n / 32), dim3(32, 32)>>>(m, n, k, 1.0f, a, b, 0.0f, c);
    } else if (number == 2) {
        sgemm_global_mem_coalesce<32><<<dim3(m / 32, n / 32), 32 * 32>>>(m, n, k, 1.0f, a, b, 0.0f, c);
    } else if (number == 6) {
        sgemmVectorize<128, 128, 8, 8, 8><<<tiles, 256>>>(m, n, k, 1.0f, a, b, 0.0f, c);
    } else if (number == 10) {
        sgemmWarptiling<128, 128, 16, 64, 64, 4, 8, 4, 128><<<tiles, 128>>>(m, n, k, 1.0f, a, b, 0.0f, c);
    } else if (number == 12) {
        runSgemmDoubleBuffering2<128, 128, 16, 64, 64, 4, 8, 4, 128>
            <<<tiles, 128>>>(m, n, k, 1.0f, a, b, 0.0f, c);
    } else {
        return cudaErrorInvalidValue;
    }
    return cudaGetLastError();
}
