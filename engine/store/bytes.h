/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_STORE_BYTES_H
#define HOISTWAY_ENGINE_STORE_BYTES_H
/* Little-endian numbers in bytes, whatever the machine; what all pages of a store begin with. */
#include "store/format.h"

#include <string.h>

static inline void put_number(unsigned char *at, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        at[i] = (unsigned char)(value >> 8 * i);
}
static inline uint64_t get_number(const unsigned char *at, unsigned bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}
static inline void put_u16(unsigned char *at, uint16_t value) { put_number(at, value, 2); }
static inline void put_u32(unsigned char *at, uint32_t value) { put_number(at, value, 4); }
static inline void put_u64(unsigned char *at, uint64_t value) { put_number(at, value, 8); }
static inline uint16_t get_u16(const unsigned char *at) { return (uint16_t)get_number(at, 2); }
static inline uint32_t get_u32(const unsigned char *at) { return (uint32_t)get_number(at, 4); }
static inline uint64_t get_u64(const unsigned char *at) { return get_number(at, 8); }
static inline void put_id(unsigned char *at, const struct store_id *id)
{
    memcpy(at, id->bytes, sizeof id->bytes);
}
static inline struct store_id get_id(const unsigned char *at)
{
    struct store_id id;
    memcpy(id.bytes, at, sizeof id.bytes);
    return id;
}
static inline bool is_zero(const unsigned char *bytes, uint64_t count)
{
    return count == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, count - 1) == 0);
}

static inline struct store_flaw flaw(int error, const char *what)
{
    return (struct store_flaw){error, what};
}

struct page_kind {
    char magic[8];
    const char *stranger; /* said of a page that does not begin with it */
};
extern const struct page_kind PAGE_HEADER, PAGE_SUPERBLOCK, PAGE_MANIFEST, PAGE_ROOM;

/** Zeroes the page, but for what it begins with. */
void page_begin(unsigned char *page, const struct page_kind *kind);
/** Magic, byte order, version. */
struct store_flaw page_check(const unsigned char *page, const struct page_kind *kind);
/** Puts the checksum into a page that is complete otherwise. */
void page_seal(unsigned char *page, unsigned slot, unsigned copy);
/** As page_check, and the checksum. */
struct store_flaw page_verify(const unsigned char *page, const struct page_kind *kind,
                              unsigned slot, unsigned copy);

#endif
