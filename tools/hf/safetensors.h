/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_HF_SAFETENSORS_H
#define HOISTWAY_TOOLS_HF_SAFETENSORS_H
/*
 * The header of a safetensors file: u64le N, N bytes of JSON, then the tensors' bytes without a
 * gap. Pure.
 */
#include "base/fail.h"
#include "hf/json/json.h"

#define ST_MAX_HEADER_BYTES 100000000u
#define ST_MAX_TENSORS      1048576u /* of a model */
#define ST_MAX_NAME_BYTES   1024u

struct st_dtype {
    const char *name;
    uint32_t bits;
};
/** All dtypes of the format. */
extern const struct st_dtype st_dtypes[];
extern const size_t st_dtype_count;

struct st_tensor {
    char *name;          /* in the header's text */
    uint64_t begin, end; /* bytes after the header */
    uint64_t dims[HST_MAX_DIMS];
    uint32_t dim_count;
    uint32_t file;
    const struct st_dtype *dtype;
    bool required;
};

struct st_header {
    struct st_tensor *tensors;
    size_t count;
    struct jsn_value metadata; /* __metadata__, strings alone; JSN_ERROR: it is not there */
};

/**
 * It returns what the first eight bytes say, checked against the file's size: N of the header.
 * `path` is for messages.
 */
int st_header_bytes(const char *path, const unsigned char first[8], uint64_t file_bytes,
                    uint64_t *header_bytes, struct hst_error *error);
/**
 * Parses and checks a header of `header_bytes` followed by a NUL, of a file with `data_bytes` after
 * it. Unescapes names in place: text must live as long as the tensors. At most max_tensors. Errors:
 * -EBADMSG (E410), -ENOMEM.
 */
int st_parse(const char *path, char *text, size_t header_bytes, uint64_t data_bytes,
             size_t max_tensors, struct st_header *header, struct hst_error *error);
void st_header_free(struct st_header *header);
/** The product of dims, -EOVERFLOW where it does not fit. */
int st_elements(const uint64_t *dims, uint32_t dim_count, uint64_t *elements);
#endif
