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
    ('what contradicts is refused', 'launch->ranks > 1 || launch->half_set', 'launch->half_set'),
    ('a flag alone is refused', ' || flags->world || flags->rank', ''),
    ('a world without a transport is refused',
     'if (launch->ranks <= 1 || launch->mpi)', 'if (true)'),
    ('half of a source is nobody',
     '(launch->ranks > 1 || launch->half_set ||', '(true ||'),
)
mutate(
    'tools/cli/options/launch.c', 'e2e/rank_config',
    ('what is wrong with all command lines is told once',
     'if (launch.ranks > 1)\n        voice_of(launch.rank, ended);', ''),
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
    'tools/verbs/train/eval.c', 'e2e/rank_keeps',
    ('what one rank has lost is kept by none',
     '*kept = ranks == (int64_t)train_options_ranks(t->options);', '*kept = is_kept(t, step);'),
)
mutate(
    'tools/verbs/train/samples.c', 'e2e/rank_keeps',
    ('a rank asks for its own samples', 'if (goes_on(&list[i]) && is_own(t, &list[i]))',
     'if (goes_on(&list[i]))'),
    ('others are told what was found',
     'is_own(t, &list[i]) ? found_id(&asking->choices[own++]) : 0',
     'found_id(&asking->choices[own++])'),
)
mutate(
    'tools/verbs/train/samples.c', 'e2e/rank_ends',
    ('a wish to stop is one of all', 'asking->found[asked] = train_stop_wish(t);',
     'asking->found[asked] = 0;'),
)
mutate(
    'engine/ckpt/keep.c', 'e2e/rank_keeps',
    ('what one rank cannot none does', 'most == GOOD ? 0', 'own == GOOD ? 0'),
    ('the first rank tells it', 'if (most != GOOD && first != ranks->rank) {', 'if (0) {'),
    ('copies that rank 0 does not know go',
     'if (!has_step(&first, own.steps[i]) && !is_whole(c, own.steps[i]))'),
    ('copies of later steps go first', 'kept->steps[(before + i) % count];', 'kept->steps[i];'),
    ('all find room where one has to', 'most == FULL ? -ENOSPC', 'most == FULL ? -EIO'),
)
mutate(
    'engine/ckpt/keep.c', 'e2e/rank_ends',
    ('rank 0 gives a copy its name last', 'const bool last = c->keep->config.ranks && is_first(c);',
     'const bool last = false;'),
)
mutate(
    'engine/session/store/kept.c', 'e2e/rank_keeps',
    ('ranks keep what one process does', 'return engine->comm && v->store &&', 'return 0 &&'),
    ('bytes of all are told', 'done->bytes = (uint64_t)values[0];', ''),
)
mutate(
    'tools/verbs/train/stop.c', 'e2e/ranks',
    ('ranks stop together', '(t->stop.together ? t->stop.agreed : is_asked(t))', 'is_asked(t)'),
)
mutate(
    'tools/verbs/train/ranks.c', 'e2e/rank_alike',
    ('ranks have the same command line', 'native = same_arguments(t);', 'native = 0;'),
    ('but for what the engine compares', 'return &options[i];', 'return NULL;'),
    ('and the number of a rank', 'return &rank;', 'return NULL;'),
    ('ranks find the same inputs', 'return native ? native : same_inputs(t);', 'return native;'),
)
mutate(
    'engine/session/ranks/ranks.c', 'e2e/rank_alike',
    ('ranks have the same model', 'int rc = compare(engine, "the model", model);', 'int rc = 0;'),
    ('ranks have the same kernels of products',
     'rc = rc ? rc : compare(engine, "the kernels of products", engine->math);', ''),
)
mutate(
    'engine/exec/lanes/loop.c', 'e2e/ranks',
    ('what waits for other ranks is told as that', 'return &exec->stalls.net_s;',
     'return &exec->stalls.nvme_s;'),
)
mutate(
    'tools/verbs/train/ranks.c', 'e2e/ranks',
    ('a rank has a trace of its own', 'o->trace = ranks->trace;', ''),
    ('others write no log', '        o->log = NULL;\n', ''),
)
mutate(
    'tools/cli/options/launch.c', 'tools/cli_ranks',
    ('what a launcher does to all rank 0 tells', 'if (launch->refused_alike)'),
    ('of launchers that MPI does not know, too',
     '    voice_all_alike();\n    return refuse(', '    return refuse('),
)
mutate(
    'engine/comm/launch.c', 'tools/cli_ranks',
    ('a flag is to be another one', 's == &sources[FLAGS] && count > 1', 'false'),
    ('of one process there is one', 'else if (s == &sources[FLAGS])', 'else if (false)'),
    ('one flag asks for the other', 'if (missing && id == FLAGS)'),
)
mutate(
    'engine/session/ranks/ranks.c', 'e2e/ranks',
    ('shared memory of that size is enough', '(info->room_used_bytes + more) / mib + 2',
     'info->room_used_bytes / mib + 1'),
)
mutate(
    'engine/session/ranks/ranks.c', 'engine/ranks',
    ('ranks whose plans differ are refused', 'return compare(engine, "the plan of what ranks do '
     'together", text);', 'return 0;'),
)
mutate(
    'engine/ckpt/save.c', 'e2e/rank_ckpt',
    ('who has no memory says so to all', 'if (rc && ckpt->shares)'),
)
mutate(
    'engine/session/load.c', 'e2e/rank_keeps',
    ('a replica has a copy of its own', '.rank = engine->ranks.rank,',
     '.rank = engine->layout.share.rank,'),
)
mutate(
    'engine/session/store/replicas.c', 'e2e/rank_keeps',
    ('replicas of copies are verified', 'copies ? copies : store', 'store'),
    ('those of all processes', 'found = found || has(replicas->all + (size_t)p * REPLICA_SET_BYTES,'
     ' number);', 'found = has(replicas->own, number);'),
)
mutate(
    'tools/verbs/ckpt/list.c', 'e2e/rank_keeps',
    ('a replica without a copy is named', 'if (!has_number(&have, all->numbers[i]))', 'if (0)'),
    ('rank 0 is one of the replicas', '{.count = first ? 0 : 1};', '{.count = 0};'),
)
mutate(
    'engine/session/store/ckpt_ranks_open.c', 'e2e/rank_ckpt',
    ('a copy is looked for by itself', 'chosen->shares = &r->copy;',
     'chosen->shares = &r->engine.shares;'),
)
mutate(
    'engine/session/store/ckpt_ranks_open.c', 'e2e/rank_keeps-whole',
    ('a list does not take the store for its copy', 'config->replica > 0 || config->copy ||',
     'config->replica > 0 ||'),
)
mutate(
    'tools/verbs/ckpt/list.c', 'e2e/rank_keeps-whole',
    ('beside a run no part of a copy is told', 'return (in_use && (rc == -ENOENT',
     'return (false && (rc == -ENOENT'),
)
