/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_EXEC_STREAMS_H
#define HOISTWAY_ENGINE_EXEC_STREAMS_H
/* Streams of the device beside the client's. All return the device's error, which is not recorded
 * but by streams_follow. */
#include "exec/executor.h"

/** Streams for copies and updates, where there are any. */
int streams_open(struct executor *exec);
/** Waits for what is under way. */
void streams_close(struct executor *exec);

/**
 * All that follows is enqueued on this stream, behind the last unit, which may be under way on
 * another one. Errors: the device's (sticky).
 */
int streams_follow(struct executor *exec, struct hst_stream *stream);
/** The unit at hand is enqueued on the stream. */
int streams_unit_passes(struct executor *exec, struct hst_stream *stream);
/** Waits for the last unit, on whatever stream it was. */
void streams_await_unit(struct executor *exec);
/** It counts so many bytes as given to a lane of copies. */
void streams_count(struct executor *exec, enum lane lane, uint64_t bytes);

#endif
