/* SPDX-License-Identifier: Apache-2.0 */
/* See voice.h. A launcher that sees one rank end sends SIGTERM to the others, within a second. */
#include "cli/message/voice.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define NAPS   200
#define NAP_NS 10000000 /* all of them are two seconds */

static struct {
    char prefix[VOICE_BYTES];
    const volatile sig_atomic_t *ended;
    const char *subject;
    bool all_alike;
} voice;

void voice_of(uint32_t rank, const volatile sig_atomic_t *ended)
{
    char node[64] = "";
    voice.ended = ended;
    voice.all_alike = false;
    voice.prefix[0] = '\0';
    if (rank == 0)
        return;
    if (gethostname(node, sizeof node - 1))
        snprintf(node, sizeof node, "a node without a name");
    snprintf(voice.prefix, sizeof voice.prefix, "rank %u (%s): ", (unsigned)rank, node);
}

void voice_about(const char *subject)
{
    voice.subject = subject;
}

const char *voice_subject(void)
{
    return voice.subject;
}

bool voice_is_other(void)
{
    return voice.prefix[0] != '\0';
}

const char *voice_prefix(void)
{
    return voice.prefix;
}

void voice_all_alike(void)
{
    voice.all_alike = true;
}

bool voice_is_told(void)
{
    return voice.all_alike && voice_is_other();
}

bool voice_tells_end(void)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    const sig_atomic_t before = voice.ended ? *voice.ended : 0;
    if (voice_is_told())
        return false;
    for (int i = 0; voice_is_other() && i < NAPS; i++) {
        if (voice.ended && *voice.ended != before)
            return false;
        nanosleep(&nap, NULL);
    }
    return true;
}
