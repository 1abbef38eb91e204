/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a GPU does not open, told so that one thing can be done about it. CUDA's own words are the
 * same for an absent driver and for one that finds no kernel module, or for a card that is not
 * there and one that a variable hides: so the driver's file, the variable and the card's compute
 * mode are looked at here.
 */
#include "cuda.h"
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DRIVER "libcuda.so.1"

/* CUDA writes 13.0 as 13000. */
#define VERSION_FORMAT        "%d.%d"
#define VERSION_ARGS(version) (version) / 1000, (version) % 1000 / 10

/* The file behind the name that the runtime opens: its own name ends with the driver's version.
 * "" where the loader finds none. */
static const char *driver_file(char path[PATH_MAX])
{
    struct link_map *map;
    void *driver = dlopen(DRIVER, RTLD_LAZY | RTLD_LOCAL);
    *path = '\0';
    if (!driver)
        return path;
    if (dlinfo(driver, RTLD_DI_LINKMAP, &map) == 0 && !realpath(map->l_name, path))
        *path = '\0';
    dlclose(driver);
    return path;
}

/* The version of the driver that runs in the kernel: " 580.95.05", "" where none does. */
static const char *running_driver(char text[48])
{
    *text = '\0';
    cuda_math_driver("/sys/module/nvidia/version", text, 48);
    return text;
}

static int no_driver(cudaError_t error, struct hst_dev_failure *failure)
{
    char path[PATH_MAX];
    if (*driver_file(path))
        cuda_failure_set(failure, HST_DEV_NO_DRIVER, error,
                         "no NVIDIA driver runs: %.200s is there and finds no kernel module", path);
    else
        cuda_failure_set(failure, HST_DEV_NO_DRIVER, error,
                         "no NVIDIA driver: the system's loader finds no " DRIVER);
    return -ENODEV;
}

static int mixed_driver(cudaError_t error, struct hst_dev_failure *failure)
{
    char path[PATH_MAX], running[48];
    driver_file(path);
    running_driver(running);
    cuda_failure_set(failure, HST_DEV_MIXED_DRIVER, error,
                     "the driver's library is not that of the driver that runs: %.150s, and in the "
                     "kernel is %s%s: %s (%s)",
                     *path ? path : DRIVER, *running ? "driver" : "none", running,
                     cudaGetErrorName(error), cudaGetErrorString(error));
    return -ENODEV;
}

/* These say "no GPU" on purpose. */
static bool hides_all(const char *visible)
{
    return !*visible || strcmp(visible, "-1") == 0 || strcmp(visible, "NoDevFiles") == 0;
}

static int no_device(int driver, struct hst_dev_failure *failure)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (!visible)
        cuda_failure_set(failure, HST_DEV_NO_DEVICE, cudaErrorNoDevice,
                         "the NVIDIA driver (CUDA " VERSION_FORMAT
                         ") reports no GPU; CUDA_VISIBLE_DEVICES is not set",
                         VERSION_ARGS(driver));
    else
        cuda_failure_set(failure, hides_all(visible) ? HST_DEV_NO_DEVICE : HST_DEV_HIDDEN,
                         cudaErrorNoDevice,
                         "the NVIDIA driver (CUDA " VERSION_FORMAT
                         ") reports no GPU: CUDA_VISIBLE_DEVICES is \"%.100s\", which %s",
                         VERSION_ARGS(driver), visible,
                         hides_all(visible) ? "hides all" : "names none that is there");
    return -ENODEV;
}

static int old_driver(int driver, cudaError_t error, struct hst_dev_failure *failure)
{
    char path[PATH_MAX];
    driver_file(path);
    cuda_failure_set(failure, HST_DEV_OLD_DRIVER, error,
                     "the NVIDIA driver is too old: %.150s%sit serves CUDA " VERSION_FORMAT
                     ", this build needs " VERSION_FORMAT,
                     path, *path ? ": " : "", VERSION_ARGS(driver), VERSION_ARGS(CUDART_VERSION));
    return -ENODEV;
}

/* 35 means an old driver only where there is a driver at all. */
int cuda_no_gpu(cudaError_t error, struct hst_dev_failure *failure)
{
    int driver = 0;
    (void)cudaGetLastError();
    (void)cudaDriverGetVersion(&driver);
    switch (error) {
    case cudaErrorInsufficientDriver:
        return driver ? old_driver(driver, error, failure) : no_driver(error, failure);
    case cudaErrorUnsupportedPtxVersion:
        return old_driver(driver, error, failure);
    case cudaErrorNoDevice:
        return no_device(driver, failure);
    case cudaErrorStubLibrary:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
        return mixed_driver(error, failure);
    default:
        break;
    }
    cuda_failure_set(failure,
                     error == cudaErrorSystemNotReady ? HST_DEV_NOT_READY : HST_DEV_EXECUTION,
                     error, "the NVIDIA driver (CUDA " VERSION_FORMAT ") does not start: %s (%s)",
                     VERSION_ARGS(driver), cudaGetErrorName(error), cudaGetErrorString(error));
    return -ENODEV;
}

int cuda_no_index(unsigned index, int count, struct hst_dev_failure *failure)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    cuda_failure_set(failure, HST_DEV_NO_DEVICE, cudaErrorInvalidDevice,
                     "no GPU %u: the driver reports %d, counted from 0%s%.100s%s", index, count,
                     visible ? "; CUDA_VISIBLE_DEVICES is \"" : "", visible ? visible : "",
                     visible ? "\"" : "");
    return -ENODEV;
}

/* Who may have the card, as the driver is set to: asking for that needs no context. */
static const char *told_of_mode(int index)
{
    int mode = -1;
    if (cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, index))
        (void)cudaGetLastError();
    switch (mode) {
    case cudaComputeModeProhibited:
        return "its compute mode is Prohibited: no process may use it";
    case cudaComputeModeExclusive:
    case cudaComputeModeExclusiveProcess:
        return "its compute mode is Exclusive_Process, and another process has it";
    default:
        return "";
    }
}

int cuda_no_context(int index, cudaError_t error, struct hst_dev_failure *failure)
{
    (void)cudaGetLastError();
    bool memory = error == cudaErrorMemoryAllocation, used = error == cudaErrorDevicesUnavailable;
    const char *because = memory ? "its memory is full (another process may hold it)"
                          : used ? told_of_mode(index)
                          : error == cudaErrorECCUncorrectable ? "its memory has failed"
                                                               : "";
    cuda_failure_set(failure, used ? HST_DEV_IN_USE : cuda_why(error), error,
                     "GPU %d does not start%s%s: %s (%s)", index, *because ? ", " : "", because,
                     cudaGetErrorName(error), cudaGetErrorString(error));
    return memory ? -ENOMEM : -ENODEV;
}
