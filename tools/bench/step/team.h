/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_BENCH_STEP_TEAM_H
#define HOISTWAY_TOOLS_BENCH_STEP_TEAM_H
/* Threads that do their shares of one thing at once; the caller is the first of them. */

struct team;

typedef void team_share(void *arg, unsigned thread, unsigned threads);

/** Null where memory or threads cannot be had. */
struct team *team_create(unsigned threads);
/** Calls share once for each of the first `threads` threads and waits for all of them. */
void team_run(struct team *team, unsigned threads, team_share *share, void *arg);
unsigned team_threads(const struct team *team);
void team_destroy(struct team *team); /* null allowed */

#endif
