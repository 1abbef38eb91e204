/* SPDX-License-Identifier: Apache-2.0 */
/* What goes with a model's weights into an export: which files, and how they come and go. */
#include "support.h"

#include "hf/export/export.h"
#include "hf/model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEMPLATE HF_TEMPLATES "/tool_use.jinja"

struct paths {
    char source[4096], target[4096];
};

static void make_below(const char *dir, const char *name)
{
    char path[8192];
    assert_in_range(snprintf(path, sizeof path, "%s/%s", dir, name), 1, sizeof path - 1);
    assert_int_equal(mkdir(path, 0700), 0);
}

static struct paths make_source(const char *dir)
{
    struct paths p;
    snprintf(p.source, sizeof p.source, "%s/source", dir);
    snprintf(p.target, sizeof p.target, "%s/out", dir);
    make_below(dir, "source");
    put_config(p.source, "\"dtype\": \"float32\",");
    return p;
}

static const uint64_t four[] = {4};
static const struct hf_tensor tensor = {"x", 1, four};

static int begin(const struct paths *p, struct hf_export **x, struct hst_error *e)
{
    struct hf_model *model = open_model(p->source, false);
    const struct hf_export_desc desc = {p->target, model, &tensor, 1, HST_F32, 0};
    int rc = hf_export_check(&desc, e);
    rc = rc ? rc : hf_export_begin(&desc, x, e);
    hf_model_close(&model);
    return rc;
}

static int export_all(const struct paths *p, struct hst_error *e)
{
    struct hf_export *x = NULL;
    const float values[4] = {1, 2, 3, 4};
    int rc = begin(p, &x, e);
    rc = rc ? rc : hf_export_write(x, "x", 0, values, 4, e);
    return rc ? rc : hf_export_commit(&x, e);
}

static void same(const struct paths *p, const char *name)
{
    size_t size, copied;
    char *one = get_file(p->source, name, &size), *other = get_file(p->target, name, &copied);
    assert_int_equal(size, copied);
    assert_memory_equal(one, other, size);
    free(one);
    free(other);
}

static void tokenizers_templates_and_licences_go_with_the_weights(void **state)
{
    static const char tool_use[] = TEMPLATE, rag[] = HF_TEMPLATES "/rag.jinja";
    static const char *const carried[] = {
        "LICENSE",
        "LICENSE.md",
        "LICENSE.txt",
        "NOTICE",
        "NOTICE.txt",
        "USE_POLICY.md",
        "added_tokens.json",
        "chat_template.jinja",
        "chat_template.json",
        "generation_config.json",
        "merges.txt",
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer.model",
        "tokenizer_config.json",
        "vocab.json",
        tool_use,
        rag,
    };
    static const char *const left[] = {"README.md", "secret.key", HF_TEMPLATES "/notes.txt",
                                       HF_TEMPLATES "/.jinja", HF_TEMPLATES "/a\nb.jinja"};
    struct paths p = make_source(*state);
    struct stat st;
    char path[8192];
    make_below(p.source, HF_TEMPLATES);
    for (size_t i = 0; i < sizeof carried / sizeof *carried; i++)
        put_text(p.source, carried[i], carried[i]);
    for (size_t i = 0; i < sizeof left / sizeof *left; i++)
        put_text(p.source, left[i], "not copied");
    for (int again = 0; again < 2; again++) { /* the second one replaces the first */
        assert_int_equal(export_all(&p, NULL), 0);
        for (size_t i = 0; i < sizeof carried / sizeof *carried; i++)
            same(&p, carried[i]);
        for (size_t i = 0; i < sizeof left / sizeof *left; i++)
            assert_false(is_there(p.target, left[i]));
        assert_int_equal(entry_count(*state), 2); /* nothing remains beside it */
    }
    snprintf(path, sizeof path, "%s/" HF_TEMPLATES, p.target);
    assert_int_equal(entry_count(path), 2);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
}

static void a_template_that_nobody_exported_is_kept(void **state)
{
    struct paths p = make_source(*state);
    struct hst_error e;
    char path[8192];
    make_below(p.source, HF_TEMPLATES);
    put_text(p.source, TEMPLATE, "{{ messages }}");
    assert_int_equal(export_all(&p, NULL), 0);
    put_text(p.target, HF_TEMPLATES "/mine.jinja", "mine");
    assert_int_equal(export_all(&p, &e), -EEXIST);
    assert_matches(e.message, "holds " HF_TEMPLATES "/mine.jinja, which no earlier export wrote");
    snprintf(path, sizeof path, "%s/" HF_TEMPLATES "/mine.jinja", p.target);
    assert_int_equal(unlink(path), 0);
    put_text(p.target, TEMPLATE, "edited");
    assert_int_equal(export_all(&p, &e), -EEXIST);
    assert_matches(e.message, "holds " TEMPLATE ", which no earlier export wrote, or which was");
    put_text(p.target, TEMPLATE, "{{ messages }}");
    make_below(p.target, HF_TEMPLATES "/" HF_TEMPLATES);
    assert_int_equal(export_all(&p, &e), -EEXIST);
    assert_matches(e.message, "holds " HF_TEMPLATES "/" HF_TEMPLATES ", which");
    snprintf(path, sizeof path, "%s/" HF_TEMPLATES "/" HF_TEMPLATES, p.target);
    assert_int_equal(rmdir(path), 0);
    make_below(p.target, "another");
    assert_int_equal(export_all(&p, &e), -EEXIST);
    assert_matches(e.message, "holds another, which");
    snprintf(path, sizeof path, "%s/another", p.target);
    assert_int_equal(rmdir(path), 0);
    snprintf(path, sizeof path, "%s/" TEMPLATE, p.source); /* a source that has none any more */
    assert_int_equal(unlink(path), 0);
    assert_int_equal(export_all(&p, &e), 0);
    assert_false(is_there(p.target, HF_TEMPLATES));
}

static void an_empty_directory_of_that_name_is_no_export(void **state)
{
    struct paths p = make_source(*state);
    struct hst_error e;
    make_below(*state, "out");
    make_below(p.target, HF_TEMPLATES);
    assert_int_equal(export_all(&p, &e), -EEXIST);
    assert_true(is_there(p.target, HF_TEMPLATES));
}

static void links_to_elsewhere_are_left_out(void **state)
{
    struct paths p = make_source(*state);
    char path[8192];
    put_text(*state, "outside", "not copied");
    make_below(*state, "elsewhere");
    snprintf(path, sizeof path, "%s/LICENSE", p.source);
    assert_int_equal(symlink("../outside", path), 0);
    snprintf(path, sizeof path, "%s/" HF_TEMPLATES, p.source);
    assert_int_equal(symlink("../elsewhere", path), 0);
    put_text(*state, "elsewhere/a.jinja", "not copied");
    assert_int_equal(export_all(&p, NULL), 0);
    assert_false(is_there(p.target, "LICENSE"));
    assert_false(is_there(p.target, HF_TEMPLATES));
    assert_int_equal(unlink(path), 0);
    make_below(p.source, HF_TEMPLATES);
    snprintf(path, sizeof path, "%s/" TEMPLATE, p.source);
    assert_int_equal(symlink("../../outside", path), 0);
    put_text(p.source, HF_TEMPLATES "/a.jinja", "copied");
    assert_int_equal(export_all(&p, NULL), 0);
    assert_false(is_there(p.target, TEMPLATE));
    same(&p, HF_TEMPLATES "/a.jinja");
}

static void links_to_nothing_are_refused(void **state)
{
    static const char *const links[] = {"tokenizer.json", TEMPLATE};
    struct paths p = make_source(*state);
    char path[8192];
    make_below(p.source, HF_TEMPLATES);
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        snprintf(path, sizeof path, "%s/%s", p.source, links[i]);
        assert_int_equal(symlink("blob-of-a-download-that-broke-off", path), 0);
        expect_refusal(p.source, false, FAIL_CONFIG_FILE, links[i]);
        expect_refusal(p.source, false, FAIL_CONFIG_FILE, "download that file again");
        assert_int_equal(unlink(path), 0);
    }
}

static void a_file_that_may_not_be_read_is_refused(void **state)
{
    struct paths p = make_source(*state);
    char path[8192];
    if (geteuid() == 0)
        skip(); /* root may read everything */
    put_text(p.source, "tokenizer.json", "{}");
    snprintf(path, sizeof path, "%s/tokenizer.json", p.source);
    assert_int_equal(chmod(path, 0), 0);
    expect_refusal(p.source, false, FAIL_CONFIG_FILE, "tokenizer.json");
}

static void what_is_given_up_or_was_killed_leaves_nothing(void **state)
{
    struct paths p = make_source(*state);
    struct hf_export *x = NULL;
    char name[64], path[8192];
    make_below(p.source, HF_TEMPLATES);
    put_text(p.source, TEMPLATE, "{{ messages }}");
    put_text(p.source, "LICENSE", "yes");
    assert_int_equal(begin(&p, &x, NULL), 0);
    assert_int_equal(entry_count(*state), 2);
    hf_export_abort(&x);
    assert_int_equal(entry_count(*state), 1);
    snprintf(name, sizeof name, ".out.tmp-%d-0", 0x7ffffffe); /* no process has that number */
    make_below(*state, name);
    snprintf(path, sizeof path, "%s/%s", (char *)*state, name);
    put_text(path, "LICENSE", "yes");
    make_below(path, HF_TEMPLATES);
    put_text(path, TEMPLATE, "{{ mess");
    assert_int_equal(export_all(&p, NULL), 0);
    assert_int_equal(entry_count(*state), 2);
}

static void sizes_and_counts_are_bounded(void **state)
{
    struct paths p = make_source(*state);
    char path[8192];
    make_below(p.source, HF_TEMPLATES);
    for (int i = 0; i < 64; i++) {
        snprintf(path, sizeof path, HF_TEMPLATES "/%d.jinja", i);
        put_text(p.source, path, "x");
    }
    struct hf_model *model = open_model(p.source, false);
    assert_int_equal(model->extra_count, 64);
    assert_string_equal(model->extras[2].name, HF_TEMPLATES "/10.jinja"); /* by name */
    hf_model_close(&model);
    put_text(p.source, HF_TEMPLATES "/one_more.jinja", "x");
    expect_refusal(p.source, false, FAIL_CONFIG_FILE, "more than 64 templates");
    snprintf(path, sizeof path, "%s/" HF_TEMPLATES "/one_more.jinja", p.source);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof path, "%s/" HF_TEMPLATES "/0.jinja", p.source);
    assert_int_equal(truncate(path, (256 << 20) + 1), 0);
    expect_refusal(p.source, false, FAIL_CONFIG_FILE, "0.jinja: 268435457 bytes, at most");
    assert_int_equal(truncate(path, 1), 0);
    put_text(p.source, "LICENSE", "");
    snprintf(path, sizeof path, "%s/LICENSE", p.source);
    assert_int_equal(truncate(path, (256 << 20) + 1), 0);
    expect_refusal(p.source, false, FAIL_CONFIG_FILE, "LICENSE: 268435457 bytes, at most");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup_directory, teardown_directory)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(tokenizers_templates_and_licences_go_with_the_weights),
        TEST(a_template_that_nobody_exported_is_kept),
        TEST(an_empty_directory_of_that_name_is_no_export),
        TEST(links_to_elsewhere_are_left_out),
        TEST(links_to_nothing_are_refused),
        TEST(a_file_that_may_not_be_read_is_refused),
        TEST(what_is_given_up_or_was_killed_leaves_nothing),
        TEST(sizes_and_counts_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
