/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exactness matrix: each row is a way of running `hoistway train`, and must export the same
 * bytes and log the same losses as the run with everything in RAM on one thread. Each model and
 * precision takes every second row of ROWS, with `--all` each. The short form takes every second
 * model and precision, a fifteenth of ROWS and a part of the smaller tables. With `--on DEVICE
 * CASE` it takes each row with a device, on that one, and so the oracle: its bits are others.
 */
#include "../short.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define ARGUMENTS_MAX 64
extern char **environ;
static const char *program;
static bool all, is_short;
static const char *device;     /* of all runs; null: the oracle's is the host, the rows' "far" */
static size_t share = 2, turn; /* one row in so many is taken; others by the next precision */
static char directory[] = "hst-e2e-XXXXXX";

/* Of a model whose shape is `size`'s, but for its last three. */
struct model {
    const char *name, *architecture, *type;
    int layers;
    bool tied;
};

/* q and k of Qwen3 are normed by heads, q, k and v of Qwen2 have biases. */
static const struct model MODELS[] = {{"tied", "LlamaForCausalLM", "llama", 4, true},
                                      {"untied", "Qwen3ForCausalLM", "qwen3", 4, false},
                                      {"short", "Qwen2ForCausalLM", "qwen2", 3, false}};

/* batch: tokens of a step, more than a micro-batch and no multiple of it. */
struct size {
    unsigned hidden, inner, heads, vocab, batch;
};
static const struct size USUAL = {96, 272, 6, 1900, 224},
                         SMALL = {64, 160, 4, 700, 128}; /* for a device that is interpreted */
static const struct size *size = &USUAL;

#define FAR "--device far"
/* All in the device's memory: what others are held against. */
#define NEAR FAR " --threads 2"

/* What differs from the oracle's `--place states=dram,weights=dram --threads 1`; words are split at
 * blanks. */
static const struct row {
    const char *words;
    unsigned stores; /* directories of --store; 0: one */
} ROWS[] = {
    {"--place states=dram,weights=dram --threads 2", 0},
    {"--place states=nvme --threads 2", 0},
    {"--place states=nvme,weights=nvme --threads 2", 0},
    {"--place states=nvme,weights=nvme --threads 1", 0},
    {"--place states=dram,weights=nvme --threads 3", 0},
    {"--place states=nvme,weights=nvme --threads 2 --io uring", 0},
    {"--place states=nvme,weights=nvme --threads 2 --io threads", 0},
    {"--place states=nvme --threads 2 --io threads", 0},
    {"--place states=nvme,weights=nvme --threads 2", 3},
    {"--place states=nvme --threads 2 --io threads", 2},
    {"--place grads=nvme --threads 2", 0},
    {"--place acts=nvme --threads 2", 2},
    {"--place states=nvme,weights=nvme,grads=nvme,acts=nvme --threads 2", 0},
    {"--durability 2 --place states=nvme,weights=nvme,grads=nvme,acts=nvme --threads 2", 2},
    {NEAR, 0},
    {"--device far --place acts=dram --threads 2", 0},
    {"--device far --place weights=hbm,acts=nvme --threads 2", 0},
    {"--device far --place weights=dram,grads=dram,states=dram,acts=hbm --threads 2", 0},
    {"--device far --place weights=dram,acts=dram --threads 1", 0},
    {"--device far --place weights=dram,states=nvme,acts=hbm --threads 2", 0},
    {"--device far --place weights=nvme,states=dram,acts=dram --threads 3", 0},
    {"--device far --place weights=dram,grads=nvme --threads 2 --io threads", 0},
    {"--device far --place states=nvme,weights=nvme,grads=nvme,acts=nvme --threads 2", 2},
};

/* By the budget alone: in per cent of what the oracle needed, so that some, more and most must
 * leave DRAM. */
static const unsigned BUDGET_PERCENT[] = {97, 93, 89};

static void write_file(const char *path, const char *text, size_t bytes)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static char *read_file(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "r");
    if (!file)
        fail_msg("%s: %s", path, strerror(errno));
    fseek(file, 0, SEEK_END);
    *bytes = (size_t)ftell(file);
    rewind(file);
    char *text = calloc(*bytes + 1, 1);
    assert_int_equal(fread(text, 1, *bytes, file), *bytes);
    fclose(file);
    return text;
}

/* A copy of the row in which FAR is `device`, where there is one. */
static void on_device(const char *row, char *dst, size_t room)
{
    const char *far = device ? strstr(row, FAR) : NULL;
    if (far)
        snprintf(dst, room, "%.*s--device %s%s", (int)(far - row), row, device, far + strlen(FAR));
    else
        snprintf(dst, room, "%s", row);
}

/* Runs the program with words split at blanks; its output goes to the directory's `output`. */
static int run(const char *words)
{
    char *copy = strdup(words), *arguments[ARGUMENTS_MAX] = {(char *)(uintptr_t)program}, path[96];
    int count = 1, status;
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
        arguments[count++] = word;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    snprintf(path, sizeof path, "%s/output", directory);
    posix_spawn_file_actions_addopen(&actions, 1, path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    pid_t pid;
    assert_int_equal(posix_spawn(&pid, program, &actions, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    free(copy);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* The oracle computes all activations again; the others keep those that they have room for. */
static void train(const struct model *model, const char *precision, const char *name,
                  const char *given, unsigned stores)
{
    char words[1536], output[96], store[256], row[256], batch[40];
    size_t bytes;
    snprintf(batch, sizeof batch, "--batch-tokens %u ", size->batch);
    on_device(given, row, sizeof row);
    int used = snprintf(store, sizeof store, "%s/store", directory);
    for (unsigned i = 1; i < stores; i++)
        used += snprintf(store + used, sizeof store - (size_t)used, ",%s/store%u", directory, i);
    snprintf(words, sizeof words,
             "train --quiet --init random --seed 7 --model %s/%s --data %s/text.txt "
             "--data-format bytes --seq-len 32 --grain 96 --steps 3 --lr 1e-3 "
             "--store %s --export %s/%s --export-dtype fp32 --log %s/%s.jsonl "
             "--precision %s %s%s%s%s%s",
             directory, model->name, directory, store, directory, name, directory, name, precision,
             strstr(row, "--durability") ? "" : "--durability none ",
             strstr(row, "--device") ? "" : "--device host ",
             strstr(row, "--batch-tokens") ? "" : batch,
             strcmp(name, "oracle") == 0 ? "--activations recompute " : "", row);
    int code = run(words);
    if (code != 0) {
        snprintf(output, sizeof output, "%s/output", directory);
        fail_msg("%s: exit %d: %s", row, code, read_file(output, &bytes));
    }
    snprintf(words, sizeof words, "rm -rf '%s'/store*", directory); /* where there are versions */
    assert_int_equal(system(words), 0);
}

/* The i-th value of a key in the log, as text. */
static const char *logged(const char *log, const char *key, int i, char value[32])
{
    for (; i >= 0 && log; i--)
        log = (log = strstr(log, key)) ? log + strlen(key) : NULL;
    if (log)
        snprintf(value, 32, "%.*s", (int)strcspn(log, ",}"), log);
    else
        fail_msg("the log has no %s", key);
    return value;
}

static void same_results(const char *name, const char *row)
{
    char path[96];
    size_t a_bytes, b_bytes;
    snprintf(path, sizeof path, "%s/oracle/model.safetensors", directory);
    char *a = read_file(path, &a_bytes);
    snprintf(path, sizeof path, "%s/%s/model.safetensors", directory, name);
    char *b = read_file(path, &b_bytes);
    if (a_bytes != b_bytes || memcmp(a, b, a_bytes) != 0)
        fail_msg("other weights with: %s", row);
    free(a);
    free(b);
    snprintf(path, sizeof path, "%s/oracle.jsonl", directory);
    a = read_file(path, &a_bytes);
    snprintf(path, sizeof path, "%s/%s.jsonl", directory, name);
    b = read_file(path, &b_bytes);
    char x[32], y[32];
    for (int step = 0; step < 3; step++) {
        assert_string_equal(logged(a, "\"loss\":", step, x), logged(b, "\"loss\":", step, y));
        assert_string_equal(logged(a, "\"grad_norm\":", step, x),
                            logged(b, "\"grad_norm\":", step, y));
    }
    free(a);
    free(b);
}

static unsigned long long logged_peak(const char *name, const char *tier)
{
    char path[96], value[32];
    size_t bytes;
    snprintf(path, sizeof path, "%s/%s.jsonl", directory, name);
    char *log = read_file(path, &bytes);
    const char *peak = strstr(log, "\"peak\":");
    assert_non_null(peak);
    unsigned long long result = strtoull(logged(peak, tier, 0, value), NULL, 10);
    free(log);
    return result;
}

/* What the others are held against: in memory, by one thread. Returns the bytes that it took. */
static unsigned long long train_oracle(const struct model *model, const char *precision,
                                       const char *options)
{
    char row[160];
    snprintf(row, sizeof row, "%s %s --threads 1", options,
             device ? FAR : "--place states=dram,weights=dram");
    train(model, precision, "oracle", row, 1);
    return logged_peak("oracle", device ? "\"hbm\":" : "\"dram\":");
}

/* Whether the run is not asked for: where all are on a device, those without one. */
static bool left_out(const char *row)
{
    return device && !strstr(row, FAR);
}

/* In the short form one row in so many is taken. */
static bool passed_over(size_t i, size_t every)
{
    return is_short && (i + turn) % every != 0;
}

/* Rows with an oracle of their own, that of `words`, which they have too. */
static void check_rows(const struct model *model, const char *precision, const char *words,
                       const char *const *rows, size_t count)
{
    train_oracle(model, precision, words);
    for (size_t i = 0; i < count; i++) {
        char row[160];
        if (left_out(rows[i]) || passed_over(i, 2))
            continue;
        snprintf(row, sizeof row, "%s %s", words, rows[i]);
        train(model, precision, "other", row, 1);
        same_results("other", row);
    }
}

#define COUNT(rows) (sizeof(rows) / sizeof *(rows))
/* Without clipping the update is part of the backward, but in fp16. */
static void check_without_clipping(const struct model *model, const char *precision)
{
    static const char *const rows[] = {
        "--place states=nvme --threads 2",
        "--place states=nvme,weights=nvme,grads=nvme,acts=nvme --threads 2",
        "--device far --threads 2",
        "--device far --place weights=dram,acts=dram --threads 2",
        "--device far --place states=nvme,weights=nvme,grads=nvme,acts=nvme --threads 2",
    };
    check_rows(model, precision, "--clip 0", rows, COUNT(rows));
}

/* Moments in bf16 have an oracle of their own, those in 8 bits too, for some of the rows. */
static void check_short_moments(const struct model *model)
{
    static const char *const rows[] = {
        "--place states=dram --threads 2",
        "--place states=nvme --threads 2",
        "--clip 1.0 --place states=nvme,weights=nvme --threads 3",
        "--place states=nvme,weights=nvme,grads=nvme,acts=nvme --threads 2",
        "--update optimistic --place states=dram,weights=nvme --threads 2",
        "--device far --place weights=dram,states=nvme,acts=hbm --threads 2",
        "--device far --threads 2", /* the host updates bf16 moments, the device those of 8 bits */
        "--device far --gpu-update 0.5 --place weights=dram,states=dram,grads=dram --threads 2",
    };
    check_rows(model, "bf16", "--state bf16", rows, COUNT(rows) - 1);
    check_rows(model, "bf16", "--state 8bit", rows + 3, COUNT(rows) - 3);
}

/* Each precision has another one, with --all all of them; and units that rest or are frozen. */
#define LION_GROUPS "--optimizer lion --group *norm*:lr=3x,decay=0.2"
static void check_optimizers(const struct model *model, const char *precision)
{
    static const char *const words[] = {"--optimizer sgd", "--optimizer adagrad", LION_GROUPS,
                                        "--train-only *layers.1.* --train-only model.norm.weight"};
    static const char *const of[] = {"fp32", "fp16", "bf16", "bf16"};
    static const char *const rows[] = {
        "--place states=nvme --threads 2",
        "--place states=nvme,weights=nvme,grads=nvme,acts=nvme --threads 2",
        "--update optimistic --place states=dram,weights=nvme --threads 2",
        "--device far --place weights=dram,states=nvme,acts=hbm --threads 2",
        "--device far --threads 2",
        "--device far --gpu-update 0.5 --place weights=dram,states=dram,grads=dram --threads 2",
    };
    for (size_t i = 0; i < COUNT(words); i++)
        if ((all && i < 3) || strcmp(of[i], precision) == 0)
            check_rows(model, precision, words[i], rows, COUNT(rows));
}

/* The first steps overflow in fp16 and are skipped; the last is not. */
static void check_overflows(const struct model *model)
{
    char path[96], value[32];
    size_t bytes;
    static const char *const rows[] = {
        "--place states=nvme --threads 2",
        "--place states=nvme,weights=nvme --threads 3",
        "--place states=nvme,weights=nvme,grads=nvme,acts=nvme --threads 2",
        "--device far --threads 2",
        "--device far --place weights=dram,acts=dram --threads 2",
        "--device far --place weights=nvme,states=nvme,grads=nvme --threads 2",
    };
    check_rows(model, "fp16", "--loss-scale 1048576", rows, COUNT(rows));
    snprintf(path, sizeof path, "%s/oracle.jsonl", directory);
    char *log = read_file(path, &bytes);
    assert_string_equal(logged(log, "\"skipped\":", 0, value), "true");
    assert_string_equal(logged(log, "\"skipped\":", 2, value), "false");
    free(log);
}

/* By --dram alone, on the host. */
static void check_budgets(const struct model *model, const char *precision,
                          unsigned long long needed)
{
    for (size_t i = 0; i < sizeof BUDGET_PERCENT / sizeof BUDGET_PERCENT[0]; i++) {
        char row[64];
        if (passed_over(i, 3))
            continue;
        unsigned long long budget = needed * BUDGET_PERCENT[i] / 100;
        snprintf(row, sizeof row, "--dram %llu --threads 2", budget);
        train(model, precision, "other", row, 1);
        same_results("other", row);
        assert_true(logged_peak("other", "\"nvme\":") > 0);
        assert_true(logged_peak("other", "\"dram\":") <= budget);
    }
}

/* On the host. */
static void check_recomputed_near(const struct model *model, const char *precision,
                                  unsigned long long budget)
{
    char row[160];
    snprintf(row, sizeof row,
             "--place weights=dram,states=dram,grads=dram --dram %llu --nvme 4K --threads 1",
             budget);
    train(model, precision, "other", row, 1);
    same_results("other", row);
    assert_true(logged_peak("other", "\"dram\":") <= budget);
    assert_int_equal(logged_peak("other", "\"nvme\":"), 0);
}

/* Memory has room for all checkpoints but one (of layers and the final norm), drives for none, and
 * nothing else may leave: every second one is kept, in RAM for the device, too. */
static void check_recomputed(const struct model *model, const char *precision,
                             unsigned long long needed, unsigned long long near)
{
    char row[160];
    unsigned long long kept = size->batch * size->hidden, budget;
    kept *= strcmp(precision, "fp32") == 0 ? 4 : 2;
    if (!device)
        check_recomputed_near(model, precision, needed - kept);
    train(model, precision, "other", "--device far --place weights=hbm,acts=dram --threads 2", 1);
    unsigned long long host = logged_peak("other", "\"dram\":");
    budget = logged_peak("other", "\"hbm\":");
    assert_true(budget < near);
    snprintf(row, sizeof row,
             "--device far --place weights=hbm --hbm %llu --dram %llu --nvme 4K --threads 2",
             budget, host - kept);
    train(model, precision, "other", row, 1);
    same_results("other", row);
    assert_true(logged_peak("other", "\"hbm\":") <= budget);
    assert_true(logged_peak("other", "\"dram\":") <= host - kept);
    assert_int_equal(logged_peak("other", "\"nvme\":"), 0);
}

/* By --hbm, and then by --dram too, at several batches: less than what everything in the device's
 * memory needs, so that the host has some of it, or all but what is computed with. */
static void check_device_budgets(const struct model *model, const char *precision)
{
    static const unsigned percent[] = {85, 55};
    static const char *const batches[] = {"--batch-tokens 96", "--batch-tokens 640"};
    for (size_t b = 0; b < (device ? 1 : sizeof batches / sizeof batches[0]); b++) {
        char row[160];
        if (passed_over(b, 2))
            continue;
        train_oracle(model, precision, batches[b]);
        snprintf(row, sizeof row, "%s --device far --activations recompute --threads 2",
                 batches[b]);
        train(model, precision, "other", row, 1);
        same_results("other", row);
        unsigned long long needed = logged_peak("other", "\"hbm\":");
        unsigned long long host = logged_peak("other", "\"dram\":");
        for (size_t i = 0; i < sizeof percent / sizeof percent[0]; i++) {
            unsigned long long budget = needed * percent[i] / 100;
            if (passed_over(i, 2))
                continue;
            snprintf(row, sizeof row, "%s --device far --hbm %llu --threads 2", batches[b], budget);
            train(model, precision, "other", row, 1);
            same_results("other", row);
            assert_true(logged_peak("other", "\"hbm\":") <= budget);
            assert_int_equal(logged_peak("other", "\"nvme\":"), 0);
            assert_true(logged_peak("other", "\"dram\":") > host);
            unsigned long long dram = logged_peak("other", "\"dram\":") * 7 / 8;
            snprintf(row, sizeof row, "%s --device far --hbm %llu --dram %llu --threads 2",
                     batches[b], budget, dram);
            train(model, precision, "other", row, 1);
            same_results("other", row);
            assert_true(logged_peak("other", "\"hbm\":") <= budget);
            assert_true(logged_peak("other", "\"dram\":") <= dram);
        }
    }
}

/* What a row says of homes is where they are. *near: what a device needed that held everything, as
 * the first row with one has it. */
static void check_peaks(const char *words, unsigned long long needed, unsigned long long *near)
{
    if (strstr(words, "nvme"))
        assert_true(logged_peak("other", "\"nvme\":") > 0);
    if (!strstr(words, "far"))
        return;
    unsigned long long hbm = logged_peak("other", "\"hbm\":");
    if (strstr(words, "--place")) {
        assert_true(hbm < *near);
        return;
    }
    assert_true(hbm > needed / 2);
    assert_true(logged_peak("other", "\"dram\":") < needed);
    *near = hbm;
}

static void check_model(const struct model *model, const char *precision)
{
    turn++;
    if (is_short && turn % 2 != 0)
        skip();
    check_without_clipping(model, precision);
    if (strcmp(precision, "fp16") == 0)
        check_overflows(model);
    if (strcmp(precision, "bf16") == 0)
        check_short_moments(model);
    check_optimizers(model, precision);
    unsigned long long needed = train_oracle(model, precision, ""), near = 0;
    assert_int_equal(logged_peak("oracle", "\"nvme\":"), 0);
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        bool taken = (i + turn) % share == 0 || strcmp(ROWS[i].words, NEAR) == 0;
        if (!taken || left_out(ROWS[i].words))
            continue;
        train(model, precision, "other", ROWS[i].words, ROWS[i].stores);
        same_results("other", ROWS[i].words);
        check_peaks(ROWS[i].words, needed, &near);
    }
    if (!device)
        check_budgets(model, precision, needed);
    if (all || (strcmp(precision, "fp32") == 0) == (model == &MODELS[1]))
        check_recomputed(model, precision, needed, near);
}

static void tied_fp32(void **state)
{
    (void)state;
    check_model(&MODELS[0], "fp32");
}

static void tied_bf16(void **state)
{
    (void)state;
    check_model(&MODELS[0], "bf16");
    if (all)
        check_device_budgets(&MODELS[0], "bf16");
}

static void untied_fp32(void **state)
{
    (void)state;
    check_model(&MODELS[1], "fp32");
    check_device_budgets(&MODELS[1], "fp32");
}

static void untied_bf16(void **state)
{
    (void)state;
    check_model(&MODELS[1], "bf16");
}

static void tied_fp16(void **state)
{
    (void)state;
    check_model(&MODELS[0], "fp16");
}

static void untied_fp16(void **state)
{
    (void)state;
    check_overflows(&MODELS[1]);
}

/* Of every second checkpoint that of the final norm is not one: its backward has the carry. */
static void short_bf16(void **state)
{
    (void)state;
    unsigned long long needed = train_oracle(&MODELS[2], "bf16", "");
    train(&MODELS[2], "bf16", "other", NEAR, 1);
    check_recomputed(&MODELS[2], "bf16", needed, logged_peak("other", "\"hbm\":"));
}

static void nothing_stays_in_the_store(void **state)
{
    (void)state;
    char path[96];
    snprintf(path, sizeof path, "%s/store", directory);
    assert_int_equal(access(path, F_OK), -1); /* the run made it, and removed it */
}

static void write_config(const char *path, const struct model *m)
{
    char text[600];
    snprintf(text, sizeof text,
             "{\"architectures\":[\"%s\"],\"model_type\":\"%s\",\"hidden_size\":%u,"
             "\"intermediate_size\":%u,\"num_hidden_layers\":%d,\"num_attention_heads\":%u,"
             "\"num_key_value_heads\":2,\"head_dim\":16,\"vocab_size\":%u,"
             "\"max_position_embeddings\":128,\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0,"
             "\"hidden_act\":\"silu\",\"tie_word_embeddings\":%s}",
             m->architecture, m->type, size->hidden, size->inner, m->layers, size->heads,
             size->vocab, m->tied ? "true" : "false");
    write_file(path, text, strlen(text));
}

static int set_up(void **state)
{
    (void)state;
    char path[96], text[3000];
    if (!mkdtemp(directory))
        return -1;
    for (size_t m = 0; m < sizeof MODELS / sizeof MODELS[0]; m++) {
        snprintf(path, sizeof path, "%s/%s", directory, MODELS[m].name);
        if (mkdir(path, 0700))
            return -1;
        snprintf(path, sizeof path, "%s/%s/config.json", directory, MODELS[m].name);
        write_config(path, &MODELS[m]);
    }
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(32 + i * i % 91);
    snprintf(path, sizeof path, "%s/text.txt", directory);
    write_file(path, text, sizeof text);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char *const arguments[] = {(char *)(uintptr_t) "rm", (char *)(uintptr_t) "-r", directory, NULL};
    pid_t pid;
    int status;
    return posix_spawnp(&pid, "rm", NULL, NULL, arguments, environ) ||
           waitpid(pid, &status, 0) != pid || status;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tied_fp32),   cmocka_unit_test(tied_bf16),
        cmocka_unit_test(untied_fp32), cmocka_unit_test(untied_bf16),
        cmocka_unit_test(tied_fp16),   cmocka_unit_test(untied_fp16),
        cmocka_unit_test(short_bf16),  cmocka_unit_test(nothing_stays_in_the_store),
    };
    if (argc < 2)
        return 2;
    program = argv[1];
    if (argc > 4 && strcmp(argv[2], "--on") == 0) {
        device = argv[3];
        size = &SMALL;
        cmocka_set_test_filter(argv[4]);
    }
    all = device || (argc > 2 && strcmp(argv[2], "--all") == 0);
    is_short = !all && test_is_short();
    if (all)
        share = 1;
    else if (is_short) {
        share = 15;
        turn = test_turn();
    }
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
