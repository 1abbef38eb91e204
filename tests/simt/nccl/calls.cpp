/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The double of NCCL: its calls. A communicator that is not blocking takes a call when it has been
 * asked for its state so often as the configuration says, and whoever uses it before is refused.
 */
#include "double.h"

#include <cstring>
#include <ctime>
#include <unistd.h>

using hst_nccl::Call;
using hst_nccl::Config;
using hst_nccl::Fault;
using hst_nccl::Group;
using hst_nccl::Message;
using hst_nccl::Seat;
using hst_nccl::Work;

extern "C" {
#define DECLARE(type, name) type name;
NCCL_FUNCTIONS(DECLARE)
#undef DECLARE
#define DECLARE(type, name, version) type name;
NCCL_LATER_FUNCTIONS(DECLARE)
#undef DECLARE
}

namespace
{

struct Window {
    char *memory;
};

struct Task {                  /* a call that is not taken yet */
    std::function<bool()> run; /* true: it is done */
    unsigned looks;            /* so often it is still to be asked for */
};

struct Queued { /* what a group has so far */
    nccl_comm *comm;
    Work work;
    cudaStream_t stream;
};

} // namespace

struct nccl_comm {
    std::shared_ptr<Group> group = std::make_shared<Group>();
    bool blocking = false;
    std::deque<Task> tasks;
    nccl_result state = NCCL_SUCCESS;
    nccl_result later = NCCL_SUCCESS; /* what the state is once a call has been taken */
    unsigned splits = 0, window_calls = 0;
    std::set<Window *> windows;
};

struct Memory { /* of ncclMemAlloc */
    size_t bytes;
    int device;
};
static std::map<char *, Memory> memories; /* a process has one owner of them */
static thread_local std::string last_error;
static thread_local unsigned depth;
static thread_local std::vector<Queued> queued;

static nccl_result fail(nccl_result result, const std::string &text)
{
    last_error = text;
    return result;
}

/* ---- calls in progress ----------------------------------------------------------------------- */

static nccl_result state_of(nccl_comm *comm)
{
    if (comm->tasks.empty()) {
        const nccl_result state = comm->state;
        if (comm->later)
            comm->state = comm->later;
        return state;
    }
    Task &task = comm->tasks.front();
    if (task.looks) {
        task.looks--;
        return NCCL_IN_PROGRESS;
    }
    if (task.run())
        comm->tasks.pop_front();
    return comm->tasks.empty() ? comm->state : NCCL_IN_PROGRESS;
}

static nccl_result begin(nccl_comm *comm, std::function<bool()> run)
{
    if (!comm->tasks.empty())
        return fail(NCCL_INVALID_ARGUMENT,
                    "Attempt to use communicator before the previous operation returned "
                    "ncclSuccess");
    comm->tasks.push_back({std::move(run), hst_nccl::config().in_progress});
    nccl_result state = NCCL_IN_PROGRESS;
    do
        state = state_of(comm);
    while (comm->blocking && state == NCCL_IN_PROGRESS && usleep(100) == 0);
    return state;
}

/* The plan's part in a call on a communicator that is there: false where the call ends with it. */
static bool goes_on(const char *function, nccl_comm *comm, nccl_result *result, bool *hangs)
{
    nccl_result planned = NCCL_SUCCESS;
    const Fault::What what = hst_nccl::strike(function, comm->group->world_rank, &planned);
    *hangs = what == Fault::hang;
    if (what == Fault::async)
        comm->later = planned;
    *result = planned;
    if (what == Fault::async || what == Fault::error)
        last_error = std::string("the plan makes ") + function + " fail";
    return what != Fault::error;
}

/* ---- what there is --------------------------------------------------------------------------- */

nccl_result ncclGetVersion(int *version)
{
    *version = hst_nccl::config().version;
    return NCCL_SUCCESS;
}

const char *ncclGetErrorString(nccl_result result)
{
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    const size_t i = (size_t)result;
    return i < sizeof texts / sizeof *texts ? texts[i] : "unknown result code";
}

const char *ncclGetLastError(nccl_comm *)
{
    return last_error.c_str();
}

/* As NCCL does: a place to meet that the environment names is the id. */
nccl_result ncclGetUniqueId(nccl_id *id)
{
    const char *place = getenv("NCCL_COMM_ID");
    const char *colon = place ? strrchr(place, ':') : nullptr;
    timespec now;
    if (place && (!colon || !colon[1] || colon[1 + strspn(colon + 1, "0123456789")]))
        return fail(NCCL_INVALID_ARGUMENT, "Invalid NCCL_COMM_ID");
    *id = {};
    clock_gettime(CLOCK_REALTIME, &now);
    if (place)
        snprintf(id->internal, sizeof id->internal, "/hst-nccl-%u-%.90s", geteuid(), place);
    else
        snprintf(id->internal, sizeof id->internal, "/hst-nccl-%u-%d-%lld-%ld", geteuid(), getpid(),
                 (long long)now.tv_sec, now.tv_nsec);
    for (char *c = id->internal + 1; *c; c++)
        if (*c == '/')
            *c = '_';
    return NCCL_SUCCESS;
}

/* ---- communicators --------------------------------------------------------------------------- */

static bool is_config(const nccl_config *config)
{
    const size_t most = hst_nccl::config().version < NCCL_VERSION_ALL_TO_ALL
                            ? offsetof(nccl_config, traffic_class)
                            : sizeof *config;
    return config->magic == NCCL_CONFIG_MAGIC && config->size <= most &&
           config->size >= offsetof(nccl_config, traffic_class);
}

static bool join(nccl_comm *comm, int device)
{
    int pair[2];
    if (!hst_nccl::sit_down(comm->group.get(), device))
        return false;
    if (hst_nccl::shares_device(*comm->group, pair))
        comm->state =
            fail(NCCL_INVALID_USAGE, "Duplicate GPU detected : rank " + std::to_string(pair[0]) +
                                         " and rank " + std::to_string(pair[1]) +
                                         " both on CUDA device " + std::to_string(device));
    return true;
}

nccl_result ncclCommInitRankConfig(nccl_comm **made, int ranks, nccl_id id, int rank,
                                   nccl_config *config)
{
    int device = 0;
    if (ranks < 1 || ranks > hst_nccl::RANKS_MOST || rank < 0 || rank >= ranks ||
        !is_config(config))
        return fail(NCCL_INVALID_ARGUMENT, "ranks, rank or configuration");
    if (cudaGetDevice(&device))
        return fail(NCCL_CUDA_ERROR, "no device");
    nccl_comm *comm = new nccl_comm();
    comm->blocking = config->blocking != 0;
    comm->group->name = id.internal;
    comm->group->ranks = ranks;
    comm->group->rank = comm->group->world_rank = rank;
    nccl_result result;
    bool hangs;
    if (!goes_on(__func__, comm, &result, &hangs)) {
        delete comm;
        return result;
    }
    *made = comm;
    return begin(comm, [=] { return !hangs && join(comm, device); });
}

/* Once all have said what they want: the child's ranks are in the order of keys. */
static bool find_child(nccl_comm *parent, unsigned number, int color, nccl_comm *child)
{
    Group &group = *parent->group;
    const int key = group.own().split[number].key;
    if (!hst_nccl::all_said(group, [=](Seat &seat) { return seat.split[number].said == 1; }))
        return false;
    child->group->ranks = child->group->rank = 0;
    for (int r = 0; r < group.ranks; r++) {
        const auto &other = group.table->seat[r].split[number];
        if (other.color != color)
            continue;
        child->group->ranks++;
        child->group->rank += other.key < key || (other.key == key && r < group.rank);
    }
    return true;
}

nccl_result ncclCommSplit(nccl_comm *parent, int color, int key, nccl_comm **made,
                          nccl_config *config)
{
    nccl_result result;
    bool hangs;
    if (!is_config(config) || color < 0)
        return fail(NCCL_INVALID_ARGUMENT, "color or configuration");
    if (!goes_on(__func__, parent, &result, &hangs))
        return result;
    const unsigned number = parent->splits++;
    if (number == hst_nccl::SPLITS_MOST)
        hst_nccl::stop("more than %d splits of one communicator", hst_nccl::SPLITS_MOST);
    auto &said = parent->group->own().split[number];
    said.color = color;
    said.key = key;
    said.said = 1;
    nccl_comm *child = new nccl_comm();
    child->blocking = config->blocking != 0;
    child->group->name =
        parent->group->name + "." + std::to_string(number) + "." + std::to_string(color);
    child->group->world_rank = parent->group->world_rank;
    const int device = parent->group->own().device;
    *made = nullptr; /* as NCCL: it is there once it is made */
    return begin(parent, [=] {
        if (hangs || !find_child(parent, number, color, child) || !join(child, device))
            return false;
        __atomic_store_n(made, child, __ATOMIC_RELEASE);
        return true;
    });
}

nccl_result ncclCommGetAsyncError(nccl_comm *comm, nccl_result *result)
{
    *result = state_of(comm);
    return NCCL_SUCCESS;
}

nccl_result ncclCommFinalize(nccl_comm *comm)
{
    nccl_result result;
    bool hangs;
    if (!goes_on(__func__, comm, &result, &hangs))
        return result;
    return begin(comm, [=] { return !hangs && comm->group->own().taken == comm->group->enqueued; });
}

nccl_result ncclCommDestroy(nccl_comm *comm)
{
    const Group &group = *comm->group;
    if (!comm->tasks.empty() || group.table->seat[group.rank].taken != group.enqueued)
        hst_nccl::stop("a communicator of %d ranks is destroyed while something is under way",
                       group.ranks);
    if (!comm->windows.empty())
        hst_nccl::stop("%zu windows outlive their communicator", comm->windows.size());
    delete comm;
    return NCCL_SUCCESS;
}

/* What waits in streams ends without having moved anything. */
nccl_result ncclCommAbort(nccl_comm *comm)
{
    nccl_result result;
    bool hangs;
    if (!goes_on(__func__, comm, &result, &hangs))
        return result;
    while (hangs)
        sleep(1);
    comm->group->aborted = true;
    for (Window *window : comm->windows)
        delete window;
    delete comm;
    return NCCL_SUCCESS;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static std::set<char *> registered; /* what windows are of */

nccl_result ncclMemAlloc(void **memory, size_t bytes)
{
    nccl_result planned = NCCL_SUCCESS;
    if (hst_nccl::strike(__func__, -1, &planned) == Fault::error)
        return fail(planned, "the plan makes ncclMemAlloc fail");
    if (cudaMalloc(memory, bytes))
        return fail(NCCL_CUDA_ERROR, "out of memory");
    int device = 0;
    cudaGetDevice(&device);
    memories[static_cast<char *>(*memory)] = {bytes, device};
    return NCCL_SUCCESS;
}

nccl_result ncclMemFree(void *memory)
{
    if (!memories.erase(static_cast<char *>(memory)))
        return fail(NCCL_INVALID_ARGUMENT, "not of ncclMemAlloc");
    if (registered.count(static_cast<char *>(memory)))
        hst_nccl::stop("memory is freed while a window is of it");
    return cudaFree(memory) ? fail(NCCL_CUDA_ERROR, "cudaFree") : NCCL_SUCCESS;
}

static void check_windows(const Group &group, unsigned number)
{
    const auto &own = group.table->seat[group.rank].window[number];
    for (int r = 0; r < group.ranks; r++) {
        const auto &other = group.table->seat[r].window[number];
        if (other.bytes != own.bytes || other.offset != own.offset)
            hst_nccl::stop("a window has %llu bytes from %llu on rank %d, and %llu from %llu on "
                           "rank %d",
                           (unsigned long long)own.bytes, (unsigned long long)own.offset,
                           group.rank, (unsigned long long)other.bytes,
                           (unsigned long long)other.offset, r);
    }
}

nccl_result ncclCommWindowRegister(nccl_comm *comm, void *memory, size_t bytes, void **window,
                                   int flags)
{
    char *from = static_cast<char *>(memory);
    auto found = memories.upper_bound(from);
    nccl_result result;
    bool hangs;
    if (hst_nccl::config().version < NCCL_VERSION_WINDOW)
        hst_nccl::stop("NCCL of version %d has no windows", hst_nccl::config().version);
    if (found == memories.begin() || flags != NCCL_WIN_COLL_SYMMETRIC)
        return fail(NCCL_INVALID_ARGUMENT, "no memory of ncclMemAlloc, or not symmetric");
    --found;
    if (from + bytes > found->first + found->second.bytes)
        return fail(NCCL_INVALID_ARGUMENT, "more than ncclMemAlloc gave");
    if (found->second.device != comm->group->own().device)
        hst_nccl::stop("rank %d has device %d, and a window of device %d", comm->group->rank,
                       comm->group->own().device, found->second.device);
    if (!goes_on(__func__, comm, &result, &hangs))
        return result;
    const unsigned number = comm->window_calls++;
    if (number == hst_nccl::WINDOWS_MOST)
        hst_nccl::stop("more than %d windows of one communicator", hst_nccl::WINDOWS_MOST);
    auto &said = comm->group->own().window[number];
    said.bytes = bytes;
    said.offset = (uint64_t)(from - found->first);
    said.said = 1;
    *window = nullptr;
    char *base = found->first;
    return begin(comm, [=] {
        if (hangs || !hst_nccl::all_said(*comm->group, [number](Seat &seat) {
                return seat.window[number].said == 1;
            }))
            return false;
        check_windows(*comm->group, number);
        Window *made = new Window{base};
        comm->windows.insert(made);
        registered.insert(base);
        *window = made;
        return true;
    });
}

nccl_result ncclCommWindowDeregister(nccl_comm *comm, void *window)
{
    Window *made = static_cast<Window *>(window);
    nccl_result result;
    bool hangs;
    if (!goes_on(__func__, comm, &result, &hangs))
        return result;
    if (!comm->windows.erase(made))
        return fail(NCCL_INVALID_ARGUMENT, "no window of this communicator");
    registered.erase(made->memory);
    delete made;
    return begin(comm, [=] { return !hangs; });
}

/* ---- operations ------------------------------------------------------------------------------ */

/* All of one communicator; messages are one operation, others one each. */
static nccl_result enqueue_all(nccl_comm *comm, const std::vector<Queued> &works)
{
    return begin(comm, [=] {
        for (const Queued &one : works)
            if (hst_nccl::enqueue(comm->group, one.work, one.stream))
                comm->state = fail(NCCL_CUDA_ERROR, "no such stream");
        return true;
    });
}

nccl_result ncclGroupStart()
{
    depth++;
    return NCCL_SUCCESS;
}

nccl_result ncclGroupEnd()
{
    if (!depth)
        return fail(NCCL_INVALID_USAGE, "ncclGroupEnd without ncclGroupStart");
    if (--depth)
        return NCCL_SUCCESS;
    std::vector<nccl_comm *> order;
    std::map<nccl_comm *, std::vector<Queued>> works;
    for (Queued &one : queued) {
        std::vector<Queued> &own = works[one.comm];
        if (own.empty())
            order.push_back(one.comm);
        Queued *last = own.empty() ? nullptr : &own.back();
        if (last && one.work.call.kind == Call::messages &&
            last->work.call.kind == Call::messages && last->stream == one.stream) {
            last->work.messages.push_back(one.work.messages[0]);
            last->work.hangs = last->work.hangs || one.work.hangs;
        } else {
            own.push_back(one);
        }
    }
    queued.clear();
    nccl_result result = NCCL_SUCCESS;
    for (nccl_comm *comm : order) {
        const nccl_result state = enqueue_all(comm, works[comm]);
        result = result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS ? state : result;
    }
    return result;
}

static nccl_result put(const char *function, nccl_comm *comm, Work work, void *stream)
{
    nccl_result result;
    if (!hst_nccl::type_bytes(work.call.kind == Call::messages ? work.messages[0].part.type
                                                               : work.call.type))
        return fail(NCCL_INVALID_ARGUMENT, "a type that the double does not know");
    if (!goes_on(function, comm, &result, &work.hangs))
        return result;
    ncclGroupStart();
    queued.push_back({comm, work, static_cast<cudaStream_t>(stream)});
    return ncclGroupEnd();
}

static Work collective(Call call, const void *send, void *receive)
{
    return {call, static_cast<const char *>(send), static_cast<char *>(receive), {}, false};
}

nccl_result ncclAllGather(const void *send, void *receive, size_t count, nccl_type type,
                          nccl_comm *comm, void *stream)
{
    return put(__func__, comm, collective({Call::gather, type, 0, count}, send, receive), stream);
}

nccl_result ncclAlltoAll(const void *send, void *receive, size_t count, nccl_type type,
                         nccl_comm *comm, void *stream)
{
    if (hst_nccl::config().version < NCCL_VERSION_ALL_TO_ALL)
        hst_nccl::stop("NCCL of version %d has no ncclAlltoAll", hst_nccl::config().version);
    if (send == receive)
        return fail(NCCL_INVALID_ARGUMENT, "in place");
    return put(__func__, comm, collective({Call::all_to_all, type, 0, count}, send, receive),
               stream);
}

nccl_result ncclAllReduce(const void *send, void *receive, size_t count, nccl_type type,
                          nccl_red_op, nccl_comm *comm, void *stream)
{
    return put(__func__, comm, collective({Call::all_reduce, type, 0, count}, send, receive),
               stream);
}

nccl_result ncclBroadcast(const void *send, void *receive, size_t count, nccl_type type, int root,
                          nccl_comm *comm, void *stream)
{
    return put(__func__, comm, collective({Call::broadcast, type, root, count}, send, receive),
               stream);
}

static nccl_result message(const char *function, nccl_comm *comm, const Message &part, void *stream)
{
    if (part.part.peer < 0 || part.part.peer >= comm->group->ranks)
        return fail(NCCL_INVALID_ARGUMENT, "no such peer");
    Work work = collective({Call::messages, NCCL_INT8, 0, 0}, nullptr, nullptr);
    work.messages.push_back(part);
    return put(function, comm, work, stream);
}

nccl_result ncclSend(const void *send, size_t count, nccl_type type, int peer, nccl_comm *comm,
                     void *stream)
{
    return message(__func__, comm, {true, const_cast<void *>(send), {peer, type, count, 0}},
                   stream);
}

nccl_result ncclRecv(void *receive, size_t count, nccl_type type, int peer, nccl_comm *comm,
                     void *stream)
{
    return message(__func__, comm, {false, receive, {peer, type, count, 0}}, stream);
}
