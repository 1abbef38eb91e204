/* SPDX-License-Identifier: Apache-2.0 */
/* The fake cuDNN's handles and runs, and its configuration. */
#include "double.h"
#include "runtime/runtime.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <unistd.h>

struct cudnnContext {
    cudaStream_t stream;
};

namespace hst_cudnn
{

enum { WORK_ALIGNMENT_BYTES = 256 };

static std::atomic<size_t> runs;

/* ---- configuration --------------------------------------------------------------------------- */

/* So that a test which means to run this library does not pass without it. */
static void check_runs(void)
{
    if (runs)
        return;
    fprintf(stderr, "fake cuDNN: nothing was run, and HST_FAKE_CUDNN says must-run=1\n");
    fflush(nullptr);
    _exit(1);
}

static Config parse(const char *text)
{
    Config made;
    std::string rest = text ? text : "";
    while (!rest.empty()) {
        size_t comma = rest.find(',');
        std::string item = rest.substr(0, comma);
        rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
        if (item.rfind("version=", 0) == 0)
            made.version = strtoul(item.c_str() + strlen("version="), nullptr, 10);
        else if (item == "exact=0" || item == "exact=1")
            made.is_exact = item.back() == '1';
        else if (item == "must-run=1")
            atexit(check_runs);
        else {
            fprintf(stderr,
                    "fake cuDNN: HST_FAKE_CUDNN has \"%s\"; known: version=NUMBER, exact=0|1, "
                    "must-run=1\n",
                    item.c_str());
            abort();
        }
    }
    return made;
}

static Config &config()
{
    static auto *made = new Config(parse(getenv("HST_FAKE_CUDNN")));
    return *made;
}

cudnnStatus_t planned(const char *function)
{
    auto status = (cudnnStatus_t)hst::planned_fault(function);
    return status ? fail(status, "%s is planned to fail", function) : status;
}

/* ---- handles --------------------------------------------------------------------------------- */

static std::mutex handles_lock;
static std::set<cudnnHandle_t> &handles()
{
    static auto *made = new std::set<cudnnHandle_t>();
    return *made;
}

bool is_handle(cudnnHandle_t handle)
{
    std::lock_guard<std::mutex> held(handles_lock);
    return handles().count(handle);
}

/* ---- operands -------------------------------------------------------------------------------- */

cudnnStatus_t finalize_pack(Descriptor *d)
{
    const auto *uids = values<int64_t>(*d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const auto *data = values<void *>(*d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    int64_t known = count(*d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    if (known != count(*d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS))
        return fail(CUDNN_STATUS_BAD_PARAM, "a pack of %lld ids and %lld pointers",
                    (long long)known, (long long)count(*d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS));
    std::set<int64_t> seen;
    for (int64_t i = 0; i < known; i++) {
        if (!data[i])
            return fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "tensor %lld is null",
                        (long long)uids[i]);
        if (!seen.insert(uids[i]).second)
            return fail(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, "tensor %lld is given twice",
                        (long long)uids[i]);
    }
    return CUDNN_STATUS_SUCCESS;
}

struct Range { /* of memory that a run uses */
    int64_t uid;
    char *from;
    size_t bytes;
    bool is_written;
};

enum : int64_t { WORKSPACE = -1 };

struct Run {
    std::shared_ptr<const Graph> graph;
    Operands operands;
    std::vector<Range> ranges;
    char *work;
    size_t work_bytes;
    bool is_exact;
};

/* The bytes of device memory from there on; 0 where it is none. */
static size_t device_bytes(const char *from)
{
    hst::State &s = hst::state();
    std::lock_guard<std::mutex> held(s.state);
    auto next = s.memory.upper_bound(const_cast<char *>(from));
    if (next == s.memory.begin())
        return 0;
    auto found = std::prev(next);
    size_t offset = (size_t)(from - found->first);
    return offset < found->second.size_bytes ? found->second.size_bytes - offset : 0;
}

static cudnnStatus_t take_operand(Run *run, const Tensor &t, void *data, bool is_written)
{
    if (t.is_by_value) {
        if (device_bytes(static_cast<char *>(data)))
            return fail(CUDNN_STATUS_BAD_PARAM, "tensor %lld is a value, not on the device",
                        (long long)t.uid);
        run->operands.scalars[t.uid] = *static_cast<float *>(data);
        return CUDNN_STATUS_SUCCESS;
    }
    if ((uintptr_t)data % (uintptr_t)t.alignment_bytes)
        return fail(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
                    "tensor %lld is not aligned to %lld bytes", (long long)t.uid,
                    (long long)t.alignment_bytes);
    run->operands.memory[t.uid] = data;
    run->ranges.push_back(
        {t.uid, static_cast<char *>(data), (size_t)extent_of(t) * bytes_of(t.type), is_written});
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t take_operands(Run *run, const Descriptor &pack)
{
    const auto *uids = values<int64_t>(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const auto *data = values<void *>(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    std::map<int64_t, void *> given;
    for (int64_t i = 0; i < count(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS); i++)
        given[uids[i]] = data[i];
    std::set<int64_t> written(run->graph->outputs.begin(), run->graph->outputs.end());
    for (const Tensor &t : run->graph->operands) {
        auto found = given.find(t.uid);
        if (found == given.end())
            return fail(CUDNN_STATUS_BAD_PARAM, "the pack has no tensor %lld", (long long)t.uid);
        if (cudnnStatus_t status = take_operand(run, t, found->second, written.count(t.uid)))
            return status;
        given.erase(found);
    }
    return given.empty() ? CUDNN_STATUS_SUCCESS
                         : fail(CUDNN_STATUS_BAD_PARAM, "the graph has no tensor %lld",
                                (long long)given.begin()->first);
}

static cudnnStatus_t take_workspace(Run *run, void *work)
{
    if (!run->work_bytes)
        return CUDNN_STATUS_SUCCESS;
    if (!work)
        return fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no workspace; the plan needs %zu bytes",
                    run->work_bytes);
    if ((uintptr_t)work % WORK_ALIGNMENT_BYTES)
        return fail(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
                    "the workspace is not aligned to %d bytes", (int)WORK_ALIGNMENT_BYTES);
    run->work = static_cast<char *>(work);
    run->ranges.push_back({WORKSPACE, run->work, run->work_bytes, true});
    return CUDNN_STATUS_SUCCESS;
}

/* What is written shares memory with nothing else. */
static cudnnStatus_t check_apart(const Run &run)
{
    for (const Range &a : run.ranges)
        for (const Range &b : run.ranges)
            if (&a != &b && a.is_written && a.from < b.from + b.bytes && b.from < a.from + a.bytes)
                return fail(CUDNN_STATUS_BAD_PARAM,
                            "tensor %lld lies over tensor %lld (%lld: the workspace)",
                            (long long)a.uid, (long long)b.uid, (long long)WORKSPACE);
    return CUDNN_STATUS_SUCCESS;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static cudaError_t run_now(const Run &run)
{
    for (const Range &r : run.ranges)
        if (device_bytes(r.from) < r.bytes) {
            std::string what = r.uid == WORKSPACE ? "workspace" : "tensor " + std::to_string(r.uid);
            fprintf(stderr, "fake cuDNN: the %s has %zu bytes, of which %zu are the device's\n",
                    what.c_str(), r.bytes, device_bytes(r.from));
            return cudaErrorIllegalAddress;
        }
    if (run.work)
        memset(run.work, 0xff, run.work_bytes); /* whoever else keeps something there has NaN */
    evaluate(*run.graph, run.operands, run.is_exact);
    return cudaSuccess;
}

/* The one place where work is handed to the fake runtime. */
static cudaError_t enqueue(cudaStream_t stream, Run run)
{
    std::shared_ptr<hst::Queue> queue = hst::queue_of(stream);
    if (queue && run.work)
        hst::use_workspace(queue.get(), run.work, run.work_bytes);
    return hst::enqueue(stream, hst::Operation::work,
                        [run = std::move(run)] { return run_now(run); });
}

cudnnStatus_t execute(cudnnHandle_t handle, const Descriptor &plan, const Descriptor &pack)
{
    Run run = {plan.engine.graph, {}, {}, nullptr, (size_t)plan.work_bytes, config().is_exact};
    cudnnStatus_t status = take_operands(&run, pack);
    if (!status)
        status = take_workspace(&run, *values<void *>(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE));
    if (!status)
        status = check_apart(run);
    if (status)
        return status;
    if (hst::enter("cudnnBackendExecute launch") || enqueue(handle->stream, std::move(run)))
        return fail(CUDNN_STATUS_EXECUTION_FAILED, "nothing can be enqueued on the stream");
    runs++;
    return CUDNN_STATUS_SUCCESS;
}

} // namespace hst_cudnn

using namespace hst_cudnn;

size_t cudnnGetVersion(void)
{
    return config().version;
}

const char *cudnnGetErrorString(cudnnStatus_t status)
{
    if (status == CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED)
        return "CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED";
    switch (status / 1000) {
    case 0:
        return "CUDNN_STATUS_SUCCESS";
    case 1:
        return "CUDNN_STATUS_NOT_INITIALIZED";
    case 2:
        return "CUDNN_STATUS_BAD_PARAM";
    case 3:
        return "CUDNN_STATUS_NOT_SUPPORTED";
    case 4:
        return "CUDNN_STATUS_INTERNAL_ERROR";
    default:
        return "CUDNN_STATUS_EXECUTION_FAILED";
    }
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    if (cudnnStatus_t status = planned(__func__))
        return status;
    if (hst::enter("cudnnCreate context"))
        return fail(CUDNN_STATUS_NOT_INITIALIZED, "the device does not answer");
    std::lock_guard<std::mutex> held(handles_lock);
    *handle = new cudnnContext();
    handles().insert(*handle);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    std::lock_guard<std::mutex> held(handles_lock);
    if (!handles().erase(handle))
        return fail(CUDNN_STATUS_BAD_PARAM, "destroying: no handle");
    delete handle;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    if (cudnnStatus_t status = planned(__func__))
        return status;
    if (!is_handle(handle) || !hst::queue_of(stream))
        return fail(CUDNN_STATUS_BAD_PARAM, "choosing a stream: no handle, or no stream");
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

void hst_fake_cudnn_configure(const char *text)
{
    config() = parse(text);
}

size_t hst_fake_cudnn_runs(void)
{
    return runs;
}
