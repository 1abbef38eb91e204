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
