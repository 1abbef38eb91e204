/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_GPU_CLOCK_H
#define HOISTWAY_TOOLS_GPU_CLOCK_H
/* A GPU's clock, as nvidia-smi has it: figures of a card whose clock is down say nothing of it. */
#include <stdbool.h>
#include <stddef.h>

struct gpu_clock {
    double now_hz, most_hz; /* of the multiprocessors */
};

/** It reads what nvidia-smi said, "1980, 1980\n" in MHz; false where it is anything else. Pure. */
bool gpu_clock_parse(const char *text, struct gpu_clock *clock);
/**
 * Why it is lower than it could be, by the bits that nvidia-smi has for that
 * ("0x0000000000000004\n"): "the limit of power"; "" where nothing holds it or the text is anything
 * else. Pure.
 */
void gpu_clock_reasons(const char *said, char *text, size_t text_bytes);
/**
 * Asks nvidia-smi, in PATH, for at most limit_ms, about the card at this PCI address. False: it is
 * not there, or does not tell.
 */
bool gpu_clock_read(const char *pci, unsigned limit_ms, struct gpu_clock *clock);
/** The same for what holds the clock; "" where it is not told. */
void gpu_clock_reasons_read(const char *pci, unsigned limit_ms, char *text, size_t text_bytes);

#endif
