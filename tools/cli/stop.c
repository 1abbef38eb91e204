/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/stop.h"

#include "cli/message/activity.h"
#include "cli/message/say.h"

#include <stdatomic.h>
#include <unistd.h>

static volatile sig_atomic_t asked;
static atomic_flag seen = ATOMIC_FLAG_INIT; /* two threads may take one signal each at once */

static void on_signal(int number)
{
    if (atomic_flag_test_and_set(&seen)) {
        activity_leave();
        _exit(CLI_EXIT_STOPPED_AT_ONCE);
    }
    asked = number;
    say_hurry();
}

const volatile sig_atomic_t *stop_catch(void)
{
    const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    struct sigaction hangup;
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
        sigaction(SIGHUP, &action, NULL);
    return &asked;
}
