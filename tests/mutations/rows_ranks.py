# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of a step's ways, and of what several ranks do in one."""
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
    ('sums of what is narrow are wide', 'tree->quant != 0 || tree->reduce != HST_F32', 'true'),
    ('bf16 is narrow', 'tree->quant != 0 || tree->reduce != HST_F32', 'tree->quant != 0'),
    ('a sum that is integers is not wide', ' &&\n           !hst_sum_quantised(tree, sum);', ';'),
    ('the sum of all does not leave', 'return narrow && ways < tree->ways &&', 'return narrow &&'),
    ('a sum that is rounded is not wide', ' && hst_sum_type(tree, sum) == HST_F32 &&', ' &&'),
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
mutate(
    'engine/plan/graph/graph_build.c', 'engine/graph_ranks',
    ('a row is gathered when all ranks have updated it',
     '        case NODE_GATHER_NEAR:\n            link_reader(b, i);\n',
     '        case NODE_GATHER_NEAR:\n'),
    ('a row at home is not written while the step before reads it',
     '            link_readers_before(b, i);', ''),
    ('an alias reads a row at home too', 'reads = reads || u->alias_of[a] == unit;', '(void)u;'),
    ('a visit waits for a row that the step before has gathered',
     '            link_gathered(b, i);', '            (void)link_gathered;'),
    ('and of what it reads besides',
     'link_to(b, node, b->units[u->alias_of[i]].gathered);', '(void)u;'),
)
mutate(
    'engine/plan/graph/graph_parts.c', 'engine/graph_ranks',
    ('a row is gathered again behind its update',
     'b->updated < in->unit_count && is_updated(b, in->backward[b->updated])',
     'b->updated < in->unit_count'),
    ('the last rows are gathered, too',
     'parts_regathers(b) && i < b->in->unit_count; i++)\n        gather_again',
     'parts_regathers(b) && i + 1 < b->in->unit_count; i++)\n        gather_again'),
    ('and once more where an optimistic update is made again', '(again ? PHASE_REDO : 0u)', '0u'),
)
mutate(
    'engine/plan/graph/graph.c', 'engine/graph_whole',
    ('the slots change places when rows are whole again',
     'if (b->in->optimistic)\n            build_dep(b, clip, s->gathered);',
     'if (b->in->optimistic)\n            (void)s;'),
    ('rows of the last units in the backward are left to the forward',
     '(in_time || !b->in->optimistic', '(true || in_time || !b->in->optimistic'),
    ('a row that others read is not gathered behind the clip',
     'regathers = !b->in->optimistic || !parts_has_grads(b, owner);', 'regathers = true;'),
)
mutate(
    'engine/exec/rows.c', 'e2e/rank_gathers',
    ('a row comes together where an optimistic update has written',
     'return again ? !exec->verdict.slot : exec->verdict.slot;',
     'return again || exec->verdict.slot;'),
)
mutate(
    'engine/session/load.c', 'e2e/ranks',
    ('a load leaves rows whole',
     'rc = rc ? rc : execute_gather(&engine->exec);\n    if (rc == 0)\n',
     'if (rc == 0)\n'),
    ('a resume leaves rows whole', 'rc = rc ? rc : execute_gather(&engine->exec);\n    if (rc)\n',
     'if (rc)\n'),
)
mutate(
    'engine/plan/graph/graph_parts.c', 'engine/graph_ranks',
    ('a row is gathered when its shard has been read',
     '    if (reads)\n        parts_depend_on_read(b, s->gather, unit);\n    if (keeps_row',
     '    (void)reads;\n    if (keeps_row'),
    ('a visit waits for its rows', '    build_dep(b, node, b->units[unit].gather);\n', ''),
    ("an alias waits for its owner's row at home",
     '        build_dep(b, node, b->units[u->alias_of[i]].gather);', '        (void)node;'),
    ('gradients are exchanged when there are any', '    build_dep(b, exchange, there);', ''),
    ('the norm is of what was exchanged',
     '!b->in->device_sums)\n        there = exchange_grads(b, unit, there);',
     '!b->in->device_sums)\n        (void)exchange_grads(b, unit, there);'),
    ('a bucket is exchanged once', 'b->units[i].backward == GRAPH_NONE)\n            return;',
     'i == bucket)\n            return;'),
    ('each unit of a bucket goes on', 'if (!is_of_bucket(b, one, bucket))', 'if (one != unit)'),
    ('replicas gather what was exchanged', '    build_dep(b, gather, exchange);', ''),
    ('the norm of replicas is of all',
     'return b->in->replicas ? gather_grads(b, unit, there) : there;', 'return there;'),
)
mutate(
    'engine/plan/graph/graph_updates.c', 'engine/graph_ranks',
    ('late updates beside early ones have their weights read',
     'parts_is_shared(b) && b->in->deferred)\n        return parts_has_grads',
     'parts_is_shared(b))\n        return b->in->deferred && parts_has_grads'),
)
mutate(
    'engine/plan/graph/graph_build.h', 'engine/graph_ranks',
    ('a gather waits for the update of a shard that a device has at home',
     '(node->lane != LANE_DEVICE_UPDATE || parts_is_resident(build, node->unit))',
     'node->lane != LANE_DEVICE_UPDATE'),
    ('of replicas a device updates with sums at home',
     'return in->device_sums && !in->replicas && !in->deferred',
     'return in->device_sums && !in->deferred'),
)
mutate(
    'engine/plan/graph/graph_updates.c', 'engine/graph_ranks',
    ('an update holds the buffer that its gradients are in',
     'parts_updates_from_buffer(b, unit) ? s->device_grads',
     'parts_updates_from_buffer(b, unit) ? GRAPH_NONE'),
)
mutate(
    'engine/exec/lanes/device.c', 'e2e/rank_nccl_home',
    ('an update of a sum is done when the device has made it',
     'if (lane == LANE_COMPUTE || !placement_is_resident(exec->in.placement, unit)) {',
     'if (lane == LANE_DEVICE_UPDATE && unit < UINT32_MAX) {'),
)
mutate(
    'engine/exec/rows.c', 'e2e/rank_nccl_home',
    ('a row that is whole at home is gathered on the device',
     '    row.on_device = op->to.space == SPACE_DEVICE;\n    if (rows_are_home(exec, op->to)) {',
     '    if (rows_are_home(exec, op->to)) {'),
)
mutate(
    'engine/comm/nccl/gathers.c', 'e2e/rank_nccl_home',
    ("a gather takes the rank's part from its home",
     'return op->in ? op->in : (const', 'return (const'),
)
mutate(
    'engine/plan/placement/placement.c', 'engine/exposed',
    ('what a device has at home is not exposed',
     '!placement_is_resident(p, u) && at.offset', 'at.offset'),
)
mutate(
    'engine/plan/graph/graph_kept.c', 'engine/graph_ranks',
    ('kept gradients leave a buffer for rows that pass',
     'less(in->buffers[pool], passing[pool])', 'in->buffers[pool]'),
    ('kept weights leave a buffer for rows that are gathered anew',
     '        if (!parts_reserve_weights(b, unit) || kept[pool]++ >= in->buffers[pool])\n'
     '            continue;\n        if (parts_gathers(b)',
     '        if (!parts_reserve_weights(b, unit) || kept[pool] >= in->buffers[pool])\n'
     '            continue;\n        kept[pool] += in->units[unit].weights == HST_TIER_NVME;\n'
     '        if (parts_is_shared(b)'),
)
mutate(
    'engine/plan/graph/graph.c', 'engine/graph_near',
    ('a backward reads none of what its node has kept',
     'if (reads && !kept_is_near(b, visit[0]))', 'if (reads)'),
)
mutate(
    'engine/plan/graph/graph_kept.c', 'engine/graph_near',
    ('exact weights beside integers are read', 'return !b->in->exact_beside &&', 'return'),
)
mutate(
    'engine/plan/graph/graph_kept.c', 'engine/graph_ranks',
    ('an update in DRAM has its shard though rows come together on a device',
     ' && !parts_is_joined(b) &&', ' &&'),
)
mutate(
    'engine/plan/placement/buffer_pools.c', 'e2e/rank_gathers',
    ('a row is kept for a backward that gathers it', '(recomputed || !u->blind_backward);',
     'true;'),
)
mutate(
    'engine/plan/graph/graph.c', 'engine/graph_ranks',
    ('ranks vote when their version is there', '    build_dep(b, b->committed, b->commit);', ''),
    ('early updates come behind the vote',
     '    if (!b->in->deferred) /* updates in the backward wait for it */\n        add_vote(b);\n'
     '    add_backwards(b, copy);\n    if (b->in->deferred)\n',
     '    add_backwards(b, copy);\n    if (true)\n'),
    ('the clip waits for what ranks agree on', 'build_dep(b, clip, agree);', '(void)agree;'),
    ('ranks agree on all norms',
     '        build_dep(b, agree, b->units[i].norm);', '        break;'),
)
mutate(
    'engine/exec/visit/order.c', 'engine/ranks',
    ('several ranks keep the order', 'if (exec->in.comm)'),
)
mutate(
    'engine/session/ranks/ranks.c', 'engine/ranks',
    ('options that differ are told', 'if (strcmp(all, all + r * sizeof own) != 0)'),
)

# ---- what stages of ZeRO keep whole ----

mutate(
    'engine/plan/placement/buckets.c', 'engine/stages',
    ('a bucket has a part for each rank', 'sat_times(elements, in->layout->share.world)',
     'elements'),
    ('wider sums have a place of their own',
     'p->hand_bytes == weight_bytes ? 0 : sat_times(elements, weight_bytes)', '0'),
    ('a bucket ends', 'if (bytes > 0 && sat_add(bytes, more) > most)', 'if (false)'),
)
mutate(
    'engine/plan/placement/placement.c', 'engine/stages',
    ('sums lie in the own part', 'apart ? p->layout->share.world : p->layout->share.rank',
     'p->layout->share.world'),
    ('shards of a bucket follow one another',
     'home->grads.offset + home->bucket_first * element_bytes', 'home->grads.offset'),
    ('the sum of a tile is where its bucket has it', 'if (placement->buckets)', 'if (false)'),
)
mutate(
    'engine/plan/placement/lay_out.c', 'engine/stages',
    ('replicas have whole rows of sums', 'return in->replicas > 0\n', 'return false\n'),
)
mutate(
    'engine/exec/lanes/net.c', 'engine/ranks',
    ('replicas have one norm', 'exec->in.placement->replicas == 0 || exec->in.rank == 0', 'true'),
)
mutate(
    'engine/exec/rows.c', 'engine/ranks',
    ("a replica's shard of sums is its rank's", 'p->replicas > 0 ? exec->in.rank *', 'false ? 1 *'),
)
mutate(
    'engine/session/way_sums.c', 'engine/fresh',
    ('a way that waits in f32 is accumulated where it waits',
     'engine->way.in_place = elements > 0 ? place_of_way(engine, unit) : NULL;',
     'engine->way.in_place = NULL;'),
    ('what several micro-batches have had is fresh no more',
     'engine->way.first_micro = SEVERAL_MICROS;', ';'),
    ('parameters lie as far apart in each way', 'alike = alike && (', 'alike = true || ('),
)
mutate(
    'engine/session/way_sums.c', 'engine/ranks',
    ('each shard goes into its part', 'parts * row.stride + element - parts * row.shard',
     'element'),
    ('a run ends with its shard', 'row.shard > 0 ? row.shard - element % row.shard : count',
     'count'),
    ("a rank's way is what its integers give back, where others take it from",
     'rounded ? rounded : give_back_row(engine, unit, all)', 'rounded'),
    ('so is each of several', 'rc || joins ? rc : give_back_buffer(engine, unit, way, buffer)',
     'rc'),
    ('a way joins that of its own parameters', '+ param->offset * sizeof(float);', ';'),
    ('what is rounded does not join at once', '(struct hst_sum_node){way, 1}) != HST_F32 ||',
     '(struct hst_sum_node){way, 1}) == 99 ||'),
)
mutate(
    'engine/session/ranks/ranks.c', 'engine/ranks',
    ('whole gradients are not on drives',
     'zero_stage >= HST_ZERO_1 && is_on_drives(engine, HST_CLASS_GRADS)', 'zero_stage > 9'),
)
mutate(
    'engine/session/load.c', 'engine/ranks',
    ('one replica writes', 'ranks_are_replicas(engine) && engine->ranks.rank > 0', 'false'),
)
mutate(
    'engine/store/store.c', 'engine/ranks',
    ('replicas have files of their own', 'store->rank + config->replica', 'store->rank'),
)
mutate(
    'engine/store/files.c', 'e2e/ranks',
    ("a replica's file is looked at under its name", 'return h->world == 1 ? 0 : set->number;',
     'return set->number;'),
)

# ---- ranks on a device with memory of its own ----

mutate(
    'engine/plan/graph/graph_parts.c', 'engine/graph_ranks',
    ('a copy waits for the gather of what it copies',
     '        await_gathers(b, s->copy, unit);', '        ;'),
    ('an exchange waits for the copy of its gradients',
     '!b->in->device_sums)\n        there = exchange_grads(b, unit, there);',
     '!b->in->device_sums)\n        there = exchange_grads(b, unit, s->backward);'),
    ('a gather in the device waits for the copy of the shard',
     '    build_dep(b, s->gather, s->copy);', ''),
    ('a node gives what it has kept of a forward, and nothing else',
     'return phases == PHASE_BACKWARD && b->units[unit].gathered_far != GRAPH_NONE;',
     'return phases == PHASE_BACKWARD && b->in->secondary > 0;'),
    ('a visit waits for the gather in the device',
     'build_dep(b, visit, s->gather);', 'build_dep(b, visit, s->copy);'),
    ('a sum leaves the device when it has been added up',
     '    if (b->in->device_sums)\n        there = exchange_grads(b, unit, there);',
     '    if (b->in->device_sums)\n        (void)exchange_grads(b, unit, there);'),
    ('whether weights pass by the host is the same for all ranks that joined devices',
     'parts_is_joined(b) ? parts_has_row(b, unit) : u->tile_count > 0', 'u->tile_count > 0'),
    ('a bucket waits for all copies of its gradients',
     'for (uint32_t i = 0; in->apart && i < in->unit_count; i++)',
     'for (uint32_t i = 0; false; i++)'),
    ('what the device has of the row is not gathered again',
     's->gather != GRAPH_NONE || s->device_weights != GRAPH_NONE)',
     's->gather != GRAPH_NONE)'),
)
mutate(
    'engine/plan/graph/graph_build.h', 'engine/graph_ranks',
    ('a rank without tiles of a unit has its row',
     '(rows || u->grads == HST_TIER_NVME) && parts_has_grads(build, unit);',
     '(rows || u->grads == HST_TIER_NVME) && u->tile_count > 0 && !u->frozen;'),
)
mutate(
    'engine/plan/graph/graph_kept.c', 'engine/graph_ranks',
    ('what no tile of the rank is updated with is not read',
     '(parts_has_early_tiles(b, visit.unit) || computes_backward(b, visit))', 'true'),
)
mutate(
    'engine/exec/rows.c', 'engine/ranks',
    ("a shard goes to its rank's part of a bucket",
     'copy->stride = row.stride', 'copy->stride = row.shard'),
)
mutate(
    'engine/exec/executor.h', 'engine/ranks',
    ('the norm is that of the sum', '!executor_computes_in_dram(exec) && !exec->in.comm',
     '!executor_computes_in_dram(exec)'),
)
mutate(
    'engine/store/open.c', 'e2e/rank_moves',
    ('files of other moments are no damage',
     'if (!x && ranks > 1 && o->none_damaged)', 'if (false)'),
)
