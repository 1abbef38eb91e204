# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of the answers to words on the command line."""
from mutation_rows import mutate

mutate(
    'tools/verbs/train_inputs.c', 'tools/cli_program',
    ('a name that plan knows is no directory', 'if (hst_shape_find(o->model) && ', 'if (false && '),
)
mutate(
    'tools/hf/model.c', 'tools/cli_program',
    ('the fix of a missing directory names one', '"download it there, or set HF_HOME to where it is"\n'
     '                      : rc == -ENOENT || ',
     '"download it there, or set HF_HOME to where it is"\n                      : '),
    ('the fix of a missing config.json names a directory',
     '    if (rc == -ENOENT)\n        return fail(error, FAIL_CONFIG_FILE, rc, "%s: %s. Fix: "',
     '    if (false)\n        return fail(error, FAIL_CONFIG_FILE, rc, "%s: %s. Fix: "'),
)
