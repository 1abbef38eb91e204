/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file tells what of a GPU's memory nobody holds, at a run's start and at the ends of its
 * steps: CUDA and its libraries load code into it when it is first called.
 */
#include "base/text.h"
#include "verbs/train/run.h"

#include <stdio.h>

void train_left_begin(struct train *t)
{
    struct hst_dev_info info = {0};
    if (t->device.gpu)
        hst_dev_info(hst_engine_device(t->engine), &info);
    t->left.start = t->left.least = info.memory_free_bytes;
}

void train_left_step(struct train *t, uint64_t free_bytes)
{
    if (free_bytes && free_bytes < t->left.least) /* 0: it was not asked at this step */
        t->left.least = free_bytes;
}

void train_left_tell(const struct train *t)
{
    char start[TEXT_BYTES], least[TEXT_BYTES];
    if (t->left.start)
        printf("GPU memory left: %s at the start, at least %s at the end of a step\n",
               text_size(t->left.start, start), text_size(t->left.least, least));
}
