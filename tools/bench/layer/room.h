/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_BENCH_LAYER_ROOM_H
#define HOISTWAY_TOOLS_BENCH_LAYER_ROOM_H
/* Between layer.c and layer_room.c: a layer, or norm and head, with all that they work on. */
#include "bench/layer/layer.h"
#include "model/layer/blocks.h"

struct layer_room {
    struct hst_dev *dev;
    struct hst_stream *stream;
    struct llama *model;
    bool head; /* norm and head, else a layer */
    struct hst_param_view param[LAYER_PARAM_MAX]; /* of the layer; of norm and head, one each */
    struct layer_work layer;
    struct norm_work norm;
    struct head_work of_head;
    struct head_io io;
    uint32_t *targets;
    /* the input and the gradient of the output as they begin, and as they are worked on */
    void *x0, *dx0, *x, *dx;
    void *memory;
    size_t memory_bytes;
};

/** A model of one layer with sequences of `seq`; all its memory, filled. Errors: negative errno
 * with *error. layer_room_close in every case. */
int layer_room_open(struct layer_room *room, const struct bench_layer_in *in, uint64_t seq,
                    struct hst_error *error);
void layer_room_close(struct layer_room *room);
/** A pass over it, to be enqueued to `stream`. */
struct pass layer_room_pass(const struct layer_room *room, struct hst_stream *stream);
/** Enqueues that x and dx are again what they were. */
int layer_room_restore(const struct layer_room *room);
/** Fills memory with numbers that GEMMs of any width leave finite, in every type. */
int layer_fill(struct hst_dev *dev, struct hst_stream *stream, void *memory, size_t bytes,
               enum hst_dtype dtype);

#endif
