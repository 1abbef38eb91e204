/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/passages.h"

int passages_add(struct hst_engine *engine, enum lane lane, struct hst_stream *stream,
                 struct passage passage)
{
    struct passages *passages = &engine->run.passages[lane];
    struct passage *next = &passages->ring[(passages->first + passages->count) % EXECUTE_PASSAGES];
    passage.passed = next->passed;
    *next = passage;
    passages->count++;
    return hst_event_record(next->passed, stream);
}
