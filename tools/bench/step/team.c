/* SPDX-License-Identifier: Apache-2.0 */
/* See team.h. Threads sleep between two shares, so nothing of it runs beside what is measured. */
#include "bench/step/team.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

struct member {
    struct team *team;
    unsigned thread;
    pthread_t id;
};

struct team {
    struct member *members; /* [count], the caller first */
    unsigned count;         /* of those that run */
    pthread_mutex_t lock;
    pthread_cond_t begin, end;
    unsigned long round; /* of shares, rising */
    unsigned left;       /* members that have not done theirs */
    bool stop;
    team_share *share;
    void *arg;
    unsigned busy;
};

static void *member_main(void *arg)
{
    struct member *member = arg;
    struct team *team = member->team;
    unsigned long done = 0;

    pthread_mutex_lock(&team->lock);
    for (;;) {
        while (team->round == done && !team->stop)
            pthread_cond_wait(&team->begin, &team->lock);
        if (team->stop)
            break;
        done = team->round;
        pthread_mutex_unlock(&team->lock);
        if (member->thread < team->busy)
            team->share(team->arg, member->thread, team->busy);
        pthread_mutex_lock(&team->lock);
        if (--team->left == 0)
            pthread_cond_signal(&team->end);
    }
    pthread_mutex_unlock(&team->lock);
    return NULL;
}

void team_run(struct team *team, unsigned threads, team_share *share, void *arg)
{
    if (threads > 1) {
        pthread_mutex_lock(&team->lock);
        team->share = share;
        team->arg = arg;
        team->busy = threads;
        team->left = team->count - 1;
        team->round++;
        pthread_cond_broadcast(&team->begin);
        pthread_mutex_unlock(&team->lock);
    }
    share(arg, 0, threads);
    if (threads > 1) {
        pthread_mutex_lock(&team->lock);
        while (team->left > 0)
            pthread_cond_wait(&team->end, &team->lock);
        pthread_mutex_unlock(&team->lock);
    }
}

unsigned team_threads(const struct team *team)
{
    return team->count;
}

struct team *team_create(unsigned threads)
{
    struct team *team = calloc(1, sizeof *team);
    struct member *members = calloc(threads, sizeof *members);
    if (!team || !members) {
        free(members);
        free(team);
        return NULL;
    }
    *team = (struct team){.members = members, .count = 1};
    pthread_mutex_init(&team->lock, NULL);
    pthread_cond_init(&team->begin, NULL);
    pthread_cond_init(&team->end, NULL);
    for (; team->count < threads; team->count++) {
        struct member *member = &members[team->count];
        *member = (struct member){.team = team, .thread = team->count};
        if (pthread_create(&member->id, NULL, member_main, member) != 0) {
            team_destroy(team);
            return NULL;
        }
    }
    return team;
}

void team_destroy(struct team *team)
{
    if (!team)
        return;
    pthread_mutex_lock(&team->lock);
    team->stop = true;
    pthread_cond_broadcast(&team->begin);
    pthread_mutex_unlock(&team->lock);
    for (unsigned t = 1; t < team->count; t++)
        pthread_join(team->members[t].id, NULL);
    pthread_cond_destroy(&team->end);
    pthread_cond_destroy(&team->begin);
    pthread_mutex_destroy(&team->lock);
    free(team->members);
    free(team);
}
