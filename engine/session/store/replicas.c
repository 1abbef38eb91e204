/* SPDX-License-Identifier: Apache-2.0 */
#include "session/store/replicas.h"

#include <errno.h>
#include <stdlib.h>

static bool has(const unsigned char *set, uint32_t number)
{
    return set[number / 8] >> number % 8 & 1;
}

int replicas_look(struct replicas *replicas, const char *store, const struct hst_store_place *place,
                  uint64_t step, uint32_t processes)
{
    replicas_close(replicas);
    replicas->found.replicas = CKPT_RANKS_MAX; /* their names alone tell files apart */
    replicas->all = calloc(processes, REPLICA_SET_BYTES);
    char *copies = step == HST_NO_VERSION ? NULL : kept_directories(store, step);
    int rc = replicas->all && (copies || step == HST_NO_VERSION) ? 0 : -ENOMEM;
    rc = rc ? rc : shares_list(&replicas->found, copies ? copies : store, place);
    free(copies);
    for (uint32_t i = 0; i < replicas->found.count && rc == 0; i++) {
        const struct share_found *found = &replicas->found.own[i];
        if (found->world == CKPT_RANKS_MAX && found->rank > 0 && !found->forming)
            replicas->own[found->rank / 8] |= (unsigned char)(1u << found->rank % 8);
    }
    return rc;
}

size_t replicas_numbers(const struct replicas *replicas, uint32_t processes, uint32_t *numbers,
                        size_t capacity)
{
    size_t count = 0;
    for (uint32_t number = 1; number < CKPT_RANKS_MAX; number++) {
        bool found = false;
        for (uint32_t p = 0; p < processes; p++)
            found = found || has(replicas->all + (size_t)p * REPLICA_SET_BYTES, number);
        if (found && count < capacity)
            numbers[count] = number;
        count += found;
    }
    return count;
}

void replicas_seen(const struct replicas *replicas, uint32_t processes, uint32_t number,
                   unsigned char *seen)
{
    for (uint32_t p = 0; p < processes; p++)
        seen[p] = has(replicas->all + (size_t)p * REPLICA_SET_BYTES, number);
}

int replicas_open(const struct replicas *replicas, uint32_t number,
                  struct share_directories *directories, struct hst_error *error)
{
    for (uint32_t i = 0; i < replicas->found.count; i++)
        if (replicas->found.own[i].rank == number && !replicas->found.own[i].forming)
            return share_directories_open(&replicas->found, i, directories, error);
    return 0; /* another process finds it */
}

void replicas_close(struct replicas *replicas)
{
    shares_free(&replicas->found);
    free(replicas->all);
    *replicas = (struct replicas){.all = NULL};
}
