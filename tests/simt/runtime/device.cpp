/* SPDX-License-Identifier: Apache-2.0 */
/* The fake runtime's devices: what it pretends to be, which calls fail, what it says of errors. */
#include "arithmetic.h"
#include "runtime.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

static thread_local cudaError_t last_error;
static thread_local int device_index;

/* ---- configuration --------------------------------------------------------------------------- */

static void configure(hst::State *s, const char *text)
{
    s->config = hst::parse_config(text);
    s->devices.resize((size_t)(s->config.devices > 0 ? s->config.devices : 1));
    for (hst::Device &d : s->devices)
        d = {d.used_bytes, 0, 0, false, cudaSuccess};
    hst::card_arithmetic = s->config.card_arithmetic;
    s->shared_limits.clear();
    hst::reset_order(s);
}

/* Never destroyed: other threads and libraries may still call while the process ends. */
hst::State &hst::state()
{
    static State *s = [] {
        State *made = new State();
        configure(made, getenv("HST_FAKE_CUDA"));
        return made;
    }();
    return *s;
}

void hst_fake_cuda_configure(const char *text)
{
    hst::State &s = hst::state();
    std::lock_guard<std::mutex> lock(s.state);
    configure(&s, text);
    last_error = cudaSuccess;
    device_index = 0;
}

/* ---- errors ---------------------------------------------------------------------------------- */

static cudaError_t count_call(hst::State &s, const char *function)
{
    cudaError_t error = cudaSuccess;
    for (hst::Fault &fault : s.config.faults)
        if (fault.function == function) {
            fault.calls++;
            if (fault.calls == fault.call || (fault.lasting && fault.calls > fault.call))
                error = fault.error;
        }
    return error;
}

/* Errors after which a context is lost: the device's own doing, not the caller's arguments. */
static bool is_sticky(cudaError_t error)
{
    return error == cudaErrorECCUncorrectable || error == cudaErrorIllegalAddress ||
           error == cudaErrorLaunchTimeout || error == cudaErrorAssert ||
           (error >= cudaErrorHardwareStackError && error <= cudaErrorLaunchFailure);
}

cudaError_t hst::planned_fault(const char *function)
{
    State &s = state();
    std::lock_guard<std::mutex> lock(s.state);
    return count_call(s, function);
}

cudaError_t hst::leave(cudaError_t error)
{
    if (error)
        last_error = error;
    return error;
}

/* ---- memory that is not the program's -------------------------------------------------------- */

enum { LIBRARY_BYTES = 60 << 20 };

size_t hst::free_bytes(const Device &device)
{
    return state().config.memory_bytes - device.used_bytes - device.context_bytes -
           device.library_bytes;
}

/* These ask about devices and need no context. */
static bool needs_context(const char *function)
{
    for (const char *name :
         {"cudaGetDeviceCount", "cudaGetDevice", "cudaSetDevice", "cudaGetDeviceProperties",
          "cudaDeviceGetAttribute", "cudaDeviceGetPCIBusId"})
        if (!strcmp(function, name))
            return false;
    return true;
}

/* The first call that needs a device's context makes it; the caller holds `state`. */
static cudaError_t make_context(hst::Device *device)
{
    size_t bytes = hst::state().config.overhead_bytes;
    if (device->has_context)
        return cudaSuccess;
    if (hst::state().config.compute_mode != cudaComputeModeDefault)
        return cudaErrorDevicesUnavailable;
    if (bytes > hst::free_bytes(*device))
        return cudaErrorMemoryAllocation;
    device->context_bytes = bytes;
    device->has_context = true;
    return cudaSuccess;
}

cudaError_t hst::take_library_memory()
{
    State &s = state();
    std::lock_guard<std::mutex> lock(s.state);
    Device &device = s.devices[(size_t)device_index];
    if (!s.config.overhead_bytes || device.library_bytes)
        return cudaSuccess;
    if (LIBRARY_BYTES > free_bytes(device))
        return cudaErrorMemoryAllocation;
    device.library_bytes = LIBRARY_BYTES;
    return cudaSuccess;
}

/* ---- every call ------------------------------------------------------------------------------ */

cudaError_t hst::enter(const char *function)
{
    State &s = state();
    std::lock_guard<std::mutex> lock(s.state);
    if (s.config.driver < CUDART_VERSION / 1000 * 1000)
        return leave(cudaErrorInsufficientDriver);
    if (s.config.devices < 1)
        return leave(cudaErrorNoDevice);
    Device &device = s.devices[(size_t)device_index];
    if (device.sticky)
        return leave(device.sticky);
    if (needs_context(function))
        if (cudaError_t error = make_context(&device))
            return leave(error);
    cudaError_t error = count_call(s, function);
    if (is_sticky(error))
        device.sticky = error;
    return leave(error);
}

int hst::current_device()
{
    return device_index;
}

static cudaError_t sticky_error()
{
    hst::State &s = hst::state();
    std::lock_guard<std::mutex> lock(s.state);
    return s.devices[(size_t)device_index].sticky;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;
    last_error = sticky_error();
    return error ? error : last_error;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last_error ? last_error : sticky_error();
}

static const struct {
    cudaError_t error;
    const char *name, *text;
} known_errors[] = {
#define ROW(error, text)                                                                           \
    {                                                                                              \
        error, #error, text                                                                        \
    }
    ROW(cudaSuccess, "no error"),
    ROW(cudaErrorInvalidValue, "invalid argument"),
    ROW(cudaErrorMemoryAllocation, "out of memory"),
    ROW(cudaErrorInitializationError, "initialization error"),
    ROW(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    ROW(cudaErrorInvalidPitchValue, "invalid pitch argument"),
    ROW(cudaErrorInsufficientDriver,
        "CUDA driver version is insufficient for CUDA runtime version"),
    ROW(cudaErrorInvalidDeviceFunction, "invalid device function"),
    ROW(cudaErrorStubLibrary, "CUDA driver is a stub library"),
    ROW(cudaErrorDevicesUnavailable, "CUDA-capable device(s) is/are busy or unavailable"),
    ROW(cudaErrorSystemNotReady, "system not yet initialized"),
    ROW(cudaErrorSystemDriverMismatch,
        "system has unsupported display driver / cuda driver combination"),
    ROW(cudaErrorCompatNotSupportedOnDevice,
        "forward compatibility was attempted on non supported HW"),
    ROW(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    ROW(cudaErrorInvalidDevice, "invalid device ordinal"),
    ROW(cudaErrorNoKernelImageForDevice,
        "no kernel image is available for execution on the device"),
    ROW(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered"),
    ROW(cudaErrorUnsupportedPtxVersion,
        "the provided PTX was compiled with an unsupported toolchain."),
    ROW(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    ROW(cudaErrorNotReady, "device not ready"),
    ROW(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    ROW(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    ROW(cudaErrorLaunchTimeout, "the launch timed out and was terminated"),
    ROW(cudaErrorHostMemoryAlreadyRegistered,
        "part or all of the requested memory range is already mapped"),
    ROW(cudaErrorHostMemoryNotRegistered,
        "pointer does not correspond to a registered memory region"),
    ROW(cudaErrorMisalignedAddress, "misaligned address"),
    ROW(cudaErrorLaunchFailure, "unspecified launch failure"),
    ROW(cudaErrorNotPermitted, "operation not permitted"),
    ROW(cudaErrorNotSupported, "operation not supported"),
    ROW(cudaErrorUnknown, "unknown error"),
#undef ROW
};

const char *cudaGetErrorName(cudaError_t error)
{
    for (auto &known : known_errors)
        if (known.error == error)
            return known.name;
    return "cudaErrorOfTheFakeRuntime";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (auto &known : known_errors)
        if (known.error == error)
            return known.text;
    return "an error that the fake runtime has no text for";
}

/* ---- devices --------------------------------------------------------------------------------- */

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = hst::state().config.driver;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

static bool is_device(int device)
{
    return device >= 0 && device < hst::state().config.devices;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 0;
    if (cudaError_t error = hst::enter(__func__))
        return error;
    *count = hst::state().config.devices;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    if (!is_device(device))
        return hst::leave(cudaErrorInvalidDevice);
    device_index = device;
    hst::State &s = hst::state();
    std::lock_guard<std::mutex> lock(s.state);
    return hst::leave(make_context(&s.devices[(size_t)device])); /* since CUDA 12 */
}

cudaError_t cudaGetDevice(int *device)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    *device = device_index;
    return cudaSuccess;
}

/* By compute capability, from the tables of the CUDA C++ Programming Guide; of one that is not in
 * them, the next lower. */
hst::Limits hst::limits()
{
    static const struct {
        int capability, shared_kib, shared_block_kib, threads, blocks;
    } cards[] = {
        {0, 64, 48, 2048, 32},     {70, 96, 96, 2048, 32},   {75, 64, 64, 1024, 16},
        {80, 164, 163, 2048, 32},  {86, 100, 99, 1536, 16},  {87, 164, 163, 1536, 16},
        {89, 100, 99, 1536, 24},   {90, 228, 227, 2048, 32}, {100, 228, 227, 2048, 32},
        {110, 228, 227, 1536, 24}, {120, 100, 99, 1536, 24},
    };
    const Config &config = state().config;
    auto found = &cards[0];
    for (auto &card : cards)
        if (card.capability <= config.major * 10 + config.minor)
            found = &card;
    return {found->shared_kib << 10, found->shared_block_kib << 10, found->threads, found->blocks,
            65536};
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    if (!is_device(device))
        return hst::leave(cudaErrorInvalidDevice);
    const hst::Config &config = hst::state().config;
    struct cudaDeviceProp p = {};
    const int physical = config.visible[(size_t)device];
    if (config.model.empty())
        snprintf(p.name, sizeof p.name, "Fake GPU %d", physical);
    else
        snprintf(p.name, sizeof p.name, "%s", config.model.c_str());
    p.totalGlobalMem = config.memory_bytes;
    p.major = config.major;
    p.minor = config.minor;
    p.multiProcessorCount = config.multiprocessors;
    p.warpSize = 32;
    p.maxThreadsPerBlock = 1024;
    const hst::Limits limits = hst::limits();
    p.maxThreadsPerMultiProcessor = limits.threads;
    p.maxBlocksPerMultiProcessor = limits.blocks;
    p.sharedMemPerBlock = hst::SHARED_BYTES_DEFAULT;
    p.sharedMemPerBlockOptin = (size_t)limits.shared_bytes_block;
    p.sharedMemPerMultiprocessor = (size_t)limits.shared_bytes;
    p.reservedSharedMemPerBlock = hst::SHARED_BYTES_RESERVED;
    p.regsPerBlock = p.regsPerMultiprocessor = limits.registers;
    p.l2CacheSize = 4 << 20;
    p.pciBusID = physical + 1;
    p.unifiedAddressing = 1;
    p.asyncEngineCount = 2;
    *properties = p;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    struct cudaDeviceProp p;
    if (cudaError_t error = hst::enter(__func__))
        return error;
    if (cudaError_t error = cudaGetDeviceProperties(&p, device))
        return error;
    const struct {
        enum cudaDeviceAttr attribute;
        int value;
    } known[] = {
        {cudaDevAttrComputeCapabilityMajor, p.major},
        {cudaDevAttrComputeCapabilityMinor, p.minor},
        {cudaDevAttrMultiProcessorCount, p.multiProcessorCount},
        {cudaDevAttrWarpSize, p.warpSize},
        {cudaDevAttrMaxThreadsPerBlock, p.maxThreadsPerBlock},
        {cudaDevAttrMaxThreadsPerMultiProcessor, p.maxThreadsPerMultiProcessor},
        {cudaDevAttrMaxSharedMemoryPerBlock, (int)p.sharedMemPerBlock},
        {cudaDevAttrMaxSharedMemoryPerBlockOptin, (int)p.sharedMemPerBlockOptin},
        {cudaDevAttrMaxSharedMemoryPerMultiprocessor, (int)p.sharedMemPerMultiprocessor},
        {cudaDevAttrReservedSharedMemoryPerBlock, (int)p.reservedSharedMemPerBlock},
        {cudaDevAttrMaxBlocksPerMultiprocessor, p.maxBlocksPerMultiProcessor},
        {cudaDevAttrMaxRegistersPerMultiprocessor, p.regsPerMultiprocessor},
        {cudaDevAttrMaxGridDimX, 0x7fffffff},
        {cudaDevAttrMaxGridDimY, 65535},
        {cudaDevAttrMaxGridDimZ, 65535},
        {cudaDevAttrL2CacheSize, p.l2CacheSize},
        {cudaDevAttrPciBusId, p.pciBusID},
        {cudaDevAttrHostRegisterSupported, 1},
        {cudaDevAttrComputeMode, hst::state().config.compute_mode},
        {cudaDevAttrAsyncEngineCount, p.asyncEngineCount},
    };
    for (auto &k : known)
        if (k.attribute == attribute) {
            *value = k.value;
            return cudaSuccess;
        }
    return hst::leave(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int device)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    if (!is_device(device) || size < 13)
        return hst::leave(cudaErrorInvalidValue);
    snprintf(text, (size_t)size, "00FA:%02X:00.0", /* a domain that machines lack */
             hst::state().config.visible[(size_t)device] + 1);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    hst::State &s = hst::state();
    std::lock_guard<std::mutex> lock(s.state);
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout)
        return cudaSuccess;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        value > hst::limits().shared_bytes_block)
        return hst::leave(cudaErrorInvalidValue);
    s.shared_limits[kernel] = value;
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *kernel)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    hst::State &s = hst::state();
    std::lock_guard<std::mutex> lock(s.state);
    auto limit = s.shared_limits.find(kernel);
    *attributes = {};
    attributes->maxThreadsPerBlock = 1024;
    attributes->maxDynamicSharedSizeBytes =
        limit == s.shared_limits.end() ? (int)hst::SHARED_BYTES_DEFAULT : limit->second;
    attributes->numRegs = 32;
    return cudaSuccess;
}

/* As many as threads and dynamic shared memory allow; registers and static memory are not known. */
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *kernel,
                                                          int threads, size_t shared_bytes)
{
    (void)kernel;
    if (cudaError_t error = hst::enter(__func__))
        return error;
    if (threads < 1 || threads > 1024)
        return hst::leave(cudaErrorInvalidValue);
    const hst::Limits l = hst::limits();
    int by_shared = (int)((size_t)l.shared_bytes / (shared_bytes + hst::SHARED_BYTES_RESERVED));
    *blocks = std::min({by_shared, l.threads / threads, l.blocks});
    return cudaSuccess;
}
