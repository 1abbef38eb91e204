/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors by name, widened to f32 as they are read. pread, never mmap: a file that shrinks is an
 * error, no signal.
 */
#include "hf/model.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "safetensors is little-endian, and read as it is");

static int compare_name(const void *key, const void *item)
{
    return strcmp(key, (*(struct st_tensor *const *)item)->name);
}

struct st_tensor *hf_tensor_find(const struct hf_model *model, const char *name)
{
    if (!model->tensor_count)
        return NULL;
    struct st_tensor **found =
        bsearch(name, model->by_name, model->tensor_count, sizeof *model->by_name, compare_name);
    return found ? *found : NULL;
}

bool hf_tensor_readable(const struct st_tensor *tensor)
{
    const char *name = tensor->dtype->name;
    return strcmp(name, "F32") == 0 || strcmp(name, "BF16") == 0 || strcmp(name, "F16") == 0;
}

static void format_dims(const uint64_t *dims, uint32_t dim_count, char *text, size_t bytes)
{
    size_t n = (size_t)snprintf(text, bytes, "[");
    for (uint32_t i = 0; i < dim_count && n < bytes; i++)
        n += (size_t)snprintf(text + n, bytes - n, "%s%" PRIu64, i ? ", " : "", dims[i]);
    if (n < bytes)
        snprintf(text + n, bytes - n, "]");
}

static int require(const struct hf_model *model, const char *name, uint32_t dim_count,
                   const uint64_t *dims, struct hst_error *error)
{
    struct st_tensor *t = hf_tensor_find(model, name);
    if (!t)
        return fail(error, FAIL_TENSOR, -ENOENT, "%s: tensor %.80s is missing", model->directory,
                    name);
    const char *path = model->files[t->file].path;
    if (t->dim_count != dim_count || memcmp(t->dims, dims, dim_count * sizeof *dims) != 0) {
        char found[96], want[96];
        format_dims(t->dims, t->dim_count, found, sizeof found);
        format_dims(dims, dim_count, want, sizeof want);
        return fail(error, FAIL_TENSOR, -EBADMSG,
                    "%s: tensor %.80s has shape %s, config.json asks for %s", path, name, found,
                    want);
    }
    if (!hf_tensor_readable(t))
        return fail(
            error, FAIL_TENSOR, -ENOTSUP,
            "%s: tensor %.80s has dtype %s; supported: F32, BF16, F16. Fix: save the model as "
            "float32, bfloat16 or float16",
            path, name, t->dtype->name);
    t->required = true;
    return 0;
}

int hf_model_require(const struct hf_model *model, const char *name, uint32_t dim_count,
                     const uint64_t *dims, struct hst_error *error)
{
    return hf_fix(error, require(model, name, dim_count, dims, error));
}

const char *hf_model_unused(const struct hf_model *model, size_t *count)
{
    static const char computed[] =
        "rotary_emb.inv_freq"; /* stored by old versions, computed here */
    const char *first = NULL;
    *count = 0;
    for (size_t i = 0; i < model->tensor_count; i++) {
        const struct st_tensor *t = model->by_name[i];
        size_t n = strlen(t->name), tail = sizeof computed - 1;
        if (t->required || (n >= tail && strcmp(t->name + n - tail, computed) == 0))
            continue;
        first = first ? first : t->name;
        ++*count;
    }
    return first;
}

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float of_bf16(uint16_t half)
{
    return from_bits((uint32_t)half << 16);
}

/* Exact: subnormals are multiples of 2^-24, an exponent of all ones stays one. */
static float of_f16(uint16_t half)
{
    uint32_t exponent = half >> 10 & 0x1fu, fraction = half & 0x3ffu;
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    if (exponent == 0)
        return (sign ? -0x1p-24f : 0x1p-24f) * (float)fraction;
    return from_bits(sign | (exponent == 31 ? 255u : exponent + 112u) << 23 | fraction << 13);
}

/*
 * 16-bit values lie in the upper half of dst; from the front, element i of the result ends at byte
 * 4(i+1), which is not beyond byte 2·count + 2(i+1), where the values that are still to be read
 * begin.
 */
static void widen_in_place(float *dst, size_t count, bool bf16)
{
    const char *src = (const char *)dst + 2 * count;
    for (size_t i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, src + 2 * i, 2);
        dst[i] = bf16 ? of_bf16(half) : of_f16(half);
    }
}

int hf_tensor_read(const struct hf_model *model, const struct st_tensor *t, uint64_t offset,
                   float *dst, size_t count, struct hst_error *error)
{
    const struct hf_file *file = &model->files[t->file];
    size_t width = t->dtype->bits / 8;
    bool half = width == 2;
    int rc = input_unchanged(&file->input) ? 0 : -ESTALE;
    if (rc)
        return fail(error, FAIL_READ, rc, "%s: the file was changed after it had been opened",
                    file->path);
    rc = input_read(&file->input, file->data_offset + t->begin + offset * width,
                    (char *)dst + (half ? 2 * count : 0), count * width);
    if (rc)
        return fail(error, FAIL_READ, rc,
                    "%s: tensor %.80s cannot be read at element %" PRIu64 ": %s", file->path,
                    t->name, offset, input_why(rc));
    if (half)
        widen_in_place(dst, count, strcmp(t->dtype->name, "BF16") == 0);
    return 0;
}

int hf_model_read(struct hf_model *model, const char *name, uint64_t offset, float *dst,
                  size_t count, struct hst_error *error)
{
    const struct st_tensor *t = hf_tensor_find(model, name);
    uint64_t elements = 0, end;
    if (t)
        st_elements(t->dims, t->dim_count, &elements);
    if (!t || !t->required || __builtin_add_overflow(offset, count, &end) || end > elements)
        return fail(error, FAIL_TENSOR, -EINVAL,
                    "tensor %.80s: elements %" PRIu64 " and on were not required", name, offset);
    return hf_fix(error, hf_tensor_read(model, t, offset, dst, count, error));
}
