/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_HF_FOLDER_H
#define HOISTWAY_TOOLS_HF_FOLDER_H
/* This header finds a model: in a directory of its own, or in a snapshot of Hugging Face's
 * cache. */
#include "hf/json/input.h"

/** A directory of files. Of a snapshot (models--ORG--NAME/snapshots/REVISION) also the folder whose
    blobs its links name. */
struct folder {
    int fd;
    int cache_fd;       /* models--ORG--NAME; -1: no snapshot */
    char snapshot[280]; /* "snapshots/REVISION" in it */
};
/** Nothing is open. */
#define FOLDER_NONE ((struct folder){.fd = -1, .cache_fd = -1})

/** Opens a directory that the user gave: links are followed. Negative errno. */
int folder_open(const char *path, struct folder *folder);
void folder_close(struct folder *folder);
/**
 * Opens a regular file by its plain name, or by that of a directory, which is no link, and its own
 * ("a/b"). Links are followed inside its directory, and those of a snapshot inside its
 * models--ORG--NAME. Errors: as input_open.
 */
int folder_input(const struct folder *folder, const char *name, struct input *input);

/**
 * The directory of a model that is named as on Hugging Face's hub, "Org/Name", and is in the cache
 * there (HF_HUB_CACHE, HF_HOME/hub, or ~/.cache/huggingface/hub): of its revision main. To be
 * freed; null where there is none.
 */
char *folder_cached(const char *name);
/**
 * The directory in which folder_cached looks for a model of that name. To be freed; null where it
 * is no name of the hub, or no variable says where the cache is.
 */
char *folder_cache_of(const char *name);
/** It tells whether there is something at a path, or a model of that name in the cache. */
bool folder_is_there(const char *path);
/** It returns what the user gave, where that is there, else folder_cached, else what the user gave.
   To be freed; null without memory. */
char *folder_find(const char *path);
#endif
