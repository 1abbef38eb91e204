/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks meet by files: processes that come in any order, are killed, or are other ones. */
#include "comm/nccl/meet_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PATH = 64, MOST = 8, VALUE = 128 };
#define LONG_S  60.0 /* of ranks that meet, or are killed */
#define SHORT_S 0.2  /* of those whose time is to be over */

/* What became of a rank's process, which writes it. */
struct life {
    int rc;
    char value[VALUE];
    struct comm_failure failure;
};

struct place {
    char folder[PATH];
    struct life *lives;
    pid_t process[MOST];
    int begun;
};

static int set_up(void **state)
{
    struct place *p = calloc(1, sizeof *p);
    *state = p;
    if (!p)
        return -1;
    strcpy(p->folder, "/tmp/hst-meet-XXXXXX");
    p->lives = mmap(NULL, MOST * sizeof *p->lives, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return p->lives != MAP_FAILED && mkdtemp(p->folder) ? 0 : -1;
}

static int each_file(const char *folder, bool remove)
{
    DIR *names = opendir(folder);
    char path[PATH + 256];
    int count = 0;
    for (struct dirent *entry; names && (entry = readdir(names)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        count++;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (remove && unlink(path))
            rmdir(path);
    }
    if (names)
        closedir(names);
    return count;
}

static int tear_down(void **state)
{
    struct place *p = *state;
    for (int i = 0; i < p->begun; i++)
        if (p->process[i]) {
            kill(p->process[i], SIGKILL);
            waitpid(p->process[i], NULL, 0);
        }
    each_file(p->folder, true);
    rmdir(p->folder);
    munmap(p->lives, MOST * sizeof *p->lives);
    free(p);
    return 0;
}

/* Begins the process of a rank; its number among those of the test. */
static int begin(struct place *p, struct meet_file as)
{
    const int i = p->begun++;
    struct life *life = &p->lives[i];
    as.folder = as.folder ? as.folder : p->folder;
    as.name = as.name ? as.name : "run";
    assert_true(i < MOST);
    snprintf(life->value, VALUE, "%s of process %d", as.name, i);
    p->process[i] = fork();
    assert_true(p->process[i] >= 0);
    if (p->process[i] == 0) {
        life->rc = meet_by_file(&as, life->value, VALUE, &life->failure);
        _exit(0);
    }
    return i;
}

static const struct life *end_of(struct place *p, int i)
{
    int status;
    assert_int_equal(waitpid(p->process[i], &status, 0), p->process[i]);
    p->process[i] = 0;
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return &p->lives[i];
}

static void await_file(const struct place *p, const char *name)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    char path[PATH + 64];
    snprintf(path, sizeof path, "%s/%s", p->folder, name);
    while (access(path, F_OK))
        nanosleep(&nap, NULL);
}

/* Its files stay. */
static void kill_one(struct place *p, int i)
{
    assert_int_equal(kill(p->process[i], SIGKILL), 0);
    assert_int_equal(waitpid(p->process[i], NULL, 0), p->process[i]);
    p->process[i] = 0;
}

static void assert_met(struct place *p, int i, const char *value)
{
    const struct life *life = end_of(p, i);
    if (life->rc)
        fail_msg("process %d: %d %s", i, life->rc, life->failure.text);
    assert_string_equal(life->value, value);
}

static void assert_refused(struct place *p, int i, int rc, const char *words)
{
    const struct life *life = end_of(p, i);
    print_message("%d %s. Fix: %s\n", life->rc, life->failure.text, life->failure.fix);
    assert_int_equal(life->rc, rc);
    assert_int_equal(life->failure.native, rc);
    assert_non_null(strstr(life->failure.text, words));
    assert_true(*life->failure.fix != '\0');
}

/* ---- who meets ------------------------------------------------------------------------------- */

static void all_ranks_have_the_value_of_rank_0_and_nothing_stays(void **state)
{
    struct place *p = *state;
    int other[3];
    for (uint32_t r = 3; r-- > 1;)
        other[r] = begin(p, (struct meet_file){.rank = r, .ranks = 3, .limit_s = LONG_S});
    await_file(p, "run.rank1");
    await_file(p, "run.rank2");
    const int first = begin(p, (struct meet_file){.rank = 0, .ranks = 3, .limit_s = LONG_S});
    assert_met(p, first, "run of process 2");
    assert_met(p, other[1], "run of process 2");
    assert_met(p, other[2], "run of process 2");
    assert_int_equal(each_file(p->folder, false), 0);
}

static void rank_0_may_be_there_first(void **state)
{
    struct place *p = *state;
    begin(p, (struct meet_file){.rank = 0, .ranks = 3, .limit_s = LONG_S});
    begin(p, (struct meet_file){.rank = 2, .ranks = 3, .limit_s = LONG_S});
    await_file(p, "run"); /* an answer without rank 1 */
    begin(p, (struct meet_file){.rank = 1, .ranks = 3, .limit_s = LONG_S});
    for (int i = 0; i < 3; i++)
        assert_met(p, i, "run of process 0");
    assert_int_equal(each_file(p->folder, false), 0);
}

static void runs_of_two_names_share_a_directory(void **state)
{
    static const char *const names[] = {"one", "other"};
    struct place *p = *state;
    for (uint32_t i = 0; i < 4; i++)
        begin(p, (struct meet_file){
                     .name = names[i % 2], .rank = i / 2, .ranks = 2, .limit_s = LONG_S});
    for (int i = 0; i < 4; i++)
        assert_met(p, i, i % 2 ? "other of process 1" : "one of process 0");
    assert_int_equal(each_file(p->folder, false), 0);
}

/* Rank 1's call, and an answer to it that is complete; both processes are killed. */
static void leave_files(struct place *p)
{
    const int dead = begin(p, (struct meet_file){.rank = 1, .ranks = 2, .limit_s = LONG_S});
    await_file(p, "run.rank1");
    kill_one(p, dead);
    const int writer = begin(p, (struct meet_file){.rank = 0, .ranks = 2, .limit_s = LONG_S});
    await_file(p, "run");
    kill_one(p, writer);
    assert_int_equal(each_file(p->folder, false), 2);
}

static void an_answer_of_a_dead_run_is_not_taken(void **state)
{
    struct place *p = *state;
    leave_files(p);
    const int late = begin(p, (struct meet_file){.rank = 1, .ranks = 2, .limit_s = SHORT_S});
    assert_refused(p, late, -EPIPE, "rank 0 has not answered rank 1");
}

static void ranks_meet_where_a_dead_run_has_left_its_files(void **state)
{
    struct place *p = *state;
    leave_files(p);
    const int first = begin(p, (struct meet_file){.rank = 0, .ranks = 2, .limit_s = LONG_S});
    const int other = begin(p, (struct meet_file){.rank = 1, .ranks = 2, .limit_s = LONG_S});
    assert_met(p, first, "run of process 2");
    assert_met(p, other, "run of process 2");
    assert_int_equal(each_file(p->folder, false), 0);
}

/* Rank 0 has answered a dead process by then, and answers again. */
static void a_rank_may_come_where_a_dead_one_was_answered(void **state)
{
    struct place *p = *state;
    const int dead = begin(p, (struct meet_file){.rank = 1, .ranks = 2, .limit_s = LONG_S});
    await_file(p, "run.rank1");
    kill_one(p, dead);
    const int first = begin(p, (struct meet_file){.rank = 0, .ranks = 2, .limit_s = LONG_S});
    await_file(p, "run");
    const int other = begin(p, (struct meet_file){.rank = 1, .ranks = 2, .limit_s = LONG_S});
    assert_met(p, first, "run of process 1");
    assert_met(p, other, "run of process 1");
}

/* ---- who does not ---------------------------------------------------------------------------- */

static void who_does_not_come_is_named(void **state)
{
    struct place *p = *state;
    const int first = begin(p, (struct meet_file){.rank = 0, .ranks = 3, .limit_s = SHORT_S});
    assert_refused(p, first, -EPIPE, "rank 1 has not come");
    assert_int_equal(p->lives[first].failure.rank, 1);
    assert_int_equal(each_file(p->folder, false), 0);
}

static void worlds_of_two_sizes_do_not_meet(void **state)
{
    struct place *p = *state;
    const int other = begin(p, (struct meet_file){.rank = 1, .ranks = 3, .limit_s = LONG_S});
    const int first = begin(p, (struct meet_file){.rank = 0, .ranks = 2, .limit_s = LONG_S});
    assert_refused(p, other, -EINVAL, "rank 0 is one of 2, and rank 1 one of 3");
    kill_one(p, first);
    const int dead = begin(p, (struct meet_file){.rank = 1, .ranks = 3, .limit_s = LONG_S});
    await_file(p, "run.rank1");
    kill_one(p, dead);
    const int late = begin(p, (struct meet_file){.rank = 0, .ranks = 2, .limit_s = SHORT_S});
    assert_refused(p, late, -EPIPE, "rank 1 is one of 3, and rank 0 one of 2");
}

static void two_processes_that_are_one_rank_are_told(void **state)
{
    struct place *p = *state;
    const int one = begin(p, (struct meet_file){.rank = 1, .ranks = 3, .limit_s = LONG_S});
    await_file(p, "run.rank1");
    const int again = begin(p, (struct meet_file){.rank = 1, .ranks = 3, .limit_s = LONG_S});
    assert_refused(p, one, -EBUSY, "another process is rank 1 of a run that meets by ");
    const int first = begin(p, (struct meet_file){.rank = 0, .ranks = 3, .limit_s = LONG_S});
    await_file(p, "run");
    const int second = begin(p, (struct meet_file){.rank = 0, .ranks = 3, .limit_s = LONG_S});
    assert_refused(p, first, -EBUSY, "another process is rank 0 of ");
    const int last = begin(p, (struct meet_file){.rank = 2, .ranks = 3, .limit_s = LONG_S});
    assert_met(p, second, "run of process 3");
    assert_met(p, again, "run of process 3");
    assert_met(p, last, "run of process 3");
}

static void a_directory_that_is_none_is_told(void **state)
{
    struct place *p = *state;
    char path[PATH + 16], link[PATH + 16], slash[PATH + 24];
    snprintf(path, sizeof path, "%s/none", p->folder);
    snprintf(link, sizeof link, "%s/link", p->folder);
    snprintf(slash, sizeof slash, "%s//", link);
    assert_int_equal(symlink(p->folder, link), 0);
    for (uint32_t r = 0; r < 2; r++) {
        struct meet_file as = {.folder = path, .rank = r, .ranks = 2, .limit_s = LONG_S};
        assert_refused(p, begin(p, as), -EIO, "cannot be opened: No such file");
        as.folder = r ? slash : link;
        assert_refused(p, begin(p, as), -EIO, "is a symbolic link");
    }
}

static void put_file(const struct place *p, const char *name, mode_t mode)
{
    char path[PATH + 64];
    snprintf(path, sizeof path, "%s/%s", p->folder, name);
    const int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(file >= 0);
    assert_int_equal(fchmod(file, mode), 0);
    assert_int_equal(close(file), 0);
}

static void a_file_that_is_not_this_users_alone_is_not_read(void **state)
{
    struct place *p = *state;
    char path[PATH + 64];
    const struct meet_file one = {.rank = 1, .ranks = 2, .limit_s = LONG_S};
    const struct meet_file first = {.rank = 0, .ranks = 2, .limit_s = LONG_S};
    snprintf(path, sizeof path, "%s/run", p->folder);
    assert_int_equal(symlink("elsewhere", path), 0);
    assert_refused(p, begin(p, one), -EPERM, "/run is not taken: it is a link");
    assert_int_equal(unlink(path), 0);
    put_file(p, "run", 0640);
    assert_refused(p, begin(p, one), -EPERM, "/run is not taken: it is open to other users");
    assert_int_equal(chmod(path, 0600), 0);
    if (geteuid() == 0 && chown(path, 1, (gid_t)-1) == 0) {
        assert_refused(p, begin(p, one), -EPERM, "/run is not taken: it is another user's");
    }
    put_file(p, "run.rank1", 0604);
    assert_refused(p, begin(p, first), -EPERM, "/run.rank1 is not taken: it is open");
}

static void a_file_that_cannot_be_written_is_told(void **state)
{
    struct place *p = *state;
    char path[PATH + 64];
    for (uint32_t r = 0; r < 2; r++) {
        snprintf(path, sizeof path, "%s/run%s", p->folder, r ? ".rank1" : "");
        assert_int_equal(mkdir(path, 0700), 0);
        assert_refused(p, begin(p, (struct meet_file){.rank = r, .ranks = 2, .limit_s = LONG_S}),
                       r ? -EIO : -EPERM, "irectory");
        assert_int_equal(each_file(p->folder, false), 1);
        assert_int_equal(rmdir(path), 0);
    }
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(all_ranks_have_the_value_of_rank_0_and_nothing_stays),
        CASE(rank_0_may_be_there_first),
        CASE(runs_of_two_names_share_a_directory),
        CASE(an_answer_of_a_dead_run_is_not_taken),
        CASE(ranks_meet_where_a_dead_run_has_left_its_files),
        CASE(a_rank_may_come_where_a_dead_one_was_answered),
        CASE(who_does_not_come_is_named),
        CASE(worlds_of_two_sizes_do_not_meet),
        CASE(two_processes_that_are_one_rank_are_told),
        CASE(a_directory_that_is_none_is_told),
        CASE(a_file_that_is_not_this_users_alone_is_not_read),
        CASE(a_file_that_cannot_be_written_is_told),
    };
    return cmocka_run_group_tests_name("comm/meet_file", tests, NULL, NULL);
}
