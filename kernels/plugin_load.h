/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_KERNELS_PLUGIN_LOAD_H
#define HST_KERNELS_PLUGIN_LOAD_H
/* Finds and loads a plugin; what hst_plugin_load is made of. */
#include <hoistway/plugin_load.h>
#include <limits.h>

/* As hst_plugin_load; also writes the path of the file once it is found, and *failure only on
   failure. */
int dev_plugin_load(const char *kind, const struct hst_plugin_want *want, const void **plugin,
                    char path[PATH_MAX], struct hst_dev_failure *failure);
/* A character that cannot be printed becomes '?'. */
void dev_make_one_line(char *text);

#endif
