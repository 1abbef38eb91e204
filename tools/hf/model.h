/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_HF_MODEL_H
#define HOISTWAY_TOOLS_HF_MODEL_H
/*
 * This header says what a model directory is in memory: between model.c, model_read.c,
 * model_weights.c and the export.
 */
#include "hf/folder.h"
#include "hf/hf.h"
#include "hf/safetensors.h"

#define HF_MAX_NOTES 4u
/* The one directory in a model's that is looked into. */
#define HF_TEMPLATES "additional_chat_templates"

/** A file that goes with an exported model's weights, copied from the source. */
struct hf_extra {
    char *name; /* in the directory: "LICENSE", HF_TEMPLATES "/tool_use.jinja" */
    struct input input;
};

struct hf_file {
    struct input input;
    char *path; /* for messages */
    char *text; /* the header, which holds the tensors' names */
    uint64_t data_offset;
    struct st_header header;
};

struct hf_model {
    char *directory;
    struct folder folder;
    struct llama_config config;
    char dtype[16]; /* of config.json */
    char *config_text;
    size_t config_bytes;
    struct hf_extra *extras;
    size_t extra_count;
    struct hf_file *files;
    uint32_t file_count;
    struct st_tensor **by_name; /* all tensors, sorted */
    size_t tensor_count;
    struct hf_note notes[HF_MAX_NOTES];
    size_t note_count;
};

/** Opens those that are there. */
int hf_extras_open(struct hf_model *model, struct hst_error *error);
void hf_extras_close(struct hf_model *model);
/** They tell by its name alone whether it could be one, and one of those in HF_TEMPLATES. Pure. */
bool hf_extra_is_known(const char *name);
bool hf_template_is_known(const char *name);

/** The tensor, or null. */
struct st_tensor *hf_tensor_find(const struct hf_model *model, const char *name);
/** Reads elements of a tensor known to be F32, BF16 or F16 and long enough. */
int hf_tensor_read(const struct hf_model *model, const struct st_tensor *tensor, uint64_t offset,
                   float *dst, size_t count, struct hst_error *error);
/** True where hf_tensor_read can read it. */
bool hf_tensor_readable(const struct st_tensor *tensor);
void hf_note(struct hf_model *model, enum fail_code code, bool warning, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/** It says what to do about an error of this folder whose message does not. Returns native. */
int hf_fix(struct hst_error *error, int native);
/** DIRECTORY/NAME, to be freed; null without memory. */
char *hf_path(const struct hf_model *model, const char *name);
/** Opens one file with weights, or all of the directory, and checks them against each other. */
int hf_weights_open_file(struct hf_model *model, char *name, struct hst_error *error);
int hf_weights_find(struct hf_model *model, struct hst_error *error);
/** The second of these, and what the weights mean for a model that is trained. */
int hf_weights_open(struct hf_model *model, struct hst_error *error);
void hf_weights_close(struct hf_model *model);
#endif
