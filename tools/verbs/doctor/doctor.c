/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hoistway doctor. Looks at everything on this machine that decides whether and how fast training
 * runs, and says for each finding what would make it better. Nothing is changed; the probe leaves
 * nothing behind.
 */
#include "verbs/doctor/doctor.h"
#include "base/text.h"
#include "cli/log/json.h"
#include "cli/message/activity.h"
#include "cli/message/message.h"
#include "cli/options/device.h"
#include "cli/options/launch.h"
#include "cli/options/options.h"
#include "cli/options/store.h"
#include "cli/options/verb.h"
#include "cli/system.h"
#include "verbs/verbs.h"

#include <hoistway/cpu_adam.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static const char *const status_names[] = {"ok", "warn", "fail"};

static const struct hst_option options_table[] = {
    {.name = "store",
     .group = "placement",
     .type = HST_OPTION_TEXT,
     .offset = offsetof(struct doctor, store),
     .argument = "DIR",
     .default_text = "$TMPDIR, or /tmp",
     .help = "directory to be probed as the NVMe tier"},
    {.name = "json",
     .group = "output",
     .type = HST_OPTION_FLAG,
     .offset = offsetof(struct doctor, json),
     .help = "print the checks as one JSON object"},
};

void doctor_report(struct doctor *d, const char *name, enum status status, const char *fix,
                   const char *format, ...)
{
    if (d->count == DOCTOR_MAX_CHECKS)
        return;
    struct doctor_check *check = &d->checks[d->count++];
    va_list args;
    *check = (struct doctor_check){.status = status, .fix = fix};
    snprintf(check->name, sizeof check->name, "%s", name);
    va_start(args, format);
    vsnprintf(check->found, sizeof check->found, format, args);
    va_end(args);
}

void doctor_keep_room(struct doctor *d, const char *of, enum hst_tier tier, uint64_t total_bytes,
                      uint64_t free_bytes)
{
    if (d->room_count == DOCTOR_MAX_ROOMS)
        return;
    struct doctor_room *room = &d->rooms[d->room_count++];
    *room =
        (struct doctor_room){.tier = tier, .total_bytes = total_bytes, .free_bytes = free_bytes};
    snprintf(room->of, sizeof room->of, "%s", of);
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- checks ---- */

static void check_cores(struct doctor *d)
{
    int rc = hst_topology_read(&d->machine);
    if (!rc && d->machine.cores)
        doctor_report(d, "cores", STATUS_OK, NULL, "%" PRIu32 " physical cores usable, %s",
                      d->machine.cores, d->machine.cpu);
    else
        doctor_report(d, "cores", STATUS_WARN, "give train --threads N",
                      "the number of physical cores cannot be told");
}

static void check_instructions(struct doctor *d)
{
    const char *name = hst_cpu_adam_ops(HST_CPU_ISA_AUTO)->name;
    bool plain = strcmp(name, "c") == 0;
    doctor_report(d, "cpu", plain ? STATUS_WARN : STATUS_OK,
                  plain ? "a CPU with AVX2 updates faster; results are the same" : NULL,
                  "optimizer updates use %s", name);
}

/* It says what to do where the host device does not open. */
static const char *blas_fix(enum hst_dev_why why)
{
    return why == HST_DEV_MEMORY ? "end other programs" : hst_dev_fix(why);
}

/*
 * Which BLAS serves the host device, and with which kernels, is known after the device has been
 * opened: that finds and loads it, and mends a bad choice of kernels where it can.
 */
static void check_blas(struct doctor *d)
{
    static const char *const flavours[] = {"serial", "pthread", "OpenMP"};
    const struct hst_dev_config config = {.size = sizeof config};
    struct hst_dev_failure failure = {.why = HST_DEV_OK};
    const struct hst_matmul bf16 = {
        .m = 1, .n = 1, .k = 1, .a.dtype = HST_BF16, .b.dtype = HST_BF16, .c.dtype = HST_BF16};
    char math[HST_DEV_MATH_BYTES];
    struct hst_dev *device;
    int (*parallel)(void) = NULL;
    if (hst_dev_open("host", &config, &device, &failure)) {
        doctor_report(d, "blas", STATUS_FAIL, blas_fix(failure.why), "%s", failure.text);
        return;
    }
    (void)hst_matmul_work_bytes(device, &bf16); /* from then on it tells who makes bf16's, too */
    hst_dev_math(device, math, sizeof math);
    hst_dev_close(&device);
    *(void **)&parallel = hst_dev_host_blas("openblas_get_parallel");
    int flavour = parallel ? parallel() : -1;
    doctor_report(d, "blas", STATUS_OK, NULL, "%s: %s flavour; numbers depend on it", math,
                  flavour >= 0 && flavour < 3 ? flavours[flavour] : "unknown");
}

static void check_memory(struct doctor *d)
{
    struct system_memory memory;
    char physical[TEXT_BYTES], available[TEXT_BYTES], limit[TEXT_BYTES];
    system_memory(&memory);
    doctor_keep_room(d, "host", HST_TIER_DRAM, least(memory.physical, memory.cgroup),
                     least(memory.available, memory.cgroup_left));
    doctor_report(d, "memory", memory.available < UINT64_C(256) << 20 ? STATUS_WARN : STATUS_OK,
                  memory.available < UINT64_C(256) << 20 ? "end other programs" : NULL,
                  "%s, %s available", text_size(memory.physical, physical),
                  text_size(memory.available, available));
    bool tight = memory.cgroup_left < UINT64_C(256) << 20;
    if (memory.cgroup < memory.physical)
        doctor_report(d, "cgroup", tight ? STATUS_WARN : STATUS_OK,
                      tight ? "raise the container's memory limit" : NULL,
                      "memory limited to %s, %s of it left", text_size(memory.cgroup, limit),
                      text_size(memory.cgroup_left, available));
    else
        doctor_report(d, "cgroup", STATUS_OK, NULL, "no memory limit");
    if (memory.address_space != SYSTEM_NO_LIMIT)
        doctor_report(d, "address space", STATUS_WARN, "ulimit -v unlimited", "RLIMIT_AS is %s",
                      text_size(memory.address_space, limit));
    bool small = memory.locked < UINT64_C(8) << 20;
    doctor_report(
        d, "memlock", small ? STATUS_WARN : STATUS_OK,
        small ? "ulimit -l unlimited, LimitMEMLOCK=infinity, or docker --ulimit memlock=-1" : NULL,
        "RLIMIT_MEMLOCK is %s",
        memory.locked == SYSTEM_NO_LIMIT ? "unlimited" : text_size(memory.locked, limit));
}

/* It tells whether a run would take it. A directory that is not empty is only warned of and tried
   all the same: a drive may be mounted there, and the default is such a one. */
static int check_contents(struct doctor *d, struct hst_error *error)
{
    struct stat at;
    int native = d->store == d->default_store ? 0 : hst_store_check(d->store, false, error);
    if (!native || lstat(d->store, &at) || !S_ISDIR(at.st_mode))
        return native;
    doctor_report(d, "contents", STATUS_WARN, "an empty directory there: --store DIR/NAME",
                  "a run would refuse it: E%03d %s", error->code, error->message);
    return 0;
}

static void check_store(struct doctor *d)
{
    struct hst_aio_info info;
    struct hst_error error = {0};
    struct statvfs fs;
    char rung[64], reason[400], size[TEXT_BYTES], parent[PATH_MAX];
    snprintf(parent, sizeof parent, "%s", d->store);
    int native = check_contents(d, &error);
    native = native ? native : store_check(d->store, &info, &error);
    if (native) {
        doctor_report(d, "store", STATUS_FAIL, "see above; or another directory: --store DIR",
                      "E%03d %s", error.code, error.message);
        return;
    }
    store_rung(&info, rung, sizeof rung);
    snprintf(d->store_rung, sizeof d->store_rung, "%s", rung);
    if (info.uring_error) {
        hst_io_reason(info.uring_error, info.uring_step, reason, sizeof reason);
        doctor_report(d, "io_uring", STATUS_WARN, NULL, "%s", reason);
    } else {
        doctor_report(d, "io_uring", STATUS_OK, NULL, "works in %.200s", d->store);
    }
    bool fine = info.direct && !info.in_memory;
    doctor_report(d, "store", fine ? STATUS_OK : STATUS_WARN,
                  fine ? NULL : "--store DIR on ext4 or xfs on a local drive", "%.200s: %s%s%s",
                  d->store, rung, info.in_memory ? ", in RAM (tmpfs)" : "",
                  access(d->store, F_OK) ? ", would be created" : "");
    if (statvfs(d->store, &fs) == 0 || statvfs(dirname(parent), &fs) == 0) {
        uint64_t available = (uint64_t)fs.f_bavail * fs.f_frsize;
        bool scarce = available < UINT64_C(1) << 30;
        doctor_keep_room(d, d->store, HST_TIER_NVME, (uint64_t)fs.f_blocks * fs.f_frsize,
                         available);
        doctor_report(d, "disk", scarce ? STATUS_WARN : STATUS_OK,
                      scarce ? "free some space, or --store DIR on another drive" : NULL, "%s free",
                      text_size(available, size));
    }
}

/* ---- telling ---- */

static bool failed(const struct doctor *d)
{
    for (size_t i = 0; i < d->count; i++)
        if (d->checks[i].status == STATUS_FAIL)
            return true;
    return false;
}

static void format_verdict(const struct doctor *d, char *dst, size_t dst_bytes)
{
    if (failed(d))
        snprintf(dst, dst_bytes, "not ready: see what failed above");
    else
        snprintf(dst, dst_bytes, "ready: %s, NVMe tier on %s (%s)",
                 d->gpu[0] ? d->gpu : "host engine", d->store, d->store_rung);
}

static void print_text(const struct doctor *d, const char *verdict)
{
    for (size_t i = 0; i < d->count; i++) {
        const struct doctor_check *c = &d->checks[i];
        printf("%-5s %-13s %s\n", status_names[c->status], c->name, c->found);
        if (c->fix)
            printf("%-19s fix: %s\n", "", c->fix);
    }
    printf("%s\n", verdict);
}

/* It puts those that were asked for; the value of one that could not be measured is null. */
static void put_rates(struct json_writer *json, const struct doctor *d)
{
    json_put_array(json, "rates");
    for (size_t i = 0; i < d->rate_count; i++) {
        const struct hst_figure *f = &d->rates[i].figure;
        bool measured = f->value > 0;
        json_put_object(json, NULL);
        json_put_text(json, "name", hst_rate_name(d->rates[i].rate));
        json_put_text(json, "of", d->rates[i].of);
        json_put_real(json, "value", measured ? f->value : (double)NAN);
        json_put_real(json, "least", measured ? f->least : (double)NAN);
        json_put_real(json, "most", measured ? f->most : (double)NAN);
        json_put_text(json, "unit", hst_rate_unit(d->rates[i].rate));
        json_put_text(json, "how", f->how);
        json_put_end(json);
    }
    json_put_end(json);
}

static void put_rooms(struct json_writer *json, const struct doctor *d)
{
    json_put_array(json, "room");
    for (size_t i = 0; i < d->room_count; i++) {
        json_put_object(json, NULL);
        json_put_text(json, "tier", hst_tier_name(d->rooms[i].tier));
        json_put_text(json, "of", d->rooms[i].of);
        json_put_whole(json, "total_bytes", d->rooms[i].total_bytes);
        json_put_whole(json, "free_bytes", d->rooms[i].free_bytes);
        json_put_end(json);
    }
    json_put_end(json);
}

static void print_json(const struct doctor *d, const char *verdict)
{
    struct json_writer json = {.out = stdout};
    json_put_object(&json, NULL);
    json_put_text(&json, "version", hst_version());
    json_put_array(&json, "checks");
    for (size_t i = 0; i < d->count; i++) {
        json_put_object(&json, NULL);
        json_put_text(&json, "name", d->checks[i].name);
        json_put_text(&json, "status", status_names[d->checks[i].status]);
        json_put_text(&json, "found", d->checks[i].found);
        json_put_text(&json, "fix", d->checks[i].fix);
        json_put_end(&json);
    }
    json_put_end(&json);
    put_rates(&json, d);
    put_rooms(&json, d);
    json_put_bool(&json, "ready", !failed(d));
    json_put_text(&json, "verdict", verdict);
    json_put_end(&json);
    printf("\n");
}

int verb_doctor(int argc, char **argv)
{
    const char *temporary = getenv("TMPDIR");
    struct doctor d = {.default_store = temporary && *temporary ? temporary : "/tmp"};
    d.store = d.default_store;
    char verdict[512], filled[STORE_TEXT_BYTES];
    struct hst_error error = {0};
    int code;
    const struct cli_verb verb = {
        .name = "doctor",
        .about = "Checks what this machine offers for training, and says how to make it better.",
        .sets = {{options_table, sizeof options_table / sizeof options_table[0], &d}},
        .set_count = 1,
    };
    launch_speak(NULL);
    if (!cli_ready(&verb, argc, argv, &code))
        return code;
    bool others;
    if (doctor_check_net(&d, &others, &error))
        return cli_fail(&error);
    if (others)
        return CLI_EXIT_OK;
    if (d.store != d.default_store && store_alone(&d.store, filled, &error))
        return cli_fail(&error);
    static const struct {
        const char *what;
        void (*check)(struct doctor *);
    } checks[] = {
        {"looking at the processor", check_cores},
        {"looking at the processor", check_instructions},
        {"looking at the BLAS", check_blas},
        {"looking at the memory", check_memory},
        {"trying the store's directory", check_store},
        {"measuring memory, update, products and drive", doctor_check_rates},
        {"measuring the GPUs", doctor_check_gpus},
    };
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        activity_begin(checks[i].what);
        checks[i].check(&d);
    }
    activity_end();
    format_verdict(&d, verdict, sizeof verdict);
    if (d.json)
        print_json(&d, verdict);
    else
        print_text(&d, verdict);
    return failed(&d) ? CLI_EXIT_FAILURE : CLI_EXIT_OK;
}
