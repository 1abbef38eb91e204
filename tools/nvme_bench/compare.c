/* SPDX-License-Identifier: Apache-2.0 */
/* Two results side by side: what matters for training, the second in terms of the first. */
#include "nvme_bench/report.h"

#include "cli/json.h"

#include <math.h>
#include <string.h>

struct row {
    char name[64];
    const char *unit; /* "B/s", "ns" or "s/GB" */
    double a, b;
};
#define MAX_ROWS 40u

struct rows {
    struct row rows[MAX_ROWS];
    size_t count;
};

static void add(struct rows *rows, const char *name, const char *unit, double a, double b)
{
    if (rows->count == MAX_ROWS || (isnan(a) && isnan(b)))
        return;
    struct row *row = &rows->rows[rows->count++];
    *row = (struct row){.unit = unit, .a = a, .b = b};
    snprintf(row->name, sizeof row->name, "%s", name);
}

/* A phase's rate, of the first drive or of all. */
static double rate(const struct nb_result *r, enum nb_phase phase, enum nb_kind kind)
{
    const struct nb_point *p = nb_find(r, phase, kind, phase == NB_STRIPED ? NB_ALL_DRIVES : 0);
    return p ? p->rate : (double)NAN;
}

static double latency(const struct nb_result *r, enum nb_kind kind, enum nb_percentile which)
{
    const struct nb_point *p = nb_find(r, NB_SWEEP, kind, 0);
    return p ? p->latency_ns[which] : (double)NAN;
}

static double cpu(const struct nb_result *r, enum nb_kind kind)
{
    const struct nb_point *p = nb_find(r, NB_SWEEP, kind, 0);
    return p ? p->cpu_s_per_gb : (double)NAN;
}

static void collect(const struct nb_result *a, const struct nb_result *b, struct rows *rows)
{
    char name[64];
    for (uint32_t k = 0; k < NB_KINDS; k++) {
        enum nb_kind kind = (enum nb_kind)k;
        snprintf(name, sizeof name, "best %s of the sweep", nb_kind_names[k]);
        add(rows, name, "B/s", nb_ceiling(a, kind, 0), nb_ceiling(b, kind, 0));
    }
    for (uint32_t phase = NB_STEADY; phase < NB_PHASES; phase++)
        for (uint32_t k = 0; k < NB_KINDS; k++) {
            snprintf(name, sizeof name, "%s %s", nb_phase_names[phase], nb_kind_names[k]);
            add(rows, name, "B/s", rate(a, (enum nb_phase)phase, (enum nb_kind)k),
                rate(b, (enum nb_phase)phase, (enum nb_kind)k));
        }
    add(rows, "write after a rest", "B/s", a->drives[0].sustained.recovered,
        b->drives[0].sustained.recovered);
    for (uint32_t k = 0; k < NB_KINDS; k++) {
        enum nb_kind kind = (enum nb_kind)k;
        snprintf(name, sizeof name, "%s latency p50", nb_kind_names[k]);
        add(rows, name, "ns", latency(a, kind, NB_P50), latency(b, kind, NB_P50));
        snprintf(name, sizeof name, "%s latency p99", nb_kind_names[k]);
        add(rows, name, "ns", latency(a, kind, NB_P99), latency(b, kind, NB_P99));
        snprintf(name, sizeof name, "%s CPU time", nb_kind_names[k]);
        add(rows, name, "s/GB", cpu(a, kind), cpu(b, kind));
    }
}

static void format_value(double value, const char *unit, char dst[32])
{
    if (strcmp(unit, "B/s") == 0)
        nb_rate_text(value, dst);
    else if (strcmp(unit, "ns") == 0)
        snprintf(dst, 32, "%.0f us", value / 1e3);
    else
        snprintf(dst, 32, "%.4f s/GB", value);
}

static void print_rows(const struct rows *rows, const char *const names[2], FILE *out)
{
    fprintf(out, "A: %s\nB: %s\n\n%-24s %14s %14s %8s\n", names[0], names[1], "", "A", "B", "B/A");
    for (size_t i = 0; i < rows->count; i++) {
        const struct row *row = &rows->rows[i];
        char a[32], b[32];
        format_value(row->a, row->unit, a);
        format_value(row->b, row->unit, b);
        fprintf(out, "%-24s %14s %14s %8.2f\n", row->name, a, b, row->b / row->a);
    }
}

void nb_compare(const struct nb_result *a, const struct nb_result *b, const char *const names[2],
                bool as_json, FILE *out)
{
    struct json_writer json = {.out = out};
    struct rows rows = {.count = 0};
    collect(a, b, &rows);
    if (!as_json) {
        print_rows(&rows, names, out);
        return;
    }
    json_put_object(&json, NULL);
    json_put_text(&json, "a", names[0]);
    json_put_text(&json, "b", names[1]);
    json_put_array(&json, "rows");
    for (size_t i = 0; i < rows.count; i++) {
        json_put_object(&json, NULL);
        json_put_text(&json, "case", rows.rows[i].name);
        json_put_text(&json, "unit", rows.rows[i].unit);
        json_put_real(&json, "a", rows.rows[i].a);
        json_put_real(&json, "b", rows.rows[i].b);
        json_put_real(&json, "ratio", rows.rows[i].b / rows.rows[i].a);
        json_put_end(&json);
    }
    json_put_end(&json);
    json_put_end(&json);
    fputc('\n', out);
}
