/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a probe had the machine to itself. The kernel counts how long each thread of the process
 * was ready to run and did not (schedstat), and what all processes did on each processor (stat), so
 * that both are of the very time of the probe: averages over minutes (load, pressure) are not.
 */
#include "probe/contention.h"

#include "base/clock.h"

#include <dirent.h>
#include <inttypes.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Threads of a quiet machine wait for some thousandths of a probe's time. */
#define WAITED_MOST 0.10
/* A desktop does less beside it than this part of what its processors could do. */
#define OTHERS_MOST 0.25
/* Processors count in ticks of 10 ms: of a shorter time nothing is known. */
#define COUNTED_LEAST_S 0.2

/* ---- counting ---- */

/* "RUN WAIT SLICES", in nanoseconds, of one thread. */
static void add_thread(const char *number, struct contention *c)
{
    char path[64];
    uint64_t ran_ns, waited_ns;
    snprintf(path, sizeof path, "/proc/self/task/%.20s/schedstat", number);
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    if (fscanf(file, "%" SCNu64 " %" SCNu64, &ran_ns, &waited_ns) == 2)
        c->waited_s += 1e-9 * (double)waited_ns;
    fclose(file);
}

static void add_threads(struct contention *c)
{
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *entry; tasks && (entry = readdir(tasks));)
        if (entry->d_name[0] != '.')
            add_thread(entry->d_name, c);
    if (tasks)
        closedir(tasks);
}

/* "cpuN user nice system idle iowait irq softirq steal …", in ticks. */
static void add_processor(const char *line, const cpu_set_t *ours, struct contention *c)
{
    unsigned number;
    uint64_t t[8];
    if (sscanf(line,
               "cpu%u %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
               " %" SCNu64 " %" SCNu64,
               &number, &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &t[6], &t[7]) != 9 ||
        number >= CPU_SETSIZE || !CPU_ISSET(number, ours))
        return;
    c->processors++;
    c->others_s += (double)(t[0] + t[1] + t[2] + t[5] + t[6] + t[7]) / (double)sysconf(_SC_CLK_TCK);
}

/* All that ran on the processors that are ours; this process is taken away in the end. */
static void add_processors(struct contention *c)
{
    cpu_set_t ours;
    char *line = NULL;
    size_t room = 0;
    FILE *file = sched_getaffinity(0, sizeof ours, &ours) ? NULL : fopen("/proc/stat", "re");
    while (file && getline(&line, &room, file) > 0 && strncmp(line, "cpu", 3) == 0)
        add_processor(line, &ours, c);
    free(line);
    if (file)
        fclose(file);
}

/* It counts threads that have ended, too: what they ran is no other work. */
static double process_seconds(void)
{
    struct timespec ran = {0};
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ran);
    return (double)ran.tv_sec + 1e-9 * (double)ran.tv_nsec;
}

struct contention contention_now(void)
{
    struct contention c = {.passed_s = clock_seconds(), .ran_s = process_seconds()};
    add_threads(&c);
    add_processors(&c);
    return c;
}

static double since(double begin, double end)
{
    return end > begin ? end - begin : 0;
}

struct contention contention_between(const struct contention *begin, const struct contention *end)
{
    const double ran_s = since(begin->ran_s, end->ran_s);
    const bool same = begin->processors == end->processors;
    return (struct contention){
        .passed_s = since(begin->passed_s, end->passed_s),
        .ran_s = ran_s,
        .waited_s = since(begin->waited_s, end->waited_s),
        .others_s = same ? since(ran_s, end->others_s - begin->others_s) : 0,
        .processors = same ? end->processors : 0,
    };
}

/* ---- deciding ---- */

/* The share of their time that threads waited for others: threads of this process wait for each
 * other, too, but then nobody else ran. What they slept is in it. */
static double waited_share(const struct contention *c)
{
    const double ready_s = c->ran_s + c->waited_s;
    const bool alone = c->processors > 0 && c->others_s < c->waited_s;
    return (alone ? c->others_s : c->waited_s) / (ready_s > c->passed_s ? ready_s : c->passed_s);
}

/* The rounds of a figure tell nothing of it: beside a steady load all are equally slow. */
bool contention_disturbs(const struct contention *c, bool worked, char *why, size_t why_bytes)
{
    const bool counted = worked && c->processors > 0 && c->passed_s >= COUNTED_LEAST_S;
    const double waited = c->passed_s > 0 ? waited_share(c) : 0;
    const double others = counted ? c->others_s / c->passed_s : 0;
    why[0] = '\0';
    if (counted && others > OTHERS_MOST * c->processors)
        snprintf(why, why_bytes, "other work had %.1f of %u processors", others, c->processors);
    else if (waited > WAITED_MOST)
        snprintf(why, why_bytes, "threads waited for a processor for %.0f %% of their time",
                 100 * waited);
    return why[0] != '\0';
}
