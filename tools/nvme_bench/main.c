/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program `nvme-bench`: measures drives as training would use them, and says whether they feed
 * a model. Measure or load, plan, report.
 */
#include "base/text.h"
#include "cli/message/activity.h"
#include "cli/message/message.h"
#include "cli/message/say.h"
#include "cli/options/options.h"
#include "cli/stop.h"
#include "nvme_bench/args.h"
#include "nvme_bench/drive.h"
#include "nvme_bench/measure.h"
#include "nvme_bench/report/answer.h"
#include "nvme_bench/report/report.h"
#include "nvme_bench/target.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

static const volatile sig_atomic_t *stopped;

static void describe_machine(struct nb_result *r)
{
    struct utsname uts;
    time_t now = time(NULL);
    struct tm tm;
    if (!r->drives[0].simulated && gmtime_r(&now, &tm))
        strftime(r->date, sizeof r->date, "%Y-%m-%dT%H:%M:%SZ", &tm);
    if (!r->drives[0].simulated && uname(&uts) == 0)
        snprintf(r->kernel, sizeof r->kernel, "%.60s %.60s", uts.sysname, uts.release);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    r->cores = r->drives[0].simulated || cores < 0 ? 0 : (uint32_t)cores;
    snprintf(r->version, sizeof r->version, "%s", hst_version());
}

static int identify_drives(const struct nb_args *a, struct nb_result *r, struct hst_error *error)
{
    for (size_t i = 0; i < a->paths.count; i++) {
        struct nb_drive *d = &r->drives[r->drive_count];
        if (strlen(a->paths.values[i]) >= sizeof d->path)
            return fail(error, FAIL_VALUE, -ENAMETOOLONG,
                        "'%.100s...' is longer than %zu bytes. Fix: give a shorter path.",
                        a->paths.values[i], sizeof d->path - 1);
        snprintf(d->path, sizeof d->path, "%s", a->paths.values[i]);
        int rc = nb_drive_identify(d, error);
        if (rc)
            return rc;
        r->drive_count++;
    }
    return 0;
}

/* Before the first byte: how much will be written, and what that is of the drive's life. */
static void announce(const struct nb_args *a, const struct nb_result *r,
                     const struct nb_budget *budget)
{
    char size[TEXT_BYTES], share[96] = "";
    for (uint32_t d = 0; d < r->drive_count; d++) {
        uint64_t bytes = nb_budget_written(budget, &r->drives[d]);
        if (a->endurance_bytes > 0)
            snprintf(share, sizeof share, ", %.2g %% of its rated endurance",
                     100 * (double)bytes / a->endurance_bytes);
        say("%.200s: will write at most %s%s; nothing of it is left\n", r->drives[d].path,
            text_size(bytes, size), share);
    }
}

static int measure(const struct nb_args *a, struct nb_result *r, struct hst_error *error)
{
    struct nb_bench *bench = calloc(1, sizeof *bench);
    if (!bench)
        return fail(error, FAIL_DEVICE, -ENOMEM, "there is no memory. Fix: end other programs.");
    r->quick = a->quick;
    bench->args = a;
    bench->stopped = stopped;
    bench->result = r;
    bench->error = error;
    int rc = identify_drives(a, r, error);
    rc = rc ? rc : nb_budget_make(a, r->drives[0].simulated, &bench->budget, error);
    rc = rc ? rc : nb_bench_check(bench);
    if (!rc) {
        describe_machine(r);
        announce(a, r, &bench->budget);
        activity_begin("opening the drives");
        rc = nb_bench_open(bench);
    }
    rc = rc ? rc : nb_measure(bench);
    activity_begin("removing scratch files");
    nb_bench_close(bench);
    activity_end();
    free(bench);
    return rc;
}

static int compare(const struct nb_args *a, struct nb_result *first, struct hst_error *error)
{
    struct nb_result *second = calloc(1, sizeof *second);
    if (!second)
        return fail(error, FAIL_DEVICE, -ENOMEM, "there is no memory. Fix: end other programs.");
    int rc = nb_result_load(a->paths.values[0], first, error);
    rc = rc ? rc : nb_result_load(a->paths.values[1], second, error);
    if (!rc)
        nb_compare(first, second, a->paths.values, a->json, stdout);
    free(second);
    return rc;
}

/* Whatever cannot be done, what was measured is printed. */
static int report(const struct nb_args *a, const struct nb_result *r, struct nb_target *html,
                  struct hst_error *error)
{
    struct nb_answer answer;
    int code = CLI_EXIT_OK;
    if (a->plan && nb_answer_make(a, r, &answer, error))
        code = cli_fail(error);
    const struct nb_answer *plan = a->plan && !code ? &answer : NULL;
    if (html->path) {
        FILE *page = nb_target_begin(html, error);
        if (page)
            nb_report_html(r, plan, page);
        if (!page || nb_target_end(html, page, error))
            code = cli_fail(error);
    }
    if (a->json)
        nb_report_json(r, plan, stdout);
    else
        nb_report_text(r, plan, stdout);
    if (code)
        return code;
    return plan && !(plan->feeds && plan->fits) ? CLI_EXIT_NOT_ENOUGH : CLI_EXIT_OK;
}

/* The model of --plan is looked at before minutes of measuring. */
static int obtain(const struct nb_args *a, struct nb_result *r, struct hst_error *error)
{
    struct nb_answer probe = {.drives = 1};
    int rc = a->plan ? nb_answer_model(a->plan, &probe, error) : 0;
    if (rc)
        return rc;
    return a->from ? nb_result_load(a->from, r, error) : measure(a, r, error);
}

static int measure_and_report(const struct nb_args *a, struct nb_result *result,
                              struct hst_error *error)
{
    struct nb_target html = {0};
    int rc = nb_target_check(a->html, a->from, error);
    rc = rc ? rc : nb_target_open(&html, a->html, error);
    rc = rc ? rc : a->compare ? compare(a, result, error) : obtain(a, result, error);
    int code = CLI_EXIT_OK;
    if (rc == -ECANCELED) {
        say("stopped: nothing is reported, and nothing is left on the drives\n");
        code = CLI_EXIT_STOPPED;
    } else if (rc) {
        code = cli_fail(error);
    } else if (!a->compare) {
        code = report(a, result, &html, error);
    }
    nb_target_close(&html);
    return code;
}

static int run(int argc, char **argv)
{
    struct nb_args args;
    struct hst_error error = {0};
    bool help;
    if (nb_target_check_stdout(&error))
        return cli_fail(&error);
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("nvme-bench %s\n", hst_version());
        return CLI_EXIT_OK;
    }
    if (nb_args_parse(argc - 1, argv + 1, &args, &help, &error))
        return cli_fail(&error);
    if (help) {
        nb_args_help(stdout);
        return CLI_EXIT_OK;
    }
    struct nb_result *result = calloc(1, sizeof *result);
    if (!result) {
        fail(&error, FAIL_DEVICE, -ENOMEM, "there is no memory. Fix: end other programs.");
        return cli_fail(&error);
    }
    int code = measure_and_report(&args, result, &error);
    free(result);
    return code;
}

int main(int argc, char **argv)
{
    struct hst_error error;
    stopped = stop_catch();
    signal(SIGXFSZ, SIG_IGN); /* a write beyond RLIMIT_FSIZE then fails with EFBIG, which is told */
    int code = run(argc, argv);
    /* Results that did not reach their file are a failure, even if all else went well. */
    if (say_flush(stdout) != 0 && (code == CLI_EXIT_OK || code == CLI_EXIT_NOT_ENOUGH)) {
        fail(&error, FAIL_WRITE, -EIO, "stdout cannot be written (%s).", strerror(errno));
        return cli_fail(&error);
    }
    return code;
}
