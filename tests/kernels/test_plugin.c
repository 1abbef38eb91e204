/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices by name: what is no name, where plugins are looked for, and that a plugin which cannot
 * be used is refused with its reason. Argument 1 is the folder of the sample plugins.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <hoistway/kernels.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *samples;    /* folder of the sample plugins */
static char scratch[PATH_MAX]; /* an empty folder of our own */

static const struct hst_dev_config plain = {.size = sizeof plain};

static void look_in(const char *folders)
{
    if (folders)
        assert_int_equal(setenv("HOISTWAY_PLUGIN_PATH", folders, 1), 0);
    else
        assert_int_equal(unsetenv("HOISTWAY_PLUGIN_PATH"), 0);
}

static int only_samples(void **state)
{
    (void)state;
    look_in(samples);
    return 0;
}

/* The device does not open, for this reason; the text is one line and says `word`. */
static void expect_failure(const char *name, int rc, enum hst_dev_why why, const char *word)
{
    struct hst_dev *dev = NULL;
    struct hst_dev_failure failure;
    memset(&failure, 0x55, sizeof failure);
    assert_int_equal(hst_dev_open(name, &plain, &dev, &failure), rc);
    assert_null(dev);
    assert_int_equal(failure.why, why);
    assert_non_null(memchr(failure.text, '\0', sizeof failure.text));
    assert_null(strchr(failure.text, '\n'));
    if (!strstr(failure.text, word))
        fail_msg("\"%s\" does not say \"%s\"", failure.text, word);
    assert_int_equal(hst_dev_open(name, &plain, &dev, NULL), rc);
}

static unsigned opened_index(const char *name, const struct hst_dev_config *config)
{
    struct hst_dev *dev;
    struct hst_dev_info info;
    struct hst_dev_failure failure;
    memset(&failure, 0x55, sizeof failure);
    if (hst_dev_open(name, config, &dev, &failure))
        fail_msg("%s: %s", name, failure.text);
    assert_int_equal(failure.why, HST_DEV_OK);
    assert_string_equal(failure.text, "");
    assert_string_equal(hst_dev_name(dev), "sample");
    hst_dev_info(dev, &info);
    hst_dev_close(&dev);
    return info.multiprocessors;
}

static void what_is_not_a_name_is_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"",           "Good",
                                        "good ",      " good",
                                        "../good",    "/good",
                                        "good/x",     "good1",
                                        "good:",      "good:-1",
                                        "good:+1",    "good: 1",
                                        "good:1 ",    "good:01",
                                        "good:x",     "good:1:2",
                                        ":1",         "good.so",
                                        "lib good",   "go\nod",
                                        "good\n",     "good:0x1",
                                        "göod",       "-",
                                        "good:99999", "abcdefghijklmnopqrstuvwxyzabcdef"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        expect_failure(names[i], -EINVAL, HST_DEV_NAME, "names no device");
    expect_failure(NULL, -EINVAL, HST_DEV_NO_DEVICE, "no name");
}

static void a_senseless_configuration_is_refused(void **state)
{
    (void)state;
    struct hst_dev *dev = NULL;
    const struct hst_dev_config other = {.size = sizeof other - 8};
    const struct hst_dev_config idle = {.size = sizeof idle, .parallel = &(struct hst_parallel){0}};
    static const char *const names[] = {"host", "good"};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(hst_dev_open(names[i], NULL, &dev, NULL), -EINVAL);
        assert_int_equal(hst_dev_open(names[i], &other, &dev, NULL), -EINVAL);
        assert_int_equal(hst_dev_open(names[i], &idle, &dev, NULL), -EINVAL);
        assert_int_equal(hst_dev_open(names[i], &plain, NULL, NULL), -EINVAL);
    }
    assert_null(dev);
}

static void the_host_has_a_name_and_no_second_one(void **state)
{
    (void)state;
    static const char *const names[] = {"host", "host:0"};
    for (size_t i = 0; i < 2; i++) {
        struct hst_dev *dev;
        assert_int_equal(hst_dev_open(names[i], &plain, &dev, NULL), 0);
        assert_string_equal(hst_dev_name(dev), "host");
        hst_dev_close(&dev);
    }
    expect_failure("host:1", -EINVAL, HST_DEV_NAME, "no index 1");
}

static void the_name_gives_the_index(void **state)
{
    (void)state;
    const struct hst_dev_config third = {.size = sizeof third, .index = 3};
    assert_int_equal(opened_index("good", &plain), 0);
    assert_int_equal(opened_index("good:7", &plain), 7);
    assert_int_equal(opened_index("good:9999", &plain), 9999);
    assert_int_equal(opened_index("good", &third), 3);
    assert_int_equal(opened_index("good:0", &third), 0);
    assert_int_equal(third.index, 3);
}

static void a_device_tells_why_it_does_not_open(void **state)
{
    (void)state;
    struct hst_dev *dev;
    struct hst_dev_failure failure;
    assert_int_equal(hst_dev_open("good:9", &plain, &dev, &failure), -ENODEV);
    assert_int_equal(failure.why, HST_DEV_ARCHITECTURE);
    assert_int_equal(failure.native, 209);
    assert_string_equal(failure.text, "nine?is too many");
    expect_failure("mute", -ENODEV, HST_DEV_BROKEN_PLUGIN, "without a reason");
    expect_failure("empty", -ENODEV, HST_DEV_BROKEN_PLUGIN, "no device");
}

static void a_missing_plugin_is_told_with_every_place(void **state)
{
    (void)state;
    char folders[2 * PATH_MAX];
    snprintf(folders, sizeof folders, "/nowhere/one:%s:/nowhere/two", scratch);
    look_in(folders);
    expect_failure("good", -ENODEV, HST_DEV_NO_PLUGIN, "no libhoistway-good.so in: ");
    expect_failure("good", -ENODEV, HST_DEV_NO_PLUGIN, "/nowhere/one");
    expect_failure("good", -ENODEV, HST_DEV_NO_PLUGIN, scratch);
    expect_failure("good", -ENODEV, HST_DEV_NO_PLUGIN, "/nowhere/two");
    expect_failure("good", -ENODEV, HST_DEV_NO_PLUGIN, TESTS_FOLDER); /* beside this program */
    expect_failure("good", -ENODEV, HST_DEV_NO_PLUGIN, LIBRARY_FOLDER);
    look_in(NULL);
    expect_failure("good", -ENODEV, HST_DEV_NO_PLUGIN, "HOISTWAY_PLUGIN_PATH (not set)");
    look_in("");
    expect_failure("good", -ENODEV, HST_DEV_NO_PLUGIN, "HOISTWAY_PLUGIN_PATH (not set)");
}

static void a_list_of_folders_is_searched_in_order(void **state)
{
    (void)state;
    char folders[3 * PATH_MAX], path[2 * PATH_MAX];
    snprintf(path, sizeof path, "%s/libhoistway-good.so", scratch);
    snprintf(folders, sizeof folders, "::/nowhere:%s:%s", samples, scratch);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    look_in(folders);
    assert_int_equal(opened_index("good:5", &plain), 5);
    snprintf(folders, sizeof folders, "%s:%s", scratch, samples);
    look_in(folders); /* the first file of the name is the one, though another could be used */
    expect_failure("good", -ENODEV, HST_DEV_BROKEN_PLUGIN, scratch);
    assert_int_equal(unlink(path), 0);
}

static void very_long_lists_are_no_matter(void **state)
{
    (void)state;
    size_t room = 3 * PATH_MAX;
    char *folders = malloc(room + PATH_MAX);
    assert_non_null(folders);
    memset(folders, 'x', room);
    folders[0] = '/';
    snprintf(folders + room, PATH_MAX, ":%s", samples);
    look_in(folders);
    assert_int_equal(opened_index("good:6", &plain), 6);
    memset(folders + 1, 'y', room + PATH_MAX - 2);
    folders[room + PATH_MAX - 1] = '\0';
    look_in(folders);
    expect_failure("good", -ENODEV, HST_DEV_NO_PLUGIN, "/yyyyyyyyy");
    free(folders);
}

static void the_working_directory_is_never_searched(void **state)
{
    (void)state;
    static const char *const folders[] = {".",          "",  ":",      "./", "plugins",
                                          "../plugins", "~", "x/../.", NULL};
    char before[PATH_MAX];
    assert_non_null(getcwd(before, sizeof before));
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        assert_int_equal(chdir(samples), 0);
        look_in(folders[i]);
        expect_failure("good", -ENODEV, HST_DEV_NO_PLUGIN, "libhoistway-good.so");
        assert_int_equal(chdir(".."), 0);
        expect_failure("good", -ENODEV, HST_DEV_NO_PLUGIN, "libhoistway-good.so");
    }
    look_in(".");
    expect_failure("good", -ENODEV, HST_DEV_NO_PLUGIN, "not absolute, ignored: .");
    assert_int_equal(chdir(before), 0);
}

static void a_plugin_that_can_not_be_used_is_refused(void **state)
{
    (void)state;
    expect_failure("naked", -ENODEV, HST_DEV_BROKEN_PLUGIN, "exports no hst_dev_plugin");
    expect_failure("small", -ENODEV, HST_DEV_BROKEN_PLUGIN, "hst_dev_plugin has");
    expect_failure("old", -ENODEV, HST_DEV_BROKEN_PLUGIN, "of version 0.0.9");
    expect_failure("nameless", -ENODEV, HST_DEV_BROKEN_PLUGIN, "of version (none)");
    expect_failure("short", -ENODEV, HST_DEV_BROKEN_PLUGIN, "its table has");
    expect_failure("closed", -ENODEV, HST_DEV_BROKEN_PLUGIN, "no function that opens");
}

static void a_file_that_is_no_library_is_refused(void **state)
{
    (void)state;
    char path[2 * PATH_MAX];
    snprintf(path, sizeof path, "%s/libhoistway-text.so", scratch);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("this is not a library, whatever it is called, and it is longer than an ELF header\n",
          file);
    fclose(file);
    look_in(scratch);
    expect_failure("text", -ENODEV, HST_DEV_BROKEN_PLUGIN, "does not load");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0); /* a folder of that name */
    expect_failure("text", -ENODEV, HST_DEV_BROKEN_PLUGIN, "not a regular file");
    assert_int_equal(rmdir(path), 0);
}

static void a_plugin_is_found_beside_the_program(void **state)
{
    (void)state;
    char from[2 * PATH_MAX], to[2 * PATH_MAX];
    snprintf(from, sizeof from, "%s/libhoistway-good.so", samples);
    snprintf(to, sizeof to, "%s/libhoistway-beside.so", TESTS_FOLDER);
    (void)unlink(to);
    assert_int_equal(symlink(from, to), 0);
    look_in(NULL);
    unsigned index = opened_index("beside:4", &plain);
    assert_int_equal(unlink(to), 0);
    assert_int_equal(index, 4);
}

static void *open_and_close(void *arg)
{
    for (size_t i = 0; i < 200; i++) {
        struct hst_dev *dev = NULL;
        struct hst_dev_failure failure;
        if (hst_dev_open(i % 3 ? "good:2" : "old", &plain, &dev, &failure) != (i % 3 ? 0 : -ENODEV))
            return arg;
        hst_dev_close(&dev);
    }
    return NULL;
}

static void any_thread_may_open_a_device(void **state)
{
    (void)state;
    pthread_t threads[4];
    int number[4];
    void *fault;
    for (size_t t = 0; t < 4; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, open_and_close, &number[t]), 0);
    for (size_t t = 0; t < 4; t++) {
        assert_int_equal(pthread_join(threads[t], &fault), 0);
        assert_null(fault);
    }
}

static int make_scratch(void **state)
{
    (void)state;
    const char *folder = getenv("TMPDIR");
    snprintf(scratch, sizeof scratch, "%.200s/hst-plugin-XXXXXX", folder ? folder : "/tmp");
    return mkdtemp(scratch) ? 0 : -1;
}

static int drop_scratch(void **state)
{
    (void)state;
    return rmdir(scratch);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: test_plugin FOLDER_OF_SAMPLES\n");
        return 2;
    }
    samples = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_is_not_a_name_is_refused, only_samples),
        cmocka_unit_test_setup(a_senseless_configuration_is_refused, only_samples),
        cmocka_unit_test_setup(the_host_has_a_name_and_no_second_one, only_samples),
        cmocka_unit_test_setup(the_name_gives_the_index, only_samples),
        cmocka_unit_test_setup(a_device_tells_why_it_does_not_open, only_samples),
        cmocka_unit_test_setup(a_missing_plugin_is_told_with_every_place, only_samples),
        cmocka_unit_test_setup(a_list_of_folders_is_searched_in_order, only_samples),
        cmocka_unit_test_setup(very_long_lists_are_no_matter, only_samples),
        cmocka_unit_test_setup(the_working_directory_is_never_searched, only_samples),
        cmocka_unit_test_setup(a_plugin_that_can_not_be_used_is_refused, only_samples),
        cmocka_unit_test_setup(a_file_that_is_no_library_is_refused, only_samples),
        cmocka_unit_test_setup(a_plugin_is_found_beside_the_program, only_samples),
        cmocka_unit_test_setup(any_thread_may_open_a_device, only_samples),
    };
    return cmocka_run_group_tests(tests, make_scratch, drop_scratch);
}
