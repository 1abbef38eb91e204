/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides where ranks meet that MPI does not know of, as --rendezvous says it: at a place of the
 * network, or by a file. The file's name is that of the run and of the attempt, so that runs may
 * share a directory. What keeps ranks from a file of another run is nccl/meet_file.c's matter.
 */
#include "comm/meet.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PORT_DIGITS = 5, PORT_MOST = 65535 };

__attribute__((format(printf, 2, 3))) static int refuse(char *why, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(why, MEET_WHY_BYTES, format, args);
    va_end(args);
    return -EINVAL;
}

static bool is_port(const char *text)
{
    const size_t digits = strspn(text, "0123456789");
    if (!digits || digits > PORT_DIGITS || text[digits])
        return false;
    const unsigned long port = strtoul(text, NULL, 10);
    return port > 0 && port <= PORT_MOST;
}

/* An address with colons stands in brackets, else nobody knew where its port begins. */
static bool is_host(const char *text, size_t length)
{
    const bool bracketed = length > 2 && text[0] == '[' && text[length - 1] == ']';
    if (memchr(text, ':', length) ? !bracketed : length == 0)
        return false;
    for (size_t i = 0; i < length; i++)
        if (text[i] <= ' ' || text[i] > '~' || text[i] == '/' || text[i] == ',')
            return false;
    return true;
}

static int read_place(const char *place, struct hst_launch *launch, char *why)
{
    const char *colon = strrchr(place, ':');
    if (!colon || !is_port(colon + 1) || !is_host(place, (size_t)(colon - place)))
        return refuse(why,
                      "--rendezvous \"tcp:%.60s\" is no place. Fix: tcp:HOST:PORT, the node of "
                      "rank 0 and a port that is free there, 1 to %d.",
                      place, PORT_MOST);
    if (strlen(place) >= sizeof launch->meet)
        return refuse(why,
                      "the place of --rendezvous is longer than %zu characters. Fix: the host's "
                      "address in place of its name.",
                      sizeof launch->meet - 1);
    strcpy(launch->meet, place);
    launch->meet_chosen = true;
    return 0;
}

/* ---- the name of a file ---------------------------------------------------------------------- */

static const char *value_of(hst_getenv_fn *get, const char *name)
{
    const char *text = get(name);
    return text ? text : "";
}

/* FNV-1a, of the text and its end. */
static uint64_t hash(uint64_t so_far, const char *text)
{
    do
        so_far = (so_far ^ (unsigned char)*text) * 0x100000001b3u;
    while (*text++);
    return so_far;
}

static void name_file(hst_getenv_fn *get, struct hst_launch *launch)
{
    static const char kept[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    const char *run = value_of(get, "TORCHELASTIC_RUN_ID");
    /* agents of several nodes count their own restarts: only one agent has a number for all */
    const char *attempt =
        launch->locals == launch->ranks ? value_of(get, "TORCHELASTIC_RESTART_COUNT") : "";
    const char *const all[] = {run, attempt, value_of(get, "MASTER_ADDR"),
                               value_of(get, "MASTER_PORT")};
    uint64_t same = 0xcbf29ce484222325u;
    char shown[33];
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        same = hash(same, all[i]);
    snprintf(shown, sizeof shown, "%s", *run ? run : "run");
    for (char *c = shown; *c; c++)
        if (!strchr(kept, *c))
            *c = '_';
    snprintf(launch->file, sizeof launch->file, "hoistway-%s-%s-%016llx", shown,
             *attempt && strspn(attempt, "0123456789") == strlen(attempt) && strlen(attempt) < 10
                 ? attempt
                 : "0",
             (unsigned long long)same);
}

/* ---- all of it ------------------------------------------------------------------------------- */

int meet_read(const char *said, const char *by_mpi, hst_getenv_fn *get, struct hst_launch *launch,
              char *why)
{
    const bool file = strncmp(said, "file:", 5) == 0 && said[5];
    const bool place = strncmp(said, "tcp:", 4) == 0 && said[4];
    if (!file && !place)
        return refuse(why,
                      "--rendezvous \"%.60s\" is no place where ranks can meet. Fix: file:DIR or "
                      "tcp:HOST:PORT.",
                      said);
    if (by_mpi)
        return refuse(why,
                      "--rendezvous is of ranks that MPI does not know of, and %s has started "
                      "these. Fix: leave it out.",
                      by_mpi);
    if (!*launch->launcher)
        return refuse(why, "--rendezvous is given, but nothing says which of several ranks this "
                           "is. Fix: --world and --rank, or torchrun.");
    launch->meet[0] = '\0';
    const int rc = place ? read_place(said + 4, launch, why) : 0;
    if (rc)
        return rc;
    if (file) {
        launch->folder = said + 5;
        name_file(get, launch);
    }
    if (launch->locals == 0) { /* who starts them by hand does so on one node */
        launch->local = launch->rank;
        launch->locals = launch->ranks;
    }
    launch->mpi = false;
    launch->meets = true;
    return 0;
}
