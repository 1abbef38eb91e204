/* SPDX-License-Identifier: Apache-2.0 */
/* Worker threads: every piece once, whoever calls, however many; callers by turns. */
#include "machine/workers.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define PIECES 1000u

struct tally {
    atomic_uint done[PIECES];
    unsigned width;
    atomic_bool worker_out_of_range;
};

static void count_piece(void *arg, size_t index, unsigned worker)
{
    struct tally *tally = arg;
    atomic_fetch_add(&tally->done[index], 1);
    if (worker >= tally->width)
        atomic_store(&tally->worker_out_of_range, true);
}

static void check_once(struct tally *tally, size_t count, unsigned times)
{
    for (size_t i = 0; i < PIECES; i++)
        assert_int_equal(atomic_load(&tally->done[i]), i < count ? times : 0);
    assert_false(atomic_load(&tally->worker_out_of_range));
}

static void each_piece_runs_exactly_once_for_any_width_and_count(void **state)
{
    (void)state;
    for (unsigned width = 1; width <= 5; width++) {
        struct workers *workers = NULL;
        assert_int_equal(workers_create(width, &workers), 0);
        static const size_t counts[] = {0, 1, 2, 7, PIECES};
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            struct tally tally = {.width = width};
            workers_run(workers, counts[c], count_piece, &tally);
            check_once(&tally, counts[c], 1);
        }
        workers_destroy(&workers);
        assert_null(workers);
    }
}

/* Which of the workers take pieces, a bit each: enough pieces for all to come by. */
static void note_worker(void *arg, size_t index, unsigned worker)
{
    (void)index;
    atomic_fetch_or((atomic_uint *)arg, 1u << worker);
    sched_yield();
}

static void some_of_the_workers_may_do_it_evenly_over_all(void **state)
{
    (void)state;
    static const struct {
        unsigned most, may; /* 8 workers */
    } of[] = {{1, 0x01}, {2, 0x11}, {4, 0x55}, {6, 0xdd},
              {7, 0xfd}, {8, 0xff}, {9, 0xff}, {0, 0xff}};
    struct workers *workers = NULL;
    assert_int_equal(workers_create(8, &workers), 0);
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        atomic_uint did = 0;
        struct tally tally = {.width = 8};
        workers_time(workers, of[i].most, PIECES, note_worker, &did);
        assert_int_equal(atomic_load(&did) & ~of[i].may, 0);
        assert_true(atomic_load(&did) != 0); /* of several nobody need come by in time */
        workers_time(workers, of[i].most, PIECES, count_piece, &tally);
        check_once(&tally, PIECES, 1);
    }
    workers_destroy(&workers);
}

struct caller {
    struct workers *workers;
    struct tally *tally;
};

static void *call_many_times(void *arg)
{
    struct caller *caller = arg;
    for (int i = 0; i < 50; i++)
        workers_run(caller->workers, PIECES, count_piece, caller->tally);
    return NULL;
}

static void jobs_from_several_threads_run_one_after_another(void **state)
{
    (void)state;
    struct workers *workers = NULL;
    assert_int_equal(workers_create(3, &workers), 0);
    struct tally tally = {.width = 3};
    struct caller caller = {workers, &tally};
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, call_many_times, &caller), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    check_once(&tally, PIECES, 150);
    workers_destroy(&workers);
}

/* One thread asks again as soon as its job has ended; the other one asks once, during its first. */
struct asking {
    struct workers *workers;
    atomic_bool runs, asks;
    atomic_uint ended; /* jobs of the first */
    unsigned before;   /* the second's job: those, when it ran */
};

static void run_until_the_other_asks(void *arg, size_t index, unsigned worker)
{
    struct asking *asking = arg;
    (void)index, (void)worker;
    atomic_store(&asking->runs, true);
    while (!atomic_load(&asking->asks))
        sched_yield();
    usleep(20000); /* until it waits */
}

static void note_ended(void *arg, size_t index, unsigned worker)
{
    struct asking *asking = arg;
    (void)index, (void)worker;
    asking->before = atomic_load(&asking->ended);
}

static void *ask_again_and_again(void *arg)
{
    struct asking *asking = arg;
    for (int i = 0; i < 5; i++) {
        workers_run(asking->workers, 1, run_until_the_other_asks, asking);
        atomic_fetch_add(&asking->ended, 1);
    }
    return NULL;
}

static void who_asks_first_is_served_first(void **state)
{
    (void)state;
    unsigned served = 0;
    for (int i = 0; i < 5; i++) {
        struct asking asking = {.workers = NULL};
        pthread_t thread;
        assert_int_equal(workers_create(2, &asking.workers), 0);
        assert_int_equal(pthread_create(&thread, NULL, ask_again_and_again, &asking), 0);
        while (!atomic_load(&asking.runs))
            sched_yield();
        atomic_store(&asking.asks, true);
        workers_run(asking.workers, 1, note_ended, &asking);
        pthread_join(thread, NULL);
        served += asking.before <= 1;
        workers_destroy(&asking.workers);
    }
    assert_true(served >= 4); /* a loaded machine may keep one from asking in time */
}

static void destroying_nothing_is_accepted(void **state)
{
    (void)state;
    struct workers *workers = NULL;
    workers_destroy(&workers);
    assert_null(workers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_piece_runs_exactly_once_for_any_width_and_count),
        cmocka_unit_test(some_of_the_workers_may_do_it_evenly_over_all),
        cmocka_unit_test(jobs_from_several_threads_run_one_after_another),
        cmocka_unit_test(who_asks_first_is_served_first),
        cmocka_unit_test(destroying_nothing_is_accepted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
