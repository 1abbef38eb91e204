/* SPDX-License-Identifier: Apache-2.0 */
#include "images.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void file_path(const struct toy *toy, uint32_t file, char path[128])
{
    snprintf(path, 128, "%s/r%05u.d%u.blk", toy->directories[file], toy->layout.share.rank, file);
}

struct files files_read(const struct toy *toy)
{
    struct files files;
    for (uint32_t f = 0; f < FAKE_FILES; f++) {
        char path[128];
        file_path(toy, f, path);
        struct fake_image *image = &files.images[f];
        FILE *file = fopen(path, "re");
        if (!file || fseek(file, 0, SEEK_END) < 0)
            abort();
        image->count = (uint64_t)ftell(file);
        image->bytes = malloc(image->count);
        rewind(file);
        if (!image->bytes || fread(image->bytes, 1, image->count, file) != image->count)
            abort();
        fclose(file);
    }
    return files;
}

void files_write(const struct toy *toy, const struct files *files)
{
    for (uint32_t f = 0; f < FAKE_FILES; f++) {
        char path[128];
        file_path(toy, f, path);
        const struct fake_image *image = &files->images[f];
        const int fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd < 0 || pwrite(fd, image->bytes, image->count, 0) != (ssize_t)image->count)
            abort();
        close(fd);
    }
}

void files_free(struct files *files)
{
    for (uint32_t f = 0; f < FAKE_FILES; f++)
        free(files->images[f].bytes);
}

struct files files_copy(const struct files *files)
{
    struct files copy = *files;
    for (uint32_t f = 0; f < FAKE_FILES; f++) {
        copy.images[f].bytes = malloc(files->images[f].count);
        if (!copy.images[f].bytes)
            abort();
        memcpy(copy.images[f].bytes, files->images[f].bytes, files->images[f].count);
    }
    return copy;
}

struct files toy_base(struct toy *toy, struct share share, const struct store_agreed *agreed)
{
    struct store *store;
    struct hst_error error;
    if (toy_open_share(toy, TOY_DRIVES, share))
        abort();
    toy->config.agreed = agreed;
    for (uint32_t d = 0; d < TOY_DRIVES; d++) {
        if (hst_aio_open(NULL, toy->directories[d], &toy->aio[d], NULL))
            abort();
        toy->drives[d].aio = toy->aio[d];
    }
    if (store_create(&toy->config, &store, &error)) {
        printf("%s\n", error.message);
        abort();
    }
    /* some extents were never written */
    for (uint64_t version = 0; version < 2; version++) {
        for (uint32_t i = 1 + (uint32_t)version; i < TOY_EXTENTS; i += 3) {
            struct transfer transfer;
            if (toy_write(toy, store, version, i, &transfer) ||
                extents_wait(store_extents(store), &transfer))
                abort();
        }
        if (toy_commit(store, version))
            abort();
        memcpy(toy->stamps[version + 1], toy->stamps[version], sizeof toy->stamps[0]);
    }
    store_close(&store);
    return files_read(toy);
}

void toy_drop(struct store *store)
{
    store_free(store);
}
