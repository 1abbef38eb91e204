# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of buffers of several sizes: placement, graph."""
from rows import mutate

mutate(
    'engine/plan/placement/unit_sizes.c', 'engine/unit_sizes',
    ('a narrow unit is clearly smaller', 'bytes <= other / 4 * 3', 'bytes < other'),
    ('no slice is narrow', '!layout_is_slice(in->layout, unit) &&', ''),
    ('nor is what comes before one', '!layout_is_slice(in->layout, unit + 1)', 'true'),
    ('of two that are small enough the first is narrow',
     'p->units[u - 1].size != UNIT_NARROW &&', ''),
    ('what is larger than narrow ones is not', ' && unit_sizes_bytes(in, u) <= narrow', ''),
    ('no slice takes the turn of one', '            !layout_is_slice(in->layout, u) &&', ''),
    ('where none is narrow nothing else is', 'narrow > 0 && u < units', 'u < units'),
    ('units in a row are no more than so many', 'inside == count', 'inside > count'),
    ('resident units borrow nothing', ' && (all || !placement_is_resident(p, unit))', ''),
)
mutate(
    'engine/plan/placement/buffer_pools.c', 'engine/unit_sizes',
    ('narrow units share where that takes less',
     'bytes_of(pools) > sat_add(room, room / NARROW_MORE)', 'false'),
    ('and not where it takes hardly less', 'sat_add(room, room / NARROW_MORE)', 'room'),
    ('segments want one more in a row', 'count + (wanted->segments && count > 0)',
     'count'),
    ('but not of gradients', '{HST_TIER_HBM, c->device_depths.grads, false,',
     '{HST_TIER_HBM, c->device_depths.grads, segments,'),
)
mutate(
    'engine/plan/placement/placement.c', 'engine/exposed',
    ('ranks read buffers of all sizes', '&p->grad_buffers[UNIT_SIZES - 1]', '&p->grad_buffers[1]'),
)
mutate(
    'engine/plan/graph/graph_ahead.c', 'engine/graph_halves',
    ('visits are as many as there are buffers for', '> b->in->buffers[of]; first++',
     '>= b->in->buffers[of]; first++'),
    ('those of the backward count', 'least(depth_in(b, pool, false), depth_in(b, pool, true))',
     'depth_in(b, pool, false)'),
    ('rows of halves are gathered a unit sooner', 'copy + (narrow && b->in->apart)', 'copy'),
    ('those of layers are not', 'copy + (narrow && b->in->apart)', 'copy + b->in->apart'),
)
mutate(
    'engine/plan/graph/graph_ahead.c', 'engine/graph',
    ('units of a size have no other one\'s buffer',
     'if (b->in->buffers[pool + UNIT_NARROW] == 0)', 'if (true)'),
)
mutate(
    'engine/plan/graph/step_graph.c', 'e2e/halves',
    ('a pool of a size has its own memory', 'kinds[i].pools[pool - kinds[i].first]',
     'kinds[i].pools[0]'),
)
