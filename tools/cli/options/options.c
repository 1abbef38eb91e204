/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides what a command line means, from the tables alone. A repeated option is refused rather
 * than the last one taken: in a long command that was put together from pieces, two values are a
 * mistake to be seen.
 */
#include "cli/options/options.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

struct found {
    const struct hst_option *option;
    void *target;
    size_t index; /* over all sets */
};

struct cli_parser {
    const struct cli_verb *verb;
    struct hst_error *error;
    bool given[CLI_MAX_OPTIONS];
};

const char *cli_command(const struct cli_verb *verb, char dst[64])
{
    if (verb->command)
        return verb->command;
    snprintf(dst, 64, "hoistway %.50s", verb->name);
    return dst;
}

/* `name` need not be terminated. */
static bool find(const struct cli_verb *verb, const char *name, size_t length, struct found *found)
{
    size_t index = 0;
    for (size_t s = 0; s < verb->set_count; s++) {
        for (size_t i = 0; i < verb->sets[s].count; i++, index++) {
            const struct hst_option *o = &verb->sets[s].options[i];
            assert(index < CLI_MAX_OPTIONS);
            if (strlen(o->name) == length && memcmp(o->name, name, length) == 0) {
                *found = (struct found){o, verb->sets[s].target, index};
                return true;
            }
        }
    }
    return false;
}

const struct hst_option *cli_option_find(const struct cli_parser *p, const char *name,
                                         const struct hst_option **kin)
{
    struct found found, kins;
    *kin = NULL;
    if (find(p->verb, name, strlen(name), &found))
        return found.option;
    if (p->verb->kin && find(p->verb->kin, name, strlen(name), &kins))
        *kin = kins.option;
    return NULL;
}

int cli_option_unknown(const struct cli_parser *p, const char *name, const char *place)
{
    const char *names[CLI_MAX_OPTIONS];
    const struct hst_option *kin;
    char command[64];
    size_t count = 0;
    for (size_t s = 0; s < p->verb->set_count; s++)
        for (size_t i = 0; i < p->verb->sets[s].count && count < CLI_MAX_OPTIONS; i++)
            names[count++] = p->verb->sets[s].options[i].name;
    (void)cli_option_find(p, name, &kin);
    if (kin)
        return fail(p->error, FAIL_USAGE, -EINVAL,
                    "%sunknown option --%s of %s: it is an option of %s. Fix: leave it out.", place,
                    name, p->verb->name, p->verb->kin->name);
    const char *nearest = cli_nearest(name, names, count);
    if (nearest)
        return fail(p->error, FAIL_USAGE, -EINVAL,
                    "%sunknown option --%.64s of %s. Did you mean --%s?", place, name,
                    p->verb->name, nearest);
    return fail(p->error, FAIL_USAGE, -EINVAL,
                "%sunknown option --%.64s of %s. '%s --help' lists its options.", place, name,
                p->verb->name, cli_command(p->verb, command));
}

/*
 * The value of argv[i], from behind '=' or from the next argument; flags have none. Null: missing.
 */
static const char *value_of(const struct hst_option *o, const char *equals, int argc,
                            char *const *argv, int *i)
{
    if (equals)
        return equals + 1;
    if (o->type == HST_OPTION_FLAG)
        return "";
    /* "--export --log x" forgot a value; a value that starts so can be given with '='. */
    if (*i + 1 >= argc || strncmp(argv[*i + 1], "--", 2) == 0)
        return NULL;
    return argv[++*i];
}

static int parse_value(struct cli_parser *p, const struct found *found, const char *value)
{
    const struct hst_option *o = found->option;
    char why[400], command[64], meant[CLI_MEANT_BYTES];
    if (hst_option_parse(o, value, found->target, why, sizeof why) == 0)
        return 0;
    if (cli_value_meant(o, value, meant))
        return fail(p->error, FAIL_VALUE, -EINVAL, "--%s: %s. Did you mean --%s %s?", o->name, why,
                    o->name, meant);
    return fail(p->error, FAIL_VALUE, -EINVAL, "--%s: %s. See '%s --help'.", o->name, why,
                cli_command(p->verb, command));
}

static int parse_option(struct cli_parser *p, int argc, char *const *argv, int *i)
{
    const char *name = argv[*i] + 2;
    const char *equals = strchr(name, '=');
    size_t length = equals ? (size_t)(equals - name) : strlen(name);
    struct found found;
    if (!find(p->verb, name, length, &found)) {
        char typed[64];
        snprintf(typed, sizeof typed, "%.*s", length < 64 ? (int)length : 64, name);
        return cli_option_unknown(p, typed, "");
    }
    const struct hst_option *o = found.option;
    if (p->given[found.index] && o->type != HST_OPTION_TEXTS)
        return fail(p->error, FAIL_VALUE, -EINVAL,
                    "--%s is given twice (the second at '%.60s'). Fix: leave one of them out.",
                    o->name, argv[*i]);
    const char *value = value_of(o, equals, argc, argv, i);
    if (!value)
        return fail(p->error, FAIL_VALUE, -EINVAL, "--%s needs a value. Fix: --%s %s (%s).",
                    o->name, o->name, o->argument, o->help);
    if (o->type == HST_OPTION_FLAG && equals)
        return fail(p->error, FAIL_VALUE, -EINVAL,
                    "--%s takes no value (got '%.60s'). Fix: --%s alone.", o->name, value, o->name);
    if (parse_value(p, &found, value))
        return -EINVAL;
    p->given[found.index] = true;
    return 0;
}

enum cli_supplied cli_supply(struct cli_parser *p, const char *option, const char *value,
                             char why[CLI_WHY_BYTES])
{
    struct found found;
    if (!find(p->verb, option, strlen(option), &found))
        return CLI_NO_OPTION;
    if (p->given[found.index])
        return CLI_OVERRULED;
    if (value && hst_option_parse(found.option, value, found.target, why, CLI_WHY_BYTES))
        return CLI_BAD_VALUE;
    p->given[found.index] = value != NULL;
    return CLI_TAKEN;
}

const char *cli_required(const struct cli_verb *verb, const char *name)
{
    const size_t length = strlen(name);
    for (const char *const *entry = verb->required; entry && *entry; entry++)
        for (const char *at = *entry; *at; at += strcspn(at, "|"), at += *at == '|')
            if (strcspn(at, "|") == length && memcmp(at, name, length) == 0)
                return *entry;
    return NULL;
}

/* One entry of the required ones: any of its alternatives will do. */
static int check_alternatives(const struct cli_parser *p, const char *entry)
{
    char command[64], wanted[256] = "";
    for (const char *at = entry; *at; at += strcspn(at, "|"), at += *at == '|') {
        struct found found;
        bool known = find(p->verb, at, strcspn(at, "|"), &found);
        assert(known);
        if (!known || p->given[found.index])
            return 0;
        size_t n = strlen(wanted);
        snprintf(wanted + n, sizeof wanted - n, "%s--%s %s (%s)", n ? " or " : "",
                 found.option->name, found.option->argument, found.option->help);
    }
    return fail(p->error, FAIL_MISSING, -EINVAL, "%s needs %s. See '%s --help'.", p->verb->name,
                wanted, cli_command(p->verb, command));
}

static int check_required(const struct cli_parser *p)
{
    int native = 0;
    for (const char *const *entry = p->verb->required; !native && entry && *entry; entry++)
        native = check_alternatives(p, *entry);
    return native;
}

static int take_operand(const struct cli_verb *verb, const char *text, struct hst_error *error)
{
    struct cli_operands *operands = verb->operands;
    char command[64];
    if (!operands || (text[0] == '-' && text[1] != '\0'))
        return fail(error, FAIL_USAGE, -EINVAL,
                    "unexpected argument '%.100s': %s takes %soptions, each written --name "
                    "value. See '%s --help'.",
                    text, verb->name, operands ? "" : "only ", cli_command(verb, command));
    if (operands->count == CLI_MAX_OPERANDS)
        return fail(error, FAIL_USAGE, -EINVAL,
                    "too many arguments (the first beyond %u: '%.100s'). See '%s --help'.",
                    CLI_MAX_OPERANDS, text, cli_command(verb, command));
    operands->values[operands->count++] = text;
    return 0;
}

int cli_parse(const struct cli_verb *verb, int argc, char *const *argv, bool *help,
              struct hst_error *error)
{
    struct cli_parser p = {.verb = verb, .error = error};
    bool done = false;
    *help = false;
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            *help = true;
            return 0;
        }
        bool option = strncmp(argv[i], "--", 2) == 0 && argv[i][2] != '\0';
        int bad = option ? parse_option(&p, argc, argv, &i) : take_operand(verb, argv[i], error);
        if (bad)
            return bad;
    }
    int native = verb->more ? verb->more(&p, verb->more_context, &done, error) : 0;
    return native || done ? native : check_required(&p);
}
