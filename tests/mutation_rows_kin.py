# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of what Mistral and Qwen3 add to Llama."""
from mutation_rows import mutate

mutate(
    'tools/model/layer.c', 'tools/model/golden',
    ('q is normed', 'pass_head_norm(p, c->heads, w->q_made, LAYER_Q_NORM, w->q, w->rstd_q);',
     'pass_copy(p, w->q, w->q_made, p->tokens * p->model->q_width * 4);'),
    ('each by its own weight', 'w->k_made, LAYER_K_NORM, w->k, w->rstd_k);',
     'w->k_made, LAYER_Q_NORM, w->k, w->rstd_k);'),
    ('the gradient passes through', 'LAYER_K_NORM, w->rstd_k, w->dk, w->dk);',
     'LAYER_K_NORM, w->rstd_k, w->dk, w->dout);'),
    ('after the rotation', '    pass_rope(p, w->dq, c->heads, true);\n', ''),
)
mutate(
    'tools/model/layer.c', 'tools/model/step',
    ('what was saved is turned once more', 'if (p->model->config.qk_norm) /*', 'if (0) /*'),
)
mutate(
    'tools/model/work.c', 'tools/model/step',
    ('what products give is saved', '    if (!model->config.qk_norm) {\n        work->q =',
     '    if (1) {\n        work->q ='),
)
mutate(
    'tools/model/model.c', 'tools/model/model',
    ('a window bounds sequences', 'c->window && r->seq_len > c->window', '0'),
    ('a window may be filled', 'r->seq_len > c->window', 'r->seq_len >= c->window'),
    ('two vectors more', 'model->config.qk_norm ? LAYER_PARAM_MAX : LAYER_Q_NORM',
     'LAYER_Q_NORM'),
)
mutate(
    'tools/model/operations.c', 'tools/model/operations',
    ('their text tells normed heads', 'c->qk_norm ? "normed " : ""', '""'),
)
mutate(
    'tools/hf/config.c', 'tools/hf_architectures',
    ('each has a type', '!jsn_equals(s->text, v, a->type)', '0'),
    ('what others take for something else must be there',
     'i < sizeof a->needs / sizeof *a->needs &&', '0 &&'),
    ('a Llama has no window', '    if (a->windowed < 0)\n        return 0;\n', ''),
    ('a Mistral says whether it has one', 'if (used && v.type == JSN_ERROR)', 'if (0)'),
    ('a Qwen3 says whether it is used', 'if (rc || !used || !config_has(v))',
     'if (rc || !config_has(v))'),
    ('a window is a size', ' || value < 1 || value > INT32_MAX) {\n        v = jsn_shown(v);\n'
     '        return refuse(FAIL_CONFIG_VALUE,\n                      "%s: sliding_window',
     ') {\n        v = jsn_shown(v);\n'
     '        return refuse(FAIL_CONFIG_VALUE,\n                      "%s: sliding_window'),
    ('layers have known types', 'type.type == JSN_STRING && (jsn', '1 || (jsn'),
    ('a window of layers needs one', '(window && jsn_equals', '(jsn_equals'),
)
