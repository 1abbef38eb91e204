/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides how the page looks that is shown to whoever buys the drives: the answer first, then what
 * it rests on. One file; no script, no network; light and dark as the reader's system is; prints.
 */
#include "nvme_bench/report/plot.h"
#include "nvme_bench/report/plots.h"
#include "nvme_bench/report/report.h"

#include "base/text.h"

#include <inttypes.h>
#include <math.h>

static const char head[] =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
    "<title>nvme-bench</title>\n<style>\n"
    ":root{--bg:#f6f7f9;--card:#fff;--ink:#1b2430;--soft:#5d6b7c;--rule:#dfe4ea;"
    "--k0:#1f6fd1;--k1:#d9730d;--k2:#2a8f5a;--good:#1f8a4c;--bad:#c4501b}\n"
    "@media(prefers-color-scheme:dark){:root{--bg:#12161c;--card:#1a2029;--ink:#e8edf3;"
    "--soft:#98a6b6;--rule:#2d3743;--k0:#6aa9f7;--k1:#f0a35e;--k2:#63c08d;--good:#55c483;"
    "--bad:#f08a5d}}\n"
    "@media print{:root{--bg:#fff;--card:#fff;--ink:#000;--soft:#444;--rule:#bbb;--k0:#1f6fd1;"
    "--k1:#d9730d;--k2:#2a8f5a;--good:#1f8a4c;--bad:#c4501b}.card{break-inside:avoid}"
    "body{font-size:11px}main{padding:0}}\n"
    "*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--ink);"
    "font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}\n"
    "main{max-width:1040px;margin:0 auto;padding:28px 20px}h1{font-size:15px;font-weight:600;"
    "letter-spacing:.04em;color:var(--soft);margin:0 0 14px}\n"
    "h2{font-size:17px;margin:0 0 2px}p{margin:0 0 10px}.soft{color:var(--soft)}\n"
    ".card{background:var(--card);border:1px solid var(--rule);border-radius:10px;"
    "padding:20px 24px;margin:0 0 18px}\n"
    ".verdict{border-left:6px solid var(--v)}.verdict .say{font-size:23px;font-weight:650;"
    "line-height:1.3;margin:0 0 6px}\n"
    ".facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(128px,1fr));gap:14px 18px;"
    "margin:16px 0 14px}.facts b{display:block;font-size:20px;font-weight:650}\n"
    ".facts span{color:var(--soft);font-size:13px}\n"
    ".plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(380px,1fr));gap:22px 30px;"
    "margin-top:16px}svg{width:100%;height:auto;display:block}\n"
    ".title{font-size:14px;font-weight:600;fill:var(--ink)}.label,.tick{font-size:12px;"
    "fill:var(--soft)}.grid{stroke:var(--rule)}.axis{stroke:var(--soft)}\n"
    ".line{fill:none;stroke-width:2.2;stroke-linejoin:round}.line.k0{stroke:var(--k0)}"
    ".line.k1{stroke:var(--k1)}.line.k2{stroke:var(--k2)}\n"
    ".dot.k0,.bar.k0{fill:var(--k0)}.dot.k1,.bar.k1{fill:var(--k1)}.dot.k2,.bar.k2{fill:var(--k2)}"
    "\n.bar{rx:3px}.track{fill:var(--rule);rx:3px}.mark{stroke:var(--ink);stroke-width:2}\n"
    "table{border-collapse:collapse;width:100%;font-size:13px;font-variant-numeric:tabular-nums}"
    "th,td{text-align:right;padding:4px 8px;border-bottom:1px solid var(--rule)}"
    "th{color:var(--soft);font-weight:500}\n"
    "th:first-child,td:first-child,th:nth-child(2),td:nth-child(2){text-align:left}"
    "tr.best td{font-weight:650}\n"
    "pre{background:var(--bg);border:1px solid var(--rule);border-radius:6px;padding:12px;"
    "overflow-x:auto;margin:8px 0 0}\n</style></head><body><main>\n";

static void fact(FILE *out, const char *value, const char *what)
{
    fputs("<div><b>", out);
    plot_text(out, value);
    fputs("</b><span>", out);
    plot_text(out, what);
    fputs("</span></div>\n", out);
}

/* ---- the answer ---- */

/* Seconds of a step as bars: what the GPU does, what the drives do. */
static void step_bars(const struct nb_answer *a, FILE *out)
{
    const struct hst_bound *b = &a->bound;
    const double width = 700, left = 100, most = b->step_s;
    const struct {
        const char *name;
        double seconds;
        unsigned color;
    } bars[] = {{"step, least", b->step_s, 2}, {"GPU", b->gpu_s, 0}, {"drives", b->nvme_s, 1}};
    fputs("<svg viewBox=\"0 0 900 96\" role=\"img\"><title>Seconds of a step</title>\n", out);
    for (int i = 0; i < 3; i++) {
        double length = width * fmin(bars[i].seconds / most, 1);
        fprintf(out,
                "<text class=\"label\" x=\"0\" y=\"%d\">%s</text><rect class=\"track\" x=\"%g\" "
                "y=\"%d\" width=\"%g\" height=\"16\"/><rect class=\"bar k%u\" x=\"%g\" y=\"%d\" "
                "width=\"%.1f\" height=\"16\"/><text class=\"label\" x=\"%g\" y=\"%d\">%.1f s"
                "</text>\n",
                i * 32 + 18, bars[i].name, left, i * 32 + 5, width, bars[i].color, left, i * 32 + 5,
                length, left + width + 10, i * 32 + 18, bars[i].seconds);
    }
    double wanted = left + width * fmin(b->gpu_s / a->target / most, 1);
    fprintf(out, "<line class=\"mark\" x1=\"%.1f\" x2=\"%.1f\" y1=\"1\" y2=\"25\"/></svg>\n",
            wanted, wanted);
}

static void put_space(const struct nb_answer *a, FILE *out)
{
    char need[32], other[32], text[96] = "of space; what is free is not known";
    nb_bytes_text(a->bound.nvme_space_bytes, need);
    nb_bytes_text(a->fits ? a->room_bytes : a->missing_bytes, other);
    if (!a->fits)
        snprintf(text, sizeof text, "of space, %s are missing", other);
    else if (!isnan(a->room_bytes))
        snprintf(text, sizeof text, "of space, of %s free%s", other,
                 a->drives > 1 ? " as it is shared" : "");
    fact(out, need, text);
}

static void put_verdict(const struct nb_answer *a, FILE *out)
{
    char headline[NB_SENTENCE], advice[NB_SENTENCE], text[128], count[TEXT_BYTES];
    nb_verdict(a, headline, advice);
    fprintf(out, "<section class=\"card verdict\" style=\"--v:var(--%s)\"><p class=\"say\">",
            a->feeds && a->fits ? "good" : "bad");
    plot_text(out, headline);
    fputs("</p><p>", out);
    plot_text(out, advice);
    fputs("</p><div class=\"facts\">\n", out);
    snprintf(text, sizeof text, "%.1f %%", 100 * a->bound.efficiency);
    fact(out, text, "of the GPU's speed, at most");
    snprintf(text, sizeof text, "%.1f s", a->bound.step_s);
    fact(out, text, "per step, at least");
    snprintf(text, sizeof text, "%.0f", (double)a->tokens / a->bound.step_s);
    fact(out, text, "tokens per second, at most");
    nb_bytes_text(a->bound.nvme_write_bytes, text);
    fact(out, text, "written per step");
    put_space(a, out);
    if (!isnan(a->steps_to_wear))
        fact(out, text_count(a->steps_to_wear, count), "steps until the endurance is used");
    fputs("</div>\n", out);
    step_bars(a, out);
    snprintf(text, sizeof text, "%.60s, %s parameters", a->model,
             text_count((double)a->params, count));
    fputs("<p class=\"soft\" style=\"margin:12px 0 0\">", out);
    plot_text(out, text);
    fprintf(out,
            ", %s, %" PRIu64 " tokens per step, sequences of %" PRIu64 ", %u GPU%s at %g TFLOPS, "
            "%s, %.0f %% of the states and %.0f %% of the weights on the drives. The mark shows "
            "where a "
            "step would have to end.</p></section>\n",
            a->precision, a->tokens, a->in.seq_len, a->gpus, a->gpus > 1 ? "s" : "", a->gpu_tflops,
            a->in.recompute ? "blocks recomputed" : "nothing recomputed",
            100 * a->in.states_on_nvme, 100 * a->in.weights_on_nvme);
}

/* ---- drives ---- */

static void put_cell(FILE *out, double value, const char *format)
{
    fputs("<td>", out);
    if (isnan(value))
        fputs("&ndash;", out);
    else
        fprintf(out, format, value);
    fputs("</td>", out);
}

static void put_row(const struct nb_result *r, const struct nb_point *p, FILE *out)
{
    char shape[48];
    bool best = p->phase == NB_SWEEP && nb_find(r, NB_SWEEP, p->kind, p->drive) == p;
    nb_shape_text(&p->shape, shape);
    fprintf(out, "<tr%s><td>%s %s</td><td>%s</td>", best ? " class=\"best\"" : "",
            nb_phase_names[p->phase], nb_kind_names[p->kind],
            p->phase == NB_STRIPED ? "each its best" : shape);
    put_cell(out, p->rate / 1e9, "%.2f");
    put_cell(out, p->latency_ns[NB_P50] / 1e6, "%.2f");
    put_cell(out, p->latency_ns[NB_P99] / 1e6, "%.2f");
    put_cell(out, p->latency_ns[NB_P999] / 1e6, "%.2f");
    put_cell(out, p->cpu_s_per_gb, "%.4f");
    fputs("</tr>\n", out);
}

static void put_table(const struct nb_result *r, uint32_t drive, FILE *out)
{
    fputs("<table><thead><tr><th>case</th><th>block &times; depth &times; threads</th><th>GB/s</th>"
          "<th>p50 ms</th><th>p99 ms</th><th>p99.9 ms</th><th>CPU s/GB</th></tr></thead><tbody>\n",
          out);
    for (uint32_t i = 0; i < r->point_count; i++)
        if (r->points[i].drive == drive)
            put_row(r, &r->points[i], out);
    fputs("</tbody></table>\n", out);
}

static void put_steady(const struct nb_result *r, enum nb_phase phase, uint32_t drive, FILE *out)
{
    static const char *const whats[NB_KINDS] = {"read", "write", "reads and writes mixed"};
    char rate[32], what[96];
    fputs("<div class=\"facts\">\n", out);
    for (uint32_t k = 0; k < NB_KINDS; k++) {
        const struct nb_point *p = nb_find(r, phase, (enum nb_kind)k, drive);
        if (!p)
            continue;
        nb_rate_text(p->rate, rate);
        snprintf(what, sizeof what, "%s, %s", whats[k],
                 phase == NB_STEADY ? "after the long write" : "all drives together");
        fact(out, rate, what);
    }
    fputs("</div>\n", out);
}

static void put_drive(const struct nb_result *r, uint32_t i, FILE *out)
{
    const struct nb_drive *d = &r->drives[i];
    char text[NB_SENTENCE], size[TEXT_BYTES];
    fputs("<section class=\"card\"><h2>", out);
    plot_text(out, d->path);
    fputs("</h2><p class=\"soft\">", out);
    nb_drive_text(d, text);
    plot_text(out, text);
    fputs("</p>", out);
    put_steady(r, NB_STEADY, i, out);
    nb_plots(r, i, out);
    fputs("<p style=\"margin-top:18px\"><b>Long write:</b> ", out);
    nb_sustained_text(&d->sustained, text);
    plot_text(out, text);
    fprintf(out, ".</p><p><b>Read back:</b> %s, every byte right.</p></section>\n",
            text_size(d->verified_bytes, size));
}

static void put_ds_config(const struct nb_shape *best, FILE *out)
{
    fprintf(out,
            "<section class=\"card\"><h2>For ds_config.json</h2><pre>\"aio\": {\n"
            "  \"block_size\": %u,\n  \"queue_depth\": %u,\n  \"intra_op_parallelism\": %u,\n"
            "  \"single_submit\": false,\n  \"overlap_events\": true\n}</pre></section>\n",
            best->block_bytes, best->depth, best->threads);
}

void nb_report_html(const struct nb_result *r, const struct nb_answer *answer, FILE *out)
{
    char size[TEXT_BYTES], together[NB_SENTENCE];
    struct nb_shape best;
    nb_choose_for_all(r, &best);
    fputs(head, out);
    fputs("<h1>nvme-bench ", out);
    plot_text(out, r->version);
    fputs(r->date[0] ? " &middot; " : "", out);
    plot_text(out, r->date);
    fputs(r->kernel[0] ? " &middot; " : "", out);
    plot_text(out, r->kernel);
    fprintf(out, "%s</h1>\n", r->quick ? " &middot; quick run" : "");
    if (answer)
        put_verdict(answer, out);
    for (uint32_t d = 0; d < r->drive_count; d++)
        put_drive(r, d, out);
    if (r->drive_count > 1) {
        nb_together_text(r, together);
        fputs("<section class=\"card\"><h2>All drives together</h2><p class=\"soft\">", out);
        plot_text(out, together);
        fputs("</p>", out);
        put_steady(r, NB_STRIPED, NB_ALL_DRIVES, out);
        fputs("</section>\n", out);
    }
    put_ds_config(&best, out);
    for (uint32_t d = 0; d < r->drive_count; d++) {
        fputs("<section class=\"card\"><h2>All cases: ", out);
        plot_text(out, r->drives[d].path);
        fputs("</h2>", out);
        put_table(r, d, out);
        fputs("</section>\n", out);
    }
    fprintf(out,
            "<p class=\"soft\">Written: %s in all. Rates are powers of 1000, sizes of 1024. "
            "Mixed rates count both directions. The efficiency is a bound: on these rates only "
            "states that memory holds, read early or written late, can better "
            "it.</p></main></body></html>\n",
            text_size(r->written_bytes, size));
}
