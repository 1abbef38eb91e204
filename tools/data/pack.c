/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Best fit decreasing over windows of the seeded order. A window keeps two tables by the room that
 * is left: a list of the rows with that room, and a set of the rooms that some row has, in which
 * the least one that is enough is a few instructions away. Both are bounded by T, so that a
 * document costs the same whatever number of rows is open.
 *
 * Which of several rows with the same room takes a document does not change how full rows become:
 * the last one that came to have that room does. The rule is part of what a run means.
 */
#include "data/pack.h"

#include "data/order.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NO_ROW UINT32_MAX
#define AHEAD  64u /* documents whose offsets are asked for before the first is looked at */

/* A set of whole numbers below 64 · word_count; bit g of groups: words[g] is not 0. */
struct room_set {
    uint64_t *words, *groups;
    uint32_t group_count;
};

static void room_add(struct room_set *set, uint32_t room)
{
    const uint32_t word = room >> 6;
    set->words[word] |= UINT64_C(1) << (room & 63);
    set->groups[word >> 6] |= UINT64_C(1) << (word & 63);
}

static void room_remove(struct room_set *set, uint32_t room)
{
    const uint32_t word = room >> 6;
    set->words[word] &= ~(UINT64_C(1) << (room & 63));
    if (!set->words[word])
        set->groups[word >> 6] &= ~(UINT64_C(1) << (word & 63));
}

/* The least member that is not below `least`; 0: there is none. */
static uint32_t room_find(const struct room_set *set, uint32_t least)
{
    uint32_t word = least >> 6;
    uint64_t bits = set->words[word] & (~UINT64_C(0) << (least & 63));
    if (!bits) {
        uint32_t group = ++word >> 6;
        uint64_t some = set->groups[group] & (~UINT64_C(0) << (word & 63));
        while (!some) {
            if (++group == set->group_count)
                return 0;
            some = set->groups[group];
        }
        word = group << 6 | (uint32_t)__builtin_ctzll(some);
        bits = set->words[word];
    }
    return word << 6 | (uint32_t)__builtin_ctzll(bits);
}

/* A whole document, or the last piece of a long one. */
struct waiting {
    uint64_t first;
    uint32_t document, count;
};

struct placed {
    uint32_t waiting; /* which one */
    uint32_t count, row, column;
};

/* These are packed together. */
struct window {
    uint32_t seq_len;
    uint32_t count; /* that wait */
    uint32_t rows;  /* counted from the window's first */
    struct room_set rooms;
    uint32_t *newest;        /* [T + 1]: of the rows with that room */
    uint32_t *older;         /* [PACK_WINDOW]: the next one with the same room */
    uint32_t *starts;        /* [T + 2], [PACK_WINDOW + 1]: of a counting sort */
    struct waiting *waiting; /* [PACK_WINDOW] */
    struct placed *placed;   /* [PACK_WINDOW]: the longest first */
};

static void window_free(struct window *w)
{
    free(w->rooms.words);
    free(w->rooms.groups);
    free(w->newest);
    free(w->older);
    free(w->starts);
    free(w->waiting);
    free(w->placed);
}

static int window_make(struct window *w, uint32_t seq_len)
{
    const uint32_t words = (seq_len >> 6) + 1;
    const size_t starts = (seq_len > PACK_WINDOW ? seq_len : PACK_WINDOW) + 2;
    *w = (struct window){.seq_len = seq_len, .rooms.group_count = (words >> 6) + 1};
    w->rooms.words = calloc(words, sizeof *w->rooms.words);
    w->rooms.groups = calloc(w->rooms.group_count, sizeof *w->rooms.groups);
    w->newest = malloc((seq_len + 1) * sizeof *w->newest);
    w->older = malloc(PACK_WINDOW * sizeof *w->older);
    w->starts = malloc(starts * sizeof *w->starts);
    w->waiting = malloc(PACK_WINDOW * sizeof *w->waiting);
    w->placed = calloc(PACK_WINDOW, sizeof *w->placed);
    if (w->rooms.words && w->rooms.groups && w->newest && w->older && w->starts && w->waiting &&
        w->placed)
        return 0;
    window_free(w);
    return -ENOMEM;
}

/* Keys become places: starts[k + 1] holds how many have key k, and then where key k begins. */
static void sum_starts(uint32_t *starts, uint32_t keys)
{
    for (uint32_t k = 1; k < keys; k++)
        starts[k] += starts[k - 1];
}

/* The longest first, those of one length as they came. */
static void sort_by_length(struct window *w)
{
    const uint32_t most = w->seq_len;
    memset(w->starts, 0, (most + 2) * sizeof *w->starts);
    for (uint32_t i = 0; i < w->count; i++)
        w->starts[most - w->waiting[i].count + 1]++;
    sum_starts(w->starts, most + 1);
    for (uint32_t i = 0; i < w->count; i++) {
        const uint32_t count = w->waiting[i].count;
        w->placed[w->starts[most - count]++] = (struct placed){.waiting = i, .count = count};
    }
}

/* Takes a row with enough room off its list, or opens one; *room: what it has. */
static uint32_t take_row(struct window *w, uint32_t count, uint32_t *room)
{
    *room = room_find(&w->rooms, count);
    if (!*room) {
        *room = w->seq_len;
        return w->rows++;
    }
    const uint32_t row = w->newest[*room];
    w->newest[*room] = w->older[row];
    if (w->newest[*room] == NO_ROW)
        room_remove(&w->rooms, *room);
    return row;
}

static void keep_row(struct window *w, uint32_t row, uint32_t room)
{
    w->older[row] = w->newest[room];
    w->newest[room] = row;
    room_add(&w->rooms, room);
}

/* Each one's row and column. */
static void place(struct window *w, bool apart)
{
    memset(w->newest, 0xff, (w->seq_len + 1) * sizeof *w->newest);
    memset(w->rooms.words, 0, ((w->seq_len >> 6) + 1) * sizeof *w->rooms.words);
    memset(w->rooms.groups, 0, w->rooms.group_count * sizeof *w->rooms.groups);
    w->rows = 0;
    for (uint32_t i = 0; i < w->count; i++) {
        struct placed *p = &w->placed[i];
        uint32_t room;
        p->row = take_row(w, p->count, &room);
        p->column = w->seq_len - room;
        if (room > p->count && !apart)
            keep_row(w, p->row, room - p->count);
    }
}

/* Row by row. Within a row the columns have risen as they were placed. */
static void put_rows(struct window *w, struct pack *pack)
{
    memset(w->starts, 0, (w->rows + 1) * sizeof *w->starts);
    for (uint32_t i = 0; i < w->count; i++)
        w->starts[w->placed[i].row + 1]++;
    sum_starts(w->starts, w->rows);
    struct pack_piece *pieces = &pack->pieces[pack->piece_count];
    for (uint32_t i = 0; i < w->count; i++) {
        const struct placed *p = &w->placed[i];
        const struct waiting *from = &w->waiting[p->waiting];
        pieces[w->starts[p->row]++] = (struct pack_piece){
            .first = from->first,
            .document = from->document,
            .row = (uint32_t)pack->row_count + p->row,
            .column = p->column,
            .count = p->count,
        };
    }
    pack->piece_count += w->count;
    pack->row_count += w->rows;
    w->count = 0;
}

/* A whole row of a document that is split. */
static void put_full(struct pack *pack, uint32_t document, uint64_t first, uint32_t seq_len)
{
    pack->pieces[pack->piece_count++] = (struct pack_piece){
        .first = first,
        .document = document,
        .row = (uint32_t)pack->row_count++,
        .count = seq_len,
    };
}

static void take_document(struct window *w, struct pack *pack, const uint64_t *offsets,
                          uint32_t document, enum pack_long longer)
{
    uint64_t first = offsets[document];
    uint64_t inputs = offsets[document + 1] - first;
    inputs -= inputs > 0;
    if (inputs > w->seq_len && longer == PACK_LONG_DROP)
        return;
    if (inputs > w->seq_len && longer == PACK_LONG_CUT)
        inputs = w->seq_len;
    for (; inputs > w->seq_len; inputs -= w->seq_len, first += w->seq_len)
        put_full(pack, document, first, w->seq_len);
    if (inputs)
        w->waiting[w->count++] = (struct waiting){first, document, (uint32_t)inputs};
}

/* Documents [k, end) of the seeded order. Each one's offsets are somewhere else in memory: to wait
 * for them one by one took most of the time. */
static void take_documents(struct window *w, struct pack *pack, const uint64_t *offsets,
                           uint64_t document_count, const struct pack_config *config, uint64_t k,
                           uint64_t end)
{
    uint32_t documents[AHEAD];
    while (k < end) {
        uint32_t n = 0;
        for (; n < AHEAD && k < end; n++, k++) {
            documents[n] = (uint32_t)data_order_permute(config->seed, 0, document_count, k);
            __builtin_prefetch(&offsets[documents[n]]);
        }
        for (uint32_t i = 0; i < n; i++)
            take_document(w, pack, offsets, documents[i], config->longer);
    }
}

/* Everything that can be known of the documents one by one. *pieces: how many there will be. */
static int count_pieces(const uint64_t *offsets, uint64_t document_count,
                        const struct pack_config *config, struct pack *pack, uint64_t *pieces,
                        struct pack_fault *fault)
{
    const uint64_t most = config->seq_len;
    for (uint64_t i = 0; i < document_count; i++) {
        assert(offsets[i] <= offsets[i + 1]);
        uint64_t inputs = offsets[i + 1] - offsets[i], lost = 0;
        inputs -= inputs > 0;
        if (inputs > most && config->longer == PACK_LONG_REFUSE) {
            *fault = (struct pack_fault){i, inputs};
            return -E2BIG;
        }
        pack->long_count += inputs > most;
        if (inputs > most && config->longer != PACK_LONG_SPLIT)
            lost = config->longer == PACK_LONG_CUT ? inputs - most : inputs;
        inputs -= lost;
        pack->lost_count += lost;
        pack->input_count += inputs;
        *pieces += inputs <= most ? inputs > 0 : (inputs - 1) / most + 1;
    }
    return *pieces > UINT32_MAX ? -EOVERFLOW : 0;
}

int pack_documents(const uint64_t *offsets, uint64_t document_count,
                   const struct pack_config *config, struct pack *pack, struct pack_fault *fault)
{
    struct pack made = {0};
    struct window window;
    uint64_t pieces = 0;
    if (config->seq_len == 0 || config->seq_len > PACK_MOST_SEQ_LEN)
        return -EINVAL;
    if (document_count > UINT32_MAX)
        return -EOVERFLOW;
    int rc = count_pieces(offsets, document_count, config, &made, &pieces, fault);
    rc = rc ? rc : window_make(&window, config->seq_len);
    if (rc)
        return rc;
    made.pieces = malloc((pieces + 1) * sizeof *made.pieces);
    for (uint64_t k = 0, end; made.pieces && k < document_count; k = end) {
        const uint64_t left = document_count - k;
        end = k + (left < PACK_WINDOW ? left : PACK_WINDOW);
        take_documents(&window, &made, offsets, document_count, config, k, end);
        sort_by_length(&window);
        place(&window, config->apart);
        put_rows(&window, &made);
    }
    window_free(&window);
    if (!made.pieces)
        return -ENOMEM;
    assert(made.piece_count == pieces);
    *pack = made;
    return 0;
}

void pack_leave_out(struct pack *pack, const bool *out)
{
    uint64_t kept = 0, rows = 0, last = UINT64_MAX;
    for (uint64_t i = 0; i < pack->piece_count; i++) {
        struct pack_piece piece = pack->pieces[i];
        if (out[piece.row]) {
            pack->input_count -= piece.count;
            continue;
        }
        rows += piece.row != last;
        last = piece.row;
        piece.row = (uint32_t)(rows - 1);
        pack->pieces[kept++] = piece;
    }
    pack->piece_count = kept;
    pack->row_count = rows;
}

void pack_free(struct pack *pack)
{
    free(pack->pieces);
    *pack = (struct pack){0};
}
