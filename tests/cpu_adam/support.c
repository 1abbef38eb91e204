/* SPDX-License-Identifier: Apache-2.0 */
/* See support.h. Anything that fails here ends the test program: there is no result without it. */
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

size_t tables_list(const struct hst_cpu_adam_ops *out[TABLES_MAX])
{
    size_t count = 0;

    for (int isa = HST_CPU_ISA_C; isa <= HST_CPU_ISA_AVX512VBMI; isa++) {
        out[count] = hst_cpu_adam_ops((enum hst_cpu_isa)isa);
        count += out[count] != NULL;
    }
    return count;
}

float f16_value(uint16_t half)
{
    uint32_t exponent = half >> 10 & 31, fraction = half & 1023;
    float sign = half & 0x8000 ? -1.0f : 1.0f;

    if (exponent == 31) /* infinity; a NaN keeps its payload and becomes quiet */
        return float_of((uint32_t)(half & 0x8000) << 16 | 0x7f800000 | fraction << 13 |
                        (fraction ? 0x400000 : 0));
    if (exponent == 0)
        return sign * ldexpf((float)fraction, -24);
    return sign * ldexpf((float)(1024 + fraction), (int)exponent - 25);
}

uint16_t f16_nearest_to(float x)
{
    uint16_t sign = (uint16_t)(bits_of(x) >> 16 & 0x8000);
    int exponent;

    if (isnan(x))
        return sign | 0x7e00;
    if (fabsf(x) >= 65520)
        return sign | 0x7c00;
    frexpf(x, &exponent); /* |x| < 2^exponent */
    /* Of the last place: there are eleven bits, or those above 2^-24. */
    int unit = exponent < -13 || x == 0 ? -24 : exponent - 11;
    uint32_t places = (uint32_t)nearbyint(ldexp(fabs((double)x), -unit)); /* ties to even */
    return (uint16_t)(sign | (((uint32_t)(unit + 24) << 10) + places));
}

/* A commit that has passed draws the same again (`./run test`); else it is the time. */
uint64_t seed_begin(int argc, char **argv)
{
    struct timespec now;
    const char *turn = getenv("HST_TEST_TURN");
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t seed = turn ? strtoull(turn, NULL, 10)
                         : (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;

    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "--seed") == 0)
            seed = strtoull(argv[i + 1], NULL, 10);
    printf("replay with --seed %llu\n", (unsigned long long)seed);
    fflush(stdout);
    return seed;
}

uint64_t random_u64(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

float random_unit(uint64_t *state)
{
    return (float)(random_u64(state) >> 40) * 0x1p-23f - 1.0f;
}

uint64_t random_below(uint64_t *state, uint64_t limit)
{
    return random_u64(state) % limit;
}

uint32_t random_special(uint64_t *state)
{
    static const uint32_t hard[] = {
        0x00000000, 0x00000001, 0x00000002, 0x00008000,
        0x007fffff,                                     /* zero, denormals */
        0x00800000, 0x00800001, 0x0da24260, 0x322bcc77, /* least normal, 1e-30, 1e-8 */
        0x3f7fffff, 0x3f800000, 0x3f800001, 0x3f807fff,
        0x3f808000, /* around 1, ties of bf16 */
        0x3f808001, 0x3f817fff, 0x3f818000, 0x3f818001,
        0x5f000000,                                     /* ties, square near the limit */
        0x7f7f7fff, 0x7f7f8000, 0x7f7fffff, 0x7f800000, /* greatest, infinity */
        0x7f800001, 0x7fbfffff, 0x7fc00000, 0x7fc12345,
        0x7fffffff, /* NaNs, signalling and quiet */
    };
    uint32_t bits = hard[random_below(state, sizeof hard / sizeof hard[0])];
    return bits | (uint32_t)(random_u64(state) >> 63) << 31;
}

void guarded_create(size_t min_bytes, struct guarded *out)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t data_bytes = (min_bytes + page - 1) / page * page;
    size_t map_bytes = data_bytes + 2 * page;
    unsigned char *map = mmap(NULL, map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (map == MAP_FAILED || mprotect(map + page, data_bytes, PROT_READ | PROT_WRITE) != 0) {
        perror("guard pages");
        exit(1);
    }
    *out = (struct guarded){map, map_bytes, map + page, data_bytes};
}

void guarded_destroy(struct guarded *g)
{
    munmap(g->map, g->map_bytes);
    *g = (struct guarded){0};
}
