/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plugin's own matrix products, both tiles of each: the launcher is told of no multiprocessors
 * for the large one and of very many for the small one. They have the same bytes, and those of
 * sums that the host makes in the order that kernels/cuda/ops/matmul.cu states.
 */
#include "launchers.h"
#include "support.h"

#include <cmath>
#include <sys/mman.h>

enum { LARGE = 0, SMALL = 1 << 30 };

struct Shape {
    size_t m, n, k;
    enum hst_dtype in, out;
    bool a_transposed, b_transposed, accumulate;
    size_t pad; /* of all leading dimensions */
};

static float wide_of(const unsigned char *from, enum hst_dtype dtype)
{
    float value;
    uint16_t bits;
    if (dtype == HST_F32) {
        memcpy(&value, from, sizeof value);
        return value;
    }
    memcpy(&bits, from, sizeof bits);
    return dtype == HST_BF16 ? hst::wide<__nv_bfloat16>(bits) : hst::wide<__half>(bits);
}

static void narrow_to(unsigned char *to, float value, enum hst_dtype dtype)
{
    if (dtype == HST_F32)
        memcpy(to, &value, 4);
    else if (dtype == HST_BF16) {
        __nv_bfloat16 b = __float2bfloat16_rn(value);
        memcpy(to, &b, 2);
    } else {
        __half h = __float2half_rn(value);
        memcpy(to, &h, 2);
    }
}

/* A matrix of numbers in [-1, 1) that a counter decides. */
struct Matrix {
    enum hst_dtype dtype;
    size_t bytes, ld;
    std::vector<unsigned char> host;
    Vector<unsigned char> device;

    Matrix(size_t rows, size_t columns, size_t pad, enum hst_dtype type, uint32_t seed)
        : dtype(type), bytes(type == HST_F32 ? 4 : 2), ld(columns + pad),
          host(rows * ld * bytes + bytes), device(host.size())
    {
        for (size_t i = 0; i < rows * ld; i++) {
            seed = seed * 1664525u + 1013904223u;
            narrow_to(&host[i * bytes], (float)(int32_t)seed * 0x1p-31f, type);
        }
        device.write(host);
    }
    float at(size_t row, size_t column) const
    {
        return wide_of(&host[(row * ld + column) * bytes], dtype);
    }
    struct hst_matrix described() const
    {
        return {device.data, ld, dtype};
    }
};

struct Case {
    Shape s;
    Matrix a, b, c;

    explicit Case(const Shape &shape)
        : s(shape), a(shape.a_transposed ? shape.k : shape.m,
                      shape.a_transposed ? shape.m : shape.k, shape.pad, shape.in, 1),
          b(shape.b_transposed ? shape.n : shape.k, shape.b_transposed ? shape.k : shape.n,
            shape.pad, shape.in, 2),
          c(shape.m, shape.n, shape.pad, shape.out, 3)
    {
    }
    struct hst_matmul arguments(size_t rows, size_t columns) const
    {
        struct hst_matmul args = {};
        args.m = rows;
        args.n = columns;
        args.k = s.k;
        args.a = a.described();
        args.b = b.described();
        args.c = c.described();
        args.a_transposed = s.a_transposed;
        args.b_transposed = s.b_transposed;
        args.accumulate = s.accumulate;
        return args;
    }
    std::vector<unsigned char> run(const struct hst_matmul &args, unsigned multiprocessors)
    {
        c.device.write(c.host);
        if (hst_cuda_matmul(nullptr, &args, multiprocessors) || cudaDeviceSynchronize())
            abort();
        return c.device.read();
    }
    /* C's bytes, of `rows` rows from `row` on and `columns` from `column` on; all else stays. */
    std::vector<unsigned char> multiply(unsigned multiprocessors, size_t row, size_t rows,
                                        size_t column, size_t columns)
    {
        struct hst_matmul args = arguments(rows, columns);
        args.a.data = a.device.data + row * (s.a_transposed ? 1 : a.ld) * a.bytes;
        args.b.data = b.device.data + column * (s.b_transposed ? b.ld : 1) * b.bytes;
        args.c.data = c.device.data + (row * c.ld + column) * c.bytes;
        return run(args, multiprocessors);
    }
    std::vector<unsigned char> multiply(unsigned multiprocessors)
    {
        return multiply(multiprocessors, 0, s.m, 0, s.n);
    }
    /* Two at once: the upper left and the lower right quarter of C. */
    std::vector<unsigned char> multiply_quarters(unsigned multiprocessors)
    {
        struct hst_matmul args = arguments(s.m / 2, s.n / 2);
        args.batch = 2;
        args.a_step = args.m * (s.a_transposed ? 1 : a.ld);
        args.b_step = args.n * (s.b_transposed ? b.ld : 1);
        args.c_step = args.m * c.ld + args.n;
        return run(args, multiprocessors);
    }
    float sum(size_t row, size_t column) const
    {
        float sum = 0;
        size_t step = s.in == HST_F32 ? 8 : 32;
        for (size_t k = 0; k < (s.k + step - 1) / step * step; k++) {
            float x = 0, y = 0;
            if (k < s.k) {
                x = s.a_transposed ? a.at(k, row) : a.at(row, k);
                y = s.b_transposed ? b.at(column, k) : b.at(k, column);
            }
            sum = s.in == HST_F32 ? fmaf(x, y, sum) : sum + x * y; /* the interpreter's mma */
        }
        return s.accumulate ? c.at(row, column) + sum : sum;
    }
    std::vector<unsigned char> expected() const
    {
        std::vector<unsigned char> want = c.host;
        for (size_t row = 0; row < s.m; row++)
            for (size_t column = 0; column < s.n; column++)
                narrow_to(&want[(row * c.ld + column) * c.bytes], sum(row, column), s.out);
        return want;
    }
};

static void expect_both_tiles(const Shape &shape)
{
    Case one(shape);
    std::vector<unsigned char> want = one.expected();
    for (unsigned multiprocessors : {(unsigned)LARGE, (unsigned)SMALL})
        if (one.multiply(multiprocessors) != want)
            fail_msg("%s tile, m=%zu n=%zu k=%zu, dtypes %d %d, transposed %d %d, accumulate %d, "
                     "pad %zu",
                     multiprocessors == LARGE ? "large" : "small", shape.m, shape.n, shape.k,
                     shape.in, shape.out, shape.a_transposed, shape.b_transposed, shape.accumulate,
                     shape.pad);
}

static const struct {
    enum hst_dtype in, out;
} pairs[] = {{HST_F32, HST_F32},
             {HST_BF16, HST_BF16},
             {HST_BF16, HST_F32},
             {HST_F16, HST_F16},
             {HST_F16, HST_F32}};

static void both_tiles_have_the_bytes_of_one_order_of_summation(void **)
{
    static const struct {
        size_t m, n, k, pad;
    } sizes[] = {
        {1, 1, 1, 0},      /* leading dimensions of 1 */
        {129, 257, 33, 7}, /* one place beyond each tile and each step */
        {136, 264, 40, 8}, /* vectors, the last of them in part beyond the tile */
        {60, 40, 200, 0},  /* more steps than stages */
    };
    for (const auto &size : sizes)
        for (const auto &pair : pairs)
            for (int bits = 0; bits < 4; bits++)
                expect_both_tiles({size.m, size.n, size.k, pair.in, pair.out, (bits & 1) != 0,
                                   (bits & 2) != 0, pair.out == HST_F32 && bits == 1, size.pad});
}

/* C is beyond the last row and column as it was (expect_both_tiles compares that too). */
static void many_tiles_go_down_bands_and_are_all_made(void **)
{
    for (enum hst_dtype in : {HST_F32, HST_BF16})
        expect_both_tiles({1200, 300, 8, in, in, false, true, false, 0});
}

static void an_empty_sum_is_zero_and_adds_nothing(void **)
{
    for (const auto &pair : pairs)
        for (bool accumulate : {false, true})
            if (pair.out == HST_F32 || !accumulate) {
                Case one({9, 20, 0, pair.in, pair.out, false, false, accumulate, 3});
                narrow_to(one.c.host.data(), -0.0f, pair.out);
                std::vector<unsigned char> want = accumulate ? one.c.host : one.expected();
                assert_true(one.multiply(SMALL) == want);
                assert_true(one.multiply(LARGE) == want);
            }
}

/* The bytes of a part do not depend on what else is asked for in the same call. */
static void a_part_of_c_has_the_bytes_that_it_has_in_the_whole(void **)
{
    for (const auto &pair : pairs) {
        Case one({160, 272, 70, pair.in, pair.out, false, true, false, 2});
        std::vector<unsigned char> whole = one.multiply(LARGE),
                                   part = one.multiply(SMALL, 32, 7, 64, 24);
        for (size_t row = 32; row < 39; row++)
            assert_memory_equal(&whole[(row * one.c.ld + 64) * one.c.bytes],
                                &part[(row * one.c.ld + 64) * one.c.bytes], 24 * one.c.bytes);
    }
}

/* Parts of matrices whose leading dimensions are whole vectors, from odd places on. */
static void matrices_begin_at_any_element(void **)
{
    for (const auto &pair : pairs)
        for (int bits = 0; bits < 4; bits++)
            for (unsigned multiprocessors : {(unsigned)LARGE, (unsigned)SMALL}) {
                Case one({160, 272, 40, pair.in, pair.out, (bits & 1) != 0, (bits & 2) != 0,
                          pair.out == HST_F32, 8});
                std::vector<unsigned char> want = one.c.host, all = one.expected();
                for (size_t row = 3; row < 153; row++)
                    memcpy(&want[(row * one.c.ld + 5) * one.c.bytes],
                           &all[(row * one.c.ld + 5) * one.c.bytes], 262 * one.c.bytes);
                assert_true(one.multiply(multiprocessors, 3, 150, 5, 262) == want);
            }
}

/* Quarters of 136×264 and of no whole tile, each with operands of its own. */
static void a_batch_has_the_bytes_of_its_products_alone(void **)
{
    for (const auto &pair : pairs)
        for (int bits = 0; bits < 4; bits++) {
            Case one({272, 528, 40, pair.in, pair.out, (bits & 1) != 0, (bits & 2) != 0,
                      pair.out == HST_F32 && bits == 1, 0});
            std::vector<unsigned char> whole = one.expected(), want = one.c.host;
            size_t row_bytes = one.s.n * one.c.bytes;
            for (size_t row = 0; row < one.s.m; row++) {
                size_t at = row * row_bytes + row / (one.s.m / 2) * (row_bytes / 2);
                memcpy(&want[at], &whole[at], row_bytes / 2);
            }
            assert_true(one.multiply_quarters(LARGE) == want);
            assert_true(one.multiply_quarters(SMALL) == want);
        }
}

/* What lies behind the last row of k, m and n is not a number and must not count. */
static void what_is_beyond_an_operand_does_not_count(void **)
{
    for (enum hst_dtype in : {HST_F32, HST_BF16, HST_F16})
        for (int bits = 0; bits < 4; bits++)
            for (unsigned multiprocessors : {(unsigned)LARGE, (unsigned)SMALL}) {
                Case one({20, 30, 21, in, HST_F32, (bits & 1) != 0, (bits & 2) != 0, false, 11});
                std::vector<unsigned char> want = one.expected();
                for (Matrix *matrix : {&one.a, &one.b}) {
                    size_t width = matrix->ld - 11;
                    for (size_t i = 0; i < matrix->host.size() / matrix->bytes; i++)
                        if (i % matrix->ld >= width)
                            narrow_to(&matrix->host[i * matrix->bytes], NAN, in);
                    matrix->device.write(matrix->host);
                }
                assert_true(one.multiply(multiprocessors) == want);
            }
}

/* Memory of which only what is touched is there. */
static void *sparse(size_t bytes)
{
    void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

/* Rows that lie 2^30 elements apart, so that the third is beyond 2^31: 3×3 products of numbers
   that are exact in every type. */
static void elements_beyond_two_to_the_31_are_reached(void **)
{
    enum { N = 3 };
    const size_t ld = (1u << 30) + 8;
    for (enum hst_dtype in : {HST_F32, HST_BF16})
        for (int bits = 0; bits < 4; bits++)
            for (unsigned multiprocessors : {(unsigned)LARGE, (unsigned)SMALL}) {
                size_t size = in == HST_F32 ? 4 : 2, bytes = (2 * ld + 64) * size;
                bool a_transposed = (bits & 1) != 0, b_transposed = (bits & 2) != 0;
                unsigned char *a = static_cast<unsigned char *>(sparse(bytes)),
                              *b = static_cast<unsigned char *>(sparse(bytes)),
                              *c = static_cast<unsigned char *>(sparse(bytes));
                float x[N][N], y[N][N];
                for (size_t i = 0; i < N * N; i++) {
                    x[i / N][i % N] = (float)i - 3;
                    y[i / N][i % N] = 5 - (float)i;
                }
                for (size_t i = 0; i < N; i++)
                    for (size_t j = 0; j < N; j++) {
                        narrow_to(a + (i * ld + j) * size, a_transposed ? x[j][i] : x[i][j], in);
                        narrow_to(b + (i * ld + j) * size, b_transposed ? y[j][i] : y[i][j], in);
                    }
                struct hst_matmul args = {};
                args.m = args.n = args.k = N;
                args.a = {a, ld, in};
                args.b = {b, ld, in};
                args.c = {c, ld, in};
                args.a_transposed = a_transposed;
                args.b_transposed = b_transposed;
                assert_int_equal(hst_cuda_matmul(nullptr, &args, multiprocessors), 0);
                assert_int_equal(cudaDeviceSynchronize(), 0);
                for (size_t i = 0; i < N; i++)
                    for (size_t j = 0; j < N; j++) {
                        float want = 0;
                        for (size_t k = 0; k < N; k++)
                            want += x[i][k] * y[k][j];
                        assert_true(wide_of(c + (i * ld + j) * size, in) == want);
                    }
                munmap(a, bytes);
                munmap(b, bytes);
                munmap(c, bytes);
            }
}

/* Of four stages the last step is in the first, where a tile's sums pass through, or in the third,
   with which the next tile begins too. */
static bool pipeline_is_right()
{
    for (enum hst_dtype in : {HST_F32, HST_BF16})
        for (unsigned multiprocessors : {(unsigned)LARGE, (unsigned)SMALL})
            for (size_t k : {160, 200}) {
                Case one({140, 264, k, in, HST_F32, true, false, true, 0});
                if (one.multiply(multiprocessors) != one.expected())
                    return false;
            }
    return true;
}

static void no_schedule_of_threads_changes_a_byte(void **)
{
    expect_right(pipeline_is_right);
}

int main()
{
    setenv("HST_SIMT_GRID", "3", 0); /* blocks go through several tiles */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_tiles_have_the_bytes_of_one_order_of_summation),
        cmocka_unit_test(many_tiles_go_down_bands_and_are_all_made),
        cmocka_unit_test(an_empty_sum_is_zero_and_adds_nothing),
        cmocka_unit_test(a_part_of_c_has_the_bytes_that_it_has_in_the_whole),
        cmocka_unit_test(matrices_begin_at_any_element),
        cmocka_unit_test(a_batch_has_the_bytes_of_its_products_alone),
        cmocka_unit_test(what_is_beyond_an_operand_does_not_count),
        cmocka_unit_test(elements_beyond_two_to_the_31_are_reached),
        cmocka_unit_test(no_schedule_of_threads_changes_a_byte),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
