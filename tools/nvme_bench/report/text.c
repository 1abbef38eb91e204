/* SPDX-License-Identifier: Apache-2.0 */
/* Decides how a result looks on a terminal. */
#include "nvme_bench/report/report.h"

#include "base/text.h"

#include <inttypes.h>
#include <math.h>

static void print_latency(double ns, FILE *out)
{
    if (isnan(ns))
        fprintf(out, " %9s", "-");
    else if (ns < 1e7)
        fprintf(out, " %6.0f us", ns / 1e3);
    else
        fprintf(out, " %6.0f ms", ns / 1e6);
}

static void print_point(const struct nb_point *p, bool best, FILE *out)
{
    char rate[32], shape[48];
    nb_rate_text(p->rate, rate);
    nb_shape_text(&p->shape, shape);
    fprintf(out, "  %-7s %-17s %10s", nb_kind_names[p->kind],
            p->drive == NB_ALL_DRIVES ? "" : shape, rate);
    print_latency(p->latency_ns[NB_P50], out);
    print_latency(p->latency_ns[NB_P99], out);
    print_latency(p->latency_ns[NB_MAX], out);
    if (isnan(p->cpu_s_per_gb))
        fprintf(out, " %9s", "-");
    else
        fprintf(out, " %9.4f", p->cpu_s_per_gb);
    fprintf(out, "%s\n", best ? "  *" : "");
}

static bool is_best(const struct nb_result *r, const struct nb_point *p)
{
    return p->phase == NB_SWEEP && nb_find(r, NB_SWEEP, p->kind, p->drive) == p;
}

static void print_phase(const struct nb_result *r, enum nb_phase phase, uint32_t drive,
                        const char *title, FILE *out)
{
    bool first = true;
    for (uint32_t i = 0; i < r->point_count; i++) {
        const struct nb_point *p = &r->points[i];
        if (p->phase != phase || p->drive != drive)
            continue;
        if (first)
            fprintf(out, "\n%s\n  %-7s %-17s %10s %9s %9s %9s %9s\n", title, "",
                    "block x depth x t", "rate", "p50", "p99", "max", "CPU s/GB");
        first = false;
        print_point(p, is_best(r, p), out);
    }
}

static void print_drive(const struct nb_result *r, uint32_t i, FILE *out)
{
    const struct nb_drive *d = &r->drives[i];
    char about[NB_SENTENCE], sustained[NB_SENTENCE], size[TEXT_BYTES];
    nb_drive_text(d, about);
    nb_sustained_text(&d->sustained, sustained);
    fprintf(out, "%sdrive %u  %s\n  %s\n", i ? "\n" : "", i, d->path, about);
    print_phase(r, NB_SWEEP, i, "sweep (mixed: reads and writes, half each; *: best for updates)",
                out);
    print_phase(r, NB_STEADY, i, "right after the long write", out);
    fprintf(out, "\nlong write: %s\n", sustained);
    fprintf(out, "read back:  %s, every byte right\n", text_size(d->verified_bytes, size));
}

/* It prints what each drive would have to hold, and what is free. */
static void print_space(const struct nb_result *r, const struct nb_answer *a, FILE *out)
{
    char size[32], room[32], lacks[32];
    nb_bytes_text(a->bound.nvme_space_bytes, size);
    fprintf(out, "  space on drives      %13s   (two slots: a commit never overwrites)\n", size);
    for (uint32_t d = 0; d < r->drive_count; d++) {
        double need = a->shares[d] * a->bound.nvme_space_bytes;
        double left = (double)r->drives[d].free_bytes;
        nb_bytes_text(need, size);
        nb_bytes_text(left, room);
        nb_bytes_text(need - left, lacks);
        fprintf(out, "    drive %u            %13s   ", d, size);
        if (r->drives[d].size_bytes == 0)
            fprintf(out, "(its size is not known)\n");
        else if (need > left)
            fprintf(out, "(%s free: %s are missing)\n", room, lacks);
        else
            fprintf(out, "(%s free)\n", room);
    }
}

static void print_plan(const struct nb_result *r, const struct nb_answer *a, FILE *out)
{
    const struct hst_bound *b = &a->bound;
    char headline[NB_SENTENCE], advice[NB_SENTENCE], params[TEXT_BYTES], read[32], write[32];
    char mixed[32];
    nb_verdict(a, headline, advice);
    nb_rate_text(a->in.read, read);
    nb_rate_text(a->in.write, write);
    nb_rate_text(a->in.mixed, mixed);
    fprintf(out, "\nplan: %s, %s parameters, %s, %" PRIu64 " tokens per step, %u x %g TFLOPS\n",
            a->model, text_count((double)a->params, params), a->precision, a->tokens, a->gpus,
            a->gpu_tflops);
    fprintf(out, "  rates planned with   read %s, write %s, mixed %s\n", read, write, mixed);
    nb_bytes_text(b->nvme_read_bytes, read);
    nb_bytes_text(b->nvme_write_bytes, write);
    fprintf(out, "  read per step        %13s\n", read);
    fprintf(out, "  written per step     %13s\n", write);
    print_space(r, a, out);
    fprintf(out, "  GPU                  %10.2f s    (forward %.2f, backward %.2f)\n", b->gpu_s,
            b->forward_s, b->backward_s);
    fprintf(out, "  drives               %10.2f s    (update %.2f)\n", b->nvme_s, b->update_s);
    fprintf(out, "  step, at least       %10.2f s    (longest: %s)\n", b->step_s,
            nb_bound_by_name(b->bound_by));
    fprintf(out, "  efficiency, at most  %10.1f %%\n", 100 * b->efficiency);
    fprintf(out, "\n%s\n%s\n", headline, advice);
}

void nb_report_text(const struct nb_result *r, const struct nb_answer *answer, FILE *out)
{
    struct nb_shape best;
    char size[TEXT_BYTES], how[NB_SENTENCE], together[NB_SENTENCE + 32];
    nb_choose_for_all(r, &best);
    nb_together_text(r, how);
    snprintf(together, sizeof together, "all drives together, %s", how);
    for (uint32_t d = 0; d < r->drive_count; d++)
        print_drive(r, d, out);
    if (r->drive_count > 1)
        print_phase(r, NB_STRIPED, NB_ALL_DRIVES, together, out);
    fprintf(out, "\nwritten: %s in all\n", text_size(r->written_bytes, size));
    fprintf(out,
            "\nfor ds_config.json:\n  \"aio\": {\"block_size\": %u, \"queue_depth\": %u, "
            "\"intra_op_parallelism\": %u, \"single_submit\": false, \"overlap_events\": true}\n",
            best.block_bytes, best.depth, best.threads);
    if (answer)
        print_plan(r, answer, out);
}
