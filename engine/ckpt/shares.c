/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens a store together with other processes, each of which finds some ranks' files: headers and
 * tables of all are told to all, bytes stay where they are until they are read.
 */
#include "ckpt/ckpt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A rank tells this of its files before a version is chosen. */
struct told {
    struct store_header headers[STRIPE_DRIVES_MAX];
    struct store_candidates candidates;
    uint32_t damaged_copies;
    bool in_use, clean;
};

/* The process that tells of a rank's files; UINT32_MAX: all have them. */
static uint32_t teller_of(const struct ckpt_shares *shares, uint32_t rank)
{
    uint32_t first = UINT32_MAX, count = 0;
    for (uint32_t p = 0; p < shares->processes; p++)
        if (shares->seen[(size_t)p * shares->world + rank]) {
            first = first == UINT32_MAX ? p : first;
            count++;
        }
    return count == shares->processes ? UINT32_MAX : first;
}

static int tell_rank(struct hst_ckpt *ckpt, uint32_t rank)
{
    const struct ckpt_shares *shares = ckpt->shares;
    struct look *look = &ckpt->looks[rank];
    const uint32_t teller = teller_of(shares, rank);
    struct told told;
    if (teller == UINT32_MAX)
        return 0;
    memset(&told, 0, sizeof told);
    memcpy(told.headers, look->headers, sizeof told.headers);
    told.candidates = look->candidates;
    told.damaged_copies = look->damaged_copies;
    told.in_use = look->in_use;
    told.clean = look->clean;
    const int rc = shares->take(shares->context, teller, &told, sizeof told);
    if (ckpt_is_here(ckpt, rank))
        return rc;
    memcpy(look->headers, told.headers, sizeof told.headers);
    look->candidates = told.candidates;
    look->damaged_copies = told.damaged_copies;
    look->in_use = told.in_use;
    look->clean = told.clean;
    return rc;
}

/* And of the version that was chosen. */
static int tell_manifest(struct hst_ckpt *ckpt, uint32_t rank, struct hst_error *error)
{
    const struct ckpt_shares *shares = ckpt->shares;
    struct look *look = &ckpt->looks[rank];
    const uint32_t teller = teller_of(shares, rank);
    struct store_ref ref;
    if (teller == UINT32_MAX)
        return 0;
    memset(&ref, 0, sizeof ref);
    ref = ckpt_is_here(ckpt, rank) ? look->ref : ref;
    int rc = shares->take(shares->context, teller, &ref, sizeof ref);
    if (rc)
        return rc;
    if (ckpt_is_here(ckpt, rank))
        return shares->take(shares->context, teller, look->manifest, ref.bytes);
    look->manifest = malloc(ref.bytes);
    if (!look->manifest)
        return store_refuse(error, HST_E_BUDGET, -ENOMEM,
                            "no memory for the store's tables. Fix: end other programs");
    look->ref = ref;
    rc = shares->take(shares->context, teller, look->manifest, ref.bytes);
    if (rc == 0 && store_manifest_decode(look->manifest, &ref, look->headers, &look->about).error)
        rc = store_refuse(error, HST_E_STORE_DAMAGED, -EBADMSG,
                          "the store in %s has tables that came otherwise from another rank than "
                          "they were read there. Fix: check the network and the memory of both "
                          "nodes",
                          ckpt->paths[0]);
    return rc;
}

static int check_rank(const struct hst_ckpt *ckpt, uint32_t rank, struct hst_error *error)
{
    const struct store_header *h = &ckpt->looks[rank].headers[0];
    const struct store_header *first = &ckpt->looks[0].headers[0];
    if (h->world == ckpt->world && h->rank == rank && h->drives == ckpt->drives &&
        store_id_equal(&h->uuid, &first->uuid))
        return 0;
    return store_refuse(error, HST_E_STORE_MIXED, -EINVAL,
                        "the store in %s has files that do not belong together, or had other "
                        "directories. Fix: name its directories, as many as it had",
                        ckpt->paths[0]);
}

int ckpt_agree(const struct hst_ckpt *ckpt, int rc, struct hst_error *error)
{
    const struct ckpt_shares *shares = ckpt->shares;
    return shares->agree ? shares->agree(shares->context, rc, error) : rc;
}

static int look_at_own(struct hst_ckpt *ckpt, uint32_t rank, struct hst_error *error)
{
    const struct store_directory *directories = ckpt->shares->directories[rank];
    const uint32_t number = rank + ckpt->replica;
    const int rc =
        look_open(directories, ckpt->drives, number, ckpt->held, &ckpt->looks[rank], error);
    if (rc == -ENOENT) /* it was found a moment before, or lies beside a copy that has it not */
        return store_refuse(error, HST_E_STORE_MIXED, -EINVAL,
                            "%s has no file of rank %u. Fix: bring the files of all ranks together",
                            directories[0].path, number);
    return rc;
}

int ckpt_look_at_shares(struct hst_ckpt *ckpt, struct hst_error *error)
{
    const struct ckpt_shares *shares = ckpt->shares;
    int rc = 0;
    ckpt->world = shares->world;
    ckpt->looks = calloc(ckpt->world, sizeof *ckpt->looks);
    if (!ckpt->looks)
        return store_refuse(error, HST_E_BUDGET, -ENOMEM,
                            "no memory for the store's tables. Fix: end other programs");
    for (uint32_t r = 0; r < ckpt->world; r++) {
        ckpt->looks[r].rank = r + ckpt->replica;
        for (uint32_t d = 0; d < STRIPE_DRIVES_MAX; d++)
            ckpt->looks[r].fds[d] = -1;
    }
    for (uint32_t r = 0; r < ckpt->world && rc == 0; r++)
        if (ckpt_is_here(ckpt, r))
            rc = look_at_own(ckpt, r, error);
    rc = ckpt_agree(ckpt, rc, error);
    for (uint32_t r = 0; r < ckpt->world && rc == 0; r++)
        rc = tell_rank(ckpt, r);
    for (uint32_t r = 0; r < ckpt->world && rc == 0; r++)
        rc = check_rank(ckpt, r, error);
    rc = rc ? rc : ckpt_load_version(ckpt, error);
    rc = ckpt_agree(ckpt, rc, error);
    for (uint32_t r = 0; r < ckpt->world && rc == 0; r++)
        rc = tell_manifest(ckpt, r, error);
    return rc;
}
