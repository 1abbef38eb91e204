/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A command line of train and of nvme-bench, each argument ended by NUL; and each argument as the
 * value of some option of the engine, by its place and the first byte. What is accepted lies in the
 * range of its table.
 */
#include "fuzz.h"

#include "cli/options/options.h"
#include "nvme_bench/args.h"
#include "verbs/train/config.h"
#include "verbs/train/train.h"

#include <math.h>

#define MAX_ARGUMENTS 32

static void check_value(const struct hst_option *o, const char *text)
{
    struct hst_config config = {.size = sizeof config};
    char why[400];
    if (hst_option_parse(o, text, &config, why, sizeof why)) {
        MUST(strnlen(why, sizeof why) < sizeof why && strstr(why, "want"));
        return;
    }
    const char *field = (const char *)&config + o->offset;
    uint64_t whole;
    double real;
    if (o->type == HST_OPTION_SIZE || o->type == HST_OPTION_COUNT) {
        memcpy(&whole, field, sizeof whole);
        MUST((double)whole >= o->least && (double)whole <= o->greatest);
    } else if (o->type == HST_OPTION_REAL) {
        memcpy(&real, field, sizeof real);
        MUST(isfinite(real) && real <= o->greatest);
        MUST(real >= o->least || (o->zero_is_none && real == HST_NONE));
    }
}

static void parse_both(int argc, char **argv)
{
    struct train_options train;
    struct nb_args bench;
    struct hst_error error = {0};
    bool help = false;
    train_options_init(&train);
    if (train_options_parse(&train, argc, argv, &help, &error)) {
        must_be_told(&error, FAIL_USAGE, FAIL_MISSING);
    } else {
        MUST((train.steps >= 1) + (train.epochs > 0) >= 1);
        MUST(train.seq_len >= 1 && train.engine.batch_tokens >= 1);
        MUST(train.warmup.percent <= 100 && train.decay.percent <= 100);
        MUST(train.lr >= 0 && train.lr <= 1);
    }
    train_config_close(&train);
    error = (struct hst_error){0};
    if (nb_args_parse(argc, argv, &bench, &help, &error)) {
        must_be_told(&error, FAIL_USAGE, FAIL_MISSING);
        return;
    }
    MUST(bench.paths.count <= CLI_MAX_OPERANDS && bench.blocks.count <= NB_MAX_LIST);
    MUST(isfinite(bench.endurance_bytes) && bench.endurance_bytes >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = exact_copy(data, size), *argv[MAX_ARGUMENTS + 1] = {NULL};
    int argc = 0;
    size_t count;
    const struct hst_option *options = hst_engine_options(&count);
    for (size_t at = 0; at < size && argc < MAX_ARGUMENTS; at += strlen(text + at) + 1) {
        if (strcmp(text + at, "--help") == 0 || strcmp(text + at, "-h") == 0)
            continue; /* prints pages */
        check_value(&options[((size_t)argc + data[0]) % count], text + at);
        argv[argc++] = text + at;
    }
    parse_both(argc, argv);
    free(text);
    return 0;
}
