/* SPDX-License-Identifier: Apache-2.0 */
#include "base/device_failure.h"

const char *device_fix(enum hst_dev_why why)
{
    switch (why) {
    case HST_DEV_NAME:
        return "--device host, cuda or cuda:INDEX";
    case HST_DEV_LOCKED_MEMORY:
        return "raise ulimit -l (locked memory), or lower --dram";
    case HST_DEV_NO_PLUGIN:
        return "--device takes host, cuda or cuda:INDEX; for cuda build hoistway where the CUDA "
               "toolkit is installed, or name the plugin's folder in HOISTWAY_PLUGIN_PATH";
    case HST_DEV_BROKEN_PLUGIN:
        return "take library and plugin from one build, or --device host";
    case HST_DEV_NO_DRIVER:
        return "install NVIDIA's driver (in a container: --gpus all), or --device host";
    case HST_DEV_OLD_DRIVER:
        return "update NVIDIA's driver, or --device host";
    case HST_DEV_NO_DEVICE:
        return "look at nvidia-smi -L (of a card with MIG on: its slices) and "
               "CUDA_VISIBLE_DEVICES, or --device host";
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
        return "rebuild with a CUDA toolkit that knows the card, or --device host";
    case HST_DEV_LIBRARY:
        return "name a folder of whole ones in HOISTWAY_CUDA_PATH, or do without them "
               "(HOISTWAY_MATMUL=own, HOISTWAY_ATTENTION=own)";
    case HST_DEV_ENVIRONMENT:
        return "give the variable one of these values, or unset it";
    case HST_DEV_BLAS:
        return "apt install libopenblas0-openmp, or name the folder of libopenblas.so.0 in "
               "HOISTWAY_BLAS_PATH";
    case HST_DEV_CORE:
        return "another --host-math, or leave it and OPENBLAS_CORETYPE out: OpenBLAS then chooses";
    case HST_DEV_ADDRESS_SPACE:
        return "raise ulimit -v";
    case HST_DEV_MEMORY:
        return "end what else uses the GPU (nvidia-smi), or lower --hbm";
    default:
        return "look at dmesg for the driver's messages (Xid), then start again";
    }
}

int device_error_code(enum hst_dev_why why)
{
    return why == HST_DEV_MEMORY || why == HST_DEV_LOCKED_MEMORY ? HST_E_DEVICE_MEMORY
           : why == HST_DEV_EXECUTION || why == HST_DEV_CARD     ? HST_E_DEVICE_FAILED
           : why == HST_DEV_NAME                                 ? HST_E_VALUE
           : why == HST_DEV_CORE                                 ? HST_E_HOST_MATH
           : why == HST_DEV_ADDRESS_SPACE                        ? HST_E_BUDGET
                                                                 : HST_E_DEVICE;
}
