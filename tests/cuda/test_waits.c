/* SPDX-License-Identifier: Apache-2.0 */
/* How the CUDA device waits for its card, on the double, which counts the waits that sleep. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <hoistway/kernels.h>
#include <stdlib.h>
#include <string.h>

unsigned long hst_fake_cuda_blocking_waits(void); /* of the fake runtime */

static const struct hst_dev_config wide = {
    .size = sizeof wide, .memory_bytes = UINT64_MAX, .host_bytes = UINT64_MAX};

/* A copy is waited for by its stream, and another one by an event behind it. */
static unsigned long sleeps(const char *wish)
{
    struct hst_dev *dev;
    struct hst_stream *stream;
    struct hst_event *event;
    void *memory;
    assert_int_equal(wish ? setenv("HOISTWAY_WAIT", wish, 1) : unsetenv("HOISTWAY_WAIT"), 0);
    assert_int_equal(hst_dev_open("cuda", &wide, &dev, NULL), 0);
    assert_int_equal(hst_stream_create(dev, "copies", &stream), 0);
    assert_int_equal(hst_event_create(dev, &event), 0);
    assert_int_equal(hst_dev_mem_alloc(dev, 8192, &memory), 0);
    unsigned long before = hst_fake_cuda_blocking_waits();
    assert_int_equal(hst_stream_copy(stream, memory, (char *)memory + 4096, 4096), 0);
    assert_int_equal(hst_stream_sync(stream), 0);
    assert_int_equal(hst_stream_copy(stream, memory, (char *)memory + 4096, 4096), 0);
    assert_int_equal(hst_event_record(event, stream), 0);
    assert_int_equal(hst_event_query(event),
                     0); /* the double runs an operation for each question */
    assert_int_equal(hst_event_sync(event), 0);
    unsigned long slept = hst_fake_cuda_blocking_waits() - before;
    hst_event_destroy(&event);
    hst_stream_destroy(&stream); /* which waits once more */
    hst_dev_mem_free(dev, memory, 8192);
    hst_dev_close(&dev);
    return slept;
}

static void who_waits_sleeps_or_looks_as_was_wished(void **state)
{
    (void)state;
    assert_int_equal(sleeps("block"), 2);
    assert_int_equal(sleeps("spin"), 0);
    assert_int_equal(sleeps(""), 0); /* as if unset */
    assert_int_equal(sleeps(NULL), 0);
}

static void another_word_is_refused(void **state)
{
    (void)state;
    struct hst_dev *dev = NULL;
    struct hst_dev_failure failure;
    assert_int_equal(setenv("HOISTWAY_WAIT", "busy", 1), 0);
    assert_int_equal(hst_dev_open("cuda", &wide, &dev, &failure), -EINVAL);
    assert_int_equal(failure.why, HST_DEV_ENVIRONMENT);
    assert_non_null(strstr(failure.text, "HOISTWAY_WAIT is \"busy\": none of \"block\", \"spin\""));
    assert_null(dev);
    assert_int_equal(unsetenv("HOISTWAY_WAIT"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_waits_sleeps_or_looks_as_was_wished),
        cmocka_unit_test(another_word_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
