/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cuDNN that is there and of no use, beside a cuBLASLt that is: the device opens with its own
 * attention and tells which file it does not use and why, or does not open where cuDNN was asked
 * for. Argument 1 is the folder of the fake cuDNN.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <hoistway/kernels.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void hst_fake_cuda_configure(const char *text);  /* of the fake runtime */
void hst_fake_cudnn_configure(const char *text); /* of the fake cuDNN */

static const char *folder;

static const struct hst_dev_config wide = {
    .size = sizeof wide, .memory_bytes = UINT64_MAX, .host_bytes = UINT64_MAX};

static int all_is_well(void **state)
{
    (void)state;
    hst_fake_cuda_configure(NULL);
    hst_fake_cudnn_configure(NULL);
    return unsetenv("HOISTWAY_ATTENTION");
}

static void expect_word(const char *text, const char *word)
{
    if (!strstr(text, word))
        fail_msg("\"%s\" does not say \"%s\"", text, word);
    assert_null(strchr(text, '\n'));
}

/* Opens and closes the device; what it says of itself. */
static struct hst_dev_info open_device(char math[HST_DEV_MATH_BYTES])
{
    struct hst_dev *dev;
    struct hst_dev_info info;
    struct hst_dev_failure failure;
    if (hst_dev_open("cuda", &wide, &dev, &failure))
        fail_msg("the device does not open: %s", failure.text);
    hst_dev_info(dev, &info);
    hst_dev_math(dev, math, HST_DEV_MATH_BYTES);
    hst_dev_close(&dev);
    return info;
}

static void a_cudnn_that_is_new_enough_serves(void **state)
{
    (void)state;
    char math[HST_DEV_MATH_BYTES], file[512];
    struct hst_dev_info info = open_device(math);
    snprintf(file, sizeof file, "%s/libcudnn.so.9", folder);
    expect_word(info.libraries, "cuDNN 9.");
    expect_word(info.library_files, file);
    expect_word(math, "attention by cuDNN, of documents its own");
    assert_string_equal(info.library_unused, "");
    hst_fake_cudnn_configure("version=91600");
    info = open_device(math);
    expect_word(info.libraries, "cuDNN 9.16.0");
}

/* Nobody asked for cuDNN: own attention, and one line. `own`: it is not looked at. `cudnn`: the
 * same line is why the device does not open. */
static void expect_unused(const char *file, const char *why, int native)
{
    char math[HST_DEV_MATH_BYTES];
    struct hst_dev *dev = NULL;
    struct hst_dev_failure failure;
    struct hst_dev_info info = open_device(math);
    expect_word(info.library_unused, file);
    expect_word(info.library_unused, why);
    expect_word(info.libraries, "cuBLASLt 13.");
    assert_null(strstr(info.libraries, "cuDNN"));
    assert_null(strstr(info.library_files, "cudnn.so"));
    expect_word(math, "attention of its own");
    static const char *const wishes[] = {"cudnn", "cudnn-only"};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(setenv("HOISTWAY_ATTENTION", wishes[i], 1), 0);
        assert_int_equal(hst_dev_open("cuda", &wide, &dev, &failure), -ENODEV);
        assert_null(dev);
        assert_int_equal(failure.why, HST_DEV_LIBRARY);
        assert_int_equal(failure.native, native);
        assert_string_equal(failure.text, info.library_unused);
    }
    assert_int_equal(setenv("HOISTWAY_ATTENTION", "own", 1), 0);
    info = open_device(math);
    assert_string_equal(info.library_unused, "");
    assert_int_equal(unsetenv("HOISTWAY_ATTENTION"), 0);
}

static void an_old_cudnn_beside_a_new_cublas_is_told(void **state)
{
    (void)state;
    char file[512];
    snprintf(file, sizeof file, "%s/libcudnn.so.9", folder);
    hst_fake_cudnn_configure("version=90100");
    expect_unused(file, "is cuDNN 9.1.0; attention needs 9.16.0 or newer", 0);
    hst_fake_cudnn_configure("version=91502");
    expect_unused(file, "is cuDNN 9.15.2; attention needs 9.16.0 or newer", 0);
}

static void a_cudnn_that_fails_at_its_first_call_is_told(void **state)
{
    (void)state;
    struct hst_dev *dev = NULL;
    struct hst_dev_failure failure;
    char file[512];
    snprintf(file, sizeof file, "%s/libcudnn.so.9 is not whole: opening it: ", folder);
    hst_fake_cuda_configure("fail=cudnnCreate:1+:1008");
    expect_unused(file, "CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED (1008): fake cuDNN: cudnnCreate",
                  1008);
    snprintf(file, sizeof file, "opening %s/libcudnn.so.9", folder);
    hst_fake_cuda_configure("fail=cudnnCreate:1:4004"); /* memory: a device without it is none */
    assert_int_equal(hst_dev_open("cuda", &wide, &dev, &failure), -ENOMEM);
    assert_int_equal(failure.why, HST_DEV_MEMORY);
    expect_word(failure.text, file);
    assert_null(dev);
}

/* A folder before the others that has a libcudnn.so.9: a link to `target`, or no library at all. */
static void expect_impostor(const char *target, const char *told, const char *why)
{
    char place[] = "/tmp/hst-cudnn-XXXXXX", file[64], path[2048];
    char *before = strdup(getenv("HOISTWAY_CUDA_PATH"));
    assert_non_null(mkdtemp(place));
    snprintf(file, sizeof file, "%s/libcudnn.so.9", place);
    if (target) {
        assert_int_equal(symlink(target, file), 0);
    } else {
        FILE *text = fopen(file, "w");
        assert_non_null(text);
        fputs("no library\n", text);
        fclose(text);
    }
    snprintf(path, sizeof path, "%s:%s", place, before);
    assert_int_equal(setenv("HOISTWAY_CUDA_PATH", path, 1), 0);
    expect_unused(told ? told : file, why, 0);
    assert_int_equal(setenv("HOISTWAY_CUDA_PATH", before, 1), 0);
    free(before);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(rmdir(place), 0);
}

static void what_only_is_called_cudnn_is_told(void **state)
{
    (void)state;
    char blaslt[1024];
    snprintf(blaslt, sizeof blaslt, "%s/../libcublasLt.so.13", folder);
    expect_impostor(blaslt, "/libcublasLt.so.13", "has no cudnnGetVersion");
    expect_impostor(NULL, NULL, "libcudnn.so.9 does not load");
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: test_open FOLDER\n");
        return 2;
    }
    folder = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_cudnn_that_is_new_enough_serves, all_is_well),
        cmocka_unit_test_setup(an_old_cudnn_beside_a_new_cublas_is_told, all_is_well),
        cmocka_unit_test_setup(a_cudnn_that_fails_at_its_first_call_is_told, all_is_well),
        cmocka_unit_test_setup(what_only_is_called_cudnn_is_told, all_is_well),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
