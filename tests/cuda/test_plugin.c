/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plugin itself, on any machine: it loads, exports one symbol, and without a driver says so.
 * Argument 1 is the plugin's file; with argument 2, the toolkit's stub of the driver, alone what is
 * said of that.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <errno.h>
#include <hoistway/plugin.h>
#include <stdio.h>
#include <string.h>

static const char *file, *stub;

static void its_one_symbol_is_the_door(void **state)
{
    (void)state;
    static const char *const inner[] = {
        "cudaMalloc",    "cudaSetDevice",         "cuda_enter", "cuda_ops", "hst_cuda_add",
        "hst_sdpa_open", "__cudaRegisterFunction"};
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        fail_msg("%s", dlerror());
    const struct hst_dev_plugin *plugin = dlsym(library, "hst_dev_plugin");
    assert_non_null(plugin);
    assert_int_equal(plugin->size, sizeof *plugin);
    assert_int_equal(plugin->ops_size, sizeof(struct hst_dev_ops));
    for (size_t i = 0; i < sizeof inner / sizeof *inner; i++)
        assert_null(dlsym(library, inner[i]));
    assert_int_equal(dlclose(library), 0);
}

static void it_opens_a_card_or_says_why_not(void **state)
{
    (void)state;
    const struct hst_dev_config config = {.size = sizeof config};
    struct hst_dev_failure failure;
    struct hst_dev *dev;
    int rc = hst_dev_open("cuda", &config, &dev, &failure);
    if (rc == 0) {
        assert_string_equal(hst_dev_name(dev), "cuda");
        hst_dev_close(&dev);
        return;
    }
    print_message("%s\n", failure.text);
    assert_int_equal(rc, -ENODEV);
    assert_int_not_equal(failure.why, HST_DEV_OK);
    assert_int_not_equal(failure.why, HST_DEV_NO_PLUGIN);
    assert_int_not_equal(failure.why, HST_DEV_BROKEN_PLUGIN);
    if (failure.native == 35 && failure.why == HST_DEV_NO_DRIVER)
        assert_non_null(strstr(failure.text, "no NVIDIA driver"));
    else
        assert_true(strlen(failure.text) > 0);
}

/* The toolkit's own stand-in for the driver, to link with: a loader's path that holds it is a
 * common mistake. It is taken for the driver because it is loaded under that name. */
static void it_names_a_stub_of_the_driver(void **state)
{
    (void)state;
    const struct hst_dev_config config = {.size = sizeof config};
    struct hst_dev_failure failure;
    struct hst_dev *dev = NULL;
    assert_non_null(dlopen(stub, RTLD_NOW | RTLD_GLOBAL));
    assert_int_equal(hst_dev_open("cuda", &config, &dev, &failure), -ENODEV);
    print_message("%s\n", failure.text);
    assert_int_equal(failure.why, HST_DEV_MIXED_DRIVER);
    assert_non_null(strstr(failure.text, "stubs/libcuda.so, and in the kernel is "));
    assert_non_null(strstr(failure.text, "cudaErrorStubLibrary"));
}

int main(int argc, char **argv)
{
    if (argc != 2 && argc != 3) {
        fprintf(stderr, "usage: test_plugin FILE [STUB_OF_THE_DRIVER]\n");
        return 2;
    }
    file = argv[1];
    stub = argv[2];
    const struct CMUnitTest stub_tests[] = {cmocka_unit_test(it_names_a_stub_of_the_driver)};
    if (stub) /* alone: the runtime asks for the driver once in a process */
        return cmocka_run_group_tests(stub_tests, NULL, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_one_symbol_is_the_door),
        cmocka_unit_test(it_opens_a_card_or_says_why_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
