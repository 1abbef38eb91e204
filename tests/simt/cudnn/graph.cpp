/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A graph, when it is finalized: whether its operations can be computed in their order, and which
 * of the two patterns it is that engines of fused attention serve.
 */
#include "double.h"

#include <set>

namespace hst_cudnn
{

/* ---- patterns -------------------------------------------------------------------------------- */

/* A letter per operation: of a product @, of a reduction S or M, of a reshape r. */
static char letter_of(const Operation &o)
{
    if (o.kind == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
        return '@';
    if (o.kind == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)
        return 'r';
    if (o.kind == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
        return o.mode == CUDNN_REDUCE_TENSOR_MAX ? 'M' : 'S';
    switch (o.mode) {
    case CUDNN_POINTWISE_MUL:
        return '*';
    case CUDNN_POINTWISE_ADD:
        return '+';
    case CUDNN_POINTWISE_SUB:
        return '-';
    case CUDNN_POINTWISE_DIV:
        return '/';
    case CUDNN_POINTWISE_EXP:
        return 'e';
    case CUDNN_POINTWISE_LOG:
        return 'l';
    case CUDNN_POINTWISE_GEN_INDEX:
        return 'i';
    case CUDNN_POINTWISE_CMP_GE:
        return '>';
    default: /* a selection */
        return '?';
    }
}

static const struct {
    const char *letters;
    Form form;
    bool is_grouped;
} patterns[] = {
    {"@*ii>?M-eSl+/@", Form::forward, false},
    {"*S*@*-ii>?er@@-**r@r@", Form::backward, false},
    {"*S*@*-ii>?er@S@-**r@Sr@", Form::backward, true},
};

static cudnnStatus_t recognise(Graph *graph)
{
    std::string letters;
    for (const Operation &o : graph->operations)
        letters += letter_of(o);
    for (auto &pattern : patterns)
        if (letters == pattern.letters) {
            graph->form = pattern.form;
            graph->is_grouped = pattern.is_grouped;
            return CUDNN_STATUS_SUCCESS;
        }
    return fail(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN, "no engine for the operations %s",
                letters.c_str());
}

/* ---- tensors of a graph ---------------------------------------------------------------------- */

struct Walk {
    Graph *graph;
    std::map<int64_t, Tensor> known;
    std::set<int64_t> written, read;
};

static bool is_same(const Tensor &a, const Tensor &b)
{
    return a.type == b.type && a.dims == b.dims && a.strides == b.strides &&
           a.alignment_bytes == b.alignment_bytes && a.is_virtual == b.is_virtual &&
           a.is_by_value == b.is_by_value;
}

static cudnnStatus_t meet(Walk *w, const Tensor &t)
{
    auto [found, is_new] = w->known.insert({t.uid, t});
    if (!is_same(found->second, t))
        return fail(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, "two tensors are called %lld",
                    (long long)t.uid);
    if (is_new && !t.is_virtual)
        w->graph->operands.push_back(t);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t read(Walk *w, const Tensor &t)
{
    w->read.insert(t.uid);
    if (t.is_virtual && !w->written.count(t.uid))
        return fail(CUDNN_STATUS_BAD_PARAM, "tensor %lld is read before it is written",
                    (long long)t.uid);
    return meet(w, t);
}

static cudnnStatus_t write(Walk *w, const Tensor &t)
{
    if (!w->written.insert(t.uid).second || w->read.count(t.uid))
        return fail(CUDNN_STATUS_BAD_PARAM, "tensor %lld is written twice, or after it is read",
                    (long long)t.uid);
    if (!t.is_virtual)
        w->graph->outputs.push_back(t.uid);
    return meet(w, t);
}

static cudnnStatus_t visit(Walk *w, const Operation &o)
{
    cudnnStatus_t status = read(w, o.x);
    if (!status && o.has_b)
        status = read(w, o.b);
    if (!status && o.has_t)
        status = read(w, o.t);
    return status ? status : write(w, o.y);
}

static cudnnStatus_t check_reads(const Walk &w)
{
    for (auto &[uid, tensor] : w.known)
        if (tensor.is_virtual && !w.read.count(uid))
            return fail(CUDNN_STATUS_BAD_PARAM, "tensor %lld is written and never read",
                        (long long)uid);
    return CUDNN_STATUS_SUCCESS;
}

static const Tensor &first_factor(const Graph &graph)
{
    for (const Operation &o : graph.operations)
        if (o.kind == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR && !o.x.is_virtual)
            return o.x;
    return graph.operations[0].x;
}

cudnnStatus_t finalize_graph(Descriptor *d)
{
    auto graph = std::make_shared<Graph>();
    Walk w = {graph.get(), {}, {}, {}};
    const auto *parts = values<cudnnBackendDescriptor_t>(*d, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    for (int64_t i = 0; i < count(*d, CUDNN_ATTR_OPERATIONGRAPH_OPS); i++) {
        const Descriptor *p = find(parts[i]);
        if (!p)
            return fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a graph's operation is destroyed");
        graph->operations.push_back(p->operation);
        if (cudnnStatus_t status = visit(&w, p->operation))
            return status;
    }
    cudnnStatus_t status = recognise(graph.get());
    if (!status)
        status = check_reads(w);
    if (status)
        return status;
    graph->q = first_factor(*graph);
    d->graph = graph;
    return CUDNN_STATUS_SUCCESS;
}

} // namespace hst_cudnn
