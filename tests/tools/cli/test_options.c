/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command lines of train: what they fill in, what is refused with which code, and what the help
 * says.
 */
#include "cli/message/message.h"
#include "cli/options/options.h"
#include "verbs/train/train.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_ARGUMENTS 32

#define NEEDED "--model", "m", "--data", "d.txt", "--store", "s", "--steps", "3"

static struct train_options options;
static struct hst_error error;

/* Parses a null-terminated list of arguments. */
static int parse(const char *const *list)
{
    char *argv[MAX_ARGUMENTS];
    int argc = 0;
    bool help;
    for (; list[argc]; argc++)
        argv[argc] = (char *)(uintptr_t)list[argc];
    train_options_init(&options);
    error = (struct hst_error){0};
    return train_options_parse(&options, argc, argv, &help, &error);
}
#define PARSE(...) parse((const char *const[]){__VA_ARGS__, NULL})

static void assert_refused(int native, enum fail_code code, const char *part)
{
    assert_int_equal(native, -EINVAL);
    if (error.code != (int)code || !strstr(error.message, part))
        fail_msg("E%d %s", error.code, error.message);
    assert_int_equal(cli_exit_code(&error), CLI_EXIT_USAGE);
}

static void defaults_are_those_of_the_contract(void **state)
{
    (void)state;
    assert_int_equal(PARSE(NEEDED), 0);
    assert_string_equal(options.model, "m");
    assert_string_equal(options.data, "d.txt");
    assert_string_equal(options.engine.store, "s");
    assert_int_equal(options.steps, 3);
    assert_int_equal(options.engine.batch_tokens, 4096);
    assert_int_equal(options.seq_len, 1024);
    assert_true(options.default_batch && options.default_seq_len);
    assert_true(options.lr == 1e-5);
    assert_int_equal(options.schedule, SCHEDULE_CONSTANT);
    assert_true(options.warmup.count == 0 && options.warmup.percent == 0);
    assert_true(options.lr_end == 0);
    assert_true(options.epochs == 0);
    assert_int_equal(options.seed, 0);
    assert_int_equal(options.order, DATA_SHUFFLED);
    assert_int_equal(options.init, TRAIN_INIT_MODEL);
    assert_int_equal(options.data_format, DATA_FORMAT_AUTO);
    assert_int_equal(options.token_dtype, TOKEN_DTYPE_NONE);
    assert_int_equal(options.engine.precision, HST_PRECISION_DEFAULT);
    assert_int_equal(options.engine.io, HST_IO_AUTO);
    assert_null(options.export_directory);
    assert_null(options.log);
    assert_false(options.quiet);
}

static void both_forms_fill_both_tables(void **state)
{
    (void)state;
    assert_int_equal(PARSE(NEEDED, "--dram=16M", "--io", "threads", "--order=sequential",
                           "--schedule", "cosine", "--quiet", "--data-format=tokens",
                           "--token-dtype", "u32", "--init", "random", "--device=host",
                           "--precision=bf16", "--export=--odd", "--lr", "0"),
                     0);
    assert_int_equal(options.engine.dram_bytes, 16 << 20);
    assert_int_equal(options.engine.io, HST_IO_THREADS);
    assert_int_equal(options.order, DATA_SEQUENTIAL);
    assert_int_equal(options.schedule, SCHEDULE_COSINE);
    assert_int_equal(options.data_format, DATA_FORMAT_TOKENS);
    assert_int_equal(options.token_dtype, TOKEN_U32);
    assert_int_equal(options.init, TRAIN_INIT_RANDOM);
    assert_string_equal(options.engine.device, "host");
    assert_int_equal(options.engine.precision, HST_PRECISION_BF16);
    assert_string_equal(options.export_directory, "--odd");
    assert_true(options.lr == 0);
    assert_true(options.quiet);
}

static void an_unknown_option_names_the_nearest(void **state)
{
    (void)state;
    assert_refused(PARSE(NEEDED, "--wieght-decay", "0"), FAIL_USAGE,
                   "unknown option --wieght-decay of train. Did you mean --weight-decay?");
    assert_refused(PARSE(NEEDED, "--batch_tokens=4"), FAIL_USAGE, "Did you mean --batch-tokens?");
    assert_refused(PARSE(NEEDED, "--Quiet"), FAIL_USAGE, "Did you mean --quiet?");
    assert_refused(PARSE(NEEDED, "--sedd", "1"), FAIL_USAGE, "Did you mean --seed?");
    assert_refused(PARSE(NEEDED, "--zzzzzzzzzz"), FAIL_USAGE, "hoistway train --help");
    assert_refused(PARSE(NEEDED, "--=5"), FAIL_USAGE, "unknown option");
}

/* Names of transformers' TrainingArguments, and what their users type. */
static void an_option_of_other_programs_names_ours(void **state)
{
    (void)state;
    static const struct {
        const char *other, *ours;
    } rows[] = {
        {"--model_name_or_path", "--model?"},
        {"--dataset_name", "--data?"},
        {"--learning-rate", "--lr?"},
        {"--learning_rate=1e-5", "--lr?"},
        {"--lr_scheduler_type", "--schedule?"},
        {"--warmup_ratio", "--warmup?"},
        {"--warmup_steps", "--warmup?"},
        {"--num_train_epochs", "--epochs?"},
        {"--max_steps", "--steps?"},
        {"--per_device_train_batch_size", "--batch-tokens?"},
        {"--max_seq_length", "--seq-len?"},
        {"--max_grad_norm", "--clip?"},
        {"--adam_epsilon", "--eps?"},
        {"--adam_beta2", "--betas?"},
        {"--bf16", "--precision?"},
        {"--torch_dtype", "--precision?"},
        {"--gradient_checkpointing", "--activations?"},
        {"--resume_from_checkpoint", "--resume?"},
        {"--output_dir", "--export?"},
        {"--offload_folder", "--store?"},
        {"--save_steps", "--durability?"},
        {"--save_total_limit", "--keep?"},
        {"--RAM", "--dram?"},
        {"--vram", "--hbm?"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char part[80];
        snprintf(part, sizeof part, "of train. Did you mean %s", rows[i].ours);
        assert_refused(PARSE(NEEDED, rows[i].other), FAIL_USAGE, part);
    }
}

static void a_value_that_is_nearly_one_names_it(void **state)
{
    (void)state;
    static const struct {
        const char *given, *meant; /* null: nothing is near */
    } rows[] = {
        {"--precision=bfloat16", "--precision bf16?"},
        {"--precision=float16", "--precision fp16?"},
        {"--precision=FLOAT32", "--precision fp32?"},
        {"--precision=BF16", "--precision bf16?"},
        {"--precision=fp8", NULL},
        {"--state=bfloat16", "--state bf16?"},
        {"--schedule=cos", "--schedule cosine?"},
        {"--schedule=constant_with_warmup", "--schedule constant?"},
        {"--schedule=warmup_stable_decay", "--schedule wsd?"},
        {"--schedule=polynomial", NULL},
        {"--io=io_uring", "--io uring?"},
        {"--export-dtype=half", "--export-dtype fp16?"},
        {"--dram=4GB", "--dram 4G?"},
        {"--dram=1.5TB", "--dram 1.5T?"},
        {"--dram=4", "--dram 4G?"},
        {"--hbm=0.5", "--hbm 0.5G?"},
        {"--nvme=4000", "--nvme 4000M?"},
        {"--dram=0", NULL},
        {"--dram=B", NULL},
        {"--dram=4GBB", NULL},
        {"--dram=9223372036854775808", NULL},
        {"--lr=4GB", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char part[80] = "See 'hoistway train --help'.";
        if (rows[i].meant)
            snprintf(part, sizeof part, "). Did you mean %s", rows[i].meant);
        assert_refused(PARSE(NEEDED, rows[i].given), FAIL_VALUE, part);
    }
}

static void a_device_of_other_programs_names_ours(void **state)
{
    (void)state;
    assert_int_equal(PARSE(NEEDED, "--device=cpu"), 0);
    assert_refused(train_options_check(&options, &error), FAIL_VALUE, "Fix: --device host.");
    assert_int_equal(PARSE(NEEDED, "--device=GPU"), 0);
    assert_refused(train_options_check(&options, &error), FAIL_VALUE, "Fix: --device cuda.");
    /* a plugin may have any other name */
    assert_int_equal(PARSE(NEEDED, "--device=hots"), 0);
    assert_int_equal(train_options_check(&options, &error), 0);
}

static void what_is_not_built_yet_is_unknown(void **state)
{
    (void)state;
    static const char *const later[] = {"--paper", "--json"};
    for (size_t i = 0; i < sizeof later / sizeof later[0]; i++)
        assert_refused(PARSE(NEEDED, later[i]), FAIL_USAGE, "unknown option");
    assert_refused(PARSE(NEEDED, "--precision", "fp8"), FAIL_VALUE, "one of fp32, bf16, fp16");
    assert_refused(PARSE(NEEDED, "--data-format", "text"), FAIL_VALUE, "one of bytes, tokens");
}

static void bad_values_are_refused_with_their_option(void **state)
{
    (void)state;
    static const char *const counts[] = {
        "--steps=0",     "--steps=-1",      "--steps=",
        "--seq-len=0",   "--seq-len=1e12",  "--threads=4294967297",
        "--threads=-5",  "--threads=0x",    "--threads=",
        "--lr=nan",      "--lr=-1e-5",      "--lr=1e999",
        "--lr=2",        "--betas=0.9,1.0", "--warmup=0.5",
        "--warmup=101%", "--warmup=-1%",    "--warmup=%",
        "--warmup=3%%",  "--decay=0%",      "--decay=0",
        "--lr-end=1.5",  "--lr-end=1%",     "--epochs=0",
        "--epochs=1e7",  "--epochs=nan",    "--seed=-1",
        "--dram=2GBB",   "--dram=0",        "--dram=9223372036854775808",
        "--grain=0"};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        char name[64];
        snprintf(name, sizeof name, "%.*s: ", (int)strcspn(counts[i], "="), counts[i]);
        assert_refused(PARSE(counts[i]), FAIL_VALUE, name);
    }
}

static void values_must_be_there_and_given_once(void **state)
{
    (void)state;
    assert_refused(PARSE("--steps"), FAIL_VALUE, "--steps needs a value");
    assert_refused(PARSE("--export", "--log", "x"), FAIL_VALUE, "--export needs a value");
    assert_refused(PARSE("--steps", "1", "--steps", "2"), FAIL_VALUE, "--steps is given twice");
    assert_refused(PARSE("--quiet", "--quiet"), FAIL_VALUE, "--quiet is given twice");
    assert_refused(PARSE("--quiet=1"), FAIL_VALUE, "--quiet takes no value");
    assert_refused(PARSE("--quiet="), FAIL_VALUE, "--quiet takes no value");
    assert_refused(PARSE("model"), FAIL_USAGE, "unexpected argument 'model'");
    assert_refused(PARSE("-q"), FAIL_USAGE, "unexpected argument '-q'");
    assert_refused(PARSE("--"), FAIL_USAGE, "unexpected argument '--'");
}

static void each_required_option_is_asked_for(void **state)
{
    (void)state;
    assert_refused(PARSE("--quiet"), FAIL_MISSING, "train needs --model DIR");
    assert_refused(PARSE("--model=m"), FAIL_MISSING, "needs --data FILE[,FILE]");
    assert_refused(PARSE("--model=m", "--data=d"), FAIL_MISSING, "needs --store DIR");
    assert_refused(PARSE("--model=m", "--data=d", "--store=s"), FAIL_MISSING,
                   "needs --steps N (optimizer steps) or --epochs X (");
    assert_int_equal(PARSE("--model=m", "--data=d", "--store=s", "--epochs=0.5"), 0);
    assert_true(options.epochs == 0.5 && options.steps == 0);
}

static void hostile_arguments_stay_on_one_line(void **state)
{
    (void)state;
    char argument[5000] = "--";
    memset(argument + 2, 'a', sizeof argument - 3);
    assert_refused(PARSE(argument), FAIL_USAGE, "unknown option");
    assert_refused(PARSE("--steps=1\nerror[E999] forged\x1b[31m"), FAIL_VALUE,
                   "1\\x0aerror[E999] forged\\x1b[31m");
    assert_null(strchr(error.message, '\n'));
    memcpy(argument, "--dram=", 7);
    assert_refused(PARSE(argument), FAIL_VALUE, "...");
}

static void values_that_contradict_are_refused(void **state)
{
    (void)state;
    assert_int_equal(PARSE(NEEDED, "--batch-tokens", "1000", "--seq-len", "256"), 0);
    assert_refused(train_options_check(&options, &error), FAIL_VALUE,
                   "Fix: --batch-tokens 768 or 1024.");
    assert_int_equal(PARSE(NEEDED, "--warmup", "4"), 0);
    assert_refused(train_options_check(&options, &error), FAIL_VALUE, "--warmup 4 is longer");
    assert_int_equal(
        PARSE("--model=m", "--data=d", "--store=/nowhere,/tmp/s", "--steps=3", "--export=/tmp"), 0);
    assert_refused(train_options_check(&options, &error), FAIL_VALUE, "--store '/tmp/s' is in");
    assert_int_equal(PARSE(NEEDED, "--warmup", "3"), 0);
    assert_int_equal(train_options_check(&options, &error), 0);
    assert_int_equal(PARSE(NEEDED, "--epochs", "2"), 0);
    assert_refused(train_options_check(&options, &error), FAIL_VALUE,
                   "--steps 3 and --epochs 2 both say");
    assert_int_equal(PARSE(NEEDED, "--lr", "0"), 0);
    assert_refused(train_options_check(&options, &error), FAIL_VALUE, "nothing would be trained");
    assert_int_equal(PARSE(NEEDED, "--lr-end", "0.1"), 0);
    assert_refused(train_options_check(&options, &error), FAIL_VALUE, "--schedule constant stays");
    assert_int_equal(PARSE(NEEDED, "--schedule", "cosine", "--decay", "10%"), 0);
    assert_refused(train_options_check(&options, &error), FAIL_VALUE, "Fix: --schedule wsd");
}

/* The schedule of so many steps with these options behind the needed ones. */
#define SCHEDULE_OF(n, ...)                                                                        \
    (assert_int_equal(PARSE("--model=m", "--data=d", "--store=s", "--steps", n, __VA_ARGS__), 0),  \
     train_options_schedule(&options, &schedule, &error))

static void shares_become_steps_of_the_run(void **state)
{
    (void)state;
    struct schedule schedule = {0};
    assert_int_equal(SCHEDULE_OF("1000", "--schedule=wsd", "--warmup=2.5%", "--lr-end=0.1"), 0);
    assert_int_equal(schedule.shape, SCHEDULE_WSD);
    assert_int_equal(schedule.warmup_steps, 25);
    assert_int_equal(schedule.decay_steps, 100); /* the default, 10% */
    assert_int_equal(schedule.steps, 1000);
    assert_true(schedule.lr == 1e-5 && schedule.lr_end == 0.1);
    assert_int_equal(SCHEDULE_OF("1000", "--schedule=wsd", "--warmup=1K", "--decay=0.05%"),
                     -EINVAL);
    assert_int_equal(SCHEDULE_OF("101", "--schedule=wsd", "--warmup=2", "--decay=20%"), 0);
    assert_int_equal(schedule.warmup_steps, 2);
    assert_int_equal(schedule.decay_steps, 21);
}

static void parts_of_a_schedule_need_room_in_the_run(void **state)
{
    (void)state;
    struct schedule schedule = {0};
    assert_int_equal(SCHEDULE_OF("10", "--warmup=10"), 0);
    assert_refused(SCHEDULE_OF("10", "--warmup=11"), FAIL_VALUE, "Fix: --warmup 10 or less");
    assert_int_equal(SCHEDULE_OF("10", "--schedule=wsd", "--decay=100%"), 0);
    assert_int_equal(SCHEDULE_OF("10", "--schedule=wsd", "--warmup=5", "--decay=6"), 0);
    assert_refused(SCHEDULE_OF("10", "--schedule=wsd", "--warmup=5", "--decay=7"), FAIL_VALUE,
                   "Fix: --decay 6 or less");
}

static void a_sequence_is_no_longer_than_the_batch_unless_it_was_given(void **state)
{
    (void)state;
    assert_int_equal(PARSE(NEEDED, "--batch-tokens", "512"), 0);
    assert_int_equal(options.seq_len, 512);
    assert_true(options.default_seq_len && !options.default_batch);
    assert_int_equal(train_options_check(&options, &error), 0);
    assert_int_equal(PARSE(NEEDED, "--batch-tokens", "1536"), 0);
    assert_int_equal(train_options_check(&options, &error), 0); /* the data may be shorter */
    assert_refused(train_options_check_batch(&options, &error), FAIL_VALUE,
                   "--seq-len 1024, which was not given. Fix: --batch-tokens 1024 or 2048.");
    assert_int_equal(PARSE(NEEDED, "--batch-tokens", "512", "--seq-len", "1024"), 0);
    assert_refused(train_options_check(&options, &error), FAIL_VALUE, "Fix: --batch-tokens 1024");
}

static struct hst_launch launch;

/* As of a rank that a launcher has started with others. */
static void start_ranks(uint32_t ranks)
{
    launch = (struct hst_launch){.ranks = ranks, .rank = 1, .mpi = true};
    options.engine.launch = &launch;
    train_options_complete(&options);
}

static void a_batch_has_whole_sequences_in_each_way(void **state)
{
    (void)state;
    assert_int_equal(PARSE(NEEDED, "--batch-tokens", "96", "--seq-len", "8", "--ways", "5"), 0);
    assert_refused(train_options_check(&options, &error), FAIL_VALUE,
                   "--batch-tokens 96 is not a multiple of --seq-len 8 in each of 5 ways. Fix: "
                   "--batch-tokens 80 or 120.");
    assert_int_equal(PARSE(NEEDED, "--batch-tokens", "8", "--seq-len", "8", "--ways", "2"), 0);
    assert_refused(train_options_check(&options, &error), FAIL_VALUE, "Fix: --batch-tokens 16.");
    assert_int_equal(PARSE(NEEDED, "--batch-tokens", "96", "--seq-len", "8", "--ways", "3"), 0);
    assert_int_equal(train_options_check(&options, &error), 0);
    start_ranks(4); /* ways that are given stay; those of ranks are as many */
    assert_int_equal(train_options_ways(&options), 3);
    assert_int_equal(PARSE(NEEDED, "--batch-tokens", "100", "--seq-len", "5"), 0);
    start_ranks(8);
    assert_refused(train_options_check(&options, &error), FAIL_VALUE,
                   "in each of 8 ways. Fix: --batch-tokens 80 or 120.");
}

static void what_is_not_given_has_room_for_all_ways(void **state)
{
    (void)state;
    static const struct {
        const char *option, *value, *ways;
        uint64_t seq_len, batch;
    } cases[] = {
        {"--seq-len", "1024", "1", 1024, 4096},      {"--seq-len", "1024", "3", 1024, 3072},
        {"--seq-len", "1024", "8", 1024, 8192},      {"--batch-tokens", "512", "4", 128, 512},
        {"--batch-tokens", "9216", "4", 1024, 9216},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(PARSE(NEEDED, cases[i].option, cases[i].value, "--ways", cases[i].ways),
                         0);
        assert_int_equal(options.seq_len, cases[i].seq_len);
        assert_int_equal(options.engine.batch_tokens, cases[i].batch);
    }
    assert_int_equal(PARSE(NEEDED), 0);
    start_ranks(8);
    assert_true(options.default_batch && options.default_seq_len);
    assert_int_equal(options.seq_len, 1024);
    assert_int_equal(options.engine.batch_tokens, 8192);
}

static void what_ranks_cannot_share_is_refused(void **state)
{
    (void)state;
    assert_int_equal(PARSE(NEEDED, "--hop", "6"), 0);
    assert_refused(train_options_check(&options, &error), FAIL_VALUE, "Fix: --hop 4 or 8.");
    for (uint32_t ranks = 2; ranks <= 6; ranks++) {
        assert_int_equal(PARSE(NEEDED, "--ways", "12", "--batch-tokens", "12288"), 0);
        start_ranks(ranks);
        if (ranks == 3 || ranks == 6)
            assert_int_equal(train_options_check(&options, &error), 0);
        else
            assert_refused(train_options_check(&options, &error), FAIL_VALUE, "--ways 12");
    }
    assert_int_equal(PARSE(NEEDED, "--ways", "12", "--batch-tokens", "12288"), 0);
    start_ranks(5);
    assert_refused(train_options_check(&options, &error), FAIL_VALUE, "or --ways 5 or 10.");
}

static void several_ranks_compute_on_any_device(void **state)
{
    (void)state;
    static const char *const devices[] = {"host", "cuda", "cuda:1"};
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        assert_int_equal(PARSE(NEEDED, "--device", devices[i]), 0);
        start_ranks(2);
        assert_int_equal(train_options_check(&options, &error), 0);
    }
}

static void nearest_is_by_edits_and_never_far(void **state)
{
    (void)state;
    static const char *const names[] = {"train", "demo", "doctor"};
    assert_string_equal(cli_nearest("trian", names, 3), "train");
    assert_string_equal(cli_nearest("deom", names, 3), "demo");
    assert_string_equal(cli_nearest("dotcor", names, 3), "doctor");
    assert_string_equal(cli_nearest("train", names, 3), "train");
    assert_null(cli_nearest("inspect", names, 3));
    assert_null(cli_nearest("", names, 3));
}

static void a_synonym_counts_where_its_meaning_can_be_given(void **state)
{
    (void)state;
    static const char *const names[] = {"store", "steps", "fp16"};
    assert_string_equal(cli_nearest("output_dir", names, 3), "store");
    assert_string_equal(cli_nearest("Max-Steps", names, 3), "steps");
    assert_string_equal(cli_nearest("half", names, 3), "fp16");
    assert_null(cli_nearest("bfloat16", names, 3));
    assert_null(cli_synonym("stroe", names, 3));
}

static size_t occurrences(const char *text, const char *part)
{
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part))
        count++;
    return count;
}

static void help_of(const struct cli_verb *verb, char *text, size_t text_bytes)
{
    FILE *out = fmemopen(text, text_bytes, "w");
    assert_non_null(out);
    cli_help(verb, out);
    fclose(out);
}

static void help_lists_each_option_once_with_its_default(void **state)
{
    (void)state;
    static const char *const required[] = {"store", NULL};
    char text[16384] = "", entry[64];
    size_t count;
    struct hst_config config;
    const struct hst_option *engine = hst_engine_options(&count);
    const struct cli_verb verb = {.name = "verb",
                                  .about = "About it.",
                                  .required = required,
                                  .sets = {{engine, count, &config}},
                                  .set_count = 1};
    help_of(&verb, text, sizeof text);
    assert_non_null(strstr(
        text, "usage: hoistway verb --store DIR[,DIR] [options]\n\nAbout it.\n\ntraining:\n"));
    for (size_t i = 0; i < count; i++) {
        snprintf(entry, sizeof entry, "\n  --%s ", engine[i].name);
        assert_int_equal(occurrences(text, entry), 1);
        assert_int_equal(occurrences(text, engine[i].help), 1);
    }
    assert_non_null(strstr(text, "\n  --io auto|uring|threads     what carries the traffic to the "
                                 "store; never degraded if forced (auto)\n"));
    assert_non_null(strstr(text, "{rank}, {local}, {node} (required)\n"));
    for (const char *line = text; line; line = strchr(line + 1, '\n'))
        assert_true(strcspn(line + 1, "\n") <= 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_those_of_the_contract),
        cmocka_unit_test(both_forms_fill_both_tables),
        cmocka_unit_test(an_unknown_option_names_the_nearest),
        cmocka_unit_test(an_option_of_other_programs_names_ours),
        cmocka_unit_test(a_value_that_is_nearly_one_names_it),
        cmocka_unit_test(a_device_of_other_programs_names_ours),
        cmocka_unit_test(what_is_not_built_yet_is_unknown),
        cmocka_unit_test(bad_values_are_refused_with_their_option),
        cmocka_unit_test(values_must_be_there_and_given_once),
        cmocka_unit_test(each_required_option_is_asked_for),
        cmocka_unit_test(hostile_arguments_stay_on_one_line),
        cmocka_unit_test(values_that_contradict_are_refused),
        cmocka_unit_test(shares_become_steps_of_the_run),
        cmocka_unit_test(parts_of_a_schedule_need_room_in_the_run),
        cmocka_unit_test(a_sequence_is_no_longer_than_the_batch_unless_it_was_given),
        cmocka_unit_test(a_batch_has_whole_sequences_in_each_way),
        cmocka_unit_test(what_is_not_given_has_room_for_all_ways),
        cmocka_unit_test(what_ranks_cannot_share_is_refused),
        cmocka_unit_test(several_ranks_compute_on_any_device),
        cmocka_unit_test(nearest_is_by_edits_and_never_far),
        cmocka_unit_test(a_synonym_counts_where_its_meaning_can_be_given),
        cmocka_unit_test(help_lists_each_option_once_with_its_default),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
