# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of the room of communication."""
from rows import mutate

mutate(
    'engine/comm/tree.c', 'comm/tree',
    ('sums of a group are rounded, wherever they are made',
     'type != HST_F32 && w->node[left].count != w->tree->ways', 'false'),
    ('what is no node is refused', '    if (!sum_node_valid(&sum->tree, whole) ||', '    if ('),
)
mutate(
    'engine/comm/tree_type.c', 'comm/tree',
    ('the last group may be shorter', '(node.count < tree->hop && last)', 'false'),
)
mutate(
    'engine/comm/exact.c', 'comm/exact',
    ('a tie goes to the even one', '(below || mantissa & 1)', 'true'),
    ('what lies far below decides a tie', 'below |= limb[i] != 0;', 'below |= false;'),
    ('subnormal numbers are told from others', 'exponent ? exponent - 1 : 0', 'exponent'),
)
mutate(
    'engine/comm/launch.c', 'comm/launch',
    ('srun without PMI is refused', 'id == SLURM ? check_pmi(&given, &said, reason) : 0', '0'),
    ('a batch script is no step', 'if (id == SLURM && !is_step(given))', 'if (false)'),
    ('two launchers contradict each other',
     'state = compare(launch, &said, (enum source_id)id, reason);', 'state = 0;'),
    ("a step of mpirun's own daemons is no contradiction", 'other_id == SLURM || ', ''),
)
mutate(
    'engine/comm/model.c', 'comm/wrap',
    ('nothing ends before it is due', 'rc || due->at_ns > at_ns', 'rc'),
    ('one operation comes after the other', 'm->free_ns > at_ns ? m->free_ns : at_ns', 'at_ns'),
)
mutate(
    'engine/comm/fault.c', 'comm/wrap',
    ('what is refused strikes once', ' && f->faults[i].nth != f->struck', ''),
)
mutate(
    'engine/comm/mpi/hops.c', 'comm/ranks',
    ("a node's sum has its own size", '.sizes = h->mid_size};', '.sizes = NULL};'),
)
mutate(
    'engine/comm/mpi/operations.c', 'comm/ranks',
    ("a peer's row has its own size", '.sizes = m->size};', '.sizes = NULL};'),
    ("a peer's part lies where its type puts it", '(m->info.rank * op->count + at) * m->size[r]',
     '(m->info.rank * op->count + at) * m->size[m->info.rank]'),
)
mutate(
    'engine/comm/mpi/node.c', 'comm/ranks',
    ('ranks meet before they allocate',
     'int rc = mpi_meet(m, &(struct tag){TAG_ALLOC, block->size_bytes, 0});', 'int rc = 0;'),
    ('another operation is seen', 'if (memcmp(other, mine, sizeof *mine) == 0)', 'if (true)'),
)
mutate(
    'engine/comm/mpi/wait.c', 'comm/ranks',
    ('a rank that is stopped is told from one that is late', 'if (is_silent(m, rank, now_ns()))',
     'if (false)'),
)
