/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_KERNELS_BASE_H
#define HST_KERNELS_BASE_H
/* The boundary knows this of every implementation's objects: their first member. */
#include <hoistway/plugin.h>

struct hst_dev {
    const struct hst_dev_ops *ops;
};
struct hst_stream {
    struct hst_dev *dev;
};
struct hst_event {
    struct hst_dev *dev;
};
#endif
