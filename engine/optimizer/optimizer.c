/* SPDX-License-Identifier: Apache-2.0 */
/* This is what all rows share: how one is found, its sizes, the user's numbers, its kernel on the
   host. */
#include "optimizer/optimizer.h"

#include "base/real.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* ---- the table ---- */

#define PLACED(name, value) [HST_OPTIMIZER_##value] = &optimizer_##name,
static const struct optimizer_table *const tables[] = {OPTIMIZERS(PLACED)};
enum { TABLES = sizeof tables / sizeof *tables };

/* So no value has none. */
#define COUNTED(name, value) +1
static_assert(TABLES == 0 OPTIMIZERS(COUNTED), "one table for each value but ADAM");

/* Null: there is no such optimizer. */
static const struct optimizer_table *table_of(enum hst_optimizer optimizer)
{
    return (unsigned)optimizer < TABLES ? tables[optimizer] : NULL;
}

const char *optimizer_name(enum hst_optimizer optimizer)
{
    const struct optimizer_table *table = table_of(optimizer);
    return table ? table->name : NULL;
}

bool optimizer_named(const char *name, size_t bytes, enum hst_optimizer *optimizer)
{
    for (int i = 0; i < TABLES; i++) {
        if (strlen(tables[i]->name) != bytes || memcmp(tables[i]->name, name, bytes) != 0)
            continue;
        *optimizer = (enum hst_optimizer)i;
        return true;
    }
    return false;
}

const struct optimizer *optimizer_find(enum hst_optimizer optimizer, enum hst_precision precision,
                                       enum hst_state state)
{
    const struct optimizer_table *table = table_of(optimizer);
    precision = precision == HST_PRECISION_DEFAULT ? HST_PRECISION_FP32 : precision;
    state = state == HST_STATE_DEFAULT ? HST_STATE_FP32 : state;
    for (size_t i = 0; table && i < table->row_count; i++) {
        const struct optimizer *row = &table->rows[i];
        if (row->precision == precision && row->state == state)
            return row;
    }
    return NULL;
}

const struct optimizer *optimizer_measured(enum hst_precision precision, enum hst_state state)
{
    return optimizer_find(HST_OPTIMIZER_ADAMW, precision, state);
}

double optimizer_pace(const struct optimizer *optimizer)
{
    const struct optimizer *like =
        optimizer_find(HST_OPTIMIZER_ADAMW, optimizer->precision, optimizer->state);
    return like ? optimizer_traffic_bytes(like) / optimizer_traffic_bytes(optimizer) : 1;
}

/* ---- sizes ---- */

uint32_t optimizer_number_bytes(enum optimizer_number number)
{
    return number == OPTIMIZER_F32 ? 4 : number == OPTIMIZER_CODE ? 1 : 2;
}

double optimizer_state_bytes(const struct optimizer *optimizer)
{
    double bytes = 0;
    for (uint32_t i = 0; i < optimizer->state_count; i++)
        bytes += (double)optimizer_number_bytes(optimizer->states[i].number) /
                 optimizer->states[i].covers;
    return bytes;
}

double optimizer_traffic_bytes(const struct optimizer *optimizer)
{
    const double weight = (double)optimizer_weight_bytes(optimizer), grad = weight;
    const bool copies = optimizer->host.weights == HST_CPU_F16; /* of masters: written alone */
    return 2 * optimizer_state_bytes(optimizer) + (copies ? 1 : 2) * weight + grad;
}

struct optimizer_arrays optimizer_arrays_at(const struct optimizer *optimizer,
                                            const struct optimizer_arrays *arrays, uint64_t first)
{
    const uint64_t weight_at = first * optimizer_weight_bytes(optimizer);
    struct optimizer_arrays at = {
        .weights = (char *)arrays->weights + weight_at,
        .grads = arrays->grads ? (const char *)arrays->grads + weight_at : NULL,
        .index = arrays->index + first,
    };
    for (uint32_t i = 0; i < optimizer->state_count; i++)
        at.states[i] = (char *)arrays->states[i] + optimizer_array_bytes(optimizer, i, first);
    return at;
}

/* ---- the user's numbers ---- */

/* Each number: the option that says it, and where it stands. Two of one option are neighbours. */
static const struct {
    const char *option;
    size_t config, group;
} NUMBERS[] = {
#define NUMBER(option, field)                                                                      \
    {                                                                                              \
        option, offsetof(struct hst_config, field), offsetof(struct optimizer_group, field)        \
    }
    NUMBER("betas", beta1),
    NUMBER("betas", beta2),
    NUMBER("momentum", momentum),
    NUMBER("eps", eps),
    NUMBER("weight-decay", weight_decay),
};
enum { NUMBERS_COUNT = sizeof NUMBERS / sizeof *NUMBERS };

static double read_at(const void *from, size_t offset)
{
    double x;
    memcpy(&x, (const char *)from + offset, sizeof x);
    return x;
}

static void write_at(void *into, size_t offset, double x)
{
    memcpy((char *)into + offset, &x, sizeof x);
}

static bool has(const struct optimizer_table *table, int number)
{
    return read_at(&table->defaults, NUMBERS[number].group) != OPTIMIZER_NO_NUMBER;
}

void optimizer_resolve(struct hst_config *config)
{
    const struct optimizer_table *table = table_of(config->optimizer);
    for (int i = 0; table && i < NUMBERS_COUNT; i++) {
        const size_t at = NUMBERS[i].config;
        const double fallback = read_at(&table->defaults, NUMBERS[i].group);
        if (has(table, i))
            write_at(config, at, real_or(read_at(config, at), fallback));
    }
}

bool optimizer_has(enum hst_optimizer optimizer, size_t offset)
{
    const struct optimizer_table *table = table_of(optimizer);
    return table && read_at(&table->defaults, offset) != OPTIMIZER_NO_NUMBER;
}

struct optimizer_group optimizer_group_of(const struct hst_config *config)
{
    struct optimizer_group group = {.lr_factor = 1};
    for (int i = 0; i < NUMBERS_COUNT; i++)
        write_at(&group, NUMBERS[i].group, read_at(config, NUMBERS[i].config));
    return group;
}

static void list_names(char *text, size_t bytes)
{
    int n = snprintf(text, bytes, "optimizer must be one of");
    for (int i = 0; i < TABLES; i++)
        n += snprintf(text + n, bytes - (size_t)n, "%s %s", i ? "," : "", tables[i]->name);
}

bool optimizer_refusal(const struct hst_config *config, char text[HST_WHY_BYTES])
{
    const struct optimizer_table *table = table_of(config->optimizer);
    const struct optimizer_group group = optimizer_group_of(config);
    const struct optimizer_step step = {.lr = 0, .t = 1, .grad_scale = 1};
    struct optimizer_coef unused;
    if (!table) {
        list_names(text, HST_WHY_BYTES);
        return true;
    }
    for (int i = 0; i < NUMBERS_COUNT; i++) {
        if (has(table, i) || read_at(config, NUMBERS[i].config) == 0)
            continue;
        snprintf(text, HST_WHY_BYTES,
                 "--%s is of other optimizers: --optimizer %s has none. Fix: leave it out",
                 NUMBERS[i].option, table->name);
        return true;
    }
    snprintf(text, HST_WHY_BYTES,
             "betas and momentum must be in [0, 1), eps > 0, weight_decay >= 0, all finite");
    return table->rows[0].coef(&group, &step, &unused) != 0;
}

bool hst_config_optimizer(struct hst_config *config, char why[HST_WHY_BYTES])
{
    struct hst_config resolved = *config;
    struct optimizer_groups groups;
    optimizer_resolve(&resolved);
    if (optimizer_refusal(&resolved, why) || !optimizer_groups_read(&resolved, &groups, why))
        return false;
    for (int i = 0; i < NUMBERS_COUNT; i++) {
        const size_t at = NUMBERS[i].config;
        const double x = read_at(&resolved, at);
        if (read_at(config, at) == 0 && has(table_of(config->optimizer), i))
            write_at(config, at, x == 0 ? HST_NONE : x);
    }
    return true;
}

/* Stores of before there were others say nothing of AdamW. */
int optimizer_settings_write(const struct hst_config *config, char *text, size_t bytes)
{
    const struct optimizer_table *table = tables[config->optimizer];
    const char *option = "";
    char real[REAL_TEXT_BYTES];
    int n = 0;
    if (config->optimizer != HST_OPTIMIZER_ADAMW)
        n = snprintf(text, bytes, "optimizer %s\n", table->name);
    for (int i = 0; i < NUMBERS_COUNT; i++) {
        if (!has(table, i))
            continue;
        const bool second = strcmp(option, NUMBERS[i].option) == 0;
        option = NUMBERS[i].option;
        if (second) /* in place of the end of the line */
            n--;
        n += snprintf(text + n, bytes - (size_t)n, "%s%s%s\n", second ? "" : option,
                      second ? "," : " ", real_text(read_at(config, NUMBERS[i].config), real));
    }
    for (uint32_t g = 0; g < HST_GROUPS_MOST && config->group[g]; g++)
        n += snprintf(text + n, bytes - (size_t)n, "%s%s", g ? ";" : "group '", config->group[g]);
    if (config->group[0])
        n += snprintf(text + n, bytes - (size_t)n, "'\n");
    return n;
}

/* All else follows from the step and the user's numbers. */
bool optimizer_coefs_agree(const struct optimizer_coefs *a, const struct optimizer_coefs *b)
{
    return a->groups[0][false].host.grad_scale == b->groups[0][false].host.grad_scale;
}

/* ---- on the host ---- */

struct optimizer_kernel optimizer_kernel_find(const struct optimizer *optimizer,
                                              const struct hst_cpu_adam_ops *ops)
{
    const struct hst_update *update = hst_update_find(ops, optimizer->host);
    assert(update); /* each table of cpu_adam has the same rows */
    return (struct optimizer_kernel){.optimizer = optimizer, .ops = ops, .update = update};
}

void optimizer_begin(const struct optimizer_kernel *kernel, const float *x,
                     const struct optimizer_arrays *arrays, size_t n)
{
    const struct optimizer *o = kernel->optimizer;
    kernel->update->set_weights(x, arrays->weights, o->has_master ? arrays->states[0] : NULL, n);
    for (uint32_t i = o->has_master; i < o->state_count; i++)
        memset(arrays->states[i], 0, optimizer_array_bytes(o, i, n));
}

void optimizer_set_frozen(const struct optimizer_kernel *kernel, float *x, void *weights, size_t n)
{
    /* remainders of so few at a time need no memory of their own */
    int16_t remainder[256];
    const size_t most = sizeof remainder / sizeof *remainder;
    const uint64_t bytes = optimizer_weight_bytes(kernel->optimizer);
    assert(kernel->optimizer->host.weights != HST_CPU_F16); /* whose masters are f32 */
    for (size_t i = 0; kernel->optimizer->has_master && i < n; i += most)
        kernel->update->set_weights(x + i, (char *)weights + i * bytes, remainder,
                                    n - i < most ? n - i : most);
    if (!kernel->optimizer->has_master)
        kernel->update->set_weights(x, weights, NULL, n);
}

const float *optimizer_widen(const struct optimizer_kernel *kernel, const void *weights,
                             float *room, size_t n)
{
    static const int16_t none[256];
    const size_t most = sizeof none / sizeof *none;
    if (!kernel->optimizer->has_master)
        return weights;
    for (size_t i = 0; i < n; i += most)
        kernel->ops->join_f32((const uint16_t *)weights + i, none, room + i,
                              n - i < most ? n - i : most);
    return room;
}

const float *optimizer_masters(const struct optimizer_kernel *kernel,
                               const struct optimizer_arrays *arrays, float *room, size_t n)
{
    if (!kernel->optimizer->has_master)
        return arrays->weights;
    if (kernel->optimizer->host.weights == HST_CPU_F16)
        return arrays->states[0];
    kernel->ops->join_f32(arrays->weights, arrays->states[0], room, n);
    return room;
}

void optimizer_derive(const struct optimizer_kernel *kernel, const struct optimizer_arrays *arrays,
                      size_t n)
{
    kernel->update->set_weights(arrays->states[0], arrays->weights, arrays->states[0], n);
}

int optimizer_run(const struct optimizer_kernel *kernel, const struct optimizer_coef *coef,
                  const struct optimizer_arrays *arrays, size_t n)
{
    struct hst_update_arrays a = kernel->optimizer->host_arrays(kernel->optimizer, arrays);
    a.ahead = kernel->ahead;
    return hst_update_run(kernel->update, &coef->host, &a, n);
}

int optimizer_run_into(const struct optimizer_kernel *kernel, const struct optimizer_coef *coef,
                       const struct optimizer_arrays *from, const struct optimizer_arrays *into,
                       size_t n)
{
    const struct optimizer *o = kernel->optimizer;
    struct hst_update_arrays f = o->host_arrays(o, from);
    const struct hst_update_arrays t = o->host_arrays(o, into);
    f.ahead = kernel->ahead;
    return hst_update_run_into(kernel->update, &coef->host, &f, &t, n);
}
