/* SPDX-License-Identifier: Apache-2.0 */
/* The program `hoistway`: finds the verb and hands it the rest of the command line. */
#include "cli/message/message.h"
#include "cli/message/say.h"
#include "cli/options/launch.h"
#include "cli/options/options.h"
#include "cli/stop.h"
#include "verbs/verbs.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

static const struct {
    const char *name, *about;
    int (*run)(int argc, char **argv);
} verbs[] = {
    {"plan", "tell where a model would live here, and how long a step would take", verb_plan},
    {"prep", "make a token file of chats or texts, with a model's tokenizer (in Python)",
     verb_prep},
    {"watch", "send a run's log to Weights & Biases while it grows (in Python)", verb_watch},
    {"convert", "turn another trainer's file into command lines (in Python)", verb_convert},
    {"train", "fine-tune a Hugging Face model", verb_train},
    {"demo", "train a small model from disk and from RAM, and compare", verb_demo},
    {"doctor", "check what this machine offers", verb_doctor},
    {"bench", "measure, in per cent of a ceiling measured in the same run", verb_bench},
    {"inspect", "tell what a model, a token file or a store holds", verb_inspect},
    {"ckpt", "list, verify, export and reshard what a run has committed", verb_ckpt},
    {"explain", "say what the code of a message means, and what to do", verb_explain},
};
#define VERB_COUNT (sizeof verbs / sizeof verbs[0])

static void print_help(void)
{
    printf("usage: hoistway VERB [options]\n\n"
           "Trains models that do not fit in memory: weights and optimizer states live on disk.\n\n"
           "verbs:\n");
    for (size_t i = 0; i < VERB_COUNT; i++)
        printf("  %-10s %s\n", verbs[i].name, verbs[i].about);
    printf("\n'hoistway VERB --help' lists the options of a verb, 'hoistway --version' tells the "
           "version.\n");
}

static int unknown_verb(const char *typed)
{
    const char *names[VERB_COUNT];
    struct hst_error error;
    for (size_t i = 0; i < VERB_COUNT; i++)
        names[i] = verbs[i].name;
    const char *nearest = cli_nearest(typed, names, VERB_COUNT);
    if (nearest)
        fail(&error, FAIL_USAGE, -EINVAL, "unknown verb '%.60s'. Did you mean %s?", typed, nearest);
    else
        fail(&error, FAIL_USAGE, -EINVAL,
             "unknown verb '%.60s'. 'hoistway --help' lists the verbs.", typed);
    return cli_fail(&error);
}

static int run(int argc, char **argv)
{
    struct hst_error error;
    if (argc < 2) {
        fail(&error, FAIL_MISSING, -EINVAL, "no verb. 'hoistway --help' lists the verbs.");
        return cli_fail(&error);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_help();
        return CLI_EXIT_OK;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0) {
        printf("hoistway %s\n", hst_version());
        return CLI_EXIT_OK;
    }
    for (size_t i = 0; i < VERB_COUNT; i++)
        if (strcmp(argv[1], verbs[i].name) == 0)
            return verbs[i].run(argc - 2, argv + 2);
    return unknown_verb(argv[1]);
}

int main(int argc, char **argv)
{
    struct hst_error error;
    /* A run that is asked to stop while it starts ends as one that is asked later. */
    if (argc > 1 && strcmp(argv[1], "train") == 0) {
        launch_speak(stop_catch());
        signal(SIGPIPE, SIG_IGN); /* who reads what it tells may leave: the run goes on */
    }
    /*
     * A write beyond RLIMIT_FSIZE then fails with EFBIG, which is told, instead of ending the
     * process.
     */
    signal(SIGXFSZ, SIG_IGN);
    int code = run(argc, argv);
    /* Results that did not reach their file are a failure, even if all else went well. */
    if (say_flush(stdout) != 0 && code == CLI_EXIT_OK) {
        fail(&error, FAIL_WRITE, -EIO, "stdout cannot be written (%s).", strerror(errno));
        return cli_fail(&error);
    }
    return code;
}
