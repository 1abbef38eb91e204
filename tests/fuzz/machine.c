/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Machine files: whatever is accepted has sizes, a source and figures that a plan can divide by;
 * what is refused has a place in the text.
 */
#include "fuzz.h"

#include "cli/machine_text.h"

#include <math.h>

static void check_accepted(const struct machine *m)
{
    MUST(m->name[0] && strnlen(m->name, sizeof m->name) < sizeof m->name);
    MUST(m->sources > 0 && m->dram_bytes > 0);
    MUST(!m->gpus == !m->hbm_bytes && !m->drives == !m->nvme_bytes);
    for (int r = 0; r < HST_RATE_COUNT; r++) {
        const struct hst_figure *f = &m->rates.figures[r];
        MUST(isfinite(f->value) && f->value >= 0);
        MUST(strnlen(f->how, sizeof f->how) < sizeof f->how);
        MUST(!machine_assumes(f) || m->rates.figure_ms[r] == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = exact_copy(data, size);
    struct machine machine;
    struct machine_fault fault;
    if (machine_parse(text, size, &machine, &fault) == 0) {
        check_accepted(&machine);
    } else {
        MUST(fault.line > 0 && fault.line <= size + 1 && fault.column > 0);
        MUST(fault.why[0] && strnlen(fault.why, sizeof fault.why) < sizeof fault.why);
        for (const char *c = fault.why; *c; c++)
            MUST((unsigned char)*c >= 0x20 && *c != 0x7f);
    }
    free(text);
    return 0;
}
