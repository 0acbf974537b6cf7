/* The multiply-adds that the cores reach with nothing to load: float32 and float64, vectors of 512 bits, with one thread
 * and with as many as there are processors. What `docs/cpu.md` calls the peak.
 *
 *     gcc -O2 -mavx512f -mfma -pthread benchmarks/cpu_peak.c -o cpu_peak && ./cpu_peak
 */
#define _GNU_SOURCE
#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>

enum { SUMS = 24, STEPS = 4000000, ROUNDS = 8, MOST_THREADS = 64 };

static pthread_barrier_t start;
static double best[MOST_THREADS];
static int is_double;

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

/* Independent sums, enough to hide a multiply-add's latency; kept in registers by the constraint. */
#define RUN(vector, fma)                                     \
    do {                                                     \
        vector sums[SUMS] = {0}, factor = {0};               \
        for (int step = 0; step < STEPS; ++step) {           \
            _Pragma("GCC unroll 24")                         \
            for (int i = 0; i < SUMS; ++i) {                 \
                sums[i] = fma(factor, factor, sums[i]);      \
                __asm__ volatile("" : "+v"(sums[i]));        \
            }                                                \
        }                                                    \
    } while (0)

static void *measure(void *argument)
{
    const long thread = (long)argument;
    for (int round = 0; round < ROUNDS; ++round) {
        pthread_barrier_wait(&start);
        const double begin = seconds();
        if (is_double) {
            RUN(__m512d, _mm512_fmadd_pd);
        } else {
            RUN(__m512, _mm512_fmadd_ps);
        }
        const double flops = 2.0 * SUMS * STEPS * (is_double ? 8 : 16) / (seconds() - begin);
        if (round == 0 || flops > best[thread]) {
            best[thread] = flops;
        }
    }
    return NULL;
}

int main(void)
{
    cpu_set_t allowed;
    sched_getaffinity(0, sizeof allowed, &allowed);
    const int all = CPU_COUNT(&allowed) < MOST_THREADS ? CPU_COUNT(&allowed) : MOST_THREADS;
    for (is_double = 0; is_double < 2; ++is_double) {
        for (int threads = 1; threads <= all; threads += all > 1 ? all - 1 : 1) {
            pthread_t ids[MOST_THREADS];
            pthread_barrier_init(&start, NULL, threads);
            for (long i = 0; i < threads; ++i) {
                pthread_create(&ids[i], NULL, measure, (void *)i);
            }
            double sum = 0;
            for (int i = 0; i < threads; ++i) {
                pthread_join(ids[i], NULL);
                sum += best[i];
            }
            printf("%s, %d thread(s): %.1f GFLOP/s\n", is_double ? "float64" : "float32", threads, sum * 1e-9);
        }
    }
    return 0;
}
