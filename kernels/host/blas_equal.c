/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which texts of hst_dev_math stand for the same bits. Two cores of OpenBLAS are taken for
 * one where their products were compared, byte by byte, over the shapes of tests/kernels/blas.py:
 * in that version alone, because another one may give one of them a kernel of its own. (SkylakeX
 * and Cooperlake are no such pair: they agree up to 320 terms of a sum, and cut longer sums into
 * blocks of different lengths.)
 */
#include <hoistway/kernels.h>
#include <string.h>

static const char compared[] = "OpenBLAS 0.3.21 ";
static const char *const equals[][2] = {{"Haswell", "Zen"}};

/* It returns what the name stands for: the first of those that are equal to it. */
static const char *stands_for(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof equals / sizeof *equals; i++)
        for (int j = 0; j < 2; j++)
            if (strlen(equals[i][j]) == length && strncmp(equals[i][j], name, length) == 0)
                return equals[i][0];
    return NULL;
}

bool hst_dev_math_equal(const char *a, const char *b)
{
    const size_t prefix = sizeof compared - 1;
    if (strcmp(a, b) == 0)
        return true;
    if (strncmp(a, compared, prefix) != 0 || strncmp(b, compared, prefix) != 0)
        return false;
    a += prefix;
    b += prefix;
    const size_t a_length = strcspn(a, ","), b_length = strcspn(b, ",");
    const char *core = stands_for(a, a_length);
    return core && core == stands_for(b, b_length) && strcmp(a + a_length, b + b_length) == 0;
}
