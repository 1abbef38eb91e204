/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides what the user asked for: the option table, lists, endurance, and which options make sense
 * together.
 */
#include "nvme_bench/args.h"

#include "nvme_bench/drive.h"

#include <errno.h>
#include <hoistway/aio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define FIELD(f) offsetof(struct nb_args, f)
/* A share, a size, a rate: what no sane value exceeds. */
#define SIZE_MOST 0x1p45

static const char *const precision_choices[] = {"bf16", "fp32", "fp16", NULL};
static const char *const recompute_choices[] = {"on", "off", NULL};
static const char *const io_choices[] = {"auto", "uring", "threads", NULL};

static const struct hst_option table[] = {
    {.name = "quick",
     .group = "measuring",
     .type = HST_OPTION_FLAG,
     .offset = FIELD(quick),
     .help = "at most 20 s and 2 GiB written per drive, instead of 2 minutes"},
    {.name = "size",
     .group = "measuring",
     .type = HST_OPTION_SIZE,
     .offset = FIELD(size_bytes),
     .argument = "SIZE",
     .default_text = "2G; 512M with --quick",
     .least = 1 << 20,
     .greatest = SIZE_MOST,
     .help = "scratch files of each drive; nothing of them is left"},
    {.name = "sustain",
     .group = "measuring",
     .type = HST_OPTION_SIZE,
     .offset = FIELD(sustain_bytes),
     .argument = "SIZE",
     .default_text = "16G; 512M with --quick",
     .least = 1 << 20,
     .greatest = SIZE_MOST,
     .help = "greatest length of the long write: a cache larger than that is not seen"},
    {.name = "idle",
     .group = "measuring",
     .type = HST_OPTION_REAL,
     .offset = FIELD(idle_s),
     .argument = "SECONDS",
     .default_text = "5; 1 with --quick",
     .least = 0,
     .greatest = 3600,
     .help = "pause before and after the long write"},
    {.name = "seconds",
     .group = "measuring",
     .type = HST_OPTION_REAL,
     .offset = FIELD(case_s),
     .argument = "SECONDS",
     .default_text = "0.4; 0.25 with --quick",
     .least = 0.01,
     .greatest = 600,
     .help = "longest time of a case of the sweep: more on drives that stall"},
    {.name = "blocks",
     .group = "measuring",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(blocks_text),
     .argument = "SIZE[,...]",
     .default_text = "256K,1M,4M; 256K,1M with --quick",
     .help = "block sizes of the sweep"},
    {.name = "depths",
     .group = "measuring",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(depths_text),
     .argument = "N[,...]",
     .default_text = "1,4,16; 4,16 with --quick",
     .help = "requests in flight of each thread, in the sweep"},
    {.name = "threads",
     .group = "measuring",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(threads_text),
     .argument = "N[,...]",
     .default_text = "1,2; 1 with --quick",
     .help = "threads of the sweep"},
    {.name = "io",
     .group = "measuring",
     .type = HST_OPTION_CHOICE,
     .offset = FIELD(io),
     .argument = "BACKEND",
     .default_text = "auto",
     .choices = io_choices,
     .first_choice = HST_AIO_AUTO,
     .help = "what carries the requests; never degraded if forced"},
    {.name = "force",
     .group = "measuring",
     .type = HST_OPTION_FLAG,
     .offset = FIELD(force),
     .help = "measure a file system in RAM all the same"},
    {.name = "fault",
     .group = "measuring",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(io_fault),
     .argument = "PLAN",
     .help = "break requests by a plan of <hoistway/aio.h>, to see what is reported"},
    {.name = "plan",
     .group = "planning",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(plan),
     .argument = "MODEL",
     .help = "does it feed this model? A config.json, its directory, or a name like 8B"},
    {.name = "target",
     .group = "planning",
     .type = HST_OPTION_REAL,
     .offset = FIELD(target_percent),
     .argument = "PERCENT",
     .default_text = "90",
     .least = 1,
     .greatest = 99.9,
     .help = "efficiency that is enough; below it the exit code is 3"},
    {.name = "gpu-tflops",
     .group = "planning",
     .type = HST_OPTION_REAL,
     .offset = FIELD(gpu_tflops),
     .argument = "X",
     .least = 1e-3,
     .greatest = 1e6,
     .help = "what one GPU reaches in training, in 1e12 FLOP/s; --plan needs it"},
    {.name = "gpus",
     .group = "planning",
     .type = HST_OPTION_UINT32,
     .offset = FIELD(gpus),
     .argument = "N",
     .default_text = "1",
     .least = 1,
     .greatest = 1024,
     .help = "GPUs that share the drives"},
    {.name = "tokens",
     .group = "planning",
     .type = HST_OPTION_COUNT,
     .offset = FIELD(tokens),
     .argument = "N",
     .default_text = "65536",
     .least = 1,
     .greatest = 0x1p40,
     .help = "tokens of a step, of all GPUs"},
    {.name = "seq-len",
     .group = "planning",
     .type = HST_OPTION_COUNT,
     .offset = FIELD(seq_len),
     .argument = "N",
     .default_text = "2048",
     .least = 1,
     .greatest = 0x1p30,
     .help = "tokens of a sequence"},
    {.name = "precision",
     .group = "planning",
     .type = HST_OPTION_CHOICE,
     .offset = FIELD(precision),
     .argument = "TYPE",
     .default_text = "bf16",
     .choices = precision_choices,
     .first_choice = NB_PRECISION_BF16,
     .help = "of weights: with states 12, 12 and 14 bytes per parameter"},
    {.name = "recompute",
     .group = "planning",
     .type = HST_OPTION_CHOICE,
     .offset = FIELD(recompute),
     .argument = "on|off",
     .default_text = "on",
     .choices = recompute_choices,
     .first_choice = NB_RECOMPUTE_ON,
     .help = "blocks are recomputed in backward: 8 operations per weight, not 6"},
    {.name = "overlap",
     .group = "planning",
     .type = HST_OPTION_FLAG,
     .offset = FIELD(overlap),
     .help = "the update may begin in backward (no clipping, or optimistic)"},
    {.name = "states",
     .group = "planning",
     .type = HST_OPTION_REAL,
     .offset = FIELD(states),
     .argument = "SHARE",
     .default_text = "1",
     .least = 0,
     .greatest = 1,
     .help = "share of the optimizer states that lives on the drives"},
    {.name = "weights",
     .group = "planning",
     .type = HST_OPTION_REAL,
     .offset = FIELD(weights),
     .argument = "SHARE",
     .default_text = "0",
     .least = 0,
     .greatest = 1,
     .help = "share of the weights that is read from the drives in each sweep"},
    {.name = "link",
     .group = "planning",
     .type = HST_OPTION_SIZE,
     .offset = FIELD(link),
     .argument = "SIZE",
     .default_text = "not counted",
     .least = 1,
     .greatest = SIZE_MOST,
     .help = "bytes per second between memory and all GPUs, each way"},
    {.name = "dram",
     .group = "planning",
     .type = HST_OPTION_SIZE,
     .offset = FIELD(dram),
     .argument = "SIZE",
     .default_text = "not counted",
     .least = 1,
     .greatest = SIZE_MOST,
     .help = "bytes per second of memory"},
    {.name = "endurance",
     .group = "planning",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(endurance),
     .argument = "RATING",
     .help = "of one drive: 600TBW, or 1DWPD,3.84TB,5Y"},
    {.name = "from",
     .group = "input",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(from),
     .argument = "FILE",
     .help = "plan and report from an earlier --json; no drive is touched"},
    {.name = "compare",
     .group = "input",
     .type = HST_OPTION_FLAG,
     .offset = FIELD(compare),
     .help = "two earlier --json files, side by side: --compare A.json B.json"},
    {.name = "json",
     .group = "output",
     .type = HST_OPTION_FLAG,
     .offset = FIELD(json),
     .help = "one JSON object instead of tables"},
    {.name = "html",
     .group = "output",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(html),
     .argument = "FILE",
     .help = "also a report in one file, with plots"},
};

static struct cli_verb verb_of(struct nb_args *args)
{
    return (struct cli_verb){
        .name = "nvme-bench",
        .command = "nvme-bench",
        .about = "Measures drives as training would use them, and says whether they feed a model.\n"
                 "DIR is a directory on the drive, or sim:read=7G,write=5G,... for a simulated one."
                 "\nExit codes: 0, 1 failure, 2 usage, 3 below --target or no room, 75 "
                 "and 130 interrupted.",
        .sets = {{table, sizeof table / sizeof table[0], args}},
        .set_count = 1,
        .operands = &args->paths,
    };
}

void nb_args_help(FILE *out)
{
    struct nb_args args = {.paths = {.argument = "DIR..."}};
    const struct cli_verb verb = verb_of(&args);
    cli_help(&verb, out);
}

const char *nb_precision_name(int precision)
{
    return precision_choices[precision - NB_PRECISION_BF16];
}

/* ---- lists ---- */

int nb_list_parse(const char *option, const char *text, bool sizes, const double range[2],
                  struct nb_list *list, struct hst_error *error)
{
    struct hst_option element = {.name = option,
                                 .type = sizes ? HST_OPTION_SIZE : HST_OPTION_COUNT,
                                 .least = range[0],
                                 .greatest = range[1]};
    *list = (struct nb_list){0};
    while (true) {
        char part[80], why[400]; /* a number that is cut is too long to be one */
        size_t length = strcspn(text, ",");
        uint64_t value = 0;
        snprintf(part, sizeof part, "%.*s", length < 79 ? (int)length : 79, text);
        if (hst_option_parse(&element, part, &value, why, sizeof why))
            return fail(error, FAIL_VALUE, -EINVAL, "--%s: %s. See 'nvme-bench --help'.", option,
                        why);
        if (sizes && value % HST_AIO_ALIGN_BYTES)
            return fail(error, FAIL_VALUE, -EINVAL,
                        "--%s: '%s' is not a multiple of %u bytes. Fix: --%s 256K.", option, part,
                        HST_AIO_ALIGN_BYTES, option);
        if (list->count == NB_MAX_LIST || (list->count && value <= list->values[list->count - 1]))
            return fail(error, FAIL_VALUE, -EINVAL,
                        "--%s wants at most %u values, each greater than the one before (at '%s'). "
                        "Fix: put them in order, each once.",
                        option, NB_MAX_LIST, part);
        list->values[list->count++] = (uint32_t)value;
        if (text[length] == '\0')
            return 0;
        text += length + 1;
    }
}

/* ---- endurance ---- */

/* A number, then a unit; where the text goes on, *rest. Zero and what is no number are refused. */
static bool read_quantity(const char *text, const char *const *units, const double *factors,
                          double *value, const char **rest)
{
    const struct hst_option number = {
        .name = "endurance", .type = HST_OPTION_REAL, .least = 1e-6, .greatest = 1e9};
    char digits[32], why[400];
    size_t length = strspn(text, "0123456789.");
    if (length == 0 || length >= sizeof digits)
        return false;
    memcpy(digits, text, length);
    digits[length] = '\0';
    if (hst_option_parse(&number, digits, value, why, sizeof why))
        return false;
    for (size_t i = 0; units[i]; i++) {
        size_t n = strlen(units[i]);
        if (strncasecmp(text + length, units[i], n) == 0) {
            *value *= factors[i];
            *rest = text + length + n;
            return true;
        }
    }
    return false;
}

bool nb_endurance_parse(const char *text, double *bytes)
{
    static const char *const written[] = {"TBW", "PBW", NULL}, *const capacity[] = {"TB", "GB",
                                                                                    NULL};
    static const char *const days[] = {"DWPD", NULL}, *const years[] = {"Y", NULL};
    static const double of_written[] = {1e12, 1e15}, of_capacity[] = {1e12, 1e9}, one[] = {1};
    const char *rest;
    double a, b, c;
    if (read_quantity(text, written, of_written, bytes, &rest))
        return *rest == '\0';
    if (!read_quantity(text, days, one, &a, &rest) || *rest++ != ',' ||
        !read_quantity(rest, capacity, of_capacity, &b, &rest) || *rest++ != ',' ||
        !read_quantity(rest, years, one, &c, &rest) || *rest != '\0')
        return false;
    *bytes = a * b * c * 365;
    return true;
}

/* ---- all together ---- */

static int parse_lists(struct nb_args *a, struct hst_error *error)
{
    static const double block_range[] = {4096, 64 << 20}, depth_range[] = {1, 256};
    static const double thread_range[] = {1, 16};
    const char *blocks = a->quick ? "256K,1M" : "256K,1M,4M",
               *depths = a->quick ? "4,16" : "1,4,16";
    const char *threads = a->quick ? "1" : "1,2";
    int rc = nb_list_parse("blocks", a->blocks_text ? a->blocks_text : blocks, true, block_range,
                           &a->blocks, error);
    rc = rc ? rc
            : nb_list_parse("depths", a->depths_text ? a->depths_text : depths, false, depth_range,
                            &a->depths, error);
    return rc ? rc
              : nb_list_parse("threads", a->threads_text ? a->threads_text : threads, false,
                              thread_range, &a->threads, error);
}

static int check_plan(struct nb_args *a, struct hst_error *error)
{
    if (a->plan && a->gpu_tflops == 0)
        return fail(error, FAIL_MISSING, -EINVAL,
                    "--plan needs --gpu-tflops X: what one GPU reaches in training, in 1e12 FLOP/s "
                    "(measured, or half of its data sheet's dense rate).");
    if (!a->plan && a->gpu_tflops != 0)
        return fail(error, FAIL_MISSING, -EINVAL,
                    "--gpu-tflops says what to plan with, but not the model. Fix: add --plan "
                    "MODEL.");
    if (a->endurance && !nb_endurance_parse(a->endurance, &a->endurance_bytes))
        return fail(error, FAIL_VALUE, -EINVAL,
                    "--endurance '%.60s' is not understood. Fix: 600TBW, or 1DWPD,3.84TB,5Y (drive "
                    "writes per day, capacity, years).",
                    a->endurance);
    return 0;
}

static int check_paths(const struct nb_args *a, struct hst_error *error)
{
    size_t count = a->paths.count;
    if (a->compare && (count != 2 || a->from || a->plan || a->html))
        return fail(error, FAIL_VALUE, -EINVAL,
                    "--compare takes two files and no --from, --plan or --html (got %zu files). "
                    "Fix: nvme-bench --compare A.json B.json.",
                    count);
    if (a->from && count)
        return fail(error, FAIL_VALUE, -EINVAL,
                    "--from reads an earlier result and measures nothing, but '%.100s' is given "
                    "too. Fix: leave one of them out.",
                    a->paths.values[0]);
    if (!a->from && !a->compare && count == 0)
        return fail(error, FAIL_MISSING, -EINVAL,
                    "no directory. Fix: nvme-bench DIR, a directory on the drive to be measured.");
    if (count > NB_MAX_DRIVES)
        return fail(error, FAIL_VALUE, -EINVAL, "%zu drives; at most %u. Fix: leave some out.",
                    count, NB_MAX_DRIVES);
    for (size_t i = 1; i < count && !a->compare; i++)
        if (nb_drive_is_simulated(a->paths.values[i]) != nb_drive_is_simulated(a->paths.values[0]))
            return fail(error, FAIL_VALUE, -EINVAL,
                        "simulated and real drives have different clocks. Fix: measure them in two "
                        "runs.");
    return 0;
}

int nb_args_parse(int argc, char *const *argv, struct nb_args *a, bool *help,
                  struct hst_error *error)
{
    *a = (struct nb_args){
        .paths = {.argument = "DIR..."},
        .idle_s = -1,
        .target_percent = 90,
        .gpus = 1,
        .tokens = 65536,
        .seq_len = 2048,
        .precision = NB_PRECISION_BF16,
        .recompute = NB_RECOMPUTE_ON,
        .states = 1,
    };
    const struct cli_verb verb = verb_of(a);
    int rc = cli_parse(&verb, argc, argv, help, error);
    if (rc || *help)
        return rc;
    rc = check_paths(a, error);
    rc = rc ? rc : check_plan(a, error);
    if (rc)
        return rc;
    if (a->size_bytes == 0)
        a->size_bytes = a->quick ? UINT64_C(512) << 20 : UINT64_C(2) << 30;
    if (a->sustain_bytes == 0)
        a->sustain_bytes = a->quick ? UINT64_C(512) << 20 : UINT64_C(16) << 30;
    if (a->idle_s < 0)
        a->idle_s = a->quick ? 1 : 5;
    if (a->case_s == 0)
        a->case_s = a->quick ? 0.25 : 0.4;
    return parse_lists(a, error);
}
