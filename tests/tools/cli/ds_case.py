# SPDX-License-Identifier: Apache-2.0
"""What tests of --config share."""
import json

from program import Folder, run

BATCH = '"train_batch_size": 4, '


class Config(Folder):
    def put(self, text, name='ds.json'):
        with open(self.path(name), 'wb') as f:
            f.write(text if isinstance(text, bytes) else text.encode())
        return self.path(name)

    def plan(self, text, *args):
        return run('plan', '--model', self.path('model'), '--device=host', '--seq-len=32',
                   '--config', self.put(text), *args)

    def explain(self, config, *args, verb='train'):
        """The rows of a configuration: the key, and the rest of its row; a key may have two."""
        done = run(verb, '--explain-config', '--seq-len=32', '--config',
                   self.put(json.dumps(config)), *args)
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        rows = [line.split(maxsplit=1) for line in done.stdout.splitlines()[1:]]
        return [(key, ' '.join(rest.split())) for key, rest in rows]
