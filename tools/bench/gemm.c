/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the ceiling without any of our code in between, so that the fraction of it means something. */
#include "bench/gemm.h"

#include <cblas.h>
#include <omp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

struct share {
    const struct gemm_shape *shapes;
    size_t count;
    unsigned threads;
    float *a, *b, *c; /* own operands, large enough for every shape */
    pthread_barrier_t *start;
    unsigned rounds;
};

static size_t most(const struct share *share, bool a, bool b)
{
    size_t elements = 0;
    for (size_t i = 0; i < share->count; i++) {
        const struct gemm_shape *s = &share->shapes[i];
        size_t rows = s->m / share->threads + 1;
        size_t n = a ? rows * s->k : b ? s->n * s->k : rows * s->n;
        elements = n > elements ? n : elements;
    }
    return elements;
}

static float *filled(size_t elements)
{
    float *data = malloc(elements * sizeof *data);
    for (size_t i = 0; data && i < elements; i++)
        data[i] = (float)(i % 1000) * 1e-3f - 0.5f;
    return data;
}

static void multiply(const struct share *share)
{
    for (size_t i = 0; i < share->count; i++) {
        const struct gemm_shape *s = &share->shapes[i];
        blasint m = (blasint)(s->m / share->threads), n = (blasint)s->n, k = (blasint)s->k;
        for (size_t t = 0; t < s->times; t++)
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1, share->a, k, share->b, k, 0, share->c, n);
    }
}

/* All threads begin each round together: the slowest decides, as in training. */
static void *share_main(void *arg)
{
    struct share *share = arg;
    omp_set_num_threads(1); /* OpenBLAS: one thread per caller */
    for (unsigned r = 0; r < share->rounds; r++) {
        pthread_barrier_wait(share->start);
        multiply(share);
        pthread_barrier_wait(share->start);
    }
    return NULL;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double best_round(pthread_barrier_t *barrier, unsigned rounds)
{
    double best = 0;
    for (unsigned r = 0; r < rounds; r++) {
        pthread_barrier_wait(barrier);
        double start = seconds();
        pthread_barrier_wait(barrier);
        double took = seconds() - start;
        best = best == 0 || took < best ? took : best;
    }
    return best;
}

static bool open_shares(struct share *shares, unsigned threads)
{
    for (unsigned t = 0; t < threads; t++) {
        struct share *s = &shares[t];
        s->a = filled(most(s, true, false));
        s->b = filled(most(s, false, true));
        s->c = filled(most(s, false, false));
        if (!s->a || !s->b || !s->c)
            return false;
    }
    return true;
}

double gemm_rate(const struct gemm_shape *shapes, size_t count, unsigned threads, unsigned rounds)
{
    struct share *shares = calloc(threads, sizeof *shares);
    pthread_t *ids = calloc(threads, sizeof *ids);
    pthread_barrier_t barrier;
    double flops = 0, best = 0;
    for (size_t i = 0; i < count; i++)
        flops += 2.0 * (double)(shapes[i].m / threads * threads) * (double)shapes[i].n * (double)shapes[i].k *
                 (double)shapes[i].times;
    for (unsigned t = 0; shares && t < threads; t++)
        shares[t] = (struct share){shapes, count, threads, NULL, NULL, NULL, &barrier, rounds};
    pthread_barrier_init(&barrier, NULL, threads + 1);
    if (shares && ids && open_shares(shares, threads)) {
        for (unsigned t = 0; t < threads; t++)
            if (pthread_create(&ids[t], NULL, share_main, &shares[t]))
                abort(); /* the others wait at the barrier: a benchmark has nothing to save */
        best = best_round(&barrier, rounds);
        for (unsigned t = 0; t < threads; t++)
            pthread_join(ids[t], NULL);
    }
    for (unsigned t = 0; shares && t < threads; t++) {
        free(shares[t].a);
        free(shares[t].b);
        free(shares[t].c);
    }
    pthread_barrier_destroy(&barrier);
    free(shares);
    free(ids);
    return best > 0 ? flops / best : 0;
}
