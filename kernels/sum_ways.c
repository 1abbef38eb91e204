/* SPDX-License-Identifier: Apache-2.0 */
/* The boundary of the sum of ways: tree, nodes and pointers are checked, as operations.c does. */
#include "base/object.h"
#include "base/sum_tree.h"
#include "check.h"
#include "host/host.h"
#include <errno.h>

/* It tells whether the output is input i, of the same type, or apart from it. */
static bool input_ok(const struct hst_sum_ways *args, uint32_t i)
{
    const enum hst_dtype in = hst_sum_type(&args->tree, sum_input(args, i));
    const enum hst_dtype out = hst_sum_type(&args->tree, sum_output(args));
    return (args->in[i] == args->out && in == out) ||
           apart(args->out, args->count * hst_dtype_bytes(out), args->in[i],
                 args->count * hst_dtype_bytes(in));
}

/* All but alignment, which the host's own call does not ask for. */
static bool sum_ok(const struct hst_sum_ways *args)
{
    if (!args || !sum_nodes_ok(args) || !fits(args->count, 1, 1, 1))
        return false;
    if (!args->count)
        return true;
    if (!args->in || !args->out || (uintptr_t)args->partial % sizeof(double))
        return false;
    for (uint32_t i = 0; i < args->inputs; i++)
        if (!args->in[i] || !input_ok(args, i))
            return false;
    return true;
}

int hst_op_sum_ways(struct hst_stream *stream, const struct hst_sum_ways *args)
{
    if (!stream || !sum_ok(args) || args->inputs > HST_SUM_INPUTS)
        return -EINVAL;
    if (args->count && !tensor_ok(args->out))
        return -EINVAL;
    for (uint32_t i = 0; args->count && i < args->inputs; i++)
        if (!tensor_ok(args->in[i]))
            return -EINVAL;
    return stream->dev->ops->sum_ways(stream, args);
}

int hst_host_sum_ways(const struct hst_sum_ways *args)
{
    if (!sum_ok(args))
        return -EINVAL;
    host_sum_ways(args);
    return 0;
}
