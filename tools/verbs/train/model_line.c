/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The line of a store that says of the model what its tensors' shapes do not. What a model has not
 * is left out of it, so that a store goes on that was begun before the program knew of it.
 */
#include "verbs/train/run.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static const char *const ROPES[] = {
    [ROPE_DEFAULT] = "default", [ROPE_LINEAR] = "linear", [ROPE_LLAMA3] = "llama3"};

/* Shapes are the engine's to compare. */
size_t train_model_line(const struct llama_config *c, char text[TRAIN_CURSOR_BYTES])
{
    const struct rope_config *r = &c->rope;
    char pad[24] = "";
    if (c->has_pad)
        snprintf(pad, sizeof pad, " pad %" PRIu32, c->pad);
    return (size_t)snprintf(
        text, TRAIN_CURSOR_BYTES,
        "model heads %u,%u,%u eps %.15g rope %s,%.15g,%.15g,%.15g,%.15g,%.15g%s\n", c->heads,
        c->kv_heads, c->head_dim, c->rms_norm_eps, ROPES[r->type], r->theta, r->factor,
        r->low_freq_factor, r->high_freq_factor, r->original_max_positions, pad);
}

/* Which layers have it is told by a hash (FNV-1a, 64 bits). */
size_t train_window_line(const struct llama_config *c, uint64_t seq_len, char *text, size_t bytes)
{
    uint64_t layers = UINT64_C(0xcbf29ce484222325);
    if (!c->window || seq_len <= c->window)
        return 0;
    for (size_t i = 0; i < sizeof c->windowless / sizeof *c->windowless; i++)
        layers = (layers ^ c->windowless[i]) * UINT64_C(0x100000001b3);
    return (size_t)snprintf(text, bytes, TRAIN_WINDOW_WORD "%" PRIu32 " %016" PRIx64 "\n",
                            c->window, layers);
}

/* Units are what a store's tiles are cut of, so it has to say which a model has. */
#define HALVES "layers halves\n"

size_t train_layers_line(bool halves, char *text, size_t bytes)
{
    return halves ? (size_t)snprintf(text, bytes, HALVES) : 0;
}

bool train_layers_halved(const void *cursor, size_t bytes)
{
    return bytes > 0 && memmem(cursor, bytes, "\n" HALVES, strlen("\n" HALVES)) != NULL;
}

int train_layers_failed(const struct train_options *o, bool halved, struct hst_error *error)
{
    static const char *const names[] = {"whole", "halves"};
    if ((o->layers == TRAIN_LAYERS_HALVES) == halved)
        return 0;
    return fail(error, (enum fail_code)HST_E_STORE_OTHER, -EINVAL,
                "the store was trained with --layers %s, this run has --layers %s. Fix: --layers "
                "%s, or another --store.",
                names[halved], names[!halved], names[halved]);
}

/* It returns where the line's pad begins, or its end. */
static int pad_of(const char *line, int length)
{
    const char *pad = memmem(line, (size_t)length, " pad ", strlen(" pad "));
    return pad ? (int)(pad - line) : length;
}

bool train_model_pad_alone(struct train_line was, struct train_line is)
{
    const int before = pad_of(was.line, was.length);
    return before == pad_of(is.line, is.length) && memcmp(was.line, is.line, (size_t)before) == 0;
}

/* "pad_token_id 3", or "none". */
static void say_pad(struct train_line text, char said[48])
{
    const int at = pad_of(text.line, text.length);
    if (at == text.length)
        snprintf(said, 48, "none");
    else
        snprintf(said, 48, "pad_token_id %.*s", text.length - at - 5, text.line + at + 5);
}

void train_model_pad_failed(struct train_line was, struct train_line is, struct hst_error *error)
{
    char before[48], now[48];
    say_pad(was, before);
    say_pad(is, now);
    fail(error, (enum fail_code)HST_E_STORE_OTHER, -EINVAL,
         "the store was trained with no row of the embedding left out for padding, or with another "
         "one (it has %s, config.json has %s): look-ups do not train that row. Fix: %s in a copy "
         "of the --model, or another --store.",
         before, now,
         strcmp(before, "none") == 0 ? "\"pad_token_id\": null" : "the pad_token_id of that run");
}

/* "sliding_window 33", or that sequences see all of themselves. */
static void say_window(struct train_line text, uint64_t seq_len, char said[64])
{
    const char *number = text.line + strlen(TRAIN_WINDOW_WORD);
    if (text.length == 0)
        snprintf(said, 64, "no sliding_window below --seq-len %" PRIu64, seq_len);
    else
        snprintf(said, 64, "sliding_window %.*s", (int)strcspn(number, " "), number);
}

void train_window_failed(struct train_line was, struct train_line is, uint64_t seq_len,
                         struct hst_error *error)
{
    char before[64], now[64];
    say_window(was, seq_len, before);
    say_window(is, seq_len, now);
    const bool layers = strcmp(before, now) == 0;
    fail(error, (enum fail_code)HST_E_STORE_OTHER, -EINVAL,
         "the store was trained with %s, this run has %s%s. Fix: the --model of that run, with %s, "
         "or another --store.",
         before, now, layers ? " in other layers" : "",
         layers ? "the layer_types that it had" : before);
}
