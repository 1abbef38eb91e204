# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of samples."""
from rows import mutate

mutate(
    'tools/verbs/train/samples.c', 'e2e/samples',
    ('prompts have to be there', 'if (!p->path)\n'),
    ('and the bytes of ids', 'if (p->id_count == 0)'),
    ('as many as were asked for', 'if (p->count < o->samples)'),
    ('a prompt fits a sequence', 'if (p->starts[i + 1] - p->starts[i] > o->seq_len)'),
    ('those of --eval go first',
     't->options->eval ? data_prompts(t->eval.data, most, p, t->error) : 0', '0'),
    ('an end ends it', 'sample->ended = is_end(&t->samples, id);', ''),
    ('each goes on behind its last token', 'sample->length + sample->made - 1',
     'sample->length - 1'),
    ('each sees itself alone', '(uint32_t)(sample->begin % t->options->seq_len)', '0'),
)
mutate(
    'tools/verbs/train/train.c', 'e2e/samples',
    ('samples come with evaluations', 't->eval.data ? t->eval.count > before : ', ''),
)
mutate(
    'tools/hf/ends.c', 'e2e/samples',
    ('config.json has ends too', 'if (ends.count == 0)', 'if (0)'),
    ('an end may be one of a list', 'if (v.type != JSN_ARRAY)', 'if (1)'),
)
mutate(
    'tools/cli/log/runlog.c', 'e2e/samples',
    ('a sample is told once',
     '(log->sampled_step == report->step && report->number <= log->sampled)', '0'),
)
mutate(
    'tools/model/layer/head.c', 'tools/model/step tools/model/slices',
    ('logits begin where operations can', '(row + i) % ALIGNED', '0'),
    ('of its own token', '((size_t)choice->token - to->first_token - c->first) * b.rows', '0'),
    ('ids of a slice', 'b.first_row + i, count', 'i, count'),
)
