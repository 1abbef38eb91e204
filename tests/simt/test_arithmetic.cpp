/* SPDX-License-Identifier: Apache-2.0 */
/* A card's arithmetic is as far from the exact result as a card's may be, and not nearer. */
#include "runtime/runtime.h"
#include "support.h"

static __global__ void k_exp(const float *x, float *power, float *exponential, unsigned count)
{
    for (unsigned i = threadIdx.x; i < count; i += blockDim.x) {
        power[i] = __exp2f(x[i]);
        exponential[i] = __expf(x[i]);
    }
}

struct Powers {
    std::vector<float> power, exponential;
};

static Powers powers_of(const std::vector<float> &x)
{
    Vector<float> in(x.size()), power(x.size()), exponential(x.size());
    in.write(x);
    HST_LAUNCH(k_exp, 1, 64, 0, nullptr, in.data, power.data, exponential.data, (unsigned)x.size());
    return {power.read(), exponential.read()};
}

/* How many f32 lie between; both are positive and finite. */
static int ulps(float a, float b)
{
    int32_t whole_a, whole_b;
    memcpy(&whole_a, &a, 4);
    memcpy(&whole_b, &b, 4);
    return whole_a - whole_b;
}

static std::vector<float> arguments()
{
    std::vector<float> x;
    for (int i = 1; i < 4000; i++)
        x.push_back((float)i * -0.0307f);
    for (int i = 1; i < 400; i++)
        x.push_back((float)i * 0.21f);
    return x;
}

static void exponentials_are_the_hosts_unless_asked_for(void **)
{
    for (const char *configuration : {"", "arithmetic=host"}) {
        hst_fake_cuda_configure(configuration);
        std::vector<float> x = arguments();
        Powers got = powers_of(x);
        for (size_t i = 0; i < x.size(); i++) {
            assert_true(got.power[i] == exp2f(x[i]));
            assert_true(got.exponential[i] == expf(x[i]));
        }
    }
}

static void a_cards_exponentials_are_2_ulp_away_and_no_more(void **)
{
    hst_fake_cuda_configure("arithmetic=card");
    std::vector<float> x = arguments();
    Powers got = powers_of(x), again = powers_of(x);
    assert_true(got.power == again.power && got.exponential == again.exponential);
    int seen[5] = {};
    for (size_t i = 0; i < x.size(); i++) {
        int off = ulps(got.power[i], (float)exp2((double)x[i]));
        assert_in_range(off + 2, 0, 4);
        seen[off + 2]++;
        double exact = exp((double)x[i]), allowed = (3 + fabs(1.173 * (double)x[i])) * 0x1p-23;
        if (exact > 0x1p-125)
            assert_true(fabs((double)got.exponential[i] - exact) <= allowed * exact);
    }
    for (int count : seen)
        assert_true(count > (int)x.size() / 20);
    hst_fake_cuda_configure("");
}

static void a_cards_exponentials_keep_to_what_ptx_says(void **)
{
    hst_fake_cuda_configure("arithmetic=card");
    Powers got =
        powers_of({0.0f, -0.0f, 0x1p-130f, -0x1p-127f, -INFINITY, INFINITY, -127, 128, NAN});
    const float want[] = {1, 1, 1, 1, 0, INFINITY, 0, INFINITY};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        assert_true(got.power[i] == want[i]);
    assert_true(isnan(got.power[8]) && isnan(got.exponential[8]));
    assert_true(got.exponential[0] == 1 && got.exponential[4] == 0);
    hst_fake_cuda_configure("");
}

/* Row 0 of a, which all lanes of the first four hold, times columns of ones. */
static __global__ void k_sum(const __half *row, float c, float *sum)
{
    unsigned lane = threadIdx.x;
    uint32_t a[4] = {}, b[2] = {0x3c003c00u, 0x3c003c00u};
    if (lane < 4) {
        memcpy(&a[0], row + lane * 2, 4);
        memcpy(&a[2], row + lane * 2 + 8, 4);
    }
    float sums[4] = {c, c, c, c};
    hst::mma_m16n8k16<__half>(sums, a, b, sums);
    if (lane == 0)
        *sum = sums[0];
}

static float sum_of(const std::vector<float> &terms, float c)
{
    std::vector<__half> row;
    for (size_t i = 0; i < 16; i++)
        row.push_back(__float2half_rn(i < terms.size() ? terms[i] : 0));
    Vector<__half> in(16);
    Vector<float> sum(1);
    in.write(row);
    HST_LAUNCH(k_sum, 1, 32, 0, nullptr, in.data, c, sum.data);
    return sum.read()[0];
}

static void tensor_cores_cut_off_instead_of_rounding(void **)
{
    const float tiny = 0x1p-24f; /* the least of f16 */
    hst_fake_cuda_configure("arithmetic=card");
    assert_true(sum_of({1, tiny, tiny, tiny}, 0) == 1 + 0x1p-23f); /* 1.5 ulp: cut to 1 */
    assert_true(sum_of({-1, -tiny, -tiny, -tiny}, 0) == -1 - 0x1p-23f);
    assert_true(sum_of({1, tiny}, 0) == 1);
    assert_true(sum_of({2, 2, 2 * tiny, 2 * tiny}, -4) == 4 * tiny); /* the 26th bit from 4 */
    assert_true(sum_of({2, 2, tiny, tiny, tiny, tiny}, -4) == 0);    /* beyond it */
    assert_true(sum_of({4, -4, 0, 0, 0, 0, 0, 0, tiny}, 0) == tiny); /* two sums of 8 */
    assert_true(sum_of({1, 2, 3, 4, 5, 6, 7, 8, 9}, 10) == 55);
    assert_true(sum_of({}, -0.5f) == -0.5f);
    assert_true(sum_of({INFINITY, 1}, 0) == INFINITY && isnan(sum_of({INFINITY, 1}, -INFINITY)));
    hst_fake_cuda_configure("");
    assert_true(sum_of({1, tiny, tiny, tiny}, 0) == 1); /* the host rounds each sum */
    assert_true(sum_of({tiny, 8}, -8) == 0);
    assert_true(sum_of({-8, tiny}, 8) == tiny);
}

int main()
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exponentials_are_the_hosts_unless_asked_for),
        cmocka_unit_test(a_cards_exponentials_are_2_ulp_away_and_no_more),
        cmocka_unit_test(a_cards_exponentials_keep_to_what_ptx_says),
        cmocka_unit_test(tensor_cores_cut_off_instead_of_rounding),
    };
    return cmocka_run_group_tests_name("arithmetic", tests, nullptr, nullptr);
}
