# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of the room of communication."""
from rows import mutate

mutate(
    'kernels/base/sum_tree.c', 'comm/tree',
    ('the last group may be shorter', '(node.count < tree->hop && last)', 'false'),
    ('what is no node is refused', 'hst_sum_node_valid(&args->tree, sum_output(args)) &&',
     'true &&'),
    ('an input that is no node is refused', 'hst_sum_node_valid(&args->tree, sum_input(args, 0))',
     'true'),
    ('a node is a power of two where the ways go on',
     '(is_power_of_two(node.count) || node.first + node.count == tree->ways)', 'true'),
    ('a node is aligned', '(!aligned || node.count <= aligned)', 'true'),
    ('a node ends where the ways do', 'node.count > tree->ways - node.first', 'false'),
    ('inputs begin within the ways',
     'args->inputs - 1 <= (args->tree.ways - args->first - 1) / args->each', 'true'),
)
mutate(
    'kernels/base/sum_tree.h', 'comm/tree',
    ('no node has more ways than there are', 'most < left ? most : left', 'most'),
)
mutate(
    'kernels/host/ops/sum_ways.c', 'kernels/ways',
    ('two inputs of two types are not taken as one type',
     'hst_sum_type(&w->sum->tree, sum_input(w->sum, i + 1)) != type', 'false'),
    ('sums of a group are rounded, wherever they are made',
     'node.count == w->sum->tree.ways ? HST_F32', 'node.count ? HST_F32'),
    ('two inputs at once are rounded as one by one', 'if (rounded != HST_F32)', 'if (false)'),
    ('a NaN has one pattern',
     '(vec)vec_pick((uvec)(x != x), (uvec){0} + 0x7fc00000, (uvec)x)', 'x'),
)
mutate(
    'kernels/cuda/ops/sum_ways.cu', 'simt/suite/ways',
    ('an input has a type by its own place', 'is_narrow(a, sum_input(a, i))',
     'is_narrow(a, sum_input(a, 0))'),
    ('an addition within a group of four is rounded', 'rounds >> 2 & 1', 'false'),
    ('an addition of two groups is rounded', 'a.rounds >> right & 1', 'false'),
    ('an addition is named by its right node', 'group >> level << level', 'group'),
    ('a NaN has one pattern', 'isnan(v[i]) ? __uint_as_float(0x7fc00000u) : v[i]', 'v[i]'),
)
mutate(
    'engine/comm/mpi/plugin.c', 'comm/ranks',
    ('ranks meet before MPI ends', 'do_now(m, &(struct job){.kind = JOB_CLOSE})', '0'),
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
