# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of how a run starts and stops: which data it goes on with, when it
notices a signal, what it proposes to type."""
from rows import mutate

mutate(
    'tools/data/file/identity.c', 'tools/data/identity',
    ('the size counts', '    XXH3_64bits_update(state, &size, sizeof size);\n', ''),
    ('the last part ends the file', 'size_bytes - PART_BYTES;', 'size_bytes - 2 * PART_BYTES;'),
    ('parts are spread over all of it', ' + last % (PARTS - 1) * i / (PARTS - 1)', ''),
    ('a small file counts whole', 'size_bytes <= PARTS * PART_BYTES ? 1', 'size_bytes < 8 ? 1'),
    ('the order of files counts', '{htole64(identity->in_order), htole64(file)}',
     '{0, htole64(file)}'),
    ('a file that comes twice counts twice', 'identity->in_any_order += file;',
     'identity->in_any_order ^= file;'),
    ('it stops', '        int rc = token_file_stopped(file);\n', '        int rc = 0;\n'),
)
mutate(
    'tools/data/file/look.c', 'tools/data/data hostile/corpus',
    ('a few ids of another tokenizer are not another width', 'look->beyond > look->count / 2',
     'look->beyond > 0'),
)
mutate(
    'tools/verbs/train/resume.c', 'e2e/resume',
    ('the data may be changed on purpose', '"data ",   "pack ",', '"pack ",'),
    ('its length, too', '"tokens ",     "data "', '"data "'),
    ('a change of the data is told as that', 'if (train_is_data_line(was))\n            cli_warn',
     'if (false)\n            cli_warn'),
)
mutate(
    'tools/verbs/train/data_line.c', 'e2e/resume',
    ('another order is told as that', '    const bool order = train_data_order_alone(was, is);',
     '    const bool order = false;'),
)
mutate(
    'tools/verbs/train/stop.c', 'tools/cli_stop',
    ('a drive that fails after a signal is a failure', '    if (!failed)\n', '    if (true)\n'),
    ('which is not resumed for ever', '    t->result.resumable = false;\n', ''),
)
mutate(
    'tools/verbs/train/engine.c', 'tools/cli_stop',
    ('an engine asks',
     '    config.stopped = train_asked_to_stop;\n    config.stopped_context = t;\n    config.trace',
     '    config.trace'),
)
mutate(
    'tools/cli/forecast.c', 'tools/cli_stop',
    ('a probe asks', '    probe.stopped = config->stopped;\n', ''),
)
mutate(
    'engine/session/store/failure.c', 'engine/stop',
    ('a drain is not stopped', 'engine->phase < PHASE_LOADED && c->stopped', 'c->stopped'),
)
mutate(
    'engine/exec/tiles/memory.c', 'engine/stop',
    ('a move into memory stops', '            rc = rc ? rc : executor_stopped(exec);\n', ''),
)
mutate(
    'engine/session/store/versions.c', 'engine/stop',
    ('a comparison stops', '    return engine_stopped(engine);\n', '    return 0;\n'),
    ('what has stopped is no failure', 'rc == -ECANCELED || (rc', '(rc'),
)
mutate(
    'engine/exec/tiles/tile_stream.c', 'engine/stop',
    ('a move through slots stops', '        int rc = executor_stopped(s->exec);\n',
     '        int rc = 0;\n'),
)
mutate(
    'engine/session/load.c', 'engine/stop',
    ('what was stopped does not go on',
     'PHASE_SEALED || engine->versions.store || !step', 'PHASE_SEALED || !step'),
)
mutate(
    'engine/probe/probe.c', 'engine/stop',
    ('a probe that was stopped has no figures', '    if (!probe_is_stopped(&probe))\n',
     '    if (true)\n'),
)
mutate(
    'tools/base/text.c', 'tools/cli_output',
    ('what is needed is rounded up', '    t.hundredths += up ? step : 0;\n', ''),
    ('what is there is rounded down', 'up ? step : 0', 'step'),
    ('what is whole stays whole', 'bytes % unit == 0 && bytes / unit <= EXACT_MOST', 'false'),
    ('1024 of a unit are one of the next', 't.hundredths == 102400 && ', 'false && '),
)
mutate(
    'tools/verbs/plan/plan.c', 'hostile/snapshot',
    ('the cache that was searched is named', '    char *cache = folder_cache_of(name);',
     '    char *cache = NULL;'),
)
mutate(
    'engine/session/store/other_run.c', 'e2e/resume',
    ('it is no option', ' strncmp(line, "rounding ", 9) != 0 &&', ''),
)

mutate(
    'engine/session/store/other_run.c', 'e2e/store_doors',
    ('the batch is told before the grain', 'if (batch && !is_in(other, batch))', 'if (0)'),
    ('another model is told before its budget', 'digest == layout_digest(&engine->layout)', '1'),
)

mutate(
    'engine/store/open.c', 'e2e/store_doors',
    ('what is waited for is told', 'if (o->config->waits && '
     '!store_file_wait(&store->directories[d], name, STORE_QUIET_MS))'),
)

mutate(
    'engine/store/clear.c', 'e2e/store_doors',
    ('leftovers that are waited for are told', 'if (config->waits)'),
)

mutate(
    'tools/verbs/train/resume.c', 'e2e/store_doors',
    ('a path that was not there is told', 'if (t->store_made)'),
)
mutate(
    'tools/verbs/train/train.c', 'e2e/store_doors',
    ('a table of another run is not printed', ' && !options->resume)', ')'),
)

mutate(
    'tools/verbs/train/resume.c', 'e2e/store_doors',
    ('the steps are told first', 'if (starts(at, "steps ") && is_listed(t, at, now))', 'if (0)'),
    ('a percentage is told as that', 'if (percent > 0)'),
)
mutate(
    'engine/plan/search/start_up.c', 'engine/start_up',
    ('the host locks nothing', 'apart ? placement->dram_bytes : 0', 'placement->dram_bytes'),
    ('of two slots one is written', '(in->stored || in->second_slots) && !derived', 'false'),
    ('a store of fp16 has its weights once', ' && !derived;', ';'),
    ('what goes on reads what lives in memory', '    if (resumes) {', '    if (false) {'),
)
mutate(
    'engine/session/tell_plan.c', 'tools/cli_start_up',
    ('a short start is not told', 'start_up.seconds >= START_UP_TOLD_S && ', ''),
)
