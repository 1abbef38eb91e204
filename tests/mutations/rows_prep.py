# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of `hoistway prep`, in Python."""
from rows import mutate

mutate(
    'python/hoistway/masks.py', 'python/masks python/prep',
    ('a turn is what is rendered with it less its prompt', 'span = (len(prompt), len(after))',
     'span = (0, len(after))'),
    ('a prompt begins what is rendered with its answer', 'if not after.startswith(prompt):',
     'if False:'),
    ('a turn that is rendered otherwise later is a document',
     "return 'whole' if whole.startswith(after) else 'own'", "return 'whole'"),
    ('something is rendered of an answer', 'if len(after) == len(prompt):', 'if False:'),
    ('what a template leaves out is seen', "end_of(message['content']) not in whole:", 'False:'),
    ('earlier turns have spans of their own', 'spans = spans[len(earlier):]', 'pass'),
    ('each turn has its span', 'if len(spans) < len(turns):', 'if False:'),
    ('a twin that renders otherwise is none', 'if text != whole:', 'if False:'),
    ('the last turn alone', 'document.spans = document.prompts = document.spans[-1:]', 'pass'),
    ('marks come first', 'if MARKS.search(marks):', 'if False:'),
)
mutate(
    'python/hoistway/template.py', 'python/masks',
    ('a twin is of exactly this template', 'if not _same(file.read(), text):', 'if False:'),
    ('but for a line end', "return one.removesuffix('\\n') == other.removesuffix('\\n')",
     'return one == other'),
    ('a template without a twin has none', 'or not os.path.exists(twin):',
     'or not os.path.exists(path):'),
)
mutate(
    'python/hoistway/encode.py', 'python/parts python/masks',
    ('a boundary is no token', 'return token if token == 0 or ends[token - 1] <= at else -1',
     'return token'),
    ('a span ends where it ends', 'mask[first:last] = 1', 'mask[first:] = 1'),
    ('the ids of the prompt begin those of the document',
     'if self._alone(tail) != ids[begin:first]:', 'if False:'),
)
mutate(
    'python/hoistway/control.py', 'python/parts python/prep',
    ('they are found in keys', 'self.find(step, (*path, step)) if isinstance(step, str) else None',
     'None'),
    ('and across parts',
     'return self.find(joined(value), path) if isinstance(value, list) else None', 'return None'),
    ('the longest is named', '(-len(token), token)', '(len(token), token)'),
)
mutate(
    'python/hoistway/worker.py', 'python/prep',
    ('tools in a string are looked into', "used['tools'] = sample.tools", 'pass'),
    ('ids are of the model',
     'if any(not 0 <= number < self.settings.vocab for number in sample.ids):', 'if False:'),
    ('tokens are of the model', 'if len(ids) and int(ids.max()) >= self.settings.vocab:',
     'if False:'),
    ('a document has a target',
     'if len(ids) < 2 or (mask is not None and not mask[1:].any()):', 'if False:'),
    ('a text ends with eos once', 'if eos is not None and (not ids or ids[-1] != eos):',
     'if eos is not None and not ids:'),
    ('an answer begins with a token', 'if begin < sample.learned < end:', 'if False:'),
    ('what a row of ids learns',
     "learn_all = self.settings.learn == 'all' or sample.mask is None", 'learn_all = True'),
    ('documents without a mask are learned beside others',
     'numpy.ones(len(part.ids), numpy.uint8) if part.mask is None else part.mask',
     'numpy.zeros(len(part.ids), numpy.uint8) if part.mask is None else part.mask'),
    ('a row that is bad leaves nothing', 'if row not in bad]', ']'),
    ('what is wrong is placed', 'wrong.column = column_of(text, wrong.path)', 'wrong.column = 1'),
    ('a row of a table has its number', ', row {number}', ':{number}:1'),
)
mutate(
    'python/hoistway/rows.py', 'python/parts',
    ('labels are the ids or -100',
     "if value not in ((NOT_LEARNED, token) if key == 'labels' else (0, 1)):", 'if False:'),
    ('as many as ids', 'if len(values) != len(ids):', 'if False:'),
    ('true is no number', 'all(type(n) is int for n in numbers)',
     'all(isinstance(n, int) for n in numbers)'),
    ('unknown keys are refused', '    if unknown:\n', '    if False:\n'),
    ('a completion begins behind its prompt', "_tools(row), len(prompt),", '_tools(row), 0,'),
    ('an answer that is joined bare begins behind what is asked',
     'return Text(before + answer, len(before), keys[1:])',
     'return Text(before + answer, 0, keys[1:])'),
)
mutate(
    'python/hoistway/strict.py', 'python/parts',
    ('a key is there once', 'if len(found) != len(pairs):', 'if False:'),
    ('of its own object', "within.append(set() if word == '{' else None)", 'within.append(set())'),
    ('a value is no key', "elif word[0] == '\"' and before in '{,' and",
     "elif word[0] == '\"' and"),
    ('NaN is no JSON', 'parse_constant=_no_constant, ', ''),
)
mutate(
    'python/hoistway/calls.py', 'python/parts',
    ('only an object is one', 'return found if isinstance(found, dict) else None', 'return found'),
    ('a key that is there twice is refused', 'if wrong.twice:', 'if False:'),
)
mutate(
    'python/hoistway/tokenfile.py', 'python/parts',
    ('a mask that comes later learns what was before',
     "self.parts['mask'].add_ones(before)", 'pass'),
    ('and what has none', "self.parts['mask'].add_ones(len(ids))", 'pass'),
    ('documents go on', "before + numpy.cumsum(lengths, dtype='<i8')",
     "numpy.cumsum(lengths, dtype='<i8')"),
    ('16 bits name no more than they do', 'ids <= 1 << 16', 'ids <= 1 << 17'),
    ('the widest come first', '(-parts[name].dtype.itemsize, name)', 'name'),
    ('what failed leaves nothing', 'os.unlink(partial)', 'pass'),
)
mutate(
    'python/hoistway/model.py', 'python/parts python/prep',
    ('merges decide', "enumerate(model.get('merges') or ())", 'enumerate(())'),
    ('added tokens decide', "description.get('added_tokens') or ():", '():'),
    ('a fraction is as the file has it', ', parse_float=Real)', ')'),
    ('a byte of a piece is a byte', 'return bytes([int(token[3:5], 16)])', 'pass'),
    ('offsets keep their blanks', "step['trim_offsets'] = False", 'pass'),
    ('another tokenizer is refused',
     'if identity(used.description) != identity(own) and not allowed:', 'if False:'),
)
mutate(
    'python/hoistway/prep.py', 'python/parts python/prep',
    ('bad rows are counted', 'if self.skipped > self.skip_most:', 'if False:'),
    ('control tokens are refused', "if totals.controlled and given.control == 'refuse':",
     'if False:'),
    ('a file of others is left alone',
     'if os.path.lexists(path) and not (os.path.isfile(path) and is_token_file(path)):',
     'if False:'),
    ('what asked for the end is not forgotten', '    if _ended_by:\n', '    if False:\n'),
)
