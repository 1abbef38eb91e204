# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of `inspect`, and of how exports and ones are told. See
mutation_rows.py."""
from mutation_rows import mutate

mutate(
    'tools/hf/fold.c', 'tools/hf_fold',
    ('types are rows of their own',
     'order = order ? order : strcmp(a->tensor->dtype, b->tensor->dtype);',
     ''),
    ('shapes are rows of their own',
     ': memcmp(a->tensor->dims, b->tensor->dims, dims * sizeof(uint64_t));', ': 0;'),
    ('a range has no gaps', ': width == count  ? "%u..%u"', ': width > 0  ? "%u..%u"'),
    ('rows are where their first tensor is',
     'qsort(found, n, sizeof *found, compare_rows);', '(void)compare_rows;'),
)

mutate(
    'tools/verbs/inspect_weights.c', 'e2e/look',
    ('what has no room is counted',
     'const size_t shown = count <= left ? count : left ? left - 1 : 0;',
     'const size_t shown = count;\n    (void)left;'),
    ('a config.json alone is a model', 'int native = bare ? 0 :', 'int native ='),
    ('what can not be trained begins with no weights', 'look->trainable ? ": plan',
     'true ? ": plan'),
)

mutate(
    'tools/verbs/inspect.c', 'e2e/look',
    ('a config.json is its directory', 'operands->count == 1 && cut_config(first);', 'false;'),
)

mutate(
    'tools/verbs/inspect_run.c', 'e2e/look',
    ('a run that goes on has no end yet', 'facts->complete = false;', ''),
    ('what stands at the end of a trace counts', 'const size_t end = got == 0 ? n : n <= OVERLAP',
     'const size_t end = n <= OVERLAP'),
    ('lines that are too long are odd', 'facts->odd_lines += begun ? 0 : !ends;', ''),
)

mutate(
    'tools/verbs/inspect_measured.c', 'e2e/look',
    ('steady rates go first', 'if (steady || (!f->steady[drive][k]',
     'if (0 || (!f->steady[drive][k]'),
)

mutate(
    'tools/verbs/train_export.c', 'tools/hf_waiting',
    ('what is written again counts once', 'x->infinite_count = 0;', ''),
)

mutate(
    'tools/base/text.c', 'tools/cli_trained',
    ('one is no plural', 'return count == 1 ? "" : "s";', 'return "s";\n    (void)count;'),
)
