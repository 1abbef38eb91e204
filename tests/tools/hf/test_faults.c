/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every allocation and every read fails in turn, or finds the end of the file: the right error
 * comes back, nothing leaks (the sanitizers watch) and nothing stays on disk. And a kernel without
 * openat2 follows no link at all.
 */
#include "support.h"

#include "hf/model.h"

#include "hf/json/input.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int fail_allocation = -1, fail_read = -1;
static bool no_openat2, at_end; /* at_end: what fails is no error, but the end of a file */

static bool fails(int *count)
{
    return *count >= 0 && (*count)-- == 0;
}

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes)
{
    return fails(&fail_allocation) ? NULL : __real_malloc(bytes);
}

void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes)
{
    return fails(&fail_allocation) ? NULL : __real_calloc(count, bytes);
}

void *__real_realloc(void *old, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes)
{
    return fails(&fail_allocation) ? NULL : __real_realloc(old, bytes);
}

ssize_t __real_pread64(int fd, void *dst, size_t bytes, off_t offset);
ssize_t __wrap_pread64(int fd, void *dst, size_t bytes, off_t offset);
ssize_t __wrap_pread64(int fd, void *dst, size_t bytes, off_t offset)
{
    errno = EIO;
    if (fails(&fail_read))
        return at_end ? 0 : -1;
    /* Short reads and interruptions are no errors. */
    static unsigned calls;
    errno = EINTR;
    if (++calls % 3 == 0)
        return -1;
    return __real_pread64(fd, dst, bytes > 7 ? 7 : bytes, offset);
}

long __real_syscall(long number, long a, long b, long c, long d);
long __wrap_syscall(long number, long a, long b, long c, long d);
long __wrap_syscall(long number, long a, long b, long c, long d)
{
    errno = ENOSYS;
    return no_openat2 && number == SYS_openat2 ? -1 : __real_syscall(number, a, b, c, d);
}

#define F32_4(name, begin, end)                                                                    \
    "\"" name "\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[" begin "," end "]}"

static void put_model(const char *dir)
{
    char source[4096];
    snprintf(source, sizeof source, "%s/source", dir);
    assert_int_equal(mkdir(source, 0700), 0);
    put_config(source, "\"tie_word_embeddings\": true,");
    put_text(source, "tokenizer.json", "{\"model\": \"of some length\"}");
    snprintf(source, sizeof source, "%s/source/additional_chat_templates", dir);
    assert_int_equal(mkdir(source, 0700), 0);
    put_text(source, "b.jinja", "{{ messages }}");
    put_text(source, "a.jinja", "{{ tools }}");
    snprintf(source, sizeof source, "%s/source", dir);
    put_tensors(
        source, "a.safetensors",
        "{\"__metadata__\":{\"\\u0078\":\"y\"}," F32_4("model.embed_tokens.weight", "0", "16") "}",
        16);
    put_tensors(source, "b.safetensors",
                "{" F32_4("lm_head.weight", "0", "16") "," F32_4("x", "16", "32") "}", 32);
    put_text(source, "model.safetensors.index.json",
             "{\"metadata\":{\"total_size\":1},\"weight_map\":{\"model.embed_tokens.weight\":\"a."
             "safetensors\","
             "\"lm_head.weight\":\"b.safetensors\",\"x\":\"b.safetensors\"}}");
}

/* Opens, reads, exports. */
static int use_model(const char *dir, struct hst_error *e)
{
    char source[4096], target[4096];
    snprintf(source, sizeof source, "%s/source", dir);
    snprintf(target, sizeof target, "%s/out", dir);
    static const uint64_t four[] = {4};
    static const struct hf_tensor tensors[] = {{"x", 1, four}, {"y", 1, four}};
    struct hf_model *model = NULL;
    struct hf_export *x = NULL;
    float v[4];
    int rc = hf_model_open(source, true, &model, e);
    if (rc)
        return rc;
    rc = hf_model_require(model, "x", 1, four, e);
    if (!rc)
        rc = hf_model_read(model, "x", 0, v, 4, e);
    const struct hf_export_desc desc = {target, model, tensors, 2, HST_F32, 16};
    if (!rc)
        rc = hf_export_begin(&desc, &x, e);
    for (int i = 0; i < 2 && !rc; i++)
        rc = hf_export_write(x, tensors[i].name, 0, v, 4, e);
    if (!rc)
        rc = hf_export_commit(&x, e);
    hf_export_abort(&x);
    hf_model_close(&model);
    return rc;
}

static void every_failing_allocation_is_told_and_leaves_nothing_behind(void **state)
{
    put_model(*state);
    for (int n = 0;; n++) {
        struct hst_error e = {0};
        fail_allocation = n;
        int rc = use_model(*state, &e);
        bool all_passed = fail_allocation >= 0;
        fail_allocation = -1;
        if (all_passed) {
            assert_int_equal(rc, 0);
            assert_true(n > 20);
            print_message("%d allocations\n", n);
            return;
        }
        assert_int_equal(rc, -ENOMEM);
        assert_matches(e.message, "no memory|Cannot allocate memory");
        assert_int_equal(entry_count(*state), 1);
    }
}

static void fail_every_read(const char *dir, int want, const char *pattern)
{
    put_model(dir);
    for (int n = 0;; n++) {
        struct hst_error e = {0};
        fail_read = n;
        int rc = use_model(dir, &e);
        bool all_passed = fail_read >= 0;
        fail_read = -1;
        if (all_passed) {
            assert_int_equal(rc, 0);
            assert_true(n > 20);
            print_message("%d reads\n", n);
            return;
        }
        assert_int_equal(rc, want);
        assert_matches(e.message, pattern);
        assert_int_equal(entry_count(dir), 1);
    }
}

static void every_failing_read_is_told_and_leaves_nothing_behind(void **state)
{
    fail_every_read(*state, -EIO, "cannot be (read|copied)");
}

static void a_file_that_ends_too_early_is_told_at_every_read(void **state)
{
    at_end = true;
    fail_every_read(*state, -ENODATA, "the file became shorter while it was read");
    at_end = false;
}

static void without_openat2_no_link_is_followed(void **state)
{
    char path[4096], source[4096];
    put_model(*state);
    snprintf(source, sizeof source, "%s/source", (char *)*state);
    no_openat2 = true;
    struct hf_model *model = open_model(source, true);
    hf_model_close(&model);
    snprintf(path, sizeof path, "%s/source/a.safetensors", (char *)*state);
    assert_int_equal(unlink(path) || symlink("/proc/self/exe", path), 0);
    expect_refusal(source, true, FAIL_INDEX, "symbolic link.*cp -rL");
    no_openat2 = false;
}

static void place(const char *dir, const char *name, const char *target)
{
    char path[8192];
    assert_in_range(snprintf(path, sizeof path, "%s/%s", dir, name), 1, sizeof path - 1);
    assert_int_equal(target ? symlink(target, path) : mkdir(path, 0700), 0);
}

/* A snapshot's links are followed by their text, which must name a blob of the same folder. */
static void without_openat2_a_snapshot_is_opened_by_the_text_of_its_links(void **state)
{
    static const char *const elsewhere[] = {
        "/proc/self/exe",         "../../blobs/../refs/main", "../../blobs/",    "../../blobs/..",
        "../../../x/blobs/1",     "../../blobs/sub/1",        "../../blobs/two", "../blobs/1",
        "../../blobs//etc/passwd"};
    char cache[2048], snapshot[4096], path[8192];
    snprintf(cache, sizeof cache, "%s/models--a--b", (char *)*state);
    snprintf(snapshot, sizeof snapshot, "%s/snapshots/1", cache);
    place(*state, "models--a--b", NULL);
    place(cache, "blobs", NULL);
    place(cache, "snapshots", NULL);
    place(cache, "snapshots/1", NULL);
    snprintf(path, sizeof path, "%s/blobs", cache);
    put_config(path, "");
    put_text(path, "main", "{}");
    place(path, "two", "config.json"); /* a link in its turn */
    no_openat2 = true;
    place(snapshot, "config.json", "../../blobs/config.json");
    place(snapshot, "additional_chat_templates", NULL); /* whose links lead one folder further */
    place(snapshot, "additional_chat_templates/a.jinja", "../../../blobs/main");
    place(snapshot, "additional_chat_templates/b.jinja", "../../blobs/main");
    struct hf_model *model = open_model(snapshot, false);
    assert_int_equal(model->extra_count, 1);
    assert_string_equal(model->extras[0].name, "additional_chat_templates/a.jinja");
    hf_model_close(&model);
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) {
        snprintf(path, sizeof path, "%s/config.json", snapshot);
        assert_int_equal(unlink(path), 0);
        place(snapshot, "config.json", elsewhere[i]);
        expect_refusal(snapshot, false, FAIL_CONFIG_FILE, "symbolic link that leaves");
    }
    no_openat2 = false;
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup_directory, teardown_directory)
    const struct CMUnitTest tests[] = {
        TEST(every_failing_allocation_is_told_and_leaves_nothing_behind),
        TEST(every_failing_read_is_told_and_leaves_nothing_behind),
        TEST(a_file_that_ends_too_early_is_told_at_every_read),
        TEST(without_openat2_no_link_is_followed),
        TEST(without_openat2_a_snapshot_is_opened_by_the_text_of_its_links),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
