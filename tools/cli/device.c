/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the first GPU whether it can be used, and has the words where a device can not. */
#include "cli/device.h"

#include <stdio.h>
#include <string.h>

/* No reason to worry anyone. */
bool device_absent(enum hst_dev_why why)
{
    return why == HST_DEV_NO_PLUGIN || why == HST_DEV_NO_DRIVER || why == HST_DEV_NO_DEVICE;
}

const char *device_advice(enum hst_dev_why why)
{
    switch (why) {
    case HST_DEV_NO_PLUGIN:
        return "for a GPU: build where the CUDA toolkit is installed, or set HOISTWAY_PLUGIN_PATH";
    case HST_DEV_BROKEN_PLUGIN:
        return "take library and plugin from one build";
    case HST_DEV_NO_DRIVER:
        return "for a GPU: install NVIDIA's driver; in a container: docker run --gpus all";
    case HST_DEV_OLD_DRIVER:
        return "update NVIDIA's driver";
    case HST_DEV_NO_DEVICE:
        return "for a GPU: look at nvidia-smi -L (of a card with MIG on: its slices) and "
               "CUDA_VISIBLE_DEVICES";
    case HST_DEV_HIDDEN:
        return "unset CUDA_VISIBLE_DEVICES, or name in it what nvidia-smi -L lists";
    case HST_DEV_MIXED_DRIVER:
        return "no folder of stubs or of CUDA's compat package in LD_LIBRARY_PATH; after an update "
               "of the driver restart the machine";
    case HST_DEV_NOT_READY:
        return "start nvidia-fabricmanager, or wait until it has started";
    case HST_DEV_IN_USE:
        return "end the process that has it (nvidia-smi), or nvidia-smi -c DEFAULT";
    case HST_DEV_CARD:
        return "reset the GPU (nvidia-smi --gpu-reset); where it comes again, take another one";
    case HST_DEV_ARCHITECTURE:
        return "rebuild with a CUDA toolkit that knows the card";
    case HST_DEV_LIBRARY:
        return "name a folder of whole ones in HOISTWAY_CUDA_PATH, or do without them "
               "(HOISTWAY_MATMUL=own, HOISTWAY_ATTENTION=own)";
    case HST_DEV_ENVIRONMENT:
        return "give the variable one of these values, or unset it";
    case HST_DEV_BLAS:
        return "apt install libopenblas0-openmp";
    case HST_DEV_CORE:
        return "unset OPENBLAS_CORETYPE";
    case HST_DEV_ADDRESS_SPACE:
        return "raise ulimit -v";
    case HST_DEV_NAME:
        return "--device host, cuda or cuda:INDEX";
    case HST_DEV_MEMORY:
        return "end what else uses the GPU (nvidia-smi)";
    default:
        return "look at dmesg for the driver's messages (Xid)";
    }
}

int device_refused(const char *name, int native, const struct hst_dev_failure *failure,
                   struct hst_error *error)
{
    if (failure->why == HST_DEV_OK)
        return fail(error, FAIL_DEVICE, native, "device \"%.40s\" can not be opened: %s", name,
                    strerror(-native));
    return fail(error, FAIL_DEVICE, native, "device \"%.40s\" can not be opened: %s. Fix: %s", name,
                failure->text, device_advice(failure->why));
}

void device_choose(const char *wish, struct device_choice *choice)
{
    *choice = (struct device_choice){.name = wish, .gpu = wish && strcmp(wish, "host") != 0};
    if (wish)
        return;
    const struct hst_dev_config config = {.size = sizeof config};
    struct hst_dev_failure failure = {.why = HST_DEV_OK};
    struct hst_dev *dev;
    if (hst_dev_open("cuda:0", &config, &dev, &failure) == 0) {
        hst_dev_close(&dev);
        choice->name = "cuda:0";
        choice->gpu = true;
        return;
    }
    choice->name = "host";
    choice->warn = !device_absent(failure.why);
    snprintf(choice->why, sizeof choice->why, "%s", failure.text);
}
