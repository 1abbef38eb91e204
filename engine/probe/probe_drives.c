/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file measures what drives give, all of them at once, as training asks for it: requests of 1
 * MiB, 16 in flight on each, through a small ring of memory. One thread feeds all queues. A file
 * that was never written reads as zeros without the drive being asked, so it is written first; then
 * rounds of write, read and mixed take turns, so that all of them see the same machine. Mixed is
 * measured once more beside processors that compute: what serves a drive runs on them, in a virtual
 * machine much of the drive itself, and a step that computes on the host leaves them no rest.
 */
#include "probe/probe.h"

#include "base/clock.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB         (UINT64_C(1) << 20)
#define BLOCK_BYTES MIB
#define WRITTEN     (320 * MIB)
#define DRIVES_S    0.5  /* where no more is written than that; else longer in proportion */
#define BUSY_S      0.15 /* more, where that is asked for */
#define FILL_SHARE  0.3  /* of that time, at most */

enum { DEPTH_MOST = 16, DEPTH_LEAST = 2, BLOCKS_LEAST = 2, ROUNDS = 5, FILL_PARTS = 2 };
/* What a drive's own figures are of, and what all drives' are. */
enum { READ = 0, WRITE, MIXED, DRIVE_KINDS, MIXED_BUSY = DRIVE_KINDS, KINDS };

/* One drive's queue. */
struct probe_lane {
    struct hst_aio *aio;
    struct hst_aio_info info;
    struct hst_aio_file *file;
    struct hst_aio_buffer ring;
    uint64_t blocks; /* of the file that were written */
    double rates[KINDS][ROUNDS];
    uint64_t written_bytes;
    char why[160]; /* not empty: it is left out */
    int error;     /* then: negative errno */

    /* of the round */
    uint32_t idle[DEPTH_MOST], idle_count; /* slots of the ring */
    uint64_t cursor[2];                    /* blocks read, written */
    uint64_t given_bytes, moved_bytes, end_ns;
};

/* Ends after its window, or when a lane has moved its bytes: then for all lanes, so that each is
   measured while the others run. */
struct round {
    int kind;
    uint64_t window_ns, most_bytes;
    bool each; /* but each lane moves its bytes */
    uint64_t start_ns;
    bool over;
};

struct drives {
    struct probe *probe;
    struct probe_lane lanes[HST_DRIVES_MAX];
    uint32_t count, rounds;
    int kinds;              /* that are measured */
    uint32_t depth;         /* requests in flight on each */
    uint64_t written_bytes; /* to each, at most */
    uint64_t file_bytes;
};

/* ---- opening ---- */

static bool usable(const struct probe_lane *lane)
{
    return lane->why[0] == '\0';
}

static void leave_out(struct probe_lane *lane, const char *what, int rc)
{
    if (!usable(lane))
        return;
    snprintf(lane->why, sizeof lane->why, "%s: %s", what, strerror(-rc));
    lane->error = rc;
}

/* Bytes that do not compress, by an xorshift generator. */
static void fill(uint64_t *words, size_t count, uint64_t x)
{
    for (size_t i = 0; i < count; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        words[i] = x;
    }
}

static void open_lane(struct drives *d, uint32_t index)
{
    const struct hst_probe *in = d->probe->in;
    const struct hst_probe_drive *drive = &in->drives[index];
    struct probe_lane *lane = &d->lanes[index];
    const struct hst_aio_config config = {.size = sizeof config, .backend = in->backend};
    int rc = 0;
    if (drive->info)
        lane->info = *drive->info;
    if (drive->aio)
        lane->aio = drive->aio;
    else if ((rc = hst_aio_open(&config, drive->directory, &lane->aio, &lane->info)))
        leave_out(lane, "the directory cannot be used", rc);
    if (rc)
        return;
    rc =
        hst_aio_file_open(lane->aio, drive->directory, HST_AIO_SCRATCH, d->file_bytes, &lane->file);
    if (rc) {
        leave_out(lane, "no scratch file", rc);
        return;
    }
    const struct hst_aio_buffer_config ring = {.size = sizeof ring, .aio = lane->aio};
    const uint64_t ring_bytes = d->depth * BLOCK_BYTES;
    rc = hst_aio_buffer_open(&ring, ring_bytes, &lane->ring);
    if (rc)
        leave_out(lane, "no memory for its requests", rc);
    else
        fill(lane->ring.memory, ring_bytes / sizeof(uint64_t), 88172645463325252u + index);
}

static void close_lane(struct drives *d, uint32_t index)
{
    struct probe_lane *lane = &d->lanes[index];
    hst_aio_buffer_close(&lane->ring);
    hst_aio_file_close(&lane->file);
    if (!d->probe->in->drives[index].aio)
        hst_aio_close(&lane->aio);
}

/* ---- a round ---- */

static void begin(struct probe_lane *lane, uint32_t depth, const struct round *round)
{
    lane->idle_count = depth;
    for (uint32_t i = 0; i < depth; i++)
        lane->idle[i] = i;
    lane->cursor[0] = lane->cursor[1] = 0;
    lane->given_bytes = lane->moved_bytes = 0;
    lane->end_ns = round->start_ns;
}

/* Mixed reads the file's lower half and writes its upper one, by turns. */
static struct hst_aio_op next_op(struct probe_lane *lane, const struct round *round)
{
    bool mixed = round->kind >= MIXED;
    bool write = round->kind == WRITE || (mixed && lane->cursor[0] > lane->cursor[1]);
    uint64_t blocks = mixed ? lane->blocks / 2 : lane->blocks;
    uint64_t block = lane->cursor[write]++ % blocks + (mixed && write ? blocks : 0);
    uint32_t slot = lane->idle[--lane->idle_count];
    return (struct hst_aio_op){.kind = write ? HST_AIO_WRITE : HST_AIO_READ,
                               .file = lane->file,
                               .offset = block * BLOCK_BYTES,
                               .buffer = (char *)lane->ring.memory + slot * BLOCK_BYTES,
                               .bytes = BLOCK_BYTES,
                               .user = slot};
}

/* Whatever the others do, each lane gets something to do in each round, and of its file so much is
   written that a round can read one block and write another: a slow drive has a rate, too. */
static bool may_give(const struct probe_lane *lane, struct round *round)
{
    const uint64_t least = round->each ? BLOCKS_LEAST * BLOCK_BYTES : BLOCK_BYTES;
    if (!usable(lane) || lane->idle_count == 0)
        return false;
    if (hst_aio_clock_ns(lane->aio) - round->start_ns >= round->window_ns)
        round->over = true;
    return lane->given_bytes < least ||
           (!round->over && lane->given_bytes + BLOCK_BYTES <= round->most_bytes);
}

static void feed(struct probe_lane *lane, struct round *round)
{
    while (may_give(lane, round)) {
        struct hst_aio_op op = next_op(lane, round);
        int taken = hst_aio_submit(lane->aio, &op, 1);
        if (taken != 1) {
            leave_out(lane, "a request was refused", taken < 0 ? taken : -EAGAIN);
            return;
        }
        lane->given_bytes += BLOCK_BYTES;
        lane->written_bytes += op.kind == HST_AIO_WRITE ? BLOCK_BYTES : 0;
    }
}

static void collect(struct probe_lane *lane, struct round *round)
{
    struct hst_aio_completion done[DEPTH_MOST];
    int count = hst_aio_reap(lane->aio, done, DEPTH_MOST, 0, 0);
    if (count < 0)
        leave_out(lane, "its queue broke", count);
    for (int i = 0; i < count; i++) {
        if (done[i].error)
            leave_out(lane, "a request failed", done[i].error);
        lane->idle[lane->idle_count++] = (uint32_t)done[i].user;
        lane->moved_bytes += done[i].bytes;
        lane->end_ns = hst_aio_clock_ns(lane->aio);
    }
    if (!round->each && lane->moved_bytes + BLOCK_BYTES > round->most_bytes)
        round->over = true;
}

/* It waits for what is still in flight, where waiting for all of them failed. */
static void drain(struct probe_lane *lane)
{
    struct hst_aio_completion done[DEPTH_MOST];
    while (hst_aio_in_flight(lane->aio) > 0 &&
           hst_aio_reap(lane->aio, done, DEPTH_MOST, 1, UINT64_MAX) >= 0)
        continue;
}

/* The lanes that are not left out. */
static uint32_t list_usable(struct drives *d, struct probe_lane **lanes)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < d->count; i++)
        if (usable(&d->lanes[i]))
            lanes[count++] = &d->lanes[i];
    return count;
}

/* False where no lane is left, before or afterwards. */
static bool run_round(struct drives *d, struct round *round)
{
    struct probe_lane *lanes[HST_DRIVES_MAX];
    struct hst_aio *contexts[HST_DRIVES_MAX];
    uint32_t count = list_usable(d, lanes);
    for (uint32_t i = 0; i < count; i++) {
        contexts[i] = lanes[i]->aio;
        round->start_ns = hst_aio_clock_ns(contexts[0]);
        begin(lanes[i], d->depth, round);
    }
    for (bool busy = count > 0; busy;) {
        bool ready[HST_DRIVES_MAX] = {false};
        busy = false;
        round->over |= probe_is_stopped(d->probe);
        for (uint32_t i = 0; i < count; i++) {
            feed(lanes[i], round);
            busy |= hst_aio_in_flight(contexts[i]) > 0;
        }
        int rc = busy ? hst_aio_wait_any(contexts, count, ready, UINT64_MAX) : 0;
        for (uint32_t i = 0; i < count; i++)
            if (rc < 0)
                leave_out(lanes[i], "its queue cannot be waited for", rc);
            else if (ready[i])
                collect(lanes[i], round);
        busy = busy && rc >= 0;
    }
    for (uint32_t i = 0; i < count; i++)
        drain(lanes[i]);
    return list_usable(d, lanes) > 0;
}

/* ---- processors that compute ---- */

struct busy {
    pthread_t *threads;
    unsigned count;
    atomic_bool over;
};

static void *compute(void *arg)
{
    const struct busy *busy = arg;
    while (!atomic_load_explicit(&busy->over, memory_order_relaxed))
        continue;
    return NULL;
}

/* As many threads as there are to be had. */
static void be_busy(struct busy *busy)
{
    const unsigned cores = machine_cores();
    busy->threads = calloc(cores, sizeof *busy->threads);
    while (busy->threads && busy->count < cores &&
           pthread_create(&busy->threads[busy->count], NULL, compute, busy) == 0)
        busy->count++;
}

static void rest(struct busy *busy)
{
    atomic_store(&busy->over, true);
    for (unsigned i = 0; i < busy->count; i++)
        pthread_join(busy->threads[i], NULL);
    free(busy->threads);
}

/* ---- all rounds ---- */

static void note_rates(struct drives *d, const struct round *round)
{
    struct probe_lane *lanes[HST_DRIVES_MAX];
    uint32_t count = list_usable(d, lanes);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t took_ns = lanes[i]->end_ns - round->start_ns;
        lanes[i]->rates[round->kind][d->rounds] =
            (double)lanes[i]->moved_bytes * 1e9 / (double)(took_ns ? took_ns : 1);
    }
}

/* Every block of every file is written, as far as time goes; the rest of a file is not used. */
static bool fill_files(struct drives *d, uint64_t window_ns)
{
    struct round fill = {
        .kind = WRITE, .window_ns = window_ns, .most_bytes = d->file_bytes, .each = true};
    for (uint32_t i = 0; i < d->count; i++)
        d->lanes[i].blocks = d->file_bytes / BLOCK_BYTES;
    if (!run_round(d, &fill))
        return false;
    for (uint32_t i = 0; i < d->count; i++)
        d->lanes[i].blocks = d->lanes[i].given_bytes / BLOCK_BYTES;
    return true;
}

static uint64_t now_ns(const struct drives *d)
{
    for (uint32_t i = 0; i < d->count; i++)
        if (d->lanes[i].aio)
            return hst_aio_clock_ns(d->lanes[i].aio);
    return 0;
}

/* Bytes of a lane in a round: reading wears nothing. */
static uint64_t round_bytes(const struct drives *d, int kind)
{
    return kind == READ ? 2 * d->file_bytes : d->file_bytes / 2;
}

static bool run_beside(struct drives *d, struct round *round)
{
    struct busy busy = {.threads = NULL};
    be_busy(&busy);
    const bool any = run_round(d, round);
    rest(&busy);
    return any;
}

static void run_rounds(struct drives *d)
{
    static const int order[KINDS] = {WRITE, READ, MIXED, MIXED_BUSY};
    const double longer = fmax(1, (double)d->written_bytes / WRITTEN);
    const double drives_s = longer * DRIVES_S;
    const double budget_s = drives_s + (d->kinds > MIXED_BUSY ? longer * BUSY_S : 0);
    const uint64_t budget_ns = (uint64_t)(budget_s * 1e9), start_ns = now_ns(d);
    const unsigned kinds = (unsigned)d->kinds;
    if (!fill_files(d, (uint64_t)(FILL_SHARE * drives_s * 1e9)))
        return;
    uint64_t filled_ns = now_ns(d) - start_ns;
    uint64_t left_ns = filled_ns < budget_ns ? budget_ns - filled_ns : 0;
    for (; d->rounds < ROUNDS; d->rounds++) {
        if ((d->rounds > 0 && now_ns(d) - start_ns >= budget_ns) || probe_is_stopped(d->probe))
            return;
        for (unsigned i = 0; i < kinds; i++) {
            int kind = order[d->rounds % 2 ? kinds - 1 - i : i];
            struct round round = {.kind = kind,
                                  .window_ns = left_ns / (kinds * ROUNDS) + 1000000,
                                  .most_bytes = round_bytes(d, kind)};
            if (!(kind == MIXED_BUSY ? run_beside(d, &round) : run_round(d, &round)))
                return;
            note_rates(d, &round);
        }
    }
}

/* ---- telling ---- */

static void describe(const struct drives *d, const struct probe_lane *lane, char *how,
                     size_t how_bytes)
{
    static const char *const backends[] = {
        [HST_AIO_URING] = "io_uring, ",
        [HST_AIO_THREADS] = "threads, ",
        [HST_AIO_NULL] = "null backend, ",
        [HST_AIO_SIM] = "simulated, ",
    };
    const struct hst_aio_info *info = &lane->info;
    bool known = info->backend > HST_AIO_AUTO && info->backend <= HST_AIO_SIM;
    const char *way = !known            ? ""
                      : info->in_memory ? "in RAM: not a drive's figure, "
                      : info->direct    ? "O_DIRECT, "
                                        : "page cache: not a drive's figure, ";
    snprintf(how, how_bytes, "%s%s%u x 1 MiB in flight, file of %llu MiB",
             known ? backends[info->backend] : "", way, d->depth,
             (unsigned long long)(d->file_bytes / MIB));
}

static void tell_lane(const struct drives *d, struct probe_lane *lane,
                      struct hst_drive_rates *rates)
{
    struct hst_figure *figures[DRIVE_KINDS] = {&rates->read, &rates->write, &rates->mixed};
    char how[sizeof rates->read.how];
    describe(d, lane, how, sizeof how);
    for (int kind = 0; kind < DRIVE_KINDS; kind++) {
        if (!usable(lane)) {
            probe_fail(figures[kind], "%s", lane->why);
            continue;
        }
        double sorted[ROUNDS];
        memcpy(sorted, lane->rates[kind], sizeof sorted);
        probe_median(figures[kind], sorted, d->rounds);
        memcpy(figures[kind]->how, how, sizeof how);
    }
    rates->half_duplex = hst_half_duplex(rates->read.value, rates->write.value, rates->mixed.value);
    rates->written_bytes = lane->written_bytes;
    rates->error = lane->error;
}

/* The sum of all drives, in each round. */
static void tell_together(const struct drives *d, int kind, struct hst_figure *figure)
{
    double sums[ROUNDS] = {0};
    for (uint32_t i = 0; i < d->count; i++) {
        if (!usable(&d->lanes[i])) {
            probe_fail(figure, "drive %u: %s", i, d->lanes[i].why);
            return;
        }
        for (uint32_t n = 0; n < d->rounds; n++)
            sums[n] += d->lanes[i].rates[kind][n];
    }
    probe_median(figure, sums, d->rounds);
    describe(d, &d->lanes[0], figure->how, sizeof figure->how);
}

static void tell(struct drives *d)
{
    static const enum hst_rate rates[KINDS] = {HST_RATE_READ, HST_RATE_WRITE, HST_RATE_MIXED,
                                               HST_RATE_MIXED_BUSY};
    struct hst_rates *out = d->probe->out;
    for (uint32_t i = 0; i < d->count; i++)
        tell_lane(d, &d->lanes[i], &out->drives[i]);
    for (int kind = 0; kind < d->kinds; kind++)
        tell_together(d, kind, &out->figures[rates[kind]]);
}

static uint32_t depth_of(uint64_t blocks)
{
    return blocks < DEPTH_MOST ? (uint32_t)blocks : DEPTH_MOST;
}

void probe_drives(struct probe *probe)
{
    const struct hst_probe *in = probe->in;
    const int kinds = in->parts & HST_PROBE_BUSY ? KINDS : DRIVE_KINDS;
    struct drives *d = in->drive_count ? calloc(1, sizeof *d) : NULL;
    for (int rate = HST_RATE_READ; rate < HST_RATE_READ + kinds && !d; rate++)
        probe_fail(&probe->out->figures[rate], "%s",
                   in->drive_count ? "out of memory" : "no directory was given");
    if (!d)
        return;
    d->probe = probe;
    d->written_bytes = in->drive_bytes ? in->drive_bytes : WRITTEN;
    d->kinds = kinds;
    d->count = in->drive_count;
    d->file_bytes = d->written_bytes / (FILL_PARTS + (unsigned)kinds) / BLOCK_BYTES * BLOCK_BYTES;
    d->depth = depth_of(probe->memory_bytes / d->count / BLOCK_BYTES);
    for (uint32_t i = 0; i < d->count; i++)
        if (d->depth < DEPTH_LEAST)
            leave_out(&d->lanes[i], "2 MiB of memory per drive may not be taken", -ENOMEM);
        else
            open_lane(d, i);
    run_rounds(d);
    if (!probe_is_stopped(probe))
        tell(d);
    for (uint32_t i = 0; i < d->count; i++)
        close_lane(d, i);
    free(d);
}
