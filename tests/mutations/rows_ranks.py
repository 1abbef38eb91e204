# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of a step's ways, and of the step graph of several ranks."""
from rows import mutate

mutate(
    'engine/plan/layout/ways.c', 'engine/ways',
    ('a way begins a micro-batch of its own',
     '(ways->tokens + ways->micro_tokens - 1) / ways->micro_tokens',
     'ways->tokens / ways->micro_tokens'),
    ('the last micro-batch of a way is shorter',
     'left < ways->micro_tokens ? left : ways->micro_tokens', 'ways->micro_tokens'),
    ('the type of a sum is by its place among all ways',
     '(struct hst_sum_node){ways->first, ways->count}', '(struct hst_sum_node){0, ways->count}'),
    ('a rank begins at its first way', 'return ways->first;', 'return 0;'),
    ('only sums of as many ways are added before the last',
     'left->node.count != right.node.count && !all', 'left->node.count < right.node.count && !all'),
    ('the last sums are added whatever they are of',
     'left->node.count != right.node.count && !all', 'left->node.count != right.node.count'),
    ('a sum of another type has another buffer',
     'hst_sum_type(&ways->tree, sum) != hst_sum_type(&ways->tree, left->node)', 'false'),
    ('the buffer of the left one is free again',
     'counter->taken &= ~(1u << left->buffer);', ''),
    ('the buffer of the right one is free again',
     'counter->taken &= ~(1u << right.buffer);', ''),
    ('the sum of all is said to be the last', '.last = sum.count == ways->count', '.last = false'),
    ('buffers that additions take are counted', 'taken |= counter.taken | 1u << addition.out', ''),
)
mutate(
    'engine/plan/layout/ways.h', 'engine/ways',
    ('so many sums wait', 'WAYS_SUMS_MOST = 18', 'WAYS_SUMS_MOST = 16'),
)
