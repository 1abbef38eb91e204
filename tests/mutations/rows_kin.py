# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of what Mistral, Qwen2 and Qwen3 add to Llama."""
from rows import mutate

mutate(
    'tools/model/layer/layer.c', 'tools/model/golden',
    ('q is normed',
     'pass_head_norm(p, c->heads, w->q_made, place(p, LAYER_Q_NORM), w->q, w->rstd_q);',
     'pass_copy(p, w->q, w->q_made, p->tokens * p->model->q_width * 4);'),
    ('each by its own weight', 'w->k_made, place(p, LAYER_K_NORM), w->k, w->rstd_k);',
     'w->k_made, place(p, LAYER_Q_NORM), w->k, w->rstd_k);'),
    ('the gradient passes through', 'w->rstd_k, w->dk,\n                            w->dk);',
     'w->rstd_k, w->dk,\n                            w->dout);'),
    ('v has a bias too', '    pass_bias(p, p->model->kv_width, w->v, place(p, LAYER_V_BIAS));\n',
     ''),
    ('a bias has a gradient',
     '    pass_bias_backward(p, p->model->kv_width, w->dk, place(p, LAYER_K_BIAS));\n', ''),
    ('after the rotation', '    pass_rope(p, w->dq, c->heads, true);\n', ''),
)
mutate(
    'tools/model/layer/layer.c', 'tools/model/step',
    ('what was saved is turned once more', 'if (p->model->config.qk_norm) /*', 'if (0) /*'),
)
mutate(
    'tools/model/pass.c', 'tools/model/step',
    ('norms of heads have workspace',
     'need_work(p, hst_rmsnorm_backward_work_bytes(p->device, args.tokens, args.width));',
     'need_work(p, hst_rmsnorm_backward_work_bytes(p->device, p->tokens, 1));'),
    ('so have biases', 'hst_bias_backward_work_bytes(p->device, p->tokens, width)',
     'hst_bias_backward_work_bytes(p->device, p->tokens, 1)'),
)
mutate(
    'engine/plan/layout/shapes.c', 'engine/bound',
    ('norms of heads count', 'if (s->qk_norm)', 'if (0)'),
    ('so do biases', 'if (s->qkv_bias)', 'if (0)'),
)
mutate(
    'kernels/host/ops/bias.c', 'kernels/bias',
    ('a sum goes on from what is there', '        total += vec_load(a->out, i, columns.end,',
     '        total += 0 * vec_load(a->out, i, columns.end,'),
)
mutate(
    'kernels/operations.c', 'kernels/bias',
    ('a bias is not in what it is added to', '!apart(args->x, args->tokens * row, args->bias, row)',
     '0'),
)
mutate(
    'tools/model/work.c', 'tools/model/step',
    ('what GEMMs give is saved', '    if (!model->config.qk_norm) {\n        work->q =',
     '    if (1) {\n        work->q ='),
)
mutate(
    'tools/model/model.c', 'tools/model/model',
    ('a window that is filled is none', 'window < model->run.seq_len ?',
     'window <= model->run.seq_len ?'),
    ('two vectors more', '? model->config.qk_norm :', '? false :'),
    ('three vectors more', ': model->config.qkv_bias)', ': false)'),
)
mutate(
    'tools/model/operations.c', 'tools/model/operations',
    ('their text tells normed heads', 'c->qk_norm    ? "normed "', 'c->qk_norm    ? ""'),
    ('and biases', 'c->qkv_bias ? "biased "', 'c->qkv_bias ? ""'),
    ('a bias is as long as a row of q', 'part->config.head_dim : part->q_width',
     'part->config.head_dim : 1'),
)
mutate(
    'tools/hf/config/config.c', 'tools/hf_architectures',
    ('each has a type', '!jsn_equals(s->text, v, a->type)', '0'),
    ('what others take for something else must be there',
     'i < sizeof a->needs / sizeof *a->needs &&', '0 &&'),
    ('a Llama has no window', '    if (a->windowed < 0)\n        return 0;\n', ''),
    ('who has a window says how long it is', 'if (used && v.type == JSN_ERROR)', 'if (0)'),
    ('a Qwen3 says whether it is used', 'used = used && config_has(v);', 'used = config_has(v);'),
    ('no heads of keys are as many as heads', 'key == KV_HEADS ? ', '0 ? '),
    ('heads need not divide what is given', 'if (!c->head_dim && c->hidden', 'if (c->hidden'),
    ('a window is a size', ' || value < 1 || value > INT32_MAX)) {', ')) {'),
    ('layers have known types', 'slides || (text && jsn', '1 || (text && jsn'),
    ('a window of layers needs one', 'text && window && jsn_equals', 'text && jsn_equals'),
    ('no layer may have the window', 'c->window = any ? c->window : 0;', ''),
    ('layers may be counted', 'layer < without && layer < c->layers', '0'),
    ('who counts says how many', 'if (c->window && !config_has(first))', 'if (0)'),
    ('each layer has a type', 'if (count == layers)', 'if (1)'),
    ('a Mistral does not count them', 'count = a->windowed == USE_SLIDING_WINDOW;',
     'count = true;'),
    ('a Qwen2 has biases without a word',
     'config_keys_check(s, size, architecture->qkv_bias)', 'config_keys_check(s, size, false)'),
)
mutate(
    'tools/model/layer/layer.c', 'e2e/windows',
    ('attention has a window', '        .window = p->window,\n', ''),
)
mutate(
    'tools/model/step.c', 'e2e/windows',
    ('of its own layer', 'llama_layer_window(model, at.layer)', 'llama_layer_window(model, 0)'),
)
mutate(
    'tools/verbs/train/resume.c', 'e2e/windows',
    ('a run goes on with its window',
     'n += (int)train_window_line(hf_model_config(t->source), o->seq_len, text + n,\n'
     '                                TRAIN_CURSOR_BYTES - (size_t)n);', ''),
    ('a store keeps to it', 'keeps_window(t, all, is) && ', ''),
    ('another length is told as that',
     ' || !is_same(line_of(was, "seq-len "), line_of(is, "seq-len "))', ''),
)
mutate(
    'tools/model/operations.c', 'tools/model/operations',
    ('a window is an operation of its own', 'add_attention(of, 1, layers[1]);', ''),
    ('documents have their own kernels', 'a->first = documents ? work_take',
     'a->first = 0 ? work_take'),
)
mutate(
    'tools/model/model.c', 'tools/model/operations',
    ('packed rows are of documents', 'run->documents && shorter ?', '0 ?'),
    ('a window has fewer pairs', 'window && window < tokens ?', '0 ?'),
)
