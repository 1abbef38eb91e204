/* SPDX-License-Identifier: Apache-2.0 */
/* Decides how an event of the engine looks in a trace. */
#include "cli/log/trace.h"

#include "cli/log/output.h"

#include <errno.h>
#include <string.h>

static const struct output_kind TRACE = {
    .noun = "trace", .option = "--trace", .begin = "{\"hoistway\":"};

/* The tracks, from what computes outwards. */
static const char *const LANES[] = {"compute", "update", "gpu update", "read",
                                    "write",   "h2d",    "d2h",        "net"};
enum { LANE_COUNT = sizeof LANES / sizeof LANES[0] };

static unsigned track_of(const char *lane)
{
    unsigned i = 0;
    while (i < LANE_COUNT && strcmp(LANES[i], lane) != 0)
        i++;
    return i;
}

static void put_track_name(struct trace *trace, unsigned track)
{
    struct json_writer *json = &trace->json;
    json_put_object(json, NULL);
    json_put_text(json, "ph", "M");
    json_put_text(json, "name", "thread_name");
    json_put_whole(json, "pid", trace->pid);
    json_put_whole(json, "tid", track);
    json_put_object(json, "args");
    json_put_text(json, "name", LANES[track]);
    json_put_end(json);
    json_put_end(json);
}

int trace_check(const char *path, struct hst_error *error)
{
    return output_check(&TRACE, path, error);
}

int trace_open(struct trace *trace, const char *path, uint32_t pid, struct hst_error *error)
{
    *trace = (struct trace){.path = path, .pid = pid};
    if (!path)
        return 0;
    int native = output_open(&TRACE, path, &trace->json.out, error);
    if (native)
        return native;
    json_put_object(&trace->json, NULL);
    json_put_text(&trace->json, "hoistway", hst_version());
    json_put_text(&trace->json, "displayTimeUnit", "ms");
    json_put_array(&trace->json, "traceEvents");
    for (unsigned track = 0; track < LANE_COUNT; track++)
        put_track_name(trace, track);
    return 0;
}

void trace_event(void *context, const struct hst_trace_event *event)
{
    struct trace *trace = context;
    struct json_writer *json = &trace->json;
    if (!json->out)
        return;
    if (!trace->begun)
        trace->origin_s = event->start_s;
    trace->begun = true;
    json_put_object(json, NULL);
    json_put_text(json, "ph", "X");
    json_put_text(json, "name", event->what);
    json_put_whole(json, "pid", trace->pid);
    json_put_whole(json, "tid", track_of(event->lane));
    json_put_micros(json, "ts", event->start_s - trace->origin_s);
    json_put_micros(json, "dur", event->end_s - event->start_s);
    json_put_object(json, "args");
    if (event->unit)
        json_put_text(json, "unit", event->unit);
    json_put_whole(json, "step", event->step);
    if (event->tile_count) {
        json_put_whole(json, "tile", event->tile);
        json_put_whole(json, "tiles", event->tile_count);
    }
    json_put_real(json, "work", event->work);
    json_put_end(json);
    json_put_end(json);
}

int trace_close(struct trace *trace, struct hst_error *error)
{
    if (!trace->json.out)
        return 0;
    json_put_end(&trace->json);
    json_put_end(&trace->json);
    putc('\n', trace->json.out);
    bool failed = fflush(trace->json.out) != 0 || ferror(trace->json.out);
    errno = errno && failed ? errno : EIO;
    int native = failed ? output_unwritable(&TRACE, trace->path, error) : 0;
    fclose(trace->json.out);
    trace->json.out = NULL;
    return native;
}
