/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache of rates: what was measured is found again as long as it is young and asked for by the
 * same question, and nothing that somebody else may have written is ever believed. Drives are
 * simulated: the second probe meets another drive under the same name, so that its rates tell
 * whether it was asked.
 */
#include "probe/cache.h"
#include "probe/contention.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char root[] = "hst-cache-XXXXXX", folder[64];

static int make_root(void **state)
{
    (void)state;
    return mkdtemp(root) ? 0 : -1;
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s/cache", root);
    return 0;
}

static int remove_all(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "chmod -R u+rwx %s && rm -rf %s/*", root, root);
    return system(command);
}

static int remove_root(void **state)
{
    (void)state;
    return rmdir(root);
}

/* What a probe says of other work, whatever runs beside the test. */
static const char *disturbed = "";

bool __wrap_contention_disturbs(const struct contention *c, bool worked, char *why,
                                size_t why_bytes);
bool __wrap_contention_disturbs(const struct contention *c, bool worked, char *why,
                                size_t why_bytes)
{
    (void)worked;
    assert_true(c->passed_s > 0);
    snprintf(why, why_bytes, "%s", disturbed);
    return *disturbed != '\0';
}

typedef int ask_fn(const struct hst_probe *probe, const char *where, double max_age_s,
                   struct hst_rates *rates);

/* One question to the cache, with a drive of that model. */
static int put_to(ask_fn *asked, const char *where, const char *model, double max_age_s,
                  struct hst_rates *rates)
{
    struct hst_aio *aio;
    const struct hst_aio_config config = {
        .size = sizeof config, .backend = HST_AIO_SIM, .model = model};
    assert_int_equal(hst_aio_open(&config, "drive", &aio, NULL), 0);
    const struct hst_probe_drive drive = {.directory = "drive", .aio = aio};
    const struct hst_probe probe = {.size = sizeof probe,
                                    .parts = HST_PROBE_DRIVES,
                                    .drives = &drive,
                                    .drive_count = 1,
                                    .memory_bytes = 4u << 20,
                                    .drive_bytes = 20u << 20};
    int rc = asked(&probe, where, max_age_s, rates);
    hst_aio_close(&aio);
    return rc;
}

static struct hst_rates ask_of(const char *where, const char *model, double max_age_s)
{
    struct hst_rates r;
    assert_int_equal(put_to(hst_rates_get, where, model, max_age_s, &r), 0);
    return r;
}

/* With one that reads at `read` times 1e9 bytes/s. */
static struct hst_rates ask(const char *where, unsigned read, double max_age_s)
{
    char model[64];
    snprintf(model, sizeof model, "sim:read=%uG,write=1G", read);
    return ask_of(where, model, max_age_s);
}

static void expect(struct hst_rates r, unsigned read, bool cached, const char *note)
{
    if (fabs(r.drives[0].read.value / (read * 1e9) - 1) > 0.05 || r.cached != cached)
        fail_msg("%g, %s, '%s'", r.drives[0].read.value, r.cached ? "cached" : "measured", r.note);
    if (!strstr(r.note, note) || (!*note && r.note[0]))
        fail_msg("note '%s', not '%s'", r.note, note);
}

/* The one file of the cache; empty: none. */
static void find_file(char path[PATH_MAX])
{
    DIR *dir = opendir(folder);
    path[0] = '\0';
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));)
        if (e->d_name[0] != '.') {
            assert_string_equal(path, ""); /* nothing lies beside it */
            snprintf(path, PATH_MAX, "%s/%s", folder, e->d_name);
        }
    closedir(dir);
}

static size_t read_file(const char *path, char *text, size_t room)
{
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    size_t n = fread(text, 1, room - 1, file);
    text[n] = '\0';
    fclose(file);
    return n;
}

static void write_file(const char *path, const char *text, size_t bytes)
{
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    fclose(file);
}

/* ---- found again ---- */

static void what_was_measured_is_found_again(void **state)
{
    (void)state;
    char path[PATH_MAX];
    struct stat st;
    expect(ask(folder, 3, 60), 3, false, "");
    expect(ask(folder, 2, 60), 3, true, "");
    find_file(path);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode, S_IFREG | 0600);
    assert_int_equal(stat(folder, &st), 0);
    assert_int_equal(st.st_mode, S_IFDIR | 0700);
    expect(ask(folder, 2, 0), 2, false, ""); /* measured anew, and kept */
    expect(ask(folder, 1, INFINITY), 2, true, "");
}

static void what_is_only_looked_for_is_never_measured(void **state)
{
    (void)state;
    const char *model = "sim:read=3G,write=1G";
    struct hst_rates r = {.taken_ms = 7};
    assert_int_equal(put_to(hst_rates_find, folder, model, 60, &r), -ENOENT);
    assert_int_equal(r.taken_ms, 7);
    assert_int_equal(access(folder, F_OK), -1);
    expect(ask(folder, 3, 60), 3, false, "");
    assert_int_equal(put_to(hst_rates_find, folder, "sim:read=2G,write=1G", 60, &r), 0);
    expect(r, 3, true, "");
    assert_int_equal(put_to(hst_rates_find, folder, model, 0, &r), -ENOENT);
    assert_int_equal(put_to(hst_rates_find, folder, model, -1, &r), -EINVAL);
}

/* Makes the rates in the cache so much older. */
static void age_by(int64_t ms)
{
    static char text[64 << 10], body[HST_RATES_TEXT_BYTES];
    char path[PATH_MAX];
    struct hst_rates r;
    find_file(path);
    read_file(path, text, sizeof text);
    char *start = strstr(text, "hoistway rates 4\n");
    assert_non_null(start);
    assert_int_equal(hst_rates_parse(start, &r), 0);
    r.taken_ms -= (uint64_t)ms;
    int n = hst_rates_format(&r, body, sizeof body);
    assert_true(n > 0);
    memcpy(start, body, (size_t)n + 1);
    write_file(path, text, strlen(text));
}

static void what_is_older_than_asked_is_measured_anew(void **state)
{
    (void)state;
    expect(ask(folder, 3, 60), 3, false, "");
    age_by(61000);
    expect(ask(folder, 2, 3600), 3, true, "");
    expect(ask(folder, 2, 60), 2, false, "");
    expect(ask(folder, 1, 60), 2, true, ""); /* replaced */
    age_by(-3600000);
    expect(ask(folder, 1, 60), 1, false, "dated in the future");
}

#define BUSY "other work had 1.5 of 2 processors"

static struct hst_rates ask_beside_others(unsigned read, double max_age_s)
{
    disturbed = BUSY;
    struct hst_rates r = ask(folder, read, max_age_s);
    disturbed = "";
    return r;
}

static void what_was_disturbed_is_found_for_ten_minutes(void **state)
{
    (void)state;
    struct hst_rates r = ask_beside_others(3, 3600);
    expect(r, 3, false, "");
    assert_string_equal(r.disturbed, BUSY);
    r = ask(folder, 2, 3600);
    expect(r, 3, true, "");
    assert_string_equal(r.disturbed, BUSY);
    age_by(599000);
    expect(ask(folder, 2, 3600), 3, true, "");
    expect(ask_beside_others(2, 300), 2, false, ""); /* replaces its like */
    expect(ask(folder, 1, INFINITY), 2, true, "");
    age_by(601000);
    r = ask(folder, 1, INFINITY);
    expect(r, 1, false, "");
    assert_string_equal(r.disturbed, "");
    expect(ask(folder, 2, 3600), 1, true, ""); /* for as long as is asked */
}

static void what_was_disturbed_takes_no_place_of_better(void **state)
{
    (void)state;
    expect(ask(folder, 3, 60), 3, false, "");
    age_by(3600000);
    struct hst_rates r = ask_beside_others(2, 60);
    expect(r, 2, false, ""); /* who asked has it */
    assert_string_equal(r.disturbed, BUSY);
    r = ask(folder, 1, 4000);
    expect(r, 3, true, "");
    assert_string_equal(r.disturbed, "");
    age_by(-7200000); /* from the future: no better */
    expect(ask_beside_others(2, 60), 2, false, "dated in the future");
    expect(ask(folder, 1, 60), 2, true, "");
}

/* Nobody plans by better ones that are older than a week: each plan would measure anew. */
static void what_was_disturbed_takes_the_place_of_what_is_too_old(void **state)
{
    (void)state;
    const double week_s = HST_RATES_BETTER_S;
    expect(ask(folder, 3, 60), 3, false, "");
    age_by((int64_t)(week_s * 1e3) - 60000);
    expect(ask_beside_others(2, 0), 2, false, ""); /* asked for anew: who asked has it */
    expect(ask(folder, 1, week_s), 3, true, "");
    age_by(61000);
    expect(ask_beside_others(2, week_s), 2, false, "");
    expect(ask(folder, 1, week_s), 2, true, "");
}

static void a_failure_is_not_remembered(void **state)
{
    (void)state;
    struct hst_rates r = ask_of(folder, "sim:read=3G,write=1G,size=1Mi", 60);
    assert_true(r.drives[0].read.value == 0 && strstr(r.drives[0].read.how, "No space"));
    expect(ask(folder, 2, 60), 2, false, ""); /* the same question */
    expect(ask(folder, 1, 60), 2, true, "");
}

/* What no handle was given for is not a failure: it is answered from the cache as well. */
static void what_cannot_be_measured_here_is_remembered(void **state)
{
    (void)state;
    struct hst_rates r;
    const struct hst_probe probe = {
        .size = sizeof probe, .parts = HST_PROBE_COPIES | HST_PROBE_DRIVES | HST_PROBE_COMPUTE};
    assert_int_equal(hst_rates_get(&probe, folder, 60, &r), 0);
    assert_false(r.cached);
    assert_int_equal(hst_rates_get(&probe, folder, 60, &r), 0);
    assert_true(r.cached);
    assert_string_equal(r.figures[HST_RATE_COMPUTE].how, "no product was given");
}

static void run_here(void *context, size_t count,
                     void (*body)(void *arg, size_t index, unsigned worker), void *arg)
{
    (void)context;
    for (size_t i = 0; i < count; i++)
        body(arg, i, 0);
}

/* Of the caller's workers none can be told to rest, now and later. */
static void so_is_what_the_callers_workers_cannot_do(void **state)
{
    (void)state;
    struct hst_rates r;
    struct hst_dev *dev = NULL;
    const struct hst_parallel parallel = {.run = run_here, .width = 2};
    const struct hst_dev_config config = {
        .size = sizeof config, .memory_bytes = 64u << 20, .host_bytes = 8u << 20};
    assert_int_equal(hst_dev_open("far", &config, &dev, NULL), 0);
    const struct hst_probe probe = {.size = sizeof probe,
                                    .parts = HST_PROBE_DEVICE,
                                    .parallel = &parallel,
                                    .dev = dev,
                                    .memory_bytes = 32u << 20};
    /* on a busy machine another figure may be missing at first, and is then asked for again */
    for (int asked = 0; asked == 0 || (!r.cached && asked < 5); asked++) {
        assert_int_equal(hst_rates_get(&probe, folder, 60, &r), 0);
        assert_true(asked > 0 || !r.cached);
        assert_non_null(strstr(r.figures[HST_RATE_HALF_BF16].how, "cannot rest"));
    }
    assert_true(r.cached);
    hst_dev_close(&dev);
}

/* Two different questions: a key each, and mostly a file each. */
static void another_question_is_not_answered(void **state)
{
    (void)state;
    static struct identity a, b;
    const struct hst_gemm gemms[] = {{.m = 8, .n = 8, .k = 8, .dtype = HST_F32},
                                     {.m = 8, .n = 8, .k = 8, .dtype = HST_BF16},
                                     {.m = 8, .n = 8, .k = 8, .dtype = HST_F32, .batch = 2}};
    const struct hst_probe_drive drives[] = {{.directory = "/"}, {.directory = "nowhere"}};
    const struct hst_operation operations[] = {{.what = "norms", .amount = 1},
                                               {.what = "attention", .amount = 1},
                                               {.what = "norms", .amount = 2}};
    const struct hst_probe probe = {.size = sizeof probe,
                                    .drives = drives,
                                    .drive_count = 1,
                                    .gemms = gemms,
                                    .gemm_count = 1,
                                    .operations = operations,
                                    .operation_count = 1};
    struct hst_probe others[10];
    for (size_t i = 0; i < 10; i++)
        others[i] = probe;
    others[0].parts = HST_PROBE_DRIVES;
    others[1].threads = 1;
    others[2].gemm_count = 2;
    others[3].gemms = gemms + 1;
    others[4].drives = drives + 1;
    others[5].backend = HST_AIO_THREADS;
    others[6].operation_count = 0;
    others[7].operations = operations + 1;
    others[8].operations = operations + 2;
    others[9].gemms = gemms + 2;
    identity_of(&probe, &a);
    identity_of(&probe, &b);
    assert_string_equal(a.text, b.text);
    assert_non_null(strstr(a.text, "\nproduct 8 8 8"));
    for (size_t i = 0; i < 10; i++) {
        identity_of(&others[i], &b);
        assert_string_not_equal(a.text, b.text);
    }
}

static uint64_t memory_bytes; /* that the machine tells; 0: what it has */
static uint32_t more_cores;

int __real_topology_processors(struct hst_topology *machine);
int __wrap_topology_processors(struct hst_topology *machine);
int __wrap_topology_processors(struct hst_topology *machine)
{
    int rc = __real_topology_processors(machine);
    machine->memory_bytes = memory_bytes ? memory_bytes : machine->memory_bytes;
    machine->cores += more_cores;
    return rc;
}

/* As to a virtual machine while it runs. */
static void memory_that_is_added_makes_no_other_machine(void **state)
{
    (void)state;
    static struct identity was, is;
    const struct hst_probe probe = {.size = sizeof probe};
    identity_of(&probe, &was);
    memory_bytes = UINT64_C(1) << 40;
    identity_of(&probe, &is);
    memory_bytes = 0;
    assert_string_equal(was.text, is.text);
    more_cores = 2;
    identity_of(&probe, &is);
    more_cores = 0;
    assert_string_not_equal(was.text, is.text);
}

/* ---- not believed ---- */

static void a_damaged_file_is_never_used(void **state)
{
    (void)state;
    static char text[64 << 10], broken[64 << 10];
    char path[PATH_MAX];
    expect(ask(folder, 3, 60), 3, false, "");
    find_file(path);
    size_t n = read_file(path, text, sizeof text);
    for (size_t at = 0; at < n; at += n / 11) {
        memcpy(broken, text, n);
        broken[at] ^= 0x10;
        write_file(path, broken, n);
        /* other words about the question before whole figures are another question's */
        bool question = at > 16 && at < (size_t)(strstr(text, "\nhoistway rates ") - text);
        expect(ask(folder, 2, 60), 2, false, question ? "" : "is not used: it is ");
        expect(ask(folder, 1, 60), 2, true, ""); /* replaced by a whole one */
    }
    write_file(path, text, n / 2);
    expect(ask(folder, 2, 60), 2, false, "it is damaged");
    write_file(path, "", 0);
    expect(ask(folder, 2, 60), 2, false, "it is damaged");
    memcpy(broken, text, n);
    broken[n - 20] = '\0';
    write_file(path, broken, n);
    expect(ask(folder, 2, 60), 2, false, "it is damaged");
    memset(broken, 'x', sizeof broken);
    write_file(path, broken, sizeof broken);
    expect(ask(folder, 2, 60), 2, false, "it is damaged");
}

static void a_slot_of_another_machine_or_code_is_measured_anew_without_a_word(void **state)
{
    (void)state;
    static const char *const of[] = {"\nkernel ", ", code "};
    static char text[64 << 10];
    char path[PATH_MAX];
    for (int i = 0; i < 2; i++) {
        expect(ask(folder, 3, 0), 3, false, "");
        find_file(path);
        size_t n = read_file(path, text, sizeof text);
        char *at = strstr(text, of[i]);
        assert_non_null(at);
        at += strlen(of[i]);
        assert_true(i == 0 || strspn(at, "0123456789abcdef") == 16);
        *at = *at == '9' ? '1' : '9';
        write_file(path, text, n);
        expect(ask(folder, 2, 60), 2, false, "");
        expect(ask(folder, 1, 60), 2, true, "");
    }
}

static void links_pipes_and_folders_are_not_read(void **state)
{
    (void)state;
    char path[PATH_MAX], target[PATH_MAX];
    expect(ask(folder, 3, 60), 3, false, "");
    find_file(path);
    snprintf(target, sizeof target, "%s/target", root);
    assert_int_equal(rename(path, target), 0);
    char *real = realpath(target, NULL);
    assert_int_equal(symlink(real, path), 0);
    expect(ask(folder, 2, 60), 2, false, "it is a link");
    expect(ask(folder, 1, 60), 2, true, "");   /* the link was replaced, … */
    assert_int_equal(access(target, R_OK), 0); /* … what it led to was not touched */
    free(real);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    expect(ask(folder, 2, 60), 2, false, "it is not a file"); /* and does not wait for a writer */
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    expect(ask(folder, 2, 60), 2, false, "it is not a file");
}

static void what_others_may_write_is_not_read(void **state)
{
    (void)state;
    char path[PATH_MAX];
    expect(ask(folder, 3, 60), 3, false, "");
    find_file(path);
    assert_int_equal(chmod(path, 0622), 0);
    expect(ask(folder, 2, 60), 2, false, "others may write to it");
    expect(ask(folder, 1, 60), 2, true, "");
    assert_int_equal(chmod(folder, 0777), 0);
    expect(ask(folder, 1, 60), 1, false, "others may write to it");
    struct stat status = {.st_mode = S_IFREG | 0600, .st_uid = 7};
    assert_null(cache_distrust(&status, S_IFREG, 7));
    assert_non_null(cache_distrust(&status, S_IFDIR, 7));
    assert_non_null(cache_distrust(&status, S_IFREG, 8));
    status.st_mode |= S_IWGRP;
    assert_non_null(cache_distrust(&status, S_IFREG, 7));
    if (geteuid() == 0) { /* others cannot make a file another's */
        assert_int_equal(chmod(folder, 0700), 0);
        assert_int_equal(chown(path, 65534, 65534), 0);
        expect(ask(folder, 1, 60), 1, false, "it belongs to another user");
        assert_int_equal(chown(folder, 65534, 65534), 0);
        expect(ask(folder, 2, 60), 2, false, "it belongs to another user");
    }
}

static void without_a_place_everything_is_measured(void **state)
{
    (void)state;
    char link[80], below[80];
    snprintf(link, sizeof link, "%s/link", root);
    snprintf(below, sizeof below, "%s/not/there", root);
    expect(ask("/dev/null", 3, 60), 3, false, "is not used: Not a directory");
    expect(ask(below, 3, 60), 3, false, "is not used: No such file");
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_int_equal(symlink("cache", link), 0);
    expect(ask(link, 3, 60), 3, false, "is not used: ");
    struct rlimit limit, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = (struct rlimit){.rlim_cur = 100, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0); /* writing on would be a signal */
    expect(ask(folder, 3, 60), 3, false, "cannot be written: File too large");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    expect(ask(folder, 2, 60), 2, false, ""); /* nothing was left */
}

static void the_environment_says_where_caches_are(void **state)
{
    (void)state;
    char path[PATH_MAX], *here = realpath(root, NULL);
    assert_int_equal(setenv("XDG_CACHE_HOME", here, 1), 0);
    expect(ask(NULL, 3, 60), 3, false, "");
    expect(ask(NULL, 2, 60), 3, true, "");
    snprintf(path, sizeof path, "%s/hoistway", here);
    assert_int_equal(access(path, X_OK), 0);
    assert_int_equal(setenv("XDG_CACHE_HOME", "relative", 1), 0); /* the rules: ignored */
    assert_int_equal(setenv("HOME", here, 1), 0);
    expect(ask(NULL, 2, 60), 2, false, "");
    expect(ask(NULL, 1, 60), 2, true, "");
    snprintf(path, sizeof path, "%s/.cache/hoistway", here);
    assert_int_equal(access(path, X_OK), 0);
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    expect(ask(NULL, 3, 60), 3, false, "");
    snprintf(path, sizeof path, "rm -rf %s/.cache", here);
    assert_int_equal(system(path), 0);
    free(here);
}

/* A text that was cut could be the same for two questions. */
static void what_is_too_much_to_compare_is_not_cached(void **state)
{
    (void)state;
    static char names[5][PATH_MAX];
    static struct identity identity;
    struct hst_probe_drive drives[5];
    struct hst_rates r;
    for (int i = 0; i < 5; i++) {
        memset(names[i], 'a' + i, sizeof names[i] - 1);
        drives[i] = (struct hst_probe_drive){.directory = names[i]};
    }
    const struct hst_probe probe = {
        .size = sizeof probe, .parts = HST_PROBE_COPIES, .drives = drives, .drive_count = 5};
    identity_of(&probe, &identity);
    assert_true(identity.cut);
    assert_int_equal(hst_rates_get(&probe, folder, 60, &r), 0);
    assert_int_equal(access(folder, F_OK), -1);
}

static void an_age_that_is_none_is_refused(void **state)
{
    (void)state;
    const struct hst_probe probe = {.size = sizeof probe, .parts = HST_PROBE_COPIES};
    struct hst_rates r;
    assert_int_equal(hst_rates_get(&probe, folder, -1, &r), -EINVAL);
    assert_int_equal(hst_rates_get(&probe, folder, (double)NAN, &r), -EINVAL);
    assert_int_equal(hst_rates_get(NULL, folder, 60, &r), -EINVAL);
    assert_int_equal(access(folder, F_OK), -1);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_all)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(what_was_measured_is_found_again),
        CASE(what_is_only_looked_for_is_never_measured),
        CASE(what_was_disturbed_is_found_for_ten_minutes),
        CASE(what_was_disturbed_takes_no_place_of_better),
        CASE(what_was_disturbed_takes_the_place_of_what_is_too_old),
        CASE(what_is_older_than_asked_is_measured_anew),
        CASE(a_failure_is_not_remembered),
        CASE(what_cannot_be_measured_here_is_remembered),
        CASE(so_is_what_the_callers_workers_cannot_do),
        CASE(another_question_is_not_answered),
        CASE(memory_that_is_added_makes_no_other_machine),
        CASE(a_damaged_file_is_never_used),
        CASE(a_slot_of_another_machine_or_code_is_measured_anew_without_a_word),
        CASE(links_pipes_and_folders_are_not_read),
        CASE(what_others_may_write_is_not_read),
        CASE(without_a_place_everything_is_measured),
        CASE(the_environment_says_where_caches_are),
        CASE(what_is_too_much_to_compare_is_not_cached),
        CASE(an_age_that_is_none_is_refused),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
