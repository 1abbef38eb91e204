/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the reader of safetensors makes of many files: for each on stdin (u32 length, bytes) one
 * line on stdout, "refused MESSAGE" or "accepted" and each tensor as HEX-OF-NAME:DTYPE:DIMS:BYTES.
 */
#include "hf/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_tensor(const struct st_tensor *t)
{
    putchar(' ');
    for (const char *c = t->name; *c; c++)
        printf("%02x", (unsigned char)*c);
    printf(":%s:", t->dtype->name);
    for (uint32_t i = 0; i < t->dim_count; i++)
        printf("%s%" PRIu64, i ? "," : "", t->dims[i]);
    printf(":%" PRIu64, t->end - t->begin);
}

static int judge(unsigned char *file, size_t size)
{
    uint64_t header_bytes;
    struct st_header header;
    struct hst_error error = {0};
    unsigned char first[8] = {0};
    memcpy(first, file, size < 8 ? size : 8);
    int rc = st_header_bytes("file", first, size, &header_bytes, &error);
    char *text = rc ? NULL : malloc(header_bytes + 1);
    if (!rc && !text)
        return 1;
    if (!rc) {
        memcpy(text, file + 8, header_bytes);
        text[header_bytes] = '\0';
        rc = st_parse("file", text, header_bytes, size - 8 - header_bytes, ST_MAX_TENSORS, &header,
                      &error);
    }
    if (rc) {
        printf("refused %s\n", error.message);
    } else {
        printf("accepted");
        for (size_t i = 0; i < header.count; i++)
            print_tensor(&header.tensors[i]);
        putchar('\n');
        st_header_free(&header);
    }
    free(text);
    return 0;
}

int main(void)
{
    unsigned char length[4];
    while (fread(length, 1, 4, stdin) == 4) {
        size_t size = (size_t)length[0] | (size_t)length[1] << 8 | (size_t)length[2] << 16 |
                      (size_t)length[3] << 24;
        unsigned char *file = malloc(size + 8);
        if (!file || fread(file, 1, size, stdin) != size || judge(file, size)) {
            fprintf(stderr, "input cut, or no memory\n");
            return 1;
        }
        free(file);
    }
    return 0;
}
