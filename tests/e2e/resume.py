#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a user sees of runs that are stopped and go on: exit codes, what may change, the log.

resume.py PATH_OF_HOISTWAY SOURCE_ROOT
"""

import fcntl
import hashlib
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from store_bytes import Store  # noqa: E402

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from short import by_turns, some  # noqa: E402

PROGRAM, ROOT = sys.argv[1:3]
MODEL = os.path.join(ROOT, 'tests', 'golden', 'untied-mha')
TOKENS = os.path.join(MODEL, 'tokens.bin')
TELLS_SOON = {**os.environ, 'HOISTWAY_SILENCE': '0.2'}  # of a step, in a pipe


def forge_the_line_of_data(directory, line):
    def put(cursor):
        at = cursor.index(b'\ndata ') + 1
        return cursor[:at] + line + cursor[cursor.index(b'\n', at) + 1:]
    Store(directory).forge_client_cursor(put)


class Resume(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(dir='.')
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name
        self.store, self.log = (os.path.join(self.folder, name) for name in ('store', 'log.jsonl'))

    def command(self, *more, steps=4, model=MODEL, log=None, data=TOKENS):
        return [
            PROGRAM, 'train', '--device', 'host', '--model', model, '--data',
            data, '--steps', str(steps), '--seq-len', '24',
            '--batch-tokens', '48', '--store', self.store, '--log', log or self.log,
            '--place', 'states=nvme,weights=nvme', *more,
        ]  # fmt: skip

    def run_it(self, *more, **kind):
        return subprocess.run(
            self.command(*more, **kind), capture_output=True, text=True, timeout=60, check=False)

    def refuse(self, code, part, *more, **kind):
        """Refused with 2 or 1. -> whether no byte of store and log has changed."""
        before = self.bytes_there()
        done = self.run_it(*more, **kind)
        self.assertIn(f'error[E{code}] ', done.stderr)
        self.assertIn(part, done.stderr)
        self.assertIn(done.returncode, (1, 2))
        return before == self.bytes_there()

    def bytes_there(self):
        sums = {}
        for folder, _, names in os.walk(self.folder):
            for name in names:
                with open(os.path.join(folder, name), 'rb') as file:
                    sums[name] = hashlib.sha256(file.read()).hexdigest()
        return sums

    def kinds(self):
        with open(self.log, encoding='ascii') as log:
            return [(line['kind'], line.get('step')) for line in map(json.loads, log)]

    def wait_for_a_step(self, child):
        for line in child.stderr:
            if line.startswith('step '):
                break

    def test_a_first_signal_leaves_a_version_and_exit_code_75(self):
        child = subprocess.Popen(
            self.command(steps=1000000), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            text=True, env=TELLS_SOON)
        self.wait_for_a_step(child)
        child.send_signal(signal.SIGTERM)
        told = child.stderr.read()
        child.stderr.close()
        self.assertEqual(child.wait(), 75, told)
        self.assertRegex(told, r'stopped \(Terminated\) after \d+ of 1000000 steps: the store '
                         r'holds step \d+, ')
        kind, step = self.kinds()[-1]
        self.assertEqual(kind, 'commit')
        done = self.run_it('--resume', steps=step + 1)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f'note[I622] going on after step {step} of {step + 1}', done.stderr)
        self.assertEqual([s for k, s in self.kinds() if k == 'step'], list(range(1, step + 2)))

    def stop_before_the_load(self, *more, ignored=(), signals=(signal.SIGUSR1,)):
        """The run waits for who reads its table, which comes before the load. -> code, stderr."""
        def ignore():
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
            for number in ignored:
                signal.signal(number, signal.SIG_IGN)
        end, stdout = os.pipe()
        os.set_blocking(stdout, False)
        try:
            while os.write(stdout, b' ' * 4096):
                pass
        except BlockingIOError:
            os.set_blocking(stdout, True)
        with subprocess.Popen(
            self.command(*more), stdout=stdout, stderr=subprocess.PIPE, text=True,
            preexec_fn=ignore,
        ) as child:
            os.close(stdout)
            for line in child.stderr:
                if 'I201' in line:
                    break
            for number in signals:
                child.send_signal(number)
            with os.fdopen(end, 'rb') as table:
                table.read()
            told = child.stderr.read()
        return child.returncode, told

    def test_a_first_signal_while_a_run_starts_ends_with_75_and_tells_what_the_store_holds(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
            code, told = self.stop_before_the_load(signals=(number,))
            self.assertEqual(code, 75, told)
            self.assertIn('before its first step: the store holds no version yet: the run begins '
                          'anew\n', told)
        self.assertEqual(self.run_it(steps=3).returncode, 0)
        code, told = self.stop_before_the_load('--resume')
        self.assertEqual(code, 75, told)
        # its table comes once the store is known to be its own
        self.assertIn('after 3 of 4 steps: the store holds step 3, and --resume', told)
        self.assertEqual(self.run_it('--resume').returncode, 0)

    def test_a_hangup_that_is_ignored_is_no_signal_and_without_versions_the_first_ends_with_130(
            self):
        code, told = self.stop_before_the_load(
            ignored=(signal.SIGHUP,), signals=(signal.SIGHUP, signal.SIGTERM))
        self.assertEqual(code, 75, told)
        self.assertIn('stopped (Terminated)', told)
        code, told = self.stop_before_the_load('--durability=none')
        self.assertEqual(code, 130, told)
        self.assertIn('after 0 of 4 steps: nothing was committed, so nothing is kept', told)

    def test_after_a_kill_the_next_run_says_that_it_has_read_every_byte(self):
        self.assertEqual(self.run_it().returncode, 0)
        self.assertNotIn('I621', self.run_it('--resume', steps=5).stderr)
        with subprocess.Popen(
            self.command('--resume', steps=1000000), stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, env=TELLS_SOON,
        ) as child:
            self.wait_for_a_step(child)
            child.kill()
        done = self.run_it('--resume', steps=5)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r'note\[I621\] .* [\d.]+ MiB were read and compared')

    def test_what_decides_the_result_must_be_the_same_and_some_may_be_changed_on_purpose(self):
        self.assertEqual(self.run_it('--lr=1e-3', '--schedule=cosine').returncode, 0)
        same = ('--resume', '--lr=1e-3', '--schedule=cosine')
        other = shutil.copytree(MODEL, os.path.join(self.folder, 'model'))
        with open(os.path.join(other, 'config.json'), encoding='ascii') as file:
            config = json.load(file)
        config['rms_norm_eps'] = 0.125
        with open(os.path.join(other, 'config.json'), 'w', encoding='ascii') as file:
            json.dump(config, file)
        self.assertTrue(self.refuse(616, '--resume', '--lr=1e-3'))
        self.assertTrue(self.refuse(615, 'betas', *same, '--betas=0.8,0.9'))
        self.assertTrue(self.refuse(615, 'Fix: --clip 1, or another', *same, '--clip=2'))
        self.assertTrue(self.refuse(615, 'Fix: the --model of that run', *same, model=other))
        self.assertTrue(self.refuse(615, "'seed 0', this run has 'seed 1'", *same, '--seed=1',
                                    '--allow-config-change'))
        self.assertTrue(self.refuse(615, 'Fix: --lr 0.001, or --allow-config-change', '--resume',
                                    '--lr=2e-3', '--schedule=cosine'))
        self.assertTrue(self.refuse(615, "'steps 4', this run has 'steps 6'", *same, steps=6))
        done = self.run_it(*same, '--allow-config-change', steps=6)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("warning[W622] the run goes on with 'steps 6' where it had", done.stderr)
        self.assertEqual([s for k, s in self.kinds() if k == 'step'], [1, 2, 3, 4, 5, 6])

    def test_all_that_rates_depend_on_must_be_the_same_at_a_resume(self):
        schedule = {'--schedule': 'wsd', '--warmup': '2', '--decay': '50%', '--lr-end': '0.25'}

        def given(**changed):
            new = {'--' + key.replace('_', '-'): value for key, value in changed.items()}
            return [f'{key}={value}' for key, value in {**schedule, **new}.items()]
        self.assertEqual(self.run_it(*given()).returncode, 0)
        for changed, fix in (({'schedule': 'linear'}, 'schedule wsd'),
                             ({'warmup': '1'}, 'warmup 2'),
                             ({'decay': '1'}, 'decay 2'), ({'lr_end': '0'}, 'lr-end 0.25')):
            more = [a for a in given(**changed) if changed != {'schedule': 'linear'}
                    or not a.startswith('--decay')]
            self.assertTrue(self.refuse(615, f'Fix: --{fix}, or --allow-config-change', '--resume',
                                        *more))
        self.assertTrue(self.refuse(615, "'steps 4', this run has 'steps 5'", '--resume',
                                    *given(decay='2'), steps=5))
        self.assertEqual(self.run_it('--resume', *given(warmup='50%', decay='2')).returncode, 0)

    def test_a_store_of_the_old_formula_is_gone_on_from_on_purpose_alone(self):
        same = ('--schedule=cosine', '--warmup=1')
        self.assertEqual(self.run_it(*same).returncode, 0)

        def as_before(cursor):
            self.assertIn(b'\nschedule cosine v2\nwarmup 1\nlr-end 0\nsteps 4\n', cursor)
            return cursor.replace(b' v2\n', b'\n').replace(b'lr-end 0\n', b'')
        Store(self.store).forge_client_cursor(as_before)
        self.assertTrue(self.refuse(
            615, "begun with 'schedule cosine' of another version of hoistway", '--resume', *same,
            steps=6))
        done = self.run_it('--resume', '--allow-config-change', *same, steps=6)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("goes on with 'schedule cosine v2' where it had 'schedule cosine'",
                      done.stderr)
        done = self.run_it('--resume', *same, steps=6)
        self.assertEqual((done.returncode, 'W622' in done.stderr), (0, False), done.stderr)

    def test_a_constant_rate_has_no_version_as_no_formula_of_it_was_another(self):
        self.assertEqual(self.run_it('--warmup=50%').returncode, 0)
        cursor = Store(self.store).cursor()[-1]
        self.assertTrue(cursor.endswith(b'\nlr 1e-05\nschedule constant\nwarmup 2\n'), cursor)

    def test_another_default_of_the_sequence_length_is_told(self):
        self.assertEqual(self.run_it().returncode, 0)
        line = [a for a in self.command('--resume') if a not in ('--seq-len', '24')]
        done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("'seq-len 24', this run has 'seq-len 48'. Fix: --seq-len 24", done.stderr)

    def data(self, name, first, count):
        """Raw tokens. -> the file."""
        path = os.path.join(self.folder, name)
        with open(path, 'wb') as file:
            file.write(b''.join((first + i % 100).to_bytes(4, 'little') for i in range(count)))
        return path

    def test_other_data_and_the_same_files_in_another_order_are_refused_unless_it_is_meant(self):
        one, two, other = (self.data(f'{name}.bin', first, 500)
                           for first, name in enumerate(('one', 'two', 'other')))
        longer = self.data('longer.bin', 0, 501)

        def of(*files):
            return {'data': ','.join(files), 'steps': 5}

        raw, again = '--token-dtype=u32', ('--token-dtype=u32', '--resume')
        self.assertEqual(self.run_it(raw, data=f'{one},{two}').returncode, 0)
        self.assertTrue(self.refuse(615, 'in another order. Fix: the order of that run, or '
                                    '--allow-config-change', *again, **of(two, one)))
        for files in ((other, other), (one, one), (two, two), (one, other)):
            self.assertTrue(self.refuse(615, 'trained on other data than --data', *again,
                                        **of(*files)))
        self.assertTrue(self.refuse(615, "'tokens 1000', this run has 'tokens 1001'. Fix: the "
                                    '--data of that run, or --allow-config-change', *again,
                                    **of(one, longer)))
        moved = os.path.join(self.folder, 'folder', 'moved.tokens')
        os.makedirs(os.path.dirname(moved))
        os.rename(two, moved)
        done = self.run_it(*again, '--data-format=tokens', **of(one, moved))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn('W622', done.stderr)
        os.rename(moved, two)
        for steps, files, told in (
            (6, (two, one), ['its data files in another order']),
            (7, (other, one), ['other data than it had']),
            (8, (other, longer), ["'tokens 1001' where it had 'tokens 1000'",
                                  'other data than it had']),
        ):
            done = self.run_it(*again, '--allow-config-change', '--quiet', steps=steps,
                               data=','.join(files))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stderr, ''.join(
                f'warning[W622] the run goes on with {what}\n' for what in told))
        self.assertTrue(self.refuse(615, "'tokens 1001'", *again, **of(one, two)))

    def test_a_store_without_a_line_of_its_data_goes_on_as_it_did(self):
        one, other = (self.data(f'{name}.bin', first, 500)
                      for first, name in enumerate(('one', 'other')))
        again = ('--token-dtype=u32', '--resume')
        self.assertEqual(self.run_it(again[0], data=one).returncode, 0)
        forge_the_line_of_data(self.store, b'')
        done = self.run_it(*again, data=other, steps=5)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn('W622', done.stderr)
        self.assertTrue(self.refuse(615, 'trained on other data', *again, data=one, steps=6))

    def test_a_line_of_data_that_somebody_wrote_is_other_data(self):
        for line in some((b'data ' + 33 * b'x' + b'\n', b'data 0\n' + 25 * b'\n' + b'seed 0\n',
                          b'data  ' + 32 * b'0' + b'\n', b'data ' + 33 * b'\0' + b'\n'), 3):
            self.assertEqual(self.run_it().returncode, 0)
            forge_the_line_of_data(self.store, line)
            self.assertTrue(self.refuse(615, 'other data than', '--resume', steps=5), line)
            shutil.rmtree(self.store)

    def padded_model(self, pad):
        name = os.path.join(self.folder, f'pad{pad}')
        other = shutil.copytree(MODEL, name)
        with open(os.path.join(other, 'config.json'), encoding='ascii') as file:
            config = json.load(file)
        with open(os.path.join(other, 'config.json'), 'w', encoding='ascii') as file:
            json.dump({**config, 'pad_token_id': pad}, file)
        return other

    def test_a_row_for_padding_is_trained_to_the_end_as_it_was_begun(self):
        padded, another = self.padded_model(-1), self.padded_model(3)
        self.assertEqual(self.run_it().returncode, 0)
        self.assertTrue(self.refuse(615, '(it has none, config.json has pad_token_id 159): '
                                    'look-ups do not train that row. Fix: "pad_token_id": null',
                                    '--resume', steps=5, model=padded))
        self.assertEqual(self.run_it('--resume', steps=5).returncode, 0)
        shutil.rmtree(self.store)
        self.assertEqual(self.run_it(model=padded).returncode, 0)
        for other, said in ((MODEL, 'none'), (another, 'pad_token_id 3')):
            self.assertTrue(self.refuse(615, f'(it has pad_token_id 159, config.json has {said})',
                                        '--resume', steps=5, model=other))
        self.assertEqual(self.run_it('--resume', steps=5, model=padded).returncode, 0)
        done = subprocess.run(  # what is exported does not depend on it
            [PROGRAM, 'ckpt', 'export', self.store, '--model', MODEL, '--export',
             os.path.join(self.folder, 'export')],
            capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)

    def poisoned_model(self):
        """A token's embedding is no number. -> the model, the steps in which the token is read."""
        with open(os.path.join(MODEL, 'tokens.bin'), 'rb') as file:
            data = file.read()[1024:]
        tokens = struct.unpack(f'<{len(data) // 4}I', data)
        steps = [tokens[at:at + 48] for at in range(0, len(tokens) - 48, 48)][:10]
        reads = {token: [n + 1 for n, step in enumerate(steps) if token in step]
                 for token in tokens}
        token = min(t for t, n in reads.items() if len(n) == 2 and 1 < n[0] < n[1] - 1 < 9)
        model = shutil.copytree(MODEL, os.path.join(self.folder, 'poisoned'))
        with open(os.path.join(model, 'model-00001-of-00002.safetensors'), 'r+b') as file:
            header = struct.unpack('<Q', file.read(8))[0]
            file.seek(8 + header + token * 64 * 2)  # the embedding is the first tensor
            file.write(b'\xc0\x7f')  # a NaN in bf16
        return model, reads[token]

    def skipped(self):
        with open(self.log, encoding='ascii') as log:
            lines = [json.loads(line) for line in log]
        return [line['step'] for line in lines if line.get('skipped')], [
            (line['step'], line['loss'], line['grad_norm']) for line in lines
            if line['kind'] == 'step']

    def test_steps_that_are_not_finite_end_the_run_or_are_skipped_and_counted(self):
        model, steps = self.poisoned_model()
        export = os.path.join(self.folder, 'export')
        same = ('--order=sequential', '--lr=1e-3', f'--export={export}', '--export-dtype=fp32')
        for more in some((('--precision=bf16',), ('--precision=fp32', '--clip=0'),
                          ('--precision=fp16', '--loss-scale=1')), 3):
            more = (*more, *same, '--durability=step')
            done = self.run_it('--skip-nonfinite', *more, steps=10, model=model)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn('\nskipped 2 of them: gradients were not finite', done.stdout)
            skipped, told = self.skipped()
            self.assertEqual(skipped, steps)
            weights = self.bytes_there()['model.safetensors']
            shutil.rmtree(self.store)
            shutil.rmtree(export)
            self.assertFalse(self.refuse(701, f'step {steps[0]} is ', *more, steps=10,
                                         model=model))
            self.assertFalse(os.path.exists(export))
            done = self.run_it('--resume', '--skip-nonfinite', *more, steps=steps[0] + 1,
                               model=model)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stderr, rf'after step {steps[0] - 2}|after step {steps[0] - 1}')
            self.assertIn('\nskipped 1 of them: ', done.stdout)
            done = self.run_it('--resume', '--skip-nonfinite', *more, steps=10, model=model)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn('\nskipped 1 of them: ', done.stdout)
            self.assertIn('\nskipped 2 of all 10 steps of the store\n', done.stdout)
            self.assertNotIn('W701', done.stderr)
            self.assertEqual(self.skipped(), (steps, told))
            self.assertEqual(self.bytes_there()['model.safetensors'], weights)
            shutil.rmtree(self.store)
            shutil.rmtree(export)
        done = self.run_it('--skip-nonfinite', '--quiet', *more, steps=10, model=model)
        self.assertRegex(done.stderr, r'(?m)^warning\[W701\] 2 of 10 steps were skipped: ')

    def test_moments_in_bf16_that_were_rounded_otherwise_are_told_once(self):
        """A store of a hoistway whose noise did not depend on the element has no line of it."""
        short = ('--precision=bf16', '--state=bf16')
        self.assertEqual(self.run_it(*short, steps=2).returncode, 0)
        Store(self.store).forge_settings(lambda text: text.replace('rounding index\n', ''))
        self.assertTrue(self.refuse(615, 'trained with betas', *short, '--resume',
                                    '--betas=0.8,0.9', steps=3))
        done = self.run_it(*short, '--resume', '--quiet', steps=3)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r'^warning\[W622\] the store was trained when the rounding '
                                      r'of moments to bf16 [^\n]*\n$')
        done = self.run_it(*short, '--resume', '--quiet', steps=4)
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        Store(self.store).forge_settings(lambda text: text.replace('rounding index', 'rounding x'))
        self.assertTrue(self.refuse(615, 'rounding x, this run has rounding index. Fix: the model ',
                                    *short, '--resume', steps=5))

    def test_norms_that_were_added_otherwise_are_told_once(self):
        """A store of a hoistway whose norms were sums of rounded sums has no line of them. Where
        nothing is clipped it makes no difference."""
        for clip, told in (('1', r'note\[I622\] the store does not say that norms of gradients '
                                 r'were exact sums, [^\n]*\n'), ('0', '')):
            self.assertEqual(self.run_it(f'--clip={clip}', steps=2).returncode, 0)
            Store(self.store).forge_settings(lambda text: text.replace('norm exact\n', ''))
            self.assertTrue(self.refuse(
                615, f'trained with clip {clip}, this run has clip 0.5. Fix', '--clip=0.5',
                '--resume', steps=3))
            for steps, words in ((3, told), (4, '')):
                done = self.run_it(f'--clip={clip}', '--resume', steps=steps)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual('I622] the store does' in done.stderr, bool(words), done.stderr)
                self.assertRegex(done.stderr, words or 'going on')
            shutil.rmtree(self.store)

    def test_a_log_that_knows_of_versions_is_kept_where_the_store_has_gone(self):
        self.assertEqual(self.run_it().returncode, 0)
        shutil.rmtree(self.store)
        self.assertTrue(self.refuse(105, 'step 4 was committed', '--resume'))

    def test_a_log_that_a_killed_run_still_holds_is_waited_for(self):
        self.assertEqual(self.run_it(steps=2).returncode, 0)
        with open(self.log, 'rb') as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            timer = threading.Timer(0.6, fcntl.flock, (held, fcntl.LOCK_UN))
            timer.start()
            done = self.run_it('--resume', steps=3)
            timer.join()
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_store_that_is_older_than_its_log_is_told_and_gone_on_from(self):
        self.assertEqual(self.run_it(steps=5).returncode, 0)
        older = shutil.copytree(self.store, os.path.join(self.folder, 'older'))
        self.assertEqual(self.run_it('--resume', steps=9).returncode, 0)
        shutil.rmtree(self.store)
        os.rename(older, self.store)
        os.chmod(self.store, 0o700)
        done = self.run_it('--resume', '--quiet', steps=10)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r'^warning\[W622\] the log .* says that step 9 was '
                                      r'committed, but .* holds step 5: [^\n]*\n$')
        self.assertEqual([s for k, s in self.kinds() if k == 'step'], list(range(1, 11)))
        done = self.run_it('--resume', steps=11)
        self.assertNotIn('W622', done.stderr)
        self.assertIn('trained 1 step, ', done.stdout)

    def test_steps_that_have_no_line_in_the_log_are_marked_once(self):
        self.assertEqual(self.run_it(steps=2).returncode, 0)
        self.assertEqual(self.run_it('--resume', steps=4, log='/dev/null').returncode, 0)
        for steps in (5, 6):
            self.assertEqual(self.run_it('--resume', steps=steps).returncode, 0)
        with open(self.log, encoding='ascii') as log:
            lines = [json.loads(line) for line in log]
        gap = {'kind': 'gap', 'from': 3, 'to': 4}
        self.assertEqual([line for line in lines if line['kind'] == 'gap'], [gap])
        self.assertEqual(lines[lines.index(gap) - 1]['kind'], 'run')
        self.assertEqual([s for k, s in self.kinds() if k == 'step'], [1, 2, 5, 6])
        os.remove(self.log)
        self.assertEqual(self.run_it('--resume', steps=7).returncode, 0)
        self.assertEqual([kind for kind, _ in self.kinds()][:3], ['run', 'gap', 'step'])

    def test_a_log_may_be_a_device(self):
        self.assertEqual(self.run_it(log='/dev/null', steps=2).returncode, 0)
        done = self.run_it('--resume', log='/dev/null')
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_damage_is_told_with_its_place_and_found_again_by_the_next_open(self):
        self.assertEqual(self.run_it('--durability=none').returncode, 0)
        self.assertEqual(os.listdir(self.store) if os.path.exists(self.store) else [], [])
        self.assertEqual(self.run_it().returncode, 0)
        path = os.path.join(self.store, 'r00000.d0.blk')
        size = os.path.getsize(path)
        with open(path, 'r+b') as file:  # both slots, but for what is at the file's ends
            file.seek(size // 3)
            file.write(b'\xa5' * (size // 3))
        done = self.run_it('--resume', steps=6)  # it was closed in order, and is trusted
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, r'error\[E614\] reading .* offset \d+ .*/r00000\.d0\.blk')
        done = self.run_it('--resume', steps=6)  # now every byte is read first
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, r'error\[E614\] .* has no version that is whole .*offset \d+')


load_tests = by_turns

if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1])
