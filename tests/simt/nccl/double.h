/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_SIMT_NCCL_DOUBLE_H
#define HST_SIMT_NCCL_DOUBLE_H
/*
 * Inside the double of NCCL: ranks are processes of this machine, each with a fake GPU. They meet
 * in a segment of shared memory for each communicator. An operation is two pieces of work in the
 * rank's stream: it brings what it sends, then it takes what it receives, once all ranks have
 * brought theirs. So nothing of it runs before its stream comes to it, and no rank ends an
 * operation that another one has not come to.
 */
#include "../runtime/runtime.h"
#include "comm/nccl/api.h"

#include <atomic>
#include <cstdarg>

namespace hst_nccl {

enum { RANKS_MOST = 16, PARTS_MOST = 512, SPLITS_MOST = 16, WINDOWS_MOST = 256 };
enum : size_t { SLOT_BYTES = (size_t)64 << 20 }; /* of what a rank brings; pages that it touches */

/* ---- configuration (config.cpp): environment HST_FAKE_NCCL, README.md ------------------------ */

struct Fault {
    enum What { none, error, hang, die, async } what = none;
    std::string function;
    unsigned long call = 0, calls = 0; /* the call-th; so far */
    nccl_result result = NCCL_SUCCESS; /* of error and async */
};
struct Config {
    int version = 22809;
    int rank = -1; /* whom the faults strike; -1: each */
    unsigned in_progress = 0;
    std::string host; /* "": this machine's name */
    std::string log;
    std::vector<Fault> faults;
};
Config &config();
/** A call of that function by that rank of the world: what becomes of it. A process that is to die
 * does so here. */
Fault::What strike(const char *function, int rank, nccl_result *result);
[[noreturn]] void stop(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- meeting (meeting.cpp) ------------------------------------------------------------------- */

/* What an operation is: all ranks must have begun the same. */
struct Call {
    enum Kind : uint32_t { gather = 1, all_to_all, all_reduce, broadcast, messages } kind;
    int32_t type, root;
    uint64_t count;
};
struct Part { /* one message of a group */
    int32_t peer, type;
    uint64_t count, at; /* at: where its bytes are in the sender's slot */
};
struct Seat { /* a rank's, of a communicator */
    std::atomic<uint32_t> here;
    int32_t device;
    char host[64];
    std::atomic<uint64_t> brought, taken; /* operations */
    Call call;
    uint32_t sends;
    Part send[PARTS_MOST];
    struct {
        std::atomic<uint32_t> said;
        int32_t color, key;
    } split[SPLITS_MOST];
    struct {
        std::atomic<uint32_t> said;
        uint64_t bytes, offset;
    } window[WINDOWS_MOST];
};
struct Table {
    std::atomic<uint64_t> open; /* rank 0's process, once the table can be used */
    Seat seat[RANKS_MOST];
};

/* The operations of a communicator that are in a stream; it outlives the handle. */
struct Group {
    std::string name;
    int ranks = 0, rank = 0, world_rank = 0;
    Table *table = nullptr;
    char *slot[RANKS_MOST] = {};
    uint64_t enqueued = 0;
    std::atomic<bool> aborted{false};
    ~Group();
    Seat &own() { return table->seat[rank]; }
};
/** True once all ranks sit at the table; to be called until then. */
bool sit_down(Group *group, int device);
/** Two ranks that have one GPU: their numbers. */
bool shares_device(const Group &group, int pair[2]);
/** True once `said` of all ranks, each a member of its seat, is set. */
template <class Said> bool all_said(const Group &group, Said said)
{
    for (int r = 0; r < group.ranks; r++)
        if (!said(group.table->seat[r]))
            return false;
    return true;
}

/* ---- operations (collectives.cpp) ------------------------------------------------------------ */

struct Message {
    bool send;
    void *memory;
    Part part;
};
struct Work { /* an operation that is about to be enqueued */
    Call call;
    const char *send;
    char *receive;
    std::vector<Message> messages;
    bool hangs;
};
size_t type_bytes(int32_t type);
cudaError_t enqueue(const std::shared_ptr<Group> &group, const Work &work, cudaStream_t stream);

} // namespace hst_nccl
#endif
