/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CUDA_LIBRARY_H
#define HST_CUDA_LIBRARY_H
/* NVIDIA's libraries, opened when they are needed: where they are looked for. */
#include <hoistway/kernels.h>

/*
 * Opens `soname` ("libcublasLt.so.13"), of the first of these places that has it:
 *   1. each folder of HOISTWAY_CUDA_PATH;   2. what the system's loader finds;
 *   3. each folder of LD_LIBRARY_PATH as it is now;
 *   4. /usr/local/cuda/lib64, /usr/local/cuda-VERSION/lib64 (the newest), /usr/local/nvidia/lib64;
 *   5. site-packages/nvidia/PACKAGE/lib of VIRTUAL_ENV, lib and the same of CONDA_PREFIX.
 * Lists have colons between absolute folders. A set-user-ID program has no variable read. A file
 * that is there and does not load ends the search. Null with *failure (HST_DEV_LIBRARY, may be
 * null) written; *there (may be null) says whether a place has it. Close with dlclose; the library
 * stays loaded.
 */
void *cuda_library_open(const char *soname, bool *there, struct hst_dev_failure *failure);
/*
 * Writes "FILE (this build takes SONAME)" of a library that differs from `soname` in its major
 * version alone and lies where that is looked for, or where Debian and its kin keep libraries; ""
 * where there is none. It is not opened. What the loader's own list names beside these is not seen.
 */
void cuda_library_unlike(const char *soname, char *text, size_t text_bytes);
/* The file that the library was loaded from; "unknown" where the loader does not tell. */
const char *cuda_library_path(void *library);

#endif
