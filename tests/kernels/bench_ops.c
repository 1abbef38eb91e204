/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one block of a Llama costs on the host, operation by operation: forward, recompute, backward
 * of one grain. Prints each operation's least and median time, how often the block runs it, and
 * from the least its rate and share; at the end, from the least and from the medians, the counted
 * rate (6·N·tokens over the sum) in per cent of a large product's rate and of the block's own
 * products, all measured in this run.
 *
 *   bench_ops [workers] [rounds]
 */
#include <hoistway/kernels.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    TOKENS = 2048,
    SEQ = 256,
    HIDDEN = 512,
    INNER = 1376,
    HEADS = 8,
    HEAD_DIM = 64,
    CUBE = 2048,
    LONG = 4096, /* a row of documents, of LONG_DOCUMENT tokens each */
    LONG_DOCUMENT = 512,
    LONG_HEADS = 2,
};
enum { LARGEST = CUBE * CUBE, ROUNDS_MAX = 1001 };

/* ---- workers
 * -------------------------------------------------------------------------------------------- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t change;
    void (*body)(void *arg, size_t index, unsigned worker);
    void *arg;
    size_t count, next, left;
} pool = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 0, 0, 0};

/* Takes pieces until none is left; the lock is held before and after. */
static void take_pieces(unsigned worker)
{
    while (pool.next < pool.count) {
        size_t index = pool.next++;
        pthread_mutex_unlock(&pool.lock);
        pool.body(pool.arg, index, worker);
        pthread_mutex_lock(&pool.lock);
        if (--pool.left == 0)
            pthread_cond_broadcast(&pool.change);
    }
}

static void *worker_main(void *arg)
{
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        take_pieces((unsigned)(uintptr_t)arg);
        pthread_cond_wait(&pool.change, &pool.lock);
    }
    return NULL;
}

static void run_pieces(void *context, size_t count, void (*body)(void *, size_t, unsigned),
                       void *arg)
{
    (void)context;
    pthread_mutex_lock(&pool.lock);
    pool.body = body;
    pool.arg = arg;
    pool.next = 0;
    pool.count = pool.left = count;
    pthread_cond_broadcast(&pool.change);
    take_pieces(0);
    while (pool.left)
        pthread_cond_wait(&pool.change, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
}

/* ---- what is measured
 * ----------------------------------------------------------------------------------- */

static struct hst_dev *dev;
static struct hst_stream *stream;
static float *in[4], *out[4], *rows; /* LARGEST elements each */
static uint32_t *ids, *begins;
static struct hst_work work;

static void product(size_t m, size_t n, size_t k, bool a_transposed, bool b_transposed,
                    bool accumulate)
{
    hst_op_matmul(stream, &(struct hst_matmul){.m = m,
                                               .n = n,
                                               .k = k,
                                               .a = {in[0], a_transposed ? m : k, HST_F32},
                                               .b = {in[1], b_transposed ? k : n, HST_F32},
                                               .c = {out[0], n, HST_F32},
                                               .a_transposed = a_transposed,
                                               .b_transposed = b_transposed,
                                               .accumulate = accumulate,
                                               .work = work});
}

static void cube(void)
{
    product(CUBE, CUBE, CUBE, false, true, false);
}
static void forward_square(void)
{
    product(TOKENS, HIDDEN, HIDDEN, false, true, false);
}
static void forward_up(void)
{
    product(TOKENS, INNER, HIDDEN, false, true, false);
}
static void forward_down(void)
{
    product(TOKENS, HIDDEN, INNER, false, true, false);
}
static void dx_square(void)
{
    product(TOKENS, HIDDEN, HIDDEN, false, false, false);
}
static void dx_up(void)
{
    product(TOKENS, HIDDEN, INNER, false, false, false);
}
static void dx_down(void)
{
    product(TOKENS, INNER, HIDDEN, false, false, false);
}
static void dw_square(void)
{
    product(HIDDEN, HIDDEN, TOKENS, true, false, true);
}
static void dw_up(void)
{
    product(INNER, HIDDEN, TOKENS, true, false, true);
}
static void dw_down(void)
{
    product(HIDDEN, INNER, TOKENS, true, false, true);
}

static void rmsnorm(void)
{
    hst_op_rmsnorm(stream, &(struct hst_rmsnorm){TOKENS, HIDDEN, HST_F32, 1e-5f, in[0], in[1],
                                                 out[0], rows, NULL, NULL});
}

static void rmsnorm_backward(void)
{
    hst_op_rmsnorm_backward(stream, &(struct hst_rmsnorm_backward){TOKENS, HIDDEN, HST_F32, in[0],
                                                                   in[1], in[2], rows, out[0],
                                                                   out[1], true, work});
}

static void rope(void)
{
    hst_op_rope(stream, &(struct hst_rope){TOKENS / SEQ, SEQ, HEADS, HEAD_DIM, HST_F32, out[0],
                                           in[1], in[2], false, NULL});
}

static struct hst_attention attention_args(void)
{
    return (struct hst_attention){TOKENS / SEQ, SEQ,    HEADS, HEADS, HEAD_DIM,
                                  HST_F32,      0.125f, in[0], in[1], in[2],
                                  out[0],       rows,   work,  NULL,  0};
}

static void attention(void)
{
    struct hst_attention args = attention_args();
    hst_op_attention(stream, &args);
}

/* A row packed with documents, and the same row as one. */
static void long_attention(const uint32_t *first)
{
    struct hst_attention args = attention_args();
    args.batch = 1;
    args.seq = LONG;
    args.heads = args.kv_heads = LONG_HEADS;
    args.first = first;
    hst_op_attention(stream, &args);
    hst_op_attention_backward(
        stream, &(struct hst_attention_backward){args, in[3], out[1], out[2], out[3]});
}

static void one_document(void)
{
    long_attention(NULL);
}

static void eight_documents(void)
{
    long_attention(begins);
}

static void attention_backward(void)
{
    hst_op_attention_backward(
        stream, &(struct hst_attention_backward){attention_args(), in[3], out[1], out[2], out[3]});
}

static void swiglu(void)
{
    hst_op_swiglu(stream,
                  &(struct hst_swiglu){(size_t)TOKENS * INNER, HST_F32, in[0], in[1], out[0]});
}

static void swiglu_backward(void)
{
    hst_op_swiglu_backward(stream,
                           &(struct hst_swiglu_backward){(size_t)TOKENS * INNER, HST_F32, in[0],
                                                         in[1], in[2], out[0], out[1]});
}

static void add(void)
{
    hst_op_add(stream, &(struct hst_add){(size_t)TOKENS * HIDDEN, HST_F32, in[0], in[1], out[0]});
}

static void cross_entropy(void)
{
    hst_op_cross_entropy(stream, &(struct hst_cross_entropy){.tokens = 128,
                                                             .vocab = 32000,
                                                             .dtype = HST_F32,
                                                             .logits = out[0],
                                                             .targets = ids,
                                                             .loss = rows,
                                                             .grad_scale = 1,
                                                             .want_grad = true});
}

static void embedding(void)
{
    hst_op_embedding(stream, &(struct hst_embedding){.tokens = TOKENS,
                                                     .vocab = 8192,
                                                     .width = HIDDEN,
                                                     .dtype = HST_F32,
                                                     .ids = ids,
                                                     .weight = in[0],
                                                     .out = out[0]});
}

static void embedding_backward(void)
{
    hst_op_embedding_backward(stream, &(struct hst_embedding_backward){.tokens = TOKENS,
                                                                       .vocab = 8192,
                                                                       .width = HIDDEN,
                                                                       .dtype = HST_F32,
                                                                       .ids = ids,
                                                                       .dout = in[0],
                                                                       .dweight = out[0]});
}

#define GEMM(m, n, k) (2.0 * (m) * (n) * (k))
#define FLOATS(count) (4.0 * (count))
static const double wide = (double)TOKENS * HIDDEN, inner = (double)TOKENS * INNER;

struct line {
    const char *name;
    void (*run)(void);
    int times; /* in one block: forward, again for the backward, backward; 0: not part of it */
    double flops, bytes; /* of one run; bytes read and written once each */
};

static struct line lines[] = {
    {"product 2048 cubed", cube, 0, 2.0 * CUBE *CUBE *CUBE, 0},
    {"q k v o, forward", forward_square, 8, GEMM(TOKENS, HIDDEN, HIDDEN), 0},
    {"gate up, forward", forward_up, 4, GEMM(TOKENS, HIDDEN, INNER), 0},
    {"down, forward", forward_down, 2, GEMM(TOKENS, HIDDEN, INNER), 0},
    {"q k v o, dX", dx_square, 4, GEMM(TOKENS, HIDDEN, HIDDEN), 0},
    {"gate up, dX", dx_up, 2, GEMM(TOKENS, HIDDEN, INNER), 0},
    {"down, dX", dx_down, 1, GEMM(TOKENS, HIDDEN, INNER), 0},
    {"q k v o, dW", dw_square, 4, GEMM(TOKENS, HIDDEN, HIDDEN), 0},
    {"gate up, dW", dw_up, 2, GEMM(TOKENS, HIDDEN, INNER), 0},
    {"down, dW", dw_down, 1, GEMM(TOKENS, HIDDEN, INNER), 0},
    {"rmsnorm", rmsnorm, 4, 0, 0},
    {"rmsnorm backward", rmsnorm_backward, 2, 0, 0},
    {"rope", rope, 6, 0, 0},
    {"attention", attention, 2, 2.0 * TOKENS *SEQ *HIDDEN, 0},
    {"attention backward", attention_backward, 1, 5.0 * TOKENS *SEQ *HIDDEN, 0},
    {"4096 tokens, attention", one_document, 0, 7.0 * LONG *LONG *LONG_HEADS *HEAD_DIM, 0},
    {"8 documents of 512, the same", eight_documents, 0, 7.0 / 8 * LONG *LONG *LONG_HEADS *HEAD_DIM,
     0},
    {"swiglu", swiglu, 2, 0, 0},
    {"swiglu backward", swiglu_backward, 1, 0, 0},
    {"add", add, 4, 0, 0},
    {"cross-entropy 128 x 32000", cross_entropy, 0, 0, FLOATS(128 * 32000 * 2.0)},
    {"embedding", embedding, 0, 0, 0},
    {"embedding backward", embedding_backward, 0, 0, 0},
};
enum { LINES = sizeof lines / sizeof *lines };

static void count_bytes(void)
{
    static const struct {
        void (*run)(void);
        int wide, inner; /* tensors touched */
    } touched[] = {{rmsnorm, 2, 0},   {rmsnorm_backward, 4, 0},  {rope, 2, 0},
                   {swiglu, 0, 3},    {swiglu_backward, 0, 5},   {add, 3, 0},
                   {embedding, 2, 0}, {embedding_backward, 3, 0}};
    for (size_t i = 0; i < LINES; i++)
        for (size_t j = 0; j < sizeof touched / sizeof *touched; j++)
            if (lines[i].run == touched[j].run)
                lines[i].bytes = FLOATS(touched[j].wide * wide + touched[j].inner * inner);
}

/* ---- measuring
 * ------------------------------------------------------------------------------------------ */

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct timing {
    double least_s, median_s;
};

static struct timing measure(void (*run)(void), int rounds)
{
    static double times[ROUNDS_MAX];
    run(); /* touches what it touches */
    hst_stream_sync(stream);
    for (int i = 0; i < rounds; i++) {
        double start = now_s();
        run();
        if (hst_stream_sync(stream))
            exit(1);
        times[i] = now_s() - start;
    }
    qsort(times, (size_t)rounds, sizeof *times, by_size);
    return (struct timing){times[0], times[rounds / 2]};
}

static void *allocate(size_t size_bytes)
{
    void *memory;
    if (hst_dev_mem_alloc(dev, size_bytes, &memory)) {
        fprintf(stderr, "bench_ops: no %zu bytes of memory\n", size_bytes);
        exit(1);
    }
    return memory;
}

static void fill(float *data, size_t count)
{
    for (size_t i = 0; i < count; i++)
        data[i] = (float)((i * 2654435761u >> 7) % 2001) * 1e-3f - 1;
}

static void prepare(unsigned workers)
{
    const struct hst_parallel parallel = {run_pieces, NULL, workers};
    for (uintptr_t i = 1; i < workers; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, worker_main, (void *)i))
            exit(1);
        pthread_detach(thread);
    }
    const struct hst_dev_config config = {.size = sizeof config,
                                          .memory_bytes = 1ull << 30,
                                          .parallel = workers > 1 ? &parallel : NULL};
    if (hst_dev_host_open(&config, &dev) || hst_stream_create(dev, "bench", &stream))
        exit(1);
    for (int i = 0; i < 4; i++) {
        in[i] = allocate(LARGEST * sizeof(float));
        out[i] = allocate(LARGEST * sizeof(float));
        fill(in[i], LARGEST);
        fill(out[i], LARGEST);
    }
    rows = allocate((size_t)TOKENS * HEADS * sizeof(float));
    ids = allocate(TOKENS * sizeof *ids);
    for (uint32_t i = 0; i < TOKENS; i++)
        ids[i] = i * 2654435761u % 8192;
    begins = allocate(LONG * sizeof *begins);
    for (uint32_t i = 0; i < LONG; i++)
        begins[i] = i / LONG_DOCUMENT * LONG_DOCUMENT;
    work.size_bytes = 64 << 20;
    work.data = allocate(work.size_bytes);
}

static void print_block(const char *from, const double *times)
{
    double total = 0, products = 0, flops = 0;
    for (size_t i = 0; i < LINES; i++) {
        total += times[i] * lines[i].times;
        if (!lines[i].flops || lines[i].run == attention || lines[i].run == attention_backward)
            continue;
        products += times[i] * lines[i].times;
        flops += lines[i].flops * lines[i].times;
    }
    double counted = 6 * (4.0 * HIDDEN * HIDDEN + 3.0 * HIDDEN * INNER) * TOKENS / total;
    printf("%s: block %.1f ms, products %.1f ms (%.1f %%); 6NB rate %.1f GFLOP/s, %.1f %% of the "
           "large product's, "
           "%.1f %% of the block's products'\n",
           from, total * 1e3, products * 1e3, 100 * products / total, counted * 1e-9,
           100 * counted / (lines[0].flops / times[0]), 100 * counted / (flops / products));
}

int main(int argc, char **argv)
{
    unsigned workers = argc > 1 ? (unsigned)atoi(argv[1]) : 2;
    int rounds = argc > 2 ? atoi(argv[2]) : 15;
    if (workers < 1 || workers > 64 || rounds < 1 || rounds > ROUNDS_MAX) {
        fprintf(stderr, "usage: bench_ops [workers 1-64] [rounds 1-%d]\n", ROUNDS_MAX);
        return 2;
    }
    prepare(workers);
    count_bytes();
    attention(); /* makes the lse that its backward reads */
    struct timing times[LINES];
    double least[LINES], median[LINES], total = 0;
    for (size_t i = 0; i < LINES; i++) {
        times[i] = measure(lines[i].run, rounds);
        least[i] = times[i].least_s;
        median[i] = times[i].median_s;
        total += least[i] * lines[i].times;
    }
    printf("%-26s %9s %9s %6s %9s %8s %7s\n", "operation", "least us", "median us", "times",
           "GFLOP/s", "GB/s", "share %");
    for (size_t i = 0; i < LINES; i++)
        printf("%-26s %9.0f %9.0f %6d %9.1f %8.1f %7.2f\n", lines[i].name, least[i] * 1e6,
               median[i] * 1e6, lines[i].times, lines[i].flops / least[i] * 1e-9,
               lines[i].bytes / least[i] * 1e-9, 100 * least[i] * lines[i].times / total);
    print_block("least", least);
    print_block("medians", median);
    return 0;
}
