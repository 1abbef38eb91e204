# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of tokens of which nothing is learned,
and out of samples."""
from rows import mutate

mutate(
    'kernels/host/ops/cross_entropy.c', 'kernels/targets',
    ('a row without a target is none out of range',
     'a.targets[t] >= a.vocab && a.targets[t] != HST_NO_TARGET', 'a.targets[t] >= a.vocab'),
    ('its loss is written', '        a->loss[t] = 0;', '        ;'),
    ('its gradient is written', 'memset(row, 0, a->columns * hst_dtype_bytes(a->dtype));', ';'),
    ('its logits stay where no gradient is asked for', '    if (a->want_grad)\n        memset',
     '    memset'),
)
mutate(
    'kernels/host/ops/cross_entropy.c', 'kernels/blocks',
    ('a loss is written with the last block alone', 'ends_row(a) && (!a->state || !a->want_grad)',
     '(!a->state || !a->want_grad)'),
    ('and not in the second pass', 'ends_row(a) && (!a->state || !a->want_grad)', 'ends_row(a)'),
)
mutate(
    'kernels/cuda/ops/cross_entropy.cu', 'simt/suite/targets',
    ('a row without a target is a row of NaN nowhere', 'a.targets[t] == HST_NO_TARGET', 'false'),
    ('its gradient is all of the row', 'store_f32(row + i, none);', 'store_f32(row, none);'),
)
mutate(
    'kernels/cuda/ops/cross_entropy.cu', 'simt/suite/blocks',
    ('a loss is not written in the second pass',
     'a.first_column + a.columns == a.vocab && !(a.state && a.want_grad))',
     'a.first_column + a.columns == a.vocab)'),
)
mutate(
    'kernels/operations.c', 'kernels/tokens',
    ('no id stands for nothing', 'if (args->vocab > INT32_MAX)', 'if (0)'),
)
mutate(
    'tools/model/step.c', 'tools/model/head',
    ('a gradient is divided by all targets of the step',
     '(double)begun.loss_scale / (double)targets',
     '(double)begun.loss_scale / (double)model->run.batch_tokens'),
    ('a loss is the mean over targets', 'ended.sums[0] / (double)model->target_count;',
     'ended.sums[0] / (double)model->run.batch_tokens;'),
)
mutate(
    'tools/model/step.c', 'tools/model/step',
    ('a step without a target is refused', 'if (targets == 0 || !batch_ok', 'if (!batch_ok'),
    ('what there is no room for is refused',
     'targets == 0 || !batch_ok(batch, model->run.documents)',
     'targets == 0'),
)
mutate(
    'tools/verbs/train/samples.c', 'e2e/samples',
    ('prompts have to be there', 'if (!p->path)\n'),
    ('and the bytes of ids', 'if (p->id_count == 0)'),
    ('as many as were asked for', 'if (p->count < o->samples)'),
    ('a prompt fits a sequence', 'if (p->starts[i + 1] - p->starts[i] > o->seq_len)'),
    ('those of --eval go first',
     't->options->eval ? data_prompts(t->eval.data, most, p, t->error) : 0', '0'),
    ('an end ends it', 'sample->ended = is_end(&t->samples, (uint32_t)found);', ''),
    ('each goes on behind its last token', 'sample->length + sample->made - 1',
     'sample->length - 1'),
    ('a stop ends the last ones alone', 'if (native != -ECANCELED || !train_stopped(t))',
     'if (native)'),
    ('what is no number ends it', 'sample->lost = found == NO_ID;', ''),
    ('each sees itself alone', '(uint32_t)(begin % t->options->seq_len)', '0'),
)
mutate(
    'tools/verbs/train/eval_options.c', 'e2e/samples',
    ('samples have to be shown',
     'if (o->samples && o->quiet && !o->log && !train_options_other(o))'),
)
mutate(
    'tools/verbs/train/train.c', 'e2e/samples',
    ('the last ones wait until the model is there',
     'due && (step >= t->options->steps || t->eval.ended)', 'false'),
    ('samples come with evaluations', 't->eval.data ? t->eval.count > before : ', ''),
)
mutate(
    'tools/hf/ends.c', 'e2e/samples',
    ('config.json has ends too',
     'take_all(&ends, model, model->config_text, model->config_bytes);', ';'),
    ('an end may be one of a list', 'if (v.type != JSN_ARRAY)', 'if (1)'),
)
mutate(
    'tools/cli/log/runlog.c', 'e2e/samples',
    ('a sample is told once',
     '        json_put_bool(&json, "nonfinite", true);\n    if (was_found(log))',
     '        json_put_bool(&json, "nonfinite", true);\n    if (0)'),
    ('another one is told', 'memcmp(log->found + at, log->text, bytes) == 0', '1'),
    ('the time is no part of it', 'end ? (size_t)(end - line) : strlen(line)', 'strlen(line)'),
)
mutate(
    'tools/cli/log/runlog.c', 'e2e/evaluation',
    ('an evaluation is told once',
     '    json_put_whole(&json, "targets", report->targets);\n    if (was_found(log))',
     '    json_put_whole(&json, "targets", report->targets);\n    if (0)'),
)
mutate(
    'tools/model/layer/head.c', 'tools/model/step tools/model/slices',
    ('logits begin where operations can', '(row + i) % ALIGNED', '0'),
    ('of its own token', '((size_t)choice->token - to->first_token - c->first) * b.rows', '0'),
    ('ids of a slice', 'b.first_row + i, count', 'i, count'),
)
