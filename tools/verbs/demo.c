/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hoistway demo. Shows the promise on any machine in under a minute: the same small model is
 * trained with its states and weights in files under a DRAM budget below its size, with its states
 * alone in files, and all in RAM; the exported weights must be the same bytes.
 */
#include "base/text.h"
#include "cli/message/activity.h"
#include "cli/message/message.h"
#include "cli/message/say.h"
#include "cli/options/options.h"
#include "cli/options/verb.h"
#include "cli/stop.h"
#include "verbs/demo_text.h"
#include "verbs/train/train.h"
#include "verbs/verbs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEMO_STEPS        30
#define DEMO_BATCH_TOKENS 512
#define DEMO_MICRO_BATCH_TOKENS                                                                    \
    256 /* small, so that the workspace does not hide the model in the tier table */
#define DEMO_SEQ_LEN    128
#define DEMO_LR         2e-3
#define DEMO_NVME_BYTES (256 * MIB)
#define MIB             (UINT64_C(1) << 20)

/* 3.3 M parameters in fp32: weights 13 MiB, gradients 13 MiB, states 26 MiB. */
static const char model_config[] = "{\n"
                                   "  \"architectures\": [\"LlamaForCausalLM\"],\n"
                                   "  \"model_type\": \"llama\",\n"
                                   "  \"hidden_act\": \"silu\",\n"
                                   "  \"hidden_size\": 192,\n"
                                   "  \"intermediate_size\": 512,\n"
                                   "  \"num_hidden_layers\": 8,\n"
                                   "  \"num_attention_heads\": 6,\n"
                                   "  \"num_key_value_heads\": 3,\n"
                                   "  \"max_position_embeddings\": 256,\n"
                                   "  \"rms_norm_eps\": 1e-05,\n"
                                   "  \"rope_theta\": 10000.0,\n"
                                   "  \"tie_word_embeddings\": false,\n"
                                   "  \"torch_dtype\": \"float32\",\n"
                                   "  \"vocab_size\": 256\n"
                                   "}\n";

struct demo_run {
    const char *title;
    const char *place;
    uint64_t dram_bytes; /* 0: no budget */
    const char *export_name;
};

enum { RUN_OFFLOADED, RUN_STATES, RUN_IN_RAM, RUN_COUNT };

static const struct demo_run runs[RUN_COUNT] = {
    {"states and weights on NVMe, --dram 28M", "states=nvme,weights=nvme", 28 * MIB, "offloaded"},
    {"states on NVMe, weights in RAM, --dram 40M", "states=nvme,weights=dram", 40 * MIB, "states"},
    {"everything in RAM", "states=dram,weights=dram", 0, "in-ram"},
};

struct demo_options {
    const char *directory;
    bool keep;
};

struct demo {
    char directory[PATH_MAX];
    char model[PATH_MAX], data[PATH_MAX], store[PATH_MAX], log[PATH_MAX];
    char exports[RUN_COUNT][PATH_MAX];
    struct hst_error error;
    const volatile sig_atomic_t *stopped;
};

static const struct hst_option options_table[] = {
    {.name = "dir",
     .group = "output",
     .type = HST_OPTION_TEXT,
     .offset = offsetof(struct demo_options, directory),
     .argument = "DIR",
     .default_text = "$TMPDIR, or /tmp",
     .help = "where the demo makes its own directory"},
    {.name = "keep",
     .group = "output",
     .type = HST_OPTION_FLAG,
     .offset = offsetof(struct demo_options, keep),
     .help = "keep that directory, with the log and the exported models"},
};

/* ---- its directory ---- */

static int join(struct demo *demo, char dst[PATH_MAX], const char *directory, const char *name)
{
    if (snprintf(dst, PATH_MAX, "%s/%s", directory, name) < PATH_MAX)
        return 0;
    return fail(&demo->error, FAIL_VALUE, -ENAMETOOLONG, "the path '%.200s...' is too long.",
                directory);
}

static int write_failed(struct demo *demo, const char *path)
{
    int native = errno;
    return fail(&demo->error, FAIL_WRITE, -native,
                "cannot write '%.300s' (%s). Fix: --dir DIR with a directory you may write to.",
                path, strerror(native));
}

static int write_file(struct demo *demo, const char *path, const void *bytes, size_t count)
{
    FILE *file = fopen(path, "wxe");
    if (!file)
        return write_failed(demo, path);
    bool written = fwrite(bytes, 1, count, file) == count;
    if (fclose(file) != 0 || !written)
        return write_failed(demo, path);
    return 0;
}

static int make_directory(struct demo *demo, const char *above)
{
    int native = join(demo, demo->directory, above, "hoistway-demo-XXXXXX");
    if (native)
        return native;
    if (!mkdtemp(demo->directory)) {
        native = write_failed(demo, above);
        demo->directory[0] = '\0';
    }
    return native;
}

static int make_inputs(struct demo *demo)
{
    char config[PATH_MAX];
    int native = join(demo, demo->model, demo->directory, "model");
    if (!native)
        native = join(demo, config, demo->directory, "model/config.json");
    if (!native)
        native = join(demo, demo->data, demo->directory, "text.txt");
    if (!native)
        native = join(demo, demo->store, demo->directory, "store");
    if (!native)
        native = join(demo, demo->log, demo->directory, "run.jsonl");
    for (size_t i = 0; i < RUN_COUNT && !native; i++)
        native = join(demo, demo->exports[i], demo->directory, runs[i].export_name);
    if (!native && mkdir(demo->model, 0777) != 0)
        native = write_failed(demo, demo->model);
    if (!native)
        native = write_file(demo, config, model_config, sizeof model_config - 1);
    if (!native)
        native = write_file(demo, demo->data, demo_text, demo_text_bytes);
    return native;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *position)
{
    (void)st;
    (void)type;
    (void)position;
    return remove(path);
}

/* ---- the runs ---- */

/* It tells that the budget is really below what the model needs. */
static void tell_spill(const struct hst_memory *memory)
{
    char state[TEXT_BYTES], budget[TEXT_BYTES];
    uint64_t bytes = 0;
    for (int tier = 0; tier < HST_TIER_COUNT; tier++)
        bytes += memory->bytes[HST_CLASS_WEIGHTS][tier] + memory->bytes[HST_CLASS_GRADS][tier] +
                 memory->bytes[HST_CLASS_STATES][tier];
    printf("weights, gradients and states are %s, the DRAM budget was %s\n",
           text_size(bytes, state), text_size(memory->budget[HST_TIER_DRAM], budget));
}

static int train(struct demo *demo, size_t index, bool kept)
{
    struct train_options options;
    struct train_result result;
    train_options_init(&options);
    options.engine.device = "host"; /* what it shows are the homes of a machine without a GPU */
    options.model = demo->model;
    options.data = demo->data;
    options.init = TRAIN_INIT_RANDOM;
    options.engine.store = demo->store;
    options.engine.durability = "none";
    options.engine.place = runs[index].place;
    options.engine.dram_bytes = runs[index].dram_bytes;
    options.engine.nvme_bytes = DEMO_NVME_BYTES;
    options.engine.batch_tokens = DEMO_BATCH_TOKENS;
    options.engine.micro_batch_tokens = DEMO_MICRO_BATCH_TOKENS;
    options.steps = DEMO_STEPS;
    options.seq_len = DEMO_SEQ_LEN;
    options.lr = DEMO_LR;
    options.schedule = SCHEDULE_COSINE;
    options.warmup.count = DEMO_STEPS / 10;
    options.export_directory = demo->exports[index];
    options.export_dtype = EXPORT_FP32; /* where weights differ at all, bytes do */
    options.quiet = index != RUN_OFFLOADED;
    options.passing = !kept;
    options.stopped = demo->stopped;
    options.log = index == RUN_OFFLOADED ? demo->log : NULL;
    printf("\nrun %zu of %d: %s\n", index + 1, RUN_COUNT, runs[index].title);
    (void)say_flush(stdout); /* whoever ends the program looks at stdout again */
    if (options.quiet)
        activity_begin("training");
    int native = train_run(&options, &result, &demo->error);
    activity_end();
    if (native)
        return native;
    if (index == RUN_OFFLOADED)
        tell_spill(&result.memory);
    if (options.quiet)
        printf("trained %d steps in %.1f s, loss %.4f -> %.4f\n", DEMO_STEPS, result.seconds,
               result.first_loss, result.last_loss);
    return 0;
}

/* ---- the comparison ---- */

static bool same_bytes(const char *a_path, const char *b_path)
{
    FILE *a = fopen(a_path, "re"), *b = fopen(b_path, "re");
    bool same = a && b;
    while (same) {
        char a_bytes[65536], b_bytes[65536];
        size_t n = fread(a_bytes, 1, sizeof a_bytes, a);
        same = fread(b_bytes, 1, sizeof b_bytes, b) == n && memcmp(a_bytes, b_bytes, n) == 0 &&
               !ferror(a) && !ferror(b);
        if (n < sizeof a_bytes)
            break;
    }
    if (a)
        fclose(a);
    if (b)
        fclose(b);
    return same;
}

/* Every file of a is in b with the same bytes; *files counts them. */
static bool same_files(struct demo *demo, const char *a, const char *b, size_t *files)
{
    char a_path[PATH_MAX], b_path[PATH_MAX];
    bool same = true;
    DIR *directory = opendir(a);
    *files = 0;
    if (!directory)
        return false;
    for (struct dirent *entry; same && (entry = readdir(directory));) {
        if (entry->d_name[0] == '.')
            continue;
        same = join(demo, a_path, a, entry->d_name) == 0 &&
               join(demo, b_path, b, entry->d_name) == 0 && same_bytes(a_path, b_path);
        ++*files;
    }
    closedir(directory);
    return same;
}

static bool same_export(struct demo *demo, const char *a, const char *b)
{
    size_t a_files, b_files;
    return same_files(demo, a, b, &a_files) && same_files(demo, b, a, &b_files) && a_files > 1 &&
           a_files == b_files;
}

static int compare(struct demo *demo)
{
    bool all = true;
    for (size_t i = 0; i < RUN_IN_RAM; i++) {
        bool same = same_export(demo, demo->exports[i], demo->exports[RUN_IN_RAM]);
        printf("exported weights, %s: %s\n", runs[i].title, same ? "same bytes" : "OTHER BYTES");
        all = all && same;
    }
    printf("bit-identical to the all-in-RAM run: %s\n", all ? "yes" : "no");
    return all ? CLI_EXIT_OK : CLI_EXIT_FAILURE;
}

static int demonstrate(struct demo *demo, bool kept)
{
    printf("the demo trains a Llama of 3.3 M parameters (8 layers, hidden 192, fp32, random "
           "weights) on "
           "the text of\nthis program's licence, a byte a token, for %d steps of %d tokens\n",
           DEMO_STEPS, DEMO_BATCH_TOKENS);
    int native = make_inputs(demo);
    for (size_t i = 0; i < RUN_COUNT && !native; i++)
        native = train(demo, i, kept);
    if (native == -ECANCELED)
        return CLI_EXIT_STOPPED_AT_ONCE;
    return native ? cli_fail(&demo->error) : compare(demo);
}

int verb_demo(int argc, char **argv)
{
    const char *temporary = getenv("TMPDIR");
    struct demo_options options = {.directory = temporary && *temporary ? temporary : "/tmp"};
    struct demo demo = {0};
    const struct cli_verb verb = {
        .name = "demo",
        .about = "Trains a small model with its states in files, then in RAM, and compares bytes.",
        .sets = {{options_table, sizeof options_table / sizeof options_table[0], &options}},
        .set_count = 1,
    };
    int code;
    if (!cli_ready(&verb, argc, argv, &code))
        return code;
    demo.stopped = stop_catch();
    if (make_directory(&demo, options.directory))
        return cli_fail(&demo.error);
    code = demonstrate(&demo, options.keep);
    if (options.keep)
        printf("kept: %s\n", demo.directory);
    else
        nftw(demo.directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
    return code;
}
