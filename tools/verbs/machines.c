/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which machine a name stands for. */
#include "verbs/machines.h"

#include "base/text.h"
#include "cli/options/options.h"
#include "hf/json/input.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_MOST 64u

int machine_of_text(const char *where, const char *text, size_t bytes, struct machine *machine,
                    struct hst_error *error)
{
    struct machine_fault fault;
    const int native = machine_parse(text, bytes, machine, &fault);
    if (native)
        fail(
            error, FAIL_MACHINE, native,
            "%.150s:%u:%u: the machine file has %s. Fix: correct it there; docs/machines/README.md "
            "says what it holds.",
            where, fault.line, fault.column, fault.why);
    return native;
}

static int unknown(const char *option, const char *name, int native, struct hst_error *error)
{
    const char *names[NAMES_MOST];
    size_t count = 0;
    while (count < machine_text_count && count < NAMES_MOST) {
        names[count] = machine_texts[count].name;
        count++;
    }
    const char *near = cli_nearest(name, names, count);
    if (native == -ENOENT)
        return fail(error, FAIL_MACHINE, native,
                    "%s '%.100s' is no machine that is known, and no file. Fix: %s%s%s.", option,
                    name, near ? "perhaps " : "a name of --machine list, or a file",
                    near ? near : "", near ? ", or another one of --machine list" : "");
    return fail(error, FAIL_MACHINE, native,
                "%s '%.150s' cannot be read (%s). Fix: a text of at most 64 KiB.", option, name,
                native == -EFBIG ? "it is too large" : input_why(native));
}

int machine_find(const char *option, const char *name, struct machine *machine,
                 struct hst_error *error)
{
    for (size_t i = 0; i < machine_text_count; i++)
        if (strcmp(machine_texts[i].name, name) == 0)
            return machine_of_text(name, machine_texts[i].text, strlen(machine_texts[i].text),
                                   machine, error);
    struct input input;
    char *text = NULL;
    int native = input_open_path(name, &input);
    if (!native) {
        native = input_read_all(&input, MACHINE_TEXT_BYTES, &text);
        const size_t bytes = (size_t)input.size_bytes;
        input_close(&input);
        if (!native) {
            native = machine_of_text(name, text, bytes, machine, error);
            free(text);
            return native;
        }
    }
    return unknown(option, name, native, error);
}

static void print_one(const struct machine *m, FILE *out)
{
    char hbm[TEXT_BYTES], dram[TEXT_BYTES], nvme[TEXT_BYTES];
    fprintf(out, "%-14s %s\n", m->name, m->about);
    fprintf(out, "%-14s ", "");
    if (m->gpus)
        fprintf(out, "%" PRIu32 " × %s of HBM, ", m->gpus, text_size(m->hbm_bytes, hbm));
    fprintf(out, "%s of DRAM", text_size(m->dram_bytes, dram));
    if (m->drives)
        fprintf(out, ", %s on %" PRIu32 " drive%s", text_size(m->nvme_bytes, nvme), m->drives,
                text_s(m->drives));
    fprintf(out, "\n");
}

void machines_print(FILE *out)
{
    fprintf(out, "%-14s this machine, measured: as without --machine\n", MACHINE_HERE);
    for (size_t i = 0; i < machine_text_count; i++) {
        struct machine m;
        struct machine_fault fault;
        if (machine_parse(machine_texts[i].text, strlen(machine_texts[i].text), &m, &fault) == 0)
            print_one(&m, out);
    }
    fprintf(out, "docs/machines has the source of each figure; most rates are assumed.\n");
}
