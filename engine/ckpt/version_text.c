/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/version_text.h"

#include "base/real.h"
#include "optimizer/optimizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool version_text_split(const struct store_cursor *cursor, struct version_text *text)
{
    const unsigned char *opaque = cursor->opaque;
    uint32_t length;
    if (cursor->opaque_bytes < sizeof length)
        return false;
    memcpy(&length, opaque, sizeof length);
    if (length > cursor->opaque_bytes - sizeof length)
        return false;
    *text = (struct version_text){
        .settings = (const char *)opaque + sizeof length,
        .settings_bytes = length,
        .cursor = opaque + sizeof length + length,
        .cursor_bytes = (uint32_t)(cursor->opaque_bytes - sizeof length - length),
    };
    return true;
}

/* ---- settings ---- */

static const char *const PRECISIONS[] = {
    [HST_PRECISION_FP32] = "fp32", [HST_PRECISION_BF16] = "bf16", [HST_PRECISION_FP16] = "fp16"};

/* The last lines tell of what was otherwise once. A store without them
 * was trained when a norm was a rounded sum of rounded sums, or when the noise by which a moment is
 * rounded to bf16 depended on the step and the weight alone. */
#define NORM     "norm exact\n"
#define ROUNDING "rounding index\n"

static int list_write(const char *name, const char *const *list, char *text, size_t bytes)
{
    int n = 0;
    for (uint32_t i = 0; i < HST_GROUPS_MOST && list[i]; i++)
        n +=
            snprintf(text + n, bytes - (size_t)n, "%s%s%s", i ? ";" : name, i ? "" : " '", list[i]);
    return n == 0 ? 0 : n + snprintf(text + n, bytes - (size_t)n, "'\n");
}

/* Stores of before there were any say nothing of frozen tensors. A flag freezes without an option,
 * so which they are is told as well. */
static int frozen_write(const struct hst_config *c, const struct layout *layout, char *text,
                        size_t bytes)
{
    const uint64_t elements = layout_frozen_elements(layout);
    int n = list_write("freeze", c->freeze, text, bytes);
    n += list_write("train-only", c->train_only, text + n, bytes - (size_t)n);
    if (elements > 0)
        n += snprintf(text + n, bytes - (size_t)n, "frozen %llu elements (digest %016llx)\n",
                      (unsigned long long)elements,
                      (unsigned long long)layout_frozen_digest(layout));
    return n;
}

static const char *reduce_name(enum hst_reduce reduce)
{
    static const char *const names[] = {"grads", "f32", "int8", "int4"};
    return names[reduce];
}

uint32_t version_settings_write(const struct hst_config *c, const struct layout *layout, char *text,
                                size_t bytes)
{
    char clip[REAL_TEXT_BYTES];
    int n =
        snprintf(text, bytes, "precision %s\nstate %s\ngrain %llu\nbatch-tokens %llu\n",
                 PRECISIONS[c->precision], hst_state_name(c->state),
                 (unsigned long long)c->micro_batch_tokens, (unsigned long long)c->batch_tokens);
    n += optimizer_settings_write(c, text + n, bytes - (size_t)n);
    n +=
        snprintf(text + n, bytes - (size_t)n,
                 "clip %s\ntile-elements %u\nparameters %llu (digest %016llx)\n",
                 real_text(c->clip, clip), layout->tile_elements,
                 (unsigned long long)layout->parameters, (unsigned long long)layout_digest(layout));
    n += frozen_write(c, layout, text + n, bytes - (size_t)n);
    if (c->ways > 1) /* one way is what stores of before it say nothing of */
        n += snprintf(text + n, bytes - (size_t)n, "ways %u\nreduce %s\nhop %u\n", c->ways,
                      reduce_name(c->reduce), c->hop);
    if (c->gather == HST_GATHER_INT8) /* nor of plain weights */
        n += snprintf(text + n, bytes - (size_t)n, "gather int8\n");
    n += snprintf(text + n, bytes - (size_t)n, NORM);
    if (c->state == HST_STATE_BF16)
        n += snprintf(text + n, bytes - (size_t)n, ROUNDING);
    return (uint32_t)n;
}

/* The value of the line with this name; NULL: no such line. */
static const char *value_of(const char *settings, const char *name, size_t *bytes)
{
    for (const char *line = settings; *line;
         line += strcspn(line, "\n") + (strchr(line, '\n') != NULL)) {
        if (strncmp(line, name, strlen(name)) != 0 || line[strlen(name)] != ' ')
            continue;
        line += strlen(name) + 1;
        *bytes = strcspn(line, "\n");
        return line;
    }
    return NULL;
}

unsigned version_settings_take_news(const char *was, char *is)
{
    static const struct {
        const char *name, *line;
    } news[] = {{"norm", NORM}, {"rounding", ROUNDING}}; /* bit n is the n-th */
    unsigned taken = 0;
    size_t bytes;
    for (unsigned i = 0; i < sizeof news / sizeof *news; i++) {
        char *there = value_of(was, news[i].name, &bytes) ? NULL : strstr(is, news[i].line);
        if (!there)
            continue;
        const char *next = there + strlen(news[i].line);
        memmove(there, next, strlen(next) + 1);
        taken |= 1u << i;
    }
    return taken;
}

uint32_t version_math_write(const char *math, char *text, size_t bytes)
{
    size_t used = strlen(text);
    snprintf(text + used, bytes - used, "math %s\n", math);
    return (uint32_t)strlen(text);
}

void version_math_differ(const char **was, const char **is)
{
    size_t same = 0;
    while ((*was)[same] && (*was)[same] == (*is)[same])
        same++;
    while (same > 0 && !(same > 1 && (*was)[same - 2] == ',' && (*was)[same - 1] == ' '))
        same--;
    *was += same;
    *is += same;
}

void version_math_take(char *settings, char *math, size_t bytes)
{
    size_t length = 0;
    const char *value = value_of(settings, "math", &length);
    snprintf(math, bytes, "%.*s", (int)length, value ? value : "");
    if (!value)
        return;
    char *line = settings + (value - settings) - (sizeof "math " - 1);
    const char *next = value + length + (value[length] == '\n');
    memmove(line, next, strlen(next) + 1);
}

static bool says(const char *settings, const char *name, const char *word)
{
    size_t bytes = 0;
    const char *value = value_of(settings, name, &bytes);
    return value && strlen(word) == bytes && memcmp(word, value, bytes) == 0;
}

#define OPTIMIZER "optimizer"

const struct optimizer *version_settings_optimizer(const char *settings)
{
    enum hst_optimizer optimizer = 0; /* of which they say nothing */
    int p = HST_PRECISION_FP32, s = HST_STATE_FP32;
    size_t bytes = 0;
    const char *name = value_of(settings, OPTIMIZER, &bytes);
    const char *state;
    if (name && !optimizer_named(name, bytes, &optimizer))
        return NULL;
    while (p <= HST_PRECISION_FP16 && !says(settings, "precision", PRECISIONS[p]))
        p++;
    while ((state = hst_state_name((enum hst_state)s)) && !says(settings, "state", state))
        s++;
    return optimizer_find(optimizer, (enum hst_precision)p, (enum hst_state)s);
}

void version_settings_name_unsaid(const char *settings, char told[VERSION_SETTINGS_BYTES])
{
    /* what a text without such a line means: a store of before it, or this very value */
    const struct {
        const char *name, *value;
    } unsaid[] = {{OPTIMIZER, optimizer_name(0)}, {"ways", "1"}, {"gather", "plain"}};
    int n = 0;
    size_t bytes = 0;
    for (size_t i = 0; i < sizeof unsaid / sizeof *unsaid; i++)
        if (!value_of(settings, unsaid[i].name, &bytes))
            n += snprintf(told + n, VERSION_SETTINGS_BYTES - (size_t)n, "%s %s\n", unsaid[i].name,
                          unsaid[i].value);
    snprintf(told + n, VERSION_SETTINGS_BYTES - (size_t)n, "%s", settings);
}

uint32_t version_settings_ways(const char *settings)
{
    size_t bytes;
    const char *value = value_of(settings, "ways", &bytes);
    return value ? (uint32_t)strtoul(value, NULL, 10) : 1;
}

bool version_settings_digest(const char *settings, uint64_t *digest)
{
    size_t bytes = 0;
    const char *value = value_of(settings, "parameters", &bytes);
    unsigned long long parameters, read;
    if (!value || sscanf(value, "%llu (digest %16llx)", &parameters, &read) != 2)
        return false;
    *digest = read;
    return true;
}
