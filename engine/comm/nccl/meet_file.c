/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Brings rank 0's value to all ranks by files, and decides which files are of this run. Each other
 * rank leaves a call, which has a random token. Rank 0's answer has the value and the tokens of all
 * calls that it has found. A rank takes an answer with its own token alone: no earlier run can have
 * written it. It then removes its call, and the last one of them lets rank 0 remove the answer. A
 * call that a dead run left is answered too, until the rank's own one takes its place.
 */
#include "comm/nccl/meet_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { NAME_BYTES = 200, MARK_BYTES = 8 };
#define NAP_LEAST_NS 1000000L
#define NAP_MOST_NS  50000000L

struct token {
    unsigned char bytes[16];
};
struct call {
    char mark[MARK_BYTES];
    uint32_t ranks, rank;
    struct token token;
};
struct answer { /* before the token of each rank's call, zeros where none was found */
    char mark[MARK_BYTES];
    uint32_t ranks, complete; /* complete: all calls were found, and are of such a world */
    struct token token;       /* rank 0's own */
    char value[MEET_FILE_BYTES];
};
static const char call_mark[MARK_BYTES] = "hstcall", answer_mark[MARK_BYTES] = "hstansw";

/* Rank 0 knows this of another one. */
struct caller {
    struct token token;
    uint32_t ranks; /* that it says there are; 0: there is no call */
    uint32_t said;  /* the same of the last call that was there */
    bool gone;      /* it has the value */
};

struct meeting {
    const struct meet_file *in;
    struct comm_failure *failure;
    int folder;
    struct token own;
    struct timespec since;
    long nap_ns;
};

/* ---- failures -------------------------------------------------------------------------------- */

__attribute__((format(printf, 5, 6))) static int refuse(struct meeting *m, int rc, int rank,
                                                        const char *fix, const char *format, ...)
{
    char text[sizeof m->failure->text];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    comm_fail(m->failure, rc, rank, "%s", text);
    snprintf(m->failure->fix, sizeof m->failure->fix, "%s", fix);
    return rc;
}

static int refuse_file(struct meeting *m, const char *name, const char *why)
{
    return refuse(m, -EPERM, COMM_NOBODY, "remove it, or --rendezvous file: with another directory",
                  "%.150s/%s is not taken: %s", m->in->folder, name, why);
}

static int refuse_other(struct meeting *m)
{
    return refuse(m, -EBUSY, COMM_NOBODY,
                  "end the other one, or a directory for each run (--rendezvous file:DIR)",
                  "another process is rank %u of a run that meets by %.150s/%.120s too",
                  m->in->rank, m->in->folder, m->in->name);
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Rank 0's is the answer, another one's its call. */
static void name_of(const struct meeting *m, uint32_t rank, char name[NAME_BYTES])
{
    if (rank)
        snprintf(name, NAME_BYTES, "%.127s.rank%u", m->in->name, rank);
    else
        snprintf(name, NAME_BYTES, "%.127s", m->in->name);
}

static bool write_all(int file, const void *bytes, size_t count)
{
    for (size_t at = 0; at < count;) {
        const ssize_t n = write(file, (const char *)bytes + at, count - at);
        if (n < 0 && errno != EINTR)
            return false;
        at += n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* This rank's file, whole from when it has its name. */
static int put(struct meeting *m, const void *bytes, size_t count)
{
    char name[NAME_BYTES], beside[NAME_BYTES + 16];
    uint32_t part;
    name_of(m, m->in->rank, name);
    memcpy(&part, m->own.bytes, sizeof part);
    snprintf(beside, sizeof beside, "%s.%08x", name, part);
    const int file = openat(m->folder, beside,
                            O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY, 0600);
    bool done = file >= 0 && write_all(file, bytes, count);
    int why = done ? 0 : errno;
    if (file >= 0 && close(file) && done) {
        done = false;
        why = errno;
    }
    if (done && renameat(m->folder, beside, m->folder, name)) {
        done = false;
        why = errno;
    }
    if (done)
        return 0;
    if (file >= 0)
        unlinkat(m->folder, beside, 0);
    return refuse(m, -EIO, COMM_NOBODY,
                  "a directory in which this user may write (--rendezvous file:DIR)",
                  "%.150s/%s cannot be written: %s", m->in->folder, name, strerror(why));
}

/*
 * Reads the beginning of a rank's file, and of an answer the token at that place. 1: it was there;
 * 0: there is none; UNCLEAR: it goes or is replaced just now, or is not so long; negative: a file
 * that another user can have made.
 */
enum { UNCLEAR = 2 };

static int look(struct meeting *m, uint32_t rank, void *head, size_t bytes, struct token *at,
                uint32_t place)
{
    char name[NAME_BYTES];
    struct stat is;
    name_of(m, rank, name);
    const int file =
        openat(m->folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0 && errno == ELOOP)
        return refuse_file(m, name, "it is a link");
    if (file < 0 && errno == EACCES)
        return refuse_file(m, name, "it is another user's, or closed to this one");
    if (file < 0 && (errno == ENOENT || errno == ESTALE))
        return errno == ENOENT ? 0 : UNCLEAR;
    if (file < 0 || fstat(file, &is)) {
        const int why = errno;
        if (file >= 0)
            close(file);
        return refuse_file(m, name, strerror(why));
    }
    const off_t behind = (off_t)(bytes + place * sizeof *at);
    const bool whole = pread(file, head, bytes, 0) == (ssize_t)bytes &&
                       (!at || pread(file, at, sizeof *at, behind) == (ssize_t)sizeof *at);
    close(file);
    if (!S_ISREG(is.st_mode))
        return refuse_file(m, name, "it is no file");
    if (is.st_uid != geteuid())
        return refuse_file(m, name, "it is another user's");
    if (is.st_mode & (S_IRWXG | S_IRWXO))
        return refuse_file(m, name, "it is open to other users");
    return whole ? 1 : UNCLEAR;
}

static bool same(const struct token *a, const struct token *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* The token of the call, or the answer, that has this rank's name; as `look`. */
static int look_at_own(struct meeting *m, struct token *token)
{
    struct call call = {.ranks = 0};
    struct answer answer = {.ranks = 0};
    const int rc = m->in->rank ? look(m, m->in->rank, &call, sizeof call, NULL, 0)
                               : look(m, 0, &answer, sizeof answer, NULL, 0);
    *token = m->in->rank ? call.token : answer.token;
    return rc;
}

/* It is another process's where it is not there, too: only its owner removes it. */
static int check_own(struct meeting *m)
{
    struct token token;
    const int rc = look_at_own(m, &token);
    if (rc < 0 || rc == UNCLEAR)
        return rc < 0 ? rc : 0;
    return rc == 1 && same(&token, &m->own) ? 0 : refuse_other(m);
}

static void remove_own(struct meeting *m)
{
    char name[NAME_BYTES];
    struct comm_failure kept = *m->failure;
    struct token token;
    name_of(m, m->in->rank, name);
    if (look_at_own(m, &token) == 1 && same(&token, &m->own))
        unlinkat(m->folder, name, 0);
    *m->failure = kept;
}

/* ---- waiting --------------------------------------------------------------------------------- */

static double waited_s(const struct meeting *m)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - m->since.tv_sec) + (double)(now.tv_nsec - m->since.tv_nsec) * 1e-9;
}

/* False once the time is over. */
static bool nap(struct meeting *m)
{
    const struct timespec nap = {.tv_nsec = m->nap_ns};
    if (waited_s(m) >= m->in->limit_s)
        return false;
    nanosleep(&nap, NULL);
    m->nap_ns = 2 * m->nap_ns < NAP_MOST_NS ? 2 * m->nap_ns : NAP_MOST_NS;
    return true;
}

/* ---- a rank that asks ------------------------------------------------------------------------ */

/* 1: it has the value. An answer without this rank's token is of another run, or too early. */
static int read_answer(struct meeting *m, void *value, size_t bytes)
{
    struct answer answer = {.ranks = 0};
    struct token token = {{0}};
    const int rc = look(m, 0, &answer, sizeof answer, &token, m->in->rank);
    if (rc != 1 || memcmp(answer.mark, answer_mark, MARK_BYTES) != 0 || !same(&token, &m->own))
        return rc < 0 ? rc : 0;
    if (answer.ranks != m->in->ranks)
        return refuse(m, -EINVAL, 0, "start all of them with the same number of ranks",
                      "rank 0 is one of %u, and rank %u one of %u", answer.ranks, m->in->rank,
                      m->in->ranks);
    if (!answer.complete)
        return 0;
    memcpy(value, answer.value, bytes);
    return 1;
}

static int ask(struct meeting *m, void *value, size_t bytes)
{
    struct call call = {.ranks = m->in->ranks, .rank = m->in->rank, .token = m->own};
    memcpy(call.mark, call_mark, MARK_BYTES);
    int rc = put(m, &call, sizeof call);
    if (rc)
        return rc;
    while ((rc = read_answer(m, value, bytes)) == 0 && (rc = check_own(m)) == 0)
        if (!nap(m)) {
            rc = refuse(m, -EPIPE, 0,
                        "what rank 0 has said, or a directory that all ranks see, and the same "
                        "launch (--rendezvous file:DIR)",
                        "rank 0 has not answered rank %u in %.0f s by %.150s/%.120s", m->in->rank,
                        waited_s(m), m->in->folder, m->in->name);
            break;
        }
    remove_own(m);
    return rc < 0 ? rc : 0;
}

/* ---- rank 0, who answers --------------------------------------------------------------------- */

/*
 * Looks at the call of each rank that has not gone. *changed: it is another one than before.
 * answered: all of them were in an answer, so that who has none any more has the value.
 */
static int find_calls(struct meeting *m, struct caller *callers, bool answered, bool *changed)
{
    for (uint32_t r = 1; r < m->in->ranks; r++) {
        struct caller *c = &callers[r];
        struct call call = {.ranks = 0};
        int rc = c->gone ? 0 : look(m, r, &call, sizeof call, NULL, 0);
        if (rc < 0)
            return rc;
        if (c->gone || rc == UNCLEAR || (rc == 0 && c->ranks == 0))
            continue;
        if (rc == 0 && answered) {
            c->gone = true;
            continue;
        }
        const bool is_call = rc == 1 && memcmp(call.mark, call_mark, MARK_BYTES) == 0 &&
                             call.rank == r && call.ranks > 0;
        const struct caller now = {.token = is_call ? call.token : (struct token){{0}},
                                   .ranks = is_call ? call.ranks : 0,
                                   .said = is_call ? call.ranks : c->said};
        *changed = *changed || now.ranks != c->ranks || !same(&now.token, &c->token);
        *c = now;
    }
    return 0;
}

static bool all_call(const struct meeting *m, const struct caller *callers)
{
    for (uint32_t r = 1; r < m->in->ranks; r++)
        if (callers[r].ranks != m->in->ranks)
            return false;
    return true;
}

static bool all_gone(const struct meeting *m, const struct caller *callers)
{
    for (uint32_t r = 1; r < m->in->ranks; r++)
        if (!callers[r].gone)
            return false;
    return true;
}

/* answer: with room for a token of each rank behind it; the value is there already. */
static int write_answer(struct meeting *m, const struct caller *callers, struct answer *answer)
{
    struct token *tokens = (struct token *)(answer + 1);
    answer->complete = all_call(m, callers);
    for (uint32_t r = 1; r < m->in->ranks; r++)
        tokens[r] = callers[r].token;
    return put(m, answer, sizeof *answer + m->in->ranks * sizeof *tokens);
}

static int refuse_late(struct meeting *m, const struct caller *callers)
{
    uint32_t r = 1;
    while (r + 1 < m->in->ranks && callers[r].gone)
        r++;
    for (uint32_t other = r; callers[r].ranks == m->in->ranks && other < m->in->ranks; other++)
        if (!callers[other].gone && callers[other].ranks != m->in->ranks)
            r = other;
    if (callers[r].said && callers[r].said != m->in->ranks)
        return refuse(m, -EPIPE, (int)r, "start all of them with the same number of ranks",
                      "rank %u is one of %u, and rank 0 one of %u: waited %.0f s for another one",
                      r, callers[r].said, m->in->ranks, waited_s(m));
    return refuse(m, -EPIPE, (int)r,
                  "what that rank has said, or a directory that all ranks see, and the same "
                  "launch (--rendezvous file:DIR)",
                  "rank %u has not come: rank 0 waited %.0f s for it by %.150s/%.120s", r,
                  waited_s(m), m->in->folder, m->in->name);
}

static int answer_all(struct meeting *m, struct caller *callers, struct answer *answer)
{
    bool there = false;
    for (;;) {
        bool changed = false;
        int rc = find_calls(m, callers, answer->complete, &changed);
        if (!rc && changed && (rc = write_answer(m, callers, answer)) == 0)
            there = true;
        else if (!rc && there)
            rc = check_own(m);
        if (rc || all_gone(m, callers))
            return rc;
        if (!nap(m))
            return refuse_late(m, callers);
    }
}

static int answer_with(struct meeting *m, const void *value, size_t bytes)
{
    const uint32_t ranks = m->in->ranks;
    char name[NAME_BYTES];
    struct caller *callers = calloc(ranks, sizeof *callers);
    struct answer *answer = calloc(1, sizeof *answer + ranks * sizeof(struct token));
    int rc;
    name_of(m, 0, name);
    if (!callers || !answer) {
        rc = refuse(m, -ENOMEM, COMM_NOBODY, "more memory for this process",
                    "no memory for the tokens of %u ranks", ranks);
    } else if (unlinkat(m->folder, name, 0) && errno != ENOENT) {
        rc = refuse_file(m, name, strerror(errno));
    } else {
        memcpy(answer->mark, answer_mark, MARK_BYTES);
        answer->ranks = ranks;
        answer->token = m->own;
        memcpy(answer->value, value, bytes);
        rc = answer_all(m, callers, answer);
        remove_own(m);
    }
    free(callers);
    free(answer);
    return rc;
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* Behind a slash the system follows a link that O_NOFOLLOW would refuse. */
static int open_folder(struct meeting *m)
{
    char bare[PATH_MAX];
    struct stat is;
    size_t n = strlen(m->in->folder);
    while (n > 1 && m->in->folder[n - 1] == '/')
        n--;
    const int fits = n < sizeof bare;
    memcpy(bare, m->in->folder, fits ? n : 0);
    bare[fits ? n : 0] = '\0';
    m->folder = fits ? open(bare, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
    if (m->folder >= 0)
        return 0;
    const int why = fits ? errno : ENAMETOOLONG;
    if (fits && lstat(bare, &is) == 0 && S_ISLNK(is.st_mode))
        return refuse(m, -EIO, COMM_NOBODY, "name the directory itself",
                      "--rendezvous file:%.200s is a symbolic link", m->in->folder);
    return refuse(m, -EIO, COMM_NOBODY, "make it, on a file system that all ranks see",
                  "the directory of --rendezvous file:%.200s cannot be opened: %s", m->in->folder,
                  strerror(why));
}

int meet_by_file(const struct meet_file *in, void *value, size_t bytes,
                 struct comm_failure *failure)
{
    struct meeting m = {.in = in, .failure = failure, .folder = -1, .nap_ns = NAP_LEAST_NS};
    clock_gettime(CLOCK_MONOTONIC, &m.since);
    if (getrandom(&m.own, sizeof m.own, 0) != (ssize_t)sizeof m.own)
        return refuse(&m, -EIO, COMM_NOBODY, "a kernel that has it, 3.17 or later",
                      "getrandom failed: %s", strerror(errno));
    int rc = open_folder(&m);
    if (rc)
        return rc;
    rc = in->rank ? ask(&m, value, bytes) : answer_with(&m, value, bytes);
    close(m.folder);
    return rc;
}
