/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides what a user may write for each field of struct hst_config, and turns that text into
 * values. One table gives the command line, the help and the ranges, so that they cannot disagree.
 * Numbers are read strictly: what is not wholly understood is refused, because a run that lasts
 * days must not start on a value that wrapped around or was cut short.
 */
#include "base/loss_scale.h"

#include <hoistway/hoistway.h>

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB 1024.0
/* No whole number may be greater: up to here a double is exact, so that reading loses nothing. */
#define WHOLE_MAX      0x1p52
#define LONGEST_NUMBER 64

static const char suffixes[] = "KMGT";

static_assert(sizeof(enum hst_io) == sizeof(int), "a choice is stored as an int");
static_assert(sizeof(enum hst_update_time) == sizeof(int), "a choice is stored as an int");
static_assert(sizeof(enum hst_activations) == sizeof(int), "a choice is stored as an int");
static_assert(sizeof(enum hst_precision) == sizeof(int), "a choice is stored as an int");
static_assert(sizeof(enum hst_reduce) == sizeof(int), "a choice is stored as an int");
static_assert(sizeof(enum hst_zero) == sizeof(int), "a choice is stored as an int");
static_assert(offsetof(struct hst_config, beta2) ==
                  offsetof(struct hst_config, beta1) + sizeof(double),
              "a pair is stored as double[2]");

static const char *const io_choices[] = {"auto", "uring", "threads", NULL};
static const char *const precision_choices[] = {"fp32", "bf16", "fp16", NULL};
static const char *const state_choices[] = {"fp32", "bf16", NULL};
static const char *const update_choices[] = {"auto", "deferred", "optimistic", NULL};
static const char *const zero_choices[] = {"3", "2", NULL};
static const char *const reduce_choices[] = {"grads", "f32", NULL};
static const char *const activation_choices[] = {"auto", "recompute", NULL};

#define FIELD(f) offsetof(struct hst_config, f)

static const struct hst_option options[] = {
    {.name = "batch-tokens",
     .group = "training",
     .type = HST_OPTION_COUNT,
     .offset = FIELD(batch_tokens),
     .argument = "N",
     .default_text = "4096",
     .least = 1,
     .greatest = 0x1p40,
     .help = "tokens of a step, whole sequences"},
    {.name = "grain",
     .group = "training",
     .type = HST_OPTION_COUNT,
     .offset = FIELD(micro_batch_tokens),
     .argument = "TOKENS",
     .default_text = "2048",
     .least = 1,
     .greatest = 0x1p40,
     .help = "tokens whose weight gradient is one matrix product"},
    {.name = "betas",
     .group = "training",
     .type = HST_OPTION_PAIR,
     .offset = FIELD(beta1),
     .argument = "B1,B2",
     .default_text = "0.9,0.999",
     .least = 0,
     .greatest = 1,
     .greatest_excluded = true,
     .zero_is_none = true,
     .help = "decay rates of Adam's moments"},
    {.name = "eps",
     .group = "training",
     .type = HST_OPTION_REAL,
     .offset = FIELD(eps),
     .argument = "X",
     .default_text = "1e-8",
     .least = 1e-30,
     .greatest = 1,
     .help = "Adam's epsilon"},
    {.name = "weight-decay",
     .group = "training",
     .type = HST_OPTION_REAL,
     .offset = FIELD(weight_decay),
     .argument = "X",
     .default_text = "0.01",
     .least = 0,
     .greatest = 100,
     .zero_is_none = true,
     .help = "decoupled, on tensors of two or more dimensions"},
    {.name = "clip",
     .group = "training",
     .type = HST_OPTION_REAL,
     .offset = FIELD(clip),
     .argument = "X",
     .default_text = "1.0",
     .least = 0,
     .greatest = 1e30,
     .zero_is_none = true,
     .help = "greatest global gradient norm; 0: no clipping"},
    {.name = "precision",
     .group = "training",
     .type = HST_OPTION_CHOICE,
     .offset = FIELD(precision),
     .argument = "TYPE",
     .default_text = "fp32; bf16 on a GPU",
     .choices = precision_choices,
     .first_choice = HST_PRECISION_FP32,
     .help = "of weights, gradients and activations"},
    {.name = "loss-scale",
     .group = "training",
     .type = HST_OPTION_REAL,
     .offset = FIELD(loss_scale),
     .argument = "X",
     .default_text = "65536",
     .least = LOSS_SCALE_LEAST,
     .greatest = LOSS_SCALE_MOST,
     .help = "of the first step in fp16; it adapts itself"},
    {.name = "skip-nonfinite",
     .group = "training",
     .type = HST_OPTION_FLAG,
     .offset = FIELD(skip_nonfinite),
     .help = "leave out steps with gradients that are not finite, or too large"},
    {.name = "state",
     .group = "training",
     .type = HST_OPTION_CHOICE,
     .offset = FIELD(state),
     .argument = "TYPE",
     .default_text = "fp32",
     .choices = state_choices,
     .first_choice = HST_STATE_FP32,
     .help = "of the optimizer's moments; bf16 changes the results"},
    {.name = "store",
     .group = "placement",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(store),
     .argument = "DIR[,DIR]",
     .help = "for what lives on NVMe, one per drive; created if missing"},
    {.name = "hbm",
     .group = "placement",
     .type = HST_OPTION_SIZE,
     .offset = FIELD(hbm_bytes),
     .argument = "SIZE",
     .default_text = "0.9 of what is free, all but 512M at most",
     .least = 4096,
     .greatest = WHOLE_MAX,
     .help = "budget of a GPU's memory"},
    {.name = "dram",
     .group = "placement",
     .type = HST_OPTION_SIZE,
     .offset = FIELD(dram_bytes),
     .argument = "SIZE",
     .default_text = "0.9 of what is free",
     .least = 4096,
     .greatest = WHOLE_MAX,
     .help = "budget of memory"},
    {.name = "nvme",
     .group = "placement",
     .type = HST_OPTION_SIZE,
     .offset = FIELD(nvme_bytes),
     .argument = "SIZE",
     .default_text = "0.9 of what is free",
     .least = 4096,
     .greatest = WHOLE_MAX,
     .help = "budget of disk space in the store directory"},
    {.name = "durability",
     .group = "placement",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(durability),
     .argument = "auto|step|N|none",
     .default_text = "auto",
     .help = "how often --resume gets a version to go on from"},
    {.name = "update",
     .group = "placement",
     .type = HST_OPTION_CHOICE,
     .offset = FIELD(update_time),
     .argument = "WHEN",
     .default_text = "auto",
     .choices = update_choices,
     .first_choice = HST_UPDATE_AUTO,
     .help = "deferred to the next forward, or optimistic in the backward"},
    {.name = "activations",
     .group = "placement",
     .type = HST_OPTION_CHOICE,
     .offset = FIELD(activations),
     .argument = "HOW",
     .default_text = "auto",
     .choices = activation_choices,
     .first_choice = HST_ACTIVATIONS_AUTO,
     .help = "those of layers, where there is room, or recompute all"},
    {.name = "gpu-update",
     .group = "placement",
     .type = HST_OPTION_REAL,
     .offset = FIELD(gpu_update),
     .argument = "X",
     .default_text = "by rates",
     .least = 0,
     .greatest = 1,
     .zero_is_none = true,
     .help = "share of tiles with states in DRAM a GPU updates, 0 to 1"},
    {.name = "keep",
     .group = "placement",
     .type = HST_OPTION_UINT32,
     .offset = FIELD(keep),
     .argument = "N",
     .default_text = "0",
     .least = 0,
     .greatest = 1000,
     .help = "copies of versions that are kept in the store, the newest ones"},
    {.name = "keep-every",
     .group = "placement",
     .type = HST_OPTION_COUNT,
     .offset = FIELD(keep_every),
     .argument = "STEPS",
     .default_text = "1000",
     .least = 1,
     .greatest = WHOLE_MAX,
     .help = "from one of them to the next"},
    {.name = "place",
     .group = "placement",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(place),
     .argument = "CLASS=TIER[,...]",
     .default_text = "by the budgets",
     .help = "home of states, weights, grads, acts: hbm, dram, nvme"},
    {.name = "threads",
     .group = "placement",
     .type = HST_OPTION_UINT32,
     .offset = FIELD(threads),
     .argument = "N",
     .default_text = "physical cores",
     .least = 1,
     .greatest = 1024,
     .help = "worker threads"},
    {.name = "host-math",
     .group = "placement",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(host_math),
     .argument = "NAME",
     .default_text = "its own choice",
     .help = "core of OpenBLAS: the same bits wherever it runs"},
    {.name = "io",
     .group = "placement",
     .type = HST_OPTION_CHOICE,
     .offset = FIELD(io),
     .argument = "BACKEND",
     .default_text = "auto",
     .choices = io_choices,
     .first_choice = HST_IO_AUTO,
     .help = "what carries the traffic to the store; never degraded if forced"},
    {.name = "ways",
     .group = "ranks",
     .type = HST_OPTION_UINT32,
     .offset = FIELD(ways),
     .argument = "W",
     .default_text = "as many as ranks",
     .least = 1,
     .greatest = 65536,
     .help = "parts of a batch; a part of the numbers"},
    {.name = "zero-stage",
     .group = "ranks",
     .type = HST_OPTION_CHOICE,
     .offset = FIELD(zero_stage),
     .argument = "STAGE",
     .default_text = "3",
     .choices = zero_choices,
     .first_choice = HST_ZERO_3,
     .help = "3: a rank has its shard of all; 2: all weights, in memory"},
    {.name = "reduce",
     .group = "ranks",
     .type = HST_OPTION_CHOICE,
     .offset = FIELD(reduce),
     .argument = "TYPE",
     .default_text = "grads",
     .choices = reduce_choices,
     .first_choice = HST_REDUCE_GRADS,
     .help = "what a way's gradient is rounded to: its own type, or f32"},
    {.name = "hop",
     .group = "ranks",
     .type = HST_OPTION_UINT32,
     .offset = FIELD(hop),
     .argument = "H",
     .default_text = "8",
     .least = 1,
     .greatest = 65536,
     .help = "sums of so many ways are rounded, too; a power of two"},
    {.name = "peer-timeout",
     .group = "ranks",
     .type = HST_OPTION_REAL,
     .offset = FIELD(peer_timeout_s),
     .argument = "SECONDS",
     .default_text = "60",
     .least = 1,
     .greatest = 86400,
     .help = "how long a rank is waited for"},
};

const struct hst_option *hst_engine_options(size_t *count)
{
    *count = sizeof options / sizeof options[0];
    return options;
}

/* ---- saying what was expected ---- */

/* 1048576 as "1M" for sizes, else plain: the form in which the user would write it. */
static void format_bound(double x, bool size, char *dst, size_t dst_bytes)
{
    size_t power = 0;
    while (size && x >= KIB && fmod(x, KIB) == 0 && power < sizeof suffixes - 1) {
        x /= KIB;
        power++;
    }
    snprintf(dst, dst_bytes, x == floor(x) && x <= WHOLE_MAX ? "%.0f%.1s" : "%g%.1s", x,
             power ? &suffixes[power - 1] : "");
}

static void format_range(const struct hst_option *o, char *dst, size_t dst_bytes)
{
    char least[32], greatest[32];
    bool size = o->type == HST_OPTION_SIZE;
    format_bound(o->least, size, least, sizeof least);
    format_bound(o->greatest, size, greatest, sizeof greatest);
    snprintf(dst, dst_bytes, "from %s to %s%s", least, o->greatest_excluded ? "below " : "",
             greatest);
}

static void format_choices(const struct hst_option *o, char *dst, size_t dst_bytes)
{
    size_t n = (size_t)snprintf(dst, dst_bytes, "one of");
    for (size_t i = 0; o->choices[i] && n < dst_bytes; i++)
        n += (size_t)snprintf(dst + n, dst_bytes - n, "%s %s", i ? "," : "", o->choices[i]);
}

static void format_expected(const struct hst_option *o, char *dst, size_t dst_bytes)
{
    char range[96];
    format_range(o, range, sizeof range);
    switch (o->type) {
    case HST_OPTION_SIZE:
        snprintf(dst, dst_bytes, "a size like 4K, 1M, 2GiB or 5e8, %s", range);
        break;
    case HST_OPTION_COUNT:
    case HST_OPTION_UINT32:
        snprintf(dst, dst_bytes, "a whole number %s", range);
        break;
    case HST_OPTION_REAL:
        snprintf(dst, dst_bytes, "a number %s", range);
        break;
    case HST_OPTION_PAIR:
        snprintf(dst, dst_bytes, "two numbers A,B, each %s", range);
        break;
    case HST_OPTION_CHOICE:
        format_choices(o, dst, dst_bytes);
        break;
    case HST_OPTION_TEXT:
        snprintf(dst, dst_bytes, "a value that is not empty");
        break;
    case HST_OPTION_FLAG:
        snprintf(dst, dst_bytes, "no value");
        break;
    case HST_OPTION_SHARE:
        snprintf(dst, dst_bytes, "a whole number %s, or a percentage of at most 100%%", range);
        break;
    }
}

static int refuse(const struct hst_option *o, int error, const char *text, char *why,
                  size_t why_bytes)
{
    char expected[256];
    const char *fault = error == -ERANGE ? "out of range" : *text ? "not understood" : "empty";
    if (o->type == HST_OPTION_FLAG)
        fault = "takes no value";
    format_expected(o, expected, sizeof expected);
    snprintf(why, why_bytes, "%s (got '%.60s%s', want %s)", fault, text,
             strlen(text) > 60 ? "..." : "", expected);
    return error;
}

/* ---- numbers ---- */

/*
 * Length of digits[.digits][e[+-]digits] at the start of text, 0: no number there. No sign, blank
 * or 0x.
 */
static size_t number_length(const char *text)
{
    size_t n = 0, digits = 0;
    for (; isdigit((unsigned char)text[n]); n++)
        digits++;
    if (text[n] == '.')
        for (n++; isdigit((unsigned char)text[n]); n++)
            digits++;
    if (digits == 0)
        return 0;
    if (text[n] == 'e' || text[n] == 'E') {
        size_t e = n + 1;
        if (text[e] == '+' || text[e] == '-')
            e++;
        if (isdigit((unsigned char)text[e]))
            for (n = e; isdigit((unsigned char)text[n]); n++)
                ;
    }
    return n;
}

/* The first n characters as a double, whatever the locale of the program around us. */
static int read_real(const char *text, size_t n, double *x)
{
    char digits[LONGEST_NUMBER + 1];
    if (n == 0 || n > LONGEST_NUMBER)
        return -EINVAL;
    memcpy(digits, text, n);
    digits[n] = '\0';
    locale_t c = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    if (!c)
        return -ENOMEM;
    double value = strtod_l(digits, NULL, c);
    freelocale(c);
    size_t mantissa = strcspn(digits, "eE");
    bool lost = value == 0 && strcspn(digits, "123456789") < mantissa;
    if (!isfinite(value) || lost)
        return -ERANGE;
    *x = value;
    return 0;
}

static bool in_range(const struct hst_option *o, double x)
{
    return x >= o->least && (o->greatest_excluded ? x < o->greatest : x <= o->greatest);
}

/* K, M, G, T, each also as KiB and so on. GB is not taken: it means two different things. */
static int read_suffix(const char *text, double *factor)
{
    *factor = 1;
    if (*text == '\0')
        return 0;
    const char *found = strchr(suffixes, toupper((unsigned char)*text));
    if (!found || (text[1] != '\0' && strcmp(text + 1, "iB") != 0))
        return -EINVAL;
    for (const char *s = suffixes; s <= found; s++)
        *factor *= KIB;
    return 0;
}

/* Sizes are rounded down to whole bytes; a count that is not whole is refused. */
static int read_whole(const struct hst_option *o, const char *text, uint64_t *value)
{
    double x = 0, factor = 1;
    size_t n = number_length(text);
    int error = read_real(text, n, &x);
    if (!error)
        error = read_suffix(text + n, &factor);
    if (error)
        return error;
    x *= factor;
    if (o->type == HST_OPTION_SIZE)
        x = floor(x);
    else if (x != floor(x))
        return -EINVAL;
    if (!in_range(o, x) || x > WHOLE_MAX)
        return -ERANGE;
    *value = (uint64_t)x;
    return 0;
}

static int read_real_in_range(const struct hst_option *o, const char *text, size_t length,
                              double *value)
{
    double x = 0;
    size_t n = number_length(text);
    if (n != length)
        return -EINVAL;
    int error = read_real(text, n, &x);
    if (error)
        return error;
    if (!in_range(o, x))
        return -ERANGE;
    *value = x == 0 && o->zero_is_none ? HST_NONE : x;
    return 0;
}

static int read_pair(const struct hst_option *o, const char *text, double pair[2])
{
    const char *comma = strchr(text, ',');
    if (!comma)
        return -EINVAL;
    double both[2];
    int error = read_real_in_range(o, text, (size_t)(comma - text), &both[0]);
    if (!error)
        error = read_real_in_range(o, comma + 1, strlen(comma + 1), &both[1]);
    if (!error)
        memcpy(pair, both, sizeof both);
    return error;
}

/* A percentage ends in %, and nothing else does. */
static int read_share(const struct hst_option *o, const char *text, struct hst_share *share)
{
    static const struct hst_option percentage = {.least = 0, .greatest = 100};
    struct hst_share read = {0};
    const size_t length = strlen(text);
    if (length == 0 || text[length - 1] != '%') {
        int error = read_whole(o, text, &read.count);
        if (!error)
            *share = read;
        return error;
    }
    int error = read_real_in_range(&percentage, text, length - 1, &read.percent);
    if (!error && read.percent == 0 && o->least > 0)
        error = -ERANGE;
    if (!error)
        *share = read;
    return error;
}

static int read_choice(const struct hst_option *o, const char *text, int *value)
{
    for (int i = 0; o->choices[i]; i++) {
        if (strcmp(text, o->choices[i]) == 0) {
            *value = o->first_choice + i;
            return 0;
        }
    }
    return -EINVAL;
}

/* ---- storing ---- */

static int parse_whole(const struct hst_option *o, const char *text, void *field)
{
    uint64_t value = 0;
    int error = read_whole(o, text, &value);
    if (error)
        return error;
    if (o->type == HST_OPTION_UINT32) {
        if (value > UINT32_MAX)
            return -ERANGE;
        uint32_t narrow = (uint32_t)value;
        memcpy(field, &narrow, sizeof narrow);
    } else {
        memcpy(field, &value, sizeof value);
    }
    return 0;
}

static int parse(const struct hst_option *o, const char *text, void *field)
{
    switch (o->type) {
    case HST_OPTION_SIZE:
    case HST_OPTION_COUNT:
    case HST_OPTION_UINT32:
        return parse_whole(o, text, field);
    case HST_OPTION_REAL:
        return read_real_in_range(o, text, strlen(text), field);
    case HST_OPTION_PAIR:
        return read_pair(o, text, field);
    case HST_OPTION_CHOICE:
        return read_choice(o, text, field);
    case HST_OPTION_TEXT:
        if (*text == '\0')
            return -EINVAL;
        memcpy(field, &text, sizeof text);
        return 0;
    case HST_OPTION_FLAG:
        if (*text != '\0')
            return -EINVAL;
        *(bool *)field = true;
        return 0;
    case HST_OPTION_SHARE:
        return read_share(o, text, field);
    }
    return -EINVAL;
}

int hst_option_parse(const struct hst_option *option, const char *text, void *target, char *why,
                     size_t why_bytes)
{
    int error = parse(option, text, (char *)target + option->offset);
    return error ? refuse(option, error, text, why, why_bytes) : 0;
}
