# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of token files, rows of JSON and the packing of documents."""
from rows import mutate

mutate(
    'tools/data/file/tensors_check.c', 'tools/data/token_files',
    ('offsets begin with 0', 'if (i == 0 && is != 0)'),
    ('offsets end in the file', 'if (is > end)'),
    ('offsets rise', 'if (i > 0 && (is < was || (apart && is == was)))'),
    ('no document is empty', '(is < was || (apart && is == was))', 'is < was'),
    ('offsets end at the end', 'if (!rc && s.part->count && is != end)'),
    ('a mask is 0 or 1', 'if (values[i] > 1)'),
    ('a document has two tokens', 'if (d->count && tokens < 2)'),
    ('a document has a target', 'if (d->masked && learned == 0 && d->count)'),
    ('there is something to learn', 'if (d->masked && learned == 0)'),
    ('prompts have ids of the model', 'if (!rc && id >= vocab)'),
)
mutate(
    'tools/data/file/tensors.c', 'tools/data/token_files',
    ('a tensor has one dimension', 'if (t->dim_count != 1)'),
    ('two go together', 'if (p[i].width && !p[parts[i].with].width)'),
    ('a mask has a value for each token',
     'if (p[TOKEN_PART_MASK].width && p[TOKEN_PART_MASK].count != p[TOKEN_PART_TOKENS].count)'),
    ('the format is named', 'if (format.type != JSN_STRING)'),
    ('and known', 'if (!jsn_equals(text + metadata.begin, format, TOKEN_FORMAT))'),
)
mutate(
    'tools/data/row.c', 'tools/data/token_files',
    ('a key is there once', 'if (ids ? row->has_ids : labels ? row->has_labels : row->has_mask)'),
    ('labels or a mask', 'if (!ids && (row->has_labels || row->has_mask))'),
    ('as many as ids', 'if ((row->has_mask || row->has_labels) && marks != row->count)'),
    ('a document has a target', 'if (targets == 0)'),
    ('one that is learned', 'if (hidden == targets)'),
    ('ids are of the model', 'if (p->vocab && id >= p->vocab)'),
)
mutate(
    'tools/data/rows.c', 'tools/data/rows tools/data/token_files',
    ('lines may be blank', 'if (is_blank(text, size))'),
    ('a run has its own first token', 'file->count + i * TOKEN_RUN', 'file->count'),
)
mutate(
    'tools/data/data.c', 'tools/data/packed',
    ('what has no documents takes no word about them',
     'if (config->side == DATA_TRAINED && (longer || config->pack == DATA_PACK_OFF))'),
)
mutate(
    'tools/data/packed.c', 'tools/data/packed',
    ('long chats are refused',
     'if (files.files[i].documents.count && files.files[i].documents.masked)'),
    ('a file without documents is one', 'file->documents.count ? file->documents.count : 1',
     'file->documents.count'),
    ('pieces are where their tokens are in the files', '    place(pack, &d->runs);\n', ''),
    ('a piece is looked at by its own tokens', 'for (uint32_t i = 1; i <= piece->count',
     'for (uint32_t i = 0; i <= piece->count'),
    ('a row has the target of any of its pieces',
     'idle[piece->row] = idle[piece->row] && !has;', 'idle[piece->row] = !has;'),
    ('rows without a target are left out', 'pack_leave_out(pack, idle);', ';'),
    ('nothing to learn is refused', 'if (pack->row_count)', 'if (1)'),
    ('the file of a long document is named',
     'token_files_find(files, &first);\n    uint64_t *offsets',
     'files.files;\n    uint64_t *offsets'),
    ('a default is no longer than the documents', 'most < *seq_len)', 'false)'),
    ('one document a row is no longer than the longest',
     'packing->apart || d.longest > d.inputs ? d.longest : d.inputs', 'd.inputs'),
)
mutate(
    'tools/data/pack.c', 'tools/data/pack',
    ('the least room that is enough', '*room = room_find(&w->rooms, count);',
     '*room = room_find(&w->rooms, count + 1);'),
    ('the longest goes first', 'w->placed[w->starts[most - count]++]', 'w->placed[i]'),
    ('a room that no row has is forgotten', 'if (w->newest[*room] == NO_ROW)'),
    ('one document a row', 'room > p->count && !apart', 'room > p->count'),
    ('a document is cut', 'if (inputs > w->seq_len && longer == PACK_LONG_CUT)'),
    ('a document is dropped', 'if (inputs > w->seq_len && longer == PACK_LONG_DROP)'),
    ('a document is refused', 'if (inputs > most && config->longer == PACK_LONG_REFUSE)'),
)
mutate(
    'tools/data/pack.c', 'tools/data/packed',
    ('rows that are left out take their inputs along', 'pack->input_count -= piece.count;', ''),
    ('rows are numbered anew', 'piece.row = (uint32_t)(rows - 1);', ''),
)
mutate(
    'tools/verbs/train/resume.c', 'e2e/packed',
    ('rows of another version are refused',
     'if (!is_repacked(was, is) || t->options->allow_config_change)', 'if (1)'),
)
mutate(
    'tools/verbs/train/resume.c', 'e2e/evaluation',
    ('another split has words of its own', 'else if (train_is_split_line(was) && tokens)'),
    ('a split that leaves the same is the same', ' && !train_is_split_line(was)', ''),
    ('a split that is new is told', 'const bool newly_split = t->options->eval_split > 0;',
     'const bool newly_split = false;'),
    ('what is gone is told', '        if (!now)\n            cli_warn',
     '        if (0)\n            cli_warn'),
)
mutate(
    'tools/verbs/train/data_line.c', 'e2e/packed',
    ('what becomes of long documents is kept', 'if (p->long_count)'),
)
mutate(
    'tools/data/batch.c', 'tools/data/token_files',
    ('a target is learned where its own mask says so', 'learned[i + 1] ?', 'learned[i] ?'),
    ('no input sees another document', 'batch->first[column] = piece->column;',
     'batch->first[column] = 0;'),
    ('positions begin anew', 'batch->position[column] = i;', 'batch->position[column] = column;'),
    ('padding sees itself alone', 'batch->first[column] = column;', 'batch->first[column] = 0;'),
    ('padding has no target', '        batch->targets[column] = DATA_NO_TARGET;\n', ''),
)
mutate(
    'tools/data/file/llmq.c', 'tools/data/llmq',
    ('a version is known', 'if (header->version != 1 && header->version != 2)'),
    ('tokens have four bytes', 'if (header->token_bytes != 4)'),
    ('masks are there or not', 'if (header->version == 2 && header->masks > 1)'),
    ('a width that was said is theirs', 'if (config->token_dtype == TOKEN_U16)'),
    ('the header goes with the size',
     'if (header->count > INT32_MAX || file->size_bytes != expected)'),
    ('a mask has a bit for each token', '(has_masks(header) ? (count + 7) / 8 : 0)', '0'),
    ('the lowest bit comes first', '>> (skip + i) % 8 & 1', '>> (7 - (skip + i) % 8) & 1'),
    ('a piece begins inside a byte', 'const size_t skip = token % 8,', 'const size_t skip = 0,'),
    ('a piece begins where the one before ended', 'const uint64_t token = first + done;',
     'const uint64_t token = first;'),
    ('the first token is no target', 'for (uint64_t first = 1; first < file->count;)',
     'for (uint64_t first = 0; first < file->count;)'),
    ('there is something to learn', 'if (learned == 0)'),
    ('targets are counted without those left out', 'd->target_count - learned;', '0;'),
)
mutate(
    'tools/verbs/inspect/tokens.c', 'tools/data/token_files',
    ('the greatest id is no missing target', 'if (look->learned[i])',
     'if (look->batch.targets[i] != DATA_NO_TARGET)'),
)
mutate(
    'tools/data/file/tokenizer.c', 'tools/data/tokenizer',
    ('what names no tokenizer is not looked at',
     'if (!config->model || (!named.sha256[0] && !named.identity[0]))', 'if (!config->model)'),
    ('a model without a tokenizer has none', 'if (rc == -ENOENT || rc == -ENOTDIR)'),
    ('the same bytes are the same',
     'if (strcmp(sha256, named.sha256) == 0 || strcmp(identity, named.identity) == 0)',
     'if (strcmp(identity, named.identity) == 0)'),
    ('and so is the same meaning',
     'if (strcmp(sha256, named.sha256) == 0 || strcmp(identity, named.identity) == 0)',
     'if (strcmp(sha256, named.sha256) == 0)'),
)
mutate(
    'tools/hf/tokenizer.c', 'tools/data/tokenizer',
    ('what is null is not there', 'if (v.type == JSN_NULL)'),
    ('an element has its place', 'put_index(w, level->index++);', 'put_index(w, 0);'),
    ('a step ends where it began',
     'w->size = v.type == JSN_KEY || level->array || end ? level->begin : w->size;', ';'),
    ('a merge has its place', 'put_index(w, i);', 'put_index(w, 0);'),
    ('two tokens of a merge have a blank between them', 'if (i > 0)\n            put(w, " ", 1);',
     ';'),
    ('flags of an added token', 'put(w, values[i].type == JSN_TRUE ? "1" : "0", 1);', ';'),
    ('a merge is two tokens', 'if (token.type != JSN_STRING)', 'if (token.type == JSN_ERROR)'),
    ('nothing stands behind the file', 'jsn_next(&w->r).type == JSN_END ? 0 : -EBADMSG', '0'),
)
mutate(
    'tools/base/sha256.c', 'tools/data/tokenizer',
    ('a length that fills a block', '64 - (hash->count + 8) % 64', '56 - hash->count % 64'),
    ('bytes go on in their block', 'const size_t at = hash->count % 64,', 'const size_t at = 0,'),
)
mutate(
    'tools/data/split.c', 'tools/data/split tools/data/llmq',
    ('what is not split needs no length', 'if (s->share <= 0)'),
    ('what is evaluated on is not trained on', 'all ? count : kept == 0 ? 0 : cut + 1', 'count'),
    ('documents are drawn', 'evaluated == (s->side == DATA_EVALUATED)', 'true'),
)
mutate(
    'tools/data/data.c', 'tools/data/split',
    ('the cut is at whole sequences', 'const uint64_t least = config->seq_len + 1;',
     'const uint64_t least = 2;'),
)
mutate(
    'tools/verbs/train/eval.c', 'e2e/evaluation',
    ('the version that was kept last is not missed', '&& !now', ''),
    ('a copy that counts no more goes', 'e->best.step ? e->best.step : e->replaced',
     'e->best.step'),
    ('other data is not compared', 'if (line.data != e->identity)', 'if (0)'),
)
