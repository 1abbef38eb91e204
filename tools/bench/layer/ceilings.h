/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_BENCH_LAYER_CEILINGS_H
#define HOISTWAY_TOOLS_BENCH_LAYER_CEILINGS_H
/* The device reaches this where nothing is in the way: a layer's operations are held against it. */
#include "bench/figure.h"

struct layer_ceilings {
    double flops_per_s; /* of a large product of this type */
    double bytes_per_s; /* read and written, of a copy inside the device */
};
/** Errors: negative errno with *error. */
int layer_ceilings(struct hst_dev *dev, struct hst_stream *stream, enum hst_dtype dtype, bool smoke,
                   struct layer_ceilings *ceilings, struct hst_error *error);

#endif
