/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a store: what is encoded is decoded, every bit counts, and no value is believed for
 * its checksum. Checksums are made anew here, so that a hostile page gets as far as it can. */
#include "store/format.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include <cmocka.h>

#define TILES  3u
#define DRIVES 2u

static void put(unsigned char *at, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        at[i] = (unsigned char)(value >> 8 * i);
}

static void seal(unsigned char *page, unsigned slot, unsigned copy)
{
    memset(page + 16, 0, 16);
    const XXH128_hash_t hash = XXH3_128bits_withSeed(page, STORE_PAGE_BYTES, slot << 4 | copy);
    put(page + 16, hash.low64, 8);
    put(page + 24, hash.high64, 8);
}

static struct store_header a_header(uint32_t drive)
{
    struct store_header h = {
        .uuid = {"store of tests"},
        .rank = 1,
        .world = 3,
        .drive = drive,
        .drives = DRIVES,
        .align_bytes = 8192,
        .extents = STORE_KINDS * TILES,
        .blocks = STORE_KINDS * TILES + 1,
        .slot_bytes = 5 * 1024 * 1024,
        .derived_bytes = drive == 0 ? 16384 : 0,
        .tile_elements = 8192,
    };
    h.manifest_bytes = store_manifest_room(h.extents, h.blocks, h.align_bytes);
    return h;
}

static struct store_superblock a_superblock(void)
{
    struct store_superblock s = {
        .uuid = {"store of tests"},
        .rank = 1,
        .world = 3,
        .seq = 7,
        .incarnation = {"run of tests"},
        .state = STORE_OPEN,
        .cur = {.version = 5, .step = 50, .commit_id = {"five"}, .slot = 1, .bytes = 8192},
        .prev = {.version = 4, .step = 40, .commit_id = {"four"}, .slot = 0, .bytes = 8192},
        .written_bytes = 12345,
    };
    return s;
}

/* ---- header ---- */

static void headers_come_back(void **state)
{
    (void)state;
    for (uint32_t drive = 0; drive < DRIVES; drive++)
        for (unsigned copy = 0; copy < 2; copy++) {
            unsigned char page[STORE_PAGE_BYTES];
            struct store_header h = a_header(drive), back;
            h.slices = copy == drive;
            h.fixed = copy == 1;
            store_header_encode(&h, copy, page);
            assert_int_equal(store_header_decode(page, copy, &back).error, 0);
            assert_memory_equal(&back, &h, offsetof(struct store_header, slices));
            assert_int_equal(back.slices, h.slices); /* behind both is nothing to compare */
            assert_int_equal(back.fixed, h.fixed);
            assert_int_equal(store_header_decode(page, 1 - copy, &back).error, -EBADMSG);
        }
}

static void the_parts_of_a_file_follow_one_another(void **state)
{
    (void)state;
    const struct store_header h = a_header(0);
    const uint64_t a = h.align_bytes, m = h.manifest_bytes;
    assert_int_equal(store_header_at(&h, 0), 0);
    assert_int_equal(store_superblock_at(&h, 0, 0), a);
    assert_int_equal(store_superblock_at(&h, 1, 0), 2 * a);
    assert_int_equal(store_manifest_at(&h, 0, 0), 3 * a);
    assert_int_equal(store_manifest_at(&h, 1, 0), 3 * a + m);
    assert_int_equal(store_data_at(&h), 3 * a + 2 * m);
    assert_int_equal(store_derived_at(&h), store_data_at(&h) + 2 * h.slot_bytes);
    assert_int_equal(store_manifest_at(&h, 0, 1), store_derived_at(&h) + h.derived_bytes);
    assert_int_equal(store_manifest_at(&h, 1, 1), store_manifest_at(&h, 0, 1) + m);
    assert_int_equal(store_superblock_at(&h, 0, 1), store_manifest_at(&h, 1, 1) + m);
    assert_int_equal(store_superblock_at(&h, 1, 1), store_superblock_at(&h, 0, 1) + a);
    assert_int_equal(store_file_bytes(&h), store_superblock_at(&h, 1, 1) + 2 * a);
    assert_int_equal(store_header_at(&h, 1), store_file_bytes(&h) - STORE_PAGE_BYTES);
    const struct store_header other = a_header(1);
    assert_int_equal(store_data_at(&other), a);
    assert_int_equal(store_file_bytes(&other), 2 * a + 2 * other.slot_bytes);
}

static void every_bit_of_a_page_counts(void **state)
{
    (void)state;
    unsigned char page[STORE_PAGE_BYTES];
    const struct store_header h = a_header(0);
    const struct store_superblock s = a_superblock();
    struct store_header header;
    struct store_superblock superblock;
    for (uint32_t bit = 0; bit < 8 * STORE_PAGE_BYTES; bit++) {
        store_header_encode(&h, 0, page);
        page[bit / 8] ^= (unsigned char)(1 << bit % 8);
        assert_int_not_equal(store_header_decode(page, 0, &header).error, 0);
        store_superblock_encode(&s, 1, page);
        page[bit / 8] ^= (unsigned char)(1 << bit % 8);
        assert_int_not_equal(store_superblock_decode(page, 1, 1, &h, &superblock).error, 0);
    }
}

struct hostile {
    uint32_t at, bytes;
    uint64_t value;
    int error;
};

static void hostile_headers_are_refused(void **state)
{
    (void)state;
    static const struct hostile ROWS[] = {
        {0, 1, 'X', -ENOENT},         /* magic */
        {8, 4, 0x04030201, -ENOTSUP}, /* byte order */
        {8, 4, 0, -EINVAL},
        {12, 2, STORE_MAJOR + 1, -ENOTSUP},
        {12, 2, 0, -ENOTSUP},
        {48, 4, 3, -EINVAL}, /* rank, not below world */
        {52, 4, 0, -EINVAL}, /* world */
        {56, 4, 2, -EINVAL}, /* drive, not below drives */
        {60, 4, 0, -EINVAL}, /* drives */
        {60, 4, STRIPE_DRIVES_MAX + 1, -EINVAL},
        {64, 4, 0, -ENOTSUP}, /* features: ranks of whole tiles */
        {64, 4, 9, -ENOTSUP}, /* 2: slices; 4: fixed extents */
        {64, 4, 1u << 31, -ENOTSUP},
        {68, 4, 0, -EINVAL}, /* alignment */
        {68, 4, 4097, -EINVAL},
        {68, 4, 12288, -EINVAL},
        {68, 4, 2048, -EINVAL},
        {68, 4, 2 * STORE_ALIGN_MAX, -EINVAL},
        {72, 4, 4096, -EINVAL}, /* block */
        {76, 4, 0, -EINVAL},    /* extents */
        {76, 4, 5, -EINVAL},
        {76, 4, 8, -EINVAL},
        {76, 4, UINT32_MAX - 1, -EINVAL},
        {80, 8, 0, -EINVAL}, /* blocks */
        {80, 8, UINT64_MAX, -EINVAL},
        {80, 8, UINT64_MAX / 8 + 1, -EINVAL},
        {88, 8, 0, -EINVAL}, /* manifest */
        {88, 8, UINT64_MAX - 8191, -EINVAL},
        {96, 8, 4096, -EINVAL}, /* zones */
        {96, 8, UINT64_MAX - 8191, -EINVAL},
        {96, 8, UINT64_C(1) << 63, -EINVAL},
        {96, 8, 0, -EINVAL},
        {104, 8, 1, -EINVAL},
        {104, 8, UINT64_MAX - 8191, -EINVAL},
        {112, 8, 0, -EINVAL}, /* file */
        {112, 8, UINT64_MAX, -EINVAL},
        {120, 4, 0, -EINVAL}, /* elements per tile */
        {120, 4, 4097, -EINVAL},
        {120, 8, UINT64_C(4096) << 32, -EINVAL},
        {128, 1, 1, -EINVAL}, /* beside the fields */
        {4095, 1, 1, -EINVAL},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        unsigned char page[STORE_PAGE_BYTES];
        struct store_header h = a_header(0), back = {.rank = 99};
        store_header_encode(&h, 0, page);
        put(page + ROWS[i].at, ROWS[i].value, ROWS[i].bytes);
        seal(page, 0, 0);
        const struct store_flaw flaw = store_header_decode(page, 0, &back);
        if (flaw.error != ROWS[i].error)
            print_message("row %zu: %s\n", i, flaw.what ? flaw.what : "taken");
        assert_int_equal(flaw.error, ROWS[i].error);
        assert_non_null(flaw.what);
        assert_int_equal(back.rank, 99);
    }
}

static void sizes_that_overflow_are_no_sizes(void **state)
{
    (void)state;
    struct store_header h = a_header(0);
    assert_int_equal(store_manifest_room(UINT32_MAX, UINT64_MAX, 4096), 0);
    assert_int_equal(store_manifest_room(1, UINT64_MAX / 8, 4096), 0);
    h.slot_bytes = UINT64_C(1) << 62; /* two of them are more than a file can have */
    assert_int_equal(store_file_bytes(&h), 0);
    h.slot_bytes = UINT64_C(1) << 63;
    assert_int_equal(store_file_bytes(&h), 0);
}

/* ---- superblock ---- */

static void superblocks_come_back(void **state)
{
    (void)state;
    const struct store_header h = a_header(0);
    for (unsigned copy = 0; copy < 2; copy++)
        for (int first = 0; first < 2; first++) {
            unsigned char page[STORE_PAGE_BYTES];
            struct store_superblock s = a_superblock(), back;
            if (first)
                s.prev = (struct store_ref){.version = STORE_NO_VERSION};
            store_superblock_encode(&s, copy, page);
            assert_int_equal(store_superblock_decode(page, 1, copy, &h, &back).error, 0);
            assert_memory_equal(&back.cur.digest, &s.cur.digest, sizeof s.cur.digest);
            assert_int_equal(back.seq, s.seq);
            assert_int_equal(back.prev.version, s.prev.version);
            assert_int_equal(back.written_bytes, s.written_bytes);
            assert_int_equal(store_superblock_decode(page, 1, 1 - copy, &h, &back).error, -EBADMSG);
            assert_int_equal(store_superblock_decode(page, 0, copy, &h, &back).error, -EBADMSG);
        }
}

static void hostile_superblocks_are_refused(void **state)
{
    (void)state;
    static const struct hostile ROWS[] = {
        {0, 1, 'X', -ENOENT},
        {8, 4, 0x04030201, -ENOTSUP},
        {12, 2, 2, -ENOTSUP},
        {32, 1, 'X', -EINVAL}, /* another store */
        {48, 4, 0, -EINVAL},   /* another rank */
        {52, 4, 4, -EINVAL},   /* another world */
        {56, 8, 8, -EINVAL},   /* a number of the other slot */
        {56, 8, UINT64_MAX, -EINVAL},
        {56, 8, UINT64_C(1) << 63 | 1, -EINVAL}, /* the next ones would come to an end */
        {96, 8, UINT64_C(1) << 63, -EINVAL},
        {80, 4, 0, -EINVAL}, /* state */
        {80, 4, 3, -EINVAL},
        {84, 4, 1, -EINVAL},          /* padding */
        {96, 8, UINT64_MAX, -EINVAL}, /* no version */
        {128, 4, 2, -EINVAL},         /* manifest slot */
        {132, 4, 1, -EINVAL},         /* padding */
        {136, 8, 0, -EINVAL},         /* manifest bytes */
        {136, 8, 4096, -EINVAL},
        {136, 8, 8193, -EINVAL},
        {136, 8, UINT64_C(1) << 40, -EINVAL},
        {160, 8, 5, -EINVAL},          /* the version before: not before */
        {160, 8, UINT64_MAX, -EINVAL}, /* none, and yet something */
        {192, 4, 1, -EINVAL},          /* its manifest where the newer one is */
        {196, 4, 1, -EINVAL},
        {200, 8, UINT64_C(1) << 40, -EINVAL},
        {224, 1, 1, -EINVAL}, /* beside the fields */
        {4095, 1, 0x80, -EINVAL},
    };
    const struct store_header h = a_header(0);
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        unsigned char page[STORE_PAGE_BYTES];
        struct store_superblock s = a_superblock(), back;
        store_superblock_encode(&s, 0, page);
        put(page + ROWS[i].at, ROWS[i].value, ROWS[i].bytes);
        seal(page, 1, 0);
        const struct store_flaw flaw = store_superblock_decode(page, 1, 0, &h, &back);
        if (flaw.error != ROWS[i].error)
            print_message("row %zu: %s\n", i, flaw.what ? flaw.what : "taken");
        assert_int_equal(flaw.error, ROWS[i].error);
    }
}

static void a_commit_id_tells_runs_apart(void **state)
{
    (void)state;
    const struct store_id before = {"before"}, run = {"run"}, other = {"other"};
    const struct store_id id = store_commit_id(&before, &run, 3, 30);
    const struct store_id others[] = {
        store_commit_id(&other, &run, 3, 30), store_commit_id(&before, &other, 3, 30),
        store_commit_id(&before, &run, 4, 30), store_commit_id(&before, &run, 3, 31)};
    const struct store_id same = store_commit_id(&before, &run, 3, 30);
    assert_true(store_id_equal(&id, &same));
    for (int i = 0; i < 4; i++)
        assert_false(store_id_equal(&id, &others[i]));
}

/* ---- manifest ---- */

struct manifest {
    struct store_header headers[DRIVES];
    unsigned char *bytes;
    struct store_ref ref;
};

#define EXTENT_BYTES (512u << 10)

/* Weights on drive 0, of which the last is derived; states on drive 1, the last larger than a
   block. */
static struct manifest a_manifest(const char *opaque)
{
    struct manifest m = {.headers = {a_header(0), a_header(1)}};
    m.bytes = calloc(1, m.headers[0].manifest_bytes);
    assert_non_null(m.bytes);
    uint64_t next[DRIVES] = {store_data_at(&m.headers[0]), store_data_at(&m.headers[1])};
    uint32_t block = 0;
    for (uint32_t i = 0; i < STORE_KINDS * TILES; i++) {
        const bool derived = i == TILES - 1, large = i == STORE_KINDS * TILES - 1;
        struct store_entry e = {.tile = i % TILES,
                                .kind = (uint8_t)(i / TILES),
                                .drive = (uint8_t)(i / TILES),
                                .slot = i == 0,
                                .flags = derived ? STORE_DERIVED : 0,
                                .bytes = derived ? 16384
                                         : large ? STORE_BLOCK_BYTES + 4096
                                                 : EXTENT_BYTES,
                                .first_block = block,
                                .version = i};
        e.offset = derived ? store_derived_at(&m.headers[0]) : next[e.drive];
        next[e.drive] += derived ? 0 : e.bytes;
        block += (uint32_t)store_blocks_of(e.bytes);
        store_entry_put(m.bytes, i, &e);
    }
    const struct store_manifest manifest = {.uuid = m.headers[0].uuid,
                                            .commit_id = {"five"},
                                            .incarnation = {"run of tests"},
                                            .rank = 1,
                                            .world = 3,
                                            .version = 5,
                                            .cursor = {.step = 50,
                                                       .updates = 49,
                                                       .loss_scale = 1024,
                                                       .good_steps = 17,
                                                       .opaque = opaque,
                                                       .opaque_bytes = (uint32_t)strlen(opaque)}};
    const uint64_t cursor_at = store_hashes_at(m.headers[0].extents) + m.headers[0].blocks * 8;
    memset(m.bytes + cursor_at, 'x', m.headers[0].manifest_bytes - cursor_at); /* of a longer one */
    m.ref = (struct store_ref){.version = 5, .step = 50, .commit_id = {"five"}};
    m.ref.bytes = store_manifest_encode(&manifest, &m.headers[0], m.bytes);
    m.ref.digest = store_digest(m.bytes, m.ref.bytes);
    return m;
}

static void manifests_come_back(void **state)
{
    (void)state;
    char longest[STORE_CURSOR_MAX + 1];
    memset(longest, 'x', STORE_CURSOR_MAX);
    longest[STORE_CURSOR_MAX] = 0;
    const char *const cursors[] = {"", "1", "1234567", "12345678", longest};
    for (int i = 0; i < 5; i++) {
        struct store_manifest back;
        struct manifest m = a_manifest(cursors[i]);
        assert_true(m.ref.bytes <= m.headers[0].manifest_bytes && m.ref.bytes % 4096 == 0);
        assert_int_equal(store_manifest_decode(m.bytes, &m.ref, m.headers, &back).error, 0);
        assert_int_equal(back.version, 5);
        assert_int_equal(back.cursor.step, 50);
        assert_int_equal(back.cursor.updates, 49);
        assert_true(back.cursor.loss_scale == 1024);
        assert_int_equal(back.cursor.good_steps, 17);
        assert_int_equal(back.cursor.opaque_bytes, strlen(cursors[i]));
        assert_memory_equal(back.cursor.opaque, cursors[i], strlen(cursors[i]));
        free(m.bytes);
    }
}

/* Bytes from the manifest's start of a field of an extent's entry, of the cursor. */
#define ENTRY(i)  (STORE_ENTRIES_AT + 32 * (i))
#define CURSOR_AT (ENTRY(6) + 8 * 7)

static void hostile_manifests_are_refused(void **state)
{
    (void)state;
    static const struct hostile ROWS[] = {
        {0, 1, 'X', -ENOENT},
        {8, 4, 0x04030201, -ENOTSUP},
        {12, 2, 2, -ENOTSUP},
        {16, 1, 1, -EINVAL},   /* padding */
        {32, 1, 'X', -EINVAL}, /* another store */
        {48, 4, 2, -EINVAL},   /* rank */
        {52, 4, 4, -EINVAL},   /* world */
        {56, 8, 6, -EINVAL},   /* version */
        {64, 1, 'X', -EINVAL}, /* commit id */
        {96, 4, 8, -EINVAL},   /* extents */
        {96, 4, UINT32_MAX, -EINVAL},
        {100, 4, 0, -EINVAL}, /* bytes of the cursor */
        {100, 4, UINT32_MAX, -EINVAL},
        {104, 8, 8, -EINVAL}, /* blocks */
        {104, 8, UINT64_MAX, -EINVAL},
        {112, 8, 4096, -EINVAL}, /* bytes of the manifest */
        {120, 1, 1, -EINVAL},
        {4095, 1, 1, -EINVAL},
        {ENTRY(1), 4, 2, -EINVAL},     /* tile: not its turn */
        {ENTRY(4), 4, 2, -EINVAL},     /* states of another tile */
        {ENTRY(1) + 4, 1, 1, -EINVAL}, /* kind */
        {ENTRY(1) + 4, 1, 9, -EINVAL},
        {ENTRY(1) + 5, 1, 2, -EINVAL},             /* drive: there is none */
        {ENTRY(1) + 5, 1, 1, -EINVAL},             /* another one's offset */
        {ENTRY(1) + 6, 1, 2, -EINVAL},             /* slot */
        {ENTRY(2) + 6, 1, 1, -EINVAL},             /* slot of a derived one */
        {ENTRY(1) + 7, 1, 8, -EINVAL},             /* unknown flag */
        {ENTRY(1) + 7, 1, 0x80, -EINVAL},          /* a flag of memory's */
        {ENTRY(1) + 7, 1, STORE_ZERO, -EINVAL},    /* never written, in version 1 */
        {ENTRY(1) + 7, 1, STORE_DERIVED, -EINVAL}, /* in the zone of others */
        {ENTRY(1) + 8, 8, 0, -EINVAL},             /* offset: the header */
        {ENTRY(1) + 8, 8, UINT64_MAX - 4095, -EINVAL},
        {ENTRY(1) + 16, 4, 0, -EINVAL}, /* bytes */
        {ENTRY(1) + 16, 4, 4095, -EINVAL},
        {ENTRY(0) + 16, 4, EXTENT_BYTES + 4096, -EINVAL}, /* into its neighbour */
        {ENTRY(1) + 16, 4, UINT32_MAX - 4095, -EINVAL},
        {ENTRY(2) + 16, 4, 16384 + 4096, -EINVAL},
        {ENTRY(5) + 16, 4, 5 << 20, -EINVAL}, /* beyond its zone */
        {ENTRY(1) + 20, 4, 0, -EINVAL},       /* another one's hashes */
        {ENTRY(1) + 20, 4, UINT32_MAX, -EINVAL},
        {ENTRY(1) + 24, 8, 6, -EINVAL},    /* of a later version */
        {ENTRY(5) + 16, 4, 4096, -EINVAL}, /* fewer hashes than there are */
        {CURSOR_AT, 4, 2, -EINVAL},        /* tag: not its turn */
        {CURSOR_AT, 4, 99, -EINVAL},
        {CURSOR_AT + 4, 4, 4, -EINVAL}, /* bytes */
        {CURSOR_AT + 4, 4, UINT32_MAX, -EINVAL},
        {CURSOR_AT + 8, 8, 51, -EINVAL},      /* a step that the superblock does not say */
        {CURSOR_AT + 44, 1, 1, -EINVAL},      /* padding of a 4-byte value */
        {CURSOR_AT + 68, 4, 100000, -EINVAL}, /* bytes of the client's cursor */
        {CURSOR_AT + 68, 4, 3, -EINVAL},
        {CURSOR_AT + 80, 1, 1, -EINVAL}, /* behind it */
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        struct manifest m = a_manifest("client");
        struct store_manifest back;
        put(m.bytes + ROWS[i].at, ROWS[i].value, ROWS[i].bytes);
        assert_int_equal(store_manifest_decode(m.bytes, &m.ref, m.headers, &back).error, -EBADMSG);
        m.ref.digest = store_digest(m.bytes, m.ref.bytes);
        const struct store_flaw flaw = store_manifest_decode(m.bytes, &m.ref, m.headers, &back);
        if (flaw.error != ROWS[i].error)
            print_message("row %zu: %s\n", i, flaw.what ? flaw.what : "taken");
        assert_int_equal(flaw.error, ROWS[i].error);
        free(m.bytes);
    }
}

/* Random bytes in random places, with a good checksum: refused, or taken as what they are, and in
   no case read or written beyond. What runs this under ASan sees that. */
static void random_manifests_do_no_harm(void **state)
{
    (void)state;
    uint64_t random = 1;
    for (int round = 0; round < 3000; round++) {
        struct manifest m = a_manifest("client");
        struct store_manifest back;
        for (int i = 0; i < 1 + round % 4; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            const uint64_t at = (random >> 33) % (CURSOR_AT + 96);
            m.bytes[at] = (unsigned char)(random >> 24);
        }
        m.ref.digest = store_digest(m.bytes, m.ref.bytes);
        if (store_manifest_decode(m.bytes, &m.ref, m.headers, &back).error == 0)
            assert_true((const unsigned char *)back.cursor.opaque + back.cursor.opaque_bytes <=
                        m.bytes + m.ref.bytes);
        free(m.bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_come_back),
        cmocka_unit_test(the_parts_of_a_file_follow_one_another),
        cmocka_unit_test(every_bit_of_a_page_counts),
        cmocka_unit_test(hostile_headers_are_refused),
        cmocka_unit_test(sizes_that_overflow_are_no_sizes),
        cmocka_unit_test(superblocks_come_back),
        cmocka_unit_test(hostile_superblocks_are_refused),
        cmocka_unit_test(a_commit_id_tells_runs_apart),
        cmocka_unit_test(manifests_come_back),
        cmocka_unit_test(hostile_manifests_are_refused),
        cmocka_unit_test(random_manifests_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
