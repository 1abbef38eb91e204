/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of OpenBLAS's products, as a table: one line per shape with a hash of what sgemm left.
 *
 *   blas_bytes_linked    of the library that this program is linked with
 *   blas_bytes           of the one that the host device opens
 *   blas_bytes FILE      of this library
 *
 * The first line names the file and the core. Each product runs at one thread.
 */
#ifndef BLAS_LINKED
#include <hoistway/kernels.h>
#endif
#include <cblas.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef BLAS_LINKED
extern void omp_set_num_threads(int threads);
#endif

enum { MOST = 1300 };

static __typeof__(cblas_sgemm) *sgemm;
static char *(*corename)(void);
static void (*set_threads)(int);

#ifdef BLAS_LINKED
static bool find(const char *file)
{
    (void)file;
    sgemm = cblas_sgemm;
    corename = openblas_get_corename;
    set_threads = omp_set_num_threads;
    return true;
}
#else
static void *handle;

static void *function(const char *name)
{
    return handle ? dlsym(handle, name) : hst_dev_host_blas(name);
}

static bool find(const char *file)
{
    const struct hst_dev_config config = {.size = sizeof config};
    struct hst_dev_failure failure = {.why = HST_DEV_OK};
    struct hst_dev *dev = NULL;
    if (file)
        handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (file ? !handle : hst_dev_open("host", &config, &dev, &failure) != 0) {
        fprintf(stderr, "%s\n", file ? dlerror() : failure.text);
        return false;
    }
    hst_dev_close(&dev);
    *(void **)&sgemm = function("cblas_sgemm");
    *(void **)&corename = function("openblas_get_corename");
    *(void **)&set_threads = function("omp_set_num_threads");
    return sgemm && corename && set_threads;
}
#endif

/* splitmix64, as numbers of a normal range with all of their bits in use */
static void fill(float *x, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t z = seed += 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        x[i] = (float)((double)(z >> 11) * 0x1p-52 - 1.0);
    }
}

static uint64_t hash(const float *x, size_t count)
{
    const unsigned char *byte = (const unsigned char *)x;
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = 0; i < count * sizeof *x; i++)
        h = (h ^ byte[i]) * 0x100000001b3u;
    return h;
}

static void multiply(int m, int n, int k, int form)
{
    static float a[MOST * MOST], b[MOST * MOST], c[MOST * MOST];
    const bool ta = form & 1, tb = form & 2, add = form & 4;
    const size_t count = (size_t)m * (size_t)n;
    fill(a, (size_t)m * (size_t)k, 1);
    fill(b, (size_t)k * (size_t)n, 2);
    fill(c, count, 3);
    sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, m, n, k,
          add ? 0.7f : 1, a, ta ? m : k, b, tb ? k : n, add ? 1 : 0, c, n);
    printf("%d %d %d form %d: %016llx\n", m, n, k, form, (unsigned long long)hash(c, count));
}

int main(int argc, char **argv)
{
    static const int small[] = {1, 2, 3, 5, 8, 16, 17, 31, 48, 64, 100};
    static const int large[][3] = {
        {256, 256, 256}, {129, 400, 385},  {384, 512, 640}, {1, 1300, 1300}, {1300, 3, 1100},
        {1024, 64, 769}, {257, 1025, 321}, {33, 130, 5000}, {64, 64, 128},   {700, 700, 1300}};
    const int count = sizeof small / sizeof *small;
    Dl_info info;
    if (!find(argc > 1 ? argv[1] : NULL))
        return 1;
    void *address;
    memcpy(&address, &sgemm, sizeof address);
    printf("%s %s\n", dladdr(address, &info) ? info.dli_fname : "?", corename());
    set_threads(1);
    for (int form = 0; form < 8; form++) {
        for (int i = 0; i < count * count * count; i++)
            multiply(small[i % count], small[i / count % count], small[i / count / count], form);
        for (size_t i = 0; i < sizeof large / sizeof *large; i++)
            multiply(large[i][0], large[i][1], large[i][2], form);
    }
    return 0;
}
