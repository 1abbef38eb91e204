/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rotary embedding has two dialects: rope_theta with rope_scaling (transformers 4), and
 * rope_parameters that holds everything (transformers 5). Both are read; where both stand there
 * they must agree. A wrong base trains without any sign of it, so little is assumed: unknown types
 * and keys are refused, and so is silence, but for a Llama: those of before the key mean 10,000.
 */
#include "hf/config/config.h"

#include <errno.h>
#include <string.h>

enum { TYPE, TYPE_OLD, THETA, FACTOR, LOW, HIGH, ORIGINAL, PARTIAL, ROPE_KEYS };
static const char *const rope_keys[ROPE_KEYS] = {
    [TYPE] = "rope_type",
    [TYPE_OLD] = "type",
    [THETA] = "rope_theta",
    [FACTOR] = "factor",
    [LOW] = "low_freq_factor",
    [HIGH] = "high_freq_factor",
    [ORIGINAL] = "original_max_position_embeddings",
    [PARTIAL] = "partial_rotary_factor",
};

#define refuse(code, ...) fail(s->error, code, -EBADMSG, __VA_ARGS__)

static int check_known(const struct config_source *s, const char *where, struct jsn_value object)
{
    struct jsn_reader r = jsn_reader(s->text + object.begin, object.end - object.begin);
    jsn_next(&r);
    for (struct jsn_value key = jsn_next(&r); key.type == JSN_KEY; key = jsn_next(&r)) {
        bool known = false;
        for (int i = 0; i < ROPE_KEYS; i++)
            known |= jsn_equals(r.text, key, rope_keys[i]);
        if (!known) {
            size_t n = key.end - key.begin;
            return refuse(FAIL_ARCHITECTURE, "%s: %s has unknown key %.*s", s->path, where,
                          (int)(n < 40 ? n : 40), r.text + key.begin);
        }
        jsn_next_value(&r);
    }
    return 0;
}

static int read_type(const struct config_source *s, const char *where, const struct jsn_value *v,
                     enum rope_type *type)
{
    static const char *const names[] = {"default", "linear", "llama3"};
    int found[2] = {-1, -1};
    for (int key = TYPE; key <= TYPE_OLD; key++) {
        if (!config_has(v[key]))
            continue;
        for (int i = 0; i < 3; i++)
            if (jsn_equals(s->text, v[key], names[i]))
                found[key] = i;
        size_t n = v[key].end - v[key].begin;
        if (found[key] < 0)
            return refuse(FAIL_ARCHITECTURE,
                          "%s: %s.%s is %.*s; supported: default, linear, llama3", s->path, where,
                          rope_keys[key], (int)(n < 40 ? n : 40), s->text + v[key].begin);
    }
    if (found[0] < 0 && found[1] < 0)
        return refuse(FAIL_CONFIG_VALUE, "%s: %s has no rope_type. Fix: add it", s->path, where);
    if (found[0] >= 0 && found[1] >= 0 && found[0] != found[1])
        return refuse(FAIL_CONFIG_VALUE, "%s: %s.rope_type and %s.type differ", s->path, where,
                      where);
    *type = (enum rope_type)(found[0] >= 0 ? found[0] : found[1]);
    return 0;
}

/* Keys of another type would be ignored elsewhere; here they are an error, whichever is meant. */
static int check_unused(const struct config_source *s, const char *where, const struct jsn_value *v,
                        enum rope_type type)
{
    static const int last[] = {
        [ROPE_DEFAULT] = THETA, [ROPE_LINEAR] = FACTOR, [ROPE_LLAMA3] = ORIGINAL};
    for (int key = last[type] + 1; key <= ORIGINAL; key++)
        if (config_has(v[key]))
            return refuse(FAIL_ARCHITECTURE,
                          "%s: %s.%s has no meaning for its rope_type. Fix: remove it", s->path,
                          where, rope_keys[key]);
    double partial;
    if (config_has(v[PARTIAL]) && (!jsn_real(s->text, v[PARTIAL], &partial) || partial != 1))
        return refuse(FAIL_ARCHITECTURE,
                      "%s: %s.partial_rotary_factor other than 1 is not supported", s->path, where);
    return 0;
}

static int read_object(const struct config_source *s, const char *where, struct jsn_value object,
                       struct rope_config *rope)
{
    if (object.type != JSN_OBJECT)
        return refuse(FAIL_CONFIG_VALUE, "%s: %s is not an object", s->path, where);
    int rc = check_known(s, where, object);
    if (rc)
        return rc;
    struct jsn_value v[ROPE_KEYS];
    jsn_members(s->text + object.begin, object.end - object.begin, rope_keys, ROPE_KEYS, v);
    for (int i = 0; i < ROPE_KEYS; i++) {
        v[i].begin += object.begin;
        v[i].end += object.begin;
    }
    rc = read_type(s, where, v, &rope->type);
    if (!rc)
        rc = check_unused(s, where, v, rope->type);
    if (!rc && config_has(v[THETA]))
        rc = config_real(s, "rope_theta", v[THETA], 1, 1e15, &rope->theta);
    if (!rc && rope->type != ROPE_DEFAULT)
        rc = config_real(s, "rope factor", v[FACTOR], 1, 1e6, &rope->factor);
    if (rc || rope->type != ROPE_LLAMA3)
        return rc;
    rc = config_real(s, rope_keys[LOW], v[LOW], 1e-6, 1e6, &rope->low_freq_factor);
    if (!rc)
        rc = config_real(s, rope_keys[HIGH], v[HIGH], 1e-6, 1e6, &rope->high_freq_factor);
    if (!rc)
        rc = config_real(s, rope_keys[ORIGINAL], v[ORIGINAL], 1, INT32_MAX,
                         &rope->original_max_positions);
    if (!rc && rope->high_freq_factor <= rope->low_freq_factor)
        return refuse(FAIL_CONFIG_VALUE,
                      "%s: %s: high_freq_factor must be greater than low_freq_factor", s->path,
                      where);
    return rc;
}

static bool same(const struct rope_config *a, const struct rope_config *b)
{
    return a->type == b->type && a->theta == b->theta && a->factor == b->factor &&
           a->low_freq_factor == b->low_freq_factor && a->high_freq_factor == b->high_freq_factor &&
           a->original_max_positions == b->original_max_positions;
}

/* transformers 5 takes this key for the one in the object, transformers 4 does not. */
static int check_original(const struct config_source *s, struct jsn_value v,
                          const struct rope_config *rope)
{
    double value;
    if (!config_has(v) || rope->type != ROPE_LLAMA3)
        return 0;
    if (jsn_real(s->text, v, &value) && value == rope->original_max_positions)
        return 0;
    v = jsn_shown(v);
    return refuse(FAIL_CONFIG_VALUE,
                  "%s: original_max_position_embeddings is %.*s, that of the rope is %.15g. Fix: "
                  "remove the one outside of it, if that is wrong",
                  s->path, (int)(v.end - v.begin < 40 ? v.end - v.begin : 40), s->text + v.begin,
                  rope->original_max_positions);
}

int config_rope(const struct config_source *s, const struct rope_keys *keys,
                struct rope_config *rope)
{
    const struct jsn_value theta = keys->theta, scaling = keys->scaling,
                           parameters = keys->parameters;
    struct rope_config old = {0}, new = {0};
    int rc = 0;
    if (config_has(theta))
        rc = config_real(s, "rope_theta", theta, 1, 1e15, &old.theta);
    double base = old.theta;
    if (!rc && config_has(scaling))
        rc = read_object(s, "rope_scaling", scaling, &old);
    if (!rc && config_has(parameters))
        rc = read_object(s, "rope_parameters", parameters, &new);
    if (rc)
        return rc;
    if (!new.theta)
        new.theta = old.theta;
    if (!old.theta)
        old.theta = new.theta;
    bool differ = base && (base != old.theta || (config_has(parameters) && base != new.theta));
    if (config_has(scaling) && config_has(parameters))
        differ |= !same(&old, &new);
    if (differ)
        return refuse(FAIL_CONFIG_VALUE,
                      "%s: rope_theta, rope_scaling and rope_parameters contradict each other",
                      s->path);
    *rope = config_has(parameters) ? new : old;
    if (!config_has(parameters) && rope->type != ROPE_LLAMA3) /* which came after the key */
        rope->theta = rope->theta ? rope->theta : keys->theta_default;
    if (!rope->theta)
        return refuse(FAIL_CONFIG_VALUE,
                      "%s: the base of the rotary embedding is missing: add rope_theta%s (old "
                      "Llama models mean 10000)",
                      s->path, config_has(parameters) ? " in rope_parameters" : "");
    return check_original(s, keys->original, rope);
}
