#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `hoistway plan` and `train` say of their rates: how old each is, and what disturbed them.

    plan_rates.py PATH_OF_HOISTWAY [Class.test_name]
"""
import os
import re
import subprocess
import sys
import unittest

from plan_case import Case, by_turns, machine, sealed


class Trust(Case):
    def test_rates_measured_beside_other_work_are_said_and_soon_forgotten(self):
        self.forget()
        busy = [subprocess.Popen([sys.executable, '-c', 'while True: pass'])
                for _ in range(2 * len(os.sched_getaffinity(0)))]
        try:
            told = self.plan('--dram=256M', '--save-rates', self.path('kept'))
        finally:
            for process in busy:
                process.kill()
                process.wait()
        said = (r"\Awarning\[W108\] (other work had \d+\.\d of \d+ processors|threads waited for a "
                r"processor for \d+ % of their time) while rates were measured: they may be too "
                r"low\. They serve for ten minutes at most, and replace no better ones of the last "
                r"week\. ")
        self.assertRegex(told['disturbed'], said[len(r'\Awarning\[W108\] '):].split(' while')[0])
        self.assertEqual(len(self.disturbed), 1)
        self.assertRegex(self.disturbed[0], said)
        self.run_plan('--dram=256M')
        self.assertRegex(''.join(self.disturbed), said)  # found, and said again
        again = self.plan('--dram=256M', '--rates', self.path('kept'))
        self.assertEqual(again['disturbed'], told['disturbed'])
        self.rewrite({}, is_new=True)
        where = ('--dram=256M', '--store', self.path('store'), '--durability=none')
        text = self.run_plan(*where).stdout
        self.assertEqual(self.disturbed, [])
        self.assertRegex(text, r'(?m)^rates: update-fp32 \S+ [MG] elements/s, .*, just now$')
        done = self.run_train(*where)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('\n' + re.search(r'(?m)^rates: .*', text)[0] + '\n', done.stdout)

    def test_rates_of_a_file_say_that_they_were_disturbed(self):
        text = machine()
        head = text.index('update-fp32 ')
        rates = self.write('rates', sealed(
            f'{text[:head]}disturbed others had <1> of 2\n{text[head:text.index("end ")]}'))
        told = self.plan('--dram=1G', '--rates', rates, '--html', self.path('page.html'))
        self.assertEqual(told['disturbed'], 'others had <1> of 2')
        self.assertEqual(len(self.disturbed), 1)
        self.assertIn(f"others had <1> of 2 while the rates of '{rates}' were measured: they may "
                      "be too low. Fix: ", self.disturbed[0])
        with open(self.path('page.html'), encoding='utf-8') as f:
            page = f.read()
        self.assertRegex(page, '>disturbed<.*>others had &#60;1&#62; of 2 while the rates were')
        self.assertRegex(page, r'>compute<.*>1e\+12 FLOP/s, as given<')
        self.plan('--dram=1G', '--rates', self.write('rates', text), '--html',
                  self.path('page.html'))
        self.assertEqual(self.disturbed, [])
        with open(self.path('page.html'), encoding='utf-8') as f:
            self.assertNotIn('>disturbed<', f.read())

    def test_each_rate_has_its_age(self):
        days = 3 * 24 * 3600
        self.rewrite({}, age_s=days)
        told = self.plan('--dram=256M')
        known = {name for name, rate in told['rates'].items() if rate}
        self.assertEqual({name for name, age in told['rate_ages_s'].items() if age is not None},
                         known)
        for name in known:
            self.assertTrue(days <= told['rate_ages_s'][name] < days + 1800, told['rate_ages_s'])
        self.assertIn('compute', known)
        self.assertIsNone(told['disturbed'])
        self.forget()
        probed = self.plan('--dram=256M', '--store', self.path('store'), '--probe')
        self.assertTrue(0 <= probed['rate_ages_s']['compute'] < 600)
        self.assertEqual(set(probed['prefetch']), {'fp32', 'bf16', 'bf16-state-bf16',
                                                   'bf16-state-8bit'})
        self.assertLessEqual(set(probed['prefetch'].values()), {0, 512})
        self.rewrite({}, is_new=True)
        self.rewrite({}, age_s=days, alone='read')
        where = ('--dram=256M', '--store', self.path('store'), '--durability=none')
        line = r'(?m)^rates: .*compute [^,;]+, just now; read [^;]*, 3 days ago$'
        text = self.run_plan(*where).stdout
        self.assertRegex(text, line)
        done = self.run_train(*where)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(re.findall(line, done.stdout), re.findall(line, text))


load_tests = by_turns

if __name__ == '__main__':
    unittest.main()
