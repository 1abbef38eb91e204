/* SPDX-License-Identifier: Apache-2.0 */
/* hoistway bench adam: the host optimizer's updates beside what the memory allows, and beside a
 * peer. */
#include "verbs/bench/adam.h"

#include "bench/adam/adam.h"
#include "cli/log/json.h"
#include "cli/message/activity.h"
#include "cli/message/message.h"
#include "cli/options/options.h"
#include "cli/options/verb.h"

#include <stdio.h>
#include <string.h>

struct adam_options {
    struct bench_adam_in in;
    bool json;
};

/* In the order of enum bench_adam_group. */
static const char *const formats[] = {"fp32",   "bf16", "bf16-moments", "8-bit-moments", "fp16",
                                      "others", NULL};

static const struct hst_option adam_table[] = {
    {.name = "elements",
     .group = "measuring",
     .type = HST_OPTION_COUNT,
     .offset = offsetof(struct adam_options, in.elements),
     .argument = "N",
     .default_text = "1e8",
     .least = 1,
     .greatest = 1e12,
     .help = "parameters; what fits into caches measures those"},
    {.name = "threads",
     .group = "measuring",
     .type = HST_OPTION_UINT32,
     .offset = offsetof(struct adam_options, in.threads),
     .argument = "N",
     .default_text = "all cores",
     .least = 1,
     .greatest = 1024,
     .help = "threads that share the parameters"},
    {.name = "rounds",
     .group = "measuring",
     .type = HST_OPTION_UINT32,
     .offset = offsetof(struct adam_options, in.rounds),
     .argument = "N",
     .default_text = "9",
     .least = 1,
     .greatest = 10000,
     .help = "turns of each contestant, after one that warms up"},
    {.name = "only",
     .group = "measuring",
     .type = HST_OPTION_CHOICE,
     .offset = offsetof(struct adam_options, in.only),
     .argument = "FORMAT",
     .default_text = "all",
     .choices = formats,
     .first_choice = BENCH_ADAM_FP32,
     .help = "one format of AdamW, or all other optimizers"},
    {.name = "peer",
     .group = "measuring",
     .type = HST_OPTION_TEXT,
     .offset = offsetof(struct adam_options, in.peer),
     .argument = "FILE.so",
     .default_text = "none",
     .help = "another AdamW, a library that exports hst_peer_adamw (tools/bench/adam/adam.h)"},
    {.name = "json",
     .group = "output",
     .type = HST_OPTION_FLAG,
     .offset = offsetof(struct adam_options, json),
     .help = "one JSON object per case and line"},
};

/* ---- JSON ---- */

static void put_spread(struct json_writer *json, const char *key,
                       const struct bench_spread_of *spread)
{
    if (!(spread->median > 0)) {
        json_put_null(json, key);
        return;
    }
    json_put_array(json, key);
    json_put_real(json, NULL, spread->least);
    json_put_real(json, NULL, spread->median);
    json_put_real(json, NULL, spread->most);
    json_put_end(json);
}

static void print_json(const struct bench_adam_row *row)
{
    struct json_writer json = {.out = stdout};
    char name[128];
    snprintf(name, sizeof name, "%s: %s", row->group, row->name);
    json_put_object(&json, NULL);
    json_put_text(&json, "bench", "adam");
    json_put_text(&json, "case", name);
    json_put_real(&json, "value", row->bytes_per_s);
    json_put_text(&json, "unit", "B/s");
    json_put_real(&json, "ceiling", row->ceiling);
    json_put_real(&json, "fraction", row->bytes_per_s / row->ceiling);
    json_put_whole(&json, "threads", row->threads);
    json_put_whole(&json, "bytes_per_element", row->bytes);
    put_spread(&json, "ns_per_element", &row->ns);
    put_spread(&json, "over_null", &row->over_null);
    put_spread(&json, "over_larger", &row->over_larger);
    put_spread(&json, "over_best", &row->over_best);
    put_spread(&json, "over_peer", &row->over_peer);
    put_spread(&json, "cached_ns_per_element", &row->cached_ns);
    json_put_whole(&json, "cached_elements", (int64_t)row->cached_elements);
    json_put_text(&json, "note", row->note);
    json_put_end(&json);
    printf("\n");
    fflush(stdout);
}

/* ---- text ---- */

struct rows {
    const struct adam_options *options;
    const char *group; /* of the row before; null: this is the first */
    unsigned threads;
};

static void print_over(const char *what, const struct bench_spread_of *spread)
{
    if (spread->median > 0)
        printf("  %.3f of %s [%.3f .. %.3f]", spread->median, what, spread->least, spread->most);
}

static void print_head(const struct bench_adam_in *in)
{
    printf(
        "adam: AdamW on %.3g parameters, arrays staggered by 1,088 bytes; %u rounds by turns\n"
        "  times per parameter; %% of the fastest null kernel on as many threads; ratios of times "
        "round by round: median [least .. most]\n"
        "  in cache: the same kernel on as many parameters as half of the second-level cache "
        "holds, "
        "again and again; larger: of null and cache\n",
        (double)in->elements, in->rounds);
    if (!in->peer)
        printf("  peer: not measured (--peer FILE.so)\n");
}

static void print_text(struct rows *rows, const struct bench_adam_row *row)
{
    if (!rows->group)
        print_head(&rows->options->in);
    if (!rows->group || strcmp(rows->group, row->group) != 0 || rows->threads != row->threads)
        printf("%s, %u thread%s, %u bytes per parameter\n", row->group, row->threads,
               row->threads == 1 ? "" : "s", row->bytes);
    rows->group = row->group;
    rows->threads = row->threads;
    printf("  %-28s %7.3f ns %7.1f GB/s %6.1f %%", row->name, row->ns.median,
           row->bytes_per_s * 1e-9, 100 * row->bytes_per_s / row->ceiling);
    if (row->cached_ns.median > 0)
        printf("  %.3f ns in cache", row->cached_ns.median);
    print_over("null", &row->over_null);
    print_over("larger", &row->over_larger);
    print_over("best", &row->over_best);
    print_over("peer", &row->over_peer);
    if (row->note)
        printf("  (%s)", row->note);
    printf("\n");
    fflush(stdout);
}

/* ---- a row at a time, while the next is measured ---- */

static void tell(void *context, const struct bench_adam_row *row)
{
    struct rows *rows = context;
    activity_hold();
    if (rows->options->json)
        print_json(row);
    else
        print_text(rows, row);
    activity_release();
}

int bench_verb_adam(int argc, char **argv)
{
    struct adam_options options = {.in = {.elements = 100000000, .rounds = 9}};
    const struct cli_verb verb = {
        .name = "bench adam",
        .about = "times the host's optimizer, each format and instruction set, in per cent of what "
                 "the memory allows",
        .sets = {{adam_table, sizeof adam_table / sizeof adam_table[0], &options}},
        .set_count = 1,
    };
    struct hst_error error = {0};
    struct rows rows = {.options = &options};
    int code;
    if (!cli_ready(&verb, argc, argv, &code))
        return code;
    options.in.tell = tell;
    options.in.context = &rows;
    activity_begin("measuring");
    const int rc = bench_adam(&options.in, &error);
    activity_end();
    return rc ? cli_fail(&error) : CLI_EXIT_OK;
}
