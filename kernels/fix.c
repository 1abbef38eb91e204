/* SPDX-License-Identifier: Apache-2.0 */
/* This is what to do about a device's failure, for all who tell of one. Whoever has options that
 * get by without the device names them behind this. */
#include <hoistway/kernels.h>

const char *hst_dev_fix(enum hst_dev_why why)
{
    switch (why) {
    case HST_DEV_NAME:
        return "--device host, cuda or cuda:INDEX";
    case HST_DEV_LOCKED_MEMORY:
        return "raise ulimit -l (locked memory)";
    case HST_DEV_NO_PLUGIN:
        return "build hoistway where the CUDA toolkit is installed, or name the plugin's folder in "
               "HOISTWAY_PLUGIN_PATH";
    case HST_DEV_BROKEN_PLUGIN:
        return "take library and plugin from one build";
    case HST_DEV_NO_DRIVER:
        return "install NVIDIA's driver (in a container: --gpus all)";
    case HST_DEV_OLD_DRIVER:
        return "update NVIDIA's driver";
    case HST_DEV_NO_DEVICE:
        return "look at nvidia-smi -L (of a card with MIG on: its slices) and CUDA_VISIBLE_DEVICES";
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
        return "apt install libopenblas0-openmp, or name the folder of libopenblas.so.0 in "
               "HOISTWAY_BLAS_PATH";
    case HST_DEV_CORE:
        return "another core in OPENBLAS_CORETYPE or --host-math, or another kernel of bf16 there; "
               "without any the quickest that runs is chosen";
    case HST_DEV_ADDRESS_SPACE:
        return "raise ulimit -v";
    case HST_DEV_MEMORY:
        return "end what else uses the GPU (nvidia-smi)";
    default:
        return "look at dmesg for the driver's messages (Xid), then start again";
    }
}
