/* SPDX-License-Identifier: Apache-2.0 */
/* Decides whether drives feed a model, and if not, what would. */
#include "nvme_bench/report/answer.h"

#include "cli/options/shape.h"
#include "hf/config/config.h"
#include "hf/folder.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DAY_S       86400.0
#define MOST_DRIVES (1u << 20)

/* ---- the model ---- */

static struct hst_shape shape_of(const struct llama_config *c)
{
    return (struct hst_shape){.hidden = c->hidden,
                              .intermediate = c->intermediate,
                              .layers = c->layers,
                              .heads = c->heads,
                              .kv_heads = c->kv_heads,
                              .head_dim = c->head_dim,
                              .vocab = c->vocab,
                              .tied = c->tied_embeddings,
                              .qk_norm = c->qk_norm,
                              .qkv_bias = c->qkv_bias};
}

/* A config.json, or that of a directory. */
static int open_config(const char *path, struct input *input)
{
    struct folder folder;
    char *found = folder_find(path);
    int rc = found ? folder_open(found, &folder) : -ENOMEM;
    free(found);
    if (rc)
        return rc == -ENOTDIR ? input_open_path(path, input) : rc;
    rc = folder_input(&folder, "config.json", input);
    folder_close(&folder);
    return rc;
}

static int read_config(const char *path, struct nb_answer *answer, struct hst_error *error)
{
    struct input input;
    struct llama_config config;
    char *text = NULL, dtype[16];
    int rc = open_config(path, &input);
    if (!rc) {
        rc = input_read_all(&input, CONFIG_MAX_BYTES, &text);
        input_close(&input);
    }
    if (rc)
        return fail(error, FAIL_CONFIG_FILE, rc,
                    "'%.200s' has no config.json that can be read (%s). Fix: name a "
                    "directory that holds one, or the file, with --plan.",
                    path, rc == -EFBIG ? "it is too large" : input_why(rc));
    rc = config_parse(path, text, input.size_bytes, &config, dtype, error);
    free(text);
    if (!rc)
        answer->in.shape = shape_of(&config);
    return rc;
}

static int unknown_model(const char *plan, struct hst_error *error)
{
    char *cache = folder_cache_of(plan);
    int rc = cli_shape_unknown("--plan", plan, cache, error);
    free(cache);
    return rc;
}

int nb_answer_model(const char *plan, struct nb_answer *answer, struct hst_error *error)
{
    const struct hst_shape *shape = hst_shape_find(plan);
    int rc = 0;
    if (shape) {
        answer->in.shape = *shape;
        snprintf(answer->model, sizeof answer->model, "%s %s", shape->series, shape->name);
    } else {
        rc = folder_is_there(plan) ? read_config(plan, answer, error) : unknown_model(plan, error);
        snprintf(answer->model, sizeof answer->model, "%.150s", plan);
    }
    answer->params = rc ? 0 : hst_shape_params(&answer->in.shape);
    return rc;
}

/* ---- the answer ---- */

static void fill_in(const struct nb_args *a, const struct nb_rates *rates, struct nb_answer *answer)
{
    struct hst_bound_in *in = &answer->in;
    answer->precision = nb_precision_name(a->precision);
    (void)hst_precision_bytes(answer->precision, &in->bytes);
    in->seq_len = a->seq_len;
    in->states_on_nvme = a->states;
    in->weights_on_nvme = a->weights;
    in->recompute = a->recompute == NB_RECOMPUTE_ON;
    in->overlap = a->overlap;
    in->flops_per_s = a->gpu_tflops * 1e12 * a->gpus;
    in->read = rates->read;
    in->write = rates->write;
    in->mixed = rates->mixed;
    in->link = (double)a->link;
    in->dram = (double)a->dram;
    answer->tokens = a->tokens;
    answer->gpus = a->gpus;
    answer->gpu_tflops = a->gpu_tflops;
    answer->target = a->target_percent / 100;
}

/* Sets of these drives; where all are alike, a set is one drive. */
static uint32_t count_sets(const struct nb_answer *answer)
{
    struct hst_bound_in one = answer->in;
    uint32_t sets = 0, parts = answer->set;
    one.read = one.read * parts / answer->drives;
    one.write = one.write * parts / answer->drives;
    one.mixed = one.mixed * parts / answer->drives;
    return hst_bound_drives(&one, answer->tokens, answer->target, &sets) ? 0 : sets;
}

/* Each drive has to hold its share: that of a fast one with little room may not fit where the sum
   would. */
static void fill_space(const struct nb_result *r, struct nb_answer *a)
{
    double need = a->bound.nvme_space_bytes;
    nb_shares_of(r, a->shares);
    a->room_bytes = INFINITY;
    for (uint32_t d = 0; d < r->drive_count; d++) {
        const struct nb_drive *drive = &r->drives[d];
        a->most_share = fmax(a->most_share, a->shares[d]);
        double left = drive->size_bytes ? (double)drive->free_bytes : (double)NAN;
        a->missing_bytes += fmax(0, a->shares[d] * need - (isnan(left) ? (double)INFINITY : left));
        if (!isnan(a->room_bytes))
            a->room_bytes = isnan(left) ? left : fmin(a->room_bytes, left / a->shares[d]);
    }
    a->fits = a->missing_bytes == 0;
    double sets = ceil(need / (a->room_bytes * a->set / a->drives));
    a->drives_to_fit = sets > 0 && sets <= MOST_DRIVES ? (uint32_t)sets * a->set : 0;
}

int nb_answer_make(const struct nb_args *a, const struct nb_result *result,
                   struct nb_answer *answer, struct hst_error *error)
{
    struct nb_rates rates;
    *answer = (struct nb_answer){.drives = result->drive_count};
    int rc = nb_answer_model(a->plan, answer, error);
    if (rc)
        return rc;
    if (!nb_rates_of(result, &rates))
        return fail(error, FAIL_VALUE, -ENODATA,
                    "the result has no steady rates to plan with. Fix: measure again.");
    fill_in(a, &rates, answer);
    if (hst_bound(&answer->in, answer->tokens, &answer->bound))
        return fail(error, FAIL_VALUE, -EINVAL,
                    "the plan has no bound: a size of the model or a rate is zero. Fix: look at "
                    "%.100s.",
                    a->plan);
    answer->feeds = answer->bound.efficiency >= answer->target;
    if (hst_bound_tokens(&answer->in, answer->target, &answer->tokens_needed))
        answer->tokens_needed = 0;
    answer->set = nb_drives_are_alike(result) ? 1 : answer->drives;
    answer->drives_needed = count_sets(answer) * answer->set;
    fill_space(result, answer);
    answer->endurance_bytes = a->endurance_bytes * result->drive_count;
    bool wears = answer->endurance_bytes > 0 && answer->bound.nvme_write_bytes > 0;
    answer->steps_to_wear =
        wears ? a->endurance_bytes / (answer->most_share * answer->bound.nvme_write_bytes)
              : (double)NAN;
    answer->days_to_wear = answer->steps_to_wear * answer->bound.step_s / DAY_S;
    return 0;
}

const char *nb_bound_by_name(enum hst_bound_by by)
{
    static const char *const names[] = {"GPU", "drives", "link", "memory"};
    return names[by];
}
