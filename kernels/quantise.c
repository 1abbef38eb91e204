/* SPDX-License-Identifier: Apache-2.0 */
/* The boundary of quantised values: widths, types, pointers are checked, as operations.c does. */
#include "base/object.h"
#include "check.h"
#include "host/host.h"

#include <errno.h>

size_t hst_quant_bytes(enum hst_quant bits, size_t count)
{
    return bits == HST_INT8 ? count : bits == HST_INT4 ? count / 2 + count % 2 : 0;
}

size_t hst_quant_scales(size_t count)
{
    return count / HST_QUANT_BLOCK + (count % HST_QUANT_BLOCK > 0);
}

/* Both ways have the same three pieces of memory. */
struct pieces {
    enum hst_quant bits;
    enum hst_dtype dtype;
    size_t count;
    const void *values, *codes;
    const float *scales;
};

static struct pieces of_quantise(const struct hst_quantise *a)
{
    return (struct pieces){a->bits, a->dtype, a->count, a->values, a->codes, a->scales};
}

static struct pieces of_dequantise(const struct hst_dequantise *a)
{
    return (struct pieces){a->bits, a->dtype, a->count, a->values, a->codes, a->scales};
}

static bool is_aligned(const void *memory, size_t bytes)
{
    return memory && (uintptr_t)memory % bytes == 0;
}

/* All but the alignment that devices ask for. */
static bool are_ok(struct pieces p)
{
    if ((p.bits != HST_INT8 && p.bits != HST_INT4) || !dtype_ok(p.dtype) || !fits(p.count, 1, 1, 1))
        return false;
    const size_t values = p.count * hst_dtype_bytes(p.dtype);
    const size_t codes = hst_quant_bytes(p.bits, p.count);
    const size_t scales = hst_quant_scales(p.count) * sizeof(float);
    return p.count == 0 ||
           (is_aligned(p.values, hst_dtype_bytes(p.dtype)) && p.codes &&
            is_aligned(p.scales, sizeof(float)) && apart(p.values, values, p.codes, codes) &&
            apart(p.values, values, p.scales, scales) && apart(p.codes, codes, p.scales, scales));
}

static bool are_tensors(struct pieces p)
{
    return p.count == 0 || (tensor_ok(p.values) && tensor_ok(p.codes) && tensor_ok(p.scales));
}

int hst_op_quantise(struct hst_stream *stream, const struct hst_quantise *args)
{
    if (!stream || !args || !are_ok(of_quantise(args)) || !are_tensors(of_quantise(args)))
        return -EINVAL;
    return stream->dev->ops->quantise(stream, args);
}

int hst_op_dequantise(struct hst_stream *stream, const struct hst_dequantise *args)
{
    if (!stream || !args || !are_ok(of_dequantise(args)) || !are_tensors(of_dequantise(args)))
        return -EINVAL;
    return stream->dev->ops->dequantise(stream, args);
}

int hst_host_quantise(const struct hst_quantise *args)
{
    if (!args || !are_ok(of_quantise(args)))
        return -EINVAL;
    host_quantise(args);
    return 0;
}

int hst_host_dequantise(const struct hst_dequantise *args)
{
    if (!args || !are_ok(of_dequantise(args)))
        return -EINVAL;
    host_dequantise(args);
    return 0;
}
