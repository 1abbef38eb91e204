/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_TOOLS_BENCH_HOST_DEVICE_H
#define TESTS_TOOLS_BENCH_HOST_DEVICE_H
/* A host device of 1 MiB and a stream of it, for a group of tests. */
#include <hoistway/kernels.h>

static struct hst_dev *dev;
static struct hst_stream *stream;

static int open_device(void **state)
{
    const struct hst_dev_config config = {.size = sizeof config, .memory_bytes = 1 << 20};
    (void)state;
    return hst_dev_host_open(&config, &dev) || hst_stream_create(dev, "test", &stream);
}

static int close_device(void **state)
{
    (void)state;
    hst_stream_destroy(&stream);
    hst_dev_close(&dev);
    return 0;
}

#endif
