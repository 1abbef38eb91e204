/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_PLUGIN_LOAD_H
#define HOISTWAY_PLUGIN_LOAD_H
/* Plugins, of devices and of others: how one is found and loaded, and libraries for them. */
#include <hoistway/kernels.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What the struct that a plugin exports begins with, of whatever kind it is. */
struct hst_plugin_head {
    size_t size;         /* of the struct */
    const char *version; /* of the project, "0.1.0": must be that of the library */
    size_t ops_size;     /* of the table that its objects have */
};

/** This is what is asked of one. */
struct hst_plugin_want {
    const char *symbol; /* the name under which it exports that struct */
    size_t size, ops_size;
};
#define HST_PLUGIN_KIND_LETTERS 31u

/**
 * Loads libhoistway-KIND.so and finds what it exports. It is looked for in each folder of the
 * environment's HOISTWAY_PLUGIN_PATH, beside the library that this code is in, and in the folder
 * that libraries are installed to: hst_dev_open says more. It stays loaded until the process ends.
 *
 * kind     lower-case letters, HST_PLUGIN_KIND_LETTERS at most
 * *plugin  begins with a struct hst_plugin_head that has what `want` asks for; the plugin's
 *
 * Errors: -ENODEV; *failure is always written: HST_DEV_NO_PLUGIN, HST_DEV_BROKEN_PLUGIN.
 * Thread-safety: safe.
 */
int hst_plugin_load(const char *kind, const struct hst_plugin_want *want, const void **plugin,
                    struct hst_dev_failure *failure);

/**
 * A library of NVIDIA's ("libnccl.so.2"), for a plugin that is no device: it is looked for where
 * the CUDA device looks for its own, HOISTWAY_CUDA_PATH first.
 * Null: not found, or not loadable; *failure is written (HST_DEV_LIBRARY, may be null).
 * Ownership: the caller's, by dlclose; it stays loaded. Thread-safety: safe.
 */
void *hst_plugin_library(const char *soname, struct hst_dev_failure *failure);

#ifdef __cplusplus
}
#endif
#endif
