/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A safetensors file: whatever is accepted is what the format promises, so that reading a tensor
 * later cannot go wrong.
 */
#include "fuzz.h"

#include "hf/safetensors.h"

static void check_accepted(const struct st_header *header, uint64_t data_bytes)
{
    uint64_t covered = 0;
    for (size_t i = 0; i < header->count; i++) {
        const struct st_tensor *t = &header->tensors[i];
        uint64_t elements;
        MUST(strlen(t->name) <= ST_MAX_NAME_BYTES);
        MUST(t->dim_count <= HST_MAX_DIMS && st_elements(t->dims, t->dim_count, &elements) == 0);
        MUST(t->begin <= t->end && t->end <= data_bytes);
        MUST((t->end - t->begin) * 8 == elements * t->dtype->bits);
        covered += t->end - t->begin;
        for (size_t j = 0; j < i; j++) {
            const struct st_tensor *other = &header->tensors[j];
            MUST(strcmp(t->name, other->name) != 0);
            MUST(t->end <= other->begin || other->end <= t->begin || t->begin == t->end ||
                 other->begin == other->end);
        }
    }
    MUST(covered == data_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char first[8] = {0};
    uint64_t header_bytes;
    struct hst_error error = {0};
    if (size)
        memcpy(first, data, size < 8 ? size : 8);
    if (st_header_bytes("file", first, size, &header_bytes, &error)) {
        must_be_told(&error, FAIL_SAFETENSORS, FAIL_SAFETENSORS);
        return 0;
    }
    MUST(size >= 8 && header_bytes <= size - 8);
    char *text = exact_copy(data + 8, header_bytes);
    struct st_header header;
    if (st_parse("file", text, header_bytes, size - 8 - header_bytes, 1000, &header, &error)) {
        must_be_told(&error, FAIL_SAFETENSORS, FAIL_SAFETENSORS);
    } else {
        check_accepted(&header, size - 8 - header_bytes);
        st_header_free(&header);
    }
    free(text);
    return 0;
}
