/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Probes, and what they are compared with; prints rates per second as JSON.
 *
 *   probe_bench probe DIRECTORY       hst_probe of memory, updates and the drive of DIRECTORY
 *   probe_bench GEMMs M N K ...    hst_probe of GEMMs, bf16, B transposed, on one thread
 *   probe_bench memory MIB ROUNDS     the long way: arrays of so many MiB together, whole passes
 *
 * The long way shares no code with the probe but cpu_adam: threads of its own that each work on a
 * fixed part, no slices, arrays that no cache holds.
 */
#include <hoistway/cpu_adam.h>
#include <hoistway/machine.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS_MOST = 64, ROUNDS_MOST = 99 };

static int die(const char *why)
{
    fprintf(stderr, "probe_bench: %s\n", why);
    return 2;
}

static void print_figure(const char *name, const struct hst_figure *f, const char *comma)
{
    printf("%s\"%s\": {\"value\": %.6g, \"least\": %.6g, \"most\": %.6g, \"how\": \"%s\"}", comma,
           name, f->value, f->least, f->most, f->how);
}

static void print_rates(const struct hst_rates *r)
{
    printf("{\"seconds\": %.4f", r->seconds);
    for (int i = 0; i < HST_RATE_COUNT; i++)
        if (r->figures[i].how[0])
            print_figure(hst_rate_name((enum hst_rate)i), &r->figures[i], ", ");
    for (uint32_t i = 0; i < r->gemm_count; i++) {
        char name[32];
        snprintf(name, sizeof name, "product %u", i);
        print_figure(name, &r->gemms[i], ", ");
    }
    printf("}\n");
}

static int probe_machine(const char *directory)
{
    struct hst_rates r;
    const struct hst_probe_drive drive = {.directory = directory};
    const struct hst_probe probe = {.size = sizeof probe,
                                    .parts = (unsigned)HST_PROBE_MEMORY | HST_PROBE_UPDATE |
                                             HST_PROBE_DRIVES,
                                    .drives = &drive,
                                    .drive_count = 1};
    if (hst_probe(&probe, &r))
        return die("the probe was refused");
    print_rates(&r);
    return 0;
}

static int probe_gemms(int count, char **numbers)
{
    struct hst_rates r;
    struct hst_gemm gemms[HST_GEMMS_MAX];
    struct hst_dev *dev;
    const struct hst_dev_config config = {.size = sizeof config};
    struct hst_probe probe = {.size = sizeof probe, .parts = HST_PROBE_COMPUTE, .gemms = gemms};
    for (int i = 0; i + 2 < count && probe.gemm_count < HST_GEMMS_MAX; i += 3)
        gemms[probe.gemm_count++] = (struct hst_gemm){.m = strtoull(numbers[i], NULL, 10),
                                                      .n = strtoull(numbers[i + 1], NULL, 10),
                                                      .k = strtoull(numbers[i + 2], NULL, 10),
                                                      .dtype = HST_BF16,
                                                      .b_transposed = true};
    if (hst_dev_host_open(&config, &dev))
        return die("no host device");
    probe.dev = dev;
    int rc = hst_probe(&probe, &r);
    hst_dev_close(&dev);
    if (rc)
        return die("the probe was refused");
    print_rates(&r);
    return 0;
}

/* ---- the long way ---- */

struct share {
    pthread_t thread;
    struct bench *bench;
    size_t index;
};

struct bench {
    const struct hst_cpu_adam_ops *adam;
    struct hst_adam_coef coef;
    char *memory;
    size_t bytes, threads, n; /* n: elements of each array, of each thread */
    void (*work)(const struct bench *b, size_t index);
    pthread_barrier_t barrier;
    bool stop;
    struct share shares[THREADS_MOST];
};

/* A thread's part of array `array`, the arrays being `width` bytes per element before it. */
static void *part(const struct bench *b, size_t index, size_t width, size_t array, size_t own)
{
    size_t at = b->n * b->threads * width + b->n * index * own;
    return b->memory + (at + 63) / 64 * 64 + array * 1088;
}

static void null_adamw(const struct bench *b, size_t t)
{
    float *restrict p = part(b, t, 0, 0, 4), *restrict m = part(b, t, 4, 1, 4),
                    *restrict v = part(b, t, 8, 2, 4);
    const float *restrict g = part(b, t, 12, 3, 4);
    for (size_t i = 0; i < b->n; i++) {
        m[i] = m[i] * 0.5f + g[i];
        v[i] = v[i] * 0.5f + g[i];
        p[i] = p[i] * 0.5f + g[i];
    }
}

static void copy(const struct bench *b, size_t t)
{
    memcpy(part(b, t, 0, 0, 4), part(b, t, 8, 2, 4), b->n * 8); /* half of the memory */
}

static void update(const struct bench *b, enum hst_cpu_type type,
                   const struct hst_update_arrays *arrays)
{
    const struct hst_update_kind kind = {.weights = type, .grads = type};
    if (hst_update_run(hst_update_find(b->adam, kind), &b->coef, arrays, b->n) < 0)
        abort(); /* nothing was measured */
}

static void update_fp32(const struct bench *b, size_t t)
{
    const struct hst_update_arrays arrays = {.weights = part(b, t, 0, 0, 4),
                                             .m = part(b, t, 4, 1, 4),
                                             .v = part(b, t, 8, 2, 4),
                                             .grads = part(b, t, 12, 3, 4)};
    update(b, HST_CPU_F32, &arrays);
}

static void update_bf16(const struct bench *b, size_t t)
{
    const struct hst_update_arrays arrays = {.weights = part(b, t, 0, 0, 2),
                                             .master = part(b, t, 2, 1, 2),
                                             .m = part(b, t, 4, 2, 4),
                                             .v = part(b, t, 8, 3, 4),
                                             .grads = part(b, t, 12, 4, 2)};
    update(b, HST_CPU_BF16, &arrays);
}

static double partials[THREADS_MOST][1 << 18];

static void norm_fp32(const struct bench *b, size_t t)
{
    b->adam->norm2[HST_CPU_F32](part(b, t, 0, 0, 4), b->n, partials[t]);
}

static void norm_bf16(const struct bench *b, size_t t)
{
    b->adam->norm2[HST_CPU_BF16](part(b, t, 0, 0, 2), b->n, partials[t]);
}

static void *share_main(void *arg)
{
    struct share *share = arg;
    struct bench *b = share->bench;
    for (;;) {
        pthread_barrier_wait(&b->barrier);
        if (b->stop)
            return NULL;
        b->work(b, share->index);
        pthread_barrier_wait(&b->barrier);
    }
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double run_round(struct bench *b)
{
    double start = seconds();
    pthread_barrier_wait(&b->barrier);
    pthread_barrier_wait(&b->barrier);
    return seconds() - start;
}

static const struct {
    const char *name;
    void (*work)(const struct bench *b, size_t index);
    double amount; /* of an element */
} cases[] = {{"dram", null_adamw, 28},        {"dram-copy", copy, 16},
             {"norm-fp32", norm_fp32, 1},     {"norm-bf16", norm_bf16, 1},
             {"update-fp32", update_fp32, 1}, {"update-bf16", update_bf16, 1}};

static void run_case(struct bench *b, size_t index, unsigned rounds)
{
    double rates[ROUNDS_MOST];
    b->work = cases[index].work;
    memset(b->memory, 0x3c, b->bytes); /* the same positive number in every width */
    run_round(b);
    for (unsigned i = 0; i < rounds; i++)
        rates[i] = cases[index].amount * (double)b->n * (double)b->threads / run_round(b);
    qsort(rates, rounds, sizeof *rates, by_value);
    const struct hst_figure f = {rates[rounds / 2], rates[0], rates[rounds - 1], rounds, "long"};
    print_figure(cases[index].name, &f, index ? ", " : "{");
}

static int run_long(size_t mib, unsigned rounds)
{
    static const struct hst_adam_hyper hyper = {1e-4, 0.9, 0.999, 1e-8, 0.01};
    static struct bench b;
    struct hst_topology machine;
    void *memory;
    if (hst_topology_read(&machine) || rounds == 0 || rounds > ROUNDS_MOST)
        return die("no topology, or a number of rounds that is none");
    b.threads = machine.cores < THREADS_MOST ? machine.cores : THREADS_MOST;
    b.adam = hst_cpu_adam_ops(HST_CPU_ISA_AUTO);
    b.n = (mib << 20) / 16 / b.threads / HST_NORM_BLOCK * HST_NORM_BLOCK;
    b.bytes = b.n * b.threads * 16 + 8192;
    if (b.n / HST_NORM_BLOCK > sizeof partials[0] / sizeof partials[0][0] ||
        hst_adam_coef_init(&hyper, 1, 1, &b.coef) || hst_aio_buffer_alloc(b.bytes, &memory))
        return die("no memory");
    b.memory = memory;
    pthread_barrier_init(&b.barrier, NULL, (unsigned)b.threads + 1);
    for (size_t t = 0; t < b.threads; t++) {
        b.shares[t] = (struct share){.bench = &b, .index = t};
        if (pthread_create(&b.shares[t].thread, NULL, share_main, &b.shares[t]))
            return die("no thread");
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        run_case(&b, i, rounds);
    printf("}\n");
    b.stop = true;
    pthread_barrier_wait(&b.barrier);
    for (size_t t = 0; t < b.threads; t++)
        pthread_join(b.shares[t].thread, NULL);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "probe") == 0)
        return probe_machine(argv[2]);
    if (argc > 4 && strcmp(argv[1], "products") == 0)
        return probe_gemms(argc - 2, argv + 2);
    if (argc == 4 && strcmp(argv[1], "memory") == 0)
        return run_long(strtoull(argv[2], NULL, 10), (unsigned)strtoul(argv[3], NULL, 10));
    fprintf(stderr, "usage: see the head of %s\n", __FILE__);
    return 2;
}
