/* SPDX-License-Identifier: Apache-2.0 */
/* What flags and environments say about who a process is among several. */
#include <hoistway/ranks.h>

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>

enum { MOST = 8 };
struct row {
    const char *launcher; /* "": alone */
    uint32_t ranks, rank;
    const char *why; /* a part of the refusal; null: none */
    const char *set[MOST][2];
    const char *world, *flag_rank;
    uint32_t locals, local;
    const char *meet; /* null: "" */
    const char *rendezvous, *folder;
    const char *file; /* null: "" */
};
static const struct row *now;

static const char *get(const char *name)
{
    for (int i = 0; i < MOST && now->set[i][0]; i++)
        if (strcmp(now->set[i][0], name) == 0)
            return now->set[i][1];
    return NULL;
}

#define OPEN_MPI(size, rank)                                                                       \
    {"OMPI_COMM_WORLD_SIZE", size},                                                                \
    {                                                                                              \
        "OMPI_COMM_WORLD_RANK", rank                                                               \
    }
#define STEP(tasks, rank)                                                                          \
    {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", tasks},                                       \
    {                                                                                              \
        "SLURM_PROCID", rank                                                                       \
    }
#define TORCHRUN(world, rank)                                                                      \
    {"WORLD_SIZE", world}, {"RANK", rank},                                                         \
    {                                                                                              \
        "LOCAL_RANK", "0"                                                                          \
    }

static const struct row rows[] = {
    {"", 1, 0, NULL, .set = {{NULL}}},
    /* Open MPI */
    {"mpirun of Open MPI", 2, 1, NULL, .set = {OPEN_MPI("2", "1")}},
    {"mpirun of Open MPI", 4, 3, NULL,
     .set = {OPEN_MPI("4", "3"),
             {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
             {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}},
     .locals = 2, .local = 1},
    /* local numbers that make no sense are not said */
    {"mpirun of Open MPI", 4, 3, NULL,
     .set = {OPEN_MPI("4", "3"),
             {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
             {"OMPI_COMM_WORLD_LOCAL_RANK", "2"}}},
    {"mpirun of Open MPI", 1, 0, NULL, .set = {OPEN_MPI("1", "0")}},
    {"", 1, 0, "OMPI_COMM_WORLD_RANK is not set", .set = {{"OMPI_COMM_WORLD_SIZE", "2"}}},
    {"", 1, 0, "OMPI_COMM_WORLD_SIZE is not set", .set = {{"OMPI_COMM_WORLD_RANK", "2"}}},
    {"", 1, 0, "no number of ranks", .set = {OPEN_MPI("two", "0")}},
    {"", 1, 0, "no number of ranks", .set = {OPEN_MPI("-2", "0")}},
    {"", 1, 0, "no number of ranks", .set = {OPEN_MPI("0", "0")}},
    {"", 1, 0, "no number of ranks", .set = {OPEN_MPI("2x", "0")}},
    {"", 1, 0, "no number of ranks", .set = {OPEN_MPI("65537", "0")}},
    {"", 1, 0, "no number of ranks", .set = {OPEN_MPI("99999999999999999999", "0")}},
    {"", 1, 0, "no rank below OMPI_COMM_WORLD_SIZE, which is 2", .set = {OPEN_MPI("2", "2")}},
    {"", 1, 0, "no rank below", .set = {OPEN_MPI("2", "one")}},
    {"", 1, 0, NULL, .set = {OPEN_MPI("", "")}},
    /* MPICH, Intel MPI */
    {"mpiexec", 4, 3, NULL, .set = {{"PMI_SIZE", "4"}, {"PMI_RANK", "3"}}},
    {"mpiexec", 4, 3, NULL,
     .set =
         {{"PMI_SIZE", "4"}, {"PMI_RANK", "3"}, {"MPI_LOCALNRANKS", "4"}, {"MPI_LOCALRANKID", "3"}},
     .locals = 4, .local = 3},
    {"", 1, 0, "PMI_RANK is not set", .set = {{"PMI_SIZE", "4"}}},
    {"", 1, 0, NULL, .set = {{"PMI_RANK", "3"}}}, /* Slurm's PMI-2 sets it, too */
    /* Slurm */
    {"srun", 4, 2, NULL, .set = {STEP("4", "2"), {"PMIX_RANK", "2"}}},
    {"srun", 4, 2, NULL, .set = {STEP("4", "2"), {"PMI_RANK", "2"}}},
    {"srun", 4, 2, "without PMI", .set = {STEP("4", "2")}},
    {"srun", 1, 0, NULL, .set = {STEP("1", "0")}},
    /* sbatch --ntasks=4, whose script runs once */
    {"", 1, 0, NULL, .set = {{"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", "0"}}},
    {"", 1, 0, NULL,
     .set = {{"SLURM_STEP_NUM_TASKS", "4"},
             {"SLURM_STEP_ID", "4294967291"},
             {"SLURM_PROCID", "0"}}},
    {"", 1, 0, NULL, .set = {{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_STEP_ID", "batch"}}},
    {"", 1, 0, "SLURM_PROCID is not set",
     .set = {{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_STEP_ID", "0"}}},
    /* mpirun in a batch script, and below the step of its own daemons on two nodes */
    {"mpirun of Open MPI", 4, 1, NULL, .set = {OPEN_MPI("4", "1"), {"SLURM_PROCID", "0"}}},
    {"mpirun of Open MPI", 4, 1, NULL, .set = {OPEN_MPI("4", "1"), STEP("2", "1")}},
    {"mpirun of Open MPI", 4, 1, NULL, .set = {OPEN_MPI("4", "1"), STEP("2", "none")}},
    /* mpirun of one below srun of several: the world is the step's */
    {"srun", 4, 2, NULL, .set = {OPEN_MPI("1", "0"), STEP("4", "2"), {"PMIX_RANK", "2"}}},
    /* torchrun */
    {"torchrun", 2, 0, NULL, .set = {TORCHRUN("2", "0")}},
    {"torchrun", 2, 0, NULL,
     .set = {TORCHRUN("2", "0"), {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}},
     .meet = "10.0.0.1:29501"},
    {"torchrun", 2, 0, NULL,
     .set = {TORCHRUN("2", "0"), {"MASTER_ADDR", "fd00::1"}, {"MASTER_PORT", "29500"}},
     .meet = "[fd00::1]:29501"},
    {"torchrun", 2, 0, NULL, .set = {TORCHRUN("2", "0"), {"MASTER_ADDR", "10.0.0.1"}}},
    {"torchrun", 2, 0, NULL, .set = {TORCHRUN("2", "0"), {"MASTER_PORT", "29500"}}},
    {"torchrun", 2, 0, NULL,
     .set = {TORCHRUN("2", "0"), {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "65535"}}},
    {"torchrun", 2, 0, NULL,
     .set = {TORCHRUN("2", "0"), {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "none"}}},
    {"torchrun", 2, 0, NULL,
     .set = {TORCHRUN("2", "0"),
             {"MASTER_PORT", "29500"},
             {"MASTER_ADDR", "a-name-that-is-longer-than-there-is-room-for-it-and-its-port."
                             "example.example.example.example.example.example"}}},
    {"mpirun of Open MPI", 2, 1, NULL,
     .set = {OPEN_MPI("2", "1"), {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}}},
    {"torchrun", 1, 0, NULL, .set = {TORCHRUN("1", "0")}},
    {"", 1, 0, "RANK is not set", .set = {{"WORLD_SIZE", "2"}}},
    {"", 1, 0, "LOCAL_RANK is not set", .set = {{"WORLD_SIZE", "2"}, {"RANK", "0"}}},
    {"", 1, 0, NULL, .set = {{"RANK", "7"}}},
    {"", 1, 0, "no rank below", .set = {TORCHRUN("2", "none")}},
    /* several */
    {"mpirun of Open MPI", 2, 1, NULL, .set = {OPEN_MPI("2", "1"), TORCHRUN("2", "1")}},
    {"mpirun of Open MPI", 2, 1,
     "OMPI_COMM_WORLD_SIZE makes this rank 1 of 2, and WORLD_SIZE rank 0 of 2",
     .set = {OPEN_MPI("2", "1"), TORCHRUN("2", "0")}},
    {"mpirun of Open MPI", 2, 1, "PMI_SIZE rank 1 of 4",
     .set = {OPEN_MPI("2", "1"), {"PMI_SIZE", "4"}, {"PMI_RANK", "1"}}},
    {"mpirun of Open MPI", 2, 1, "RANK is not set",
     .set = {OPEN_MPI("2", "1"), {"WORLD_SIZE", "2"}}},
    {"mpirun of Open MPI", 2, 1, NULL, .set = {OPEN_MPI("2", "1"), TORCHRUN("1", "0")}},
    /* flags */
    {"--world", 3, 2, NULL, .set = {{NULL}}, .world = "3", .flag_rank = "2"},
    {"--world", 2, 1, NULL, .set = {OPEN_MPI("2", "1")}, .world = "2", .flag_rank = "1"},
    {"--world", 2, 0, "OMPI_COMM_WORLD_SIZE rank 1 of 2", .set = {OPEN_MPI("2", "1")}, .world = "2",
     .flag_rank = "0"},
    {"", 1, 0, "--world 2 is given without --rank", .set = {{NULL}}, .world = "2",
     .flag_rank = NULL},
    {"", 1, 0, "--rank 1 is given without --world", .set = {{NULL}}, .world = NULL,
     .flag_rank = "1"},
    {"", 1, 0, "no rank below --world", .set = {{NULL}}, .world = "2", .flag_rank = "2"},
    {"--world", 1, 0, NULL, .set = {OPEN_MPI("2", "1")}, .world = "1", .flag_rank = "0"},
    /* where ranks meet */
    {"torchrun", 2, 0, NULL,
     .set = {TORCHRUN("2", "0"), {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}},
     .locals = 2, .rendezvous = "tcp:node-7:4000", .meet = "node-7:4000"},
    {"torchrun", 2, 0, NULL, .set = {TORCHRUN("2", "0")}, .locals = 2,
     .rendezvous = "tcp:[fd00::1]:65535", .meet = "[fd00::1]:65535"},
    {"--world", 2, 1, NULL, .set = {{NULL}}, .world = "2", .flag_rank = "1", .locals = 2,
     .local = 1, .rendezvous = "tcp:node-7:1", .meet = "node-7:1"},
    {"torchrun", 2, 0, NULL,
     .set = {TORCHRUN("2", "0"),
             {"LOCAL_WORLD_SIZE", "2"},
             {"MASTER_ADDR", "10.0.0.1"},
             {"MASTER_PORT", "29500"},
             {"TORCHELASTIC_RUN_ID", "a/b c"},
             {"TORCHELASTIC_RESTART_COUNT", "3"}},
     .locals = 2, .rendezvous = "file:/shared/a:b", .folder = "/shared/a:b",
     .file = "hoistway-a_b_c-3-"},
    /* agents of several nodes count apart */
    {"torchrun", 2, 0, NULL,
     .set = {TORCHRUN("2", "0"),
             {"LOCAL_WORLD_SIZE", "1"},
             {"TORCHELASTIC_RUN_ID", "id"},
             {"TORCHELASTIC_RESTART_COUNT", "3"}},
     .locals = 1, .rendezvous = "file:.", .folder = ".", .file = "hoistway-id-0-"},
    {"--world", 2, 1, NULL, .set = {{NULL}}, .world = "2", .flag_rank = "1", .locals = 2,
     .local = 1, .rendezvous = "file:dir", .folder = "dir", .file = "hoistway-run-0-"},
    /* Slurm's step that no MPI knows of */
    {"--world", 2, 1, NULL, .set = {STEP("2", "1")}, .world = "2", .flag_rank = "1", .locals = 2,
     .local = 1, .rendezvous = "file:dir", .folder = "dir", .file = "hoistway-run-0-"},
    {"--world", 1, 0, NULL, .set = {OPEN_MPI("1", "0")}, .world = "1", .flag_rank = "0",
     .locals = 1, .rendezvous = "file:dir", .folder = "dir", .file = "hoistway-run-0-"},
    {"mpirun of Open MPI", 2, 1, "mpirun of Open MPI has started these",
     .set = {OPEN_MPI("2", "1")}, .rendezvous = "file:dir"},
    {"--world", 2, 1, "mpirun of Open MPI has started these", .set = {OPEN_MPI("2", "1")},
     .world = "2", .flag_rank = "1", .rendezvous = "file:dir"},
    {"", 1, 0, "nothing says which of several", .set = {{NULL}}, .rendezvous = "file:dir"},
    {"--world", 2, 1, "is no place where", .set = {{NULL}}, .world = "2", .flag_rank = "1",
     .rendezvous = "dir"},
    {"--world", 2, 1, "is no place where", .set = {{NULL}}, .world = "2", .flag_rank = "1",
     .rendezvous = "file:"},
    {"--world", 2, 1, "is no place. Fix: tcp:HOST:PORT", .set = {{NULL}}, .world = "2",
     .flag_rank = "1", .rendezvous = "tcp:node"},
    {"--world", 2, 1, "is no place. Fix: tcp:HOST:PORT", .set = {{NULL}}, .world = "2",
     .flag_rank = "1", .rendezvous = "tcp::80"},
    {"--world", 2, 1, "is no place. Fix: tcp:HOST:PORT", .set = {{NULL}}, .world = "2",
     .flag_rank = "1", .rendezvous = "tcp:node:0"},
    {"--world", 2, 1, "is no place. Fix: tcp:HOST:PORT", .set = {{NULL}}, .world = "2",
     .flag_rank = "1", .rendezvous = "tcp:node:65536"},
    {"--world", 2, 1, "is no place. Fix: tcp:HOST:PORT", .set = {{NULL}}, .world = "2",
     .flag_rank = "1", .rendezvous = "tcp:node:80x"},
    {"--world", 2, 1, "is no place. Fix: tcp:HOST:PORT", .set = {{NULL}}, .world = "2",
     .flag_rank = "1", .rendezvous = "tcp:fd00::1:80"},
    {"--world", 2, 1, "is no place. Fix: tcp:HOST:PORT", .set = {{NULL}}, .world = "2",
     .flag_rank = "1", .rendezvous = "tcp:a node:80"},
    {"--world", 2, 1, "is longer than", .set = {{NULL}}, .world = "2", .flag_rank = "1",
     .rendezvous = "tcp:a-name-that-is-longer-than-there-is-room-for-it-and-its-port."
                   "example.example.example.example.example.example:80"},
};

static void each_environment_is_judged_by_its_variables(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *row = now = &rows[i];
        const struct hst_launch_flags flags = {row->world, row->flag_rank, row->rendezvous};
        struct hst_launch launch;
        char why[200];
        memset(why, 0x55, sizeof why);
        int rc = hst_launch_read(&flags, get, &launch, why);
        print_message("row %zu: %s\n", i, why);
        assert_int_equal(rc, row->why ? -EINVAL : 0);
        assert_string_equal(launch.launcher, row->launcher);
        assert_int_equal(launch.ranks, row->ranks);
        assert_int_equal(launch.rank, row->rank);
        assert_int_equal(launch.locals, row->locals);
        assert_int_equal(launch.local, row->local);
        assert_string_equal(launch.meet, row->meet ? row->meet : "");
        const bool placed = row->rendezvous && !row->why;
        assert_true(launch.meets == (row->meet || row->folder));
        assert_true(launch.meet_chosen == (placed && row->meet));
        assert_true(!row->folder == !launch.folder);
        if (row->folder)
            assert_string_equal(launch.folder, row->folder);
        assert_int_equal(
            strncmp(launch.file, row->file ? row->file : "", row->file ? strlen(row->file) : 1), 0);
        assert_true(launch.mpi ==
                    (*row->launcher && !placed && strcmp(row->launcher, "torchrun") != 0));
        assert_true(!*launch.launcher == !*launch.variable && !*launch.launcher == !*launch.alone);
        if (row->why)
            assert_true(strstr(why, row->why) && strstr(why, "Fix: "));
        else
            assert_string_equal(why, "");
        assert_int_equal(hst_launch_read(&flags, get, &launch, NULL), rc);
    }
}

/* The end of a file's name tells what its readable part cannot. */
static void runs_that_differ_have_files_of_other_names(void **state)
{
    (void)state;
    static const struct row runs[] = {
        {.set = {TORCHRUN("2", "0")}},
        {.set = {TORCHRUN("2", "0"), {"MASTER_PORT", "1"}}},
        {.set = {TORCHRUN("2", "0"), {"MASTER_ADDR", "1"}}},
        {.set = {TORCHRUN("2", "0"), {"TORCHELASTIC_RUN_ID", "a/b"}}},
        {.set = {TORCHRUN("2", "0"), {"TORCHELASTIC_RUN_ID", "a.b"}}},
        {.set = {TORCHRUN("2", "0"),
                 {"LOCAL_WORLD_SIZE", "2"},
                 {"TORCHELASTIC_RESTART_COUNT", "12345678901"}}},
        {.set = {TORCHRUN("2", "0"),
                 {"LOCAL_WORLD_SIZE", "2"},
                 {"TORCHELASTIC_RESTART_COUNT", "12345678902"}}},
    };
    enum { RUNS = sizeof runs / sizeof *runs };
    const struct hst_launch_flags flags = {.rendezvous = "file:dir"};
    struct hst_launch launch[RUNS];
    for (size_t i = 0; i < RUNS; i++) {
        now = &runs[i];
        assert_int_equal(hst_launch_read(&flags, get, &launch[i], NULL), 0);
        for (size_t other = 0; other < i; other++)
            assert_string_not_equal(launch[i].file, launch[other].file);
    }
}

static void without_a_getter_it_is_the_process_that_is_asked(void **state)
{
    (void)state;
    struct hst_launch launch;
    assert_int_equal(setenv("OMPI_COMM_WORLD_SIZE", "5", 1), 0);
    assert_int_equal(setenv("OMPI_COMM_WORLD_RANK", "4", 1), 0);
    assert_int_equal(hst_launch_read(NULL, NULL, &launch, NULL), 0);
    assert_int_equal(launch.ranks, 5);
    assert_int_equal(launch.rank, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_environment_is_judged_by_its_variables),
        cmocka_unit_test(runs_that_differ_have_files_of_other_names),
        cmocka_unit_test(without_a_getter_it_is_the_process_that_is_asked),
    };
    return cmocka_run_group_tests_name("comm/launch", tests, NULL, NULL);
}
