/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From event to event: a request becomes ready to move, one is complete, the cache is full. Between
 * two events all rates are constant, so the flow is advanced in one multiplication per direction.
 * Both ends of an event are whole nanoseconds, rounded up.
 */
#include "sim_model.h"

#include <assert.h>
#include <string.h>

static const uint64_t second_ns = 1000000000;

int hst_aio_sim_parse(const char *text, struct sim_speed *speed, char *why)
{
    const struct {
        const char *key;
        struct hst_aio_field field;
    } fields[] = {
        {"read", {&speed->read, HST_AIO_FIELD_RATE}},
        {"write", {&speed->write, HST_AIO_FIELD_RATE}},
        {"mixed", {&speed->mixed, HST_AIO_FIELD_RATE}},
        {"lat", {&speed->latency_ns, HST_AIO_FIELD_TIME}},
        {"jitter", {&speed->jitter_ns, HST_AIO_FIELD_TIME}},
        {"seed", {&speed->seed, HST_AIO_FIELD_NUMBER}},
        {"slc", {&speed->slc_bytes, HST_AIO_FIELD_BYTES}},
        {"slc_write", {&speed->slc_write, HST_AIO_FIELD_RATE}},
        {"drain", {&speed->drain, HST_AIO_FIELD_RATE}},
        {"size", {&speed->size_bytes, HST_AIO_FIELD_BYTES}},
    };
    enum { FIELDS = sizeof fields / sizeof *fields };
    struct hst_aio_word word;
    uint32_t seen = 0;
    *speed = (struct sim_speed){.slc_bytes = UINT64_MAX, .size_bytes = UINT64_MAX, .seed = 1};
    if (strncmp(text, "sim:", 4) != 0)
        return hst_aio_text_refuse(why, NULL, "a model begins with \"sim:\"");
    for (text += 4; hst_aio_text_next(&text, ";", &word);) {
        uint32_t i = 0;
        while (i < FIELDS && !hst_aio_text_is(word.key, word.key_length, fields[i].key))
            i++;
        if (i == FIELDS)
            return hst_aio_text_refuse(why, &word, "is no word of a model");
        int rc = hst_aio_text_once(&seen, i, &word, why);
        rc = rc ? rc : hst_aio_text_field(&word, &fields[i].field, why);
        if (rc < 0)
            return rc;
    }
    if (*text != '\0')
        return hst_aio_text_refuse(why, NULL, "a model has no \";\"");
    if (speed->read == 0 || speed->write == 0)
        return hst_aio_text_refuse(why, NULL,
                                   speed->read ? "write= is missing" : "read= is missing");
    if (speed->mixed > speed->read + speed->write)
        return hst_aio_text_refuse(why, NULL, "mixed= is more than read= and write= together");
    if (speed->mixed == 0)
        speed->mixed = (speed->read + speed->write) / 2;
    if (speed->slc_write == 0)
        speed->slc_write = speed->write / 4;
    if (speed->drain == 0)
        speed->drain = speed->slc_write;
    return 0;
}

static struct sim_request *head(const struct sim_flow *flow, int queue)
{
    const struct sim_queue *q = &flow->queues[queue];
    return q->count > 0 ? &q->requests[q->head] : NULL;
}

static struct sim_request *request_at(const struct sim_queue *q, uint32_t place)
{
    return &q->requests[(q->head + place) % q->capacity];
}

/* In the order in which they may start; what moves already stays first. */
void hst_aio_sim_arrive(struct sim_flow *flow, struct piece *piece, uint64_t now_ns)
{
    hst_aio_sim_run(flow, now_ns);
    const int queue = piece->kind == HST_AIO_READ    ? SIM_READS
                      : piece->kind == HST_AIO_WRITE ? SIM_WRITES
                                                     : SIM_SYNCS;
    struct sim_queue *q = &flow->queues[queue];
    assert(q->count < q->capacity);
    const uint64_t jitter_ns =
        flow->speed.jitter_ns > 0 ? hst_aio_random(&flow->random) % flow->speed.jitter_ns : 0;
    const uint64_t ready_ns = now_ns + flow->speed.latency_ns + jitter_ns;
    uint32_t place = q->count++;
    for (; place > 0 && request_at(q, place - 1)->ready_ns > ready_ns; place--)
        *request_at(q, place) = *request_at(q, place - 1);
    *request_at(q, place) = (struct sim_request){
        .piece = piece,
        .ready_ns = ready_ns,
        .number = flow->arrivals++,
        .left = (sim_work)piece->bytes * second_ns,
    };
}

static bool is_moving(const struct sim_flow *flow, int queue)
{
    const struct sim_request *request = head(flow, queue);
    return request && request->ready_ns <= flow->now_ns;
}

static bool is_full(const struct sim_flow *flow)
{
    return flow->speed.slc_bytes != UINT64_MAX &&
           flow->cached >= (sim_work)flow->speed.slc_bytes * second_ns;
}

/* Bytes per second of each direction, from now to the next event. */
static void rates(const struct sim_flow *flow, uint64_t rate[2])
{
    const struct sim_speed *speed = &flow->speed;
    const bool reads = is_moving(flow, SIM_READS), writes = is_moving(flow, SIM_WRITES);
    const uint64_t both = speed->read + speed->write;
    rate[SIM_READS] = reads ? speed->read : 0;
    rate[SIM_WRITES] = writes ? speed->write : 0;
    if (reads && writes) {
        rate[SIM_READS] = (uint64_t)((sim_work)speed->mixed * speed->read / both);
        rate[SIM_WRITES] = (uint64_t)((sim_work)speed->mixed * speed->write / both);
    }
    if (writes && is_full(flow) && rate[SIM_WRITES] > speed->slc_write)
        rate[SIM_WRITES] = speed->slc_write;
    for (int i = 0; i < 2; i++)
        if (rate[i] == 0 && (i == SIM_READS ? reads : writes))
            rate[i] = 1; /* a share of less than a byte per second */
}

static uint64_t after(uint64_t now_ns, sim_work work, uint64_t rate)
{
    const sim_work end_ns = now_ns + (work + rate - 1) / rate;
    return end_ns < UINT64_MAX ? (uint64_t)end_ns : UINT64_MAX - 1;
}

/* True where every request that arrived before the first sync is complete. */
static bool sync_is_due(const struct sim_flow *flow)
{
    const struct sim_request *sync = head(flow, SIM_SYNCS);
    if (!sync || sync->ready_ns > flow->now_ns)
        return false;
    for (int i = 0; i < SIM_SYNCS; i++)
        for (uint32_t place = 0; place < flow->queues[i].count; place++)
            if (request_at(&flow->queues[i], place)->number < sync->number)
                return false;
    return true;
}

uint64_t hst_aio_sim_next_ns(const struct sim_flow *flow)
{
    uint64_t next_ns = UINT64_MAX, rate[2];
    if (sync_is_due(flow))
        return flow->now_ns;
    rates(flow, rate);
    for (int i = 0; i < SIM_QUEUES; i++) {
        const struct sim_request *request = head(flow, i);
        if (!request)
            continue;
        uint64_t at_ns = request->ready_ns;
        if (at_ns <= flow->now_ns)
            at_ns = i == SIM_SYNCS ? UINT64_MAX : after(flow->now_ns, request->left, rate[i]);
        next_ns = at_ns < next_ns ? at_ns : next_ns;
    }
    if (rate[SIM_WRITES] > 0 && flow->speed.slc_bytes != UINT64_MAX && !is_full(flow)) {
        const sim_work room = (sim_work)flow->speed.slc_bytes * second_ns - flow->cached;
        const uint64_t full_ns = after(flow->now_ns, room, rate[SIM_WRITES]);
        next_ns = full_ns < next_ns ? full_ns : next_ns;
    }
    return next_ns;
}

static void move_bytes(struct sim_flow *flow, uint64_t duration_ns)
{
    uint64_t rate[2];
    rates(flow, rate);
    for (int i = 0; i < 2; i++) {
        struct sim_request *request = head(flow, i);
        sim_work work = (sim_work)rate[i] * duration_ns;
        if (work == 0)
            continue;
        if (work > request->left)
            work = request->left;
        request->left -= work;
        if (i == SIM_WRITES)
            flow->cached += work;
    }
    const sim_work full = (sim_work)flow->speed.slc_bytes * second_ns;
    if (flow->speed.slc_bytes == UINT64_MAX)
        flow->cached = 0;
    else if (flow->cached > full)
        flow->cached = full;
    if (head(flow, SIM_READS) || head(flow, SIM_WRITES) || head(flow, SIM_SYNCS))
        return;
    const sim_work drained = (sim_work)flow->speed.drain * duration_ns;
    flow->cached -= drained < flow->cached ? drained : flow->cached;
}

static void complete(struct sim_flow *flow, int queue)
{
    struct sim_queue *q = &flow->queues[queue];
    flow->finished[flow->finished_count++] = q->requests[q->head].piece;
    q->head = (q->head + 1) % q->capacity;
    q->count--;
}

void hst_aio_sim_run(struct sim_flow *flow, uint64_t to_ns)
{
    for (;;) {
        for (int i = 0; i < SIM_SYNCS; i++)
            while (is_moving(flow, i) && head(flow, i)->left == 0)
                complete(flow, i);
        while (sync_is_due(flow))
            complete(flow, SIM_SYNCS);
        if (flow->now_ns >= to_ns)
            return;
        uint64_t next_ns = hst_aio_sim_next_ns(flow);
        if (next_ns > to_ns)
            next_ns = to_ns;
        move_bytes(flow, next_ns - flow->now_ns);
        flow->now_ns = next_ns;
    }
}
