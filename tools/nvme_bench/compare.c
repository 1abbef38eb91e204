/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which drives of two results belong together, and puts them side by side: what matters for
 * training, the second in terms of the first. What has no counterpart is said, never divided by.
 */
#include "nvme_bench/report/report.h"

#include "cli/log/json.h"

#include <math.h>
#include <string.h>

#define ROWS_PER_PAIR 16u
#define MAX_ROWS      (NB_MAX_DRIVES * ROWS_PER_PAIR + NB_KINDS)
#define MAX_NOTES     (4u * NB_MAX_DRIVES + 4u)

struct row {
    char name[64];
    const char *unit;             /* "B/s", "ns" or "s/GB" */
    const struct nb_pair *drives; /* null: all of them together */
    double a, b;                  /* NAN: not there */
};

struct comparison {
    const struct nb_result *a, *b;
    const char *const *names;
    struct nb_pair pairs[2 * NB_MAX_DRIVES];
    uint32_t pair_count;
    struct row rows[MAX_ROWS];
    size_t row_count;
    char notes[MAX_NOTES][NB_SENTENCE]; /* what cannot be compared, or not like for like */
    size_t note_count;
};

/* ---- pairs ---- */

/* It goes by what is known of a drive; two of one model differ in their disk's name. */
static bool is_same(const struct nb_drive *a, const struct nb_drive *b)
{
    if (a->simulated || b->simulated)
        return a->simulated && b->simulated && strcmp(a->path, b->path) == 0;
    return a->disks[0] && strcmp(a->disks, b->disks) == 0 && strcmp(a->model, b->model) == 0 &&
           a->size_bytes == b->size_bytes;
}

uint32_t nb_pair_drives(const struct nb_result *a, const struct nb_result *b,
                        struct nb_pair pairs[2 * NB_MAX_DRIVES])
{
    bool taken[NB_MAX_DRIVES] = {false};
    uint32_t count = a->drive_count, next = 0;
    for (uint32_t i = 0; i < a->drive_count; i++) {
        pairs[i] = (struct nb_pair){.a = i, .b = NB_NO_DRIVE};
        for (uint32_t j = 0; j < b->drive_count && pairs[i].b == NB_NO_DRIVE; j++) {
            if (taken[j] || !is_same(&a->drives[i], &b->drives[j]))
                continue;
            pairs[i].b = j;
            pairs[i].same = taken[j] = true;
        }
    }
    for (uint32_t i = 0; i < a->drive_count; i++) {
        while (next < b->drive_count && taken[next])
            next++;
        if (pairs[i].b == NB_NO_DRIVE && next < b->drive_count) {
            pairs[i].b = next;
            taken[next] = true;
        }
    }
    for (uint32_t j = 0; j < b->drive_count; j++)
        if (!taken[j])
            pairs[count++] = (struct nb_pair){.a = NB_NO_DRIVE, .b = j};
    return count;
}

/* ---- rows ---- */

/* Zero stands for "none" in what was not measured. */
static void add(struct comparison *c, const char *name, const char *unit,
                const struct nb_pair *drives, double a, double b)
{
    a = a > 0 ? a : (double)NAN;
    b = b > 0 ? b : (double)NAN;
    if (c->row_count == MAX_ROWS || (isnan(a) && isnan(b)))
        return;
    struct row *row = &c->rows[c->row_count++];
    *row = (struct row){.unit = unit, .drives = drives, .a = a, .b = b};
    snprintf(row->name, sizeof row->name, "%s", name);
}

static double rate(const struct nb_result *r, enum nb_phase phase, enum nb_kind kind,
                   uint32_t drive)
{
    const struct nb_point *p = nb_find(r, phase, kind, drive);
    return p ? p->rate : (double)NAN;
}

static double latency(const struct nb_result *r, enum nb_kind kind, uint32_t drive,
                      enum nb_percentile which)
{
    const struct nb_point *p = nb_find(r, NB_SWEEP, kind, drive);
    return p ? p->latency_ns[which] : (double)NAN;
}

static double cpu(const struct nb_result *r, enum nb_kind kind, uint32_t drive)
{
    const struct nb_point *p = nb_find(r, NB_SWEEP, kind, drive);
    return p ? p->cpu_s_per_gb : (double)NAN;
}

static void collect_pair(struct comparison *c, const struct nb_pair *p)
{
    const struct nb_result *a = c->a, *b = c->b;
    char name[64];
    for (uint32_t k = 0; k < NB_KINDS; k++) {
        enum nb_kind kind = (enum nb_kind)k;
        snprintf(name, sizeof name, "best %s of the sweep", nb_kind_names[k]);
        add(c, name, "B/s", p, nb_ceiling(a, kind, p->a), nb_ceiling(b, kind, p->b));
    }
    for (uint32_t k = 0; k < NB_KINDS; k++) {
        enum nb_kind kind = (enum nb_kind)k;
        snprintf(name, sizeof name, "steady %s", nb_kind_names[k]);
        add(c, name, "B/s", p, rate(a, NB_STEADY, kind, p->a), rate(b, NB_STEADY, kind, p->b));
    }
    add(c, "write after a rest", "B/s", p, a->drives[p->a].sustained.recovered,
        b->drives[p->b].sustained.recovered);
    for (uint32_t k = 0; k < NB_KINDS; k++) {
        enum nb_kind kind = (enum nb_kind)k;
        snprintf(name, sizeof name, "%s latency p50", nb_kind_names[k]);
        add(c, name, "ns", p, latency(a, kind, p->a, NB_P50), latency(b, kind, p->b, NB_P50));
        snprintf(name, sizeof name, "%s latency p99", nb_kind_names[k]);
        add(c, name, "ns", p, latency(a, kind, p->a, NB_P99), latency(b, kind, p->b, NB_P99));
        snprintf(name, sizeof name, "%s CPU time", nb_kind_names[k]);
        add(c, name, "s/GB", p, cpu(a, kind, p->a), cpu(b, kind, p->b));
    }
}

/* ---- notes ---- */

static char *new_note(struct comparison *c)
{
    return c->notes[c->note_count < MAX_NOTES ? c->note_count++ : MAX_NOTES - 1];
}

static void note_alone(struct comparison *c, const struct nb_pair *p)
{
    bool in_a = p->b == NB_NO_DRIVE;
    const struct nb_result *r = in_a ? c->a : c->b;
    uint32_t d = in_a ? p->a : p->b;
    snprintf(new_note(c), NB_SENTENCE, "drive %u of %c (%.200s) has no counterpart in %c", d,
             in_a ? 'A' : 'B', r->drives[d].path, in_a ? 'B' : 'A');
}

static void note_pair(struct comparison *c, const struct nb_pair *p)
{
    const struct nb_drive *a = &c->a->drives[p->a], *b = &c->b->drives[p->b];
    char one[48], other[48];
    nb_shape_text(&a->best, one);
    nb_shape_text(&b->best, other);
    if (strcmp(one, other) != 0)
        snprintf(new_note(c), NB_SENTENCE,
                 "drive %u of A and %u of B: the best shape is %s in A and %s in B; steady rates, "
                 "latencies and CPU times are of these",
                 p->a, p->b, one, other);
    if (a->direct != b->direct)
        snprintf(new_note(c), NB_SENTENCE,
                 "drive %u of A and %u of B: without O_DIRECT, %c is the page cache's numbers",
                 p->a, p->b, a->direct ? 'B' : 'A');
}

static void note_runs(struct comparison *c)
{
    if (c->a->quick != c->b->quick)
        snprintf(new_note(c), NB_SENTENCE, "%c is a quick run, %c is not", c->a->quick ? 'A' : 'B',
                 c->a->quick ? 'B' : 'A');
    if (c->a->drive_count != c->b->drive_count)
        snprintf(new_note(c), NB_SENTENCE, "A has %u drive%s, B %u: together they are not compared",
                 c->a->drive_count, c->a->drive_count > 1 ? "s" : "", c->b->drive_count);
}

static void collect(struct comparison *c)
{
    char name[64];
    c->pair_count = nb_pair_drives(c->a, c->b, c->pairs);
    note_runs(c);
    for (uint32_t i = 0; i < c->pair_count; i++) {
        const struct nb_pair *p = &c->pairs[i];
        if (p->a == NB_NO_DRIVE || p->b == NB_NO_DRIVE) {
            note_alone(c, p);
            continue;
        }
        collect_pair(c, p);
        note_pair(c, p);
    }
    for (uint32_t k = 0; k < NB_KINDS && c->a->drive_count == c->b->drive_count; k++) {
        snprintf(name, sizeof name, "striped %s", nb_kind_names[k]);
        add(c, name, "B/s", NULL, rate(c->a, NB_STRIPED, (enum nb_kind)k, NB_ALL_DRIVES),
            rate(c->b, NB_STRIPED, (enum nb_kind)k, NB_ALL_DRIVES));
    }
}

/* ---- output ---- */

static void format_value(double value, const char *unit, char dst[32])
{
    if (isnan(value))
        snprintf(dst, 32, "-");
    else if (strcmp(unit, "B/s") == 0)
        nb_rate_text(value, dst);
    else if (strcmp(unit, "ns") == 0)
        snprintf(dst, 32, "%.0f us", value / 1e3);
    else
        snprintf(dst, 32, "%.4f s/GB", value);
}

static void print_title(const struct comparison *c, const struct nb_pair *p, FILE *out)
{
    if (!p)
        fprintf(out, "\nall drives together\n");
    else
        fprintf(out, "\ndrive %u of A, %.200s\ndrive %u of B, %.200s (%s)\n", p->a,
                c->a->drives[p->a].path, p->b, c->b->drives[p->b].path,
                p->same ? "the same drive" : "by order: not known to be the same");
    fprintf(out, "%-24s %14s %14s %8s\n", "", "A", "B", "B/A");
}

static void print(const struct comparison *c, FILE *out)
{
    fprintf(out, "A: %s\nB: %s\n", c->names[0], c->names[1]);
    for (size_t i = 0; i < c->row_count; i++) {
        const struct row *row = &c->rows[i];
        char a[32], b[32], ratio[32] = "-";
        if (i == 0 || row->drives != c->rows[i - 1].drives)
            print_title(c, row->drives, out);
        format_value(row->a, row->unit, a);
        format_value(row->b, row->unit, b);
        if (!isnan(row->b / row->a))
            snprintf(ratio, sizeof ratio, "%.2f", row->b / row->a);
        fprintf(out, "%-24s %14s %14s %8s\n", row->name, a, b, ratio);
    }
    for (size_t i = 0; i < c->note_count; i++)
        fprintf(out, "%snote: %s\n", i ? "" : "\n", c->notes[i]);
}

static void put_drive_number(struct json_writer *json, const char *key, uint32_t drive)
{
    if (drive == NB_NO_DRIVE)
        json_put_null(json, key);
    else
        json_put_whole(json, key, drive);
}

static void put_pairs(struct json_writer *json, const struct comparison *c)
{
    json_put_array(json, "drives");
    for (uint32_t i = 0; i < c->pair_count; i++) {
        json_put_object(json, NULL);
        put_drive_number(json, "a", c->pairs[i].a);
        put_drive_number(json, "b", c->pairs[i].b);
        json_put_bool(json, "same", c->pairs[i].same);
        json_put_end(json);
    }
    json_put_end(json);
}

static void put_rows(struct json_writer *json, const struct comparison *c)
{
    json_put_array(json, "rows");
    for (size_t i = 0; i < c->row_count; i++) {
        const struct row *row = &c->rows[i];
        json_put_object(json, NULL);
        put_drive_number(json, "drive_a", row->drives ? row->drives->a : NB_NO_DRIVE);
        put_drive_number(json, "drive_b", row->drives ? row->drives->b : NB_NO_DRIVE);
        json_put_text(json, "case", row->name);
        json_put_text(json, "unit", row->unit);
        json_put_real(json, "a", row->a);
        json_put_real(json, "b", row->b);
        json_put_real(json, "ratio", row->b / row->a);
        json_put_end(json);
    }
    json_put_end(json);
}

static void put_json(const struct comparison *c, FILE *out)
{
    struct json_writer json = {.out = out};
    json_put_object(&json, NULL);
    json_put_text(&json, "a", c->names[0]);
    json_put_text(&json, "b", c->names[1]);
    put_pairs(&json, c);
    put_rows(&json, c);
    json_put_array(&json, "notes");
    for (size_t i = 0; i < c->note_count; i++)
        json_put_text(&json, NULL, c->notes[i]);
    json_put_end(&json);
    json_put_end(&json);
    fputc('\n', out);
}

void nb_compare(const struct nb_result *a, const struct nb_result *b, const char *const names[2],
                bool as_json, FILE *out)
{
    struct comparison c = {.a = a, .b = b, .names = names};
    collect(&c);
    if (as_json)
        put_json(&c, out);
    else
        print(&c, out);
}
