/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_DOCTOR_H
#define HOISTWAY_TOOLS_DOCTOR_H
/* The checks of `hoistway doctor` report to this. */
#include <hoistway/hoistway.h>
#include <hoistway/machine.h>
#include <stdbool.h>
#include <stddef.h>

enum status { STATUS_OK, STATUS_WARN, STATUS_FAIL };

struct doctor_check {
    char name[24];
    enum status status;
    char found[512];
    const char *fix; /* null: nothing to do */
};

#define DOCTOR_MAX_CHECKS 112u
#define DOCTOR_MAX_GPUS   8u /* at most eleven rows each */
#define DOCTOR_MAX_RATES  96u /* nine of each GPU */
#define DOCTOR_MAX_ROOMS  (DOCTOR_MAX_GPUS + 2)

/* A measured rate and what it is of: "host", "cuda:0", a directory. */
struct doctor_rate {
    char of[128];
    enum hst_rate rate;
    struct hst_figure figure;
};

/* Memory of the host or of a GPU, or a directory's disk: what a run could have of it. */
struct doctor_room {
    char of[128]; /* as doctor_rate's */
    enum hst_tier tier;
    uint64_t total_bytes, free_bytes;
};

struct doctor {
    const char *store, *default_store; /* the same pointer where none is named */
    bool json;
    struct doctor_check checks[DOCTOR_MAX_CHECKS];
    size_t count;
    char store_rung[64];         /* empty: the store cannot be used */
    char gpu[128];               /* the first GPU that can be used; empty: none */
    struct hst_topology machine; /* zeroed where it cannot be told */
    struct doctor_rate rates[DOCTOR_MAX_RATES];
    size_t rate_count;
    struct doctor_room rooms[DOCTOR_MAX_ROOMS];
    size_t room_count;
    char gpu_fix[256];      /* what makes a GPU usable that is not */
    char export_line[4096]; /* what makes NVIDIA's libraries found; empty: nothing is known */
};

void doctor_report(struct doctor *d, const char *name, enum status status, const char *fix,
                   const char *format, ...) __attribute__((format(printf, 5, 6)));

/** For --json: scripts choose sizes by it. */
void doctor_keep_room(struct doctor *d, const char *of, enum hst_tier tier, uint64_t total_bytes,
                      uint64_t free_bytes);

/** doctor_rates.c: memory, optimizer, GEMMs, the drive of the store. */
void doctor_check_rates(struct doctor *d);
void doctor_keep_rate(struct doctor *d, const char *of, enum hst_rate rate,
                      const struct hst_figure *figure);

/**
 * net.c: what joins ranks. Of several all must call it. *others: this is not the first of them, and
 * has done its part. Errors, with *error filled: variables of launchers that contradict each other;
 * those of hst_ranks_measure, after which the process has to end.
 */
int doctor_check_net(struct doctor *d, bool *others, struct hst_error *error);

/** doctor_gpu.c: each GPU with its memory, libraries, link, copies and distance. */
void doctor_check_gpus(struct doctor *d);
/** doctor_clock.c: the clock of the card at this PCI address, while it works. */
void doctor_check_clock(struct doctor *d, struct hst_dev *dev, const char *pci);
/**
 * doctor_python.c: the folders nvidia/PACKAGE/lib of what that Python imports from, with colons
 * between them, where it answers within the limit; else false and "". Starts the program.
 */
bool doctor_python_folders(const char *python, unsigned limit_ms, char *text, size_t room);

#endif
