/* SPDX-License-Identifier: Apache-2.0 */
/* The weights of a version, tensor by tensor: what hst_engine_save, or hst_engine_save_masters,
 * would give. */
#include "ckpt/ckpt.h"

#include "base/precision.h"
#include "plan/placement/record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct save {
    struct hst_ckpt *ckpt;
    const struct hst_writer *writer;
    struct optimizer_kernel kernel;
    enum hst_dtype dtype;   /* of what is written */
    bool masters;           /* in place of the working weights */
    unsigned char *weights; /* of a tile, where they are not all that it takes */
    float *joined;
    ckpt_take *take; /* in place of the writer; null: none */
    void *context;   /* its */
    struct hst_error *error;
};

/* Which extents of a tile it takes. Weights of fp16 have none: they are their masters, rounded. */
static bool takes_weights(const struct save *s)
{
    return !s->ckpt->derived_weights;
}

static bool takes_states(const struct save *s)
{
    return s->ckpt->derived_weights || (s->masters && s->ckpt->optimizer->has_master);
}

/* A frozen tile has its weights alone. */
static const void *frozen_values(const struct save *s, struct ckpt_part *part, uint32_t elements)
{
    if (part->extent.kind == EXTENT_STATES)
        return NULL;
    if (!s->masters)
        return part->bytes;
    return optimizer_widen(&s->kernel, part->bytes, s->joined, elements);
}

/* Null: what stands in its states is needed, too, and comes next. */
static const void *values_of(const struct save *s, struct ckpt_part *part, uint32_t elements)
{
    if (s->ckpt->layout.units[part->extent.range.unit].frozen)
        return frozen_values(s, part, elements);
    if (part->extent.kind == EXTENT_WEIGHTS) {
        if (!takes_states(s))
            return part->bytes;
        memcpy(s->weights, part->bytes, elements * optimizer_weight_bytes(s->ckpt->optimizer));
        return NULL;
    }
    const struct optimizer_arrays arrays =
        record_arrays(s->ckpt->optimizer, s->weights, part->bytes, elements);
    if (s->masters)
        return optimizer_masters(&s->kernel, &arrays, s->joined, elements);
    optimizer_derive(&s->kernel, &arrays, elements);
    return s->weights;
}

static int visit(void *context, struct ckpt_part *part)
{
    const struct save *s = context;
    const struct layout *model = s->ckpt->model;
    const struct tile_range range = layout_range_in(model, &s->ckpt->layout, part->extent.range);
    uint32_t next = layout_first_param_in(model, range);
    struct layout_overlap overlap;
    if (part->error)
        return ckpt_refuse_part(part, s->error);
    const unsigned char *values = values_of(s, part, range.elements);
    if (s->take)
        return values ? s->take(s->context, part->extent.tile, values) : 0;
    while (values && layout_next_overlap(model, range, &next, &overlap)) {
        const struct hst_param_ref ref = layout_param_ref(model, overlap.param);
        const int rc = s->writer->write(s->writer->context, &ref, overlap.in_param,
                                        values + overlap.in_tile * hst_dtype_bytes(s->dtype),
                                        overlap.count, s->dtype);
        if (rc)
            return rc;
    }
    return 0;
}

/* It is what a tile needs of memory beside what was read. */
static int make_room(struct save *s)
{
    const size_t elements = layout_largest_tile(&s->ckpt->layout);
    if (!takes_states(s))
        return 0;
    s->weights = malloc(elements * optimizer_weight_bytes(s->ckpt->optimizer));
    if (takes_weights(s))
        s->joined = malloc(elements * sizeof(float));
    if (s->weights && (s->joined || !takes_weights(s)))
        return 0;
    return store_refuse(s->error, HST_E_BUDGET, -ENOMEM,
                        "no memory for a tile's weights. Fix: end other programs");
}

static int save(struct save *s, const struct hst_ckpt_watch *watch)
{
    struct hst_ckpt *ckpt = s->ckpt;
    if (!ckpt->model)
        return store_refuse(s->error, HST_E_VALUE, -EINVAL,
                            "the weights of a store are saved with its model");
    s->kernel = optimizer_kernel_find(ckpt->optimizer, hst_cpu_adam_ops(HST_CPU_ISA_AUTO));
    s->dtype = s->masters ? HST_F32 : precision_dtype(ckpt->precision);
    const struct ckpt_reading reading = {
        .share = SHARE_ALL,
        .readers = CKPT_WRITER_ALL,
        .weights = takes_weights(s),
        .states = takes_states(s),
        .visit = visit,
        .context = s,
        .watch = watch,
    };
    int rc = make_room(s);
    if (rc && ckpt->shares) /* others ask in ckpt_read whether all can begin */
        rc = ckpt_agree(ckpt, rc, s->error);
    rc = rc ? rc : ckpt_read(ckpt, &reading, s->error);
    free(s->weights);
    free(s->joined);
    return rc;
}

int hst_ckpt_save(struct hst_ckpt *ckpt, const struct hst_writer *writer,
                  const struct hst_ckpt_watch *watch, struct hst_error *error)
{
    struct save s = {.ckpt = ckpt, .writer = writer, .error = error};
    return save(&s, watch);
}

int hst_ckpt_save_masters(struct hst_ckpt *ckpt, const struct hst_writer *writer,
                          const struct hst_ckpt_watch *watch, struct hst_error *error)
{
    struct save s = {.ckpt = ckpt, .writer = writer, .error = error, .masters = true};
    return save(&s, watch);
}

int ckpt_save_tiles(struct hst_ckpt *ckpt, bool masters, ckpt_take *take, void *context,
                    struct hst_error *error)
{
    struct save s = {
        .ckpt = ckpt, .take = take, .context = context, .error = error, .masters = masters};
    return save(&s, NULL);
}
