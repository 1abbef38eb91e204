/* SPDX-License-Identifier: Apache-2.0 */
/* NVIDIA's libraries for plugins that are no device: the CUDA device's own search. */
#include "cuda/libraries/library.h"
#include <hoistway/plugin_load.h>

void *hst_plugin_library(const char *soname, struct hst_dev_failure *failure)
{
    return cuda_library_open(soname, NULL, failure);
}
