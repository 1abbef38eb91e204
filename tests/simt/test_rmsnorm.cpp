/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The double on one of the project's own kernels: RMSNorm is right, and it is wrong once the
 * barrier in the middle of its reduction is left out, which the interpreter is told by file and
 * line. Argument 1: kernels/cuda/reduce.h, where the barrier is.
 */
#include "launchers.h"
#include "support.h"

#include <cmath>

static std::string first_barrier; /* FILE:LINE */

static void find_barrier(const char *path)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char line[256];
    for (int number = 1; first_barrier.empty() && fgets(line, sizeof line, file); number++)
        if (strstr(line, "__syncthreads();"))
            first_barrier = strrchr(path, '/') + 1 + (":" + std::to_string(number));
    fclose(file);
}

/* Row t is all t + 1, so that r is 1/(t + 1) and y is the weight. */
static bool rmsnorm_is_right()
{
    const size_t tokens = 3, width = 1536;
    std::vector<float> host(tokens * width), scale(width);
    for (size_t i = 0; i < host.size(); i++)
        host[i] = (float)(i / width + 1);
    for (size_t i = 0; i < width; i++)
        scale[i] = (float)i / 64;
    Vector<float> x(host.size()), weight(width), y(host.size()), rstd(tokens);
    x.write(host);
    weight.write(scale);
    struct hst_rmsnorm args = {};
    args.tokens = tokens;
    args.width = width;
    args.dtype = HST_F32;
    args.x = x.data;
    args.weight = weight.data;
    args.y = y.data;
    args.rstd = rstd.data;
    if (hst_cuda_rmsnorm(nullptr, &args) || cudaDeviceSynchronize())
        return false;
    std::vector<float> got = y.read(), r = rstd.read();
    for (size_t i = 0; i < got.size(); i++)
        if (!(std::fabs(got[i] - scale[i % width]) <= 1e-5f * scale[i % width]) ||
            !(std::fabs(r[i / width] * host[i] - 1) <= 1e-6f))
            return false;
    return true;
}

static void a_whole_kernel_of_the_project_passes(void **)
{
    expect_right(rmsnorm_is_right);
}

static void one_without_a_barrier_is_caught(void **)
{
    expect_caught([] {
        setenv("HST_SIMT_SKIP", first_barrier.c_str(), 1);
        return rmsnorm_is_right();
    });
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    find_barrier(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_kernel_of_the_project_passes),
        cmocka_unit_test(one_without_a_barrier_is_caught),
    };
    return cmocka_run_group_tests_name("rmsnorm", tests, nullptr, nullptr);
}
