/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_TESTS_CUDA_SUPPORT_H
#define HST_TESTS_CUDA_SUPPORT_H
/* A device of the double, which opens, or does not where its runtime fails as it is told to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <hoistway/kernels.h>
#include <string.h>

void hst_fake_cuda_configure(const char *text); /* of the fake runtime (tests/simt) */

static const struct hst_dev_config wide = {
    .size = sizeof wide, .memory_bytes = UINT64_MAX, .host_bytes = UINT64_MAX};

static inline int all_is_well(void **state)
{
    (void)state;
    hst_fake_cuda_configure(NULL);
    return 0;
}

static inline struct hst_dev *open_device(const char *name)
{
    struct hst_dev *dev;
    struct hst_dev_failure failure;
    if (hst_dev_open(name, &wide, &dev, &failure))
        fail_msg("%s: %s", name, failure.text);
    return dev;
}

static inline void expect_word(const char *text, const char *word)
{
    if (!strstr(text, word))
        fail_msg("\"%s\" does not say \"%s\"", text, word);
}

/* With the fake runtime so configured the device does not open; then it does again. */
static inline void expect_closed(const char *faults, const char *name, int rc, enum hst_dev_why why,
                                 int native, const char *word)
{
    struct hst_dev *dev = NULL;
    struct hst_dev_failure failure;
    hst_fake_cuda_configure(faults);
    assert_int_equal(hst_dev_open(name, &wide, &dev, &failure), rc);
    assert_null(dev);
    expect_word(failure.text, word);
    assert_int_equal(failure.why, why);
    assert_int_equal(failure.native, native);
    hst_fake_cuda_configure(NULL);
    dev = open_device("cuda");
    hst_dev_close(&dev);
}

#endif
