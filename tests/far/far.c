/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libhoistway-far.so: a device that computes what the host device computes, to the bit, and says
 * that its memory is its own. What the engine does for a GPU (homes in HBM, page-locked slots,
 * norm and update on the device, or copies to and from what lives elsewhere) then has the host as
 * its oracle, byte for byte.
 *
 * The environment's HOISTWAY_FAR, read when the device is opened, makes its copies worse:
 *   delay:SEED   each comes after other work, more or less of it; updates do, too
 *   late:N       each update comes after N rounds of other work
 *   refuse:N     the N-th is refused
 *   fail:N       the N-th is taken and fails when its turn comes
 *   pace:GFLOPS  copies stay, but products of matrices and attention give zeros, and take
 *                the time that they would at this rate, not the processor: as a GPU does
 */
#include "host/host.h"

#include <assert.h>
#include <errno.h>
#include <hoistway/cpu_adam.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FAR_BYTES = 256 << 20, DELAYS_MOST = 16, DELAY_BYTES = 256 << 10, STREAMS = 8 };

static struct hst_dev_ops table;
static const struct hst_dev_ops *behind;

/* Of the one device that is open; its streams are fed by one thread. */
static struct {
    unsigned long long delay_seed;
    unsigned late, refuse_at, fail_at, copies;
    struct hst_stream *streams[STREAMS];
} trouble;
static double pace_flops;                           /* per second; 0: computes */
static unsigned char scratch[STREAMS][DELAY_BYTES]; /* that delays write, a stream each */

/* splitmix64 */
static unsigned long long draw(void)
{
    unsigned long long z = trouble.delay_seed += 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

static unsigned number_of(const struct hst_stream *stream)
{
    unsigned i = 0;
    while (i + 1 < STREAMS && trouble.streams[i] && trouble.streams[i] != stream)
        i++;
    return i;
}

static int work(struct hst_stream *stream, unsigned rounds)
{
    unsigned number = number_of(stream);
    trouble.streams[number] = stream;
    int rc = 0;
    for (unsigned n = 0; n < rounds && rc == 0; n++)
        rc = behind->stream_zero(stream, scratch[number], DELAY_BYTES);
    return rc;
}

/* Streams take turns at being slow: what is in time on one may be late on another. */
static int delay(struct hst_stream *stream)
{
    return work(stream, (unsigned)(draw() % DELAYS_MOST));
}

/* An id that no table has: the host notices when it comes to it. */
static int fail_later(struct hst_stream *stream)
{
    static const uint32_t id = 1;
    static const float row;
    static float out;
    const struct hst_embedding args = {.tokens = 1,
                                       .vocab = 1,
                                       .width = 1,
                                       .dtype = HST_F32,
                                       .ids = &id,
                                       .weight = &row,
                                       .out = &out};
    return behind->embedding(stream, &args);
}

static int far_copy(struct hst_stream *stream, void *dst, const void *src, size_t size_bytes)
{
    trouble.copies++;
    if (trouble.copies == trouble.refuse_at)
        return -EIO;
    int rc = trouble.delay_seed ? delay(stream) : 0;
    if (rc == 0 && trouble.copies == trouble.fail_at)
        rc = fail_later(stream);
    return rc ? rc : behind->stream_copy(stream, dst, src, size_bytes);
}

/* ---- at a pace: for benchmarks, in which this takes a GPU's place ---- */

/* Time is what it stands for; no test waits for it. */
static void pace(double flops)
{
    const double seconds = flops / pace_flops;
    struct timespec wait = {.tv_sec = (time_t)seconds};
    wait.tv_nsec = (long)(1e9 * (seconds - (double)wait.tv_sec));
    while (nanosleep(&wait, &wait))
        ;
}

static int paced_matmul(struct host_dev *dev, const void *args)
{
    (void)dev;
    const struct hst_matmul *a = args;
    const size_t bytes = hst_dtype_bytes(a->c.dtype);
    for (size_t row = 0; row < a->m && !a->accumulate; row++)
        memset((char *)a->c.data + row * a->c.ld * bytes, 0, a->n * bytes);
    pace(2.0 * (double)a->m * (double)a->n * (double)a->k);
    return 0;
}

static double attention_flops(const struct hst_attention *a)
{
    return 2.0 * (double)(a->batch * a->heads) * (double)a->seq * (double)a->seq *
           (double)a->head_dim;
}

static int paced_attention(struct host_dev *dev, const void *args)
{
    (void)dev;
    const struct hst_attention *a = args;
    const size_t rows = a->batch * a->seq * a->heads;
    memset(a->o, 0, rows * a->head_dim * hst_dtype_bytes(a->dtype));
    memset(a->lse, 0, rows * sizeof *a->lse);
    pace(attention_flops(a));
    return 0;
}

static int paced_attention_backward(struct host_dev *dev, const void *args)
{
    (void)dev;
    const struct hst_attention_backward *b = args;
    const struct hst_attention *a = &b->forward;
    const size_t row_bytes = a->head_dim * hst_dtype_bytes(a->dtype);
    memset(b->dq, 0, a->batch * a->seq * a->heads * row_bytes);
    memset(b->dk, 0, a->batch * a->seq * a->kv_heads * row_bytes);
    memset(b->dv, 0, a->batch * a->seq * a->kv_heads * row_bytes);
    pace(2.5 * attention_flops(a));
    return 0;
}

static void take_pace(struct host_math *math)
{
    math->matmul = paced_matmul;
    math->attention = paced_attention;
    math->attention_backward = paced_attention_backward;
}

static void read_trouble(void)
{
    const char *words = getenv("HOISTWAY_FAR");
    double gflops = 0;
    memset(&trouble, 0, sizeof trouble);
    if (words && sscanf(words, "delay:%llu", &trouble.delay_seed) != 1 &&
        sscanf(words, "late:%u", &trouble.late) != 1 &&
        sscanf(words, "refuse:%u", &trouble.refuse_at) != 1 &&
        sscanf(words, "fail:%u", &trouble.fail_at) != 1)
        sscanf(words, "pace:%lf", &gflops);
    pace_flops = 1e9 * gflops;
}

static void far_info(struct hst_dev *dev, struct hst_dev_info *info)
{
    struct hst_dev_usage usage;
    hst_dev_usage(dev, &usage);
    *info = (struct hst_dev_info){.model = "the host, from afar",
                                  .numa_node = -1,
                                  .memory_total_bytes = FAR_BYTES,
                                  .memory_free_bytes = FAR_BYTES - usage.memory_bytes};
}

static enum hst_cpu_type cpu_type(enum hst_dtype dtype)
{
    return dtype == HST_BF16 ? HST_CPU_BF16 : dtype == HST_F16 ? HST_CPU_F16 : HST_CPU_F32;
}

/* ---- the two that the host leaves to cpu_adam ---- */

/* What is queued before it runs first. */
static int far_norm2(struct hst_stream *stream, const struct hst_norm2 *args)
{
    const struct hst_cpu_adam_ops *ops = hst_cpu_adam_ops(HST_CPU_ISA_AUTO);
    int rc = hst_stream_sync(stream);
    if (rc == 0)
        ops->norm2[cpu_type(args->dtype)](args->x, args->count, args->partial);
    return rc;
}

/* More than a stream has room for: none is taken anew before it has run. */
enum { UPDATES = 4096 };

struct update {
    struct hst_update_kind kind;
    struct hst_adam_coef coef;
    struct hst_update_arrays arrays;
    uint64_t count;
};

/* An embedding of these ids is an update in its turn on the stream: `out` is its struct update. */
static const uint32_t NO_IDS;
static host_op *embedding;

static int embedding_or_update(struct host_dev *dev, const void *args)
{
    const struct hst_embedding *a = args;
    if (a->ids != &NO_IDS)
        return embedding(dev, args);
    const struct update *u = a->out;
    const struct hst_cpu_adam_ops *ops = hst_cpu_adam_ops(HST_CPU_ISA_AUTO);
    int rc = hst_update_run(hst_update_find(ops, u->kind), &u->coef, &u->arrays, u->count);
    return rc < 0 ? rc : 0; /* a device does not count the weights that are not finite */
}

static int far_optimize(struct hst_stream *stream, const struct hst_optimize *a)
{
    static struct update queued[UPDATES];
    static unsigned next;
    struct update *u = &queued[next++ % UPDATES];
    *u = (struct update){
        .kind = {.optimizer = (enum hst_optimizer)a->optimizer,
                 .weights = cpu_type(a->dtype),
                 .moments = a->m_scales ? HST_CPU_CODE : HST_CPU_F32,
                 .grads = cpu_type(a->dtype)},
        .coef = {.grad_scale = a->grad_scale,
                 .beta1_hi = a->beta1_hi,
                 .beta1_lo = a->beta1_lo,
                 .one_minus_beta1 = a->one_minus_beta1,
                 .beta2_hi = a->beta2_hi,
                 .beta2_lo = a->beta2_lo,
                 .one_minus_beta2 = a->one_minus_beta2,
                 .inv_sqrt_bias2 = a->inv_sqrt_bias2,
                 .eps = a->eps,
                 .decay = a->decay,
                 .l2 = a->l2,
                 .step_size = a->step_size},
        .arrays = {.weights = a->weight,
                   .master = a->dtype == HST_F16 ? (void *)a->master : a->remainder,
                   .m = a->m,
                   .v = a->v,
                   .grads = a->grad,
                   .m_scales = a->m_scales,
                   .v_scales = a->v_scales},
        .count = a->count,
    };
    int rc = trouble.delay_seed ? delay(stream) : work(stream, trouble.late);
    return rc ? rc : behind->embedding(stream, &(struct hst_embedding){.ids = &NO_IDS, .out = u});
}

static void take_math(struct host_dev *host)
{
    static struct host_math math;
    math = *host->math;
    embedding = math.embedding;
    math.embedding = embedding_or_update;
    if (pace_flops > 0)
        take_pace(&math);
    host->math = &math;
}

/* Ranks of a node have one each. */
enum { DEVICES = 16 };

static int far_open(const struct hst_dev_config *config, struct hst_dev **dev,
                    struct hst_dev_failure *failure)
{
    struct hst_dev_config only = *config;
    struct hst_dev *host;
    only.index = config->index < DEVICES ? 0 : config->index; /* the host is one device, and no 1 */
    int rc = hst_dev_host_open(&only, &host);
    if (rc) {
        *failure = (struct hst_dev_failure){.why = HST_DEV_NO_DEVICE, .text = "no host device"};
        return rc;
    }
    read_trouble();
    take_math(host_dev_of(host));
    behind = host->ops;
    table = *host->ops;
    table.name = "far";
    table.flags = 0;
    table.info = far_info;
    table.stream_copy = far_copy;
    table.norm2 = far_norm2;
    table.optimize = far_optimize;
    host->ops = &table;
    *dev = host;
    return 0;
}

extern const struct hst_dev_plugin hst_dev_plugin;
const struct hst_dev_plugin hst_dev_plugin = {
    .size = sizeof(struct hst_dev_plugin),
    .version = FAR_VERSION,
    .ops_size = sizeof(struct hst_dev_ops),
    .open = far_open,
};
