/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which name an unknown one was meant to be: the one that other programs call so, else the
 * one with the fewest edits, if they are few. Upper case is lower case here, and '_' is '-'.
 */
#include "cli/options/options.h"

#include <ctype.h>
#include <string.h>

#define LONGEST_NAME 48u

/*
 * It holds what transformers' TrainingArguments, PyTorch and their users call something. The first
 * row whose meaning is among the candidates counts, so that options and values can share the table.
 */
static const struct {
    const char *other, *meant;
} synonyms[] = {
    {"model-name-or-path", "model"},
    {"model-name", "model"},
    {"dataset", "data"},
    {"dataset-name", "data"},
    {"train-file", "data"},
    {"learning-rate", "lr"},
    {"lr-scheduler-type", "schedule"},
    {"lr-scheduler", "schedule"},
    {"scheduler", "schedule"},
    {"warmup-steps", "warmup"},
    {"warmup-ratio", "warmup"},
    {"num-train-epochs", "epochs"},
    {"num-epochs", "epochs"},
    {"max-steps", "steps"},
    {"num-steps", "steps"},
    {"batch-size", "batch-tokens"},
    {"per-device-train-batch-size", "batch-tokens"},
    {"max-seq-length", "seq-len"},
    {"max-length", "seq-len"},
    {"block-size", "seq-len"},
    {"max-grad-norm", "clip"},
    {"gradient-clipping", "clip"},
    {"adam-epsilon", "eps"},
    {"adam-beta1", "betas"},
    {"adam-beta2", "betas"},
    {"dtype", "precision"},
    {"torch-dtype", "precision"},
    {"bf16", "precision"},
    {"fp16", "precision"},
    {"gradient-checkpointing", "activations"},
    {"resume-from-checkpoint", "resume"},
    {"output-dir", "export"},
    {"output-dir", "store"}, /* of a verb that exports nothing */
    {"offload-folder", "store"},
    {"save-steps", "durability"},
    {"save-total-limit", "keep"},
    {"ram", "dram"},
    {"vram", "hbm"},
    {"bfloat16", "bf16"},
    {"float16", "fp16"},
    {"half", "fp16"},
    {"float32", "fp32"},
    {"float", "fp32"},
    {"cos", "cosine"},
    {"constant-with-warmup", "constant"},
    {"cosine-with-min-lr", "cosine"},
    {"warmup-stable-decay", "wsd"},
    {"cpu", "host"},
    {"gpu", "cuda"},
};

static char folded(char c)
{
    return c == '_' ? '-' : (char)tolower((unsigned char)c);
}

static bool same(const char *a, const char *b)
{
    for (; *a && folded(*a) == folded(*b); a++)
        b++;
    return !*a && !*b;
}

const char *cli_synonym(const char *name, const char *const *candidates, size_t count)
{
    for (size_t s = 0; s < sizeof synonyms / sizeof *synonyms; s++)
        for (size_t i = 0; i < count && same(name, synonyms[s].other); i++)
            if (strcmp(candidates[i], synonyms[s].meant) == 0)
                return candidates[i];
    return NULL;
}

static size_t least(size_t a, size_t b, size_t c)
{
    size_t ab = a < b ? a : b;
    return ab < c ? ab : c;
}

/* Levenshtein distance by one row; both at most LONGEST_NAME long. */
static size_t distance(const char *a, const char *b)
{
    size_t row[LONGEST_NAME + 1];
    size_t b_length = strlen(b);
    for (size_t j = 0; j <= b_length; j++)
        row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < b_length; j++) {
            size_t above = row[j + 1];
            row[j + 1] = least(above + 1, row[j] + 1, diagonal + (folded(a[i]) != folded(b[j])));
            diagonal = above;
        }
    }
    return row[b_length];
}

const char *cli_nearest(const char *name, const char *const *candidates, size_t count)
{
    const char *nearest = cli_synonym(name, candidates, count);
    size_t length = strlen(name);
    if (nearest || length > LONGEST_NAME)
        return nearest;
    /* More than half of the letters wrong is another word, not a slip. */
    size_t fewest = length / 2 + 1;
    for (size_t i = 0; i < count; i++) {
        if (strlen(candidates[i]) > LONGEST_NAME)
            continue;
        size_t d = distance(name, candidates[i]);
        if (d < fewest) {
            fewest = d;
            nearest = candidates[i];
        }
    }
    return nearest;
}
