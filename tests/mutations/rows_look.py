# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of `inspect`, and of how exports and ones are told. See
rows.py."""
from rows import mutate

mutate(
    'tools/hf/export/fold.c', 'tools/hf_fold',
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
    'tools/verbs/inspect/weights.c', 'e2e/look',
    ('what has no room is counted',
     'const size_t shown = count <= left ? count : left ? left - 1 : 0;',
     'const size_t shown = count;\n    (void)left;'),
    ('a config.json alone is a model', 'int native = bare ? 0 :', 'int native ='),
    ('what cannot be trained begins with no weights', 'look->trainable ? ": plan',
     'true ? ": plan'),
)

mutate(
    'tools/verbs/inspect/inspect.c', 'e2e/look',
    ('a config.json is its directory', 'operands->count == 1 && cut_config(first);', 'false;'),
)

mutate(
    'tools/verbs/inspect/run.c', 'e2e/look',
    ('what stands at the end of a trace counts', 'const size_t end = got == 0 ? n : n <= OVERLAP',
     'const size_t end = n <= OVERLAP'),
)

mutate(
    'tools/views/facts.c', 'e2e/look',
    ('a run that goes on has no end yet', 'facts->complete = false;', ''),
)

mutate(
    'tools/views/facts.c', 'tools/views/runs',
    ('a best one that no line has is not known', 'else if (best != facts->best_evaluation.step)',
     'else if (false)'),
    ('an earlier best one stays the best', 'if (best == record->step)', 'if (best)'),
)

mutate(
    'tools/views/record.c', 'e2e/look tools/views/runs',
    ('lines that are too long are odd', 'if (!begun)\n            take',
     'if (ends)\n            take'),
    ('what is null is unknown', 'record.values[m] = NAN;', 'record.values[m] = 0;'),
)

mutate(
    'tools/views/history.c', 'tools/views/views tools/views/runs',
    ('means are of all steps', 'add_point(&sum, &points[i + 1]);', '(void)add_point;'),
    ('what no chart has room for is unknown', 'fabs(value) < GREATEST',
     '!isnan(value)'),
    ('an evaluation is at its step', 'if (!record_measures(record))',
     'if (record->kind != RECORD_STEP)'),
)

mutate(
    'tools/views/chart.c', 'tools/views/runs',
    ('a lane that moves nothing is left out', 'if (isfinite(value) && value != 0)',
     'if (isfinite(value))'),
    ('what is unknown is a hole', 'pen = isfinite(value) || (joined && pen);', 'pen = true;'),
    ('evaluations are joined', '(joined && pen)', 'false'),
    ('a best step that the chart does not reach is not marked', ' || mark->step < history->first)',
     ')'),
    ('a best loss without room is not marked', '!history_has_room(mark->value) ||', 'false ||'),
    ('the mark is where the best one was', 'mark->step - history->first, marked',
     '0, marked'),
)

mutate(
    'tools/views/frame.c', 'tools/views/runs',
    ('names stay text', 'strchr("<>', 'strchr(">'),
)

mutate(
    'tools/views/views.c', 'tools/views/views',
    ('the first failure is told', 'views->error = *error;', ''),
)

mutate(
    'tools/verbs/train/log.c', 'tools/views/runs',
    ('what an earlier run has told is a part of its views',
     'if (!native && t->began > 0 && t->log.reader.take && is_regular(o->log))'),
    ('a run begins with a page', 'views_show(&t->views);', ''),
    ('what cannot be written is refused as the run begins',
     'if (!native && t->views.native)'),
)

mutate(
    'tools/verbs/inspect/measured.c', 'e2e/look',
    ('steady rates go first', 'if (steady || (!f->steady[drive][k]',
     'if (0 || (!f->steady[drive][k]'),
)

mutate(
    'tools/verbs/train/export.c', 'tools/hf_waiting',
    ('what is written again counts once', 'x->infinite_count = 0;', ''),
)

mutate(
    'tools/base/text.c', 'tools/cli_trained',
    ('one is no plural', 'return count == 1 ? "" : "s";', 'return "s";\n    (void)count;'),
)
