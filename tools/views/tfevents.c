/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides how the record of a step or an evaluation looks to TensorBoard. Of tensorflow's
 * event.proto and summary.proto (field numbers below) only what scalars need is written; each event
 * is a record of a TFRecord file: length u64, its checksum, the event, its checksum, little endian.
 */
#include "views/tfevents.h"

#include "cli/log/output.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#define NAME        "events.out.tfevents.hoistway"
#define VERSION     "brain.Event:2"
#define EVENT_BYTES 2048u /* of a step's: MEASURES scalars with tags of less than 64 bytes */

static_assert(MEASURES * (64 + 16) + 32 <= EVENT_BYTES, "a step's event has room");

/* The first event has 24 bytes, a time and VERSION: that length, its checksum, the time's key. */
static const struct output_kind TFEVENTS = {
    .noun = "tfevents",
    .option = "--tfevents",
    .begin = "\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22\x09",
    .begin_bytes = 13,
    .makes_parents = true,
};

/* ---- records ---- */

uint32_t tfevents_masked_crc(const void *data, size_t bytes)
{
    const unsigned char *at = data;
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= at[i];
        for (unsigned bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void put_record(FILE *file, const void *event, size_t bytes)
{
    const uint64_t length = htole64(bytes);
    const uint32_t length_crc = htole32(tfevents_masked_crc(&length, sizeof length));
    const uint32_t crc = htole32(tfevents_masked_crc(event, bytes));
    fwrite(&length, sizeof length, 1, file);
    fwrite(&length_crc, sizeof length_crc, 1, file);
    fwrite(event, 1, bytes, file);
    fwrite(&crc, sizeof crc, 1, file);
}

/* ---- messages ---- */

enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };
enum { EVENT_TIME = 1, EVENT_STEP = 2, EVENT_VERSION = 3, EVENT_SUMMARY = 5 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2 };

struct message {
    unsigned char bytes[EVENT_BYTES];
    size_t used;
};

static void put_varint(struct message *message, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        message->bytes[message->used++] = (unsigned char)(value | 0x80);
    message->bytes[message->used++] = (unsigned char)value;
}

static void put_key(struct message *message, unsigned field, enum wire wire)
{
    put_varint(message, field << 3 | wire);
}

static void put_bytes(struct message *message, const void *data, size_t bytes)
{
    memcpy(message->bytes + message->used, data, bytes);
    message->used += bytes;
}

static void put_text(struct message *message, unsigned field, const char *text)
{
    put_key(message, field, WIRE_BYTES);
    put_varint(message, strlen(text));
    put_bytes(message, text, strlen(text));
}

static void put_inner(struct message *message, unsigned field, const struct message *inner)
{
    put_key(message, field, WIRE_BYTES);
    put_varint(message, inner->used);
    put_bytes(message, inner->bytes, inner->used);
}

static void put_time(struct message *message, double seconds)
{
    uint64_t bits;
    memcpy(&bits, &seconds, sizeof bits);
    bits = htole64(bits);
    put_key(message, EVENT_TIME, WIRE_64);
    put_bytes(message, &bits, sizeof bits);
}

static void put_scalar(struct message *summary, const struct measure_name *name, double value)
{
    struct message inner = {.used = 0};
    char tag[64];
    const float simple = (float)value;
    uint32_t bits;
    snprintf(tag, sizeof tag, "%s%s%s", name->group ? name->group : "", name->group ? "/" : "",
             name->key);
    put_text(&inner, VALUE_TAG, tag);
    memcpy(&bits, &simple, sizeof bits);
    bits = htole32(bits);
    put_key(&inner, VALUE_SIMPLE, WIRE_32);
    put_bytes(&inner, &bits, sizeof bits);
    put_inner(summary, SUMMARY_VALUE, &inner);
}

static void put_head(FILE *file, double began)
{
    struct message event = {.used = 0};
    put_time(&event, began);
    put_text(&event, EVENT_VERSION, VERSION);
    put_record(file, event.bytes, event.used);
}

static void put_measures(FILE *file, const struct record *record, double when)
{
    struct message event = {.used = 0}, summary = {.used = 0};
    put_time(&event, when);
    put_key(&event, EVENT_STEP, WIRE_VARINT);
    put_varint(&event, record->step);
    for (enum measure m = 0; m < MEASURES; m++)
        if (!isnan(record->values[m]))
            put_scalar(&summary, &MEASURE_NAMES[m], record->values[m]);
    put_inner(&event, EVENT_SUMMARY, &summary);
    put_record(file, event.bytes, event.used);
}

/* ---- the file ---- */

static int path_in(const char *directory, char path[PATH_MAX], struct hst_error *error)
{
    if (snprintf(path, PATH_MAX, "%s/%s", directory, NAME) < PATH_MAX)
        return 0;
    errno = ENAMETOOLONG;
    return output_unwritable(&TFEVENTS, directory, error);
}

static int unwritable(struct tfevents *events, struct hst_error *error)
{
    const int native = output_unwritable(&TFEVENTS, events->path, error);
    fclose(events->file);
    events->file = NULL;
    return native;
}

int tfevents_check(const char *directory, struct hst_error *error)
{
    char path[PATH_MAX];
    struct stat st;
    if (!directory)
        return 0;
    const int native = path_in(directory, path, error);
    if (native)
        return native;
    if (stat(directory, &st) == 0) {
        if (S_ISDIR(st.st_mode))
            return output_check(&TFEVENTS, path, error);
        errno = ENOTDIR;
        return output_unwritable(&TFEVENTS, directory, error);
    }
    if (errno == ENOENT && output_parents_possible(path))
        return 0;
    return output_unwritable(&TFEVENTS, directory, error);
}

int tfevents_open(struct tfevents *events, const char *directory, struct hst_error *error)
{
    *events = (struct tfevents){.file = NULL};
    if (!directory)
        return 0;
    const int native = path_in(directory, events->path, error);
    if (native)
        return native;
    return output_open(&TFEVENTS, events->path, &events->file, error);
}

int tfevents_take(struct tfevents *events, const struct record *record, const struct facts *facts,
                  bool flush, struct hst_error *error)
{
    if (!events->file || (record->kind != RECORD_RUN && !record_measures(record)))
        return 0;
    if (!events->headed)
        put_head(events->file, facts->began);
    events->headed = true;
    if (record_measures(record))
        put_measures(events->file, record, facts->began + facts->seconds);
    const bool bad = ferror(events->file) || (flush && fflush(events->file));
    return bad ? unwritable(events, error) : 0;
}

int tfevents_close(struct tfevents *events, struct hst_error *error)
{
    if (!events->file)
        return 0;
    FILE *file = events->file;
    events->file = NULL;
    return fclose(file) ? output_unwritable(&TFEVENTS, events->path, error) : 0;
}
