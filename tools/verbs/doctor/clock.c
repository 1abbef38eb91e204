/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file tells how fast a GPU's multiprocessors run while they work: a card whose clock is
 * capped, by its power, by heat or by whoever rents it out, gives figures that say nothing of the
 * card. nvidia-smi is asked while GEMMs run: a card at rest shows a clock that it does not keep
 * under load.
 */
#include "bench/burn.h"
#include "verbs/doctor/doctor.h"
#include "verbs/doctor/gpu_clock.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#define CLOCK_MS    2000       /* an nvidia-smi that takes longer is not waited for */
#define LOADED_NS   300000000L /* after so much of work the clock is what it stays at */
#define BURNS_MOST  10         /* half a second each, while nvidia-smi is waited for */
#define SHARE_LEAST 0.75       /* of the highest clock: less is told with a fix */

struct look {
    const char *pci;
    struct gpu_clock clock;
    char reasons[128];
    bool known;
    atomic_bool over;
};

static void *look_under_load(void *argument)
{
    struct look *look = argument;
    nanosleep(&(const struct timespec){.tv_nsec = LOADED_NS}, NULL);
    look->known = gpu_clock_read(look->pci, CLOCK_MS, &look->clock);
    if (look->known)
        gpu_clock_reasons_read(look->pci, CLOCK_MS, look->reasons, sizeof look->reasons);
    atomic_store(&look->over, true);
    return NULL;
}

/* Products until the other thread has looked. */
static int burn_meanwhile(struct hst_dev *dev, struct look *look, struct hst_error *error)
{
    pthread_t thread;
    double burned_s;
    int rc = -pthread_create(&thread, NULL, look_under_load, look);
    if (rc)
        return rc;
    for (int i = 0; i < BURNS_MOST && !rc && !atomic_load(&look->over); i++)
        rc = bench_burn_in(dev, false, &burned_s, error);
    pthread_join(thread, NULL);
    return rc;
}

void doctor_check_clock(struct doctor *d, struct hst_dev *dev, const char *pci)
{
    struct look look = {.pci = pci};
    struct gpu_clock idle;
    struct hst_error error = {0};
    if (!gpu_clock_read(pci, CLOCK_MS, &idle))
        return; /* nvidia-smi is not there or does not tell: nothing to load the card for */
    int rc = burn_meanwhile(dev, &look, &error);
    if (rc || !look.known) {
        doctor_report(d, "clock", STATUS_WARN, "look at nvidia-smi -q -d CLOCK", "not measured: %s",
                      error.message[0] ? error.message
                      : rc             ? strerror(-rc)
                                       : "nvidia-smi did not tell it under load");
        return;
    }
    bool low = look.clock.now_hz < SHARE_LEAST * look.clock.most_hz;
    doctor_report(
        d, "clock", low ? STATUS_WARN : STATUS_OK,
        low ? "nvidia-smi -rgc, a higher power limit (nvidia-smi -pl), better cooling" : NULL,
        "multiprocessors at %.0f MHz under load, at most %.0f%s%s", 1e-6 * look.clock.now_hz,
        1e-6 * look.clock.most_hz, look.reasons[0] ? "; held by " : "", look.reasons);
}
