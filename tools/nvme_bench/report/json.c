/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a result as one JSON object; docs/nvme-bench.md lists its keys, load.c reads it again. */
#include "nvme_bench/report/report.h"

#include "cli/log/json.h"

#include <math.h>

static const char *known(const char *text)
{
    return text[0] ? text : NULL;
}

static void put_shape(struct json_writer *json, const struct nb_shape *s)
{
    json_put_whole(json, "block_bytes", s->block_bytes);
    json_put_whole(json, "depth", s->depth);
    json_put_whole(json, "threads", s->threads);
}

static void put_sustained(struct json_writer *json, const struct nb_sustained *s)
{
    json_put_object(json, "sustained");
    json_put_whole(json, "window_bytes", s->window_bytes);
    json_put_array(json, "rates");
    for (uint32_t i = 0; i < s->windows; i++)
        json_put_real(json, NULL, s->rates[i]);
    json_put_end(json);
    json_put_real(json, "first", s->first);
    json_put_real(json, "last", s->last);
    json_put_whole(json, "drop_bytes", s->drop_bytes);
    json_put_bool(json, "flat", s->flat);
    json_put_real(json, "idle_s", s->idle_s);
    json_put_real(json, "recovered", s->recovered);
    json_put_end(json);
}

static void put_drive(struct json_writer *json, const struct nb_drive *d, double share)
{
    json_put_object(json, NULL);
    json_put_text(json, "path", d->path);
    json_put_text(json, "model", known(d->model));
    json_put_text(json, "device", known(d->device));
    json_put_text(json, "disks", known(d->disks));
    json_put_text(json, "file_system", known(d->file_system));
    json_put_text(json, "mount", known(d->mount));
    json_put_text(json, "link", known(d->link));
    json_put_text(json, "link_most", known(d->link_most));
    if (d->numa_node >= 0)
        json_put_whole(json, "numa_node", (uint64_t)d->numa_node);
    else
        json_put_null(json, "numa_node");
    json_put_text(json, "backend", known(d->backend));
    json_put_bool(json, "direct", d->direct);
    json_put_bool(json, "in_memory", d->in_memory);
    json_put_bool(json, "simulated", d->simulated);
    json_put_whole(json, "size_bytes", d->size_bytes);
    json_put_whole(json, "free_bytes", d->free_bytes);
    json_put_whole(json, "verified_bytes", d->verified_bytes);
    json_put_real(json, "share", share);
    json_put_object(json, "best");
    put_shape(json, &d->best);
    json_put_end(json);
    put_sustained(json, &d->sustained);
    json_put_end(json);
}

static void put_case(struct json_writer *json, const struct nb_result *r, const struct nb_point *p)
{
    char name[160], shape[48];
    bool all = p->drive == NB_ALL_DRIVES;
    double ceiling = 0;
    for (uint32_t d = 0; d < r->drive_count; d++)
        ceiling += all || d == p->drive ? nb_ceiling(r, p->kind, d) : 0;
    nb_shape_text(&p->shape, shape);
    if (all)
        snprintf(name, sizeof name, "all drives %s %s", nb_phase_names[p->phase],
                 nb_kind_names[p->kind]);
    else
        snprintf(name, sizeof name, "drive %u %s %s %s", p->drive, nb_phase_names[p->phase],
                 nb_kind_names[p->kind], shape);
    json_put_object(json, NULL);
    json_put_text(json, "bench", "nvme");
    json_put_text(json, "case", name);
    json_put_real(json, "value", p->rate);
    json_put_text(json, "unit", "B/s");
    json_put_real(json, "ceiling", ceiling);
    json_put_real(json, "fraction", p->rate / ceiling);
    json_put_text(json, "phase", nb_phase_names[p->phase]);
    json_put_text(json, "kind", nb_kind_names[p->kind]);
    if (all)
        json_put_null(json, "drive");
    else
        json_put_whole(json, "drive", p->drive);
    put_shape(json, &p->shape);
    json_put_whole(json, "bytes", p->bytes);
    json_put_real(json, "seconds", p->seconds);
    json_put_object(json, "latency_ns");
    for (size_t i = 0; i < NB_PERCENTILES; i++)
        json_put_real(json, nb_percentile_names[i], p->latency_ns[i]);
    json_put_end(json);
    json_put_real(json, "cpu_s_per_gb", p->cpu_s_per_gb);
    json_put_end(json);
}

/* 0 stands for: no number does. */
static void put_number(struct json_writer *json, const char *key, uint64_t value)
{
    if (value)
        json_put_whole(json, key, value);
    else
        json_put_null(json, key);
}

static void put_needs(struct json_writer *json, const struct nb_answer *a)
{
    char headline[NB_SENTENCE], advice[NB_SENTENCE];
    nb_verdict(a, headline, advice);
    json_put_bool(json, "feeds", a->feeds);
    json_put_real(json, "target", a->target);
    put_number(json, "tokens_needed", a->tokens_needed);
    put_number(json, "drives_needed", a->drives_needed);
    if (a->fits && isnan(a->room_bytes))
        json_put_null(json, "fits");
    else
        json_put_bool(json, "fits", a->fits);
    json_put_real(json, "room_bytes", a->room_bytes);
    json_put_real(json, "missing_bytes", a->missing_bytes);
    put_number(json, "drives_to_fit", a->drives_to_fit);
    json_put_real(json, "endurance_bytes",
                  a->endurance_bytes > 0 ? a->endurance_bytes : (double)NAN);
    json_put_real(json, "steps_to_wear", a->steps_to_wear);
    json_put_real(json, "days_to_wear", a->days_to_wear);
    json_put_text(json, "verdict", headline);
    json_put_text(json, "advice", advice);
}

static void put_plan(struct json_writer *json, const struct nb_answer *a)
{
    const struct hst_bound *b = &a->bound;
    json_put_object(json, "plan");
    json_put_text(json, "model", a->model);
    json_put_whole(json, "params", a->params);
    json_put_text(json, "precision", a->precision);
    json_put_whole(json, "tokens", a->tokens);
    json_put_whole(json, "seq_len", a->in.seq_len);
    json_put_whole(json, "gpus", a->gpus);
    json_put_real(json, "flops_per_s", a->in.flops_per_s);
    json_put_bool(json, "recompute", a->in.recompute);
    json_put_bool(json, "overlap", a->in.overlap);
    json_put_real(json, "states_share", a->in.states_on_nvme);
    json_put_real(json, "weights_share", a->in.weights_on_nvme);
    json_put_real(json, "read", a->in.read);
    json_put_real(json, "write", a->in.write);
    json_put_real(json, "mixed", a->in.mixed);
    json_put_real(json, "flops", b->flops);
    json_put_real(json, "read_bytes", b->nvme_read_bytes);
    json_put_real(json, "written_bytes", b->nvme_write_bytes);
    json_put_real(json, "space_bytes", b->nvme_space_bytes);
    json_put_real(json, "gpu_s", b->gpu_s);
    json_put_real(json, "forward_s", b->forward_s);
    json_put_real(json, "backward_s", b->backward_s);
    json_put_real(json, "update_s", b->update_s);
    json_put_real(json, "nvme_s", b->nvme_s);
    json_put_real(json, "link_s", b->link_s);
    json_put_real(json, "dram_s", b->dram_s);
    json_put_real(json, "step_s", b->step_s);
    json_put_real(json, "efficiency", b->efficiency);
    json_put_text(json, "bound_by", nb_bound_by_name(b->bound_by));
    put_needs(json, a);
    json_put_end(json);
}

static void put_ds_config(struct json_writer *json, const struct nb_shape *best)
{
    json_put_object(json, "ds_config");
    json_put_object(json, "aio");
    json_put_whole(json, "block_size", best->block_bytes);
    json_put_whole(json, "queue_depth", best->depth);
    json_put_whole(json, "intra_op_parallelism", best->threads);
    json_put_bool(json, "single_submit", false);
    json_put_bool(json, "overlap_events", true);
    json_put_end(json);
    json_put_end(json);
}

void nb_report_json(const struct nb_result *r, const struct nb_answer *answer, FILE *out)
{
    struct json_writer json = {.out = out};
    struct nb_shape best;
    double shares[NB_MAX_DRIVES];
    nb_shares_of(r, shares);
    nb_choose_for_all(r, &best);
    json_put_object(&json, NULL);
    json_put_text(&json, "program", "nvme-bench");
    json_put_whole(&json, "format", 1);
    json_put_text(&json, "version", known(r->version));
    json_put_text(&json, "date", known(r->date));
    json_put_text(&json, "kernel", known(r->kernel));
    json_put_whole(&json, "cores", r->cores);
    json_put_bool(&json, "quick", r->quick);
    json_put_whole(&json, "file_bytes", r->file_bytes);
    json_put_whole(&json, "written_bytes", r->written_bytes);
    json_put_array(&json, "drives");
    for (uint32_t d = 0; d < r->drive_count; d++)
        put_drive(&json, &r->drives[d], shares[d]);
    json_put_end(&json);
    json_put_array(&json, "cases");
    for (uint32_t i = 0; i < r->point_count; i++)
        put_case(&json, r, &r->points[i]);
    json_put_end(&json);
    put_ds_config(&json, &best);
    if (answer)
        put_plan(&json, answer);
    else
        json_put_null(&json, "plan");
    json_put_end(&json);
    fputc('\n', out);
}
