# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of ways of a batch and of ranks, as the model and the tools see
them."""
from rows import mutate

mutate(
    'tools/model/step.c', 'tools/model/ways',
    ('targets are those of all ranks',
     'return batch->target_count ? batch->target_count : count_targets(batch->targets, tokens);',
     'return count_targets(batch->targets, tokens);'),
    ('an evaluation ends with its tokens', '&& at.first_token < tokens)', ')'),
    ('what is behind its tokens is not counted',
     'i < tokens ? (double)step->model->host.losses[i] : 0.0',
     '(double)step->model->host.losses[i]'),
    ('a micro-batch begins where the engine says', 'return (size_t)v->at.first_token;',
     'return (size_t)v->micro * (size_t)v->step->model->run.micro_batch_tokens;'),
)
mutate(
    'tools/model/work.c', 'tools/model/ways',
    ('slices keep what a part of the batch needs',
     'head_sum_count(model, llama_part_tokens(model))',
     'head_sum_count(model, model->run.batch_tokens)'),
)
mutate(
    'tools/model/model.c', 'tools/model/ways',
    ('ways have whole sequences', 'way % r->seq_len == 0 &&', ''),
    ('a way holds a micro-batch', '&& r->micro_batch_tokens <= way;', ';'),
    ('ways are alike', '(r->ways == 0 || r->batch_tokens % r->ways == 0) &&', ''),
)
mutate(
    'tools/cli/options/launch.c', 'tools/cli_ranks',
    ('what contradicts is refused', 'launch->ranks > 1 || flags->world', 'flags->world'),
    ('a flag alone is refused', ' || flags->world || flags->rank', ''),
    ('a world without a transport is refused', 'if (launch->ranks > 1 && !launch->mpi)'),
    ('half of a source is nobody', 'native && (launch->ranks > 1 || flags->world || flags->rank)',
     'native'),
)
mutate(
    'tools/cli/message/voice.c', 'tools/cli_ranks',
    ('rank 0 does not wait', 'voice_is_other() && i < NAPS', 'i < NAPS'),
    ('what was told before is not told again', 'if (voice.ended && *voice.ended != before)'),
    ('a signal of before is none of the launcher', 'voice.ended ? *voice.ended : 0;', '0;'),
)
mutate(
    'tools/cli/message/message.c', 'tools/cli_ranks',
    ("what is the same on all ranks is rank 0's", 'if (voice_is_other())'),
)
mutate(
    'tools/verbs/train/batch.c', 'e2e/ranks',
    ('a rank reads its own rows', 'position + first, t->part.tokens / length',
     'position, t->part.tokens / length'),
    ('targets are counted in all rows', 'native ? 0 : train_batch_targets(t, rows)', '0'),
)
mutate(
    'tools/verbs/train/eval.c', 'e2e/ranks',
    ('a rank evaluates its own rows', 'first + own.first, own.count', 'first, own.count'),
    ('rows end where the data does', 'left < most ? left : most};', 'most};'),
)
mutate(
    'tools/verbs/train/stop.c', 'e2e/ranks',
    ('ranks stop together', '(t->stop.together ? t->stop.agreed : is_asked(t))', 'is_asked(t)'),
)
mutate(
    'tools/verbs/train/ranks.c', 'e2e/ranks',
    ('ranks have the same command line', 'native = same_arguments(t);', 'native = 0;'),
    ('but for what the engine compares', 'return &options[i];', 'return NULL;'),
    ('and the number of a rank', 'return &rank;', 'return NULL;'),
    ('a rank has a trace of its own', 'o->trace = ranks->trace;', ''),
    ('others write no log', '        o->log = NULL;\n', ''),
)
