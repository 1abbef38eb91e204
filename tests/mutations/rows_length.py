# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of how long a run is, and at what learning rates."""
from rows import mutate

mutate(
    'tools/cli/schedule.c', 'tools/cli_schedule',
    ('a warmup of 0 steps is one of 1', 'schedule->warmup_steps > 0 ? schedule->warmup_steps : 1',
     'schedule->warmup_steps'),
    ('the last step has more than 0', 'const double left = (double)(n + 1 - step)',
     'const double left = (double)(n - step)'),
    ('the first behind the warmup has less than the peak', '/ (double)(n - w + 1);',
     '/ (double)(n - w);'),
    ('linear ends at lr-end', 'return lr * (e + (1 - e) * left);', 'return lr * left;'),
    ('cosine ends at lr-end', 'return lr * (e + (1 - e) * cosine(left));',
     'return lr * cosine(left);'),
    ('cosine does not cancel near the end', '    double root = sin(0.5 * M_PI * left);\n'
     '    return root * root;', '    return 0.5 * (1 - cos(M_PI * left));'),
    ('wsd is stable until its last steps', 'return step <= n - d ? lr :',
     'return step < n - d - 1 ? lr :'),
    ('wsd is linear in its decay', '((double)(n + 1 - step) / (double)d)',
     '((double)(n - step) / (double)d)'),
    ('a percentage is rounded up', 'fabs(x - nearest) <= 4 * DBL_EPSILON * x ? nearest : ceil(x)',
     'nearest'),
    ('as if it were exact', 'fabs(x - nearest) <= 4 * DBL_EPSILON * x ? nearest : ceil(x)',
     'ceil(x)'),
)
mutate(
    'tools/cli/loss_watch.c', 'tools/cli_schedule',
    ('a loss is told once', 'if (watch->told || ', 'if ('),
    ('steps are counted anew where one is not above', 'above ? watch->above + 1 : 0',
     'watch->above + above'),
    ('what is no number is above', '!(loss <= watch->first + LOSS_WATCH_NATS)',
     'loss > watch->first + LOSS_WATCH_NATS'),
    ('the first that is compared with is a number', 'watch->begun = isfinite(loss);',
     'watch->begun = true;'),
)
mutate(
    'tools/verbs/train/train.c', 'tools/cli_trained',
    ('a run looks at its losses', '    watch_loss(t, number, loss);\n', ''),
)
mutate(
    'engine/base/option_parse.c', 'tools/cli_values',
    ('0 % is 0', 'if (!error && read.percent == 0 && o->least > 0)'),
    ('nothing is more than all', '{.least = 0, .greatest = 100}', '{.least = 0, .greatest = 1000}'),
)
mutate(
    'tools/verbs/train/options.c', 'tools/cli_options',
    ('a run has one length', 'if (!native && o->steps > 0 && o->epochs > 0)'),
    ('a run trains something', 'if (o->lr == 0)'),
    ('a constant rate has no end', 'if (o->schedule == SCHEDULE_CONSTANT && ends)'),
    ('a decay is of wsd', 'if (o->schedule != SCHEDULE_WSD && decays)'),
    ('a warmup has room', 'if (warmup > o->steps)'),
    ('a decay has room', 'if (o->schedule == SCHEDULE_WSD && rise + decay > o->steps)'),
    ('its peak may be the last step of the warmup', 'warmup > 0 ? warmup - 1 : 0;', 'warmup;'),
)
mutate(
    'tools/verbs/train/ways_options.c', 'tools/cli_options',
    ('the batch bounds what was not given',
     'way < DEFAULT_SEQ_LEN && way > 0 ? way : DEFAULT_SEQ_LEN', 'DEFAULT_SEQ_LEN'),
    ('each way has a sequence', 'least * (held ? held : 1);', 'DEFAULT_BATCH_TOKENS;'),
    ('a batch has whole sequences in each way', 'if (batch % (length * ways) == 0)',
     'if (batch % length == 0)'),
    ('the nearest below is told', 'if (below > 0)'),
    ('a hop is a power of two', 'below == o->engine.hop)', 'below <= o->engine.hop)'),
    ('ranks have as many ways', 'ways % ranks == 0 &&', ''),
    ("and a power of two of them", '&& is_power_of_two(ways / ranks)', ''),
)
mutate(
    'tools/data/data.c', 'tools/data/data',
    ('data that has enough is not shortened', 'd->token_count <= d->seq_len)', 'd->token_count)'),
    ('only what was not given is shortened', 'config->may_shorten && ', ''),
)
mutate(
    'tools/verbs/train/length.c', 'tools/cli_trained',
    ('the default batch is whole sequences', 'if (o->default_batch)'),
    ('a batch that was given is not changed', 'if (o->default_batch)', 'if (1)'),
    ('a default batch has no sequence twice', 'held < most ? held : most', 'held'),
    ('steps have a bound', 'if (steps > TRAIN_MOST_STEPS)'),
)
mutate(
    'tools/verbs/train/resume.c', 'e2e/resume',
    ('the formula has a version', 'text_bytes - (size_t)n, " v%d", SCHEDULE_VERSION);',
     'text_bytes - (size_t)n, "%.0d", SCHEDULE_VERSION * 0);'),
    ('what is typed has none', 'typed_length(c->was, c->was_length)', 'c->was_length'),
    ('the decay is compared', 'if (s->shape == SCHEDULE_WSD)'),
    ('lr-end is compared', '                      s->lr_end, s->steps);',
     '                      0.0, s->steps);'),
)
