/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults between the backend and what judges its results: requests are kept from the drive, cut
 * short on their way there, and results changed or held back on their way up, as a plan says.
 */
#include "fault_plan.h"

#include <errno.h>
#include <stdlib.h>

struct held {
    struct piece *piece;
    uint64_t due_ns; /* of a late result */
    uint64_t later;  /* of a reordered one: results still to come before it; else UINT64_MAX */
};

struct fate { /* of a piece that is out */
    struct fault_strike strike;
    uint32_t asked_bytes;
};

struct fault {
    struct fault_plan plan;
    uint32_t inside;      /* at the backend */
    uint32_t ready_count; /* results that need no drive */
    uint32_t held_count;
    struct piece **ready; /* [piece_capacity] */
    struct held *held;    /* [piece_capacity], oldest first */
    struct fate *fates;   /* of aio->pieces */
};

int hst_aio_fault_open(struct hst_aio *aio, const char *text)
{
    struct fault *fault = calloc(1, sizeof *fault);
    if (!fault)
        return -ENOMEM;
    fault->ready = calloc(aio->piece_capacity, sizeof *fault->ready);
    fault->held = calloc(aio->piece_capacity, sizeof *fault->held);
    fault->fates = calloc(aio->piece_capacity, sizeof *fault->fates);
    aio->fault = fault;
    int rc = -ENOMEM;
    if (fault->ready && fault->held && fault->fates)
        rc = hst_aio_fault_parse(text, &fault->plan, aio->info.refusal);
    if (rc < 0)
        hst_aio_fault_close(aio);
    return rc;
}

void hst_aio_fault_close(struct hst_aio *aio)
{
    free(aio->fault->ready);
    free(aio->fault->held);
    free(aio->fault->fates);
    free(aio->fault);
    aio->fault = NULL;
}

/* Gives the drive the first `bytes` of a request; none of them: the result is there at once. */
static void push_part(struct hst_aio *aio, struct piece *piece, uint64_t bytes, int result)
{
    struct fault *fault = aio->fault;
    if (bytes == 0) {
        piece->result = result;
        fault->ready[fault->ready_count++] = piece;
        return;
    }
    piece->bytes = (uint32_t)bytes;
    fault->inside++;
    aio->ops->push(aio, piece);
}

void hst_aio_fault_push(struct hst_aio *aio, struct piece *piece)
{
    struct fault *fault = aio->fault;
    struct fate *fate = &fault->fates[piece - aio->pieces];
    const uint64_t grain_bytes = aio->ops->id == HST_AIO_SIM ? 512 : HST_AIO_ALIGN_BYTES;
    fate->asked_bytes = piece->bytes;
    fate->strike =
        hst_aio_fault_strike(&fault->plan, piece->kind, piece->offset, piece->bytes, grain_bytes);
    switch (fate->strike.what) {
    case FAULT_ERROR:
    case FAULT_VANISH:
        push_part(aio, piece, 0, fate->strike.error);
        break;
    case FAULT_TORN:
        push_part(aio, piece, fate->strike.amount, fate->strike.error);
        break;
    case FAULT_SHORT: /* what a drive can be asked for is whole blocks */
        push_part(aio, piece, fate->strike.amount / HST_AIO_ALIGN_BYTES * HST_AIO_ALIGN_BYTES,
                  (int)fate->strike.amount);
        break;
    default:
        fault->inside++;
        aio->ops->push(aio, piece);
        break;
    }
}

/*
 * Changes a result on its way up, which is number `before` of those that come now. Returns true
 * where it is held back.
 */
static bool alter(struct hst_aio *aio, struct piece *piece, uint32_t before)
{
    struct fault *fault = aio->fault;
    const struct fate *fate = &fault->fates[piece - aio->pieces];
    const struct fault_strike *strike = &fate->strike;
    const bool whole = piece->result == (int)piece->bytes;
    struct held *held = &fault->held[fault->held_count];
    piece->bytes = fate->asked_bytes;
    switch (strike->what) {
    case FAULT_TORN:
        piece->result = strike->error;
        return false;
    case FAULT_SHORT:
        if (whole)
            piece->result = (int)strike->amount;
        return false;
    case FAULT_FLIP:
        if (piece->kind == HST_AIO_READ && piece->result > 0) {
            const uint64_t bit = strike->amount % ((uint64_t)piece->result * 8);
            piece->buffer[bit / 8] ^= (char)(1 << bit % 8);
        }
        return false;
    case FAULT_LATE:
        *held = (struct held){piece, hst_aio_clock_ns(aio) + strike->amount, UINT64_MAX};
        fault->held_count++;
        return true;
    case FAULT_REORDERED:
        *held = (struct held){piece, UINT64_MAX, before + strike->amount};
        fault->held_count++;
        return true;
    default:
        return false;
    }
}

static uint64_t first_due_ns(const struct fault *fault)
{
    uint64_t due_ns = UINT64_MAX;
    for (uint32_t i = 0; i < fault->held_count; i++)
        if (fault->held[i].due_ns < due_ns)
            due_ns = fault->held[i].due_ns;
    return due_ns;
}

uint64_t hst_aio_fault_due_ns(const struct hst_aio *aio)
{
    const struct fault *fault = aio->fault;
    const bool stuck = fault->inside == 0 && fault->held_count > 0 &&
                       first_due_ns(fault) == UINT64_MAX; /* reordered ones only */
    return fault->ready_count > 0 || stuck ? 0 : first_due_ns(fault);
}

static uint32_t release_at(struct hst_aio *aio, uint32_t index, uint32_t count)
{
    struct fault *fault = aio->fault;
    aio->finished[count++] = fault->held[index].piece;
    fault->held_count--;
    for (uint32_t i = index; i < fault->held_count; i++)
        fault->held[i] = fault->held[i + 1];
    return count;
}

/* Adds the held results whose time or turn has come to the `count` that are finished. */
static uint32_t release_held(struct hst_aio *aio, uint32_t count)
{
    struct fault *fault = aio->fault;
    if (fault->held_count == 0)
        return count;
    const uint64_t now_ns = hst_aio_clock_ns(aio);
    for (uint32_t i = 0; i < fault->held_count;) {
        struct held *held = &fault->held[i];
        if (held->later != UINT64_MAX)
            held->later -= count < held->later ? count : held->later;
        if (held->due_ns <= now_ns || held->later == 0)
            count = release_at(aio, i, count);
        else
            i++;
    }
    if (count == 0 && fault->inside == 0 && first_due_ns(fault) == UINT64_MAX)
        count = release_at(aio, 0, 0);
    return count;
}

int hst_aio_fault_wait(struct hst_aio *aio, uint32_t least, uint64_t timeout_ns)
{
    struct fault *fault = aio->fault;
    if (least > 0 && hst_aio_fault_due_ns(aio) == 0)
        least = 0;
    if (least > 0 && fault->held_count > 0) {
        const uint64_t due_ns = first_due_ns(fault), now_ns = hst_aio_clock_ns(aio);
        const uint64_t left_ns = due_ns > now_ns ? due_ns - now_ns : 0;
        least = 1;
        timeout_ns = left_ns < timeout_ns ? left_ns : timeout_ns;
        if (fault->inside == 0)
            hst_aio_idle(aio, timeout_ns);
    }
    if (least > fault->inside)
        least = fault->inside;
    const int arrived = fault->inside > 0 ? aio->ops->wait(aio, least, timeout_ns) : 0;
    if (arrived < 0)
        return arrived;
    fault->inside -= (uint32_t)arrived;
    uint32_t count = 0;
    for (int i = 0; i < arrived; i++)
        if (!alter(aio, aio->finished[i], count))
            aio->finished[count++] = aio->finished[i];
    for (uint32_t i = 0; i < fault->ready_count; i++)
        aio->finished[count++] = fault->ready[i];
    fault->ready_count = 0;
    return (int)release_held(aio, count);
}
