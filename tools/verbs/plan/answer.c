/* SPDX-License-Identifier: Apache-2.0 */
/* Tells what follows from a prediction for whoever has to decide: what to buy, how long to wait. */
#include "verbs/plan/answer.h"

#include "base/text.h"

#include <inttypes.h>
#include <string.h>

#define DAY_S     86400.0
#define YEAR_DAYS 365.25
#define TB        1e12 /* as makers of drives count */
#define GB        1e9

static bool is_predicted(const struct plan *p)
{
    return p->fits && p->t.result.prediction.step_s > 0;
}

bool plan_assumes(const struct plan *p)
{
    for (int r = 0; r < HST_RATE_COUNT; r++)
        if (machine_assumes(&p->t.rates.figures[r]))
            return true;
    return false;
}

uint64_t plan_tokens(const struct plan *p)
{
    const struct train_options *o = p->t.options;
    if (p->tokens)
        return p->tokens;
    if (!p->t.data)
        return 0;
    return o->steps ? o->steps * p->t.run.batch_tokens
                    : data_sequence_count(p->t.data) * o->seq_len;
}

double plan_speed(const struct plan *p)
{
    return is_predicted(p) ? (double)p->t.run.batch_tokens / p->t.result.prediction.step_s : 0;
}

double plan_days(const struct plan *p)
{
    if (!is_predicted(p))
        return 0;
    const double steps = (double)plan_tokens(p) / (double)p->t.run.batch_tokens;
    return steps * p->t.result.prediction.step_s / DAY_S;
}

double plan_written_a_day(const struct plan *p)
{
    const struct hst_prediction *r = &p->t.result.prediction;
    return is_predicted(p) ? r->write_bytes * p->locals * DAY_S / r->step_s : 0;
}

double plan_years(const struct plan *p)
{
    const double day = plan_written_a_day(p);
    return day > 0 ? p->tbw * TB * plan_drives(p) / day / YEAR_DAYS : 0;
}

/* ---- text ---- */

const char *plan_lasts_text(const struct plan *p, char text[PLAN_LASTS_BYTES])
{
    const double years = plan_years(p);
    snprintf(text, PLAN_LASTS_BYTES, years < 1 ? "%.3g days" : "%.3g years",
             years < 1 ? years * YEAR_DAYS : years);
    return text;
}

const char *plan_help_text(const struct plan_help *help, char text[PLAN_HELP_BYTES])
{
    char size[TEXT_BYTES];
    if (strcmp(help->what, "drive") == 0)
        snprintf(text, PLAN_HELP_BYTES, "one more drive, %" PRIu64 " in all%s: ", help->amount,
                 help->amount == 2 ? ", homes as they are" : "");
    else if (strcmp(help->what, "nic") == 0)
        snprintf(text, PLAN_HELP_BYTES, "one more NIC, %" PRIu64 " in each node: ", help->amount);
    else if (strcmp(help->what, "dram") == 0)
        snprintf(text, PLAN_HELP_BYTES,
                 "twice the DRAM, --dram %s: ", text_typed_up(help->amount, size));
    else if (strcmp(help->what, "state") == 0)
        snprintf(text, PLAN_HELP_BYTES, "states in bf16, --state bf16, which changes results: ");
    else if (strcmp(help->what, "state_8bit") == 0)
        snprintf(text, PLAN_HELP_BYTES, "states of 8 bits, --state 8bit, which changes results: ");
    else
        snprintf(text, PLAN_HELP_BYTES,
                 "--batch-tokens %" PRIu64 ", for %.0f %% computation: ", help->amount,
                 100 * help->compute_share);
    const size_t used = strlen(text);
    snprintf(text + used, PLAN_HELP_BYTES - used, "%.3g s a step, %.2f times as many tok/s",
             help->step_s, help->times);
    return text;
}

static void print_helps(const struct plan *p, FILE *out)
{
    char text[PLAN_HELP_BYTES];
    const struct hst_prediction *r = &p->t.result.prediction;
    fprintf(out, "computation alone is %.0f %% of a step%s\n", 100 * r->compute_s / r->step_s,
            p->help_count ? "; simulated with homes of their own:" : "");
    for (uint32_t i = 0; i < p->help_count; i++)
        fprintf(out, "  %s\n", plan_help_text(&p->helps[i], text));
    if (plan_lacks_nics(p))
        fprintf(out, "%s\n", PLAN_LACKS_NICS);
    if (p->full_tokens == 0 && p->tried_tokens > 0)
        fprintf(out,
                "no step that fits is %g %% computation: up to %" PRIu64 " tokens were tried\n",
                100 * PLAN_FULL, p->tried_tokens);
}

static void print_wear(const struct plan *p, FILE *out)
{
    const double day = plan_written_a_day(p);
    char lasts[PLAN_LASTS_BYTES];
    const uint32_t drives = plan_drives(p);
    if (day <= 0 && p->tbw > 0)
        fprintf(out, "a step writes nothing to drives: how long they last follows from the "
                     "versions of the store alone, which are not counted\n");
    if (day <= 0)
        return;
    fprintf(out, "drives are written %.3g GB a step, %.3g TB a day",
            p->t.result.prediction.write_bytes * p->locals / GB, day / TB);
    if (p->tbw > 0)
        fprintf(out, ": %" PRIu32 " of %g TBW last%s %s", drives, p->tbw, drives == 1 ? "s" : "",
                plan_lasts_text(p, lasts));
    fprintf(out, "\n");
}

void plan_print_answer(const struct plan *p, FILE *out)
{
    char count[TEXT_BYTES];
    if (!is_predicted(p)) {
        if (p->fits && (p->tokens || p->tbw > 0))
            fprintf(out, "without a predicted step neither days nor the drives' wear are known\n");
        return;
    }
    print_helps(p, out);
    if (plan_tokens(p))
        fprintf(out, "%s tokens take %.3g days\n", text_count((double)plan_tokens(p), count),
                plan_days(p));
    print_wear(p, out);
}

/* ---- JSON ---- */

static void put_help(struct json_writer *json, const struct plan_help *help)
{
    json_put_object(json, NULL);
    json_put_text(json, "what", help->what);
    if (help->amount)
        json_put_whole(json, "amount", help->amount);
    else
        json_put_null(json, "amount");
    json_put_real(json, "predicted_step_s", help->step_s);
    json_put_real(json, "times_tok_s", help->times);
    json_put_real(json, "compute_fraction", help->compute_share);
    json_put_end(json);
}

void plan_put_answer(struct json_writer *json, const struct plan *p)
{
    const struct hst_prediction *r = &p->t.result.prediction;
    const bool known = is_predicted(p);
    json_put_known(json, "compute_fraction", known ? r->compute_s / r->step_s : 0);
    json_put_array(json, "would_help");
    for (uint32_t i = 0; i < p->help_count; i++)
        put_help(json, &p->helps[i]);
    json_put_end(json);
    if (p->full_tokens)
        json_put_whole(json, "full_batch_tokens", p->full_tokens);
    else
        json_put_null(json, "full_batch_tokens");
    if (plan_tokens(p))
        json_put_whole(json, "tokens", plan_tokens(p));
    else
        json_put_null(json, "tokens");
    json_put_known(json, "days", plan_days(p));
    if (known) {
        json_put_real(json, "written_step_bytes", r->write_bytes * p->locals);
        json_put_real(json, "written_day_bytes", plan_written_a_day(p));
    } else {
        json_put_null(json, "written_step_bytes");
        json_put_null(json, "written_day_bytes");
    }
    json_put_known(json, "drive_years", plan_years(p));
}
