/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The texts of models and plans: what is accepted means what was written, everything else is
 * refused with a message that names the word. Texts are drawn from a seed, which is printed;
 * `--seed N` replays.
 */
#include "fault_plan.h"
#include "sim_model.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h> /* needs the ones before */

enum { ROUNDS = 20000, TEXT_BYTES = 512 };

static uint64_t seed;

static uint64_t draw(uint64_t below)
{
    return hst_aio_random(&seed) % below;
}

struct text {
    char bytes[TEXT_BYTES];
    size_t used;
};

static void __attribute__((format(printf, 2, 3))) add(struct text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int length =
        vsnprintf(text->bytes + text->used, TEXT_BYTES - text->used, format, arguments);
    va_end(arguments);
    assert_true(length >= 0 && (size_t)length < TEXT_BYTES - text->used);
    text->used += (size_t)length;
}

static bool model_is_taken(const char *text, struct sim_speed *speed, char *why)
{
    struct sim_speed ignored;
    memset(why, 'x', HST_AIO_REFUSAL_BYTES);
    const int rc = hst_aio_sim_parse(text, speed ? speed : &ignored, why);
    assert_true(rc == 0 || rc == -EINVAL);
    return rc == 0;
}

static bool plan_is_taken(const char *text, struct fault_plan *plan, char *why)
{
    static struct fault_plan ignored;
    memset(why, 'x', HST_AIO_REFUSAL_BYTES);
    const int rc = hst_aio_fault_parse(text, plan ? plan : &ignored, why);
    assert_true(rc == 0 || rc == -EINVAL || rc == -E2BIG);
    return rc == 0;
}

/* A message is one line of plain text. */
static void check_message(const char *why)
{
    const char *end = memchr(why, '\0', HST_AIO_REFUSAL_BYTES);
    assert_non_null(end);
    assert_true(end > why);
    for (; *why; why++)
        assert_true(*why >= ' ');
}

/* ---- what is refused, word by word ---- */

static const struct refused {
    const char *text, *message;
} bad_models[] = {
    {"", "a model begins with \"sim:\""},
    {"read=1G,write=1G", "a model begins with \"sim:\""},
    {"sim:", "read= is missing"},
    {"sim:read=1G", "write= is missing"},
    {"sim:read=1G,read=2G,write=1G", "read=2G: is given twice"},
    {"sim:read=1G,write=1G,lat=1us,lat=1us", "lat=1us: is given twice"},
    {"sim:read=1G,write=1G,what=1", "what=1: is no word of a model"},
    {"sim:read=1G,write=1G,Read=1", "Read=1: is no word of a model"},
    {"sim:read=1G,write=1G,rea=1", "rea=1: is no word of a model"},
    {"sim:read=1G,write=1G,=1", "=1: is no word of a model"},
    {"sim:read=1G,write=1G;x", "a model has no \";\""},
    {"sim:read=0,write=1G", "read=0: must be bytes per second from 1K to 1000T"},
    {"sim:read=-1G,write=1G", "read=-1G: must be bytes per second from 1K to 1000T"},
    {"sim:read=999,write=1G", "read=999: must be bytes per second from 1K to 1000T"},
    {"sim:read=1001T,write=1G", "read=1001T: must be bytes per second from 1K to 1000T"},
    {"sim:read=99999999999999999999G,write=1G",
     "read=99999999999999999999G: must be bytes per second from 1K to 1000T"},
    {"sim:read=1.0000000001G,write=1G",
     "read=1.0000000001G: must be bytes per second from 1K to 1000T"},
    {"sim:read=1G,write=1Q", "write=1Q: must be bytes per second from 1K to 1000T"},
    {"sim:read=1G,write", "write: must be bytes per second from 1K to 1000T"},
    {"sim:read=1G,write=", "write=: must be bytes per second from 1K to 1000T"},
    {"sim:read=1G,write=1G,mixed=0", "mixed=0: must be bytes per second from 1K to 1000T"},
    {"sim:read=1G,write=1G,mixed=3G", "mixed= is more than read= and write= together"},
    {"sim:read=1G,write=1G,lat=80",
     "lat=80: must be a time of at most 1000s, with ns, us, ms or s"},
    {"sim:read=1G,write=1G,lat=-1us",
     "lat=-1us: must be a time of at most 1000s, with ns, us, ms or s"},
    {"sim:read=1G,write=1G,jitter=1001s",
     "jitter=1001s: must be a time of at most 1000s, with ns, us, ms or s"},
    {"sim:read=1G,write=1G,slc=0", "slc=0: must be bytes from 1 to 1000000T"},
    {"sim:read=1G,write=1G,size=2000000T", "size=2000000T: must be bytes from 1 to 1000000T"},
    {"sim:read=1G,write=1G,seed=1K", "seed=1K: must be a number"},
    {"sim:read=1G,write=1G,seed=18446744073709551616",
     "seed=18446744073709551616: must be a number"},
    {"sim:read=1G,write=1G,a-word-of-which-only-the-beginning-is-shown=1",
     "a-word-of-which-only-the-beginni: is no word of a model"},
    {"sim:read=1G,write=1G,\x01\xff=1", "?\?=1: is no word of a model"},
};

static const struct refused bad_plans[] = {
    {"err=EIO err=EIO", "err=EIO: is given twice"},
    {"nth=1 nth=2 err=EIO", "nth=2: is given twice"},
    {"op=read op=write err=EIO", "op=write: is given twice"},
    {"err=EIO, short=4K", "short=4K: does not go with what stands before it"},
    {"short=4096 late=1ms", "late=1ms: does not go with what stands before it"},
    {"short=4096 err=EIO", "err=EIO: does not go with what stands before it"},
    {"torn vanish", "vanish: does not go with what stands before it"},
    {"seed=1;seed=2;err=EIO", "seed= is given twice"},
    {"seed=1 seed=2;err=EIO", "seed=2: is given twice"},
    {"seed=1 err=EIO", "seed= is a rule of its own, between semicolons"},
    {"seed=-1;err=EIO", "seed=-1: must be a number"},
    {"bogus=1 err=EIO", "bogus=1: is no word of a plan"},
    {"err=EIO; NTH=1 err=EIO", "NTH=1: is no word of a plan"},
    {"err", "err: must be the name of an error, or its number"},
    {"err=", "err=: must be the name of an error, or its number"},
    {"err=EWHAT", "err=EWHAT: must be the name of an error, or its number"},
    {"err=0", "err=0: must be the name of an error, or its number"},
    {"err=4096", "err=4096: must be the name of an error, or its number"},
    {"err=-5", "err=-5: must be the name of an error, or its number"},
    {"op=reed err=EIO", "op=reed: must be read, write, sync or any"},
    {"op err=EIO", "op: must be read, write, sync or any"},
    {"nth=0 err=EIO", "nth=0: must be a number above 0"},
    {"nth=all err=EIO", "nth=all: must be a number above 0"},
    {"every=0 err=EIO", "every=0: must be a number above 0"},
    {"odds=0 err=EIO", "odds=0: must be a number above 0"},
    {"times=x err=EIO", "times=x: must be a number above 0"},
    {"times=99999999999999999999 err=EIO", "times=99999999999999999999: must be a number above 0"},
    {"nth err=EIO", "nth: must be a number above 0"},
    {"short", "short: must be bytes from 0 to 1000000T"},
    {"short=-4K", "short=-4K: must be bytes from 0 to 1000000T"},
    {"torn=x", "torn=x: must be bytes from 0 to 1000000T"},
    {"late=5", "late=5: must be a time of at most 1000s, with ns, us, ms or s"},
    {"late=2000s", "late=2000s: must be a time of at most 1000s, with ns, us, ms or s"},
    {"late", "late: must be a time of at most 1000s, with ns, us, ms or s"},
    {"reordered=0", "reordered=0: must be a number above 0"},
    {"flip=-1", "flip=-1: must be a number"},
    {"vanish=1", "vanish=1: takes no value"},
    {"len=0 err=EIO", "len=0: must be bytes from 1 to 1000000T"},
    {"at=2000000T len=1 err=EIO", "at=2000000T: must be bytes from 0 to 1000000T"},
    {"at=4096 err=EIO", "at= needs len="},
    {"nth=1", "a rule does not say what happens"},
};

static void a_text_is_refused_with_the_word_that_is_wrong(void **state)
{
    char why[HST_AIO_REFUSAL_BYTES];
    (void)state;
    for (size_t i = 0; i < sizeof bad_models / sizeof *bad_models; i++) {
        assert_false(model_is_taken(bad_models[i].text, NULL, why));
        assert_string_equal(why, bad_models[i].message);
    }
    for (size_t i = 0; i < sizeof bad_plans / sizeof *bad_plans; i++) {
        assert_false(plan_is_taken(bad_plans[i].text, NULL, why));
        assert_string_equal(why, bad_plans[i].message);
    }
}

static void a_plan_has_at_most_64_rules(void **state)
{
    struct text text = {.used = 0};
    struct fault_plan plan;
    char why[HST_AIO_REFUSAL_BYTES];
    (void)state;
    for (int i = 0; i < 64; i++)
        add(&text, "torn;");
    assert_int_equal(hst_aio_fault_parse(text.bytes, &plan, why), 0);
    assert_int_equal(plan.rule_count, 64);
    add(&text, "torn");
    assert_int_equal(hst_aio_fault_parse(text.bytes, &plan, why), -E2BIG);
    check_message(why);
}

static void the_message_reaches_the_caller_of_open(void **state)
{
    struct hst_aio *aio = NULL;
    struct hst_aio_info info = {.backend = 0};
    struct hst_aio_config config = {
        .size = sizeof config, .backend = HST_AIO_SIM, .model = "sim:read=1G,write=0"};
    (void)state;
    assert_int_equal(hst_aio_open(&config, "d", &aio, &info), -EINVAL);
    assert_string_equal(info.refusal, "write=0: must be bytes per second from 1K to 1000T");
    assert_int_equal(hst_aio_open(&config, "d", &aio, NULL), -EINVAL);
    config.model = "sim:read=1G,write=1G";
    config.fault = "err=EOI";
    assert_int_equal(hst_aio_open(&config, "d", &aio, &info), -EINVAL);
    assert_string_equal(info.refusal, "err=EOI: must be the name of an error, or its number");
    config.fault = "err=EIO";
    assert_int_equal(hst_aio_open(&config, "d", &aio, &info), 0);
    assert_string_equal(info.refusal, "");
    hst_aio_close(&aio);
}

/* ---- texts from a seed ---- */

enum unit { NONE, BYTES, TIME };

/* A number as text, in one of its spellings; returns its value. */
static uint64_t add_number(struct text *text, enum unit unit, uint64_t most)
{
    static const struct {
        const char *name;
        uint64_t factor;
    } bytes[] = {{"", 1}, {"K", 1000}, {"M", 1000000}, {"Ki", 1024}, {"Mi", 1048576}},
      times[] = {{"ns", 1}, {"us", 1000}, {"ms", 1000000}};
    const size_t i = draw(unit == BYTES ? 5 : 3);
    const uint64_t factor = unit == NONE ? 1 : unit == BYTES ? bytes[i].factor : times[i].factor;
    const char *name = unit == NONE ? "" : unit == BYTES ? bytes[i].name : times[i].name;
    uint64_t digits = 1 + draw(most / factor > 0 ? most / factor : 1);
    if (factor >= 1000 && digits % 2 == 0 && draw(4) == 0) { /* 1.5M: half of an even factor */
        add(text, "%llu.5%s", (unsigned long long)digits, name);
        return digits * factor + factor / 2;
    }
    add(text, "%llu%s", (unsigned long long)digits, name);
    return digits * factor;
}

struct model { /* as written */
    uint64_t values[10];
    uint32_t given;
};
static const struct {
    const char *key;
    enum unit unit;
    uint64_t most;
} model_words[10] = {
    {"read", BYTES, 1000000000},    {"write", BYTES, 1000000000},  {"mixed", BYTES, 2000},
    {"lat", TIME, 1000000},         {"jitter", TIME, 1000000},     {"seed", NONE, 1u << 30},
    {"slc", BYTES, 1000000000},     {"slc_write", BYTES, 1 << 20}, {"drain", BYTES, 1 << 20},
    {"size", BYTES, 1000000000000},
};

/* read= and write= and some others, in any order. */
static void write_model(struct text *text, struct model *model)
{
    static const char *const separators[] = {",", " ", ", ", ",,"};
    *model = (struct model){.given = 3 | (uint32_t)draw(1024)};
    uint32_t left = model->given;
    add(text, "sim:");
    while (left) {
        const uint32_t i = (uint32_t)draw(10);
        if (!(left & 1u << i))
            continue;
        left &= ~(1u << i);
        add(text, "%s=", model_words[i].key);
        model->values[i] = add_number(text, model_words[i].unit, model_words[i].most);
        add(text, "%s", left ? separators[draw(4)] : "");
    }
}

static bool makes_sense(const struct model *model)
{
    static const uint32_t rates[] = {0, 1, 2, 7, 8};
    for (size_t i = 0; i < 5; i++)
        if (model->given & 1u << rates[i] && model->values[rates[i]] < 1000)
            return false;
    return model->values[2] <= model->values[0] + model->values[1];
}

static void check_means(const struct model *model, const struct sim_speed *speed)
{
    const uint64_t found[10] = {
        speed->read, speed->write,     speed->mixed,     speed->latency_ns, speed->jitter_ns,
        speed->seed, speed->slc_bytes, speed->slc_write, speed->drain,      speed->size_bytes};
    for (uint32_t i = 0; i < 10; i++)
        if (model->given & 1u << i)
            assert_int_equal(found[i], model->values[i]);
}

static void a_model_means_what_was_written(void **state)
{
    char why[HST_AIO_REFUSAL_BYTES];
    int taken = 0;
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        struct text text = {.used = 0};
        struct sim_speed speed;
        struct model model;
        write_model(&text, &model);
        const bool is_taken = model_is_taken(text.bytes, &speed, why);
        if (is_taken != makes_sense(&model))
            fail_msg("%s: %s", text.bytes, is_taken ? "was taken" : why);
        if (is_taken)
            check_means(&model, &speed);
        else
            check_message(why);
        taken += is_taken;
    }
    assert_true(taken > ROUNDS / 10 && taken < ROUNDS);
}

struct word {
    char bytes[48];
};

/* A word that spoils any text that it is added to. */
static struct word bad_word(const char *const *keys, size_t count)
{
    static const char *const values[] = {"=-1", "=1x", "=0x10", "=99999999999999999999", "=1e9"};
    struct word word;
    const char *key = keys[draw(count)];
    if (draw(3) == 0)
        snprintf(word.bytes, sizeof word.bytes, "x%s=1", key);
    else
        snprintf(word.bytes, sizeof word.bytes, "%s%s", key, values[draw(5)]);
    return word;
}

static void check_names(const char *text, const char *why, const struct word *word)
{
    check_message(why);
    if (strncmp(why, word->bytes, strlen(word->bytes)) != 0)
        fail_msg("%s: %s", text, why);
}

static void a_text_with_one_bad_word_is_refused_and_the_word_named(void **state)
{
    static const char *const of_models[] = {"read", "lat", "slc", "size", "seed", "drain"};
    static const char *const of_rules[] = {"nth", "times", "every", "odds",     "len",
                                           "at",  "op",    "late",  "reordered"};
    char why[HST_AIO_REFUSAL_BYTES];
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        struct text model = {.used = 0}, plan = {.used = 0};
        struct word word = bad_word(of_models, 6);
        const bool last = draw(2);
        add(&model, "sim:%s%s%s", last ? "write=1G,mixed=1G," : "", word.bytes,
            last ? "" : ",write=1G");
        assert_false(model_is_taken(model.bytes, NULL, why));
        check_names(model.bytes, why, &word);

        word = bad_word(of_rules, 9);
        add(&plan, "%s%s%s", draw(2) ? "op=write nth=17 err=EIO;" : "seed=7;", word.bytes,
            draw(2) ? " torn" : "; vanish");
        assert_false(plan_is_taken(plan.bytes, NULL, why));
        check_names(plan.bytes, why, &word);
    }
}

/* Bytes from the alphabet of the two languages, cut and mixed at random. */
static void no_text_is_taken_with_numbers_out_of_range(void **state)
{
    static const char *const parts[] = {
        "sim:",      "read",    "write", "mixed", "lat",    "jitter",    "slc",  "size",
        "=",         "=",       "=",     ",",     " ",      ";",         "\n",   "1",
        "0",         "9999999", "K",     "Gi",    "T",      "us",        "s",    ".",
        "-",         "op",      "nth",   "every", "times",  "odds",      "at",   "len",
        "err",       "EIO",     "5",     "short", "half",   "torn",      "late", "flip",
        "all",       "seed",    "\xff",  "%s",    "vanish", "reordered", "any",  "read=1M,",
        "write=1M,", "err=EIO;"};
    char why[HST_AIO_REFUSAL_BYTES];
    int models = 0, plans = 0;
    (void)state;
    for (int round = 0; round < 10 * ROUNDS; round++) {
        struct text text = {.used = 0};
        struct sim_speed speed;
        static struct fault_plan plan;
        add(&text, "%s", draw(2) ? "sim:read=1M,write=1M," : "");
        for (uint64_t n = draw(12); n > 0; n--)
            add(&text, "%s", parts[draw(sizeof parts / sizeof *parts)]);
        if (model_is_taken(text.bytes, &speed, why)) {
            models++;
            assert_in_range(speed.read, 1000, 1000000000000000);
            assert_in_range(speed.write, 1000, 1000000000000000);
            assert_true(speed.mixed <= speed.read + speed.write);
            assert_true(speed.latency_ns <= 1000000000000 && speed.jitter_ns <= 1000000000000);
            assert_true(speed.slc_bytes > 0 && speed.size_bytes > 0 && speed.slc_write > 0);
        } else {
            check_message(why);
        }
        if (plan_is_taken(text.bytes, &plan, why)) {
            plans++;
            for (uint32_t i = 0; i < plan.rule_count; i++) {
                const struct fault_rule *rule = &plan.rules[i];
                assert_true(rule->what != FAULT_NONE && rule->nth > 0 && rule->every > 0);
                assert_true(rule->times > 0 && rule->odds > 0 && rule->error >= 0);
                assert_true(rule->at + rule->length_bytes >= rule->at);
            }
        } else {
            check_message(why);
        }
    }
    assert_true(models > 100 && plans > 100);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(a_text_is_refused_with_the_word_that_is_wrong),
        cmocka_unit_test(a_plan_has_at_most_64_rules),
        cmocka_unit_test(the_message_reaches_the_caller_of_open),
        cmocka_unit_test(a_model_means_what_was_written),
        cmocka_unit_test(a_text_with_one_bad_word_is_refused_and_the_word_named),
        cmocka_unit_test(no_text_is_taken_with_numbers_out_of_range),
    };
    seed = hst_aio_now_ns();
    if (argc == 3 && strcmp(argv[1], "--seed") == 0)
        seed = strtoull(argv[2], NULL, 10);
    printf("replay with --seed %llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests(cases, NULL, NULL);
}
