/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bits of a GPU's results depend on this: who makes products and attention, the card, the
 * driver, which compiles PTX. NVIDIA's libraries choose algorithms, for a shape the first one that
 * they propose: so their versions too, and variables of the environment that they read. Of the
 * budget one thing alone: whether cuDNN makes the backward of long sequences.
 */
#include "cuda.h"
#include "cudnn/sdpa.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((size_t)1 << 20)

/* These change what the libraries compute or choose; those that log or find files are left out. */
static const char *const variables[] = {
    "NVIDIA_TF32_OVERRIDE",      "CUBLAS_WORKSPACE_CONFIG",
    "CUBLASLT_WORKSPACE_SIZE",   "CUBLAS_EMULATE_SINGLE_PRECISION",
    "CUBLAS_EMULATION_STRATEGY", "CUDA_FORCE_PTX_JIT",
};

__attribute__((format(printf, 3, 4))) static void add(char *text, size_t text_bytes,
                                                      const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, text_bytes - used, format, args);
    va_end(args);
}

void cuda_math_environment(char *text, size_t text_bytes)
{
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *value = getenv(variables[i]);
        if (value && *value)
            add(text, text_bytes, ", %s=%.24s", variables[i], value);
    }
}

void cuda_math_driver(const char *file, char *text, size_t text_bytes)
{
    char line[32] = "";
    FILE *version = fopen(file, "re");
    if (!version)
        return;
    if (fgets(line, sizeof line, version))
        add(text, text_bytes, " %.*s", (int)strcspn(line, "\n"), line);
    fclose(version);
}

void cuda_dev_math(struct hst_dev *dev, char *text, size_t text_bytes)
{
    const struct cuda_dev *cuda = cuda_dev_of(dev);
    const struct hst_dev_info *info = &cuda->info;
    *text = '\0';
    add(text, text_bytes, "%s, %u.%u, %u SMs, driver", info->model, info->compute_major,
        info->compute_minor, info->multiprocessors);
    cuda_math_driver("/sys/module/nvidia/version", text, text_bytes);
    struct hst_sdpa_made made = {0};
    if (cuda->sdpa)
        hst_sdpa_made(cuda->sdpa, &made);
    add(text, text_bytes, " (CUDA %u.%u), runtime %u.%u, %s%s, attention %s",
        info->driver_version / 1000, info->driver_version % 1000 / 10, info->runtime_version / 1000,
        info->runtime_version % 1000 / 10, info->libraries,
        cuda->blaslt ? ", its first proposals" : "", cuda->sdpa ? "by cuDNN" : "of its own");
    if (made.largest_bytes)
        add(text, text_bytes, " with %zu MiB for a backward", (made.largest_bytes + MIB - 1) / MIB);
    if (cuda->sdpa)
        add(text, text_bytes, ", of documents its own");
    cuda_math_environment(text, text_bytes);
}
