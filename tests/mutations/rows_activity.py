# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of what is told while something takes long."""
from rows import mutate

mutate(
    'engine/exec/tiles/memory.c', 'engine/resuming',
    ('what was read into memory counts', '    moving->done_bytes += bytes;\n', ''),
    ('who has ended a resume is told no more', ' && !moving->ended', ''),
    ('what goes to the store is not told', '!moving->to_store && ', ''),
    ('all of it is told', 'bytes += save_bytes(exec, tile, i);',
     'bytes = save_bytes(exec, tile, i);'),
)
mutate(
    'tools/cli/message/activity.c', 'tools/cli_output',
    ('what is not whole is not 100 %', 'floor(100.0 *', '(100.0 *'),
    ('what has not begun has no rate', 'a->done_bytes > 0 && a->done_bytes < a->total_bytes',
     'a->done_bytes < a->total_bytes'),
)
mutate(
    'tools/cli/message/activity.c', 'tools/cli_activity',
    ('a thread that is missing is told', 'if (rc)\n        cli_warn', 'if (0)\n        cli_warn'),
    ('the thread has a name', 'if (rc == 0)\n        pthread_set', 'if (0)\n        pthread_set'),
)
mutate(
    'tools/cli/message/activity.c', 'e2e/silence',
    ('a line that ticks is erased', '        say(ERASE);\n', '        (void)0;\n'),
    ('a signal that nobody catches leaves no line', '        catch_ends();\n',
     '        (void)0;\n'),
    ('in a pipe a line waits for its time', 'silent_s < state.silence_s', 'false'),
    ('what is short is not shown', 'fmin(silent_s, busy_s) < SHOWN_FROM_S', 'false'),
)
mutate(
    'tools/cli/stop.c', 'e2e/silence',
    ('what ends at once leaves no line', '        activity_leave();\n', ''),
)
mutate(
    'tools/cli/stop.c', 'e2e/unread',
    ('after a signal no write waits for long', '    say_hurry();\n', ''),
)
mutate(
    'tools/cli/message/say.c', 'e2e/unread',
    ('until a signal all that is told is written', 'return !hurried || ', 'return '),
    ('a buffer waits for room too', '__fpending(file) > 0', 'false'),
)
mutate(
    'tools/verbs/train/export.c', 'e2e/silence',
    ('what is exported counts', '            count_written(x, count);\n', ''),
)
mutate(
    'tools/verbs/train/train.c', 'e2e/silence',
    ('what is loaded counts', '    t->loaded_elements += count;\n', ''),
)
mutate(
    'tools/verbs/train/stop.c', 'e2e/silence',
    ('what is read into memory has a line of its own',
     'if (done_bytes < t->resumed_bytes)', 'if (false)'),
)
