/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a GPU does not open, on the double: the driver, the variable that hides cards, who else has
 * the card, its memory, a slice of it. Argument 1 is a folder with a library that is not the
 * driver's, though it is called so.
 */
#include "support.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

static const char *impostors;

static void drivers_and_cards_that_are_not_there_are_told_apart(void **state)
{
    (void)state;
    expect_closed("driver=0", "cuda", -ENODEV, HST_DEV_NO_DRIVER, 35, "no NVIDIA driver");
    expect_closed("driver=12040", "cuda", -ENODEV, HST_DEV_OLD_DRIVER, 35, "serves CUDA 12.4");
    expect_closed("driver=12040", "cuda", -ENODEV, HST_DEV_OLD_DRIVER, 35, "needs 13.");
    expect_closed("devices=0", "cuda", -ENODEV, HST_DEV_NO_DEVICE, 100, "no GPU");
    expect_closed("devices=2", "cuda:2", -ENODEV, HST_DEV_NO_DEVICE, 101, "no GPU 2: the driver");
}

static void a_driver_without_its_kernel_module_is_told_with_its_file(void **state)
{
    (void)state;
    char file[PATH_MAX];
    snprintf(file, sizeof file, "%s/libcuda.so.1", impostors);
    void *driver = dlopen(file, RTLD_NOW); /* under the name that the search asks for */
    assert_non_null(driver);
    expect_closed("driver=0", "cuda", -ENODEV, HST_DEV_NO_DRIVER, 35,
                  "cuda/libcuda.so.1 is there and finds no kernel module");
    expect_closed("driver=12040", "cuda", -ENODEV, HST_DEV_OLD_DRIVER, 35,
                  "cuda/libcuda.so.1: it serves CUDA 12.4");
    static const int mixed[] = {34, 803, 804};
    char faults[64];
    for (size_t i = 0; i < sizeof mixed / sizeof *mixed; i++) {
        snprintf(faults, sizeof faults, "fail=cudaGetDeviceCount:1:%d", mixed[i]);
        expect_closed(faults, "cuda", -ENODEV, HST_DEV_MIXED_DRIVER, mixed[i],
                      "cuda/libcuda.so.1, and ");
    }
    assert_int_equal(dlclose(driver), 0);
}

static void services_that_cards_wait_for_are_told(void **state)
{
    (void)state;
    expect_closed("fail=cudaGetDeviceCount:1:802", "cuda", -ENODEV, HST_DEV_NOT_READY, 802,
                  "cudaErrorSystemNotReady");
}

/* With two cards and the variable so set. */
static void expect_hidden(const char *visible, const char *name, enum hst_dev_why why,
                          const char *word)
{
    struct hst_dev *dev = NULL;
    struct hst_dev_failure failure;
    assert_int_equal(setenv("CUDA_VISIBLE_DEVICES", visible, 1), 0);
    hst_fake_cuda_configure("devices=2");
    assert_int_equal(hst_dev_open(name, &wide, &dev, &failure), -ENODEV);
    assert_null(dev);
    expect_word(failure.text, word);
    assert_int_equal(failure.why, why);
    assert_int_equal(unsetenv("CUDA_VISIBLE_DEVICES"), 0);
}

static void a_variable_that_hides_every_card_is_named(void **state)
{
    (void)state;
    static const char *const mistakes[] = {"nonsense", "7", "GPU-0", " ", "2,0"};
    char word[64];
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        snprintf(word, sizeof word, "is \"%s\", which names none that is there", mistakes[i]);
        expect_hidden(mistakes[i], "cuda", HST_DEV_HIDDEN, word);
    }
    expect_hidden("", "cuda", HST_DEV_NO_DEVICE, "is \"\", which hides all"); /* on purpose */
    expect_hidden("-1", "cuda", HST_DEV_NO_DEVICE, "is \"-1\", which hides all");
    expect_hidden("1,x", "cuda:1", HST_DEV_NO_DEVICE,
                  "no GPU 1: the driver reports 1, counted from 0; CUDA_VISIBLE_DEVICES is "
                  "\"1,x\"");
}

static void a_card_that_is_another_s_is_told_with_its_mode(void **state)
{
    (void)state;
    expect_closed("compute-mode=exclusive", "cuda", -ENODEV, HST_DEV_IN_USE, 46,
                  "its compute mode is Exclusive_Process, and another process has it");
    expect_closed("compute-mode=prohibited", "cuda", -ENODEV, HST_DEV_IN_USE, 46,
                  "its compute mode is Prohibited");
    expect_closed("fail=cudaSetDevice:1:46", "cuda", -ENODEV, HST_DEV_IN_USE, 46,
                  "GPU 0 does not start: cudaErrorDevicesUnavailable");
}

static void a_card_whose_memory_has_failed_is_told(void **state)
{
    (void)state;
    expect_closed("fail=cudaSetDevice:1:214", "cuda", -ENODEV, HST_DEV_CARD, 214,
                  "GPU 0 does not start, its memory has failed: cudaErrorECCUncorrectable");
}

static void a_slice_of_a_card_is_a_card_of_its_size(void **state)
{
    (void)state;
    struct hst_dev_info info;
    hst_fake_cuda_configure("model=NVIDIA H100 80GB HBM3 MIG 1g.10gb,multiprocessors=16,memory=9G");
    struct hst_dev *dev = open_device("cuda");
    hst_dev_info(dev, &info);
    expect_word(info.model, "MIG 1g.10gb");
    assert_int_equal(info.multiprocessors, 16);
    assert_int_equal(info.memory_total_bytes, (uint64_t)9 << 30);
    hst_dev_close(&dev);
}

static void a_card_that_this_build_has_no_code_for_is_told(void **state)
{
    (void)state;
    static const char old[] = "cc=7.0,fail=cudaFuncGetAttributes:1:209";
    expect_closed(old, "cuda", -ENODEV, HST_DEV_ARCHITECTURE, 209, "capability 7.0");
    expect_closed(old, "cuda", -ENODEV, HST_DEV_ARCHITECTURE, 209, "code for sm_80");
    expect_closed("fail=cudaFuncGetAttributes:1:222", "cuda", -ENODEV, HST_DEV_OLD_DRIVER, 222,
                  "too old");
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: test_refusals FOLDER\n");
        return 2;
    }
    impostors = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(drivers_and_cards_that_are_not_there_are_told_apart, all_is_well),
        cmocka_unit_test_setup(a_driver_without_its_kernel_module_is_told_with_its_file,
                               all_is_well),
        cmocka_unit_test_setup(services_that_cards_wait_for_are_told, all_is_well),
        cmocka_unit_test_setup(a_variable_that_hides_every_card_is_named, all_is_well),
        cmocka_unit_test_setup(a_card_that_is_another_s_is_told_with_its_mode, all_is_well),
        cmocka_unit_test_setup(a_card_whose_memory_has_failed_is_told, all_is_well),
        cmocka_unit_test_setup(a_slice_of_a_card_is_a_card_of_its_size, all_is_well),
        cmocka_unit_test_setup(a_card_that_this_build_has_no_code_for_is_told, all_is_well),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
