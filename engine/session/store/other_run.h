/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_SESSION_STORE_OTHER_RUN_H
#define HOISTWAY_ENGINE_SESSION_STORE_OTHER_RUN_H
/* This header tells whether a store is of another run than this one. */
#include "session/engine_state.h"

/** Compares terminated settings (version_settings_write). -EINVAL (sticky, E615): what differs. */
int other_run_refuse(struct hst_engine *engine, const char *was, const char *is);
/**
 * A plan to train failed with rc for a budget or the room on drives: where the store holds a
 * version of another model, that is the reason that is told. Returns the sticky error.
 */
int other_run_explain(struct hst_engine *engine, int rc);
/** The rank that speaks for all tells what was otherwise when a resumed version was made. news: a
 * set of enum version_news. */
void other_run_tell_news(struct hst_engine *engine, unsigned news);
/** The same where its bits depended on something else than this run's. */
void other_run_tell_math(struct hst_engine *engine, const char *was);

#endif
