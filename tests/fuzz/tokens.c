/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Token data: the first three bytes choose what the user said (width, order, format; vocabulary;
 * sequence length, and whether the file is given twice), the rest is the file. Whatever is accepted
 * yields ids below the vocabulary.
 */
#include "fuzz.h"

#include "base/fail.h"
#include "data/data.h"

#include <unistd.h>

#define MOST_SEQUENCES 3u
#define MOST_TOKENS    16u /* of a sequence */

static void read_some(struct data *data, const struct data_config *config)
{
    uint32_t inputs[MOST_SEQUENCES * MOST_TOKENS], targets[MOST_SEQUENCES * MOST_TOKENS];
    uint32_t first[MOST_SEQUENCES * MOST_TOKENS], position[MOST_SEQUENCES * MOST_TOKENS];
    const struct data_batch batch = {inputs, targets, first, position};
    const bool packed = data_packing(data);
    struct hst_error error = {0};
    MUST(data_sequence_count(data) >= 1);
    MUST(data_sequence_count(data) <= data_token_count(data));
    for (uint64_t index = 0; index < 2 * MOST_SEQUENCES; index += MOST_SEQUENCES) {
        MUST(data_order_sequence(data, index) < data_sequence_count(data));
        if (data_read(data, index, MOST_SEQUENCES, &batch, &error)) {
            must_be_told(&error, FAIL_DATA_TOKEN, FAIL_DATA_TOKEN);
            return;
        }
        for (size_t i = 0; i < MOST_SEQUENCES * config->seq_len; i++)
            MUST(inputs[i] < config->vocab &&
                 (targets[i] < config->vocab || (packed && targets[i] == DATA_NO_TARGET)));
        for (size_t i = 0; packed && i < MOST_SEQUENCES * config->seq_len; i++)
            MUST(first[i] + position[i] == i % config->seq_len);
    }
    MUST(data_read(data, UINT64_MAX, 1, &batch, &error) < 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint64_t vocabularies[] = {1,     2,     256,        257,
                                            65535, 65536, UINT32_MAX, UINT64_C(1) << 32};
    char path[64], files[136];
    struct data *opened = NULL;
    struct hst_error error = {0};
    if (size < 3)
        return 0;
    int fd = file_in_memory(data + 3, size - 3, path);
    snprintf(files, sizeof files, data[2] & 0x80 ? "%s,%s" : "%s", path, path);
    const struct data_config config = {
        .files = files,
        .format = data[0] & 8 ? DATA_FORMAT_BYTES : DATA_FORMAT_TOKENS,
        .token_dtype = (enum token_dtype)((data[0] & 3) % 3),
        .order = data[0] & 4 ? DATA_SEQUENTIAL : DATA_SHUFFLED,
        .seed = data[0] >> 4,
        .vocab = vocabularies[data[1] % 8],
        .seq_len = 1 + data[2] % MOST_TOKENS,
    };
    if (data_open(&config, &opened, &error)) {
        MUST(error.code == FAIL_VALUE ||
             (error.code >= FAIL_DATA_FILE && error.code <= FAIL_DATA_FORMAT));
        must_be_told(&error, FAIL_VALUE, FAIL_DATA_FORMAT);
        MUST(strstr(error.message, "Fix: "));
    } else {
        read_some(opened, &config);
        data_close(&opened);
    }
    close(fd);
    return 0;
}
