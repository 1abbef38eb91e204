/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what of two plans stands side by side. */
#include "base/text.h"
#include "verbs/plan/answer.h"
#include "verbs/plan/plan.h"

#include <math.h>
#include <string.h>

#define COLUMN  24
#define AS_FAST 0.005 /* a ratio so near 1 is shown as 1 */

typedef void cell_fn(const struct plan *p, char *text, size_t bytes);

static void put_fits(const struct plan *p, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s", p->fits ? "yes" : "no");
}

static void put_rates(const struct plan *p, char *text, size_t bytes)
{
    if (plan_assumes(p))
        snprintf(text, bytes, "assumed");
}

static void put_tier(const struct plan *p, int tier, char *text, size_t bytes)
{
    char total[TEXT_BYTES], budget[TEXT_BYTES];
    const struct hst_memory *m = &p->t.result.memory;
    if (m->total[tier] > 0 || m->budget[tier] > 0)
        snprintf(text, bytes, "%s of %s", text_size(m->total[tier], total),
                 text_size(m->budget[tier], budget));
}

static void put_hbm(const struct plan *p, char *text, size_t bytes)
{
    put_tier(p, HST_TIER_HBM, text, bytes);
}

static void put_dram(const struct plan *p, char *text, size_t bytes)
{
    put_tier(p, HST_TIER_DRAM, text, bytes);
}

static void put_nvme(const struct plan *p, char *text, size_t bytes)
{
    put_tier(p, HST_TIER_NVME, text, bytes);
}

static bool is_predicted(const struct plan *p)
{
    return p->fits && p->t.result.prediction.step_s > 0;
}

static void put_step(const struct plan *p, char *text, size_t bytes)
{
    if (is_predicted(p))
        snprintf(text, bytes, "%.3g s", p->t.result.prediction.step_s);
}

static void put_speed(const struct plan *p, char *text, size_t bytes)
{
    char count[TEXT_BYTES];
    if (is_predicted(p))
        snprintf(text, bytes, "%s", text_count(plan_speed(p), count));
}

static void put_bound(const struct plan *p, char *text, size_t bytes)
{
    if (is_predicted(p))
        snprintf(text, bytes, "%s", p->t.result.prediction.bound_by);
}

static void put_computes(const struct plan *p, char *text, size_t bytes)
{
    const struct hst_prediction *r = &p->t.result.prediction;
    if (is_predicted(p))
        snprintf(text, bytes, "%.0f %%", 100 * r->compute_s / r->step_s);
}

static void put_days(const struct plan *p, char *text, size_t bytes)
{
    if (plan_days(p) > 0)
        snprintf(text, bytes, "%.3g", plan_days(p));
}

static void put_written(const struct plan *p, char *text, size_t bytes)
{
    if (plan_written_a_day(p) > 0)
        snprintf(text, bytes, "%.3g TB", plan_written_a_day(p) / 1e12);
}

static void put_years(const struct plan *p, char *text, size_t bytes)
{
    char lasts[PLAN_LASTS_BYTES];
    if (plan_years(p) > 0)
        snprintf(text, bytes, "%s", plan_lasts_text(p, lasts));
}

/* Names are anybody's: none may steer a terminal. */
static void print_names(const char *const names[2], FILE *out)
{
    struct hst_error line;
    for (int side = 0; side < 2; side++) {
        fail(&line, FAIL_USAGE, 0, "%s", names[side]);
        fprintf(out, "%c: %s\n", 'A' + side, line.message);
    }
}

void plan_print_both(const char *const names[2], const struct plan *const plans[2], FILE *out)
{
    static const struct {
        const char *name;
        cell_fn *put;
    } rows[] = {{"fits", put_fits},
                {"hbm", put_hbm},
                {"dram", put_dram},
                {"nvme", put_nvme},
                {"rates", put_rates},
                {"a step takes", put_step},
                {"tok/s", put_speed},
                {"bounded by", put_bound},
                {"computation", put_computes},
                {"days", put_days},
                {"written a day", put_written},
                {"drives last", put_years}};
    print_names(names, out);
    fprintf(out, "%-14s%*s%*s\n", "", COLUMN, "A", COLUMN, "B");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char cells[2][3 * TEXT_BYTES] = {"-", "-"};
        for (int side = 0; side < 2; side++)
            rows[i].put(plans[side], cells[side], sizeof cells[side]);
        if (strcmp(cells[0], "-") != 0 || strcmp(cells[1], "-") != 0)
            fprintf(out, "%-14s%*s%*s\n", rows[i].name, COLUMN, cells[0], COLUMN, cells[1]);
    }
    if (!is_predicted(plans[0]) || !is_predicted(plans[1]))
        return;
    const double times = plan_speed(plans[1]) / plan_speed(plans[0]);
    if (fabs(times - 1) < AS_FAST)
        fprintf(out, "both are as fast, by tokens a second\n");
    else
        fprintf(out, "B is %.3g times as fast, by tokens a second\n", times);
}
