/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_CKPT_VERSION_TEXT_H
#define HOISTWAY_ENGINE_CKPT_VERSION_TEXT_H
/* This text stands beside a version's bytes: [length u32][settings, lines "name value"][client's
   cursor]. Pure. */
#include "plan/layout/layout.h"
#include "store/format.h"

enum { VERSION_SETTINGS_BYTES = 4096 };

struct version_text {
    const char *settings; /* not terminated */
    uint32_t settings_bytes;
    const void *cursor; /* the client's */
    uint32_t cursor_bytes;
};

/** Parts of what a cursor holds. False: this engine has not written it. */
bool version_text_split(const struct store_cursor *cursor, struct version_text *text);

/**
 * The lines that a resumed run must have too, terminated, in the words of the command line. Returns
 * their length, < bytes; bytes: VERSION_SETTINGS_BYTES or more.
 */
uint32_t version_settings_write(const struct hst_config *config, const struct layout *layout,
                                char *text, size_t bytes);
/* Stores of before say nothing of these, which were otherwise then. */
enum version_news { VERSION_NEWS_NORM = 1, VERSION_NEWS_ROUNDING = 2 };
/** Takes such lines out of terminated settings `is` where `was` says nothing of them. Returns a set
 * of enum version_news. */
unsigned version_settings_take_news(const char *was, char *is);
/** Adds the line "math …", which a resumed run may have otherwise. Returns the new length. */
uint32_t version_math_write(const char *math, char *text, size_t bytes);
/** Moves both to the first item (between ", ") in which two such texts differ. */
void version_math_differ(const char **was, const char **is);
/** Takes that line out of terminated settings; *math is "" where there is none. */
void version_math_take(char *settings, char *math, size_t bytes);
/** The row that terminated settings name; null: none that is known. */
const struct optimizer *version_settings_optimizer(const char *settings);
/** Copies terminated settings behind lines "optimizer …", "ways …" and "gather …", each of them
 * where they say nothing of it. */
void version_settings_name_unsaid(const char *settings, char told[VERSION_SETTINGS_BYTES]);
/** Returns the ways that terminated settings name; 1 where they say nothing of it. */
uint32_t version_settings_ways(const char *settings);
/** The layout_digest of terminated settings. False: they have none. */
bool version_settings_digest(const char *settings, uint64_t *digest);

#endif
