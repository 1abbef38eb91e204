/* SPDX-License-Identifier: Apache-2.0 */
/* A DeepSpeed configuration: whatever is accepted is known key by key, and made into options that
 * have a value or say why not. The same bytes as a file of options: its members come in order. */
#include "fuzz.h"

#include "cli/config/ds_config.h"
#include "cli/config/options_file.h"

#include <unistd.h>

static void check_options(const struct ds_config *config, struct ds_run run)
{
    struct ds_options options;
    struct hst_error error = {0};
    if (ds_config_options(config, run, &options, &error)) {
        must_be_told(&error, FAIL_DS_KEY, FAIL_DS_KEY);
        return;
    }
    MUST(options.count <= DS_MAX_OPTIONS && options.used <= sizeof options.texts);
    for (size_t i = 0; i < options.count; i++) {
        const struct ds_option *o = &options.list[i];
        MUST(o->key && (o->value || o->refusal));
        MUST(!o->value || o->value[0]);
        MUST((o->why == DS_ABSENT) == !o->entry);
        for (size_t j = 0; j < i; j++)
            MUST(strcmp(options.list[j].option, o->option) != 0);
    }
}

static void check_options_file(const char *path)
{
    static const struct hst_option any = {.name = "lr", .type = HST_OPTION_REAL};
    struct options_file file;
    struct hst_error error = {0};
    char place[OPTIONS_PLACE_BYTES];
    const char *text;
    if (options_file_read(&file, path, &error)) {
        must_be_told(&error, FAIL_DS_FILE, FAIL_DS_FILE);
        options_file_close(&file);
        return;
    }
    MUST(file.at < file.hjson.count);
    const struct hjson_entry *entry = &file.hjson.entries[file.at];
    for (const struct hjson_entry *next; (next = options_file_next(&file, entry)); entry = next) {
        MUST(next > entry && next->parent == file.at);
        MUST(strchr(options_file_place(&file, next, place), ':'));
        if (options_file_value(&file, next, &any, &text, &error))
            must_be_told(&error, FAIL_VALUE, FAIL_VALUE);
        else
            MUST(text);
    }
    options_file_close(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct ds_config config;
    struct hst_error error = {0};
    char path[64];
    const int fd = file_in_memory(data, size, path);
    if (ds_config_read(&config, path, &error)) {
        must_be_told(&error, FAIL_DS_FILE, FAIL_DS_KEY);
    } else {
        for (size_t i = 1; i < config.hjson.count; i++)
            MUST(config.place[i] != DS_AT_REFUSED);
        check_options(&config, (struct ds_run){.seq_len = 2048, .ranks = 1});
        check_options(&config, (struct ds_run){.seq_len = 0, .ranks = 3});
    }
    ds_config_close(&config);
    check_options_file(path);
    close(fd);
    return 0;
}
