#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What writers.py has to find, planted: in texts of its own, and in the sources themselves."""
import glob
import os
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import writers  # noqa: E402

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')
HEADER = '''
/* struct executor { int no; }; */
struct ring {
    uint32_t first, count;
    bool used[4];
};
struct given {
    int (*ask)(void *context, int count);
};
struct executor {
    const struct standing *standing; /* it is not its own */
    struct ring ring, *rings;
    struct given given;
    int *memory;
    struct hst_event *event;
};
struct hst_engine {
    struct executor exec;
};
'''
FIRST = '''
void open_all(struct executor *exec, int *memory)
{
    *exec = (struct executor){0};
}
'''


def file_of(body, head='struct executor *exec'):
    return f'\nvoid f({head})\n{{\n    {body}\n}}\n'


class Planted(unittest.TestCase):
    def found(self, *bodies, **more):
        sources = {f'{name}.c': text for name, text in zip('abcd', bodies)}
        return [line for line in writers.breaches([HEADER], sources | more)
                if 'by no file' not in line]

    def test_one_file_may_write_a_member_as_often_as_it_likes(self):
        self.assertEqual(self.found(file_of('exec->ring.first = 1; exec->ring.first++;'),
                                    file_of('exec->ring.count += exec->ring.first;')), [])

    def test_a_second_writer_is_found_however_it_writes(self):
        for body in ('exec->ring.first = 2;', 'exec->ring.first |= 2;', 'exec->ring.first++;',
                     '--exec->ring.first;', 'exec->ring.first <<= 1;',
                     'fill(&exec->ring.first);', 'exec->ring = (struct ring){.count = 1};',
                     '*exec = other;', 'struct ring *ring = &exec->ring; ring->first = 2;',
                     'struct ring *ring = &exec->ring; *ring = other;',
                     'exec->memory[exec->ring.first++] = 1;', 'exec->rings[3].first = 1;',
                     'memset(&exec->ring, 0, sizeof exec->ring);', 'memcpy(exec, from, 1);',
                     '(&exec->ring)->first = 2;',
                     'struct ring *one = &exec->ring, *ring = one; ring->first = 2;'):
            found = self.found(file_of('exec->ring.first = 1;'), file_of(body))
            self.assertIn('struct ring: first is written by a.c and b.c', found, body)

    def test_who_holds_the_executor_is_no_writer_of_it(self):
        head = 'struct hst_engine *engine'
        for body in 'engine->exec.ring.first = 2;', 'memset(&engine->exec, 0, 1);':
            found = self.found(file_of('exec->ring.first = 1;'), file_of(body, head))
            self.assertIn('struct ring: first is written by a.c and b.c', found, body)

    def test_the_address_of_a_pointer_is_given_to_who_writes_it(self):
        found = self.found(file_of('exec->event = open();'), file_of('close_it(&exec->event);'))
        self.assertEqual(found, ['struct executor: event is written by a.c and b.c'])

    def test_an_index_is_read(self):
        self.assertEqual(self.found(file_of('exec->ring.first = 1;'),
                                    file_of('exec->ring.used[exec->ring.first] = 1;')), [])

    def test_what_is_only_read_has_no_second_writer(self):
        for body in ('if (exec->ring.first == 1) g();', 'g(exec->ring.first, &exec->ring);',
                     'int first = exec->ring.first;', 'exec->ring.first <= 1 ? g() : h();',
                     'struct ring own = {.first = 1}; own.first = 2;',
                     '/* exec->ring.first = 1; */ g();'):
            self.assertEqual(self.found(file_of('exec->ring.first = 1;'), file_of(body)), [], body)

    def test_a_pointer_of_another_function_is_another_one(self):
        other = file_of('ring->first = 1;', 'struct other *ring') + \
            file_of('g(ring);', 'struct ring *ring')
        self.assertEqual(self.found(file_of('exec->ring.first = 1;'), other), [])

    def test_a_member_that_nobody_writes_is_found(self):
        lines = list(writers.breaches([HEADER], {'a.c': file_of('exec->ring.first = 1;')}))
        self.assertIn('struct ring: count is written by no file', lines)
        self.assertFalse([line for line in writers.breaches([HEADER], {'a.c': FIRST})])


class Sources(unittest.TestCase):
    """Each member of the executor's own state is known, and a second writer of it is seen."""

    def test_a_second_writer_of_any_member_is_found(self):
        headers = [writers.read(path) for pattern in writers.HEADERS
                   for path in glob.glob(os.path.join(ROOT, pattern))]
        structs = {tag: writers.members_of(body) for text in headers
                   for tag, body in writers.STRUCT.findall(writers.COMMENT.sub(' ', text))}
        state = writers.held(structs)
        self.assertLessEqual({'verdict', 'turn', 'drives', 'streams', 'passages', 'measure',
                              'order', 'stalls'}, set(state))
        sources = {os.path.relpath(path, ROOT): writers.read(path) for pattern in writers.SOURCES
                   for path in glob.glob(os.path.join(ROOT, pattern), recursive=True)}
        members = [(tag, member) for tag in ('verdict', 'turn', 'drives', 'streams', 'order',
                                             'stalls')
                   for member, (inner, _) in state[tag].items() if inner is None]
        sources['planted.c'] = file_of('\n'.join(f'exec->{tag}.{member} = other;'
                                                 for tag, member in members))
        found = list(writers.breaches(headers, sources))
        for tag, member in members:
            self.assertRegex('\n'.join(found),
                             f'struct {tag}: {member} is written by .* and planted.c')
        self.assertEqual(len(found), len(members))


if __name__ == '__main__':
    unittest.main()
