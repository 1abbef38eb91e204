#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What floors.py has to find, planted."""
import os
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import floors  # noqa: E402


class Breaches(unittest.TestCase):
    def found(self, symbols=(), headers=(), twice=()):
        return list(floors.breaches(dict.fromkeys(symbols, 'name'), dict.fromkeys(headers, 'name'),
                                    dict(twice)))

    def test_what_is_below_may_be_used(self):
        self.assertEqual(self.found([('engine/exec/loop.c', 'engine/base/clock.c'),
                                     ('engine/exec/loop.c', 'engine/exec/moves.c'),
                                     ('engine/plan/graph/scheduler.c',
                                      'engine/plan/layout/layout.c'),
                                     ('tools/main.c', 'tools/verbs/plan/plan.c')]), [])

    def test_an_arrow_upward_is_found_by_symbol_and_by_header(self):
        up = ('engine/base/clock.c', 'engine/session/step.c')
        self.assertRegex(self.found([up])[0], 'engine/base uses engine/session')
        self.assertRegex(self.found([], [up])[0], 'engine/base uses engine/session')

    def test_a_room_on_the_same_floor_is_not_used(self):
        self.assertEqual(len(self.found([('tools/data/data.c', 'tools/model/units.c')])), 1)
        self.assertEqual(len(self.found([('aio/wait.c', 'cpu_adam/coef.c')])), 1)

    def test_nothing_is_handed_down(self):
        for room in ('engine/exec', 'engine/exec/visit', 'engine/tier'):
            self.assertEqual(len(self.found([], [(room + '/a.c',
                                                  'engine/session/engine_state.h')])), 1)

    def test_a_folder_in_a_room_may_have_a_floor_of_its_own(self):
        lane, loop = 'engine/exec/lanes/drives.c', 'engine/exec/visit/execute.c'
        self.assertEqual(self.found([(loop, lane), (lane, 'engine/exec/moves.c')]), [])
        self.assertEqual(len(self.found([(lane, loop)])), 1)

    def test_a_new_folder_needs_a_floor(self):
        self.assertRegex(self.found([('engine/new/a.c', 'engine/base/clock.c')])[0], 'no floor')

    def test_a_circle_of_more_files_than_three_is_found(self):
        files = [f'engine/exec/{name}.c' for name in 'abcd']
        for most in (3, 4):
            ring = list(zip(files[:most], files[1:most] + files[:1]))
            self.assertEqual(len(self.found(ring)), most - 3)

    def test_a_circle_of_two_folders_of_a_room_is_found(self):
        there = ('engine/session/ranks/a.c', 'engine/session/store/b.c')
        back = ('engine/session/store/c.c', 'engine/session/ranks/d.c')
        self.assertEqual(self.found([there]), [])
        self.assertEqual(self.found([there, back]),
                         ['a circle of folders: engine/session/ranks engine/session/store'])

    def test_a_name_that_is_defined_twice_is_found(self):
        self.assertRegex(self.found(twice=[('f', {'a.c', 'b.c'})])[0], 'a.c and in b.c')


class Read(unittest.TestCase):
    """What is read of objects and of files."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name

    def write(self, path, text):
        path = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'w', encoding='ascii') as file:
            file.write(text)
        return path

    def compile(self, path, target, text, *options):
        to = os.path.join(self.root, 'build', target)
        os.makedirs(os.path.dirname(to), exist_ok=True)
        subprocess.run(['cc', *options, '-c', self.write(path, text), '-o', to], check=True)

    def test_functions_and_tables_are_told_of_objects_and_what_is_static_is_not(self):
        below, above = 'engine/base/clock.c', 'engine/session/step.c'
        self.compile(below, 'engine/libengine.a.p/base_clock.c.o',
                     'int step(void); static int own;'
                     'int clock_now(void) { own++; return step(); }')
        self.compile(above, 'engine/libengine.a.p/session_step.c.o',
                     'static int own; const int table[] = {1}; int step(void) { return own++; }')
        defined, needed = floors.symbols(os.path.join(self.root, 'build'), [below, above])
        self.assertEqual(dict(defined), {'clock_now': {below}, 'step': {above}, 'table': {above}})
        self.assertEqual(dict(needed), {below: {'step'}})

    def test_kernels_of_a_gpu_are_read_too_and_their_templates_are_defined_often(self):
        below, above = 'kernels/cuda/ops/add.cu', 'kernels/cuda/table.c'
        for target in ('kernels/cuda/add.o', 'tests/simt/add.o'):
            self.compile(below, target, 'int table(void); int hst_cuda_add(void) {return table();}'
                         '__attribute__((weak)) int _Z5pieceIiE(void) { return 1; }', '-xc')
        self.compile(above, 'kernels/cuda/libcuda.so.p/table.c.o', 'int table(void) { return 1; }')
        defined, needed = floors.symbols(os.path.join(self.root, 'build'), [below, above])
        self.assertEqual(dict(defined), {'hst_cuda_add': {below}, 'table': {above}})
        self.assertEqual(dict(needed), {below: {'table'}})

    def test_a_public_header_is_found_and_is_below_what_it_promises(self):
        self.write('engine/base/clock.c', '#include <hoistway/kernels.h>\n#include <near.h>\n'
                                          '#include <session/step.h>\n')
        headers = {'kernels/include/hoistway/kernels.h', 'engine/base/near.h',
                   'engine/session/step.h'}
        self.assertEqual(list(floors.included(self.root, 'engine/base/clock.c', headers)),
                         ['kernels/include/hoistway/kernels.h', 'engine/session/step.h'])
        found = Breaches.found
        for file, header in (('kernels/host/a.c', 'kernels/include/hoistway/kernels.h'),
                             ('engine/include/hoistway/hoistway.h',
                              'kernels/include/hoistway/kernels.h'),
                             ('engine/base/a.h', 'engine/include/hoistway/hoistway.h')):
            self.assertEqual(found(self, [], [(file, header)]), [])
        for file, header in (('kernels/host/a.c', 'engine/include/hoistway/hoistway.h'),
                             ('aio/a.c', 'engine/include/hoistway/plan.h'),
                             ('kernels/include/hoistway/a.h', 'aio/include/hoistway/aio.h'),
                             ('engine/include/hoistway/a.h', 'engine/base/a.h')):
            self.assertEqual(len(found(self, [], [(file, header)])), 1, (file, header))

    def test_a_header_is_found_beside_a_file_and_from_the_roots(self):
        self.write('engine/base/clock.c', '#include "near.h"\n#  include "session/step.h"\n'
                                          '#include "none.h"\n#include <stdio.h>\n')
        headers = {'engine/base/near.h', 'engine/session/step.h', 'engine/near.h'}
        self.assertEqual(list(floors.included(self.root, 'engine/base/clock.c', headers)),
                         ['engine/base/near.h', 'engine/session/step.h'])


if __name__ == '__main__':
    unittest.main()
