/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the ceiling without any of our code in between, so that the fraction of it means
 * something. Each product of a round has operands of its own: a model never finds the same ones in
 * its cache again.
 */
#include "bench/gemm.h"
#include "base/now.h"

#include <cblas.h>
#include <hoistway/kernels.h>
#include <pthread.h>
#include <stdlib.h>

struct share {
    struct gemm_timer *timer;
    pthread_t thread;
    float *memory; /* the operands of all GEMMs of a round, one after another */
};

struct gemm_timer {
    const struct gemm_shape *shapes;
    size_t count;
    unsigned threads;
    size_t elements; /* of a share's memory */
    double flops;    /* of a round, all threads */
    bool stop;
    __typeof__(cblas_sgemm) *sgemm; /* of the OpenBLAS that the host device uses */
    void (*omp_set_num_threads)(int threads);
    pthread_barrier_t
        barrier; /* before and after each round: the slowest decides, as in training */
    struct share *shares;
};

static void multiply(const struct gemm_timer *timer, const struct gemm_shape *s, size_t rows,
                     float **memory)
{
    blasint m = (blasint)rows, n = (blasint)s->n, k = (blasint)s->k;
    float *a = *memory, *b = a + rows * s->k, *c = b + s->k * s->n;
    *memory = c + rows * s->n;
    timer->sgemm(CblasRowMajor, s->a_transposed ? CblasTrans : CblasNoTrans,
                 s->b_transposed ? CblasTrans : CblasNoTrans, m, n, k, 1, a,
                 s->a_transposed ? m : k, b, s->b_transposed ? k : n, s->accumulate ? 1 : 0, c, n);
}

static void *share_main(void *arg)
{
    struct share *share = arg;
    struct gemm_timer *timer = share->timer;
    if (timer->omp_set_num_threads)
        timer->omp_set_num_threads(1); /* OpenBLAS: one thread per caller */
    for (;;) {
        pthread_barrier_wait(&timer->barrier);
        if (timer->stop)
            return NULL;
        float *memory = share->memory;
        for (size_t i = 0; i < timer->count; i++)
            for (size_t t = 0; t < timer->shapes[i].times; t++)
                multiply(timer, &timer->shapes[i], timer->shapes[i].m / timer->threads, &memory);
        pthread_barrier_wait(&timer->barrier);
    }
}

double gemm_timer_round(struct gemm_timer *timer)
{
    pthread_barrier_wait(&timer->barrier);
    double start = now_s();
    pthread_barrier_wait(&timer->barrier);
    return timer->flops / (now_s() - start);
}

static void count_round(struct gemm_timer *timer)
{
    for (size_t i = 0; i < timer->count; i++) {
        const struct gemm_shape *s = &timer->shapes[i];
        size_t rows = s->m / timer->threads;
        timer->elements += s->times * (rows * s->k + s->k * s->n + rows * s->n);
        timer->flops += 2.0 * (double)timer->threads * (double)rows * (double)s->n * (double)s->k *
                        (double)s->times;
    }
}

static bool start_share(struct gemm_timer *timer, struct share *share)
{
    share->timer = timer;
    share->memory = malloc(timer->elements * sizeof *share->memory);
    for (size_t i = 0; share->memory && i < timer->elements; i++)
        share->memory[i] = (float)(i % 1000) * 1e-3f - 0.5f;
    return share->memory && pthread_create(&share->thread, NULL, share_main, share) == 0;
}

struct gemm_timer *gemm_timer_create(const struct gemm_shape *shapes, size_t count,
                                     unsigned threads)
{
    struct gemm_timer *timer = calloc(1, sizeof *timer);
    if (!timer)
        return NULL;
    *timer = (struct gemm_timer){.shapes = shapes, .count = count, .threads = threads};
    *(void **)&timer->sgemm = hst_dev_host_blas("cblas_sgemm");
    *(void **)&timer->omp_set_num_threads = hst_dev_host_blas("omp_set_num_threads");
    if (!timer->sgemm) {
        free(timer);
        return NULL;
    }
    timer->shares = calloc(threads, sizeof *timer->shares);
    count_round(timer);
    pthread_barrier_init(&timer->barrier, NULL, threads + 1);
    for (unsigned t = 0; timer->shares && t < threads; t++)
        if (!start_share(timer, &timer->shares[t]))
            return NULL; /* those that were started wait for a round that never comes; the program
                            ends */
    gemm_timer_round(timer); /* warms up */
    return timer;
}

void gemm_timer_destroy(struct gemm_timer *timer)
{
    timer->stop = true;
    pthread_barrier_wait(&timer->barrier);
    for (unsigned t = 0; t < timer->threads; t++) {
        pthread_join(timer->shares[t].thread, NULL);
        free(timer->shares[t].memory);
    }
    pthread_barrier_destroy(&timer->barrier);
    free(timer->shares);
    free(timer);
}
