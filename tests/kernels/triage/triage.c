/* SPDX-License-Identifier: Apache-2.0 */
/* See triage.h. The sequence lies on the device once per kind; operands are copies of it. */
#include "triage.h"
#include "half.h"
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

enum { KINDS = 4, POSITIVE = 3, POOL_BYTES = TRIAGE_PERIOD * 4, ARRAYS = 512 };
#define ONES_BYTES      ((size_t)16 << 20)
#define UNLIMITED_BYTES ((uint64_t)1 << 60)

static struct triage ground;
static struct {
    char *host[KINDS]; /* f32, bf16, f16, positive f32 */
    void *device[KINDS], *ones;
    double value[KINDS][65536]; /* of each pattern of 16 bits */
} pool;
static bool ready; /* all of the above is on the device */
static double *arrays[ARRAYS];
static size_t array_count;

/* ---- shapes ---------------------------------------------------------------------------------- */

static size_t scale(void)
{
    const char *text = getenv("HST_TRIAGE_SCALE");
    long value = text && *text ? strtol(text, NULL, 10) : 1;
    if (value < 1 || value > 64 || (value & (value - 1)))
        fail_msg("HST_TRIAGE_SCALE is \"%s\": not a power of two from 1 to 64", text);
    return (size_t)value;
}

struct triage_shape triage_shape(enum triage_size size)
{
    if (size == TRIAGE_SMALL)
        return (struct triage_shape){3, 13, 39, 69, 103, 131, 6, 2, 12, 7, 1237};
    size_t by = scale(), heads = by < 8 ? 32 / by : 4;
    struct triage_shape s = {.batch = 1,
                             .seq = 8192 / by,
                             .hidden = 4096 / by,
                             .ffn = 14336 / by,
                             .vocab = 128256 / by,
                             .heads = heads,
                             .kv_heads = heads / 4,
                             .head_dim = 128,
                             .rows_of_logits = 1024 / by};
    if (size == TRIAGE_BEYOND) {
        size_t beyond = ((size_t)1 << 31) / (by * by) + 4096;
        s.seq = 128 / (by < 8 ? by : 8);
        s.batch = beyond / (s.seq * s.hidden) + 1;
        s.rows_of_logits = beyond / s.vocab + 1;
        s.count = beyond;
    }
    s.tokens = s.batch * s.seq;
    if (size == TRIAGE_REAL)
        s.count = s.tokens * s.ffn;
    return s;
}

/* ---- the sequence ---------------------------------------------------------------------------- */

static uint32_t hash(uint32_t x)
{
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

/* Numbers of [-1, 1) that the dtype holds exactly: multiples of 2^-23, 2^-7 and 2^-10. */
static void pool_fill(void)
{
    static uint16_t bf16[256], f16[2048];
    for (int i = 0; i < 256; i++)
        bf16[i] = half_round(HST_BF16, (i - 128) * 0x1p-7);
    for (int i = 0; i < 2048; i++)
        f16[i] = half_round(HST_F16, (i - 1024) * 0x1p-10);
    for (uint32_t i = 0; i < 65536; i++) {
        pool.value[1][i] = half_value(HST_BF16, (uint16_t)i);
        pool.value[2][i] = half_value(HST_F16, (uint16_t)i);
    }
    for (uint32_t i = 0; i < TRIAGE_PERIOD; i++) {
        uint32_t bits = hash(i + 1);
        ((float *)pool.host[0])[i] = (float)((int32_t)(bits >> 8) - (1 << 23)) * 0x1p-23f;
        ((uint16_t *)pool.host[1])[i] = bf16[bits >> 24];
        ((uint16_t *)pool.host[2])[i] = f16[bits >> 21];
        ((float *)pool.host[POSITIVE])[i] = (float)((bits >> 8) + 1) * 0x1p-24f;
    }
}

static size_t kind_of(const struct operand *of)
{
    return of->positive ? POSITIVE : (size_t)(of->dtype - HST_F32);
}

/* A device that dies leaves no numbers to tell: the shapes are what is known of the case. */
static void tell_shapes(const struct triage *t)
{
    static const char *const types[] = {[HST_F32] = "f32", [HST_BF16] = "bf16", [HST_F16] = "f16"};
    print_message("operands:");
    for (size_t i = 0; i < t->operand_count; i++)
        print_message(" %s %s[%zu x %zu]", t->operands[i].name, types[t->operands[i].dtype],
                      t->operands[i].rows, t->operands[i].columns);
    print_message("\n");
}

void triage_sync(struct triage *t)
{
    int rc = hst_stream_sync(t->stream);
    if (rc)
        tell_shapes(t);
    assert_int_equal(rc, 0);
}

static void copy(void *to, const void *from, size_t size_bytes)
{
    assert_int_equal(hst_stream_copy(ground.stream, to, from, size_bytes), 0);
}

static void ground_open(void)
{
    struct triage *t = &ground;
    assert_int_equal(suite_open(UNLIMITED_BYTES, UNLIMITED_BYTES, NULL, &t->dev), 0);
    assert_int_equal(hst_dev_host_alloc(t->dev, TRIAGE_STAGING_BYTES, (void **)&t->staging), 0);
    assert_int_equal(hst_dev_mem_alloc(t->dev, ONES_BYTES, &pool.ones), 0);
    assert_int_equal(hst_stream_create(t->dev, "triage", &t->stream), 0);
    for (size_t i = 0; i < KINDS; i++)
        assert_int_equal(hst_dev_mem_alloc(t->dev, POOL_BYTES, &pool.device[i]), 0);
    if (!pool.host[0]) {
        for (size_t i = 0; i < KINDS; i++)
            assert_non_null(pool.host[i] = malloc(POOL_BYTES));
        pool_fill();
    }
    for (size_t i = 0; i < KINDS; i++) {
        size_t bytes = i == 1 || i == 2 ? POOL_BYTES / 2 : POOL_BYTES;
        memcpy(t->staging, pool.host[i], bytes);
        copy(pool.device[i], t->staging, bytes);
        triage_sync(t);
    }
    memset(t->staging, 0xff, ONES_BYTES);
    copy(pool.ones, t->staging, ONES_BYTES);
    triage_sync(t);
    ready = true;
}

static size_t count_of(const struct operand *of)
{
    return of->rows * of->columns;
}

static size_t bytes_of(const struct operand *of)
{
    return count_of(of) * hst_dtype_bytes(of->dtype);
}

static void release(void)
{
    for (size_t i = 0; i < ground.operand_count; i++)
        hst_dev_mem_free(ground.dev, ground.operands[i].data,
                         bytes_of(&ground.operands[i]) + TRIAGE_GUARD_BYTES);
    ground.operand_count = ground.held_bytes = 0;
    ground.work = NULL;
    while (array_count)
        free(arrays[--array_count]);
}

struct triage *triage_begin(void)
{
    if (!ground.dev)
        ground_open();
    if (!ready)
        fail_msg("the device has no room for the inputs that the cases share");
    if (!ground.stream || hst_stream_sync(ground.stream)) { /* the case before ended in an error */
        if (ground.stream)
            hst_stream_destroy(&ground.stream);
        assert_int_equal(hst_stream_create(ground.dev, "triage", &ground.stream), 0);
        copy(ground.staging, pool.ones, TRIAGE_GUARD_BYTES); /* fails where the device is lost */
        triage_sync(&ground);
    }
    release();
    return &ground;
}

void triage_reopen(void)
{
    if (!ground.dev)
        return;
    release();
    hst_stream_destroy(&ground.stream);
    for (size_t i = 0; i < KINDS; i++)
        hst_dev_mem_free(ground.dev, pool.device[i], POOL_BYTES);
    hst_dev_mem_free(ground.dev, pool.ones, ONES_BYTES);
    hst_dev_host_free(ground.dev, ground.staging, TRIAGE_STAGING_BYTES);
    suite_close(&ground.dev);
    ready = false;
}

double *triage_doubles(size_t count)
{
    assert_true(array_count < ARRAYS);
    arrays[array_count] = calloc(count + 1, sizeof(double));
    assert_non_null(arrays[array_count]);
    return arrays[array_count++];
}

/* ---- operands -------------------------------------------------------------------------------- */

/* Of a device that does not say, as the host, what the machine has. A sixteenth is left to the
 * libraries, which load their code with the first call. */
static uint64_t room_bytes(struct triage *t)
{
    struct hst_dev_info info;
    hst_dev_info(t->dev, &info);
    uint64_t free_bytes = info.memory_free_bytes;
    if (hst_dev_flags(t->dev) & HST_DEV_HOST_MEMORY)
        free_bytes = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    return free_bytes - free_bytes / 16;
}

static struct operand *place(struct triage *t, struct operand made)
{
    assert_true(t->operand_count < TRIAGE_OPERANDS);
    size_t bytes = bytes_of(&made) + TRIAGE_GUARD_BYTES;
    uint64_t room = room_bytes(t);
    if (bytes > room || hst_dev_mem_alloc(t->dev, bytes, &made.data) != 0) {
        print_message("skipped: it wants %zu bytes of device memory and more, %llu are free\n",
                      t->held_bytes + bytes, (unsigned long long)t->held_bytes + room);
        skip();
    }
    t->held_bytes += bytes;
    made.start = (size_t)hash((uint32_t)(t->operand_count + 77)) % TRIAGE_PERIOD;
    t->operands[t->operand_count] = made;
    for (size_t at = 0; at < bytes; at += ONES_BYTES)
        copy((char *)made.data + at, pool.ones, bytes - at < ONES_BYTES ? bytes - at : ONES_BYTES);
    return &t->operands[t->operand_count++];
}

static struct operand *filled(struct triage *t, struct operand made)
{
    struct operand *o = place(t, made);
    size_t element = hst_dtype_bytes(o->dtype), count = count_of(o), from = o->start, piece;
    for (size_t at = 0; at < count; at += piece, from = 0) {
        piece = TRIAGE_PERIOD - from < count - at ? TRIAGE_PERIOD - from : count - at;
        copy((char *)o->data + at * element, (char *)pool.device[kind_of(o)] + from * element,
             piece * element);
    }
    return o;
}

struct operand *triage_input(struct triage *t, const char *name, size_t rows, size_t columns,
                             enum hst_dtype dtype)
{
    return filled(
        t, (struct operand){
               .name = name, .rows = rows, .columns = columns, .dtype = dtype, .input = true});
}

struct operand *triage_positive(struct triage *t, const char *name, size_t rows, size_t columns)
{
    return filled(t, (struct operand){.name = name,
                                      .rows = rows,
                                      .columns = columns,
                                      .dtype = HST_F32,
                                      .positive = true,
                                      .input = true});
}

struct operand *triage_output(struct triage *t, const char *name, size_t rows, size_t columns,
                              enum hst_dtype dtype)
{
    return place(t,
                 (struct operand){.name = name, .rows = rows, .columns = columns, .dtype = dtype});
}

struct hst_work triage_work(struct triage *t, size_t size_bytes)
{
    if (!size_bytes)
        return (struct hst_work){NULL, 0};
    struct operand *work = triage_output(t, "workspace", 1, (size_bytes + 3) / 4, HST_F32);
    work->input = true; /* it need not be written */
    return (struct hst_work){work->data, size_bytes};
}

uint32_t triage_id(const struct operand *ids, size_t index)
{
    size_t below = ids->start, count = count_of(ids);
    uint32_t bits = hash((uint32_t)index + 12345);
    if (index == 0 || index == count - 1)
        return index ? (uint32_t)(below - 1) : 0;
    return (uint32_t)((index % 4 == 1 ? hash(bits % 16) : bits) % below);
}

/* Words that follow from their index and `start`. */
static struct operand *words(struct triage *t, const char *name, size_t count, size_t start,
                             uint32_t (*word)(const struct operand *of, size_t index))
{
    struct operand *made = triage_output(t, name, count, 1, HST_F32);
    made->input = true;
    made->start = start;
    assert_true(count * 4 <= TRIAGE_STAGING_BYTES);
    triage_sync(t);
    for (size_t i = 0; i < count; i++)
        ((uint32_t *)t->staging)[i] = word(made, i);
    copy(made->data, t->staging, count * 4);
    triage_sync(t);
    return made;
}

struct operand *triage_ids(struct triage *t, const char *name, size_t count, size_t below)
{
    return words(t, name, count, below, triage_id);
}

uint32_t triage_first(const struct operand *documents, size_t index)
{
    /* where documents of the first sequence begin: 64ths of it, and tokens behind them; those of
       the others a token later each time */
    static const struct {
        size_t part, behind;
    } begins[] = {{3, 5}, {3, 6}, {16, 0}, {17, 1}, {40, 0}, {52, 3}};
    size_t seq = documents->start, token = index % seq, first = 0;
    if (token + 1 + seq / 32 >= seq)
        return UINT32_MAX;
    if (token + 1 + seq / 16 >= seq)
        return (uint32_t)token;
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        size_t begin = seq * begins[i].part / 64 + begins[i].behind + index / seq;
        first = begin <= token && begin > first ? begin : first;
    }
    return (uint32_t)first;
}

struct operand *triage_documents(struct triage *t, const char *name, size_t batch, size_t seq)
{
    return words(t, name, batch * seq, seq, triage_first);
}

double triage_value(const struct operand *of, size_t index)
{
    size_t kind = kind_of(of), at = (index + of->start) % TRIAGE_PERIOD;
    if (of->dtype == HST_F32)
        return ((const float *)pool.host[kind])[at];
    return pool.value[kind][((const uint16_t *)pool.host[kind])[at]];
}

void triage_values(const struct operand *of, size_t first, size_t count, double *values)
{
    size_t kind = kind_of(of), at = (first + of->start) % TRIAGE_PERIOD;
    for (size_t i = 0; i < count; i++, at++) {
        at = at == TRIAGE_PERIOD ? 0 : at;
        values[i] = of->dtype == HST_F32
                        ? ((const float *)pool.host[kind])[at]
                        : pool.value[kind][((const uint16_t *)pool.host[kind])[at]];
    }
}

void triage_input_bytes(const struct operand *of, size_t first, size_t count, void *bytes)
{
    size_t element = hst_dtype_bytes(of->dtype);
    for (size_t i = 0; i < count; i++)
        memcpy((char *)bytes + i * element,
               pool.host[kind_of(of)] + (first + i + of->start) % TRIAGE_PERIOD * element, element);
}

void triage_read_bytes(struct triage *t, const void *from, size_t size_bytes)
{
    assert_true(size_bytes <= TRIAGE_STAGING_BYTES);
    copy(t->staging, from, size_bytes);
    triage_sync(t);
}

void triage_read(struct triage *t, const struct operand *of, size_t first, size_t count,
                 double *values)
{
    size_t element = hst_dtype_bytes(of->dtype), piece;
    for (size_t at = 0; at < count; at += piece) {
        piece = TRIAGE_STAGING_BYTES / element;
        piece = piece < count - at ? piece : count - at;
        triage_read_bytes(t, (char *)of->data + (first + at) * element, piece * element);
        for (size_t i = 0; i < piece; i++)
            values[at + i] = of->dtype == HST_F32
                                 ? ((float *)t->staging)[i]
                                 : pool.value[kind_of(of)][((uint16_t *)t->staging)[i]];
    }
}

size_t triage_samples(size_t count, size_t *samples)
{
    if (count <= TRIAGE_SAMPLES) {
        for (size_t i = 0; i < count; i++)
            samples[i] = i;
        return count;
    }
    /* one of each 64th part; both ends in place of the outer ones */
    for (size_t i = 0; i < TRIAGE_SAMPLES; i++) {
        size_t from = count / TRIAGE_SAMPLES * i;
        samples[i] = from + hash((uint32_t)(i + count)) % (count / TRIAGE_SAMPLES);
    }
    samples[0] = 0;
    samples[TRIAGE_SAMPLES - 1] = count - 1;
    return TRIAGE_SAMPLES;
}
