/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Helps libFuzzer past the length field of a safetensors file: after three of four mutations it is
 * made to fit the header again, or else nearly all inputs would be refused by their first eight
 * bytes.
 */
#include "fuzz.h"

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    size = LLVMFuzzerMutate(data, size, max_size);
    if (seed % 4 == 0 || size < 10 || memcmp(data, "{\"", 2) == 0) /* or a row of JSON */
        return size;
    size_t end = size;
    while (end > 8 && data[end - 1] != '}')
        end--;
    const uint64_t header_bytes = end - 8;
    for (unsigned i = 0; i < 8; i++)
        data[i] = (uint8_t)(header_bytes >> 8 * i);
    return size;
}
