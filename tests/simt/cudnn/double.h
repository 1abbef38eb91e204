/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_SIMT_CUDNN_DOUBLE_H
#define HST_SIMT_CUDNN_DOUBLE_H
/*
 * Inside the fake cuDNN: a descriptor as it was set, and what becomes of it when it is finalized.
 * What is finalized is copied into what refers to it, so nothing here depends on a descriptor that
 * its owner may destroy.
 */
#include <cudnn.h>

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace hst_cudnn {

enum { AXES = 4 }; /* batch, head, row, column: the double knows no other tensors */
using Extents = std::array<int64_t, AXES>;

struct Tensor {
    int64_t uid, alignment_bytes;
    cudnnDataType_t type;
    Extents dims, strides;
    bool is_virtual, is_by_value;
};

/* y is written. A product reads x and b; a selection reads x where t is true, and else b. */
struct Operation {
    cudnnBackendDescriptorType_t kind;
    int mode; /* cudnnPointwiseMode_t, or cudnnReduceTensorOp_t of a reduction */
    int64_t axis;
    Tensor x, b, t, y;
    bool has_b, has_t;
};

enum class Form { forward, backward };

struct Graph {
    Form form;
    std::vector<Operation> operations; /* in the order in which they can be computed */
    std::vector<Tensor> operands;      /* what a variant pack has to have: memory and scalars */
    std::vector<int64_t> outputs;      /* uids of the memory that is written */
    Tensor q;                          /* the first operand of a product that is none's result */
    bool is_grouped;                   /* keys have fewer heads than queries */
};

struct Engine {
    int64_t number;
    std::map<int, int64_t> knobs;
    std::shared_ptr<const Graph> graph;
};

struct Attribute {
    cudnnBackendAttributeType_t type;
    int64_t count;
    std::vector<char> bytes;
};

struct Descriptor {
    cudnnBackendDescriptorType_t type;
    bool is_finalized;
    std::map<int, Attribute> attributes; /* by cudnnBackendAttributeName_t, as they were set */
    Tensor tensor;                       /* of a tensor */
    Operation operation;                 /* of an operation */
    std::shared_ptr<const Graph> graph;  /* of an operation graph, a heuristic */
    Engine engine;                       /* of an engine, a configuration, a plan */
    int64_t work_bytes;                  /* of a plan */
};

/* ---- descriptors (descriptors.cpp) ----------------------------------------------------------- */

/** Writes the calling thread's last error string and returns the status. */
cudnnStatus_t fail(cudnnStatus_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/** Null where there is no such descriptor (any more). */
Descriptor *find(cudnnBackendDescriptor_t descriptor);
/** The values of an attribute, null where it was not set. */
template <class T> const T *values(const Descriptor &d, cudnnBackendAttributeName_t name)
{
    auto found = d.attributes.find(name);
    return found == d.attributes.end() ? nullptr
                                       : reinterpret_cast<const T *>(found->second.bytes.data());
}
int64_t count(const Descriptor &d, cudnnBackendAttributeName_t name);
/** The descriptor that an attribute is; null where it was not set, or is destroyed. */
const Descriptor *part(const Descriptor &d, cudnnBackendAttributeName_t name);

/* ---- what a type can be set to (rules.cpp) --------------------------------------------------- */

struct Rule {
    cudnnBackendDescriptorType_t owner;
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t least, most; /* how many values */
    bool is_required;    /* before the descriptor is finalized */
    int part;            /* where values are descriptors: their type */
};
enum { ANY_OPERATION = -1, NO_PART = -2 };

bool is_known(cudnnBackendDescriptorType_t type);
/** Null: the type has no such attribute. */
const Rule *rule_of(cudnnBackendDescriptorType_t owner, cudnnBackendAttributeName_t name);
/** Success, or which required attribute was not set. */
cudnnStatus_t check_complete(const Descriptor &d);

/* ---- finalizing (operations.cpp, graph.cpp, engines.cpp) ------------------------------------- */

cudnnStatus_t finalize_tensor(Descriptor *d);
cudnnStatus_t finalize_operation(Descriptor *d);
cudnnStatus_t finalize_graph(Descriptor *d);
cudnnStatus_t finalize_heuristic(Descriptor *d);
cudnnStatus_t finalize_engine(Descriptor *d);
cudnnStatus_t finalize_configuration(Descriptor *d);
cudnnStatus_t finalize_plan(Descriptor *d);
cudnnStatus_t finalize_pack(Descriptor *d);

/** What is proposed for a graph on the current device, best first. */
std::vector<Engine> propose(const std::shared_ptr<const Graph> &graph, cudnnBackendHeurMode_t mode);

/* ---- execution (execute.cpp, evaluate.cpp) --------------------------------------------------- */

/* Where a graph's operands are: memory and scalars, by uid. */
struct Operands {
    std::map<int64_t, void *> memory;
    std::map<int64_t, float> scalars;
};

/** Checks the operands and enqueues a run on the handle's stream. */
cudnnStatus_t execute(cudnnHandle_t handle, const Descriptor &plan, const Descriptor &pack);

/** Computes the graph, one operation after the other. Device memory is open. */
void evaluate(const Graph &graph, const Operands &operands, bool is_exact);

size_t bytes_of(cudnnDataType_t type);
/** Elements from the first to behind the last. */
int64_t extent_of(const Tensor &tensor);

/* ---- configuration: the environment's HST_FAKE_CUDNN (execute.cpp) --------------------------- */

struct Config {
    size_t version = CUDNN_VERSION;
    bool is_exact = false; /* tensors between operations are not rounded */
};
/** A call of this function is made: what HST_FAKE_CUDA says of it. */
cudnnStatus_t planned(const char *function);
/** Whether the handle is one that was created and not destroyed. */
bool is_handle(cudnnHandle_t handle);

} // namespace hst_cudnn

/** For tests: as if the process had begun with this HST_FAKE_CUDNN. */
extern "C" void hst_fake_cudnn_configure(const char *text);
/** For tests: descriptors that were created and not destroyed, and runs that were enqueued. */
extern "C" size_t hst_fake_cudnn_live(void);
extern "C" size_t hst_fake_cudnn_runs(void);

#endif
