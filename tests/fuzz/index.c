/* SPDX-License-Identifier: Apache-2.0 */
/* model.safetensors.index.json: whatever is accepted names plain files of one directory. */
#include "fuzz.h"

#include "hf/index.h"
#include "hf/json/input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = exact_copy(data, size);
    struct index index;
    struct hst_error error = {0};
    if (index_parse("file", text, size, &index, &error)) {
        must_be_told(&error, FAIL_INDEX, FAIL_INDEX);
        free(text);
        return 0;
    }
    MUST(index.file_count <= INDEX_MAX_FILES && index.file_count <= index.count);
    for (uint32_t i = 0; i < index.file_count; i++) {
        MUST(input_name_is_plain(index.files[i]));
        MUST(i == 0 || strcmp(index.files[i - 1], index.files[i]) < 0);
    }
    for (size_t i = 0; i < index.count; i++) {
        const struct index_entry *e = &index.entries[i];
        MUST(e->file < index.file_count && strcmp(index.files[e->file], e->file_name) == 0);
        MUST(i == 0 || strcmp(index.entries[i - 1].name, e->name) < 0);
    }
    index_free(&index);
    free(text);
    return 0;
}
