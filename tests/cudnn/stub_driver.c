/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CUDA driver without a device, so that cuDNN builds plans on a machine that has neither: what
 * the runtime asks first (cuInit) says that there is no device; loading what cuDNN has compiled
 * succeeds and gives a handle to nothing. Nothing can be run. cuDNN looks the functions up by name;
 * those it does without are not here.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define NO_DEVICE 100

static char nothing[256]; /* what handles point to */

#define FUNCTION(name, arguments, body)                                                            \
    int name arguments;                                                                            \
    int name arguments                                                                             \
    {                                                                                              \
        body;                                                                                      \
        return 0;                                                                                  \
    }
#define SUCCEEDS(name)     FUNCTION(name, (void), )
#define GIVES_HANDLE(name) FUNCTION(name, (void **handle), *handle = nothing)
#define GIVES_ZERO(name)   FUNCTION(name, (int *value), *value = 0)

FUNCTION(cuDriverGetVersion, (int *version), *version = 13000)
FUNCTION(cuGetErrorString, (int error, const char **text), (void)error; *text = "no driver")
FUNCTION(cuGetErrorName, (int error, const char **text), (void)error; *text = "NO_DRIVER")

GIVES_HANDLE(cuCtxGetCurrent)
GIVES_HANDLE(cuDevicePrimaryCtxRetain)
GIVES_HANDLE(cuLibraryGetKernel)
GIVES_HANDLE(cuLibraryLoadData)
GIVES_HANDLE(cuLibraryLoadFromFile)
GIVES_HANDLE(cuModuleGetFunction)
GIVES_HANDLE(cuModuleLoadData)
GIVES_HANDLE(cuModuleLoadDataEx)
GIVES_HANDLE(cuModuleLoadFatBinary)

GIVES_ZERO(cuCtxGetDevice)
GIVES_ZERO(cuDeviceGet)
GIVES_ZERO(cuDeviceGetAttribute)
GIVES_ZERO(cuDeviceGetCount)
GIVES_ZERO(cuFuncGetAttribute)
GIVES_ZERO(cuKernelGetAttribute)

SUCCEEDS(cuCtxGetLimit)
SUCCEEDS(cuCtxPopCurrent)
SUCCEEDS(cuCtxPushCurrent)
SUCCEEDS(cuDevicePrimaryCtxRelease)
SUCCEEDS(cuDevicePrimaryCtxReset)
SUCCEEDS(cuFuncSetAttribute)
SUCCEEDS(cuKernelSetAttribute)
SUCCEEDS(cuLaunchCooperativeKernel)
SUCCEEDS(cuLaunchKernel)
SUCCEEDS(cuLaunchKernelEx)
SUCCEEDS(cuLibraryUnload)
SUCCEEDS(cuLinkAddData)
SUCCEEDS(cuLinkAddData_v2)
SUCCEEDS(cuLinkAddFile_v2)
SUCCEEDS(cuLinkComplete)
SUCCEEDS(cuLinkCreate)
SUCCEEDS(cuLinkCreate_v2)
SUCCEEDS(cuLinkDestroy)
SUCCEEDS(cuMemcpyDtoH_v2)
SUCCEEDS(cuModuleGetGlobal_v2)
SUCCEEDS(cuModuleUnload)
SUCCEEDS(cuOccupancyMaxActiveBlocksPerMultiprocessor)
SUCCEEDS(cuOccupancyMaxPotentialClusterSize)
SUCCEEDS(cuStreamGetCtx)
SUCCEEDS(cuStreamSynchronize)
SUCCEEDS(cuTensorMapEncodeTiled)

static int absent(void)
{
    return NO_DEVICE;
}

int cuInit(unsigned flags);
int cuInit(unsigned flags)
{
    (void)flags;
    return NO_DEVICE;
}

/* How the runtime finds the rest: all of it fails. */
int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *found);
int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *found)
{
    int (*plain)(void) = absent;
    int (*get_version)(int *) = cuDriverGetVersion;
    (void)version, (void)flags;
    if (strcmp(name, "cuDriverGetVersion") == 0)
        memcpy(function, &get_version, sizeof *function);
    else
        memcpy(function, &plain, sizeof *function);
    if (found)
        *found = 0;
    return 0;
}
