/* SPDX-License-Identifier: Apache-2.0 */
/* See suite.h. Device memory is one arena; a tensor's part of it is all ones bits when it is made.
 */
#include "suite.h"
#include "half.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { ARENA_BYTES = 48 << 20, GUARD_BYTES = 64, WORKERS = 3 };

static const char *device_name = "host";

/* Devices that are open: where a test fails, they are asked for their own words. */
static struct hst_dev *devices[8];
enum { DEVICES = sizeof devices / sizeof *devices };

int suite_open(uint64_t memory_bytes, uint64_t host_bytes, const struct hst_parallel *parallel,
               struct hst_dev **dev)
{
    struct hst_dev_config config = {.size = sizeof config,
                                    .memory_bytes = memory_bytes,
                                    .host_bytes = host_bytes,
                                    .parallel = parallel,
                                    .host_math = getenv("HST_SUITE_MATH")};
    int rc = hst_dev_open(device_name, &config, dev, NULL);
    for (size_t i = 0; rc == 0 && i < DEVICES; i++)
        if (!devices[i]) {
            devices[i] = *dev;
            break;
        }
    return rc;
}

void suite_close(struct hst_dev **dev)
{
    for (size_t i = 0; i < DEVICES; i++)
        if (devices[i] == *dev)
            devices[i] = NULL;
    hst_dev_close(dev);
}

/* A skip, but where the caller knows that the device is there, or a kernel has wrong sums. */
static void end_without_device(const struct hst_dev_failure *failure)
{
    const char *must = getenv("HST_SUITE_MUST_OPEN");
    bool fails = (must && strcmp(must, "1") == 0) || strstr(failure->text, "whose sums");
    printf("%s: device \"%s\" does not open: %s\n", fails ? "failed" : "skipped", device_name,
           failure->text);
    exit(fails ? 1 : 77);
}

static void look_for_device(void)
{
    struct hst_dev *dev;
    struct hst_dev_config config = {.size = sizeof config, .host_math = getenv("HST_SUITE_MATH")};
    struct hst_dev_failure failure;
    if (hst_dev_open(device_name, &config, &dev, &failure))
        end_without_device(&failure);
    hst_dev_close(&dev);
}

/* ---- the story of a failure --------------------------------------------------------------- */

/* The case that runs. A failed assertion leaves the function, and then it is still here. */
static struct {
    bool open;
    unsigned number; /* of the function's cases, from 1 */
    bool shared;     /* with three workers */
    size_t count;
    struct {
        enum hst_dtype dtype;
        size_t count;
    } tensors[SUITE_TENSORS];
} running;

static void tell_case(void)
{
    static const char *const names[] = {[HST_F32] = "f32", [HST_BF16] = "bf16", [HST_F16] = "f16"};
    print_message("case %u of this function, %s; tensors:", running.number,
                  running.shared ? "three workers" : "alone");
    for (size_t i = 0; i < running.count; i++)
        print_message(" %s[%zu]", names[running.tensors[i].dtype], running.tensors[i].count);
    print_message("\n");
}

/* A device and its memory, opened once and kept for all cases: on a GPU that takes longer than most
 * of them. */
struct ground {
    struct hst_dev *dev;
    void *arena, *staging;
};
enum { GROUNDS = 2 }; /* without workers, and with them */
static struct ground grounds[GROUNDS];

/* What cuDNN has built for the cases so far. */
struct plans {
    unsigned count;
    double seconds;
};
static struct plans closed_plans; /* on grounds that are closed */

static void add_plans(struct plans *plans, struct hst_dev *dev)
{
    struct hst_dev_info info;
    if (!dev)
        return;
    hst_dev_info(dev, &info);
    plans->count += info.plans;
    plans->seconds += info.plans_s;
}

static struct plans plans_so_far(void)
{
    struct plans plans = closed_plans;
    for (size_t i = 0; i < GROUNDS; i++)
        add_plans(&plans, grounds[i].dev);
    return plans;
}

/* Runs behind each test; prints nothing behind one that ended well. */
static int tell_failure(void **state)
{
    (void)state;
    if (running.open)
        tell_case();
    for (size_t i = 0; i < DEVICES; i++) {
        struct hst_dev_failure failure = {.why = HST_DEV_OK};
        if (devices[i])
            hst_dev_failure(devices[i], &failure);
        if (failure.why != HST_DEV_OK) {
            print_message("the device: %s\n", failure.text);
            break; /* the others would repeat it */
        }
    }
    running.open = false;
    running.number = 0;
    return 0;
}

int suite_main(int argc, char **argv, const struct CMUnitTest *tests, size_t count)
{
    if (getenv("HST_SUITE_LIST")) {
        for (size_t i = 0; i < count; i++)
            printf("%s\n", tests[i].name);
        return 0;
    }
    struct CMUnitTest *told = calloc(count, sizeof *told);
    if (!told)
        return 1;
    device_name = argc > 1 ? argv[1] : device_name;
    look_for_device();
    memcpy(told, tests, count * sizeof *told);
    for (size_t i = 0; i < count; i++)
        told[i].teardown_func = tell_failure;
    if (getenv("HST_SUITE_ONLY"))
        cmocka_set_test_filter(getenv("HST_SUITE_ONLY"));
    int failed = _cmocka_run_group_tests(argv[0], told, count, NULL, NULL);
    free(told);
    struct plans plans = plans_so_far();
    if (plans.count)
        printf("plans of cuDNN: %u in %.1f s\n", plans.count, plans.seconds);
    return failed;
}

/* ---- three workers
 * -------------------------------------------------------------------------------------- */

static struct {
    pthread_mutex_t lock, turn; /* turn: one job at a time */
    pthread_cond_t change;
    void (*body)(void *arg, size_t index, unsigned worker);
    void *arg;
    size_t count, next, left;
} pool = {
    PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 0, 0, 0};

static void *worker_main(void *arg)
{
    unsigned worker = (unsigned)(uintptr_t)arg;
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        if (pool.next == pool.count) {
            pthread_cond_wait(&pool.change, &pool.lock);
            continue;
        }
        size_t index = pool.count - 1 - pool.next++; /* backwards: order must not matter */
        pthread_mutex_unlock(&pool.lock);
        pool.body(pool.arg, index, worker);
        pthread_mutex_lock(&pool.lock);
        if (--pool.left == 0)
            pthread_cond_broadcast(&pool.change);
    }
    return NULL;
}

static void run_on_workers(void *context, size_t count, void (*body)(void *, size_t, unsigned),
                           void *arg)
{
    (void)context;
    pthread_mutex_lock(&pool.turn);
    pthread_mutex_lock(&pool.lock);
    pool.body = body;
    pool.arg = arg;
    pool.next = 0;
    pool.count = pool.left = count;
    pthread_cond_broadcast(&pool.change);
    while (pool.left)
        pthread_cond_wait(&pool.change, &pool.lock);
    pool.count = pool.next = 0;
    pthread_mutex_unlock(&pool.lock);
    pthread_mutex_unlock(&pool.turn);
}

const struct hst_parallel *suite_workers(void)
{
    static const struct hst_parallel parallel = {run_on_workers, NULL, WORKERS};
    static bool started;
    for (uintptr_t i = 0; i < WORKERS && !started; i++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, worker_main, (void *)i), 0);
        pthread_detach(thread);
    }
    started = true;
    return &parallel;
}

/* ---- cases
 * ---------------------------------------------------------------------------------------------- */

static void case_open(struct suite *s, const struct hst_parallel *parallel)
{
    struct ground *g = &grounds[parallel != NULL];
    memset(s, 0, sizeof *s);
    s->random = 0x9e3779b97f4a7c15u;
    if (!g->dev) {
        assert_int_equal(suite_open(ARENA_BYTES, ARENA_BYTES, parallel, &g->dev), 0);
        assert_int_equal(hst_dev_mem_alloc(g->dev, ARENA_BYTES, &g->arena), 0);
        assert_int_equal(hst_dev_host_alloc(g->dev, ARENA_BYTES, &g->staging), 0);
    }
    assert_int_equal(hst_stream_create(g->dev, "suite", &s->stream), 0);
    s->dev = g->dev;
    s->arena = g->arena;
    s->staging = g->staging;
    running.open = true;
    running.shared = parallel != NULL;
    running.number += !parallel;
    running.count = 0;
}

static void case_close(struct suite *s)
{
    for (size_t i = 0; i < s->tensor_count; i++)
        free(s->tensors[i].values);
    hst_stream_destroy(&s->stream);
    free(s->log);
    running.open = false;
}

static void download(struct suite *s, const void *from, size_t size_bytes)
{
    assert_int_equal(hst_stream_copy(s->stream, s->staging, from, size_bytes), 0);
    suite_sync(s);
}

static size_t tensor_bytes(const struct tensor *t)
{
    return t->count * hst_dtype_bytes(t->dtype);
}

static void check_guards(struct suite *s)
{
    for (size_t i = 0; i < s->tensor_count; i++) {
        download(s, (char *)s->tensors[i].data + tensor_bytes(&s->tensors[i]), GUARD_BYTES);
        for (size_t b = 0; b < GUARD_BYTES; b++)
            if (s->staging[b] != (char)0xff)
                fail_msg("tensor %zu was written beyond its end", i);
    }
}

static void ground_close(struct ground *g)
{
    if (!g->dev)
        return;
    hst_dev_mem_free(g->dev, g->arena, ARENA_BYTES);
    hst_dev_host_free(g->dev, g->staging, ARENA_BYTES);
    suite_close(&g->dev);
}

/* Between cases, so that the two runs of one are by the same kernels. */
static void bound_plans(void)
{
    const char *most_s = getenv("HST_SUITE_PLANS_S");
    if (!most_s || plans_so_far().seconds <= strtod(most_s, NULL))
        return;
    print_message("plans of cuDNN: more than %s s: the plugin's own kernels serve from here on\n",
                  most_s);
    for (size_t i = 0; i < GROUNDS; i++) {
        add_plans(&closed_plans, grounds[i].dev);
        ground_close(&grounds[i]);
    }
    assert_int_equal(setenv("HOISTWAY_ATTENTION", "own", 1), 0);
    assert_int_equal(unsetenv("HST_SUITE_PLANS_S"), 0);
}

void suite_run(void (*run)(struct suite *, const void *), const void *parameters)
{
    struct suite alone, shared;
    bound_plans();
    case_open(&alone, NULL);
    run(&alone, parameters);
    check_guards(&alone);
    assert_true(alone.log_used > 0);
    if (getenv("HST_SUITE_ALONE")) {
        case_close(&alone);
        return;
    }
    case_open(&shared, suite_workers());
    run(&shared, parameters);
    check_guards(&shared);
    assert_int_equal(alone.log_used, shared.log_used);
    if (memcmp(alone.log, shared.log, alone.log_used) != 0)
        fail_msg("three workers gave other bytes than one");
    case_close(&alone);
    case_close(&shared);
}

double suite_random(struct suite *s)
{
    s->random ^= s->random << 13;
    s->random ^= s->random >> 7;
    s->random ^= s->random << 17;
    return (double)(s->random >> 11) * 0x1p-52 - 1;
}

void suite_sync(struct suite *s)
{
    assert_int_equal(hst_stream_sync(s->stream), 0);
}

/* ---- tensors
 * -------------------------------------------------------------------------------------------- */

const enum hst_dtype suite_dtypes[DTYPES] = {HST_F32, HST_BF16, HST_F16};

bool suite_tries(size_t row, size_t dtype)
{
    return dtype == row % DTYPES || !getenv("HST_SUITE_LONG_ONCE");
}

double round_to(enum hst_dtype dtype, double value)
{
    return dtype == HST_F32 ? (float)value : half_value(dtype, half_round(dtype, (float)value));
}

double rounding(enum hst_dtype dtype, double value)
{
    const struct {
        double half_ulp, least;
    } of[] = {[HST_F32] = {0x1p-24, 0x1p-150},
              [HST_BF16] = {0x1p-8, 0x1p-134},
              [HST_F16] = {0x1p-11, 0x1p-25}};
    return of[dtype].half_ulp * fabs(value) + of[dtype].least;
}

/* On the device alone: without values on the host. */
static struct tensor *tensor_place(struct suite *s, size_t count, enum hst_dtype dtype)
{
    assert_true(s->tensor_count < SUITE_TENSORS);
    struct tensor *t = &s->tensors[s->tensor_count++];
    *t = (struct tensor){.data = s->arena + s->arena_used, .count = count, .dtype = dtype};
    running.tensors[running.count].dtype = dtype;
    running.tensors[running.count++].count = count;
    size_t bytes = tensor_bytes(t) + GUARD_BYTES;
    s->arena_used += (bytes + 63) / 64 * 64;
    assert_true(s->arena_used <= ARENA_BYTES);
    memset(s->staging, 0xff, bytes);
    assert_int_equal(hst_stream_copy(s->stream, t->data, s->staging, bytes), 0);
    suite_sync(s);
    return t;
}

struct tensor *tensor_empty(struct suite *s, size_t count, enum hst_dtype dtype)
{
    struct tensor *t = tensor_place(s, count, dtype);
    t->values = calloc(count + 1, sizeof *t->values);
    assert_non_null(t->values);
    return t;
}

void tensor_write(struct suite *s, struct tensor *t)
{
    for (size_t i = 0; i < t->count; i++) {
        t->values[i] = round_to(t->dtype, t->values[i]);
        float value = (float)t->values[i];
        if (t->dtype == HST_F32)
            memcpy(s->staging + i * 4, &value, 4);
        else
            memcpy(s->staging + i * 2, &(uint16_t){half_round(t->dtype, value)}, 2);
    }
    assert_int_equal(hst_stream_copy(s->stream, t->data, s->staging, tensor_bytes(t)), 0);
    suite_sync(s);
}

void tensor_read(struct suite *s, struct tensor *t)
{
    size_t bytes = tensor_bytes(t);
    download(s, t->data, bytes);
    s->log = realloc(s->log, s->log_used + bytes + 1);
    assert_non_null(s->log);
    memcpy(s->log + s->log_used, s->staging, bytes);
    s->log_used += bytes;
    for (size_t i = 0; i < t->count; i++) {
        uint16_t half;
        float value;
        memcpy(&value, s->staging + i * 4 * (t->dtype == HST_F32), 4);
        memcpy(&half, s->staging + i * 2, 2);
        t->values[i] = t->dtype == HST_F32 ? value : half_value(t->dtype, half);
    }
}

struct tensor *tensor_random(struct suite *s, size_t count, enum hst_dtype dtype, double scale)
{
    struct tensor *t = tensor_empty(s, count, dtype);
    for (size_t i = 0; i < count; i++)
        t->values[i] = suite_random(s) * scale;
    tensor_write(s, t);
    return t;
}

struct tensor *tensor_filled(struct suite *s, size_t count, enum hst_dtype dtype, double value)
{
    struct tensor *t = tensor_empty(s, count, dtype);
    for (size_t i = 0; i < count; i++)
        t->values[i] = value;
    tensor_write(s, t);
    return t;
}

struct tensor *tensor_ids(struct suite *s, size_t count, uint32_t below)
{
    uint32_t *ids = malloc(count * sizeof *ids + 1);
    assert_non_null(ids);
    for (size_t i = 0; i < count; i++)
        ids[i] = (uint32_t)((suite_random(s) + 1) / 2 * below);
    struct tensor *t = tensor_words(s, count, ids);
    free(ids);
    return t;
}

struct tensor *tensor_words(struct suite *s, size_t count, const uint32_t *words)
{
    struct tensor *t = tensor_empty(s, count, HST_F32);
    for (size_t i = 0; i < count; i++)
        t->values[i] = words[i];
    if (count)
        memcpy(s->staging, words, count * sizeof *words);
    assert_int_equal(hst_stream_copy(s->stream, t->data, s->staging, count * 4), 0);
    suite_sync(s);
    return t;
}

struct hst_work suite_work(struct suite *s, size_t size_bytes)
{
    if (!size_bytes)
        return (struct hst_work){NULL, 0};
    size_t words = (size_bytes + 3) / 4;
    if (!s->work || s->work->count < words)
        s->work = tensor_place(s, words, HST_F32);
    return (struct hst_work){s->work->data, size_bytes};
}

void expect_close(const char *what, const struct tensor *got, const double *want, double noise)
{
    for (size_t i = 0; i < got->count; i++) {
        double error = fabs(got->values[i] - want[i]);
        double allowed = rounding(got->dtype, fabs(want[i]) + noise) + noise;
        if (!(error <= allowed))
            fail_msg("%s[%zu] is %.9g, not %.9g: off by %.3g, allowed %.3g", what, i,
                     got->values[i], want[i], error, allowed);
    }
}

bool suite_rounds_weights(struct hst_dev *dev, enum hst_dtype dtype)
{
    char math[HST_DEV_MATH_BYTES];
    if (dtype == HST_F32 || !(hst_dev_flags(dev) & HST_DEV_HOST_MEMORY))
        return dtype != HST_F32;
    hst_dev_math(dev, math, sizeof math);
    return dtype == HST_BF16 && strstr(math, ", attention by AMX, ");
}

struct hst_cross_entropy suite_cross_entropy(size_t tokens, size_t vocab,
                                             const struct tensor *logits,
                                             const struct tensor *targets,
                                             const struct tensor *loss)
{
    return (struct hst_cross_entropy){.tokens = tokens,
                                      .vocab = vocab,
                                      .dtype = logits->dtype,
                                      .logits = logits->data,
                                      .targets = targets->data,
                                      .loss = loss->data,
                                      .grad_scale = 1,
                                      .want_grad = true};
}

void expect_everywhere(struct suite *s, struct tensor *t, double value)
{
    suite_sync(s);
    tensor_read(s, t);
    for (size_t i = 0; i < t->count; i++)
        assert_true(t->values[i] == value);
}
