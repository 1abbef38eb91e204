/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The matrix products of an 8B Llama's block and head, bf16, beside the best that cuBLASLt has:
 * every algorithm that its heuristics name (32 at most) is timed, first under the device's own
 * constraints (no reduction scheme, the same workspace, 16-byte alignment), then with any reduction
 * scheme. The device and the best take turns in the rounds that are compared, so that both see the
 * same clocks and temperatures.
 *
 *   bench_gemm [--device cuda:0] [--smoke]
 *
 * Prints one JSON object per product and line; 77 where there is no such device.
 */
#include "bench/figure.h"
#include "libraries/blaslt.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TEXT_OF(macro) #macro
#define TEXT(macro)    TEXT_OF(macro)
#define SONAME         "libcublasLt.so." TEXT(CUBLAS_VER_MAJOR)

#define SEARCH_S  0.003 /* for each algorithm */
#define COMPARE_S 0.02  /* for each of a pair */

enum { CANDIDATES = 32, PAIRS = 5, WORK_ALIGNMENT_BYTES = 256, OPERANDS = 3 };

static struct {
    struct hst_dev *dev;
    struct hst_stream *stream;
    struct blaslt_library blaslt;
    cublasLtHandle_t handle;
    void *operands[OPERANDS], *work;
    size_t operand_bytes[OPERANDS], work_bytes;
    bool smoke;
    struct hst_error error;
} bench;

/* One product, for the device and for cuBLASLt. */
struct product {
    struct hst_matmul args;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t first, second, out;
    cublasLtMatmulAlgo_t algo;
};

static void give_up(const char *what, int code)
{
    fprintf(stderr, "bench_gemm: %s failed (%d): %s\n", what, code, bench.error.message);
    exit(1);
}

static void check(const char *what, cublasStatus_t status)
{
    if (status)
        give_up(what, (int)status);
}

/* ---- the library ---- */

/* The plugin has opened it: the same copy, wherever it was found. */
static void open_blaslt(void)
{
#define BENCH_ROW(name) {#name, offsetof(struct blaslt_library, name)},
    static const struct {
        const char *name;
        size_t offset;
    } functions[] = {BLASLT_FUNCTIONS(BENCH_ROW)};
#undef BENCH_ROW
    bench.blaslt.handle = dlopen(SONAME, RTLD_NOW | RTLD_NOLOAD);
    if (!bench.blaslt.handle)
        give_up("finding " SONAME " in this process", 0);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *symbol = dlsym(bench.blaslt.handle, functions[i].name);
        if (!symbol)
            give_up(functions[i].name, 0);
        memcpy((char *)&bench.blaslt + functions[i].offset, &symbol, sizeof symbol);
    }
    check("cublasLtCreate", bench.blaslt.cublasLtCreate(&bench.handle));
}

static cublasLtMatrixLayout_t describe_matrix(const struct hst_matrix *matrix, size_t rows,
                                              size_t columns)
{
    cublasLtMatrixLayout_t layout;
    /* row-major memory is column-major memory of the transposed */
    check("cublasLtMatrixLayoutCreate",
          bench.blaslt.cublasLtMatrixLayoutCreate(
              &layout, matrix->dtype == HST_F32 ? CUDA_R_32F : CUDA_R_16BF, columns, rows,
              (int64_t)matrix->ld));
    return layout;
}

/* As the device does it: Cᵀ = op(B)ᵀ·op(A)ᵀ. */
static void describe(struct product *p)
{
    const struct hst_matmul *a = &p->args;
    cublasOperation_t first = a->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = a->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    check("cublasLtMatmulDescCreate",
          bench.blaslt.cublasLtMatmulDescCreate(&p->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    check("TRANSA", bench.blaslt.cublasLtMatmulDescSetAttribute(
                        p->operation, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
    check("TRANSB", bench.blaslt.cublasLtMatmulDescSetAttribute(
                        p->operation, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second));
    p->first =
        a->b_transposed ? describe_matrix(&a->b, a->n, a->k) : describe_matrix(&a->b, a->k, a->n);
    p->second =
        a->a_transposed ? describe_matrix(&a->a, a->k, a->m) : describe_matrix(&a->a, a->m, a->k);
    p->out = describe_matrix(&a->c, a->m, a->n);
}

static void undescribe(struct product *p)
{
    (void)bench.blaslt.cublasLtMatrixLayoutDestroy(p->out);
    (void)bench.blaslt.cublasLtMatrixLayoutDestroy(p->second);
    (void)bench.blaslt.cublasLtMatrixLayoutDestroy(p->first);
    (void)bench.blaslt.cublasLtMatmulDescDestroy(p->operation);
}

static int candidates(const struct product *p, uint32_t reductions,
                      cublasLtMatmulHeuristicResult_t found[CANDIDATES])
{
    const uint32_t alignment = 16;
    const uint64_t work_bytes = bench.work_bytes;
    const struct {
        cublasLtMatmulPreferenceAttributes_t attribute;
        const void *value;
        size_t size_bytes;
    } wishes[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &work_bytes, sizeof work_bytes},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &alignment, sizeof alignment},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &alignment, sizeof alignment},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &alignment, sizeof alignment},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &alignment, sizeof alignment},
    };
    cublasLtMatmulPreference_t preference;
    int count = 0;
    check("cublasLtMatmulPreferenceCreate",
          bench.blaslt.cublasLtMatmulPreferenceCreate(&preference));
    for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++)
        check("a preference",
              bench.blaslt.cublasLtMatmulPreferenceSetAttribute(
                  preference, wishes[i].attribute, wishes[i].value, wishes[i].size_bytes));
    check("cublasLtMatmulAlgoGetHeuristic",
          bench.blaslt.cublasLtMatmulAlgoGetHeuristic(bench.handle, p->operation, p->first,
                                                      p->second, p->out, p->out, preference,
                                                      CANDIDATES, found, &count));
    (void)bench.blaslt.cublasLtMatmulPreferenceDestroy(preference);
    return count;
}

/* ---- measuring ---- */

static int enqueue_device(void *arg)
{
    const struct product *p = arg;
    return hst_op_matmul(bench.stream, &p->args);
}

static int enqueue_blaslt(void *arg)
{
    const struct product *p = arg;
    const float alpha = 1, beta = p->args.accumulate ? 1 : 0;
    uintptr_t work = (uintptr_t)bench.work + WORK_ALIGNMENT_BYTES - 1;
    work -= work % WORK_ALIGNMENT_BYTES;
    return bench.blaslt.cublasLtMatmul(bench.handle, p->operation, &alpha, p->args.b.data, p->first,
                                       p->args.a.data, p->second, &beta, p->args.c.data, p->out,
                                       p->args.c.data, p->out, &p->algo, (void *)work,
                                       bench.work_bytes, hst_stream_native(bench.stream))
               ? -1
               : 0;
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Seconds of one call, of `calls` in a row; negative where it does not run. */
static double time_calls(int (*enqueue)(void *arg), struct product *p, int calls)
{
    double begin = now_s();
    for (int i = 0; i < calls; i++)
        if (enqueue(p))
            return -1;
    return hst_stream_sync(bench.stream) ? -1 : (now_s() - begin) / calls;
}

/* Warmed up, for about so long. An algorithm that does not run is not the best. */
static double seconds_of(int (*enqueue)(void *arg), struct product *p, double round_s)
{
    double one_s = time_calls(enqueue, p, 1);
    if (bench.smoke || one_s < 0)
        return one_s;
    one_s = time_calls(enqueue, p, 2);
    double calls = one_s > 0 ? round_s / one_s : 0;
    return one_s < 0 ? one_s
                     : time_calls(enqueue, p,
                                  calls < 2      ? 2
                                  : calls > 1000 ? 1000
                                                 : (int)calls);
}

/* Leaves the quickest in p->algo; its place in cuBLASLt's own order, -1 where none runs. */
static int find_best(struct product *p, uint32_t reductions, int *count)
{
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    double least = 0;
    int best = -1;
    *count = candidates(p, reductions, found);
    for (int i = 0; i < *count; i++) {
        if (found[i].state != CUBLAS_STATUS_SUCCESS || found[i].workspaceSize > bench.work_bytes)
            continue;
        p->algo = found[i].algo;
        double seconds = seconds_of(enqueue_blaslt, p, SEARCH_S);
        if (seconds > 0 && (best < 0 || seconds < least)) {
            best = i;
            least = seconds;
        }
    }
    if (best >= 0)
        p->algo = found[best].algo;
    return best;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct comparison {
    double device_s, best_s, fraction, least, most; /* fraction: best_s / device_s of each pair */
};

static void compare(struct product *p, struct comparison *c)
{
    double ours[PAIRS], theirs[PAIRS], fractions[PAIRS];
    int pairs = bench.smoke ? 1 : PAIRS;
    for (int i = 0; i < pairs; i++) {
        bool first = i % 2 == 0;
        if (first)
            ours[i] = seconds_of(enqueue_device, p, COMPARE_S);
        theirs[i] = seconds_of(enqueue_blaslt, p, COMPARE_S);
        if (!first)
            ours[i] = seconds_of(enqueue_device, p, COMPARE_S);
        if (ours[i] <= 0 || theirs[i] <= 0)
            give_up("a product", 0);
        fractions[i] = theirs[i] / ours[i];
    }
    qsort(ours, (size_t)pairs, sizeof *ours, by_value);
    qsort(theirs, (size_t)pairs, sizeof *theirs, by_value);
    qsort(fractions, (size_t)pairs, sizeof *fractions, by_value);
    *c = (struct comparison){ours[pairs / 2], theirs[pairs / 2], fractions[pairs / 2], fractions[0],
                             fractions[pairs - 1]};
}

static void measure(const char *name, struct product *p)
{
    struct comparison bound, any = {0};
    int count, any_count;
    describe(p);
    int best = find_best(p, CUBLASLT_REDUCTION_SCHEME_NONE, &count);
    if (best < 0)
        give_up("finding an algorithm", count);
    compare(p, &bound);
    int any_best = find_best(p, CUBLASLT_REDUCTION_SCHEME_MASK, &any_count);
    if (any_best >= 0)
        compare(p, &any);
    undescribe(p);
    double flops = 2.0 * (double)p->args.m * (double)p->args.n * (double)p->args.k;
    printf("{\"bench\":\"gemm\",\"case\":\"%s %zux%zux%zu\",\"value\":%.6g,\"unit\":\"FLOP/s\","
           "\"ceiling\":%.6g,\"ceiling_name\":\"cuBLASLt's best without split sums\","
           "\"fraction\":%.4f,\"fraction_least\":%.4f,\"fraction_most\":%.4f,"
           "\"algorithms\":%d,\"best\":%d,\"fraction_of_any\":%.4f,\"any_best\":%d}\n",
           name, p->args.m, p->args.n, p->args.k, flops / bound.device_s, flops / bound.best_s,
           bound.fraction, bound.least, bound.most, count, best, any.fraction, any_best);
    fflush(stdout);
}

/* ---- the products of a Llama ---- */

struct linear {
    const char *name;
    size_t rows, in, out;
};
static const struct linear full[] = {{"q, o", 8192, 4096, 4096},
                                     {"k, v", 8192, 4096, 1024},
                                     {"gate, up", 8192, 4096, 14336},
                                     {"down", 8192, 14336, 4096},
                                     {"head", 1024, 4096, 128256}};
static const struct linear tiny[] = {{"q, o", 64, 64, 64}, {"head", 32, 64, 160}};

static size_t greater(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Operand 0: bf16 in and out; 1: bf16 weights; 2: what is written, bf16 or an f32 gradient. */
static void plan_operands(const struct linear *linears, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct linear *l = &linears[i];
        size_t wide = greater(l->in, l->out) * l->rows;
        bench.operand_bytes[0] = greater(bench.operand_bytes[0], 2 * wide);
        bench.operand_bytes[1] = greater(bench.operand_bytes[1], 2 * greater(l->in * l->out, wide));
        bench.operand_bytes[2] =
            greater(bench.operand_bytes[2], greater(4 * l->in * l->out, 2 * wide));
    }
}

static void measure_linear(const struct linear *l)
{
    char name[64];
    struct hst_matrix x = {bench.operands[0], l->in, HST_BF16};
    struct hst_matrix dy = {bench.operands[0], l->out, HST_BF16};
    struct hst_matrix weight = {bench.operands[1], l->in, HST_BF16};
    struct hst_matrix x_again = {bench.operands[1], l->in, HST_BF16};
    struct hst_matrix y = {bench.operands[2], l->out, HST_BF16};
    struct hst_matrix dx = {bench.operands[2], l->in, HST_BF16};
    struct hst_matrix dweight = {bench.operands[2], l->in, HST_F32};
    struct hst_work work = {bench.work, bench.work_bytes + WORK_ALIGNMENT_BYTES};
    const struct {
        const char *pass;
        struct hst_matmul args;
    } passes[] = {
        {"forward",
         {.m = l->rows,
          .n = l->out,
          .k = l->in,
          .a = x,
          .b = weight,
          .c = y,
          .b_transposed = true,
          .work = work}},
        {"dX",
         {.m = l->rows, .n = l->in, .k = l->out, .a = dy, .b = weight, .c = dx, .work = work}},
        {"dW",
         {.m = l->out,
          .n = l->in,
          .k = l->rows,
          .a = dy,
          .b = x_again,
          .c = dweight,
          .a_transposed = true,
          .accumulate = true,
          .work = work}},
    };
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
        struct product p = {.args = passes[i].args};
        snprintf(name, sizeof name, "%s %s", l->name, passes[i].pass);
        measure(name, &p);
    }
}

static void open_all(const char *device, const struct linear *linears, size_t count)
{
    const struct hst_dev_config config = {
        .size = sizeof config, .memory_bytes = (uint64_t)1 << 46, .host_bytes = 1 << 20};
    struct hst_dev_failure failure = {.why = HST_DEV_OK};
    void *staging;
    if (hst_dev_open(device, &config, &bench.dev, &failure)) {
        printf("skipped: %s\n", failure.text);
        exit(77);
    }
    open_blaslt();
    plan_operands(linears, count);
    int rc = hst_stream_create(bench.dev, "bench", &bench.stream);
    rc = rc ? rc : hst_dev_host_alloc(bench.dev, BENCH_STAGING_BYTES, &staging);
    for (int i = 0; i < OPERANDS && !rc; i++) {
        rc = hst_dev_mem_alloc(bench.dev, bench.operand_bytes[i], &bench.operands[i]);
        rc = rc ? rc : bench_fill(bench.stream, bench.operands[i], bench.operand_bytes[i], staging);
    }
    const struct hst_matmul any = {.m = 1, .n = 1, .k = 1};
    size_t work_bytes = rc ? 0 : hst_matmul_work_bytes(bench.dev, &any);
    rc = rc ? rc : hst_dev_mem_alloc(bench.dev, work_bytes, &bench.work);
    if (rc)
        give_up("making operands", bench_device_failed(bench.dev, rc, "memory", &bench.error));
    bench.work_bytes = work_bytes - WORK_ALIGNMENT_BYTES;
    hst_dev_host_free(bench.dev, staging, BENCH_STAGING_BYTES);
}

static void close_all(void)
{
    (void)bench.blaslt.cublasLtDestroy(bench.handle);
    for (int i = 0; i < OPERANDS; i++)
        hst_dev_mem_free(bench.dev, bench.operands[i], bench.operand_bytes[i]);
    hst_dev_mem_free(bench.dev, bench.work, bench.work_bytes + WORK_ALIGNMENT_BYTES);
    hst_stream_destroy(&bench.stream);
    hst_dev_close(&bench.dev);
}

int main(int argc, char **argv)
{
    const char *device = "cuda:0";
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--smoke") == 0) {
            bench.smoke = true;
        } else if (strcmp(argv[i], "--device") == 0 && i + 1 < argc) {
            device = argv[++i];
        } else {
            fprintf(stderr, "usage: bench_gemm [--device cuda:0] [--smoke]\n");
            return 2;
        }
    }
    const struct linear *linears = bench.smoke ? tiny : full;
    size_t count = bench.smoke ? sizeof tiny / sizeof *tiny : sizeof full / sizeof *full;
    open_all(device, linears, count);
    for (size_t i = 0; i < count; i++)
        measure_linear(&linears[i]);
    close_all();
    return 0;
}
