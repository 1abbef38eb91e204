/* SPDX-License-Identifier: Apache-2.0 */
/* Exports: their bytes, what they may replace, and what is left when something fails. */
#include "support.h"

#include "hf/export/export.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * ---- faults: the n-th call fails ----
 * With _FILE_OFFSET_BITS=64, which meson sets, glibc's names of two of them end in 64.
 */

static int fail_in = -1, fail_with;

static bool fails(void)
{
    if (fail_in < 0 || fail_in-- > 0)
        return false;
    errno = fail_with;
    return true;
}

int __real_fallocate64(int fd, int mode, off_t offset, off_t bytes);
int __wrap_fallocate64(int fd, int mode, off_t offset, off_t bytes);
int __wrap_fallocate64(int fd, int mode, off_t offset, off_t bytes)
{
    return fails() ? -1 : __real_fallocate64(fd, mode, offset, bytes);
}

ssize_t __real_pwrite64(int fd, const void *src, size_t bytes, off_t offset);
ssize_t __wrap_pwrite64(int fd, const void *src, size_t bytes, off_t offset);
ssize_t __wrap_pwrite64(int fd, const void *src, size_t bytes, off_t offset)
{
    return fails() ? -1 : __real_pwrite64(fd, src, bytes, offset);
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    return fails() ? -1 : __real_fsync(fd);
}

int __real_renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags);
int __wrap_renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags);
static bool no_exchange;
int __wrap_renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
    errno = EINVAL;
    return no_exchange ? -1 : __real_renameat2(from_fd, from, to_fd, to, flags);
}

/* ---- a source model and its export ---- */

struct paths {
    char source[4096], target[4096];
};

static struct paths make_source(const char *dir)
{
    struct paths p;
    snprintf(p.source, sizeof p.source, "%s/source", dir);
    snprintf(p.target, sizeof p.target, "%s/out/", dir);
    assert_true(mkdir(p.source, 0700) == 0 || errno == EEXIST);
    put_config(p.source, "\"dtype\": \"float32\", \"mystery\": [1,  2],");
    put_text(p.source, "tokenizer.json", "{\"model\": 1}\n");
    put_text(p.source, "generation_config.json", "{}\n");
    put_text(p.source, "secret.key", "not copied");
    return p;
}

static const uint64_t dims_a[] = {3, 2}, dims_b[] = {5}, dims_empty[] = {0, 4};
static const struct hf_tensor tensors[] = {
    {"z.weight", 2, dims_a},
    {"a.weight", 1, dims_b},
    {"m.\"q\"\n", 2, dims_empty},
};

static int begin(const struct paths *p, enum hst_dtype dtype, uint64_t shard_bytes,
                 struct hf_export **x, struct hst_error *e)
{
    struct hf_model *model = open_model(p->source, false);
    const struct hf_export_desc desc = {p->target, model, tensors, 3, dtype, shard_bytes};
    int rc = hf_export_begin(&desc, x, e);
    hf_model_close(&model);
    return rc;
}

static int check(const struct paths *p, struct hst_error *e)
{
    struct hf_model *model = open_model(p->source, false);
    const struct hf_export_desc desc = {p->target, model, tensors, 3, HST_F32, 0};
    int rc = hf_export_check(&desc, e);
    hf_model_close(&model);
    return rc;
}

/* Values 1 … 5 and 11 … 16, in pieces that do not come in order. */
static int write_values(struct hf_export *x, struct hst_error *e)
{
    const float a[] = {1, 2, 3, 4, 5}, z[] = {11, 12, 13, 14, 15, 16};
    int rc = hf_export_write(x, "z.weight", 4, z + 4, 2, e);
    if (!rc)
        rc = hf_export_write(x, "a.weight", 0, a, 5, e);
    if (!rc)
        rc = hf_export_write(x, "z.weight", 0, z, 1, e);
    if (!rc)
        rc = hf_export_write(x, "z.weight", 1, z + 1, 3, e);
    return rc;
}

static int export_all(const struct paths *p, uint64_t shard_bytes, struct hst_error *e)
{
    struct hf_export *x = NULL;
    int rc = begin(p, HST_F32, shard_bytes, &x, e);
    if (rc)
        return rc;
    rc = write_values(x, e);
    if (rc) {
        hf_export_abort(&x);
        return rc;
    }
    return hf_export_commit(&x, e);
}

static void check_values(const char *dir)
{
    struct hf_model *model = open_model(dir, true);
    float v[6];
    size_t unused;
    assert_int_equal(hf_model_require(model, "z.weight", 2, dims_a, NULL), 0);
    assert_int_equal(hf_model_require(model, "a.weight", 1, dims_b, NULL), 0);
    assert_int_equal(hf_model_require(model, "m.\"q\"\n", 2, dims_empty, NULL), 0);
    assert_int_equal(hf_model_read(model, "z.weight", 0, v, 6, NULL), 0);
    assert_true(v[0] == 11 && v[5] == 16);
    assert_int_equal(hf_model_read(model, "a.weight", 0, v, 5, NULL), 0);
    assert_true(v[0] == 1 && v[4] == 5);
    assert_null(hf_model_unused(model, &unused));
    hf_model_close(&model);
}

static void one_file_has_exactly_these_bytes(void **state)
{
    struct paths p = make_source(*state);
    assert_int_equal(export_all(&p, 0, NULL), 0);
    assert_int_equal(entry_count(p.target), 5);
    size_t size;
    char *file = get_file(p.target, "model.safetensors", &size);
    static const char want[] =
        "{\"__metadata__\":{\"format\":\"pt\"},\"a.weight\":{\"dtype\":\"F32\",\"shape\":[5],"
        "\"data_offsets\":[0,20]},"
        "\"m.\\\"q\\\"\\u000a\":{\"dtype\":\"F32\",\"shape\":[0,4],\"data_offsets\":[20,20]},"
        "\"z.weight\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[20,44]}} ";
    uint64_t n;
    memcpy(&n, file, 8);
    assert_int_equal(8 + n, 4096);
    assert_int_equal(size, 4096 + 44);
    assert_memory_equal(file + 8, want, sizeof want - 1);
    for (size_t i = 8 + sizeof want - 1; i < 4096; i++)
        assert_int_equal(file[i], ' ');
    float first;
    memcpy(&first, file + 4096, 4);
    assert_true(first == 1);
    free(file);
    check_values(p.target);
    assert_int_equal(entry_count(*state), 2);
}

static void config_is_kept_and_companions_are_copied(void **state)
{
    struct paths p = make_source(*state);
    struct hf_export *x = NULL;
    assert_int_equal(begin(&p, HST_BF16, 0, &x, NULL), 0);
    const uint16_t half[6] = {0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0};
    assert_int_equal(hf_export_write(x, "z.weight", 0, half, 6, NULL), 0);
    assert_int_equal(hf_export_write(x, "a.weight", 0, half, 5, NULL), 0);
    assert_int_equal(hf_export_commit(&x, NULL), 0);
    size_t size, source_size;
    char *source = get_file(p.source, "config.json", &source_size),
         *config = get_file(p.target, "config.json", &size);
    char *at = strstr(source, "float32");
    assert_memory_equal(config, source, (size_t)(at - source));
    assert_memory_equal(config + (at - source), "bfloat16", 8);
    assert_string_equal(config + (at - source) + 8, at + 7);
    free(source);
    free(config);
    char *copy = get_file(p.target, "tokenizer.json", &size);
    assert_string_equal(copy, "{\"model\": 1}\n");
    free(copy);
    assert_true(is_there(p.target, "generation_config.json"));
    assert_false(is_there(p.target, "secret.key"));
    struct hf_model *model = open_model(p.target, true);
    float v[6];
    assert_int_equal(hf_model_require(model, "z.weight", 2, dims_a, NULL), 0);
    assert_int_equal(hf_model_read(model, "z.weight", 0, v, 6, NULL), 0);
    assert_true(v[0] == 1 && v[5] == 6);
    hf_model_close(&model);
    struct stat st;
    assert_int_equal(stat(p.target, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
}

static void weights_in_f16_are_told_as_such(void **state)
{
    struct paths p = make_source(*state);
    struct hf_export *x = NULL;
    assert_int_equal(begin(&p, HST_F16, 0, &x, NULL), 0);
    const uint16_t half[6] = {0x3c00, 0x4000, 0x0001, 0x7bff, 0x7c00, 0xc600};
    assert_int_equal(hf_export_write(x, "z.weight", 0, half, 6, NULL), 0);
    assert_int_equal(hf_export_write(x, "a.weight", 0, half, 5, NULL), 0);
    assert_int_equal(hf_export_commit(&x, NULL), 0);
    size_t size;
    char *config = get_file(p.target, "config.json", &size);
    assert_non_null(strstr(config, "\"float16\""));
    free(config);
    struct hf_model *model = open_model(p.target, true);
    assert_null(hf_model_note(model, 0)); /* config.json and the tensors say the same */
    float v[6];
    assert_int_equal(hf_model_require(model, "z.weight", 2, dims_a, NULL), 0);
    assert_int_equal(hf_model_read(model, "z.weight", 0, v, 6, NULL), 0);
    assert_true(v[0] == 1 && v[2] == 0x1p-24f && v[3] == 65504 && v[4] == INFINITY && v[5] == -6);
    hf_model_close(&model);
}

static void shards_hold_no_more_than_asked_for(void **state)
{
    struct paths p = make_source(*state);
    assert_int_equal(export_all(&p, 21, NULL), 0);
    size_t size;
    char *index = get_file(p.target, "model.safetensors.index.json", &size);
    assert_string_equal(index,
                        "{\n  \"metadata\": {\n    \"total_size\": 44\n  },\n  \"weight_map\": {\n"
                        "    \"a.weight\": \"model-00001-of-00002.safetensors\",\n"
                        "    \"m.\\\"q\\\"\\u000a\": \"model-00001-of-00002.safetensors\",\n"
                        "    \"z.weight\": \"model-00002-of-00002.safetensors\"\n  }\n}\n");
    free(index);
    check_values(p.target);
    /* Over one file comes the other form: nothing of the old one stays. */
    assert_int_equal(export_all(&p, 0, NULL), 0);
    assert_false(is_there(p.target, "model.safetensors.index.json"));
    assert_int_equal(entry_count(p.target), 5);
    check_values(p.target);
    assert_int_equal(entry_count(*state), 2);
}

static void an_earlier_export_is_replaced_also_without_exchange(void **state)
{
    struct paths p = make_source(*state);
    assert_int_equal(export_all(&p, 0, NULL), 0);
    for (int i = 0; i < 2; i++) {
        no_exchange = i == 1;
        assert_int_equal(check(&p, NULL), 0);
        assert_int_equal(export_all(&p, 0, NULL), 0);
        check_values(p.target);
        assert_int_equal(entry_count(*state), 2);
    }
    no_exchange = false;
}

static void a_model_is_exported_over_its_own_directory_if_that_is_an_export(void **state)
{
    struct paths p = make_source(*state);
    assert_int_equal(export_all(&p, 0, NULL), 0);
    strcpy(p.source, p.target);
    assert_int_equal(export_all(&p, 0, NULL), 0);
    assert_true(is_there(p.target, "tokenizer.json"));
    check_values(p.target);
}

static void expect_refused_target(const struct paths *p, const char *pattern)
{
    struct hst_error e = {0};
    struct hf_export *x = NULL;
    assert_true(check(p, &e) < 0);
    assert_int_equal(e.code, FAIL_EXPORT);
    assert_matches(e.message, pattern);
    /* After training it is refused last, so that the weights are somewhere. */
    if (begin(p, HST_F32, 0, &x, &e) == 0)
        hf_export_abort(&x);
    assert_int_equal(e.code, FAIL_EXPORT);
    assert_null(x);
}

static void what_is_not_an_export_of_ours_is_refused_and_kept(void **state)
{
    struct paths p = make_source(*state);
    char path[8192], other[8192];
    /* a model directory of somebody else */
    struct paths model = p;
    strcpy(model.target, p.source);
    expect_refused_target(&model, "which no earlier export wrote");
    assert_int_equal(entry_count(p.source), 4);
    /* an export with a foreign file */
    assert_int_equal(export_all(&p, 0, NULL), 0);
    put_text(p.target, "notes.txt", "mine");
    struct paths hidden = p;
    snprintf(hidden.target, sizeof hidden.target, "%.4000s/a\nb", p.target);
    expect_refused_target(&hidden, "has characters that a terminal does not show");
    expect_refused_target(&p, "holds notes.txt, which no earlier export wrote");
    snprintf(path, sizeof path, "%s/notes.txt", p.target);
    assert_int_equal(unlink(path), 0);
    /* a file of another size, a link, a directory in an export */
    put_text(p.target, "generation_config.json", "{\"edited\": true}\n");
    expect_refused_target(&p, "holds generation_config.json");
    snprintf(path, sizeof path, "%s/generation_config.json", p.target);
    snprintf(other, sizeof other, "%s/generation_config.json", p.source);
    assert_int_equal(unlink(path) || symlink(other, path), 0);
    expect_refused_target(&p, "holds generation_config.json");
    assert_int_equal(unlink(path) || mkdir(path, 0700), 0);
    expect_refused_target(&p, "holds generation_config.json");
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(check(&p, NULL), 0); /* one that is missing is nobody else's */
    /* no marker */
    snprintf(path, sizeof path, "%s/" TARGET_MARKER, p.target);
    assert_int_equal(unlink(path), 0);
    expect_refused_target(&p, "which no earlier export wrote");
    put_text(p.target, TARGET_MARKER, "something else\n");
    expect_refused_target(&p, "which no earlier export wrote");
    assert_true(is_there(p.target, "model.safetensors"));
}

static void what_is_no_directory_is_refused(void **state)
{
    struct paths p = make_source(*state);
    char path[8192];
    snprintf(p.target, sizeof p.target, "%s/file", (char *)*state);
    put_text(*state, "file", "mine");
    expect_refused_target(&p, "is there, but is not a directory");
    snprintf(path, sizeof path, "%s/empty", (char *)*state);
    snprintf(p.target, sizeof p.target, "%s/link", (char *)*state);
    assert_int_equal(mkdir(path, 0700) || symlink("empty", p.target), 0);
    expect_refused_target(&p, "is there, but is not a directory");
    snprintf(p.target, sizeof p.target, "%s/none/out", (char *)*state);
    expect_refused_target(&p, "cannot be created in .*none: No such file");
    static const char *const names[] = {"/", ".", "..", "", "x/.."};
    for (int i = 0; i < 5; i++) {
        strcpy(p.target, names[i]);
        expect_refused_target(&p, "is no directory that can be replaced");
    }
    memset(p.target, 'x', 300);
    p.target[300] = '\0';
    expect_refused_target(&p, "too long");
    assert_int_equal(entry_count(*state), 4);
}

static void an_empty_directory_is_filled(void **state)
{
    struct paths p = make_source(*state);
    assert_int_equal(mkdir(p.target, 0755), 0);
    assert_int_equal(export_all(&p, 0, NULL), 0);
    check_values(p.target);
    assert_int_equal(entry_count(*state), 2);
}

static void a_parent_that_cannot_be_written_is_refused(void **state)
{
    struct paths p = make_source(*state);
    if (geteuid() == 0) {
        strcpy(p.target, "/proc/out"); /* root may write everywhere else */
    } else {
        assert_int_equal(chmod(*state, 0500), 0);
    }
    expect_refused_target(&p, "cannot create a directory in it");
    assert_int_equal(chmod(*state, 0700), 0);
}

static void an_export_that_is_not_complete_is_not_committed(void **state)
{
    struct paths p = make_source(*state);
    const float v[6] = {0};
    struct hst_error e;
    struct hf_export *x = NULL;
    assert_int_equal(begin(&p, HST_F32, 0, &x, NULL), 0);
    assert_int_equal(hf_export_write(x, "a.weight", 0, v, 5, NULL), 0);
    assert_int_equal(hf_export_write(x, "z.weight", 0, v, 3, NULL), 0);
    assert_int_equal(hf_export_write(x, "z.weight", 1, v, 2, NULL),
                     0); /* again, which is no more */
    assert_int_equal(hf_export_write(x, "z.weight", 4, v, 2, NULL), 0);
    assert_int_equal(hf_export_write(x, "z.weight", 5, v, 2, &e), -EINVAL);
    assert_int_equal(hf_export_write(x, "y.weight", 0, v, 1, &e), -EINVAL);
    assert_true(hf_export_commit(&x, &e) < 0);
    assert_null(x);
    assert_matches(e.message, "tensor z.weight was not written completely");
    assert_int_equal(entry_count(*state), 1);
    assert_int_equal(begin(&p, HST_F32, 0, &x, NULL), 0);
    assert_int_equal(write_values(x, NULL), 0);
    hf_export_abort(&x);
    hf_export_abort(&x);
    assert_int_equal(begin(&p, HST_F32, 0, &x, NULL), 0);
    assert_int_equal(hf_export_write(x, "a.weight", 0, v, 5, NULL), 0);
    assert_int_equal(hf_export_write(x, "z.weight", 0, v, 5, NULL), 0); /* the last is missing */
    assert_true(hf_export_commit(&x, &e) < 0);
    assert_matches(e.message, "tensor z.weight was not written completely");
    assert_int_equal(entry_count(*state), 1);
}

static void a_finished_export_that_cannot_take_its_place_is_kept(void **state)
{
    struct paths p = make_source(*state);
    struct hst_error e;
    struct hf_export *x = NULL;
    char kept[8192];
    assert_int_equal(mkdir(p.target, 0700), 0);
    put_text(p.target, "notes.txt", "mine"); /* while the training went on */
    assert_int_equal(begin(&p, HST_F32, 0, &x, NULL), 0);
    assert_int_equal(write_values(x, NULL), 0);
    assert_true(hf_export_commit(&x, &e) < 0);
    assert_int_equal(e.code, FAIL_EXPORT);
    assert_matches(e.message, "notes.txt.*The finished export is in .*/\\.out\\.finished-");
    snprintf(kept, sizeof kept, "%s", strstr(e.message, "export is in ") + strlen("export is in "));
    check_values(kept);
    assert_true(is_there(p.target, "notes.txt"));
}

/* The number of a process that has ended, and was waited for. */
static int ended_process(void)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    return pid;
}

static void what_killed_exports_left_is_removed_and_nothing_else(void **state)
{
    struct paths p = make_source(*state);
    const char *folder = *state;
    int dead = ended_process();
    char gone[256], live[256], mixed[256], linked[256], path[8192], outside[8192];
    snprintf(gone, sizeof gone, ".out.tmp-%d-0", dead);
    snprintf(mixed, sizeof mixed, ".out.tmp-%d-1", dead);
    snprintf(linked, sizeof linked, ".out.tmp-%d-2", dead);
    snprintf(live, sizeof live, ".out.tmp-%d-7", (int)getpid());
    const char *const names[] = {gone,    mixed, live, ".out.tmp-1-0x", ".other.tmp-99999999-0",
                                 "theirs"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        assert_int_equal(mkdir(path, 0700), 0);
        put_text(path, "model-00001-of-00002.safetensors", "part");
    }
    snprintf(outside, sizeof outside, "%s/theirs", folder);
    snprintf(path, sizeof path, "%s/%s", folder, linked);
    assert_int_equal(symlink(outside, path), 0);
    snprintf(path, sizeof path, "%s/%s", folder, mixed);
    put_text(path, "notes.txt", "mine");
    struct hst_error e = {0};
    assert_int_equal(check(&p, &e), 0); /* before room is looked for */
    assert_false(is_there(folder, gone));
    assert_int_equal(export_all(&p, 0, NULL), 0);
    assert_true(is_there(path, "notes.txt"));
    for (size_t i = 2; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        assert_true(is_there(path, "model-00001-of-00002.safetensors"));
    }
}

static void every_failing_call_is_told_and_leaves_nothing_behind(void **state)
{
    struct paths p = make_source(*state);
    const int codes[] = {ENOSPC, EDQUOT, EIO};
    for (int c = 0; c < 3; c++) {
        int failed = 0;
        for (int n = 0; n < 1000; n++) {
            struct hst_error e = {0};
            fail_with = codes[c];
            fail_in = n;
            int rc = export_all(&p, 21, &e);
            bool done = fail_in >= 0;
            fail_in = -1;
            if (done)
                break;
            failed++;
            assert_int_equal(rc, -codes[c]);
            assert_int_equal(e.code, codes[c] == EIO ? FAIL_WRITE : FAIL_DISK_SPACE);
            assert_matches(e.message, "cannot be (written|synced)");
            if (codes[c] == ENOSPC)
                assert_matches(e.message, "No space left on device");
            /* After the renaming only the parent's sync can fail: then the export is there. */
            assert_int_equal(entry_count(*state), is_there(*state, "out") ? 2 : 1);
            if (is_there(*state, "out")) {
                check_values(p.target);
                char gone[8192];
                snprintf(gone, sizeof gone, "rm -r %s", p.target);
                assert_int_equal(system(gone), 0);
            }
        }
        assert_true(failed > 20);
        char gone[8192];
        snprintf(gone, sizeof gone, "rm -r %s", p.target);
        assert_int_equal(system(gone), 0);
    }
}

static void tensors_that_cannot_be_stored_are_refused(void **state)
{
    struct paths p = make_source(*state);
    const uint64_t huge[] = {1ull << 40, 1ull << 40}, one[] = {1};
    const struct hf_tensor twice[] = {{"a", 1, one}, {"a", 1, one}}, large[] = {{"a", 2, huge}};
    const struct hf_tensor space[] = {{"a", 1, (const uint64_t[]){1ull << 52}}};
    struct hf_model *model = open_model(p.source, false);
    struct hf_export *x = NULL;
    struct hst_error e;
    struct hf_export_desc desc = {p.target, model, twice, 2, HST_F32, 0};
    assert_int_equal(hf_export_begin(&desc, &x, &e), -EINVAL);
    desc.tensors = large;
    desc.tensor_count = 1;
    assert_int_equal(hf_export_begin(&desc, &x, &e), -EINVAL);
    desc.tensors = space;
    e.code = 0;
    assert_int_equal(hf_export_check(&desc, &e), -ENOSPC);
    assert_int_equal(e.code, FAIL_DISK_SPACE);
    assert_int_equal(hf_export_begin(&desc, &x, &e), -ENOSPC);
    assert_int_equal(e.code, FAIL_DISK_SPACE);
    assert_matches(e.message, "the export needs 16.0 PiB, the disk has .*iB free");
    desc.dtype = 0;
    assert_int_equal(hf_export_begin(&desc, &x, &e), -EINVAL);
    hf_model_close(&model);
    assert_int_equal(entry_count(*state), 1);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup_directory, teardown_directory)
    const struct CMUnitTest tests[] = {
        TEST(one_file_has_exactly_these_bytes),
        TEST(config_is_kept_and_companions_are_copied),
        TEST(weights_in_f16_are_told_as_such),
        TEST(shards_hold_no_more_than_asked_for),
        TEST(an_earlier_export_is_replaced_also_without_exchange),
        TEST(a_model_is_exported_over_its_own_directory_if_that_is_an_export),
        TEST(what_is_not_an_export_of_ours_is_refused_and_kept),
        TEST(what_is_no_directory_is_refused),
        TEST(an_empty_directory_is_filled),
        TEST(a_parent_that_cannot_be_written_is_refused),
        TEST(an_export_that_is_not_complete_is_not_committed),
        TEST(a_finished_export_that_cannot_take_its_place_is_kept),
        TEST(what_killed_exports_left_is_removed_and_nothing_else),
        TEST(every_failing_call_is_told_and_leaves_nothing_behind),
        TEST(tensors_that_cannot_be_stored_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
