# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of the reading of DeepSpeed configurations; rows.py says how."""
from rows import mutate

mutate(
    'tools/cli/config/hjson.c', 'tools/config_hjson',
    ('two values of one line need a comma', '    if (!s->apart)'),
    ('a comma follows a value', '    if (!s->comma)'),
    ('levels have a limit', '    if (s->depth == HJSON_MAX_DEPTH)'),
    ('values have a limit', '    if (s->hjson->count == HJSON_MAX_ENTRIES)'),
    ('a word ends where a value ends', '    if (v.type != JSN_STRING && in_key(peek(s)))'),
    ('a number is one that a double holds',
     '    if (v.type == JSN_NUMBER && !jsn_real(s->text, *value, &real))'),
    ('an end fits its begin', "    if (peek(s) != (open->type == JSN_OBJECT ? '}' : ']'))"),
    ('a byte order mark is told as one', '    if (starts(s, "\\xef\\xbb\\xbf"))'),
    ('columns count characters', '} else if ((c & 0xc0) != 0x80) {', '} else {'),
    ('a line end in a comment is one',
     "        if (s->text[at] == '\\n')\n            s->apart = true;\n", ''),
)
mutate(
    'tools/cli/config/ds_config.c', 'tools/cli_ds_config',
    ('two names of one key are refused', '    if (c->of[key - ds_keys])'),
    ('a type is checked', '    if (!automatic && !has_type(c, e, key->type))'),
    ('a refused key is refused', '    if (refused && !is_harmless(c, e, key))'),
    ('null is as if it were not there', '    if (e->type == JSN_NULL)'),
    ('what is in a noted tree needs no row', '    if (is_part(c, e))'),
    ('a path that is base64 is a path all the same',
     '    if (text[strspn(text, " \\t\\r\\n")] == \'{\')', '    if (n > 0)'),
    ('an object without its key is off', '    return !named;', '    return false;'),
    ('a text switches nothing off', 'key->harmless && e->type == JSN_OBJECT &&',
     'key->harmless &&'),
    ('a word in quotes is told', '        c->worded[i] = true;', '        (void)e;'),
)
mutate(
    'tools/cli/config/ds_options.c', 'tools/cli_ds_config',
    ('a section without its key is fp32',
     '    if (get(m->c, "bf16").entry || get(m->c, "fp16").entry) {', '    if (b || f) {'),
    ('"auto" has the loss scale of its section', '(f || fp16.automatic) : f;', 'f : f;'),
    ('a loss scale yields with its section', '    if (f && !scaled) {', '    if (0) {'),
    ('moments in bf16 yield with their section', ' && (b || bf16.automatic))', ' && 0)'),
    ('bf16 and fp16 contradict each other', '    if (b && f)'),
    ('a stage is one of four', '    if (n < 0 || n > 3)'),
    ('an absent key has the default',
     'f.automatic ? f.key->automatic : f.entry ? f.entry->text : f.key->absent;',
     'f.automatic ? f.key->automatic : f.entry ? f.entry->text : NULL;'),
    ('betas are two', '    if (count != 2)'),
    ('a scheduler that ends says where', '    if (p->kind != PEER_WARMUP && !total.entry)'),
    ('a scheduler yields to --schedule', '    if (!section.entry || m->run.own_schedule)',
     '    if (!section.entry)'),
)
mutate(
    'tools/cli/options/options.c', 'tools/cli_ds_config',
    ('the command line wins over a file',
     '    if (p->given[found.index])\n        return CLI_OVERRULED;', ''),
)
mutate(
    'tools/cli/schedule_peer.c', 'tools/config_rates',
    ('steps 1 and 2 have the first rate', '(double)(step - 2)', '(double)(step - 1)'),
    ('a warmup has two steps', 'p->warmup_steps > 2 ? (double)p->warmup_steps : 2',
     '(double)p->warmup_steps'),
    ('a cosine stays at its end', 'b - w + 1 < rest ? (b - w + 1) / rest : 1',
     '(b - w + 1) / rest'),
)
mutate(
    'tools/verbs/train/config.c', 'tools/cli_ds_config tools/cli_ds_told',
    ('what decides nothing is told', ' || is_idle(tc, i)', ''),
    ('what only train has is told of plan', 'return part == PART_NONE || part == PART_ELSEWHERE;',
     'return part == PART_NONE;'),
    ('what asks for nothing is not told', 'DS_AT_USED || asks_nothing(tc, e))', 'DS_AT_USED)'),
    ('a key that shares an option is won over', 'CLI_OVERRULED && is_about(o, e) &&',
     'CLI_OVERRULED && o->entry == e &&'),
    ('a section that is lost is told', 'NULL : section_lost_to(tc, path_of(tc, e, path))',
     'NULL : NULL'),
    ('a list that is full goes out', '        list_tell(list);\n    list->used +=',
     '        list->used = 0;\n    list->used +='),
    ('a warmup of both is refused', '    if (peer->warmup_steps > 0 && given)'),
    ('a warmup of none is refused', '    if (peer->warmup_steps == 0 && !given)'),
    ('a scheduler ends with the run',
     '        peer->total_steps = o->steps;', '        peer->total_steps = 1;'),
)
mutate(
    'tools/verbs/train/resume.c', 'tools/cli_ds_config',
    ('a store keeps its scheduler', '    if (t->peer.kind != PEER_NONE)'),
)
mutate(
    'tools/cli/config/options_file.c', 'tools/cli_options_file',
    ('of a log the first line is read', "    *size = (size_t)(end - *text);\n", ''),
    ('a log without options is refused', '    if (!options || options->type != JSN_OBJECT)',
     '    if (!options)'),
    ('a flag is true or false, others are not', '    if (flag ? truth : plain)',
     '    if (truth || plain)'),
    ('what stands deeper is no option', '        if (h->entries[i].parent == f->at)',
     '        if (h->entries[i].parent >= f->at)'),
)
mutate(
    'tools/verbs/train/options_file.c', 'tools/cli_options_file',
    ('--epochs wins over the steps of a file', '(said.length && is_length(entry->key)) || ', ''),
    ('a default that depends on others is left out',
     'is_one_of(option->name, dependent) ||', '0 ||'),
    ('paths are left out', '!is_one_of(option->name, beside))', '1)'),
    ('a scheduler takes the place of a schedule', '            if (!theirs && !is_one_of',
     '            if (!is_one_of'),
)
mutate(
    'tools/verbs/train/log.c', 'e2e/rank_config',
    ('a log tells how many ways there were', '    o.engine.ways = t->part.ways;', ''),
)
mutate(
    'tools/verbs/train/log.c', 'tools/cli_options_file',
    ('a log tells steps, not epochs', '    o.epochs = 0; /* which o.steps are */', ''),
)
mutate(
    'tools/cli/options/text.c', 'tools/cli_options_file',
    ('a number is the same double', 'digits++ < 17', 'digits++ < 12'),
    ('an explicit 0 is told as 0', 'value == HST_NONE ? 0 : value', 'value'),
)
mutate(
    'tools/cli/config/hjson.c', 'tools/cli_ds_config',
    ('a key without a letter is shown', '!e->key[0] || strpbrk', 'strpbrk'),
)
mutate(
    'tools/verbs/train/config.c', 'e2e/rank_config',
    ('a batch of a file is that of all ranks', 'more(parser, options, launch.ranks, done, error)',
     'more(parser, options, 1, done, error)'),
    ('rank 0 alone prints options', 'return launch.rank == 0 ?', 'return 1 ?'),
)
mutate(
    'python/hoistway/convert_kinds.py', 'python/convert',
    ('a key in no table is refused', '            near = difflib.get_close_matches(',
     '            continue\n            near = difflib.get_close_matches('),
    ('a refused key that is off is none', 'value in tables.OFF or value in ([], {}) or',
     'False or'),
    ('a constant rate has no warmup', "    if name != 'constant':  # which",
     '    if True:  # which'),
    ('a batch is that of all micro-batches', "* m.number('gradient_accumulation_steps', 1, 1)", ''),
    ('a batch is that of all ranks', 'int(rows) * int(seq_len) * m.given.ranks',
     'int(rows) * int(seq_len)'),
    ('a named template is refused', 'and not m.given.own_template:', 'and False:'),
    ('an adapter that is not named is one', "m.keys.get('finetuning_type', 'lora')\n",
     "m.keys.get('finetuning_type', 'full')\n"),
)
mutate(
    'tools/verbs/train/options_file.c', 'tools/cli_options_file',
    ('without --eval its times have no effect',
     '        options->eval_every = (struct hst_share){.count = 0};', '        ;'),
    ('what --keep-best needs is named', '            return fail(error, FAIL_VALUE, -EINVAL,\n'
     '                        "%s--%s: it is of a run', '            (void)fail(error, FAIL_VALUE, '
     '-EINVAL,\n                        "%s--%s: it is of a run'),
)
mutate(
    'python/hoistway/convert_deepspeed.py', 'python/convert',
    ('the scheduler of the file counts', "    if f.has('scheduler'):\n        _sch",
     "    if False:\n        _sch"),
    ('the optimizer of the file counts', "    if f.has('optimizer'):\n        _opt",
     "    if False:\n        _opt"),
    ('what both say is the same', 'and value != argument:', 'and False:'),
    ('without a limit the argument has no say', "        _drop(m, '--clip')", '        pass'),
    ('a key twice is refused', '    if len(found) < len(pairs):', '    if False:'),
)
mutate(
    'python/hoistway/keyed.py', 'python/convert',
    ('a key twice is refused', '            if key.value in found:', '            if False:'),
    ('2e-5 is a number', r"(\.\d*)?([eE][-+]?\d+)?', re", r"(\.\d*)?', re"),
)
mutate(
    'tools/verbs/train/origin.c', 'tools/cli_options_file',
    ('what a file does not decide has no place there',
     '        if (own->taken[e - own->file.hjson.entries])', '        if (1)'),
    ('of two files each has its place', '!first.made != !second.made', '0'),
    ('a --config that cannot be read has a place',
     'strncmp(error->message, "--config ", strlen("--config ")) != 0)', '1)'),
)
mutate(
    'tools/verbs/train/origin.c', 'tools/cli_ds_config',
    ('of two plans a file is named once', '        leave_file_out(from, error);', '        ;'),
)
mutate(
    'tools/verbs/train/config.c', 'tools/cli_ds_config tools/cli_ds_told',
    ('what is left open is not won over', 'o->entry == e ? is_auto(e) :',
     'o->entry == e ? false :'),
)
