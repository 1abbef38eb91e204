/* SPDX-License-Identifier: Apache-2.0 */
/* hoistway bench comm: what moves between ranks, beside MPI's own collectives. Rank 0 prints. */
#include "verbs/bench/comm.h"

#include "cli/log/json.h"
#include "cli/message/message.h"
#include "cli/options/launch.h"
#include "cli/options/options.h"
#include "cli/options/verb.h"
#include "verbs/rates_file.h"

#include <hoistway/ranks.h>

#include <errno.h>
#include <stdio.h>

struct comm_options {
    uint64_t size_bytes;
    uint32_t pairs;
    bool json;
    const char *save_rates;
};

static const struct hst_option comm_table[] = {
    {.name = "size",
     .group = "measuring",
     .type = HST_OPTION_SIZE,
     .offset = offsetof(struct comm_options, size_bytes),
     .argument = "SIZE",
     .default_text = "64MiB",
     .least = 1,
     .greatest = 1u << 30,
     .help = "bytes of a row in f32, which all ranks exchange and gather"},
    {.name = "pairs",
     .group = "measuring",
     .type = HST_OPTION_UINT32,
     .offset = offsetof(struct comm_options, pairs),
     .argument = "N",
     .default_text = "9",
     .least = 1,
     .greatest = HST_PAIRS_MOST,
     .help = "turns of each contestant, after one that warms up"},
    {.name = "save-rates",
     .group = "output",
     .type = HST_OPTION_TEXT,
     .offset = offsetof(struct comm_options, save_rates),
     .argument = "FILE",
     .default_text = "no file",
     .help = "what a step's operations reach, for plan --net-rates; rank 0 writes it"},
    {.name = "json",
     .group = "output",
     .type = HST_OPTION_FLAG,
     .offset = offsetof(struct comm_options, json),
     .help = "one JSON object per case and line"},
};

static void print_json(const struct hst_ranks_measured *m)
{
    for (uint32_t i = 0; i < m->case_count; i++) {
        const struct hst_ranks_case *c = &m->cases[i];
        struct json_writer json = {.out = stdout};
        json_put_object(&json, NULL);
        json_put_text(&json, "bench", "comm");
        json_put_text(&json, "case", c->name);
        json_put_real(&json, "value", c->own_s);
        json_put_text(&json, "unit", "s");
        json_put_real(&json, "ceiling", c->library_s);
        json_put_real(&json, "fraction", c->library_s / c->own_s);
        json_put_text(&json, "ceiling_name", c->library_name);
        json_put_real(&json, "ratio", c->ratio);
        json_put_real(&json, "ratio_least", c->ratio_least);
        json_put_real(&json, "ratio_most", c->ratio_most);
        json_put_whole(&json, "ranks", m->ranks);
        json_put_whole(&json, "nodes", m->nodes);
        json_put_whole(&json, "bytes", m->size_bytes);
        json_put_text(&json, "transport", m->transport);
        json_put_end(&json);
        putchar('\n');
    }
}

static void print_text(const struct hst_ranks_measured *m)
{
    printf("comm: %u ranks on %u %s, %.1f MiB of f32, %s\n", m->ranks, m->nodes,
           m->nodes == 1 ? "node" : "nodes", (double)m->size_bytes / (1 << 20), m->transport);
    printf("%-28s %9s %9s %7s\n", "", "ms", "MPI's ms", "ratio");
    for (uint32_t i = 0; i < m->case_count; i++) {
        const struct hst_ranks_case *c = &m->cases[i];
        printf("%-28s %9.2f %9.2f %7.2f   (%.2f to %.2f; %s)\n", c->name, c->own_s * 1e3,
               c->library_s * 1e3, c->ratio, c->ratio_least, c->ratio_most, c->library_name);
    }
}

static int measure(const struct comm_options *o, struct hst_error *error)
{
    static struct hst_rates rates; /* large: not on the stack */
    const struct hst_ranks_measure in = {o->size_bytes, o->pairs, o->save_rates ? &rates : NULL};
    struct hst_ranks_measured measured;
    int rc = rates_file_check(o->save_rates, error);
    if (rc)
        return rc;
    rc = hst_ranks_measure(&in, &measured, error);
    if (rc)
        return rc;
    if (measured.rank == 0 && o->json)
        print_json(&measured);
    else if (measured.rank == 0)
        print_text(&measured);
    return measured.rank == 0 && o->save_rates ? rates_file_write(o->save_rates, &rates, error) : 0;
}

int bench_verb_comm(int argc, char **argv)
{
    struct comm_options options = {.size_bytes = 64u << 20, .pairs = 9};
    const struct cli_verb verb = {
        .name = "bench comm",
        .about = "what moves between ranks, beside MPI's own collectives",
        .sets = {{comm_table, sizeof comm_table / sizeof comm_table[0], &options}},
        .set_count = 1,
    };
    struct hst_error error = {0};
    int code;
    launch_speak(NULL);
    if (!cli_ready(&verb, argc, argv, &code))
        return code;
    int rc = measure(&options, &error);
    return rc ? cli_fail(&error) : CLI_EXIT_OK;
}
