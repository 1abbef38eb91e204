/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a result that nb_report_json wrote. Nothing in the file is trusted: counts are bounded,
 * rates those that a drive can have, names among those known; what is judged from windows is judged
 * again.
 */
#include "nvme_bench/judge.h"
#include "nvme_bench/report/report.h"

#include "base/utf8.h"
#include "hf/json/input.h"
#include "hf/json/json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BYTES  (16u << 20)
#define MAX_KEYS   65536u
#define MOST       1e18 /* no number of ours is greater */
#define MOST_RATE  1e15 /* bytes/s; what is slower than one byte, or as fast as this, is no drive */
#define MAX_FIELDS 24u

enum field_type {
    FIELD_TEXT,
    FIELD_U32,
    FIELD_U64,
    FIELD_REAL,
    FIELD_RATE,
    FIELD_BOOL,
    FIELD_NODE
};

/* A key of an object and where its value goes. Reals may be null (NAN), texts too (""). */
struct field {
    const char *key;
    enum field_type type;
    void *to;
    size_t bytes; /* of a text */
};

struct source {
    const char *path, *text;
    struct hst_error *error;
};

static int refuse(const struct source *s, const char *key)
{
    return fail(s->error, FAIL_VALUE, -EBADMSG,
                "'%.200s' is not a result of nvme-bench ('%.60s' is missing or has a bad value). "
                "Fix: give a file written by nvme-bench --json.",
                s->path, key);
}

/* It refuses what has a type or a magnitude that its key cannot have. */
static int refuse_value(const struct source *s, const struct field *f, struct jsn_value v)
{
    int shown = v.end - v.begin < 40 ? (int)(v.end - v.begin) : 40;
    return fail(s->error, FAIL_VALUE, -EBADMSG,
                "'%.200s' is not a result of nvme-bench ('%.60s' is %.*s%s). Fix: give a file "
                "written by nvme-bench --json.",
                s->path, f->key, shown, s->text + v.begin,
                f->type == FIELD_RATE ? "; a rate is 1 to 1e15 bytes/s" : "");
}

static bool read_text(const struct source *s, struct jsn_value v, char *dst, size_t bytes)
{
    if (v.type != JSN_STRING || v.end - v.begin >= bytes)
        return false;
    size_t n = jsn_unescape(s->text + v.begin, v.end - v.begin, dst);
    return utf8_all_shown(dst, n); /* reports print it as it is */
}

static bool read_whole(const struct source *s, struct jsn_value v, uint64_t most, uint64_t *to)
{
    return v.type == JSN_NUMBER && jsn_u64(s->text, v, to) && *to <= most;
}

static bool read_field(const struct source *s, struct jsn_value v, const struct field *f)
{
    uint64_t whole = 0;
    bool null = v.type == JSN_NULL;
    switch (f->type) {
    case FIELD_TEXT:
        return null || read_text(s, v, f->to, f->bytes);
    case FIELD_U32:
        if (!read_whole(s, v, UINT32_MAX - 1, &whole))
            return false;
        *(uint32_t *)f->to = (uint32_t)whole;
        return true;
    case FIELD_U64:
        return read_whole(s, v, (uint64_t)MOST, f->to);
    case FIELD_NODE:
        *(int *)f->to = -1;
        if (!null && !read_whole(s, v, 4096, &whole))
            return false;
        *(int *)f->to = null ? -1 : (int)whole;
        return true;
    case FIELD_REAL:
        *(double *)f->to = NAN;
        return null || (v.type == JSN_NUMBER && jsn_real(s->text, v, f->to) &&
                        *(double *)f->to >= 0 && *(double *)f->to <= MOST);
    case FIELD_RATE:
        *(double *)f->to = NAN;
        return null || (v.type == JSN_NUMBER && jsn_real(s->text, v, f->to) &&
                        *(double *)f->to >= 1 && *(double *)f->to <= MOST_RATE);
    case FIELD_BOOL:
        *(bool *)f->to = v.type == JSN_TRUE;
        return v.type == JSN_TRUE || v.type == JSN_FALSE;
    }
    return false;
}

static int read_fields(const struct source *s, struct jsn_value object, const struct field *fields,
                       size_t count)
{
    const char *keys[MAX_FIELDS];
    struct jsn_value values[MAX_FIELDS];
    for (size_t i = 0; i < count; i++)
        keys[i] = fields[i].key;
    if (object.type != JSN_OBJECT)
        return refuse(s, "an object");
    jsn_members(s->text + object.begin, object.end - object.begin, keys, count, values);
    for (size_t i = 0; i < count; i++) {
        values[i].begin += object.begin;
        values[i].end += object.begin;
        if (values[i].type == JSN_ERROR)
            return refuse(s, keys[i]);
        if (!read_field(s, values[i], &fields[i]))
            return refuse_value(s, &fields[i], values[i]);
    }
    return 0;
}

/* A member that is an object or an array, with offsets in the whole text. */
static struct jsn_value member(const struct source *s, struct jsn_value object, const char *key)
{
    struct jsn_value value;
    jsn_members(s->text + object.begin, object.end - object.begin, &key, 1, &value);
    value.begin += object.begin;
    value.end += object.begin;
    return value;
}

#define COUNT_OF(a) (sizeof(a) / sizeof(a)[0])

static int read_shape(const struct source *s, struct jsn_value object, struct nb_shape *shape)
{
    const struct field fields[] = {
        {"block_bytes", FIELD_U32, &shape->block_bytes, 0},
        {"depth", FIELD_U32, &shape->depth, 0},
        {"threads", FIELD_U32, &shape->threads, 0},
    };
    return read_fields(s, object, fields, COUNT_OF(fields));
}

/* Calls `each` with the elements of an array, at most `most`; its number is returned in *count. */
static int read_array(const struct source *s, struct jsn_value array, const char *key, size_t most,
                      int (*each)(const struct source *, struct jsn_value, size_t, void *),
                      void *to, uint32_t *count)
{
    *count = 0;
    if (array.type != JSN_ARRAY)
        return refuse(s, key);
    struct jsn_reader reader = jsn_reader(s->text + array.begin, array.end - array.begin);
    (void)jsn_next(&reader); /* '[' */
    while (true) {
        struct jsn_value v = jsn_next_value(&reader);
        if (v.type == JSN_ARRAY_END)
            return 0;
        if (v.type == JSN_ERROR || *count == most)
            return refuse(s, key);
        v.begin += array.begin;
        v.end += array.begin;
        int rc = each(s, v, (*count)++, to);
        if (rc)
            return rc;
    }
}

static int read_rate(const struct source *s, struct jsn_value v, size_t index, void *to)
{
    double *rates = to;
    const struct field field = {"rates", FIELD_RATE, &rates[index], 0};
    return read_field(s, v, &field) && !isnan(rates[index]) ? 0 : refuse_value(s, &field, v);
}

static int read_sustained(const struct source *s, struct jsn_value object,
                          struct nb_sustained *sustained)
{
    const struct field fields[] = {
        {"window_bytes", FIELD_U64, &sustained->window_bytes, 0},
        {"idle_s", FIELD_REAL, &sustained->idle_s, 0},
        {"recovered", FIELD_RATE, &sustained->recovered, 0},
    };
    int rc = read_fields(s, object, fields, COUNT_OF(fields));
    rc = rc ? rc
            : read_array(s, member(s, object, "rates"), "rates", NB_MAX_WINDOWS, read_rate,
                         sustained->rates, &sustained->windows);
    if (!rc && sustained->windows && sustained->window_bytes > (uint64_t)MOST / NB_MAX_WINDOWS)
        return refuse(s, "window_bytes");
    if (!rc)
        nb_sustained_judge(sustained);
    return rc;
}

static int read_drive(const struct source *s, struct jsn_value v, size_t index, void *to)
{
    struct nb_drive *d = (struct nb_drive *)to + index;
    const struct field fields[] = {
        {"path", FIELD_TEXT, d->path, sizeof d->path},
        {"model", FIELD_TEXT, d->model, sizeof d->model},
        {"device", FIELD_TEXT, d->device, sizeof d->device},
        {"disks", FIELD_TEXT, d->disks, sizeof d->disks},
        {"file_system", FIELD_TEXT, d->file_system, sizeof d->file_system},
        {"mount", FIELD_TEXT, d->mount, sizeof d->mount},
        {"link", FIELD_TEXT, d->link, sizeof d->link},
        {"link_most", FIELD_TEXT, d->link_most, sizeof d->link_most},
        {"numa_node", FIELD_NODE, &d->numa_node, 0},
        {"backend", FIELD_TEXT, d->backend, sizeof d->backend},
        {"direct", FIELD_BOOL, &d->direct, 0},
        {"in_memory", FIELD_BOOL, &d->in_memory, 0},
        {"simulated", FIELD_BOOL, &d->simulated, 0},
        {"size_bytes", FIELD_U64, &d->size_bytes, 0},
        {"free_bytes", FIELD_U64, &d->free_bytes, 0},
        {"verified_bytes", FIELD_U64, &d->verified_bytes, 0},
    };
    int rc = read_fields(s, v, fields, COUNT_OF(fields));
    rc = rc ? rc : read_shape(s, member(s, v, "best"), &d->best);
    return rc ? rc : read_sustained(s, member(s, v, "sustained"), &d->sustained);
}

static bool index_of(const char *name, const char *const *names, size_t count, uint32_t *index)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(name, names[i]) == 0) {
            *index = i;
            return true;
        }
    }
    return false;
}

static int read_latencies(const struct source *s, struct jsn_value object, double *latencies)
{
    struct field fields[NB_PERCENTILES];
    for (size_t i = 0; i < NB_PERCENTILES; i++)
        fields[i] = (struct field){nb_percentile_names[i], FIELD_REAL, &latencies[i], 0};
    return read_fields(s, object, fields, NB_PERCENTILES);
}

static int read_case(const struct source *s, struct jsn_value v, size_t index, void *to)
{
    struct nb_point *p = (struct nb_point *)to + index;
    char phase_name[16] = "", kind_name[16] = "";
    uint32_t phase = 0, kind = 0, drive = NB_ALL_DRIVES;
    const struct field fields[] = {
        {"phase", FIELD_TEXT, phase_name, sizeof phase_name},
        {"kind", FIELD_TEXT, kind_name, sizeof kind_name},
        {"value", FIELD_RATE, &p->rate, 0},
        {"bytes", FIELD_U64, &p->bytes, 0},
        {"seconds", FIELD_REAL, &p->seconds, 0},
        {"cpu_s_per_gb", FIELD_REAL, &p->cpu_s_per_gb, 0},
    };
    const struct field drive_field = {"drive", FIELD_U32, &drive, 0};
    int rc = read_fields(s, v, fields, COUNT_OF(fields));
    rc = rc ? rc : read_shape(s, v, &p->shape);
    rc = rc ? rc : read_latencies(s, member(s, v, "latency_ns"), p->latency_ns);
    if (rc)
        return rc;
    struct jsn_value number = member(s, v, "drive");
    if (number.type != JSN_NULL && !read_field(s, number, &drive_field))
        return refuse(s, "drive");
    if (!index_of(phase_name, nb_phase_names, NB_PHASES, &phase) ||
        !index_of(kind_name, nb_kind_names, NB_KINDS, &kind) || isnan(p->rate) ||
        (phase == NB_STRIPED) != (drive == NB_ALL_DRIVES))
        return refuse(s, "cases");
    if (phase != NB_STRIPED && (!p->shape.block_bytes || !p->shape.depth || !p->shape.threads))
        return refuse(s, "block_bytes, depth, threads");
    p->phase = (enum nb_phase)phase;
    p->kind = (enum nb_kind)kind;
    p->drive = drive;
    return 0;
}

static int read_result(const struct source *s, size_t size, struct nb_result *r)
{
    const struct jsn_value whole = {JSN_OBJECT, 0, size};
    char program[16] = "";
    uint32_t format = 0;
    const struct field fields[] = {
        {"program", FIELD_TEXT, program, sizeof program},
        {"format", FIELD_U32, &format, 0},
        {"version", FIELD_TEXT, r->version, sizeof r->version},
        {"date", FIELD_TEXT, r->date, sizeof r->date},
        {"kernel", FIELD_TEXT, r->kernel, sizeof r->kernel},
        {"cores", FIELD_U32, &r->cores, 0},
        {"quick", FIELD_BOOL, &r->quick, 0},
        {"file_bytes", FIELD_U64, &r->file_bytes, 0},
        {"written_bytes", FIELD_U64, &r->written_bytes, 0},
    };
    int rc = read_fields(s, whole, fields, COUNT_OF(fields));
    if (!rc && (strcmp(program, "nvme-bench") != 0 || format != 1))
        return refuse(s, "program, format");
    rc = rc ? rc
            : read_array(s, member(s, whole, "drives"), "drives", NB_MAX_DRIVES, read_drive,
                         r->drives, &r->drive_count);
    rc = rc ? rc
            : read_array(s, member(s, whole, "cases"), "cases", NB_MAX_POINTS, read_case, r->points,
                         &r->point_count);
    if (!rc && r->drive_count == 0)
        return refuse(s, "drives");
    for (uint32_t i = 0; !rc && i < r->point_count; i++)
        if (r->points[i].drive != NB_ALL_DRIVES && r->points[i].drive >= r->drive_count)
            return refuse(s, "drive");
    return rc;
}

static int read_file(const char *path, char **text, size_t *size, struct hst_error *error)
{
    struct input input;
    int rc = input_open_path(path, &input);
    if (!rc) {
        rc = input_read_all(&input, MAX_BYTES, text);
        *size = input.size_bytes;
        input_close(&input);
    }
    return rc ? fail(error, FAIL_READ, rc,
                     "'%.200s' cannot be read (%s). Fix: give a file written by nvme-bench "
                     "--json.",
                     path,
                     rc == -EFBIG    ? "more than 16 MiB"
                     : rc == -EINVAL ? "not a regular file"
                                     : strerror(-rc))
              : 0;
}

int nb_result_load(const char *path, struct nb_result *result, struct hst_error *error)
{
    char *text = NULL, where[80];
    size_t size = 0;
    struct jsn_fault fault;
    int rc = read_file(path, &text, &size, error);
    if (rc || !text)
        return rc;
    const struct source source = {path, text, error};
    *result = (struct nb_result){0};
    rc = jsn_check(text, size, MAX_KEYS, &fault);
    snprintf(where, sizeof where, "%.63s", fault.key);
    if (!fault.key[0])
        snprintf(where, sizeof where, "byte %zu", fault.at);
    if (rc)
        rc =
            fail(error, FAIL_VALUE, rc,
                 "'%.200s' is not a result of nvme-bench (it has %s: %s). Fix: give a file written "
                 "by nvme-bench --json.",
                 path, fault.why, where);
    else
        rc = read_result(&source, size, result);
    free(text);
    return rc;
}
