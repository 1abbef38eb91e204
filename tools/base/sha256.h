/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_SHA256_H
#define HOISTWAY_TOOLS_SHA256_H
/* SHA-256 (FIPS 180-4), of bytes that come in any pieces. Pure. */
#include <stddef.h>
#include <stdint.h>

#define SHA256_BYTES 32u

struct sha256 {
    uint32_t state[8];
    uint64_t count; /* bytes so far */
    unsigned char block[64];
};

void sha256_begin(struct sha256 *hash);
void sha256_add(struct sha256 *hash, const void *bytes, size_t count);
void sha256_end(struct sha256 *hash, unsigned char digest[SHA256_BYTES]);
/** hex: two digits a byte, and NUL. */
void sha256_hex(const unsigned char digest[SHA256_BYTES], char hex[2 * SHA256_BYTES + 1]);
#endif
