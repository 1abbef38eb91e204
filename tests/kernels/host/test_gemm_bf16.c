/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The own GEMMs of bf16: each kernel that this processor has against their definition in scalar
 * arithmetic, byte by byte; how they may be cut; and which of them a device has.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "host/cores.h"
#include "host/host.h"
#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif

enum { GUARD = 64 };
enum { BY_VDPBF16PS, BY_FMA, BY_AMX, KERNELS };
static const char *const names[KERNELS] = {"vdpbf16ps", "fma", "amx"};
static const char *const cores[KERNELS] = {"Cooperlake", "SkylakeX", "SapphireRapids"};

static int choose(const char *text, host_gemm_bf16_function **gemm)
{
    struct hst_dev_failure failure = {.why = HST_DEV_OK};
    struct host_wish wish;
    int rc = host_wish_read(text, &wish, &failure);
    rc = rc ? rc : host_gemm_bf16_choose(&wish, gemm, &failure);
    assert_int_equal(failure.why, rc ? HST_DEV_CORE : HST_DEV_OK);
    assert_true(!rc || strncmp(failure.text, "host math is ", 13) == 0);
    assert_true(!rc || !strstr(failure.text, "whose sums")); /* no reason to skip */
    return rc;
}

static bool has(int kernel)
{
    return !host_core_lacks(host_core_find(cores[kernel]), host_cpu_features());
}

/* It may be refused where the processor has it: the system may keep its registers. */
static bool amx_serves(void)
{
    host_gemm_bf16_function *gemm;
    return has(BY_AMX) && choose("amx", &gemm) == 0;
}

/* The kernel, or a skip where it cannot be had. */
static host_gemm_bf16_function *kernel_of(int kernel)
{
    if (!has(kernel) || (kernel == BY_AMX && !amx_serves()))
        skip();
#if defined(__x86_64__)
    host_gemm_bf16_function *const own[] = {host_gemm_bf16_vdpbf16ps, host_gemm_bf16_fma};
    host_gemm_bf16_function *gemm = kernel < BY_AMX ? own[kernel] : NULL;
    if (kernel == BY_AMX)
        (void)choose("amx", &gemm);
    return gemm;
#else
    return NULL;
#endif
}

/* ---- the definition -------------------------------------------------------------------------- */

static float wide(uint16_t x)
{
    const uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static float no_subnormal(float x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}

/* sum + a·b, rounded once to 24 bits whatever the exponent, then zero below 2^-126. */
static float term(float sum, uint16_t a, uint16_t b)
{
    const float x = no_subnormal(wide(a)), y = no_subnormal(wide(b));
    const bool scaled = fabsf(sum) < 1 && fabsf(fmaf(x, y, sum)) < 0x1p-100f;
    if (!scaled)
        return fmaf(x, y, sum);
    const float small = fabsf(x) < fabsf(y) ? x : y, large = fabsf(x) < fabsf(y) ? y : x;
    const float up = fmaf(small * 0x1p60f, large, sum * 0x1p60f);
    return fabsf(up) < 0x1p-66f ? copysignf(0, up) : up * 0x1p-60f;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float no_payload(float x)
{
    const uint32_t nan = 0x7fc00000;
    if (isnan(x))
        memcpy(&x, &nan, sizeof x);
    return x;
}

/* A number of op(A), and of op(B); 0 behind the last term. */
static uint16_t of_a(const struct host_gemm_bf16 *g, size_t i, size_t k)
{
    return k >= g->k ? 0 : g->a[g->a_transposed ? k * g->a_ld + i : i * g->a_ld + k];
}

static uint16_t of_b(const struct host_gemm_bf16 *g, size_t k, size_t j)
{
    return k >= g->k ? 0 : g->b[g->b_transposed ? j * g->b_ld + k : k * g->b_ld + j];
}

static float element(const struct host_gemm_bf16 *g, size_t i, size_t j)
{
    float total = g->accumulate ? no_subnormal(g->c[i * g->c_ld + j]) : 0;
    for (size_t k = 0; k < g->k; k += GEMM_BF16_K) {
        float sum = 0;
        for (size_t p = k; p < k + GEMM_BF16_K && p < g->k; p += 2)
            for (size_t at = p + 2; at-- > p;)
                sum = term(sum, of_a(g, i, at), of_b(g, at, j));
        total = no_payload(k || g->accumulate ? no_subnormal(total + sum) : sum);
    }
    return total;
}

/* The same by AMX: even terms, odd terms, both together, all that was before. */
static float element_by_amx(const struct host_gemm_bf16 *g, size_t i, size_t j)
{
    float total = g->accumulate ? no_subnormal(g->c[i * g->c_ld + j]) : 0;
    for (size_t k = 0; k < g->k; k += GEMM_BF16_AMX_STEP) {
        float sums[2] = {0, 0};
        for (size_t at = k; at < k + GEMM_BF16_AMX_STEP; at++)
            sums[at % 2] = term(sums[at % 2], of_a(g, i, at), of_b(g, at, j));
        total = no_subnormal(total + no_subnormal(sums[0] + sums[1]));
    }
    return no_payload(total);
}

/* ---- cases ----------------------------------------------------------------------------------- */

struct shape {
    size_t m, n, k, pad;
    bool special; /* also numbers that are subnormal, huge, infinite or NaN */
};

struct matrices {
    struct host_gemm_bf16 gemm;
    uint16_t *a, *b, *rounded;
    float *c, *want;
    char *pack;
    size_t a_count, b_count, c_count, pack_bytes;
};

static uint16_t number(uint32_t *seed, bool special)
{
    *seed = *seed * 1664525 + 1013904223;
    const uint16_t any = (uint16_t)(*seed >> 16);
    const uint16_t usual = (uint16_t)((any & 0x8000) | (0x3c00 + (any & 0x7fff) % 0x380));
    if (!special || *seed >> 8 & 3)
        return usual;
    static const uint16_t odd[] = {0x0080, 0x8080, 0x9a00, 0x1a00, 0x0001, 0x8001, 0x7f00, 0xff7f,
                                   0x0000, 0x8000, 0x0100, 0x2000, 0xa000, 0x3f80, 0x7f80, 0xffc1};
    return odd[(*seed >> 10) % (*seed >> 20 & 15 ? 14 : 16)]; /* few that are not finite */
}

/* What is beyond a row's width, and behind the last row, must not matter: NaNs. */
static uint16_t *filled(size_t rows, size_t width, size_t ld, uint32_t *seed, bool special)
{
    uint16_t *x = malloc((rows * ld + GUARD) * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < rows * ld + GUARD; i++)
        x[i] = i < rows * ld && i % ld < width ? number(seed, special) : 0x7fff;
    return x;
}

static struct matrices open_case(const struct shape *s, bool a_transposed, bool b_transposed)
{
    uint32_t seed = 7;
    const size_t a_width = a_transposed ? s->m : s->k, b_width = b_transposed ? s->k : s->n;
    struct matrices x = {.pack_bytes = host_gemm_bf16_pack_bytes(s->m, s->n, s->k),
                         .c_count = s->m * (s->n + s->pad) + GUARD};
    x.a = filled(a_transposed ? s->k : s->m, a_width, a_width + s->pad, &seed, s->special);
    x.b = filled(b_transposed ? s->n : s->k, b_width, b_width + s->pad, &seed, s->special);
    x.c = malloc(x.c_count * sizeof *x.c);
    x.want = malloc(x.c_count * sizeof *x.c);
    x.rounded = malloc(x.c_count * sizeof *x.rounded);
    x.pack = malloc(x.pack_bytes + GUARD);
    assert_true(x.c && x.want && x.rounded && x.pack);
    memset(x.rounded, 0x55, x.c_count * sizeof *x.rounded);
    memset(x.pack, 0x55, x.pack_bytes + GUARD);
    for (size_t i = 0; i < x.c_count; i++)
        x.c[i] = x.want[i] = i % 31 ? wide(number(&seed, false)) : 0x1p-130f;
    x.gemm = (struct host_gemm_bf16){.m = s->m,
                                     .n = s->n,
                                     .k = s->k,
                                     .a = x.a,
                                     .b = x.b,
                                     .c = x.c,
                                     .a_ld = a_width + s->pad,
                                     .b_ld = b_width + s->pad,
                                     .c_ld = s->n + s->pad,
                                     .a_transposed = a_transposed,
                                     .b_transposed = b_transposed,
                                     .pack = x.pack};
    return x;
}

static void close_case(struct matrices *x)
{
    for (size_t i = 0; i < GUARD; i++)
        assert_int_equal(x->pack[x->pack_bytes + i], 0x55);
    free(x->a);
    free(x->b);
    free(x->c);
    free(x->want);
    free(x->rounded);
    free(x->pack);
}

static void expect_definition(int kernel, struct matrices *x)
{
    for (size_t i = 0; i < x->gemm.m; i++)
        for (size_t j = 0; j < x->gemm.n; j++)
            x->want[i * x->gemm.c_ld + j] =
                (kernel == BY_AMX ? element_by_amx : element)(&x->gemm, i, j);
    kernel_of(kernel)(&x->gemm);
    for (size_t i = 0; i < x->c_count; i++)
        if (bits_of(x->c[i]) != bits_of(x->want[i]))
            fail_msg("%zu x %zu x %zu, %d%d: row %zu, column %zu is %a, not %a", x->gemm.m,
                     x->gemm.n, x->gemm.k, x->gemm.a_transposed, x->gemm.b_transposed,
                     i / x->gemm.c_ld, i % x->gemm.c_ld, (double)x->c[i], (double)x->want[i]);
}

static uint16_t rounded(float x)
{
    const uint32_t bits = bits_of(x);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* The same again, rounded: what is behind a row, and behind the last, is left. */
static void expect_rounded(int kernel, struct matrices *x)
{
    struct host_gemm_bf16 *g = &x->gemm;
    g->rounded = x->rounded;
    g->rounded_ld = g->c_ld;
    kernel_of(kernel)(g);
    for (size_t i = 0; i < x->c_count; i++) {
        const bool inside = i / g->c_ld < g->m && i % g->c_ld < g->n;
        const uint16_t want = inside ? rounded(x->want[i]) : 0x5555;
        if (x->rounded[i] != want)
            fail_msg("%zu x %zu x %zu: row %zu, column %zu is %#x, not %#x", g->m, g->n, g->k,
                     i / g->c_ld, i % g->c_ld, x->rounded[i], want);
    }
}

static const struct shape shapes[] = {
    {1, 1, 1, 0, false},      {1, 1, 2, 1, true},     {3, 17, 5, 2, true},
    {12, 32, 64, 0, false},   {13, 33, 31, 7, true},  {5, 16, 256, 0, true},
    {8, 31, 257, 3, false},   {25, 70, 300, 1, true}, {24, 64, 511, 0, false},
    {4, 65, 513, 5, true},    {37, 3, 1029, 0, true}, {64, 96, 32, 0, false},
    {11, 48, 769, 24, false}, {70, 33, 96, 2, true},  {33, 40, 2081, 0, true},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void every_layout_has_the_bytes_of_the_definition(int kernel)
{
    (void)kernel_of(kernel);
    for (size_t i = 0; i < SHAPES; i++)
        for (int form = 0; form < 8; form++) {
            struct matrices x = open_case(&shapes[i], form & 1, form & 2);
            x.gemm.accumulate = form & 4;
            expect_definition(kernel, &x);
            if (!x.gemm.accumulate)
                expect_rounded(kernel, &x);
            close_case(&x);
        }
}

static void products_by_vdpbf16ps_have_the_bytes_of_the_definition(void **state)
{
    (void)state;
    every_layout_has_the_bytes_of_the_definition(BY_VDPBF16PS);
}

static void products_by_fma_have_the_bytes_of_the_definition(void **state)
{
    (void)state;
    every_layout_has_the_bytes_of_the_definition(BY_FMA);
}

static void products_by_amx_have_the_bytes_of_the_definition(void **state)
{
    (void)state;
    every_layout_has_the_bytes_of_the_definition(BY_AMX);
}

/* Rows and columns in parts, of any size and from any place on: no element changes. */
static void parts_have_the_bytes_of_the_whole(int kernel)
{
    static const struct shape shape = {61, 75, 600, 3, true};
    host_gemm_bf16_function *gemm = kernel_of(kernel);
    for (int form = 0; form < 4; form++) {
        struct matrices x = open_case(&shape, form & 1, form & 2);
        struct host_gemm_bf16 part = x.gemm;
        gemm(&x.gemm);
        part.c = x.want;
        for (size_t i = 0; i < shape.m; i += part.m)
            for (size_t j = 0; j < shape.n; j += part.n) {
                part.m = i ? shape.m - i : 7;
                part.n = j ? shape.n - j : 41;
                part.a = x.a + i * (form & 1 ? 1 : part.a_ld);
                part.b = x.b + j * (form & 2 ? part.b_ld : 1);
                part.c = x.want + i * part.c_ld + j;
                gemm(&part);
            }
        assert_memory_equal(x.c, x.want, x.c_count * sizeof *x.c);
        close_case(&x);
    }
}

static void parts_by_vdpbf16ps_have_the_bytes_of_the_whole(void **state)
{
    (void)state;
    parts_have_the_bytes_of_the_whole(BY_VDPBF16PS);
}

static void parts_by_fma_have_the_bytes_of_the_whole(void **state)
{
    (void)state;
    parts_have_the_bytes_of_the_whole(BY_FMA);
}

static void parts_by_amx_have_the_bytes_of_the_whole(void **state)
{
    (void)state;
    parts_have_the_bytes_of_the_whole(BY_AMX);
}

/* What the choice compares AMX with is the definition, too. */
static void amx_is_compared_with_its_definition(void **state)
{
    (void)state;
    if (!amx_serves())
        skip();
#if defined(HOST_AMX)
    struct matrices x = open_case(&shapes[SHAPES - 2], false, false);
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        x.gemm.accumulate = accumulate;
        for (size_t i = 0; i < x.gemm.m; i++)
            for (size_t j = 0; j < x.gemm.n; j++)
                x.want[i * x.gemm.c_ld + j] = element_by_amx(&x.gemm, i, j);
        host_gemm_bf16_amx_defined(&x.gemm);
        assert_memory_equal(x.c, x.want, x.c_count * sizeof *x.c);
    }
    close_case(&x);
#endif
}

/* Many rows are packed a few at a time. */
static void amx_takes_no_more_room_for_many_rows(void **state)
{
    (void)state;
    static const struct shape shape = {300, 40, 70, 0, false};
    host_gemm_bf16_function *gemm = kernel_of(BY_AMX);
    struct matrices x = open_case(&shape, false, false);
    gemm(&x.gemm);
    for (size_t i = host_gemm_bf16_pack_bytes(1, shape.n, shape.k); i < x.pack_bytes; i++)
        assert_int_equal(x.pack[i], 0x55);
    close_case(&x);
}

/* ---- the choice ------------------------------------------------------------------------------ */

static void a_core_and_a_kernel_are_read_in_either_order(void **state)
{
    (void)state;
    struct hst_dev_failure failure;
    struct host_wish wish;
    assert_int_equal(host_wish_read(NULL, &wish, &failure), 0);
    assert_true(!*wish.core && wish.kernel == HOST_BF16_ANY);
    assert_int_equal(host_wish_read("Haswell", &wish, &failure), 0);
    assert_true(strcmp(wish.core, "Haswell") == 0 && wish.kernel == HOST_BF16_ANY);
    assert_int_equal(host_wish_read("fma", &wish, &failure), 0);
    assert_true(!*wish.core && wish.kernel == HOST_BF16_FMA);
    assert_int_equal(host_wish_read("SkylakeX,blas", &wish, &failure), 0);
    assert_true(strcmp(wish.core, "SkylakeX") == 0 && wish.kernel == HOST_BF16_BLAS);
    assert_int_equal(host_wish_read("VDPBF16PS,zen", &wish, &failure), 0);
    assert_true(strcmp(wish.core, "zen") == 0 && wish.kernel == HOST_BF16_VDPBF16PS);
    assert_int_equal(host_wish_read("Amx", &wish, &failure), 0);
    assert_true(!*wish.core && wish.kernel == HOST_BF16_AMX);
}

static void what_is_neither_or_twice_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",         ",",           "Haswell,",         ",fma",
        "fma,blas", "Haswell,Zen", "fma,Haswell,blas", "a-core-whose-name-is-too-long"};
    host_gemm_bf16_function *gemm;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(choose(bad[i], &gemm), -ENODEV);
}

/* Bits follow from the processor and from what is named alone. */
static void a_core_without_avx512_takes_openblas(void **state)
{
    (void)state;
    host_gemm_bf16_function *gemm, *usual;
    assert_int_equal(choose(NULL, &usual), 0);
    for (size_t i = 0; i < 2; i++) {
        gemm = usual;
        assert_int_equal(choose(i ? "blas" : "Haswell", &gemm), 0);
        assert_null(gemm);
    }
    assert_int_equal(choose("SkylakeX", &gemm), 0);
    assert_int_equal(gemm != NULL, has(BY_FMA));
    assert_int_equal(usual != NULL, has(BY_FMA));
}

/* By the name of its core it serves, by that of an older one it does not: bits are that core's. */
static void amx_serves_where_it_is_there_and_no_older_core_is_named(void **state)
{
    (void)state;
    host_gemm_bf16_function *amx = kernel_of(BY_AMX), *gemm;
    assert_non_null(amx);
    assert_int_equal(choose(NULL, &gemm), 0);
    assert_ptr_equal(gemm, amx);
    assert_int_equal(choose("SapphireRapids", &gemm), 0);
    assert_ptr_equal(gemm, amx);
    assert_int_equal(choose("Cooperlake", &gemm), 0);
    assert_true(gemm && gemm != amx);
    assert_int_equal(choose("SkylakeX,amx", &gemm), 0);
    assert_ptr_equal(gemm, amx);
}

#if defined(__x86_64__)
/* From here on this process is refused what arch_prctl is asked for. */
static bool refuse_arch_prctl(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_arch_prctl, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* What the child finds: 0, as it is wanted; 77, it cannot be tried. */
static int choose_without_tiles(host_gemm_bf16_function *amx)
{
    struct hst_dev_failure failure = {.why = HST_DEV_OK};
    const struct host_wish any = {.kernel = HOST_BF16_ANY}, named = {.kernel = HOST_BF16_AMX};
    host_gemm_bf16_function *gemm = NULL;
    if (!refuse_arch_prctl())
        return 77;
    if (host_gemm_bf16_choose(&any, &gemm, &failure) || !gemm || gemm == amx)
        return 1;
    return host_gemm_bf16_choose(&named, &gemm, &failure) == -ENODEV &&
                   strstr(failure.text, "registers this system does not let a process use")
               ? 0
               : 2;
}
#endif

/* Old kernels, sandboxes, and who has handed out signal stacks that are too small for tiles. */
static void without_leave_to_use_tiles_another_kernel_serves(void **state)
{
    (void)state;
    host_gemm_bf16_function *amx = kernel_of(BY_AMX);
#if defined(__x86_64__)
    const pid_t child = fork();
    int status = 0;
    if (child == 0)
        _exit(choose_without_tiles(amx));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
#else
    assert_null(amx);
#endif
}

static void a_kernel_that_is_named_serves_or_is_refused(void **state)
{
    (void)state;
    for (int kernel = 0; kernel < KERNELS; kernel++) {
        host_gemm_bf16_function *gemm = NULL;
        if (!has(kernel)) {
            assert_int_equal(choose(names[kernel], &gemm), -ENODEV);
            assert_null(gemm);
        } else if (kernel != BY_AMX || amx_serves()) {
            assert_int_equal(choose(names[kernel], &gemm), 0);
            assert_ptr_equal(gemm, kernel_of(kernel));
        }
    }
    host_gemm_bf16_function *gemm;
    assert_int_equal(choose("Haswell,fma", &gemm), has(BY_FMA) ? 0 : -ENODEV);
}

/* ---- what a device says ---------------------------------------------------------------------- */

static const char *math_of(const char *host_math, enum hst_dtype dtype)
{
    static char math[HST_DEV_MATH_BYTES];
    const struct hst_dev_config config = {.size = sizeof config, .host_math = host_math};
    const struct hst_matmul args = {
        .m = 3, .n = 3, .k = 3, .a.dtype = dtype, .b.dtype = dtype, .c.dtype = dtype};
    struct hst_dev *dev;
    assert_int_equal(hst_dev_host_open(&config, &dev), 0);
    hst_dev_math(dev, math, sizeof math);
    assert_null(strstr(math, "bf16"));
    (void)hst_matmul_work_bytes(dev, &args);
    hst_dev_math(dev, math, sizeof math);
    hst_dev_close(&dev);
    return math;
}

static void bits_depend_on_the_kernel_where_bf16_was_asked_for(void **state)
{
    (void)state;
    assert_null(strstr(math_of(NULL, HST_F32), "bf16"));
    assert_null(strstr(math_of(NULL, HST_F16), "bf16"));
    assert_null(strstr(math_of("blas", HST_BF16), "bf16"));
    if (has(BY_FMA))
        assert_non_null(strstr(math_of("fma", HST_BF16), ", own GEMMs of bf16, glibc "));
    const char *by_amx = ", own GEMMs of bf16 by AMX, attention by AMX, glibc ";
    assert_int_equal(strstr(math_of(NULL, HST_BF16), by_amx) != NULL, amx_serves());
}

/* Its sums are those of AMX then, so that the device says so where nothing else was asked for. */
static void attention_is_by_amx_where_gemms_are(void **state)
{
    (void)state;
    char math[HST_DEV_MATH_BYTES];
    struct hst_attention args = {
        .batch = 1, .seq = 3, .heads = 1, .kv_heads = 1, .head_dim = 2, .dtype = HST_F16};
    struct hst_dev *dev;
    for (int kernel = 0; kernel < KERNELS; kernel++)
        if (kernel != BY_AMX)
            assert_null(host_gemm_bf16_small(kernel_of(kernel)));
    assert_null(host_gemm_bf16_small(NULL));
    if (!amx_serves())
        return;
    assert_ptr_equal(host_gemm_bf16_small(kernel_of(BY_AMX)), kernel_of(BY_AMX));
    assert_int_equal(
        hst_dev_host_open(&(struct hst_dev_config){.size = sizeof(struct hst_dev_config)}, &dev),
        0);
    (void)hst_attention_work_bytes(dev, &args);
    hst_dev_math(dev, math, sizeof math);
    assert_null(strstr(math, "AMX"));
    args.dtype = HST_BF16;
    (void)hst_attention_work_bytes(dev, &args);
    hst_dev_math(dev, math, sizeof math);
    assert_non_null(strstr(math, "attention by AMX"));
    hst_dev_close(&dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_by_vdpbf16ps_have_the_bytes_of_the_definition),
        cmocka_unit_test(products_by_fma_have_the_bytes_of_the_definition),
        cmocka_unit_test(products_by_amx_have_the_bytes_of_the_definition),
        cmocka_unit_test(parts_by_vdpbf16ps_have_the_bytes_of_the_whole),
        cmocka_unit_test(parts_by_fma_have_the_bytes_of_the_whole),
        cmocka_unit_test(parts_by_amx_have_the_bytes_of_the_whole),
        cmocka_unit_test(amx_is_compared_with_its_definition),
        cmocka_unit_test(amx_takes_no_more_room_for_many_rows),
        cmocka_unit_test(a_core_and_a_kernel_are_read_in_either_order),
        cmocka_unit_test(what_is_neither_or_twice_is_refused),
        cmocka_unit_test(a_core_without_avx512_takes_openblas),
        cmocka_unit_test(amx_serves_where_it_is_there_and_no_older_core_is_named),
        cmocka_unit_test(without_leave_to_use_tiles_another_kernel_serves),
        cmocka_unit_test(a_kernel_that_is_named_serves_or_is_refused),
        cmocka_unit_test(bits_depend_on_the_kernel_where_bf16_was_asked_for),
        cmocka_unit_test(attention_is_by_amx_where_gemms_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
