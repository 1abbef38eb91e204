/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which options plan has, and which of them contradict each other. */
#include "verbs/plan/asked.h"

#include "verbs/plan/accounting.h"
#include "verbs/plan/elsewhere.h"
#include "verbs/train/config.h"
#include "verbs/train/eval.h"
#include "verbs/verbs.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#define FIELD(f) offsetof(struct plan_options, f)

static const struct hst_option input_table[] = {
    {.name = "model",
     .group = "input",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(train.model),
     .argument = "DIR|SHAPE",
     .help = "Hugging Face directory (its config.json), or 8B, llama-3-8b"},
    {.name = "rates",
     .group = "input",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(rates),
     .argument = "FILE",
     .default_text = "this machine's",
     .help = "those of another machine; budgets are then as given"},
    {.name = "machine",
     .group = "input",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(machine),
     .argument = "NAME|FILE",
     .default_text = "here",
     .help = "sizes and rates of another machine; list: those that are known"},
    {.name = "paper",
     .group = "input",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(paper),
     .argument = "NAME",
     .default_text = "no table",
     .help = "a table, such as zero-1; list: those that are known"},
    {.name = "probe",
     .group = "input",
     .type = HST_OPTION_FLAG,
     .offset = FIELD(probe),
     .help = "measures all rates anew; writes 1 GiB at most to each drive"},
};

static const struct hst_option rank_table[] = {
    {.name = "world",
     .group = "ranks",
     .type = HST_OPTION_UINT32,
     .offset = FIELD(world),
     .argument = "N",
     .default_text = "1",
     .least = 1,
     .greatest = 65536,
     .help = "plans one rank of so many, without starting any"},
    {.name = "gpus",
     .group = "ranks",
     .type = HST_OPTION_UINT32,
     .offset = FIELD(gpus),
     .argument = "N",
     .default_text = "1",
     .least = 1,
     .greatest = 65536,
     .help = "the same as --world: each rank has a GPU of its own"},
    {.name = "nodes",
     .group = "ranks",
     .type = HST_OPTION_UINT32,
     .offset = FIELD(nodes),
     .argument = "M",
     .default_text = "1",
     .least = 1,
     .greatest = 65536,
     .help = "on so many nodes, each with as many ranks"},
    {.name = "net-rates",
     .group = "ranks",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(net_rates),
     .argument = "FILE",
     .default_text = "those of --rates",
     .help = "the network's, of mpirun … bench comm --save-rates"},
    {.name = "net-node",
     .group = "ranks",
     .type = HST_OPTION_SIZE,
     .offset = FIELD(net_node),
     .argument = "SIZE",
     .default_text = "measured",
     .least = 1,
     .greatest = 1e15,
     .help = "bytes a second that a rank has of others of its node"},
    {.name = "net-between",
     .group = "ranks",
     .type = HST_OPTION_SIZE,
     .offset = FIELD(net_between),
     .argument = "SIZE",
     .default_text = "measured",
     .least = 1,
     .greatest = 1e15,
     .help = "bytes a second that a rank has of other nodes"},
    {.name = "net-latency",
     .group = "ranks",
     .type = HST_OPTION_REAL,
     .offset = FIELD(net_latency),
     .argument = "US",
     .default_text = "measured",
     .least = 0.001,
     .greatest = 1e9,
     .help = "microseconds of an operation beside its bytes"},
};

static const char *const accountings[] = {"ours", "paper", NULL};

static const struct hst_option output_table[] = {
    {.name = "accounting",
     .group = "output",
     .type = HST_OPTION_CHOICE,
     .offset = FIELD(accounting),
     .argument = "WHOSE",
     .default_text = "ours",
     .choices = accountings,
     .first_choice = PLAN_ACCOUNTING_OURS,
     .help = "paper: what a rank holds and sends by ZeRO's, too, 2 + 2 + 12"},
    {.name = "tokens",
     .group = "output",
     .type = HST_OPTION_COUNT,
     .offset = FIELD(tokens),
     .argument = "N",
     .default_text = "those of --data",
     .least = 1,
     .greatest = 1e18,
     .help = "says how many days so many tokens take"},
    {.name = "tbw",
     .group = "output",
     .type = HST_OPTION_REAL,
     .offset = FIELD(tbw),
     .argument = "TB",
     .default_text = "not known",
     .least = 0.001,
     .greatest = 1e9,
     .help = "that one drive is rated for: says how many years they last"},
    {.name = "save-rates",
     .group = "output",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(save_rates),
     .argument = "FILE",
     .default_text = "no file",
     .help = "keeps the rates that were planned with, for --rates"},
    {.name = "compare",
     .group = "output",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(compare),
     .argument = "A,B",
     .default_text = "one plan",
     .help = "two plans side by side, each with its --options file"},
    {.name = "html",
     .group = "output",
     .type = HST_OPTION_TEXT,
     .offset = FIELD(html),
     .argument = "FILE",
     .default_text = "no file",
     .help = "the plan as one page, with bars and a step's timeline"},
    {.name = "json",
     .group = "output",
     .type = HST_OPTION_FLAG,
     .offset = FIELD(json),
     .help = "one JSON object"},
};

static const char *const required[] = {"model", NULL}, *const nothing[] = {NULL};

/* A paper's table has models of its own, two plans are each asked for theirs, a list has none. */
static bool needs_model(int argc, char *const *argv)
{
    for (int i = 0; i < argc; i++)
        if (strncmp(argv[i], "--paper", strlen("--paper")) == 0 ||
            strncmp(argv[i], "--compare", strlen("--compare")) == 0 ||
            strcmp(argv[i], "--machine=list") == 0 ||
            (strcmp(argv[i], "--machine") == 0 && i + 1 < argc && strcmp(argv[i + 1], "list") == 0))
            return false;
    return true;
}

static int take_ranks(struct plan_options *o, struct hst_error *error)
{
    const uint32_t world = o->world ? o->world : 1, nodes = o->nodes ? o->nodes : 1;
    if (world % nodes)
        return fail(error, FAIL_VALUE, -EINVAL,
                    "--world %u ranks cannot be shared out among --nodes %u: each has as many. "
                    "Fix: --world %u, or as many nodes as divide it.",
                    world, nodes, (world + nodes - 1) / nodes * nodes);
    if (world == 1 && (o->net_rates || o->net_node || o->net_between || o->net_latency > 0))
        return fail(error, FAIL_VALUE, -EINVAL,
                    "the network is between ranks, and one is planned. Fix: --world N, or leave "
                    "--net-* out.");
    if (world == 1)
        return 0;
    o->launch = (struct hst_launch){
        .ranks = world, .locals = world / nodes, .launcher = "", .variable = "", .alone = ""};
    o->train.engine.launch = &o->launch;
    return 0;
}

/* A paper's table is what it is: an option beside it would change nothing. */
static int check_paper(struct cli_parser *parser, const struct plan_asked *asked,
                       struct hst_error *error)
{
    const struct plan_options *o = asked->options;
    if (!o->paper || o->compare || asked->file)
        return 0;
    for (size_t s = 0; s < asked->verb->set_count; s++)
        for (size_t i = 0; i < asked->verb->sets[s].count; i++) {
            const char *name = asked->verb->sets[s].options[i].name;
            if (strcmp(name, "paper") != 0 && strcmp(name, "json") != 0 &&
                cli_supply(parser, name, NULL, NULL) == CLI_OVERRULED)
                return fail(error, FAIL_VALUE, -EINVAL,
                            "--%s changes nothing in the table of --paper, which has models of its "
                            "own. Fix: leave --%s or --paper out.",
                            name, name);
        }
    return 0;
}

/* It refuses what one plan alone, or none, may have where two stand side by side. */
static int check_file(const struct plan_asked *asked, struct hst_error *error)
{
    const struct plan_options *o = asked->options;
    const struct {
        bool is;
        const char *name;
    } none[] = {{o->html, "html"},
                {o->save_rates, "save-rates"},
                {o->probe, "probe"},
                {o->compare, "compare"},
                {o->paper, "paper"},
                {o->accounting != PLAN_ACCOUNTING_OURS, "accounting"},
                {o->train.print_options, "print-options"},
                {o->train.explain_config, "explain-config"},
                {o->json && !asked->json, "json"}};
    const char *name = NULL;
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        name = none[i].is ? none[i].name : name;
    if (!asked->file || !name)
        return 0;
    return fail(error, FAIL_VALUE, -EINVAL,
                "'%.200s' has '%s', and --compare plans twice and writes nothing. Fix: leave it "
                "out there%s.",
                asked->file, name, strcmp(name, "json") == 0 ? ", and give --json beside" : "");
}

static int take_gpus(struct plan_options *o, struct hst_error *error)
{
    if (o->gpus && o->world && o->gpus != o->world)
        return fail(error, FAIL_VALUE, -EINVAL,
                    "--gpus %u and --world %u are the same, the number of ranks. Fix: leave one of "
                    "them out.",
                    o->gpus, o->world);
    o->world = o->gpus ? o->gpus : o->world;
    return 0;
}

/* The batch of a --config is that of the ranks that are planned. */
static int take_config(struct cli_parser *parser, void *context, bool *done,
                       struct hst_error *error)
{
    const struct plan_asked *asked = context;
    struct plan_options *o = asked->options;
    int native = take_gpus(o, error);
    native = native ? native : check_paper(parser, asked, error);
    native = native ? native
                    : train_config_more_of(parser, &o->train, o->world ? o->world : 1, done, error);
    native = native ? native : check_paper(parser, asked, error);
    return native ? native : check_file(asked, error);
}

int plan_parse(struct plan_asked *asked, int argc, char *const *argv, bool *help,
               struct hst_error *error)
{
    struct plan_options *options = asked->options;
    size_t common_count, engine_count, eval_count;
    const struct hst_option *common = train_options_common(&common_count);
    const struct hst_option *eval = train_eval_options(&eval_count);
    const struct hst_option *engine = hst_engine_options(&engine_count);
    const struct cli_verb verb = {
        .name = "plan",
        .about = "Tells where a model would live within these budgets, how long a step of train "
                 "takes and why.",
        .see = SEE_TABLE,
        .required = needs_model(argc, argv) ? required : nothing,
        .sets = {{input_table, sizeof input_table / sizeof input_table[0], options},
                 {common, common_count, &options->train},
                 {eval, eval_count, &options->train},
                 {engine, engine_count, &options->train.engine},
                 {rank_table, sizeof rank_table / sizeof rank_table[0], options},
                 {output_table, sizeof output_table / sizeof output_table[0], options}},
        .set_count = 6,
        .kin = &train_options_own,
        .more = take_config,
        .more_context = asked,
    };
    asked->verb = &verb;
    train_options_init(&options->train);
    int native = cli_parse(&verb, argc, argv, help, error);
    if (native == 0 && *help)
        cli_help(&verb, stdout);
    *help = *help || options->train.explain_config;
    if (native == 0)
        native = plan_take_elsewhere(options, help, error);
    if (native == 0)
        native = take_ranks(options, error);
    train_options_complete(&options->train);
    asked->verb = NULL;
    return native;
}
