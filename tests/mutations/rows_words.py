# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of the answers to words on the command line."""
from rows import mutate

mutate(
    'tools/verbs/train_inputs.c', 'tools/cli_program',
    ('a name that plan knows is no directory', 'if (hst_shape_find(o->model) && ',
     'if (false && '),
)
mutate(
    'tools/hf/model.c', 'tools/cli_program',
    ('the fix of a missing directory names one',
     'to where it is"\n                      : rc == -ENOENT || ',
     'to where it is"\n                      : '),
    ('the fix of a missing config.json names a directory',
     '    if (rc == -ENOENT)\n        return fail(error, FAIL_CONFIG_FILE, rc, "%s: %s. Fix: "',
     '    if (false)\n        return fail(error, FAIL_CONFIG_FILE, rc, "%s: %s. Fix: "'),
)
mutate(
    'tools/cli/nearest.c', 'tools/cli_options',
    ('what other programs call it comes before edits',
     '*nearest = cli_synonym(name, candidates, count);', '*nearest = NULL;'),
    ('_ is -', "c == '_' ? '-' :", "c == '_' ? '_' :"),
)
mutate(
    'tools/cli/meant.c', 'tools/cli_options',
    ('what is told is a value that the option takes',
     'return hst_option_parse(&size, dst, &bytes, why, sizeof why) == 0;', 'return true;'),
    ('a few bytes were meant to be more', 'if (!plain && !strchr(', 'if (!strchr('),
)
mutate(
    'tools/cli/options.c', 'tools/cli_plan',
    ('an option of train is not unknown to plan', 'if (p->verb->kin && ', 'if (false && '),
)
mutate(
    'tools/verbs/train_engine.c', 'tools/cli_plan',
    ('--state bf16 is told what it lacks', 'return check_state(t);', 'return 0;'),
)
mutate(
    'tools/verbs/train_options.c', 'tools/cli_options',
    ('cpu is host', 'native = native ? native : check_device(options, error);', ''),
)
mutate(
    'tools/verbs/plan_report.c', 'tools/cli_plan',
    ('budgets that are needed together are in one line', '        before = "";\n', ''),
)
mutate(
    'tools/cli/help.c', 'tools/cli_program',
    ('the help says where the table is explained', 'if (verb->see)', 'if (false)'),
)
