/* SPDX-License-Identifier: Apache-2.0 */
/* The working weights of a version, tensor by tensor: what hst_engine_save would give. */
#include "ckpt/ckpt.h"

#include "engine_state.h"
#include "plan/record.h"

#include <errno.h>
#include <stdlib.h>

struct save {
    struct hst_ckpt *ckpt;
    const struct hst_writer *writer;
    const struct hst_update *update;
    unsigned char *weights; /* of a tile, where they follow from its states */
    struct hst_error *error;
};

/* Working weights in fp16 are their masters, rounded. */
static const unsigned char *weights_of(const struct save *s, struct ckpt_part *part,
                                       uint32_t elements)
{
    if (!s->weights)
        return part->bytes;
    void *master = part->bytes; /* it begins the record */
    s->update->set_weights(master, s->weights, master, elements);
    return s->weights;
}

static int visit(void *context, struct ckpt_part *part)
{
    const struct save *s = context;
    struct hst_engine *engine = s->ckpt->model;
    const struct tile_range range = layout_tile(&engine->layout, part->extent.tile);
    uint32_t next = layout_first_param_in(&engine->layout, range);
    struct layout_overlap overlap;
    if (part->error)
        return ckpt_refuse_part(part, s->error);
    const unsigned char *weights = weights_of(s, part, range.elements);
    while (layout_next_overlap(&engine->layout, range, &next, &overlap)) {
        const struct hst_param_ref ref = layout_param_ref(&engine->layout, overlap.param);
        const int rc = s->writer->write(s->writer->context, &ref, overlap.in_param,
                                        weights + overlap.in_tile * s->ckpt->bytes.weights,
                                        overlap.count, hst_engine_dtype(engine));
        if (rc)
            return rc;
    }
    return 0;
}

int hst_ckpt_save(struct hst_ckpt *ckpt, const struct hst_writer *writer,
                  const struct hst_ckpt_watch *watch, struct hst_error *error)
{
    struct save s = {.ckpt = ckpt, .writer = writer, .error = error};
    if (!ckpt->model)
        return store_refuse(error, HST_E_VALUE, -EINVAL,
                            "the weights of a store are saved with its model");
    s.update = hst_update_find(hst_cpu_adam_ops(HST_CPU_ISA_AUTO),
                               record_kind(ckpt->precision, ckpt->state));
    if (ckpt->derived_weights) {
        s.weights = malloc((size_t)layout_largest_tile(&ckpt->layout) * ckpt->bytes.weights);
        if (!s.weights)
            return store_refuse(error, HST_E_BUDGET, -ENOMEM,
                                "no memory for a tile's weights. Fix: end other programs");
    }
    const struct ckpt_reading reading = {
        .share = {0, 1},
        .weights = !ckpt->derived_weights,
        .states = ckpt->derived_weights,
        .visit = visit,
        .context = &s,
        .watch = watch,
    };
    const int rc = ckpt_read(ckpt, &reading, error);
    free(s.weights);
    return rc;
}
