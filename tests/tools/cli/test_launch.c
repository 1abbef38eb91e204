/* SPDX-License-Identifier: Apache-2.0 */
/* Which environments say that a launcher has started several. */
#include "cli/launch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 5 };
struct row {
    const char *launcher; /* null: alone */
    const char *set[MOST][2];
};
static const struct row *now;

static const char *get(const char *name)
{
    for (int i = 0; i < MOST && now->set[i][0]; i++)
        if (strcmp(now->set[i][0], name) == 0)
            return now->set[i][1];
    return NULL;
}

static const struct row rows[] = {
    {NULL, {{NULL}}},
    {"mpirun of Open MPI", {{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "1"}}},
    {NULL, {{"OMPI_COMM_WORLD_SIZE", "1"}}},
    {NULL, {{"OMPI_COMM_WORLD_SIZE", "two"}}},
    {NULL, {{"OMPI_COMM_WORLD_SIZE", ""}}},
    {NULL, {{"OMPI_COMM_WORLD_SIZE", "-2"}}},
    {NULL, {{"OMPI_COMM_WORLD_SIZE", "2x"}}},
    {NULL, {{"OMPI_COMM_WORLD_SIZE", "99999999999999999999"}}},
    {"mpiexec", {{"PMI_SIZE", "4"}, {"PMI_RANK", "3"}}},
    {NULL, {{"PMI_SIZE", "1"}}},
    {NULL, {{"PMI_SIZE", "0"}}},
    /* srun -n 4 in an allocation of four */
    {"srun", {{"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_STEP_ID", "0"}}},
    /* sbatch --ntasks=4, whose script runs once */
    {NULL, {{"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", "0"}}},
    {NULL, {{"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_STEP_ID", "4294967291"}}},
    {NULL, {{"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_STEP_ID", "4294967291"}}},
    {NULL, {{"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_STEP_ID", "batch"}}},
    {NULL, {{"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_TASKS", "4"}}},
    /* salloc --ntasks=4, and srun -n 1 in it */
    {NULL, {{"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_STEP_ID", "3"}}},
    {"torchrun", {{"WORLD_SIZE", "2"}, {"RANK", "0"}, {"LOCAL_RANK", "0"}}},
    {NULL, {{"WORLD_SIZE", "1"}, {"RANK", "0"}, {"LOCAL_RANK", "0"}}},
    /* of another program, or left in a shell */
    {NULL, {{"WORLD_SIZE", "2"}}},
    {NULL, {{"WORLD_SIZE", "2"}, {"RANK", "0"}}},
    {NULL, {{"WORLD_SIZE", "2"}, {"RANK", "none"}, {"LOCAL_RANK", "0"}}},
    /* several: the first of the table is named */
    {"srun",
     {{"SLURM_STEP_NUM_TASKS", "2"},
      {"SLURM_STEP_ID", "1"},
      {"WORLD_SIZE", "2"},
      {"RANK", "0"},
      {"LOCAL_RANK", "0"}}},
};

static void each_environment_is_judged_by_its_variables(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        now = &rows[i];
        const struct launch launch = launch_of(get);
        print_message("row %zu\n", i);
        if (!now->launcher) {
            assert_null(launch.launcher);
            continue;
        }
        assert_non_null(launch.launcher);
        assert_string_equal(launch.launcher, now->launcher);
        assert_true(launch.count > 1 && launch.variable && launch.alone);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_environment_is_judged_by_its_variables),
    };
    return cmocka_run_group_tests_name("cli/launch", tests, NULL, NULL);
}
