/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_SIMT_INTRINSICS_H
#define HST_SIMT_INTRINSICS_H
/*
 * CUDA's arithmetic, bits, cached loads and atomics as host operations (part of simt.h). The _rn
 * ones round exactly as the card does, given -ffp-contract=off; __expf and its kin are the host
 * library's, more exact than the card's, but the first two where a card's arithmetic is asked for.
 */

/* ---- approximate functions: macros, because the C library's header has some of these names --- */

#define __expf(x)          hst::exp_approx(x)
#define __exp2f(x)         hst::exp2_approx(x)
#define __exp10f(x)        exp10f(x)
#define __logf(x)          logf(x)
#define __log2f(x)         log2f(x)
#define __log10f(x)        log10f(x)
#define __sinf(x)          sinf(x)
#define __cosf(x)          cosf(x)
#define __tanhf(x)         tanhf(x)
#define __powf(x, y)       powf(x, y)
#define __fdividef(x, y)   ((float)(x) / (float)(y))
#define __saturatef(x)     fminf(fmaxf((x), 0.0f), 1.0f)

static inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}
static inline double rsqrt(double x)
{
    return 1.0 / sqrt(x);
}

/* ---- one rounding, to nearest even ----------------------------------------------------------- */

static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline float __fsub_rn(float a, float b)
{
    return a - b;
}
static inline float __fmul_rn(float a, float b)
{
    return a * b;
}
static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
static inline float __frcp_rn(float a)
{
    return 1.0f / a;
}
static inline float __fsqrt_rn(float a)
{
    return sqrtf(a);
}
static inline float __frsqrt_rn(float a)
{
    return (float)(1.0 / sqrt((double)a));
}
static inline float __fmaf_rn(float a, float b, float c)
{
    return __builtin_fmaf(a, b, c);
}
static inline double __dadd_rn(double a, double b)
{
    return a + b;
}
static inline double __dsub_rn(double a, double b)
{
    return a - b;
}
static inline double __dmul_rn(double a, double b)
{
    return a * b;
}
static inline double __ddiv_rn(double a, double b)
{
    return a / b;
}
static inline double __dsqrt_rn(double a)
{
    return sqrt(a);
}
static inline double __fma_rn(double a, double b, double c)
{
    return __builtin_fma(a, b, c);
}

/* ---- bits ------------------------------------------------------------------------------------ */

namespace hst {
template <class To, class From> inline To bits_as(From from)
{
    static_assert(sizeof(To) == sizeof(From), "other size");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}
} // namespace hst

static inline unsigned __float_as_uint(float x)
{
    return hst::bits_as<unsigned>(x);
}
static inline int __float_as_int(float x)
{
    return hst::bits_as<int>(x);
}
static inline float __uint_as_float(unsigned x)
{
    return hst::bits_as<float>(x);
}
static inline float __int_as_float(int x)
{
    return hst::bits_as<float>(x);
}
static inline long long __double_as_longlong(double x)
{
    return hst::bits_as<long long>(x);
}
static inline double __longlong_as_double(long long x)
{
    return hst::bits_as<double>(x);
}
static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
static inline int __ffsll(long long x)
{
    return __builtin_ffsll(x);
}
static inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}
static inline int __clzll(long long x)
{
    return x ? __builtin_clzll((unsigned long long)x) : 64;
}
static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}

/* ---- min and max of equal types, as CUDA overloads them -------------------------------------- */

#define HST_MIN_MAX(type)                                                                          \
    static inline type min(type a, type b)                                                         \
    {                                                                                              \
        return b < a ? b : a;                                                                      \
    }                                                                                              \
    static inline type max(type a, type b)                                                         \
    {                                                                                              \
        return a < b ? b : a;                                                                      \
    }
HST_MIN_MAX(int)
HST_MIN_MAX(unsigned)
HST_MIN_MAX(long)
HST_MIN_MAX(unsigned long)
HST_MIN_MAX(long long)
HST_MIN_MAX(unsigned long long)
#undef HST_MIN_MAX
static inline float min(float a, float b)
{
    return fminf(a, b);
}
static inline float max(float a, float b)
{
    return fmaxf(a, b);
}
static inline double min(double a, double b)
{
    return fmin(a, b);
}
static inline double max(double a, double b)
{
    return fmax(a, b);
}

/* ---- loads and stores with cache hints: plain ones, which the sanitizers see ----------------- */

#define HST_CACHED_LOAD(name)                                                                      \
    template <class T> static inline T name(const T *p)                                            \
    {                                                                                              \
        return *p;                                                                                 \
    }
HST_CACHED_LOAD(__ldg)
HST_CACHED_LOAD(__ldca)
HST_CACHED_LOAD(__ldcg)
HST_CACHED_LOAD(__ldcs)
HST_CACHED_LOAD(__ldlu)
#undef HST_CACHED_LOAD
#define HST_CACHED_STORE(name)                                                                     \
    template <class T> static inline void name(T *p, std::common_type_t<T> value)                  \
    {                                                                                              \
        *p = value;                                                                                \
    }
HST_CACHED_STORE(__stcg)
HST_CACHED_STORE(__stcs)
HST_CACHED_STORE(__stwb)
HST_CACHED_STORE(__stwt)
#undef HST_CACHED_STORE

/* ---- atomics, relaxed as on the card: they order nothing else -------------------------------- */

namespace hst {
template <class T, class F> inline T atomic_update(T *p, F update)
{
    T old, wanted;
    __atomic_load(p, &old, __ATOMIC_RELAXED);
    do
        wanted = update(old);
    while (!__atomic_compare_exchange(p, &old, &wanted, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return old;
}
} // namespace hst

#define HST_ATOMIC(name, expression)                                                               \
    template <class T> static inline T name(T *p, std::common_type_t<T> value)                     \
    {                                                                                              \
        return hst::atomic_update(p, [=](T old) -> T { return expression; });                      \
    }
HST_ATOMIC(atomicAdd, old + value)
HST_ATOMIC(atomicSub, old - value)
HST_ATOMIC(atomicMax, old < value ? value : old)
HST_ATOMIC(atomicMin, value < old ? value : old)
HST_ATOMIC(atomicExch, ((void)old, value))
HST_ATOMIC(atomicAnd, old & value)
HST_ATOMIC(atomicOr, old | value)
HST_ATOMIC(atomicXor, old ^ value)
#undef HST_ATOMIC

template <class T>
static inline T atomicCAS(T *p, std::common_type_t<T> expected, std::common_type_t<T> wanted)
{
    static_assert(std::is_integral_v<T>, "compares integers");
    __atomic_compare_exchange(p, &expected, &wanted, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}

#endif
