/* SPDX-License-Identifier: Apache-2.0 */
/* Decides when the line that says what the program is at is written, and leaves no part of it
 * behind; see activity.h. */
#include "cli/message/activity.h"

#include "base/now.h"
#include "base/text.h"
#include "cli/message/message.h"
#include "cli/message/say.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define SHOWN_FROM_S 1.0 /* what is shorter is not shown */
#define TICK_NS      200000000L
#define SILENCE_S    30.0               /* where no terminal shows a line that ticks */
#define SILENCE_NAME "HOISTWAY_SILENCE" /* seconds instead of these: for tests */
#define STACK_BYTES  ((size_t)256 << 10)
#define ERASE        "\r\033[K"

enum open_line { OPEN_NONE, OPEN_TICKING, OPEN_KEPT };

/* There is one stderr, hence one of these. */
static struct {
    pthread_mutex_t lock; /* of all here, and of what is written to the terminal */
    pthread_cond_t begun;
    bool started, active;
    double begin_s, busy_s; /* of this activity; of all since there was none */
    double told_s;          /* when a line was last written that stays */
    double silence_s;
    char what[ACTIVITY_NAME_BYTES];
    char kept[ACTIVITY_LINE_BYTES];  /* the line that stays, until it is ended; or empty */
    char shown[ACTIVITY_LINE_BYTES]; /* what ticks, as it was last written */
} state = {.lock = PTHREAD_MUTEX_INITIALIZER, .begun = PTHREAD_COND_INITIALIZER};

static _Atomic uint64_t counted_bytes, whole_bytes;
static _Atomic int open_line; /* an enum open_line, which handlers of signals read */

void activity_format(const struct activity *a, char line[ACTIVITY_LINE_BYTES])
{
    char done[TEXT_BYTES], total[TEXT_BYTES], rate[TEXT_BYTES], eta[TEXT_BYTES];
    const uint64_t s = a->elapsed_s > 0 ? (uint64_t)a->elapsed_s : 0;
    size_t n = (size_t)snprintf(line, ACTIVITY_LINE_BYTES, "%.150s %" PRIu64 ":%02" PRIu64, a->what,
                                s / 60, s % 60);
    if (a->total_bytes > 0)
        n += (size_t)snprintf(line + n, ACTIVITY_LINE_BYTES - n, " | %s of %s %.0f%%",
                              text_size(a->done_bytes, done), text_size(a->total_bytes, total),
                              floor(100.0 * (double)a->done_bytes / (double)a->total_bytes));
    if (a->done_bytes > 0 && a->done_bytes < a->total_bytes && a->elapsed_s > 0) {
        const double per_s = (double)a->done_bytes / a->elapsed_s;
        const double left_s = (double)(a->total_bytes - a->done_bytes) / per_s;
        n += (size_t)snprintf(line + n, ACTIVITY_LINE_BYTES - n, " | %s/s | eta %s",
                              text_size((uint64_t)per_s, rate), text_duration(left_s, eta));
    }
    if (a->beside && a->beside[0])
        snprintf(line + n, ACTIVITY_LINE_BYTES - n, " | %.250s", a->beside);
}

/* ---- with the lock held ---- */

/* A line longer than the terminal would wrap, and could not be written over. */
static int columns(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 20)
        return (int)ACTIVITY_LINE_BYTES;
    return size.ws_col - 1;
}

static void write_over(const char *line, enum open_line kind)
{
    say("\r%.*s\033[K", columns(), line);
    open_line = kind;
}

/* A line that ticks makes room for the line that stays, or for nothing. */
static void take_back(void)
{
    if (open_line == OPEN_TICKING && state.kept[0])
        write_over(state.kept, OPEN_KEPT);
    else if (open_line == OPEN_TICKING)
        say(ERASE);
    if (!state.kept[0])
        open_line = OPEN_NONE;
    state.shown[0] = '\0';
}

static void end_line(void)
{
    take_back();
    if (open_line == OPEN_KEPT)
        say("\n");
    open_line = OPEN_NONE;
    state.kept[0] = '\0';
}

static void tick(void)
{
    char line[ACTIVITY_LINE_BYTES];
    const double now = now_s();
    const bool terminal = activity_on_terminal();
    const uint64_t done = counted_bytes, whole = whole_bytes;
    const struct activity activity = {.what = state.what,
                                      .done_bytes = done < whole ? done : whole,
                                      .total_bytes = whole,
                                      .elapsed_s = now - state.begin_s,
                                      .beside = state.kept};
    const double silent_s = now - state.told_s, busy_s = now - state.busy_s;
    if (terminal ? fmin(silent_s, busy_s) < SHOWN_FROM_S : silent_s < state.silence_s)
        return;
    activity_format(&activity, line);
    if (!terminal) {
        say("%s\n", line);
        state.told_s = now;
    } else if (strcmp(line, state.shown) != 0) {
        memcpy(state.shown, line, sizeof line);
        write_over(line, OPEN_TICKING);
    }
}

/* ---- the thread ---- */

static void *keep_up(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&state.lock);
    for (;;) {
        struct timespec until;
        if (!state.active) {
            pthread_cond_wait(&state.begun, &state.lock);
            continue;
        }
        tick();
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += TICK_NS;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        pthread_cond_clockwait(&state.begun, &state.lock, CLOCK_MONOTONIC, &until);
    }
    return NULL;
}

/* A signal that nobody catches would leave a line behind that is not ended. */
static void on_end(int number)
{
    activity_leave();
    raise(number); /* as it would have ended: the handler was for one signal */
}

static void catch_ends(void)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    const struct sigaction action = {.sa_handler = on_end, .sa_flags = (int)SA_RESETHAND};
    struct sigaction was;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (sigaction(ends[i], NULL, &was) == 0 && was.sa_handler == SIG_DFL)
            sigaction(ends[i], &action, NULL);
}

/* Signals are for the threads that they were meant for before there was this one. */
static int start_thread(void)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    int rc = pthread_attr_init(&attributes);
    if (rc)
        return rc;
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&thread, &attributes, keep_up, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0)
        pthread_setname_np(thread, "hst-activity");
    pthread_attr_destroy(&attributes);
    return rc;
}

/* Returns 0, or why there is no thread. */
static int start(void)
{
    const char *silence = getenv(SILENCE_NAME);
    const double s = silence ? strtod(silence, NULL) : 0;
    if (state.started)
        return 0;
    state.started = true;
    state.silence_s = s > 0 ? s : SILENCE_S;
    state.told_s = now_s();
    if (activity_on_terminal())
        catch_ends();
    return start_thread();
}

/* ---- what others call ---- */

void activity_begin(const char *what)
{
    pthread_mutex_lock(&state.lock);
    const int rc = start();
    take_back();
    snprintf(state.what, sizeof state.what, "%s", what);
    counted_bytes = whole_bytes = 0;
    state.begin_s = now_s();
    if (!state.active) {
        state.busy_s = state.begin_s;
        pthread_cond_signal(&state.begun);
    }
    state.active = true;
    pthread_mutex_unlock(&state.lock);
    if (rc)
        cli_warn(CLI_NO_THREAD,
                 "what the program is at is not shown: a thread for it cannot be started (%s). All "
                 "else goes on. Fix: raise ulimit -u, end other programs.",
                 strerror(rc));
}

void activity_count(uint64_t done_bytes, uint64_t total_bytes)
{
    whole_bytes = total_bytes;
    counted_bytes = done_bytes;
}

void activity_end(void)
{
    pthread_mutex_lock(&state.lock);
    take_back();
    state.active = false;
    pthread_mutex_unlock(&state.lock);
}

bool activity_on_terminal(void)
{
    return isatty(STDERR_FILENO) == 1;
}

void activity_show(const char *line, bool last)
{
    pthread_mutex_lock(&state.lock);
    state.told_s = now_s();
    if (activity_on_terminal()) {
        snprintf(state.kept, sizeof state.kept, "%s", line);
        state.shown[0] = '\0';
        write_over(line, OPEN_KEPT);
        if (last)
            end_line();
    } else {
        say("%s\n", line);
    }
    pthread_mutex_unlock(&state.lock);
}

void activity_hold(void)
{
    pthread_mutex_lock(&state.lock);
    end_line();
}

void activity_release(void)
{
    state.told_s = now_s();
    pthread_mutex_unlock(&state.lock);
}

void activity_interrupt(void)
{
    activity_hold();
    activity_release();
}

void activity_leave(void)
{
    const int open = open_line;
    const char *text = open == OPEN_KEPT ? "\n" : ERASE;
    if (open != OPEN_NONE)
        say_at_once(text, strlen(text));
}
