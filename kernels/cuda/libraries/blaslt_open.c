/* SPDX-License-Identifier: Apache-2.0 */
/* The door to cuBLASLt: found, of the major version that this build knows, and whole. */
#include "blaslt.h"
#include "cuda.h"
#include "library.h"
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

#define SONAME BLASLT_SONAME

static const struct {
    const char *name;
    size_t offset;
} functions[] = {
#define BLASLT_ROW(name) {#name, offsetof(struct blaslt_library, name)},
    BLASLT_FUNCTIONS(BLASLT_ROW)
#undef BLASLT_ROW
};

int blaslt_open(struct blaslt_library *library, struct hst_dev_failure *failure)
{
    bool there = false;
    struct blaslt_library found = {.handle = cuda_library_open(SONAME, &there, failure)};
    if (!found.handle)
        return there ? -ENODEV : -ENOENT;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *symbol = dlsym(found.handle, functions[i].name);
        if (!symbol) {
            cuda_failure_set(failure, HST_DEV_LIBRARY, 0, "%.250s has no %s",
                             cuda_library_path(found.handle), functions[i].name);
            goto err_close;
        }
        memcpy((char *)&found + functions[i].offset, &symbol, sizeof symbol);
    }
    size_t version = found.cublasLtGetVersion();
    if (version / 10000 != CUBLAS_VER_MAJOR) {
        cuda_failure_set(failure, HST_DEV_LIBRARY, (int)version,
                         "%.250s is of version %zu.%zu.%zu; this build knows " BLASLT_TEXT(
                             CUBLAS_VER_MAJOR) " alone",
                         cuda_library_path(found.handle), version / 10000, version / 100 % 100,
                         version % 100);
        goto err_close;
    }
    *library = found;
    return 0;
err_close:
    dlclose(found.handle);
    return -ENODEV;
}

void blaslt_close(struct blaslt_library *library)
{
    dlclose(library->handle);
    *library = (struct blaslt_library){0};
}
