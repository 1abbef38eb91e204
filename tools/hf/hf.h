/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_HF_H
#define HOISTWAY_TOOLS_HF_H
/*
 * Hugging Face model directories: config.json, safetensors in one file or sharded; reading and
 * writing by streaming. Everything is validated when the directory is opened, before anything else
 * happens: a tensor that is found later can be read. Files are hostile: no allocation beyond twice
 * the file + 64 MiB, no recursion on input.
 */
#include "hf/config/llama_config.h"

#include <hoistway/hoistway.h>

struct hf_model;

/**
 * Opens DIR. With need_weights: reads the headers of all shards, checks them and the index;
 * without: config.json alone. Returns 0 or negative errno; *error then tells (E410 to E415).
 */
int hf_model_open(const char *directory, bool need_weights, struct hf_model **model,
                  struct hst_error *error);
void hf_model_close(struct hf_model **model);
const struct llama_config *hf_model_config(const struct hf_model *model);
/** The file of the directory that says how text becomes ids ("tokenizer.json"), or null. */
const char *hf_model_tokenizer(const struct hf_model *model);
/**
 * The type that the model's weights are meant to have: config.json's dtype (torch_dtype), else that
 * of most elements of its files. False, *dtype untouched, where neither tells one.
 */
bool hf_model_dtype(const struct hf_model *model, enum hst_dtype *dtype);
/** What the files call the type of their tensor with this name ("F32"); null: they have none. */
const char *hf_model_tensor_type(const struct hf_model *model, const char *name);
/** Ids with which the model ends what it says (eos_token_id), at most `most`. Returns how many. */
size_t hf_model_ends(const struct hf_model *model, uint32_t *ids, size_t most);
/** A thing about the model that a user should know, with which it is still used. */
struct hf_note {
    int code;     /* of the error that it is close to */
    bool warning; /* the files contradict each other */
    char text[256];
};
/** The i-th note of the model, or null. */
const struct hf_note *hf_model_note(const struct hf_model *model, size_t i);

/**
 * Checks that a tensor is there with these dimensions and a dtype that can be read (F32, BF16,
 * F16). E415.
 */
int hf_model_require(const struct hf_model *model, const char *name, uint32_t dim_count,
                     const uint64_t *dims, struct hst_error *error);
/**
 * Names the first tensor of the model that was never required (a weight that the architecture does
 * not use), or null; *count: of how many.
 */
const char *hf_model_unused(const struct hf_model *model, size_t *count);
/**
 * Elements [offset, offset + count) of a tensor that was required, widened to f32. pread, never
 * mmap.
 */
int hf_model_read(struct hf_model *model, const char *name, uint64_t offset, float *dst,
                  size_t count, struct hst_error *error);

/* ---- a look ---------------------------------------------------------------------------------- */

struct hf_look_tensor {
    const char *name, *dtype, *file; /* live as long as the look */
    uint32_t dim_count;
    const uint64_t *dims;
    uint64_t bytes;
};
/**
 * Opens a safetensors file, or all of a directory, of whatever model: the headers are checked, the
 * tensors' bytes are not read. To be closed with hf_model_close. E410, E411, E106.
 */
int hf_look_open(const char *path, struct hf_model **model, struct hst_error *error);
/** The i-th tensor by name; false beyond the last. */
bool hf_look_tensor(const struct hf_model *model, size_t i, struct hf_look_tensor *tensor);
size_t hf_look_files(const struct hf_model *model);

/* ---- export ---------------------------------------------------------------------------------- */

struct hf_tensor {
    const char *name;
    uint32_t dim_count;
    const uint64_t *dims;
};
struct hf_export_desc {
    /* to be created, or an earlier export of ours to be replaced */
    const char *directory;
    /* its config.json is kept verbatim but for the dtype key(s) */
    const struct hf_model *model;
    const struct hf_tensor *tensors;
    size_t tensor_count;
    enum hst_dtype dtype;
    uint64_t shard_bytes; /* greatest data bytes of one file; 0: 5e9 */
};
struct hf_export;

/**
 * Refuses a target that is not ours or not writable (E430) or too small (E301): to be called before
 * training starts.
 */
int hf_export_check(const struct hf_export_desc *desc, struct hst_error *error);
/**
 * Creates the directory beside the target, the files in full size with their headers; the target
 * itself is looked at when it is replaced. E301 out of disk, E430, E107.
 */
int hf_export_begin(const struct hf_export_desc *desc, struct hf_export **export,
                    struct hst_error *error);
/** Elements [offset, offset + count) of a tensor, in the export's dtype, in any order. */
int hf_export_write(struct hf_export *export, const char *name, uint64_t offset, const void *src,
                    size_t count, struct hst_error *error);
/**
 * Checks that every byte was written, and syncs. Where that fails all tensors count as not written:
 * with room again (E301), they can be written once more. Once it has succeeded nothing is written.
 */
int hf_export_sync(struct hf_export *export, struct hst_error *error);
/**
 * hf_export_sync, where that has not been done; renames into place. Frees *export on success and on
 * failure. Where only the renaming fails, the finished directory stays under its temporary name,
 * which the message tells.
 */
int hf_export_commit(struct hf_export **export, struct hst_error *error);
/** Removes what was written. Null is accepted. */
void hf_export_abort(struct hf_export **export);
#endif
