/* SPDX-License-Identifier: Apache-2.0 */
/* Which of several processes may go on, and which of them speaks. */
#include "cli/message/message.h"
#include "cli/message/progress.h"
#include "cli/message/voice.h"
#include "cli/options/launch.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- launch ---- */

static const char *const VARIABLES[] = {"OMPI_COMM_WORLD_SIZE",
                                        "OMPI_COMM_WORLD_RANK",
                                        "PMI_SIZE",
                                        "PMI_RANK",
                                        "SLURM_STEP_NUM_TASKS",
                                        "SLURM_STEP_ID",
                                        "WORLD_SIZE",
                                        "SLURM_PROCID",
                                        "RANK",
                                        "LOCAL_RANK",
                                        "PMIX_RANK"};

/* Pairs of a name and a value, of which a null name is the end. */
struct launched {
    const char *variables[4][2];
    struct hst_launch_flags flags;
    uint32_t ranks;   /* 0: refused */
    const char *told; /* in the refusal */
    bool alike;       /* which is that of all of them: rank 0 tells it */
};

static const struct launched CASES[] = {
    {{{NULL}}, {NULL, NULL, NULL}, 1, NULL, false},
    {{{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}},
     {NULL, NULL, NULL},
     4,
     NULL,
     false},
    {{{NULL}}, {"3", "2", NULL}, 3, NULL, false},
    /* half of names that others have is nobody's; what is typed, or Open MPI's, is somebody's */
    {{{"WORLD_SIZE", "4"}}, {NULL, NULL, NULL}, 1, NULL, false},
    {{{"OMPI_COMM_WORLD_SIZE", "4"}}, {NULL, NULL, NULL}, 0, "Fix: set it too, or unset ", false},
    {{{NULL}}, {"3", NULL, NULL}, 0, "--world 3 is given without --rank. Fix: ", false},
    {{{NULL}},
     {"3", "3", NULL},
     0,
     "no rank below --world, which is 3. Fix: each process's own --rank, 0 to 2.",
     false},
    {{{NULL}}, {"1", "1", NULL}, 0, "no rank below --world, which is 1. Fix: --rank 0.", false},
    {{{"WORLD_SIZE", "2"}, {"RANK", "1"}, {"LOCAL_RANK", "1"}},
     {NULL, NULL, NULL},
     0,
     "MPI, which joins ranks, does not know of these. Fix: start it once, without torchrun.",
     true},
    {{{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"}},
     {NULL, NULL, NULL},
     0,
     "Fix: srun --mpi=pmix.",
     true},
    {{{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}},
     {"2", "0", NULL},
     0,
     "Fix: ",
     false},
    {{{NULL}}, {"2", "1", "tcp:none"}, 0, "is no place. Fix: tcp:HOST:PORT", false},
    {{{NULL}}, {NULL, NULL, "file:dir"}, 0, "Fix: --world and --rank, or torchrun.", false},
    {{{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}},
     {NULL, NULL, "file:dir"},
     0,
     "mpirun of Open MPI has started these. Fix: leave it out.",
     false},
};

static void set(const struct launched *c)
{
    for (size_t i = 0; i < sizeof VARIABLES / sizeof *VARIABLES; i++)
        unsetenv(VARIABLES[i]);
    for (size_t i = 0; i < 4 && c->variables[i][0]; i++)
        setenv(c->variables[i][0], c->variables[i][1], 1);
}

static void a_rank_is_one_of_a_world_that_mpi_carries(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const struct launched *c = &CASES[i];
        struct hst_launch launch;
        struct hst_error error = {0};
        set(c);
        voice_of(1, NULL);
        int native = launch_read(&c->flags, &launch, &error);
        if (native != (c->ranks ? 0 : -EINVAL))
            fail_msg("case %zu: %d %s", i, native, error.message);
        if (c->ranks) {
            assert_int_equal(launch.ranks, c->ranks);
            continue;
        }
        /* each of them would say it */
        assert_int_equal(voice_is_told(), c->alike);
        assert_int_equal(error.code, FAIL_RANKS);
        assert_int_equal(cli_exit_code(&error), CLI_EXIT_USAGE);
        if (!strstr(error.message, c->told))
            fail_msg("case %zu: %s", i, error.message);
    }
    voice_of(0, NULL);
}

static void what_a_command_line_can_mend_has_another_exit_status(void **state)
{
    static const struct {
        int code;
        enum cli_exit status;
    } rows[] = {{HST_E_LAUNCH, CLI_EXIT_USAGE},       {HST_E_JOIN_MPI, CLI_EXIT_FAILURE},
                {HST_E_RANKS_DIFFER, CLI_EXIT_USAGE}, {HST_E_RANK, CLI_EXIT_FAILURE},
                {HST_E_JOIN_NCCL, CLI_EXIT_FAILURE},  {HST_E_COMM, CLI_EXIT_FAILURE}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(cli_exit_code(&(struct hst_error){.code = rows[i].code}), rows[i].status);
}

/* Others have GPUs, and would wait for one that has said nothing. */
static void a_rank_without_a_gpu_tells_it_itself(void **state)
{
    (void)state;
    const struct hst_launch launch = {.ranks = 2,
                                      .rank = 1,
                                      .launcher = "torchrun",
                                      .variable = "WORLD_SIZE",
                                      .alone = "without torchrun"};
    for (int own = 0; own < 2; own++) {
        struct hst_error error = {0};
        voice_of(1, NULL);
        assert_int_equal(launch_needs_mpi(&launch, own ? "no CUDA driver" : "", &error), -EINVAL);
        assert_int_equal(voice_is_told(), !own);
        assert_int_equal(error.code, FAIL_RANKS);
        assert_int_equal(strstr(error.message, "rank 1 has none: no CUDA driver. Fix: ") != NULL,
                         own);
    }
    voice_of(0, NULL);
}

/* ---- voice ---- */

static volatile sig_atomic_t ended;

static void on_alarm(int number)
{
    ended = number;
}

/* A signal comes in a tenth of a second. */
static void await_alarm(void)
{
    const struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &action, NULL);
    ended = 0;
    ualarm(100000, 0);
}

/* It does not wait for whether another one does. */
static void rank_0_speaks_as_one_process_does(void **state)
{
    (void)state;
    voice_of(0, &ended);
    assert_false(voice_is_other());
    assert_string_equal(voice_prefix(), "");
    await_alarm();
    assert_true(voice_tells_end());
    while (!ended)
        usleep(1000);
}

static void others_name_themselves_and_their_node(void **state)
{
    (void)state;
    char node[64] = "", want[VOICE_BYTES];
    assert_int_equal(gethostname(node, sizeof node - 1), 0);
    snprintf(want, sizeof want, "rank 3 (%s): ", node);
    voice_of(3, &ended);
    assert_true(voice_is_other());
    assert_string_equal(voice_prefix(), want);
    voice_of(0, NULL);
}

/* Who was asked to stop before may fail all the same, and says so. */
static void an_end_is_told_unless_the_launcher_has_brought_it(void **state)
{
    (void)state;
    voice_of(1, &ended);
    await_alarm();
    assert_false(voice_tells_end());
    assert_int_equal(ended, SIGALRM);
    assert_true(voice_tells_end());
    voice_of(0, NULL);
}

static void what_all_have_alike_is_rank_0s_to_tell(void **state)
{
    (void)state;
    for (uint32_t rank = 0; rank < 2; rank++) {
        voice_of(rank, NULL);
        voice_all_alike();
        assert_int_equal(voice_tells_end(), rank == 0);
    }
    voice_of(0, NULL);
    assert_false(voice_is_told());
}

/* Of a run on two ranks: stderr has what is the second one's alone. */
static void notes_and_warnings_of_the_tools_are_rank_0s(void **state)
{
    (void)state;
    char text[512];
    for (uint32_t rank = 0; rank < 2; rank++) {
        int pipes[2], old = dup(2);
        assert_int_equal(pipe(pipes), 0);
        dup2(pipes[1], 2);
        voice_of(rank, NULL);
        cli_warn(CLI_VALUE, "of all");
        cli_note(CLI_VALUE, "of all");
        cli_engine_log(&(struct progress){.quiet = true}, HST_LOG_WARNING, "W104 of its own");
        dup2(old, 2);
        close(old);
        close(pipes[1]);
        ssize_t bytes = read(pipes[0], text, sizeof text - 1);
        close(pipes[0]);
        assert_true(bytes > 0);
        text[bytes] = '\0';
        assert_int_equal(strstr(text, "of all") != NULL, rank == 0);
        const char *own = strstr(text, "warning[W104] of its own");
        assert_non_null(own);
        assert_int_equal(own > text && own[-2] == ':', rank == 1);
    }
    voice_of(0, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_is_one_of_a_world_that_mpi_carries),
        cmocka_unit_test(a_rank_without_a_gpu_tells_it_itself),
        cmocka_unit_test(what_a_command_line_can_mend_has_another_exit_status),
        cmocka_unit_test(rank_0_speaks_as_one_process_does),
        cmocka_unit_test(others_name_themselves_and_their_node),
        cmocka_unit_test(an_end_is_told_unless_the_launcher_has_brought_it),
        cmocka_unit_test(what_all_have_alike_is_rank_0s_to_tell),
        cmocka_unit_test(notes_and_warnings_of_the_tools_are_rank_0s),
    };
    return cmocka_run_group_tests_name("cli/ranks", tests, NULL, NULL);
}
