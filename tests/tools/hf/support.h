/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TESTS_TOOLS_HF_SUPPORT_H
#define HOISTWAY_TESTS_TOOLS_HF_SUPPORT_H
/* Directories with model files, built by the tests that read them. */
#include "base/fail.h"
#include "hf/hf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/** cmocka setup and teardown: *state is the path of an empty directory, removed afterwards. */
int setup_directory(void **state);
int teardown_directory(void **state);

void put_file(const char *dir, const char *name, const void *bytes, size_t size);
void put_text(const char *dir, const char *name, const char *text);
/** A safetensors file: length, header, data_bytes of 0, 1, 2, … */
void put_tensors(const char *dir, const char *name, const char *header, size_t data_bytes);
/** A whole file, followed by NUL; to be freed. */
char *get_file(const char *dir, const char *name, size_t *size);
bool is_there(const char *dir, const char *name);
/** Entries but . and .. */
int entry_count(const char *dir);

/**
 * Config of a small Llama, hidden 8, vocab 4, with the given text in front of the other keys.
 */
void put_config(const char *dir, const char *extra);
/**
 * The same with one key's value replaced ("hidden_size", "0"), or left out where the value is
 * null.
 */
void put_config_with(const char *dir, const char *key, const char *value);
/** That of put_config, without one of its keys. */
void put_config_without(const char *dir, const char *extra, const char *key);

/**
 * hf_model_open must fail within five seconds of processor time, with this code and a line that
 * matches.
 */
void expect_refusal(const char *dir, bool weights, enum fail_code code, const char *pattern);
struct hf_model *open_model(const char *dir, bool weights);
void assert_matches(const char *text, const char *pattern);
#endif
