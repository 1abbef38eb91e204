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
        return "look at nvidia-smi and CUDA_VISIBLE_DEVICES, or --device host";
    case HST_DEV_ARCHITECTURE:
        return "rebuild with a CUDA toolkit that knows the card, or --device host";
    case HST_DEV_LIBRARY:
        return "install CUDA's libraries, or name their folder in HOISTWAY_CUDA_PATH, or --device "
               "host";
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
           : why == HST_DEV_EXECUTION                            ? HST_E_DEVICE_FAILED
           : why == HST_DEV_NAME                                 ? HST_E_VALUE
           : why == HST_DEV_CORE                                 ? HST_E_HOST_MATH
           : why == HST_DEV_ADDRESS_SPACE                        ? HST_E_BUDGET
                                                                 : HST_E_DEVICE;
}
