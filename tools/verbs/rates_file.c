/* SPDX-License-Identifier: Apache-2.0 */
/* Decides what becomes of a file of rates: what is none is named, and never replaced. */
#include "verbs/rates_file.h"

#include "cli/log/output.h"
#include "cli/message/message.h"
#include "hf/folder.h"
#include "verbs/machines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct output_kind RATES = {.noun = "file of rates",
                                         .owner = "a machine",
                                         .option = "--save-rates",
                                         .begin = "hoistway rates "};

int rates_file_read(const char *option, const char *path, struct hst_rates *rates,
                    struct hst_error *error)
{
    struct input input;
    char *text = NULL;
    int native = input_open_path(path, &input);
    if (native)
        return fail(error, FAIL_VALUE, native,
                    "%s '%.200s' cannot be read (%s). Fix: name a file that --save-rates wrote.",
                    option, path, input_why(native));
    native = input_read_all(&input, HST_RATES_TEXT_BYTES, &text);
    uint64_t bytes = input.size_bytes;
    input_close(&input);
    if (native == 0 && machine_begins(text)) {
        struct machine machine;
        native = machine_of_text(path, text, (size_t)bytes, &machine, error);
        *rates = machine.rates;
        free(text);
        return native;
    }
    if (native == 0)
        native = strlen(text) == bytes ? hst_rates_parse(text, rates) : -EBADMSG;
    free(text);
    if (native)
        return fail(error, FAIL_VALUE, native,
                    "%s '%.200s' is no file of rates, or damaged (%s). Fix: name a file that "
                    "--save-rates wrote.",
                    option, path,
                    native == -EFBIG ? "it is too large" : "its text is not as it was written");
    return 0;
}

bool rates_file_measured_by(const struct hst_rates *rates, unsigned *ranks, unsigned *nodes)
{
    for (int r = HST_RATE_NET_GATHER; r < HST_RATE_COUNT; r++)
        if (sscanf(rates->figures[r].how, "%u ranks on %u node", ranks, nodes) == 2 && *ranks > 0 &&
            *nodes > 0)
            return true;
    return false;
}

int rates_file_check(const char *path, struct hst_error *error)
{
    return output_check(&RATES, path, error);
}

int rates_file_write(const char *path, const struct hst_rates *rates, struct hst_error *error)
{
    struct hst_rates known = *rates;
    FILE *file = NULL;
    char *text = malloc(HST_RATES_TEXT_BYTES);
    for (int r = 0; r < HST_RATE_COUNT; r++)
        if (known.figures[r].value <= 0) /* why it is not known is of this machine */
            known.figures[r].how[0] = '\0';
    int native = text ? 0 : fail(error, FAIL_BUDGET, -ENOMEM, "no memory for the rates");
    int bytes = text ? hst_rates_format(&known, text, HST_RATES_TEXT_BYTES) : 0;
    native = native ? native : output_open(&RATES, path, &file, error);
    if (native == 0) {
        bool written = bytes > 0 && fwrite(text, (size_t)bytes, 1, file) == 1;
        if (fclose(file) || !written)
            native = output_unwritable(&RATES, path, error);
    }
    free(text);
    return native;
}
