/* SPDX-License-Identifier: Apache-2.0 */
/* Stores of a small run: see ckpt_run.h. */
#include "ckpt_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include <cmocka.h>

char root[] = "/dev/shm/hst-ckpt-XXXXXX"; /* in memory: 60 files are synced */
struct toy_saved oracle, masters, found;  /* large: not on the stack */
struct hst_error error;

void must(int rc)
{
    if (rc)
        fail_msg("returned %d: E%d %s", rc, error.code, error.message);
}

/* "ROOT/a,ROOT/b" of "a,b". */
const char *in_root(const char *names)
{
    static char text[256];
    size_t n = 0;
    for (const char *at = names; *at; at += strcspn(at, ","), at += *at == ',')
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s/%.*s", n ? "," : "", root,
                              (int)strcspn(at, ","), at);
    return text;
}

int make_root(void **state)
{
    (void)state;
    if (mkdtemp(root))
        return 0;
    snprintf(root, sizeof root, "/tmp/hst-ckpt-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

int remove_root(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -r '%s'", root);
    return system(command);
}

void empty_root(void)
{
    char command[64];
    snprintf(command, sizeof command, "rm -rf '%s'/*", root);
    assert_int_equal(system(command), 0);
}

int take(void *context, const struct hst_param_ref *param, uint64_t offset, const void *src,
         size_t count, enum hst_dtype dtype)
{
    struct toy_saved *saved = context;
    (void)param;
    (void)offset;
    memcpy(saved->bytes + saved->used, src, count * hst_dtype_bytes(dtype));
    saved->used += count * hst_dtype_bytes(dtype);
    return 0;
}

/* Leaves a store; *saved, and the masters: what the engine saves at its end. */
void train(enum hst_precision precision, const char *store, int steps, struct toy_saved *saved)
{
    struct hst_engine *engine =
        toy_created(OF_RUN(.store = store, .precision = precision, .durability = "step",
                           .place = "states=nvme,weights=nvme"));
    struct hst_step_stats stats;
    saved->used = 0;
    toy_must(engine, toy_seal_and_load(engine));
    for (int s = 0; s < steps; s++)
        toy_must(engine, toy_step(engine, &stats));
    toy_must(engine, hst_engine_drain(engine, &stats));
    toy_must(engine, toy_save(engine, saved));
    masters.used = 0;
    toy_must(engine, hst_engine_save_masters(engine, &(struct hst_writer){take, &masters}));
    hst_engine_destroy(&engine);
}

struct hst_ckpt *opened_at(const char *names, uint64_t step)
{
    struct hst_ckpt *ckpt = NULL;
    const struct hst_ckpt_config config = {
        .size = sizeof config, .store = in_root(names), .step = step, .hold = true};
    must(hst_ckpt_open(&config, &ckpt, &error));
    return ckpt;
}

struct hst_ckpt *opened(const char *names)
{
    return opened_at(names, HST_NO_VERSION);
}

/* Those of the oracle. Closes the handle. */
void check_weights_of(struct hst_ckpt *ckpt, enum hst_precision precision)
{
    struct hst_engine *model = toy_created(OF_RUN(.precision = precision));
    const struct hst_writer writer = {take, &found};
    found.used = 0;
    toy_must(model, toy_describe(model));
    must(hst_ckpt_model(ckpt, model, &error));
    must(hst_ckpt_save(ckpt, &writer, NULL, &error));
    assert_int_equal(found.used, oracle.used);
    assert_memory_equal(found.bytes, oracle.bytes, oracle.used);
    found.used = 0;
    must(hst_ckpt_save_masters(ckpt, &writer, NULL, &error));
    hst_ckpt_close(&ckpt);
    hst_engine_destroy(&model);
    assert_int_equal(found.used, oracle.used / (precision == HST_PRECISION_FP32 ? 4 : 2) * 4);
    assert_int_equal(masters.used, found.used);
    assert_memory_equal(found.bytes, masters.bytes, found.used);
}

void check_weights(const char *names, enum hst_precision precision)
{
    check_weights_of(opened(names), precision);
}

static int note_hashes(void *context, struct ckpt_part *part)
{
    const struct look *look = part->extent.look;
    const struct store_entry *entry = &part->extent.entry;
    uint64_t *digest = context;
    assert_int_equal(part->error, 0);
    if (!(entry->flags & STORE_ZERO))
        *digest = XXH3_64bits_withSeed(look_hashes(look, entry), 8 * store_blocks_of(entry->bytes),
                                       *digest);
    return 0;
}

/* Of the hashes in all manifests, in the order of the model. */
uint64_t digest_of(const char *names)
{
    struct hst_ckpt *ckpt = opened(names);
    uint64_t digest = 0;
    const struct ckpt_reading reading = {.share = SHARE_ALL,
                                         .weights = true,
                                         .states = true,
                                         .visit = note_hashes,
                                         .context = &digest};
    assert_int_equal(ckpt->layout.tile_count, TILES);
    assert_int_equal(ckpt->layout.unit_count, TOY_UNITS);
    must(ckpt_read(ckpt, &reading, &error));
    hst_ckpt_close(&ckpt);
    return digest;
}

void reshard(const char *from, uint32_t world, const char *to)
{
    struct hst_ckpt *ckpt = opened(from);
    must(hst_ckpt_reshard(ckpt, in_root(to), world, NULL, &error));
    hst_ckpt_close(&ckpt);
}
