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
    'kernels/host/ops/sum_ways.c', 'comm/tree',
    ('a sum of two ways is what its integers give back', 'give_back(w, w->depth - 1, n);', ';'),
    ('so is every other sum of a group', 'give_back(w, left, n);', ';'),
    ('and a way by itself', 'if (w->sum->inputs == 1)', 'if (false)'),
    ('each block has its own scale',
     'i < n; i += HST_QUANT_BLOCK)', 'i == 0; i += HST_QUANT_BLOCK)'),
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
    'kernels/host/ops/quantise.c', 'kernels/quantise',
    ('a block has its own scale', 'a->scales[at / BLOCK],', 'a->scales[at / BLOCK ^ 1],'),
)
mutate(
    'kernels/host/ops/quant_block.h', 'kernels/quantise',
    ('a small scale makes zeros', 'scale < QUANT_SCALE_LEAST ? 0 : scale', 'scale'),
    ('a block gives back no infinity', 'return nextafterf(scale, 0);', 'return scale;'),
    ('what is not finite makes its block NaN', 'if (absmax >= 0x7f800000)', 'if (false)'),
    ('integers are the nearest', '(double)scale + QUANT_ROUNDS',
     '(double)scale - 0.25 + QUANT_ROUNDS'),
    ('a NaN has one pattern',
     '(vec)vec_pick((uvec)(x != x), (uvec){0} + 0x7fc00000, (uvec)x)', 'x'),
)
mutate(
    'kernels/host/ops/quantise.c', 'e2e/quantised',
    ('a run on text needs each block to have its own scale', 'a->scales[at / BLOCK],',
     'a->scales[at / BLOCK ^ 1],'),
)
mutate(
    'kernels/cuda/ops/sum_quantised.cu', 'simt/suite/ways',
    ('a sum of a group is what its integers give back', 'a.sum.rounds >> right & 1', 'false'),
    ('and so is a way by itself', 'if (a.sum.rounds & 1)', 'if (false)'),
    ('the last one joins all that wait', 'joins && !last', 'joins'),
    ('nothing is written behind the last', 'at + W > left && at + i < left', 'at + W > left'),
)
mutate(
    'kernels/base/sum_tree.c', 'kernels/ways',
    ('a block begins at its own ways', 'block.first += begin * sum->each;', ''),
    ('the last block may have fewer inputs', 'block.inputs = most < left ? most : left;',
     'block.inputs = most;'),
    ('a block is an input of more ways', 'blocks.each *= most;', ''),
)
mutate(
    'engine/comm/nccl/exchange.c', 'comm/nccl',
    ('sums of blocks lie behind what one hop brings', 'n->ring + parts * piece.count)',
     'n->ring)'),
    ('and behind what two bring', '(h->other + mid * h->most)', '(h->parts + in * h->most)'),
    ('a block of one input is its value', 'added ? block.in[0] : partial', 'partial'),
    ('each block has its own sum', 'add_at_once(n, block, partial + b * count)',
     'add_at_once(n, block, partial)'),
)
mutate(
    'engine/comm/nccl/sums.c', 'comm/nccl',
    ('sums of blocks are apart from sums of a group', 'e->partial = e->mid + sums * e->most;',
     'e->partial = e->mid;'),
)
mutate(
    'engine/comm/nccl/sums.c', 'comm/nccl',
    ('what is no group travels as it is', 'return hst_sum_quantised(&h->sum.tree, node);',
     'return true;'),
    ('a message has its own scales', 'message + codes_bytes(h, count)),\n        .values',
     'message),\n        .values'),
    ('runs of a peer lie apart', '((size_t)peer * h->runs + run)', '((size_t)peer * h->runs)'),
)
mutate(
    'kernels/cuda/quant_block.h', 'simt/suite/quantise',
    ('a tie goes to the even one', 'left > scale || (left == scale && odd)', 'left >= scale'),
    ('what the reciprocal proposes is corrected', 'q += 1.0f;', ';'),
    ('a small scale makes zeros', 'scale < 0x1p-126f ? 0.0f : scale', 'scale'),
)
mutate(
    'engine/comm/nccl/meet_file.c', 'comm/meet_file',
    ('a rank takes an answer to its own call alone', ' || !same(&token, &m->own))', ')'),
    ('a rank takes no answer before all have called', '!answer.complete', 'false'),
    ('a rank is not of a world of another size', 'answer.ranks != m->in->ranks', 'false'),
    ('a call that takes the place of another one is answered', '!same(&now.token, &c->token);',
     'false;'),
    ('who has been answered and is gone has the value', 'rc == 0 && answered', 'false'),
    ('a rank looks whether its file is still its own',
     'rc == 1 && same(&token, &m->own) ? 0 : refuse_other(m)', '0'),
    ('a file that others can write is not read', 'is.st_mode & (S_IRWXG | S_IRWXO)', 'false'),
    ('a link is not read', 'O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK',
     'O_RDONLY | O_CLOEXEC | O_NONBLOCK'),
    ('a directory is no link', 'O_DIRECTORY | O_NOFOLLOW', 'O_DIRECTORY'),
)
mutate(
    'engine/comm/nccl/gathers.c', 'comm/nccl',
    ('a rank has its own part as others have it',
     'for (uint32_t r = 0; !rc && r < n->info.ranks; r++)',
     'for (uint32_t r = n->info.rank == 0; !rc && r < n->info.ranks; r++)'),
    ('integers are given back behind their gather',
     'rc = rc ? rc : bring_integers(n, count);\n    for (uint32_t r = 0; !rc && r < '
     'n->info.ranks; r++)\n        rc = give_back(n, op, r, at, count);\n    return rc;',
     'for (uint32_t r = 0; !rc && r < n->info.ranks; r++)\n'
     '        rc = give_back(n, op, r, at, count);\n'
     '    return rc ? rc : bring_integers(n, count);'),
    ('a node keeps each part once', 'n->info.local * part, part)', '0 * part, part)'),
)
mutate(
    'engine/comm/mpi/quantised.c', 'comm/ranks',
    ('a rank has its own shard as others have it',
     'rc = rc ? rc : give_back(m, op, m->info.rank, at, n, own);', ''),
)
mutate(
    'engine/comm/mpi/sums.c', 'comm/ranks',
    ('a piece of integers is taken from where it lies', 'message + codes_bytes(h, c.at),',
     'message,'),
    ('so is its scale', 'scales + c.at / BLOCK', 'scales'),
    ('what is no group travels as it is', 'return hst_sum_quantised(&h->sum.tree, node);',
     'return true;'),
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
    ('ranks are numbered node by node', 'm->info.rank = (uint32_t)(told[0] + local);',
     'm->info.rank = (uint32_t)rank;'),
    ('another operation is seen',
     'if (other->kind == mine->kind && other->count == mine->count && other->where == mine->where)',
     'if (true)'),
    ("a peer's row lies where that rank has it", 'm->slot[i]->tag[m->step % 2].at',
     'm->slot[m->info.local]->tag[m->step % 2].at'),
)
mutate(
    'engine/comm/mpi/memory.c', 'comm/ranks',
    ('ranks meet before they allocate',
     'int rc = mpi_meet(m, &(struct tag){.kind = TAG_ALLOC, .count = bytes});', 'int rc = 0;'),
    ('ranks meet before they expose',
     'int rc = mpi_meet(m, &(struct tag){.kind = TAG_EXPOSE, .count = block->size_bytes});',
     'int rc = 0;'),
    ('one node decides for all', '1, MPI_INT, MPI_MIN, m->world', '1, MPI_INT, MPI_MIN, m->node'),
    ('addresses are a room', '!has_addresses(bytes * (locals + 1))', 'false'),
    ('one rank of a node shares with nobody', 'if (!m->uniform || m->info.locals == 1)',
     'if (!m->uniform)'),
)
mutate(
    'engine/comm/mpi/plugin.c', 'comm/ranks',
    ('what was exposed is not freed', 'block->memory == memory && !block->exposed',
     'block->memory == memory'),
)
mutate(
    'engine/plan/placement/placement.c', 'engine/exposed engine/ranks',
    ('whole weights are read in place', 'p->whole_weights && p->replicas == 0 ?', 'false ?'),
    ('whole gradients are read in place', 'p->buckets || p->replicas > 0 ?', 'false ?'),
)
mutate(
    'engine/session/ranks/ranks.c', 'engine/ranks e2e/ranks',
    ('rank 0 alone tells of shared memory', 'if (!ranks_tells(engine))', 'if (false)'),
)
mutate(
    'engine/comm/mpi/memory.c', 'comm/ranks',
    ('room that others have taken is not written to', 'if (errno != EINVAL)', 'if (0)'),
    ('nor is an allocation', 'if (!rc && !take_room(m, block->memory, bytes))', 'if (0)'),
)
mutate(
    'engine/comm/mpi/pulse.c', 'comm/ranks',
    ('signs of life do not pile up', 'while (is_done(&p->heard[behind]))',
     'if (is_done(&p->heard[behind]))'),
)
mutate(
    'engine/comm/mpi/wait.c', 'comm/ranks',
    ('nothing is said after a failure', 'if (m->slot && !failed)', 'if (m->slot)'),
)
mutate(
    'engine/session/ranks/ranks.c', 'e2e/ranks',
    ('what is shared in part is told as that', 'if (!info->shared && bytes > 0) {', 'if (0) {'),
)
mutate(
    'engine/comm/mpi/wait.c', 'comm/ranks',
    ('a rank that is stopped is told from one that is late', 'if (silent != COMM_NOBODY) {',
     'if (false) {'),
)
mutate(
    'engine/comm/mpi/wait.c', 'e2e/rank_ends',
    ('calls of MPI have a limit', 'if (!call || m->failure.native ||', 'if (call || !call ||'),
    ('a link that is cut is seen by who has patience', '|| is_cut(m, at_ns)));', '|| false));'),
    ('a rank that is stopped is seen by who has patience',
     '(find_silent(m, at_ns) != COMM_NOBODY ||', '(false ||'),
)
mutate(
    'engine/session/store/share_map.c', 'engine/share_map',
    ('without a name no store was voted for', 'return one->named && one->ranks == one->as.world;',
     'return one->ranks == one->as.world;'),
    ('the node that finds least comes first',
     'count_seen(map, &blocks[b]) < count_seen(map, best)', 'false'),
    ('a store that was moved is none', 'stores[s].replaced = true;', ';'),
    ('each of a node finds its own',
     'all = map->seen[(size_t)(block->first + i) * map->world + at + i];', ';'),
)
mutate(
    'engine/store/store.c', 'store/store',
    ('what was prepared stays', '!store->published && store->commit != COMMIT_PREPARED',
     '!store->published'),
)
mutate(
    'engine/ckpt/read.c', 'e2e/rank_moves',
    ('what a rank lacks comes from another',
     'return shares->take(shares->context, reader, part->bytes, part->size);', 'return 0;'),
)
mutate(
    'engine/ckpt/read.c', 'e2e/rank_ckpt-whole',
    ('one process writes all', 'return shares->process == shares->writer;', 'return true;'),
    ('a file is read by one of those that find it',
     'return ckpt_reader_of_rank(shares, at->rank) == shares->process;', 'return true;'),
)
mutate(
    'engine/session/store/move.c', 'e2e/rank_moves-whole',
    ('what is damaged is stepped back from', 'm->below = m->ckpt->looks[0].ref.version;', ';'),
    ('what cannot be moved leaves nothing',
     'store_close(store);\n    close_all(&m);', 'close_all(&m);'),
)
mutate(
    'engine/ckpt/version_text.c', 'e2e/rank_moves-whole',
    ('the hop is a part of the key', 'reduce_name(c->reduce), c->hop);',
     'reduce_name(c->reduce), 8u);'),
    ('what neither says is named', ', {"gather", "plain"}}', '}'),
)
mutate(
    'engine/session/store/other_run.c', 'e2e/rank_moves-whole',
    ('one rank tells of other products',
     '!*was || hst_dev_math_equal(was, is) || !ranks_tells(engine)',
     '!*was || hst_dev_math_equal(was, is)'),
)
mutate(
    'engine/session/ranks/ranks.c', 'e2e/rank_parts-whole',
    ('ranks divide the cores that all may use', '*threads > others ? *threads / (others + 1) : 1',
     '*threads'),
)
mutate(
    'engine/session/budget.c', 'e2e/rank_parts-whole',
    ("a rank has its part of a node's memory", 'in->dram_budget /= in->sharers;', ';'),
)
mutate(
    'engine/store/clear.c', 'e2e/rank_moves-whole',
    ('copies of a store that goes on are no strangers', 'expected == STORE_GOES_ON', 'false'),
)
mutate(
    'engine/session/store/left_copies.c', 'e2e/rank_moves-whole',
    ('copies where a rank still is are no others',
     '!is_ones_own(engine, all, directories.list[d].fd)', 'true'),
    ('each drive is told', 'd < directories.drives; d++)', 'd < 1; d++)'),
)
mutate(
    'engine/ckpt/reshard_room.c', 'e2e/rank_ckpt-whole',
    ('a file system holds what all write there', 'bytes += room->drive_bytes', 'bytes = 1'),
)
mutate(
    'engine/ckpt/read.c', 'e2e/rank_ckpt-whole',
    ('who cannot begin to read is heard of before', 'if (passes_on(&r))', 'if (0)'),
)
mutate(
    'engine/ckpt/reshard.c', 'e2e/rank_ckpt-whole',
    ('a directory may be that of several ranks',
     'if (rc != -EEXIST || !t->ckpt->shares)', 'if (true)'),
    ('what is cut off is marked where a file is left',
     'const bool ends = !holds_files(t, d);', 'const bool ends = true;'),
)
mutate(
    'engine/session/store/ckpt_ranks.c', 'e2e/rank_ckpt-whole',
    ('whoever waits for a rank can be stopped',
     'if (r->stopped && r->stopped(r->stopped_context))', 'if (false)'),
    ('an error names its rank', 'same = same && all[p].rc', 'same = same || all[p].rc'),
)
mutate(
    'engine/store/files.c', 'e2e/rank_moves-whole',
    ("drive 0's name changes first in a move", 'const uint32_t d = replaces ? i : drives - 1 - i;',
     'const uint32_t d = drives - 1 - i;'),
)
mutate(
    'engine/session/store/shares.c', 'e2e/rank_moves',
    ('what is left of a store before goes',
     'store_files_discard(directories.list, directories.drives, found->rank, &found->uuid,\n'
     '                                found->forming);', ';'),
    ('ranks take the numbers of their files',
     '    if (other == ranks)\n        return 0;', '    return 0;'),
)
mutate(
    'engine/session/store/shares.c', 'e2e/rank_ends',
    ('files that were voted for get their names', 'rc = rc ? rc : name_all(engine);', ';'),
)
mutate(
    'engine/session/ranks/ranks.c', 'e2e/rank_ends',
    ('a rank that does not come to the end is told',
     'return rc ? comm_report(engine->comm, &engine->report, 0, rc) : 0;\n}\n\nbool ranks_close',
     'return 0;\n}\n\nbool ranks_close'),
)
mutate(
    'engine/comm/report.c', 'comm/report',
    ('a rank that is gone has a code of its own',
     'if (failure.native == -EPIPE)\n        return report_fail(report, HST_E_RANK',
     'if (false)\n        return report_fail(report, HST_E_RANK'),
    ('so it has while ranks join',
     'if (failure->native == -EPIPE)\n        return HST_E_RANK;', ''),
    ('GPUs that cannot be joined have another code than ranks',
     'return device ? HST_E_JOIN_NCCL : HST_E_JOIN_MPI;', 'return HST_E_JOIN_MPI;'),
    ('a failure may have a fix of its own', 'fix = *failure->fix ? failure->fix : fix;', ''),
    ('the step is told', 'if (step > 0)', 'if (false)'),
)
mutate(
    'engine/comm/failure.c', 'comm/report',
    ("a host's name is printable", "if (*c < ' ' || *c > '~')", 'if (false)'),
    ('it is one, if the system knows none', 'COMM_HOST_BYTES - 1) || !*name)',
     'COMM_HOST_BYTES - 1))'),
    ('and has an end', 'gethostname(name, COMM_HOST_BYTES - 1)',
     'gethostname(name, COMM_HOST_BYTES)'),
    ('a rank has the name of its own node', 'info->host[rank]', 'info->host[0]'),
)
mutate(
    'engine/comm/calls.c', 'comm/report',
    ('the failure of another rank is told with its name',
     'name_failed(comm, rank, &first, failure);',
     'comm_fail(failure, first.native, (int)rank, "%s", first.text);'),
)
mutate(
    'engine/comm/mpi/node.c', 'comm/ranks',
    ('the names of nodes follow the numbers of ranks',
     'sizeof own, MPI_BYTE,\n' + 38 * ' ' + 'm->world,',
     'sizeof own, MPI_BYTE, MPI_COMM_WORLD,'),
)
mutate(
    'engine/comm/mpi/wait.c', 'comm/ranks',
    ('the other one of two nodes is named', 'm->info.node ? 0 : m->info.ranks - 1;',
     'm->info.rank;'),
    ('of three none is', 'm->info.nodes == 2 ?', 'm->info.nodes >= 2 ?'),
)
mutate(
    'engine/comm/nccl/plugin.c', 'comm/nccl',
    ('what fails below while ranks are joined is told',
     'if (!n->failure.native && n->control)', 'if (false)'),
)
mutate(
    'engine/comm/measure.c', 'comm/bench',
    ('ranks that MPI does not know of are told so', 'return launch->mpi ? 0', 'return true ? 0'),
)
mutate(
    'engine/comm/nccl/signs.c', 'comm/nccl',
    ('who is at work gives signs of life', '(void)nccl_sum_one(n, &op, nccl_now_ns(), &come);',
     '(void)come;'),
    ('a sign has a limit', 'round.patient = false;', ''),
    ('each sign has its own', 'op->patient ? nccl_now_ns() : since_ns', 'since_ns'),
)
mutate(
    'engine/session/step.c', 'e2e/rank_nccl_ends',
    ('ranks meet before a version that takes each its time', 'rc = ranks_meet(engine); /* versions',
     'rc = 0; /* versions'),
)
mutate(
    'engine/comm/nccl/settle.c', 'comm/nccl',
    ('a sign that waits ends with its rank', 'return nccl_is_ending(n) ?', 'return false ?'),
)
mutate(
    'engine/session/ranks/devices.c', 'tools/cli_plan_machine',
    ('a plan has NCCL as a run has it', 'engine->config.comm == HST_COMM_MPI ||',
     'engine->config.comm != HST_COMM_NCCL ||'),
    ('a plan names what does not fit, and goes on by MPI', ': stay(engine, why);', ': 0;'),
    ('a GPU that ranks share is joined by nothing', "strchr(engine->config.device, ':')", 'false'),
)
