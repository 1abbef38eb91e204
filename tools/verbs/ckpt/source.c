/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store that a verb reads: by one process, or by ranks that a launcher has started, each of
 * which finds some of its files. What is the same on all of them rank 0 tells; what is one's alone
 * that one tells, and ends the others.
 */
#include "cli/message/message.h"
#include "cli/message/say.h"
#include "cli/message/voice.h"
#include "cli/options/launch.h"
#include "cli/options/store.h"
#include "verbs/ckpt/ckpt.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static int stopped(void *context)
{
    const struct ckpt_source *source = context;
    return *source->stopped != 0;
}

static int join(struct ckpt_source *source, const char *work, struct hst_error *error)
{
    const struct hst_ckpt_ranks_config config = {
        .size = sizeof config,
        .launch = &source->launch,
        .store = source->store,
        .work = work,
        .stopped = stopped,
        .context = source,
    };
    source->stopped = stop_catch();
    voice_of(source->launch.rank, source->stopped);
    if (voice_is_other() && !freopen("/dev/null", "w", stdout)) /* rank 0 tells what all know */
        return fail(error, FAIL_WRITE, -errno, "/dev/null cannot be opened: %s.", strerror(errno));
    return hst_ckpt_ranks_join(&config, &source->ranks, error);
}

int ckpt_store_alone(const char *store, struct hst_error *error)
{
    if (!store_has_words(store))
        return 0;
    return fail(error, FAIL_VALUE, -EINVAL,
                "'%.200s' names the directories of several ranks, and ckpt reads one that has the "
                "files of all. Fix: bring them together, and name that directory; or leave them "
                "where they are, and start a rank there: mpirun -n N hoistway ckpt ...",
                store);
}

int ckpt_source_open(struct ckpt_source *source, const struct cli_operands *operands,
                     const char *work, struct hst_error *error)
{
    const struct hst_launch_flags none = {.world = NULL};
    const struct hst_store_place any = {.rank = 0};
    int native = ckpt_store(operands, source->store, error);
    if (!native && hst_store_words(source->store, &any, NULL, 0, error) < 0)
        native = error->native;
    native = native ? native : launch_read(&none, &source->launch, error);
    if (native)
        return native;
    /* one that a launcher has started looks for the files of all on its node, as several do */
    const bool launched = source->launch.launcher[0] != '\0';
    if (source->launch.ranks > 1 || (launched && store_has_words(source->store)))
        return join(source, work, error);
    return ckpt_store_alone(source->store, error);
}

static int open_version(const struct ckpt_source *source, const struct hst_ckpt_config *config,
                        struct hst_ckpt **ckpt, struct hst_error *error)
{
    const int native = source->ranks ? hst_ckpt_ranks_open(source->ranks, config, ckpt, error)
                                     : hst_ckpt_open(config, ckpt, error);
    struct hst_ckpt_info info = {.stepped_back = false};
    if (native == 0)
        hst_ckpt_info(*ckpt, &info);
    if (info.stepped_back && config->hold)
        cli_warn(CLI_STEPPED_BACK,
                 "the newest version of the store, of step %" PRIu64
                 ", is damaged: this is the one before, of step %" PRIu64,
                 info.damaged_step, info.step);
    return native;
}

int ckpt_source_version(const struct ckpt_source *source, uint64_t step, bool hold,
                        struct hst_ckpt **ckpt, struct hst_error *error)
{
    const struct hst_ckpt_config config = {.size = sizeof config,
                                           .store = source->store,
                                           .step = step,
                                           .hold = hold,
                                           .copy = step != HST_NO_VERSION};
    return open_version(source, &config, ckpt, error);
}

int ckpt_source_step(const struct ckpt_source *source, uint64_t step, struct hst_ckpt **ckpt,
                     struct hst_error *error)
{
    const struct hst_ckpt_config config = {
        .size = sizeof config, .store = source->store, .step = step, .hold = true};
    return open_version(source, &config, ckpt, error);
}

int ckpt_source_replicas(const struct ckpt_source *source, uint64_t step, uint32_t *numbers,
                         size_t capacity, size_t *count, struct hst_error *error)
{
    if (source->ranks)
        return hst_ckpt_ranks_replicas(source->ranks, step, numbers, capacity, count, error);
    *count = hst_ckpt_replicas(source->store, step, numbers, capacity);
    return 0;
}

int ckpt_source_replica(const struct ckpt_source *source, uint64_t step, uint32_t number,
                        struct hst_ckpt **ckpt, struct hst_error *error)
{
    const struct hst_ckpt_config config = {.size = sizeof config,
                                           .store = source->store,
                                           .step = step,
                                           .hold = true,
                                           .replica = number};
    return open_version(source, &config, ckpt, error);
}

int ckpt_source_kept(const struct ckpt_source *source, uint64_t *steps, size_t capacity,
                     size_t *count, struct hst_error *error)
{
    if (source->ranks)
        return hst_ckpt_ranks_kept(source->ranks, steps, capacity, count, error);
    *count = hst_ckpt_kept(source->store, steps, capacity);
    return 0;
}

int ckpt_source_copies(const struct ckpt_source *source, uint64_t *steps, size_t capacity,
                       size_t *count, struct hst_error *error)
{
    return source->ranks ? hst_ckpt_ranks_copies(source->ranks, steps, capacity, count, error)
                         : ckpt_source_kept(source, steps, capacity, count, error);
}

bool ckpt_source_goes_on(const struct ckpt_source *source, int native, struct hst_error *error)
{
    return native == 0 || !source->ranks || hst_ckpt_ranks_agreed(source->ranks, native, error);
}

int ckpt_source_fail(const struct ckpt_source *source, bool goes_on, const struct hst_error *error)
{
    if (error->native == -ECANCELED)
        return CLI_EXIT_STOPPED_AT_ONCE;
    return source->ranks && goes_on && voice_is_other() ? (int)cli_exit_code(error)
                                                        : cli_fail(error);
}

int ckpt_source_close(struct ckpt_source *source, bool goes_on, int code)
{
    struct hst_error error = {0};
    if (!source->ranks)
        return code;
    (void)say_flush(stdout); /* a launcher ends all once the first has gone with a status */
    if (goes_on && hst_ckpt_ranks_leave(&source->ranks, &error) == 0)
        return code;
    if (goes_on)
        code = cli_fail(&error);
    hst_ckpt_ranks_abort(source->ranks, code);
    return code;
}
