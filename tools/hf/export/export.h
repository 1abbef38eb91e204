/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_HF_EXPORT_EXPORT_H
#define HOISTWAY_TOOLS_HF_EXPORT_EXPORT_H
/* Between export.c, export_layout.c and export_target.c. */
#include "hf/hf.h"

/* ---- layout: which tensor is where in which file. Pure. ---- */

struct span {
    uint64_t begin, end;
};
/** Disjoint, sorted spans of elements that were written. */
struct spans {
    struct span *items;
    size_t count, capacity;
};
int spans_add(struct spans *spans, uint64_t begin, uint64_t end);
/** True if exactly [0, size) is covered. */
bool spans_cover(const struct spans *spans, uint64_t size);

struct export_layout_tensor {
    char *name;
    uint64_t dims[HST_MAX_DIMS];
    uint32_t dim_count;
    uint32_t file;
    uint64_t elements;
    uint64_t begin; /* bytes, of the file's data */
    struct spans written;
};
struct export_layout_file {
    char name[44];         /* model-%05u-of-%05u.safetensors takes at most 43 */
    uint32_t tensor_count; /* they follow each other in the layout */
    uint64_t data_bytes;
    char *header; /* with its length in front and spaces behind: a multiple of 4,096 bytes */
    size_t header_bytes;
};
struct export_layout {
    struct export_layout_tensor *tensors; /* sorted by name */
    size_t tensor_count;
    struct export_layout_file *files;
    uint32_t file_count;
    uint32_t width; /* bytes of an element */
    uint64_t total_bytes;
    char *index; /* text of model.safetensors.index.json; null for one file */
};
/** Errors: -EINVAL names, dims or dtype cannot be exported, -ENOMEM. */
int export_layout_create(const struct hf_export_desc *desc, struct export_layout *layout);
void export_layout_free(struct export_layout *layout);
struct export_layout_tensor *export_layout_find(const struct export_layout *layout,
                                                const char *name);

/* ---- target: the directory that is replaced ---- */

/**
 * The file that tells an export of ours: this title, then "BYTES NAME" of each other file, one per
 * line.
 */
#define TARGET_MARKER       "export.hoistway"
#define TARGET_MARKER_TITLE "hoistway export 1\n"

struct target {
    int parent_fd;
    char parent[4096]; /* for messages */
    char name[256];
    char temp[256]; /* beside it; empty: not created */
    int temp_fd;
};
/** Splits and opens the parent; does not look at what is there. E430. */
int target_locate(const char *directory, struct target *target, struct hst_error *error);
/** The same; refuses what is there and is neither empty nor an export of ours. */
int target_open(const char *directory, struct target *target, struct hst_error *error);
/** The same refusal again, for what changed since. */
int target_check(const struct target *target, struct hst_error *error);
/** Removes the temporary directories of exports to this target whose process was killed. */
void target_remove_orphans(struct target *target);
int target_create_temp(struct target *target, struct hst_error *error);
/** Syncs the directory of templates in it, where there is one. */
int target_sync_templates(const struct target *target, struct hst_error *error);
/** Removes what an export has put there, and the directory itself, where there is one. */
void target_remove_temp(struct target *target);
/**
 * Moves the temporary directory into place, removes what was there. On failure it stays, under a
 * name that no later export removes, and the message names it.
 */
int target_replace(struct target *target, struct hst_error *error);
void target_close(struct target *target);
#endif
