# SPDX-License-Identifier: Apache-2.0
"""Rows of engine/ckpt, engine/store/look.c and the verbs of them."""
from rows import mutate

CKPT = 'engine/ckpt engine/ckpt_tables engine/unfinished e2e/ckpt e2e/ckpt_edges'

mutate(
    'engine/ckpt/ckpt.c', CKPT,
    ('directories have names',
     'if (count == STRIPE_DRIVES_MAX || *at == \',\')'),
    ('the file of each rank is there',
     'if (rc == -ENOENT)\n            rc = refuse_missing',
     'if (0)\n            rc = refuse_missing'),
    ('ranks are of one store',
     '!store_id_equal(&ckpt->looks[r].headers[0].uuid,\n' + 45 * ' ' +
     '&ckpt->looks[0].headers[0].uuid)', 'false'),
    ('settings are of a precision',
     'if (!ckpt->optimizer)'),
    ('each tile is one rank\'s',
     'entry.tile >= total || ckpt->tiles[entry.tile].rank != UINT32_MAX', 'entry.tile >= total'),
    ('units are of whole tiles',
     'layout->tiles_of_all != ckpt->tile_count', 'false'),
    ('the first tile begins a unit',
     'if (layout->unit_count == 0)'),
    ('fp16 alone has derived weights',
     'if (ckpt->derived_weights != (ckpt->precision == HST_PRECISION_FP16))'),
    ('weights are as large as their tiles',
     'weights.bytes != elements * optimizer_weight_bytes(ckpt->optimizer) ||', ''),
    ('states are as large as their tiles',
     'states.bytes != (frozen ? 0 : record_layout(ckpt->optimizer, elements).bytes) ||', ''),
    ('ranks have their shares',
     'if (tile->rank != rank || tile->index != t)'),
    ('a kept copy is looked for',
     'if (config->step != HST_NO_VERSION && enter_kept(ckpt, config->step))', 'if (0)'),
    ('a version of another step is not given',
     'config->step != HST_NO_VERSION && ckpt->looks[0].ref.step != config->step', '0'),
    ('a store is held by who reads it', 'new_ckpt(config->hold, ', 'new_ckpt(false, '),
    ('a store has been closed in order where all ranks\' were',
     'info->clean = info->clean && look->clean;', ''),
    ('the model\'s precision is compared',
     'precision != ckpt->precision ||', ''),
    ('the model\'s tensors are compared', 'digest != layout_digest(model)', '0'),
)

mutate(
    'engine/ckpt/read.c', CKPT,
    ('bytes are compared with their hashes',
     '.hashes = look_hashes(look, entry) + slot->part.at / STORE_BLOCK_BYTES,', ''),
    ('each piece with its own', 'look_hashes(look, entry) + slot->part.at / STORE_BLOCK_BYTES,',
     'look_hashes(look, entry),'),
    ('a rank reads its share',
     'if (is_visited(r, t))'),
    ('the watch can end it',
     'w->progress(w->context, r->done_bytes, r->total_bytes) == 0', '(w->progress(w->context, '
     'r->done_bytes, r->total_bytes), true)'),
    ('what a slot holds has come', 'rc = rc ? rc : wait_for(r, slot);', ''),
    ('an extent that is damaged is told as such',
     'slot->part.error = completion->error;', ''),
    ('who does not hold the store reads nothing', 'if (!ckpt->held)'),
)

mutate(
    'engine/ckpt/reshard.c', CKPT,
    ('some unit has a block for each rank', 't->world <= most)', 'true)'),
    ('a rank has its share', 't->ckpt->layout.tile_elements, share)',
     't->ckpt->layout.tile_elements, SHARE_ALL)'),
    ('a new store has its directories to itself',
     'rc = store_directory_is_empty(&directory, t->error);', 'rc = 0;'),
    ('damage is not copied', 'if (part->error)'),
    ('what failed leaves no file', '(void)unlink(path);', ''),
    ('what failed leaves no directory',
     'if (t->made[d])\n            (void)rmdir', 'if (0)\n            (void)rmdir'),
    ('ranks are of one store', '.agreed = &t->agreed,', ''),
    ('what is under way is marked',
     'rc = rc ? rc : mark(t, &directory);', ''),
    ('what has ended is marked no more',
     'd < t.drives && rc == 0; d++)\n        unmark', 'd < 0; d++)\n        unmark'),
    ('the cursor comes along', '&t->ckpt->looks[0].about.cursor', '&(struct store_cursor){0}'),
)

mutate(
    'engine/ckpt/recut.c', CKPT,
    ('a tile is written when it is whole', 'if (lane->elements < tile.elements)'),
    ('a buffer is free again', 'const int rc = extents_wait(c->extents, &lane->write[lane->at]);',
     'const int rc = 0;'),
    ('gaps are zero', 'memset(lane->bytes[lane->at], 0, extent_bytes(c, kind, tile.elements));',
     ''),
    ('what was never written stays so', 'if (!lane->holds_bytes)', 'if (lane->holds_bytes)'),
    ('arrays lie as the tile is long', 'record_layout(optimizer, from_range.elements);',
     'record_layout(optimizer, to_range.elements);'),
    ('elements have their places', 'from + (common.first - from_range.offset) * bytes',
     'from'),
)

mutate(
    'engine/plan/layout/share.c', 'engine/share engine/ckpt',
    ('a part of a block more is a block', '(blocks % world > 0)', '0'),
    ('large rows do not overflow', '__builtin_mul_overflow(each, share.rank, &first) || ',
     '((first = each * share.rank), false) || '),
    ('the last shard is shorter', 'left < each ? left : each', 'each'),
)

mutate(
    'engine/session/load.c', 'engine/ckpt',
    ('gaps are zero from the start',
     'record_zero_gaps(job->record, exec->in.kernel.optimizer, n);', ''),
)

mutate(
    'engine/store/unfinished.c', 'engine/unfinished e2e/ckpt',
    ('the first file ends a reshard', 'if (is_there(&directories[d], file))'),
)

mutate(
    'engine/store/directory.c', 'engine/unfinished e2e/ckpt',
    ('a killed reshard is no empty directory',
     'int rc = store_unfinished_check(directory, 1, error);', 'int rc = 0;'),
)

mutate(
    'engine/store/directory.c', 'store/refusals',
    ('what is behind a slash is a link too',
     "(path[n - 1] == '/' || (path[n - 1] == '.' && path[n - 2] == '/'))", '0'),
    ('what is not empty stays as open as it is', '(st.st_mode & 077) && (rc =', '0 && (rc ='),
    ('what is empty is made the owner\'s alone', 'fchmod(directory->fd, 0700) < 0', '0'),
    ("another's directory is not taken", 'st.st_uid != geteuid()', '0'),
)

mutate(
    'engine/store/files.c', 'e2e/bad_stores',
    ('what is no file is told as what it is', '    if (kind)\n'),
)

mutate(
    'engine/session/budget.c', 'e2e/disks',
    ('what a killed start left is room',
     'left = sat_add(left, store_dir_leftover(engine, d));', ''),
    ('of what it left each has its own', 'share + own > all ? share + own : all', 'all'),
)

mutate(
    'engine/session/store/store_dir.c', 'e2e/disks',
    ('a drive that a killed start filled may be full',
     'config.may_be_full = holds_store(engine, d) || store_dir_leftover(engine, d) > 0;',
     'config.may_be_full = holds_store(engine, d);'),
)

mutate(
    'engine/ckpt/verify.c', 'e2e/ckpt_edges',
    ('verify reads in pieces', '.piece_bytes = STORE_BLOCK_BYTES,', ''),
)

mutate(
    'engine/store/files.c', 'engine/unfinished e2e/ckpt',
    ('a killed reshard is no store without a version',
     'int rc = store_unfinished_check(set->directories, set->drives, error);', 'int rc = 0;'),
)

mutate(
    'engine/store/create.c', 'engine/unfinished',
    ('no run begins in what a killed reshard left', 'if (!config->marked)', 'if (0)'),
)

mutate(
    'engine/ckpt/save.c', CKPT,
    ('damage is not exported', 'if (part->error)'),
    ('masters in fp16 are not rounded', 'if (s->masters)'),
    ('masters in fp32 are the weights', ' && s->ckpt->optimizer->has_master', ''),
)

mutate(
    'engine/optimizer/optimizer.c', CKPT + ' engine/optimizer',
    ('masters in fp16 are not the weights', 'if (kernel->optimizer->host.weights == HST_CPU_F16)'),
    ('masters in bf16 have the bits of both',
     'kernel->ops->join_f32(arrays->weights, arrays->states[0], room, n);', ''),
    ('states begin as zero', 'memset(arrays->states[i], 0, optimizer_array_bytes(o, i, n));', ';'),
    ('a scale covers its elements', '+ optimizer_array_bytes(optimizer, i, first);',
     '+ first;'),
    ('a number that the optimizer has not',
     'if (has(table, i) || read_at(config, NUMBERS[i].config) == 0)', 'if (1)'),
    ('a version names the optimizer', 'if (config->optimizer != HST_OPTIMIZER_ADAMW)'),
    ('fewer bytes are faster', 'optimizer_traffic_bytes(like) / optimizer_traffic_bytes(optimizer)',
     '1.0'),
)

mutate(
    'engine/optimizer/groups.c', 'engine/optimizer engine/groups engine/optimizers',
    ('a step that fails leaves its coefficients', 'struct optimizer_coefs all = {0};',
     'struct optimizer_coefs all = *coefs;\n    memset(coefs, 0, sizeof *coefs);'),
    ('weight decay is left out where it is', 'group.weight_decay = 0;', ';'),
    ('a decay of a group is of all its tensors', 'if (!group.decays_all)', 'if (1)'),
    ('a rate of a group is a factor', 'own.lr *= group.lr_factor;', ''),
    ('groups have an order', 'qsort(&groups->list[1], groups->count - 1, sizeof *groups->list, '
     'by_text);', ''),
    ('a number is said once', 'if (r->said[i])\n        return', 'if (0)\n        return'),
    ('a rate that is no factor', "text[bytes - 1] != 'x'", '0'),
    ('groups that are too many', 'if (groups->count == OPTIMIZER_GROUPS)',
     'if (groups->count == OPTIMIZER_GROUPS + 1)'),
)

mutate(
    'engine/session/groups.c', 'engine/groups',
    ('a tied tensor is one', '&layout->params[layout->params[i].owner]', '&layout->params[i]'),
    ('a tensor of two groups', 'if (owner->group != 0 && owner->group != g)', 'if (0)'),
    ('a group without a tensor', 'if (any)', 'if (1)'),
)

mutate(
    'engine/session/names.c', 'engine/groups',
    ('the nearest name', 'if (edits < least)', 'if (edits > least || !found[4])'),
    ('a star fits anything', "const unsigned cost = *glob != '*'", 'const unsigned cost = 1'),
    ('a sign of a name is any', "*glob == '?' ||", ''),
)

mutate(
    'engine/optimizer/sgd.c', 'engine/optimizer engine/optimizers',
    ('the momentum is the user\'s', '.beta1 = group->momentum,', '.beta1 = 0.9,'),
)

mutate(
    'engine/session/store/other_run.c', 'e2e/optimizers',
    ('a refusal has both names', 'version_settings_name_unsaid(settings_then, was);',
     'snprintf(was, sizeof was, "%s", settings_then);'),
)

mutate(
    'engine/ckpt/version_text.c', 'e2e/optimizers',
    ('a version is read by its optimizer',
     'const char *name = value_of(settings, OPTIMIZER, &bytes);', 'const char *name = NULL;'),
)

mutate(
    'engine/plan/placement/record.c', 'engine/optimizer',
    ('a byte of a scale is of its elements', 'number * state->covers', 'number'),
)

mutate(
    'tools/verbs/ckpt/export_dtype.c', 'e2e/export',
    ('an export has the type of its model', 'if (choice == EXPORT_MODEL)'),
    ('what is infinite is counted', 'found += (y[i] & 0x7fff) == infinity', 'found += 0'),
)

mutate(
    'tools/verbs/train/export.c', 'e2e/export',
    ('another type comes from the masters', 'native = save(from, x->dtype != x->working,',
     'native = save(from, x->dtype == HST_F32,'),
    ('what is rounded is told', 'if (x->dtype != HST_F32)\n        printf',
     'if (0)\n        printf'),
)

mutate(
    'tools/hf/model_dtype.c', 'e2e/export',
    ('config.json tells the type first', 'strcmp(model->dtype, types[t].in_config) == 0', '0'),
    ('the files tell it where config.json does not', 'if (bytes[most] == 0)', 'if (1)'),
)

mutate(
    'engine/ckpt/kept.c', CKPT,
    ('copies are told in their order',
     'return (x > y) - (x < y);', 'return (x < y) - (x > y);'),
)

mutate(
    'engine/ckpt/keep.c', CKPT,
    ('no more are kept than wanted', '(void)remove_others(c, count);', ''),
    ('the oldest goes', 'kept.count > left ? kept.count - left : 0', '0'),
    ('the oldest makes room', 'if (is_full(rc) && remove_others(c, count - 1 + c->has))'),
    ('what was tried before does not count',
     '*c->error = (struct hst_error){0};\n    c->keep->done.by_other = false;', ''),
    ('space is looked at', 'if (free_bytes < needed[d] + KEEP_PART_BYTES)'),
    ('the other drives\' directories get their names too',
     'for (uint32_t d = c->keep->config.drives; d-- > 0;) {', 'for (uint32_t d = 1; d-- > 0;) {'),
)

mutate(
    'engine/store/look.c', CKPT,
    ('a killed one\'s requests are waited for',
     'hold && !locked && errno == EWOULDBLOCK && i < HOLD_TRIES', '0 && i < HOLD_TRIES'),
    ('a store in use is not read', 'if (locked || !hold)', 'if (1)'),
    ('a superblock that is whole is needed',
     'if (!store_choose_superblock(&all, &look->newest, &trusted))',
     'store_choose_superblock(&all, &look->newest, &trusted);\n    if (0)'),
    ('whether it was closed in order is told',
     'look->clean = !store_must_verify(&look->newest, trusted, look->newest.cur.version);',
     'look->clean = true;'),
    ('an extent is in its slot', 'entry->slot * look->headers[entry->drive].slot_bytes', '0'),
)
mutate(
    'engine/store/manifest.c', 'store/format',
    ('padding is zeros whatever was there before',
     '    memset(at + 8 + bytes, 0, padded(bytes) - bytes);', '   '),
)
mutate(
    'engine/store/open.c', 'e2e/rank_ends',
    ('what not all ranks have is no damage', 'o->found->stepped_back = !o->none_damaged;',
     'o->found->stepped_back = o->chosen == &o->newest.prev;'),
    ('it is told', 'o->behind && o->none_damaged', 'false'),
)
mutate(
    'engine/store/open.c', 'store/rot e2e/bad_stores',
    ('what is damaged is', 'o->none_damaged = o->none_damaged && !o->damaged;', ''),
    ('a manifest, too', 'all.newest_damaged = true;', 'all.newest_damaged = false;'),
)
