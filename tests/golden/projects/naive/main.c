// Multiplies on an OpenCL device by naive.h, checks the result, and measures it.
//
//     naive [M N K [alpha beta]]
//
// It runs on the first GPU that can, or else on any device that can; DEVICE=part-of-a-name chooses.
// It returns 0 where the result is right, 1 where it is wrong, and 2 where nothing was computed.

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "naive.h"

// --- The elements --------------------------------------------------------------------------------

static double float32_at(const void *array, size_t i)
{
    return (double)((const float *)array)[i];
}

static void set_float32(void *array, size_t i, double value)
{
    ((float *)array)[i] = (float)value;
}
enum { PARTS = 1, A_BYTES = 4, B_BYTES = 4, C_BYTES = 4 };

// --- The product ---------------------------------------------------------------------------------

// Sizes, factors (real and imaginary part), and how far lines and a batch's matrices are apart.
struct problem {
    int m, n, k, batch;
    double alpha[2], beta[2];
    int lda, ldb, ldc;
    long long stride_a, stride_b, stride_c;
};

// Numbers from -1 to 1, or small integers, the same in each run.
static double draw(int is_integer)
{
    static unsigned long long state = 88172645463325252ull;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    const double number = (double)(state >> 11) / 4503599627370496.0 - 1.0;
    return is_integer ? floor((number + 1.0) * 3.5) - 3.0 : number;
}

// Numbers for a whole array, of a type that may have whole ones alone.
static void fill(void *array, size_t elements, void (*set)(void *, size_t, double), int is_whole,
                 int is_integer)
{
    for (size_t i = 0; i < elements * PARTS; ++i) {
        const double number = draw(is_integer);
        set(array, i, is_whole && !is_integer ? floor(number * 100.0) : number);
    }
}

// By how much an element may be off, as a part of |alpha| |A| |B| + |beta| |C|: gamma of the
// roundings on the way (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1).
static double rounding_bound(int k)
{
    const double roundings = (k + 3) * 5.960464477539063e-08;
    return 1 * roundings / (1.0 - roundings);
}

// What is known of a result.
struct verdict {
    long long wrong, checked;
    double largest; // error, as a part of what it may be
    int rows;
    char first[160];
};

// Multiplies in double and compares with what the device has made of `before`. Of large products
// only some rows are computed, all over C.
static struct verdict compare(const struct problem *p, const void *a, const void *b,
                              const void *before, const void *result, int is_exact)
{
    struct verdict verdict = {0, 0, 0.0, 0, {0}};
    const double work = (double)p->n * p->k * p->batch;
    const int fits = (int)fmin(fmax(2e9 / fmax(work, 1.0), 16.0), 1e9);
    verdict.rows = p->m < fits ? p->m : fits;
    const size_t row = (size_t)p->n * PARTS;
    double *const b_values = (double *)malloc(sizeof(double) * row * (size_t)p->k);
    double *const sums = (double *)malloc(sizeof(double) * row);
    double *const sizes = (double *)malloc(sizeof(double) * (size_t)p->n);
    if (b_values == NULL || sums == NULL || sizes == NULL) {
        fprintf(stderr, "no memory to check the result\n");
        exit(2);
    }
    const double bound = rounding_bound(p->k);
    const double alpha_size = hypot(p->alpha[0], p->alpha[1]);
    const double beta_size = hypot(p->beta[0], p->beta[1]);
    for (int z = 0; z < p->batch; ++z) {
        for (int x = 0; x < p->k; ++x) {
            for (int j = 0; j < p->n; ++j) {
                const size_t at = (size_t)(z * p->stride_b + (long long)x * p->ldb + j);
                double *const value = b_values + (size_t)x * row + (size_t)j * PARTS;
                value[0] = float32_at(b, at);
            }
        }
        for (int r = 0; r < verdict.rows; ++r) {
            const int i = (int)((long long)r * p->m / verdict.rows);
            memset(sums, 0, sizeof(double) * row);
            memset(sizes, 0, sizeof(double) * (size_t)p->n);
            for (int x = 0; x < p->k; ++x) {
                const size_t at = (size_t)(z * p->stride_a + (long long)i * p->lda + x);
                const double *const b_row = b_values + (size_t)x * row;
                const double value = float32_at(a, at);
                for (int j = 0; j < p->n; ++j) {
                    sums[j] += value * b_row[j];
                    sizes[j] += fabs(value * b_row[j]);
                }
            }
            for (int j = 0; j < p->n; ++j) {
                const size_t at = (size_t)(z * p->stride_c + (long long)i * p->ldc + j);
                double expected[2] = {0.0, 0.0}, got[2] = {0.0, 0.0}, c_size = 0.0;
                expected[0] = p->alpha[0] * sums[j];
                if (beta_size != 0.0) {
                    const double old = float32_at(before, at);
                    expected[0] += p->beta[0] * old;
                    c_size = fabs(old);
                }
                got[0] = float32_at(result, at);
                const double size = alpha_size * sizes[j] + beta_size * c_size;
                double allowed = bound * size + 2.350988701644575e-38 * (p->k + 3);
                if (is_exact) {
                    unsigned char rounded[C_BYTES];
                    for (int part = 0; part < PARTS; ++part) {
                        set_float32(rounded, (size_t)part, expected[part]);
                        expected[part] = float32_at(rounded, (size_t)part);
                    }
                    allowed = 0.0;
                }
                const double off = hypot(got[0] - expected[0], got[1] - expected[1]);
                if (!(off <= allowed) && verdict.wrong++ == 0) {
                    snprintf(verdict.first, sizeof verdict.first, "C[%d][%d] is %.9g, not %.9g", i,
                             j, got[0], expected[0]);
                }
                if (allowed > 0.0 && off / allowed > verdict.largest) {
                    verdict.largest = off / allowed;
                }
                ++verdict.checked;
            }
        }
    }
    free(b_values);
    free(sums);
    free(sizes);
    return verdict;
}

// Says what was found; whether all elements are right.
static int report(const struct problem *p, const struct verdict *verdict, int is_exact)
{
    printf("%-16s ", is_exact ? "small integers" : "random numbers");
    if (verdict->wrong != 0) {
        printf("WRONG: %lld of %lld elements, the first: %s", verdict->wrong, verdict->checked,
               verdict->first);
    } else if (is_exact) {
        printf("right, bit for bit");
    } else {
        printf("right, the largest error %.3f of what rounding may leave", verdict->largest);
    }
    if (verdict->rows < p->m) {
        printf(" (%d of %d rows checked)", verdict->rows, p->m);
    }
    printf("\n");
    return verdict->wrong == 0;
}

// --- The command line ----------------------------------------------------------------------------

static void usage(const char *why)
{
    fprintf(stderr, "%s\nusage: naive [M N K [alpha beta]]\n", why);
    exit(2);
}

static int whole_number(const char *text)
{
    char *end = NULL;
    const long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || value < 1 || value > 2147482623) {
        usage("sizes are whole numbers from 1 to 2147482623");
    }
    return (int)value;
}

static void factor(const char *text, double value[2])
{
    char *end = NULL;
    value[0] = strtod(text, &end);
    if (end == text || *end != '\0') {
        usage("alpha and beta are numbers, such as 1.5");
    }
}

// The least multiple of `unit` that is not below `value`.
static int rounded_up(int value, int unit)
{
    return (value + unit - 1) / unit * unit;
}

static struct problem asked_for(int argc, char **argv)
{
    struct problem p = {509, 258, 131, 1, {1.0, 0.0}, {0.0, 0.0}, 0, 0, 0, 0, 0, 0};
    if (argc != 1 && argc != 4 && argc != 6) {
        usage("wrong number of arguments");
    }
    if (argc > 1) {
        p.m = whole_number(argv[1]);
        p.n = whole_number(argv[2]);
        p.k = whole_number(argv[3]);
    }
    if (argc > 4) {
        factor(argv[4], p.alpha);
        factor(argv[5], p.beta);
    }
    p.lda = rounded_up(p.k, 1);
    p.ldb = rounded_up(p.n, 1);
    p.ldc = rounded_up(p.n, 1);
    p.stride_a = (long long)p.m * p.lda;
    p.stride_b = (long long)p.k * p.ldb;
    p.stride_c = (long long)p.m * p.ldc;
    return p;
}

static int by_size(const void *first, const void *second)
{
    const double a = *(const double *)first, b = *(const double *)second;
    return (a > b) - (a < b);
}

// The median of some times, which end up in order.
static double median(double *times, int count)
{
    qsort(times, (size_t)count, sizeof times[0], by_size);
    return count % 2 != 0 ? times[count / 2] : (times[count / 2 - 1] + times[count / 2]) / 2.0;
}

// --- The device ----------------------------------------------------------------------------------

struct device {
    cl_device_id id;
    cl_context context;
    cl_command_queue queue;
    struct naive built;
};

static void expect(cl_int error, const char *what)
{
    if (error != CL_SUCCESS) {
        fprintf(stderr, "%s: %s\n", what, naive_error_name(error));
        exit(2);
    }
}

// Whether the kernel can be built for a device; why not goes to standard error.
static int opens(struct device *device, cl_device_id id, const char *name)
{
    char log[8192] = "";
    cl_int error = CL_SUCCESS;
    device->id = id;
    device->context = clCreateContext(NULL, 1, &id, NULL, NULL, &error);
    if (error != CL_SUCCESS) {
        fprintf(stderr, "%s: %s\n", name, naive_error_name(error));
        return 0;
    }
    error = naive_build(&device->built, device->context, id, log, sizeof log);
    if (error == CL_SUCCESS) {
        device->queue = clCreateCommandQueue(device->context, id, 0, &error);
        expect(error, "clCreateCommandQueue");
        return 1;
    }
    fprintf(stderr, "%s: %s: %s\n", name, naive_error_name(error), log);
    clReleaseContext(device->context);
    return 0;
}

// The first device that can do it, GPUs before others.
static struct device first_device(void)
{
    const char *const wanted = getenv("DEVICE");
    struct device device;
    cl_platform_id platforms[16];
    cl_uint platform_count = 0;
    if (clGetPlatformIDs(16, platforms, &platform_count) != CL_SUCCESS) {
        platform_count = 0;
    }
    for (int gpus = 1; gpus >= 0; --gpus) {
        for (cl_uint i = 0; i < platform_count && i < 16; ++i) {
            cl_device_id ids[16];
            cl_uint count = 0;
            if (clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, 16, ids, &count) != CL_SUCCESS) {
                continue;
            }
            for (cl_uint j = 0; j < count && j < 16; ++j) {
                char name[256] = "";
                cl_device_type type = 0;
                clGetDeviceInfo(ids[j], CL_DEVICE_NAME, sizeof name, name, NULL);
                clGetDeviceInfo(ids[j], CL_DEVICE_TYPE, sizeof type, &type, NULL);
                const int is_gpu = (type & CL_DEVICE_TYPE_GPU) != 0;
                const int is_meant = wanted == NULL || strstr(name, wanted) != NULL;
                if (is_gpu == gpus && is_meant && opens(&device, ids[j], name)) {
                    printf("%s\n", name);
                    return device;
                }
            }
        }
    }
    fprintf(stderr, "no OpenCL device%s%s that runs naive\n",
            wanted == NULL ? "" : " with a name like ", wanted == NULL ? "" : wanted);
    exit(2);
}

// --- A product -----------------------------------------------------------------------------------

// A matrix, or those of a batch: on the host, and on the device.
struct matrix {
    size_t elements, bytes;
    void *host;
    cl_mem buffer;
};

static struct matrix new_matrix(const struct device *device, long long elements, size_t size)
{
    struct matrix matrix = {(size_t)elements, (size_t)elements * size, NULL, NULL};
    cl_int error = CL_SUCCESS;
    matrix.host = malloc(matrix.bytes);
    if (matrix.host == NULL) {
        expect(CL_OUT_OF_HOST_MEMORY, "malloc");
    }
    matrix.buffer = clCreateBuffer(device->context, CL_MEM_READ_WRITE, matrix.bytes, NULL, &error);
    expect(error, "clCreateBuffer");
    return matrix;
}

static void to_device(const struct device *device, const struct matrix *matrix)
{
    expect(clEnqueueWriteBuffer(device->queue, matrix->buffer, CL_TRUE, 0, matrix->bytes,
                                matrix->host, 0, NULL, NULL),
           "clEnqueueWriteBuffer");
}

// All that a call takes.
struct operands {
    struct matrix a, b, c;
};

static void launch(const struct device *device, const struct problem *p, const struct operands *x)
{
    const cl_float alpha = (cl_float)p->alpha[0];
    const cl_float beta = (cl_float)p->beta[0];
    const cl_int error =
        naive_launch(&device->built, device->queue, p->m, p->n, p->k, alpha, x->a.buffer, p->lda,
                     x->b.buffer, p->ldb, beta, x->c.buffer, p->ldc, 0, NULL, NULL);
    expect(error, "naive_launch");
}

// Whether a product of random numbers, or of small integers, comes out right.
static int is_right(const struct device *device, const struct problem *given, struct operands *x,
                    int is_integer)
{
    struct problem p = *given;
    if (is_integer) {
        p.alpha[0] = 2.0;
        p.alpha[1] = 0.0;
        p.beta[0] = -1.0;
        p.beta[1] = 0.0;
    }
    fill(x->a.host, x->a.elements, set_float32, 0, is_integer);
    fill(x->b.host, x->b.elements, set_float32, 0, is_integer);
    fill(x->c.host, x->c.elements, set_float32, 0, is_integer);
    if (p.beta[0] == 0.0 && p.beta[1] == 0.0) {
        memset(x->c.host, 0xff, x->c.bytes); // NaN where it is read all the same
    }
    to_device(device, &x->a);
    to_device(device, &x->b);
    to_device(device, &x->c);
    launch(device, &p, x);
    void *const result = malloc(x->c.bytes);
    if (result == NULL) {
        expect(CL_OUT_OF_HOST_MEMORY, "malloc");
    }
    expect(clEnqueueReadBuffer(device->queue, x->c.buffer, CL_TRUE, 0, x->c.bytes, result, 0, NULL,
                               NULL),
           "clEnqueueReadBuffer");
    const struct verdict verdict = compare(&p, x->a.host, x->b.host, x->c.host, result, is_integer);
    free(result);
    return report(&p, &verdict, is_integer);
}

static double now(void)
{
    struct timespec time;
    timespec_get(&time, TIME_UTC);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

// The median of up to 100 times, half a second in all; each is that of the launch and of the wait.
static void measure(const struct device *device, const struct problem *p, const struct operands *x)
{
    double seconds[100];
    int count = 0;
    for (int i = 0; i < 3; ++i) {
        launch(device, p, x);
    }
    expect(clFinish(device->queue), "clFinish");
    for (const double begin = now(); count < 5 || (count < 100 && now() < begin + 0.5); ++count) {
        const double start = now();
        launch(device, p, x);
        expect(clFinish(device->queue), "clFinish");
        seconds[count] = now() - start;
    }
    const double middle = median(seconds, count);
    const double work = 2.0 * p->m * p->n * p->k * p->batch;
    printf("%-16s %.3f ms, the median of %d: %.1f GFLOP/s\n", "time", middle * 1e3, count,
           work / middle * 1e-9);
}

int main(int argc, char **argv)
{
    const struct problem p = asked_for(argc, argv);
    struct device device = first_device();
    puts("C = alpha * A * B + beta * C; float32");
    printf("%-16s %d x %d x %d\n", "m x n x k", p.m, p.n, p.k);

    struct operands x;
    x.a = new_matrix(&device, p.stride_a * p.batch, A_BYTES);
    x.b = new_matrix(&device, p.stride_b * p.batch, B_BYTES);
    x.c = new_matrix(&device, p.stride_c * p.batch, C_BYTES);

    int is_good = is_right(&device, &p, &x, 1);
    is_good = is_right(&device, &p, &x, 0) && is_good;
    measure(&device, &p, &x);

    const cl_mem buffers[] = {x.a.buffer, x.b.buffer, x.c.buffer};
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; ++i) {
        clReleaseMemObject(buffers[i]);
    }
    free(x.a.host);
    free(x.b.host);
    free(x.c.host);
    naive_release(&device.built);
    clReleaseCommandQueue(device.queue);
    clReleaseContext(device.context);
    return is_good ? 0 : 1;
}
