/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file tells what joins ranks: of several, which mpirun has started with this one, how fast it
 * is, as a run measures it; of one alone, whether others could join it.
 */
#include "verbs/doctor/doctor.h"

#include "base/fail.h"
#include "cli/message/voice.h"

#include <hoistway/ranks.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROW_BYTES (1u << 20) /* of what is measured beside the rates: next to nothing */

static bool mpirun_there(void)
{
    char path[4096];
    for (const char *at = getenv("PATH"); at && *at; at += strspn(at, ":")) {
        const size_t bytes = strcspn(at, ":");
        const int n = snprintf(path, sizeof path, "%.*s/mpirun", (int)bytes, at);
        if (n > 0 && (size_t)n < sizeof path && access(path, X_OK) == 0)
            return true;
        at += bytes;
    }
    return false;
}

/* Nothing is wrong with one process. */
static void report_alone(struct doctor *d)
{
    char why[400];
    if (hst_ranks_transport(why))
        doctor_report(d, "net", STATUS_OK, "docs/launch.md, if several ranks are wanted",
                      "one process; several cannot be joined: %s", why);
    else if (!mpirun_there())
        doctor_report(d, "net", STATUS_OK, "apt install openmpi-bin, if several ranks are wanted",
                      "one process; the transport over MPI is there, mpirun is not in PATH");
    else
        doctor_report(d, "net", STATUS_OK, NULL,
                      "one process; Open MPI and the transport are there: mpirun -n 2 hoistway "
                      "doctor measures between ranks");
}

static double value_of(const struct hst_rates *rates, enum hst_rate rate)
{
    return rates->figures[rate].value;
}

static void report_rates(struct doctor *d, const struct hst_ranks_measured *m,
                         const struct hst_rates *r)
{
    char in[96] = "", between[96] = "";
    if (value_of(r, HST_RATE_NET_OPERATIONS) > 0)
        snprintf(in, sizeof in, "; in a node %.2f GB/s gathered, %.2f exchanged, %.0f us each",
                 1e-9 * value_of(r, HST_RATE_NET_GATHER), 1e-9 * value_of(r, HST_RATE_NET_EXCHANGE),
                 1e6 / value_of(r, HST_RATE_NET_OPERATIONS));
    if (value_of(r, HST_RATE_NET_OPERATIONS_BETWEEN) > 0)
        snprintf(between, sizeof between, "; between nodes %.2f GB/s, %.0f us each",
                 1e-9 * value_of(r, HST_RATE_NET_BETWEEN),
                 1e6 / value_of(r, HST_RATE_NET_OPERATIONS_BETWEEN));
    doctor_report(d, "net", STATUS_OK, NULL, "%u ranks on %u node%s, %s%s%s", m->ranks, m->nodes,
                  m->nodes == 1 ? "" : "s", m->transport, in, between);
    for (int rate = HST_RATE_NET_GATHER; rate <= HST_RATE_NET_OPERATIONS_BETWEEN; rate++)
        if (r->figures[rate].how[0])
            doctor_keep_rate(d, "net", (enum hst_rate)rate, &r->figures[rate]);
}

int doctor_check_net(struct doctor *d, bool *others, struct hst_error *error)
{
    static struct hst_rates rates; /* large: not on the stack */
    const struct hst_ranks_measure in = {ROW_BYTES, 1, &rates};
    struct hst_ranks_measured measured;
    struct hst_launch launch;
    char why[200];
    int rc = hst_launch_read(NULL, NULL, &launch, why);
    *others = !rc && launch.rank > 0;
    if (rc)
        return fail(error, FAIL_RANKS, rc, "%s", why);
    if (launch.ranks == 1) {
        report_alone(d);
        return 0;
    }
    voice_of(launch.rank, NULL);
    rc = hst_ranks_measure(&in, &measured, error);
    if (rc)
        return rc;
    report_rates(d, &measured, &rates);
    return 0;
}
