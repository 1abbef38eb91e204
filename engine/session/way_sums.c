/* SPDX-License-Identifier: Apache-2.0 */
#include "session/way_sums.h"

#include "exec/visit/execute.h"
#include "session/slices.h"
#include "session/store/failure.h"
#include "session/views.h"

#include <errno.h>

/* Of a way, in the place of the micro-batch that came first. */
#define NO_MICRO       UINT32_MAX
#define SEVERAL_MICROS (UINT32_MAX - 1)

/* ---- configuration ---- */

static int refuse(struct hst_engine *engine, const char *text)
{
    return report_fail(&engine->report, HST_E_VALUE, -EINVAL, "%s", text);
}

static enum hst_quant quant_of(enum hst_reduce reduce)
{
    return reduce == HST_REDUCE_INT8 ? HST_INT8 : reduce == HST_REDUCE_INT4 ? HST_INT4 : 0;
}

int way_sums_configure(struct hst_engine *engine)
{
    struct hst_config *c = &engine->config;
    struct ways *ways = &engine->ways;
    const enum hst_dtype root = precision_dtype(c->precision);
    const uint32_t ranks = engine->ranks.ranks;
    c->ways = c->ways ? c->ways : ranks;
    c->hop = c->hop ? c->hop : HST_HOP_DEFAULT;
    if (c->reduce > HST_REDUCE_INT4)
        return refuse(engine, "reduce must be grads, f32, int8 or int4");
    if (c->gather != HST_GATHER_PLAIN && c->gather != HST_GATHER_INT8)
        return refuse(engine, "gather must be plain or int8");
    if (c->secondary != HST_SECONDARY_NONE && c->secondary != HST_SECONDARY_NODE)
        return refuse(engine, "secondary must be none or node");
    ways->tree = (struct hst_sum_tree){.ways = c->ways,
                                       .hop = c->hop,
                                       .reduce = c->reduce == HST_REDUCE_GRADS ? root : HST_F32,
                                       .root = root,
                                       .quant = quant_of(c->reduce)};
    if (!hst_sum_tree_valid(&ways->tree))
        return refuse(engine, "ways must be 1 to 65,536, and hop a power of two");
    if (c->batch_tokens % c->ways)
        return report_fail(&engine->report, HST_E_VALUE, -EINVAL,
                           "the %llu tokens of a step cannot be cut into %u equal ways. Fix: "
                           "--batch-tokens a multiple of --ways sequences",
                           (unsigned long long)c->batch_tokens, c->ways);
    ways->count = c->ways / ranks;
    ways->first = engine->ranks.rank * ways->count;
    if (c->ways % ranks || (ranks > 1 && (ways->count & (ways->count - 1))))
        return report_fail(&engine->report, HST_E_VALUE, -EINVAL,
                           "%u ways cannot be shared out among %u ranks, each of which has as many "
                           "as the others, a power of two. Fix: --ways %u",
                           c->ways, ranks, ranks);
    ways->tokens = c->batch_tokens / c->ways;
    ways->micro_tokens =
        c->micro_batch_tokens < ways->tokens ? c->micro_batch_tokens : ways->tokens;
    return 0;
}

/* ---- rounding ---- */

/* This is where a sum of ways is put together: a row of the unit's elements, in one piece, or in a
 * bucket, where each shard is in the part of its rank. */
struct row {
    unsigned char *data;
    enum hst_dtype dtype;
    uint64_t shard, stride; /* elements; shard 0: one piece */
};

static struct row row_of_grads(const struct hst_engine *engine, uint32_t unit)
{
    struct row row = {execute_operand(&engine->exec, EXTENT_GRADS, 0), ways_type(&engine->ways), 0,
                      0};
    if (engine->placement.buckets && engine_computes_in_dram(engine)) {
        const struct bucket_row in_bucket =
            bucket_row(&engine->placement, unit, hst_dtype_bytes(row.dtype));
        row.shard = in_bucket.shard;
        row.stride = in_bucket.stride;
    }
    return row;
}

static unsigned char *row_at(struct row row, uint64_t element)
{
    const uint64_t parts = row.shard > 0 ? element / row.shard : 0;
    return row.data +
           (parts * row.stride + element - parts * row.shard) * hst_dtype_bytes(row.dtype);
}

/* Of `count` elements from there on so many follow one another. */
static uint64_t run_of_row(struct row row, uint64_t element, uint64_t count)
{
    const uint64_t left = row.shard > 0 ? row.shard - element % row.shard : count;
    return left < count ? left : count;
}

/* src: f32, or null: zeros. */
static int put(struct hst_stream *stream, struct row row, uint64_t first, uint64_t count,
               const float *src)
{
    int rc = 0;
    for (uint64_t at = 0, n; rc == 0 && at < count; at += n) {
        n = run_of_row(row, first + at, count - at);
        const struct hst_cast round = {.count = n,
                                       .src_dtype = HST_F32,
                                       .dst_dtype = row.dtype,
                                       .src = src ? src + at : NULL,
                                       .dst = row_at(row, first + at)};
        rc = src ? hst_op_cast(stream, &round)
                 : hst_stream_zero(stream, round.dst, n * hst_dtype_bytes(row.dtype));
    }
    return rc;
}

static unsigned char *buffer_at(const struct hst_engine *engine, uint32_t buffer)
{
    const struct buffer_pool *pool = &engine->placement.way_sums;
    return engine->arena + pool->at + buffer * pool->bytes;
}

/* Adds an own parameter's gradient to that of the way before, which waits in a buffer. The device
 * reads the inputs when it comes to them, so each parameter has its own, the same in each step. */
static int join_param(struct hst_engine *engine, const struct layout_param *param, struct row row,
                      const struct ways_addition *joined)
{
    const size_t index = (size_t)(param - engine->layout.params);
    const uint32_t buffers = engine->placement.way_sums.count;
    const void **in = engine->way.joined[index * buffers + joined->in[0]];
    in[0] = buffer_at(engine, joined->in[0]) + param->offset * sizeof(float);
    in[1] = views_accumulator(engine, param);
    const struct hst_sum_ways sum = {.tree = engine->ways.tree,
                                     .first = joined->first,
                                     .each = 1,
                                     .inputs = 2,
                                     .in = in,
                                     .out = row_at(row, param->offset),
                                     .count = param->count};
    return hst_op_sum_ways(engine->exec.streams.unit, &sum);
}

/* Rounds an own parameter's gradient, or joins it, and leaves zeros up to the next one: the norm
 * runs over whole rows, and the row may be in a buffer that held another unit's. */
static int round_param(struct hst_engine *engine, const struct layout_param *param, uint64_t end,
                       struct row row, const struct ways_addition *joined)
{
    const uint64_t stop = param->offset + param->count;
    struct hst_stream *stream = engine->exec.streams.unit;
    const float *from = views_accumulator(engine, param);
    int rc = 0;
    if (joined)
        rc = join_param(engine, param, row, joined);
    else if ((const void *)from != row_at(row, param->offset)) /* else it is there */
        rc = put(stream, row, param->offset, param->count, from);
    return rc || end <= stop ? rc : put(stream, row, stop, end - stop, NULL);
}

/* joined: null, or the addition that takes the accumulated gradient as it is. */
static int round_into(struct hst_engine *engine, uint32_t unit, struct row row,
                      const struct ways_addition *joined)
{
    const struct layout *layout = &engine->layout;
    const struct layout_unit *u = &layout->units[unit];
    uint64_t end = u->elements;
    int rc = 0;
    for (uint32_t i = u->first_param + u->param_count; rc == 0 && i-- > u->first_param;) {
        const struct layout_param *param = &layout->params[i];
        if (param->owner != i)
            continue;
        rc = round_param(engine, param, end, row, joined);
        end = param->offset;
    }
    return rc;
}

/* ---- what integers give back ---- */

/* It dequantises a way that waits in a buffer for others of the rank. */
static int give_back_buffer(struct hst_engine *engine, uint32_t unit, uint32_t way, uint32_t buffer)
{
    const struct hst_sum_ways sum = {.tree = engine->ways.tree,
                                     .first = way,
                                     .each = 1,
                                     .inputs = 1,
                                     .in = engine->way.pairs[buffer][buffer],
                                     .out = buffer_at(engine, buffer),
                                     .count = engine->layout.units[unit].elements};
    return sum.tree.quant ? hst_op_sum_ways(engine->exec.streams.unit, &sum) : 0;
}

/* And the rank's only way, where others take it from. The device reads each input when it comes to
 * it: this step's are in the place of those of the step before, which were read. */
static int give_back_row(struct hst_engine *engine, uint32_t unit, struct row row)
{
    struct hst_sum_ways sum = {
        .tree = engine->ways.tree, .first = engine->ways.first, .each = 1, .inputs = 1};
    const uint64_t elements = sum.tree.quant ? engine->layout.units[unit].elements : 0;
    const void *(*in)[2] = engine->way.shards + (uint64_t)unit * engine->ranks.ranks;
    int rc = 0;
    for (uint64_t at = 0; rc == 0 && at < elements; at += sum.count, in++) {
        sum.count = run_of_row(row, at, elements - at);
        sum.out = row_at(row, at);
        in[0][0] = sum.out;
        sum.in = in[0];
        rc = hst_op_sum_ways(engine->exec.streams.unit, &sum);
    }
    return rc;
}

/* ---- sums ---- */

/* The last addition, into a bucket: shard by shard. Each has inputs of its own, as the device reads
 * them when it comes to it; they are the same in each step. */
static int add_into_bucket(struct hst_engine *engine, uint32_t unit, struct row row,
                           struct hst_sum_ways sum)
{
    const void *const *whole = sum.in;
    const enum hst_dtype dtype[] = {
        hst_sum_type(&sum.tree, (struct hst_sum_node){sum.first, sum.each}),
        hst_sum_type(&sum.tree, (struct hst_sum_node){sum.first + sum.each, sum.each})};
    const uint64_t elements = engine->layout.units[unit].elements;
    const void *(*in)[2] = engine->way.shards + (uint64_t)unit * engine->ranks.ranks;
    int rc = 0;
    for (uint64_t at = 0; rc == 0 && at < elements; at += sum.count, in++) {
        for (int i = 0; i < 2; i++)
            in[0][i] = (const unsigned char *)whole[i] + at * hst_dtype_bytes(dtype[i]);
        sum.in = in[0];
        sum.count = run_of_row(row, at, elements - at);
        sum.out = row_at(row, at);
        rc = hst_op_sum_ways(engine->exec.streams.unit, &sum);
    }
    return rc;
}

void way_sums_open(struct hst_engine *engine)
{
    const uint32_t count = engine->placement.way_sums.count;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = 0; j < count; j++) {
            engine->way.pairs[i][j][0] = buffer_at(engine, i);
            engine->way.pairs[i][j][1] = buffer_at(engine, j);
        }
}

static int add(struct hst_engine *engine, uint32_t unit, const struct ways_addition *addition)
{
    const struct row row = row_of_grads(engine, unit);
    const struct hst_sum_ways sum = {
        .tree = engine->ways.tree,
        .first = addition->first,
        .each = addition->each,
        .inputs = 2,
        .in = engine->way.pairs[addition->in[0]][addition->in[1]],
        .out = addition->last ? row.data : buffer_at(engine, addition->out),
        .count = engine->layout.units[unit].elements,
    };
    if (addition->last && row.shard > 0)
        return add_into_bucket(engine, unit, row, sum);
    return hst_op_sum_ways(engine->exec.streams.unit, &sum);
}

/* Says whether a way that the counter has taken is added to the one before right away, and is so in
 * f32 as it was accumulated: that addition, which then counts as made, reads the accumulator. */
static bool joins_at_once(const struct hst_engine *engine, uint32_t way,
                          struct ways_counter *counter, struct ways_addition *addition)
{
    const struct ways *ways = &engine->ways;
    const bool shards = engine->placement.buckets && engine_computes_in_dram(engine);
    struct ways_counter ahead = *counter;
    if (hst_sum_type(&ways->tree, (struct hst_sum_node){way, 1}) != HST_F32 || ways->tree.quant ||
        !ways_counter_next(ways, &ahead, addition) || addition->each != 1 ||
        (addition->last && shards))
        return false;
    *counter = ahead;
    return true;
}

/* The accumulated gradient of the way at hand goes into its buffer, or joins the way before it. */
static int take_way(struct hst_engine *engine, uint32_t unit, uint32_t buffer)
{
    const struct ways *ways = &engine->ways;
    const uint32_t way = ways->first + engine->way.at;
    struct row row = row_of_grads(engine, unit);
    struct ways_addition addition;
    const bool joins = joins_at_once(engine, way, &engine->way.counter, &addition);
    const struct hst_sum_node node = {joins ? addition.first : way, joins ? 2 : 1};
    if (!joins || !addition.last)
        row = (struct row){.data = buffer_at(engine, joins ? addition.out : buffer),
                           .dtype = hst_sum_type(&ways->tree, node)};
    const int rc = round_into(engine, unit, row, joins ? &addition : NULL);
    return rc || joins ? rc : give_back_buffer(engine, unit, way, buffer);
}

/* The accumulated gradient of the way at hand joins those of the ways before it. */
static int end_way(struct hst_engine *engine, uint32_t unit)
{
    const struct ways *ways = &engine->ways;
    struct ways_counter *counter = &engine->way.counter;
    if (engine->layout.units[unit].elements == 0 || engine->layout.units[unit].frozen)
        return 0;
    if (ways->count == 1) {
        const struct row all = row_of_grads(engine, unit);
        const int rounded = round_into(engine, unit, all, NULL);
        return rounded ? rounded : give_back_row(engine, unit, all);
    }
    struct ways_addition addition;
    int rc = take_way(engine, unit, ways_counter_push(ways, counter));
    while (rc == 0 && ways_counter_next(ways, counter, &addition))
        rc = add(engine, unit, &addition);
    return rc;
}

/* ---- accumulators ---- */

static uint64_t tied_bytes(const struct hst_engine *engine)
{
    return engine->layout.tied_elements * sizeof(float);
}

static unsigned char *tied_of_way(const struct hst_engine *engine, uint32_t way)
{
    return engine->arena + engine->placement.tied_of_ways + way * tied_bytes(engine);
}

/* Several units accumulate into tied gradients: with several ways each has its own between them. */
static bool keeps_tied(const struct hst_engine *engine, uint32_t unit)
{
    const struct layout_unit *u = &engine->layout.units[unit];
    bool tied = false;
    for (uint32_t i = 0; i < u->param_count; i++)
        tied = tied || engine->layout.params[u->first_param + i].tied;
    return tied && engine->ways.count > 1 && engine->layout.tied_elements > 0;
}

static int take_tied(struct hst_engine *engine, uint32_t unit, struct hst_stream *stream)
{
    if (!keeps_tied(engine, unit))
        return 0;
    return hst_stream_copy(stream, engine->arena + engine->placement.tied,
                           tied_of_way(engine, engine->way.at), tied_bytes(engine));
}

static int leave_tied(struct hst_engine *engine, uint32_t unit, struct hst_stream *stream)
{
    if (!keeps_tied(engine, unit))
        return 0;
    return hst_stream_copy(stream, tied_of_way(engine, engine->way.at),
                           engine->arena + engine->placement.tied, tied_bytes(engine));
}

/* A buffer has a unit's parameters as far apart as the accumulator has them, which ways take turns
 * with. A tied tensor between others has room in a buffer, and none in the accumulator. */
static bool lies_alike(const struct hst_engine *engine, uint32_t unit)
{
    const struct layout_unit *u = &engine->layout.units[unit];
    const struct layout_param *params = engine->layout.params;
    bool alike = true;
    for (uint32_t i = u->first_param; i < u->first_param + u->param_count; i++)
        alike = alike && (params[i].tied || params[i].grad_offset == params[i].offset);
    return alike;
}

/* Who writes may do so where the way's gradient, which is then f32, is to be: it is not copied. */
static unsigned char *place_of_way(const struct hst_engine *engine, uint32_t unit)
{
    const struct ways *ways = &engine->ways;
    const uint32_t way = ways->first + engine->way.at;
    if (!engine->layout.units[unit].writes_grads || !lies_alike(engine, unit) ||
        hst_sum_type(&ways->tree, (struct hst_sum_node){way, 1}) != HST_F32)
        return NULL;
    if (ways->count == 1) {
        const struct row row = row_of_grads(engine, unit);
        return row.shard > 0 ? NULL : row.data;
    }
    struct ways_counter ahead = engine->way.counter;
    struct ways_addition addition;
    const uint32_t buffer = ways_counter_push(ways, &ahead);
    return joins_at_once(engine, way, &ahead, &addition) ? NULL : buffer_at(engine, buffer);
}

/* Who writes a way's first gradient needs no zeros. */
static int begin_own(struct hst_engine *engine, uint32_t unit, struct hst_stream *stream)
{
    const uint64_t elements = engine->layout.units[unit].grad_elements;
    engine->way.first_micro = NO_MICRO;
    engine->way.in_place = elements > 0 ? place_of_way(engine, unit) : NULL;
    if (elements == 0 || engine->layout.units[unit].writes_grads)
        return 0;
    return hst_stream_zero(stream, engine->arena + engine->placement.accumulator,
                           elements * sizeof(float));
}

/* Before the step's first backward. */
static int zero_tied(struct hst_engine *engine, struct hst_stream *stream)
{
    const uint64_t bytes = tied_bytes(engine);
    if (engine->step.ready_units > engine->layout.resting_units || bytes == 0)
        return 0;
    int rc = hst_stream_zero(stream, engine->arena + engine->placement.tied, bytes);
    if (rc == 0 && engine->ways.count > 1)
        rc = hst_stream_zero(stream, tied_of_way(engine, 0), bytes * engine->ways.count);
    return rc;
}

int way_sums_begin(struct hst_engine *engine, uint32_t unit, struct hst_stream *stream)
{
    engine->way.at = 0;
    engine->way.counter = (struct ways_counter){.count = 0};
    int rc = zero_tied(engine, stream);
    rc = rc ? rc : take_tied(engine, unit, stream);
    rc = rc ? rc : begin_own(engine, unit, stream);
    return rc ? engine_fail_device(engine, rc, "zeroing gradients") : 0;
}

static int pass_way(struct hst_engine *engine, uint32_t unit)
{
    struct hst_stream *stream = engine->exec.streams.unit;
    int rc = end_way(engine, unit);
    rc = rc ? rc : leave_tied(engine, unit, stream);
    engine->way.at++;
    if (rc || engine->way.at == engine->ways.count)
        return rc;
    rc = take_tied(engine, unit, stream);
    return rc ? rc : begin_own(engine, unit, stream);
}

/* Nobody has written the gradients of the way at hand, which are any bits. */
static bool is_unwritten(const struct hst_engine *engine, uint32_t unit)
{
    const struct layout_unit *u = &engine->layout.units[unit];
    return u->writes_grads && u->grad_elements > 0 && engine->way.first_micro == NO_MICRO;
}

static int refuse_unwritten(struct hst_engine *engine, uint32_t unit)
{
    return report_refuse(&engine->report,
                         "unit %u writes its gradients, and no micro-batch of way %u came. Fix: "
                         "hst_act_acquire for each, or no HST_UNIT_WRITES_GRADS",
                         slices_described(engine, unit), engine->ways.first + engine->way.at);
}

int way_sums_reach(struct hst_engine *engine, uint32_t unit, uint32_t micro)
{
    const uint32_t way = ways_of_micro(&engine->ways, micro);
    int rc = 0;
    if (way < engine->way.at)
        return report_refuse(&engine->report,
                             "micro-batch %u comes behind those of a later way: a backward takes "
                             "them in their order",
                             micro);
    while (rc == 0 && engine->way.at < way) {
        if (is_unwritten(engine, unit))
            return refuse_unwritten(engine, unit);
        rc = pass_way(engine, unit);
    }
    if (engine->way.first_micro == NO_MICRO)
        engine->way.first_micro = micro;
    else if (engine->way.first_micro != micro)
        engine->way.first_micro = SEVERAL_MICROS;
    views_set_grads(engine, unit, engine->way.first_micro == micro);
    return rc ? engine_fail_device(engine, rc, "adding gradients") : 0;
}

int way_sums_end(struct hst_engine *engine, uint32_t unit)
{
    const uint32_t left = engine->ways.count - engine->way.at;
    if (left > 1)
        return report_refuse(&engine->report,
                             "gradients of unit %u are not complete: %u of its %u ways were not "
                             "begun",
                             slices_described(engine, unit), left - 1, engine->ways.count);
    if (is_unwritten(engine, unit))
        return refuse_unwritten(engine, unit);
    int rc = pass_way(engine, unit);
    return rc ? engine_fail_device(engine, rc, "rounding gradients") : 0;
}
