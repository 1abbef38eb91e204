# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of planning: plans of the engine, the planner, predictions from
rates, the verb."""
from rows import mutate

mutate(
    'engine/plan/graph/simulate.c', 'engine/simulate',
    ('to stand still is no hope', 'run->stalled_s + steps * run->compute_s',
     'steps * run->compute_s'),
    ('nor is to compute for too long', 'run->stalled_s + steps * run->compute_s', 'run->stalled_s'),
    ('lanes end as much later as they did', 'fabs(a->left_s[l] - b->left_s[l]) <= least_s', 'true'),
)
mutate(
    'engine/plan/graph/graph_build.c', 'engine/operands',
    ('of two lanes both are waited for, in a brief graph too', 'was->lane == is->lane && ', ''),
)
mutate(
    'engine/plan/search/plan_seal.c', 'engine/plan_seal',
    ('what was fast with less memory is tried', 'if (!ask_for_drives(in, homes, &with))',
     'if (true)'),
)
mutate(
    'tools/cli/machine_text.c', 'tools/cli_plan_machine',
    ('a key is there once', 'if (r->seen & 1u << k)', 'if (false)'),
    ('a leap year has a day more', '(part[1] == 2 && leap)', '(part[1] == 2)'),
    ('what is assumed has no age', 'if (is_word(kind, MEASURED))', 'if (true)'),
)
mutate(
    'engine/plan/search/planner.c', 'engine/planner',
    ('a gain that is none changes nothing',
     'limit_s = s->best.step_s * (1 - PLANNER_GAIN_LEAST)',
     'limit_s = s->best.step_s * (1 + PLANNER_GAIN_LEAST)'),
    ('the faster one wins', 'c.step_s > 0 && c.step_s < limit_s', 'c.step_s > limit_s'),
    ('orders are tried', 'for (uint32_t n = 0; n < 24;)', 'for (uint32_t n = 0; n < 1;)'),
    ('a GPU updates a share', 'how.streamed_eighths <= 8', 'how.streamed_eighths < 1'),
    ('the words follow the order', 'names[c->how.order[i]]', 'names[i]'),
    ('what stays is not named', 'if (!has_left(&c->placement, c->how.order[i]))'),
    ('what was chosen is given back', '    *placement = s->best.placement;\n', ''),
)
mutate(
    'engine/plan/search/planner.c', 'engine/planner tools/cli_plan',
    ('an update that is no faster stays deferred',
     'return steps->optimistic_s < steps->deferred_s * (1 - PLANNER_GAIN_LEAST)', 'return true'),
    ('both updates are compared', 'return steps->optimistic_s < steps->deferred_s',
     'return 0 > steps->deferred_s'),
)
mutate(
    'engine/plan/search/placement_search.c', 'engine/planner',
    ('the order is heeded', 'enum leaving class = how->order[i];',
     'enum leaving class = PLACEMENT_USUAL.order[i];'),
    ('drives are not filled beyond their budget',
     'if (placement_drives_fit(in, p, &full))', 'if (true)'),
)
mutate(
    'engine/plan/search/placement_refuse.c', 'engine/placement_refusals',
    ('what the machine has is the end of a budget', 'p->dram_bytes > in->dram_most', 'false'),
    ('full drives name memory that is there alone',
     'bool in_dram = !in->dram_most ||', 'bool in_dram = true ||'),
    ('figures are those of all ranks of a node', 'sat_times(bytes, in->sharers)', 'bytes'),
)
mutate(
    'engine/plan/graph/step_graph.c', 'engine/plan',
    ('a coarse graph has fewer tiles', 'tiles / times + (tiles % times > 0)', 'tiles'),
    ('its tiles are larger', 'in->layout->tile_elements * making->times,',
     'in->layout->tile_elements,'),
    ('a small model has its own tiles', 'layout->tile_count / tiles_most + 1;',
     'layout->tile_count / tiles_most + 2;'),
)
mutate(
    'engine/session/decide.c', 'engine/plan tools/cli_plan',
    ('what fails otherwise is no plan', 'rc == -ENOSPC && engine->placement.units', 'rc'),
    ('a plan chooses the update',
     '        engine->optimistic = planner_is_optimistic(&steps);', ''),
)
mutate(
    'engine/session/predict.c', 'engine/plan tools/cli_plan',
    ('nothing is simulated where a rate is missing',
     'if (!rates || !is_all_known(engine, rates))', 'if (!rates)'),
)
mutate(
    'engine/plan/search/plan_seal.c', 'engine/plan_seal tools/cli_room',
    ('homes are chosen for an optimistic update too',
     '? rc : try_optimistic(in, homes);', '? rc : 0;'),
    ('not where the run may not use them',
     'if (rc || !update_could_use_slots(&in->update, &with.placement) ||', 'if (rc ||'),
    ('what the usual homes take is told',
     '    better->usual_step_s = first->usual_step_s;\n', ''),
    ('second slots take room that is left', '    take_spare_slots(in, homes);\n', ''),
    ('a store has bytes beside its extents', 'if (in->store_fixed)', 'if (0)'),
)
mutate(
    'engine/plan/search/homes.c', 'engine/homes',
    ('where a step with a clip loses little by them',
     'loss_s < others->deferred_s * HOMES_CLIP_LOSS_MOST', 'true'),
    ('and less than the others win', ' && was - is > loss_s', ''),
    ('memory lacks before drives do', 'of_a != of_b', 'false'),
    ('slots that are not worth it go', 'return loses || ', 'return '),
    ('slots have to be worth it',
     'if (these->in.second_slots && !those->in.second_slots)', 'if (0)'),
)
mutate(
    'engine/plan/search/update_wish.c', 'engine/homes',
    ('drives have free slots', '(wish->frees || !update_uses_drives(placement))', 'true'),
    ('states on drives are drives', ' ||\n            placement->units[u].nvme_states > 0', ''),
    ('a host that computes is busy', 'placement->compute_tier != HST_TIER_DRAM &&', ''),
    ('what the GPU updates needs none', '&&\n           update_uses_host(placement)', ''),
)
mutate(
    'engine/session/engine.c', 'engine/plan',
    ('a plan allocates nothing',
     'rc = engine->config.plan ? decide_end(engine, rc) : rc ? rc : allocate(engine);',
     'rc = rc ? rc : allocate(engine);\n'
     '    rc = engine->config.plan ? decide_end(engine, rc) : rc;'),
    ('a plan has no memory of the client', 'engine->phase < PHASE_SEALED || !memory', '!memory'),
    ('simulated drives have no plan', 'if (c->plan && c->io_model)'),
    ('what kind of plan is checked',
     'if (c->plan != HST_PLAN_TO_TRAIN && c->plan != HST_PLAN_HERE && '
     'c->plan != HST_PLAN_ELSEWHERE)'),
)
mutate(
    'engine/session/step.c', 'engine/plan',
    ('a plan is not drained', ' || engine->phase == PHASE_PLANNED', ''),
)
mutate(
    'engine/store/site.c', 'tools/cli_plan e2e/store_doors',
    ('a directory without a parent cannot be made',
     'return rc ? refuse_making(site, rc, error) : 0;', 'return 0;'),
    ('a directory in another one is told before both are made', 'if (is_within(second, first))'),
    ('a directory is one by whatever name', 'if (strcmp(first, second) == 0)'),
    ('a link is no file that is missing', 'lstat(above, &status) == 0',
     'stat(above, &status) == 0'),
)
mutate(
    'engine/store/clear.c', 'e2e/store_doors',
    ("a store's file is looked into before the run", 'own ? store_file_look(',
     '0 ? store_file_look('),
    ('a run does not begin in a store', 'if (told.own && begins)'),
)
mutate(
    'engine/store/directory.c', 'store/refusals e2e/store_doors',
    ('who holds no store is not told to close its directory', 'if (rc != -EEXIST || ours)',
     'if (1)'),
)
mutate(
    'engine/session/store/store_dir.c', 'engine/plan tools/cli_plan',
    ('a plan makes no directory', 'if (engine->config.plan) {\n        drive->parent',
     'if (0) {\n        drive->parent'),
    ('what is told is not looked at', '    if (is_told(engine))\n        return 0;', ''),
    ('drives without a directory count', 'is_told(engine) ? 1 : 0', '0'),
    ('rates of other drives are not these',
     'rates && rates->drive_count == engine->drive_count', 'rates'),
    ('shares follow rates', 'in->drive_rates[d] = rate_of(&rates->drives[d]);\n    return 0;',
     'in->drive_rates[d] = 1;\n    return 0;'),
)
mutate(
    'engine/session/budget.c', 'engine/plan tools/cli_plan',
    ('budgets of another machine are as given',
     'engine->config.plan != HST_PLAN_ELSEWHERE ? left : 0', 'left'),
)
mutate(
    'engine/session/predict.c', 'engine/plan engine/predict tools/cli_plan',
    ("a rate that is missing is told", 'if (rates->figures[r].value > 0)\n            continue;',
     'continue;'),
    ("drives' rates are asked for", '(!drives ||\n', '(true ||\n'),
    ("a GPU's update is not the host's", '(!moves(graph, LANE_UPDATE) || is_host_known(',
     '(is_host_known('),
    ('drives that would help are so beside processors', '    m->rates.mixed_busy *= times;\n', ''),
    ('the most help comes first', 'p->helps[at - 1].step_s > step_s',
     'p->helps[at - 1].step_s < 0'),
    ('the update of bf16 is its own',
     'f[engine->optimizer->update_rate].value',
     'f[HST_RATE_UPDATE_BF16].value'),
)
mutate(
    'engine/probe/cache.c', 'engine/cache',
    ('what is looked for is not measured', 'measure ? hst_probe(probe, &seen) : -ENOENT',
     'hst_probe(probe, &seen)'),
    ('a failure leaves rates alone', '    if (rc == 0) {\n        *rates = seen;',
     '    {\n        *rates = seen;'),
)
mutate(
    'tools/verbs/rates_file.c', 'tools/cli_plan',
    ('a NUL ends no file of rates',
     'strlen(text) == bytes ? hst_rates_parse(text, rates) : -EBADMSG',
     'hst_rates_parse(text, rates)'),
)
mutate(
    'tools/verbs/plan/asked.c', 'tools/cli_plan_ranks',
    ('a network of one rank is refused', 'if (world == 1 && (o->net_rates',
     'if (0 && (o->net_rates'),
    ('nodes have as many ranks', 'if (world % nodes)', 'if (0)'),
)
mutate(
    'tools/verbs/plan/plan.c', 'tools/cli_plan_ranks',
    ('what is given counts before a file',
     'put_figure(rates, HST_RATE_NET_GATHER, (double)o->net_node);', ''),
)
mutate(
    'engine/session/predict.c', 'tools/cli_plan_ranks',
    ('ranks of a node share its cores', 'return engine->config.plan ? engine->ranks.locals : 1;',
     'return 1;'),
)
mutate(
    'engine/plan/graph/simulate.c', 'engine/simulate',
    ('drives are slower while the host computes', '(computes ? run->busy_speed : 1)', '1'),
    ('and only then', 'run->in->rates.shared_cores && (run->busy & cores)', 'true'),
)
mutate(
    'engine/plan/graph/simulate.c', 'engine/network',
    ('what crosses nodes has a rate of its own',
     'over(node->work * crossing * between, net->between)', '0'),
    ('each row is an operation', 'operations * (net->', '(net->'),
)
mutate(
    'engine/comm/rates.c', 'comm/rates',
    ('a gather by messages is one hop', 'uniform && info->shared ? nodes - 1 : flat',
     'uniform ? nodes - 1 : flat'),
    ('what an empty operation takes is taken off',
     'rest_of(t->gather_s, t->empty_s, EMPTY_MOST)',
     't->gather_s'),
)
mutate(
    'engine/session/ranks/rates.c', 'engine/ranks',
    ('the least of all ranks counts', 'least = fmin(least, all[rank * HST_RATE_COUNT + r]);', ''),
)
mutate(
    'engine/probe/rates.c', 'engine/rates',
    ('version 2 knew no network', 'version < 3 ? HST_RATE_NET_GATHER : HST_RATE_COUNT',
     'HST_RATE_COUNT'),
    ('version 3 knew no prefetch', 'version >= 4 && take_word', 'take_word'),
    ('the faster way is taken', 'measured->silent > measured->asking',
     'measured->silent < measured->asking'),
)
mutate(
    'tools/verbs/plan/plan.c', 'tools/cli_plan',
    ('rates of two machines are refused', 'o->rates && (o->probe || o->save_rates)', '0'),
    ('an output is checked before',
     '        native = rates_file_check(o->save_rates, error);\n', '        native = 0;\n'),
    ('what is not there is no model', 'else if (!folder_is_there(p->model))', 'else if (0)'),
    ('it ends with 3 where it does not fit', 'fits ? CLI_EXIT_OK : CLI_EXIT_NOT_ENOUGH',
     'fits ? CLI_EXIT_OK : CLI_EXIT_OK'),
)
mutate(
    'tools/verbs/plan/help.c', 'tools/cli_plan_answer',
    ('a drive more is one beside those that are there', '(drives + 1.0) / drives', '2.0'),
    ('what gains nothing is left out',
     ' && more * now->step_s >= least_gain(p, rough_s) * step_s)', ')'),
    ('states of 8 bits are asked for', 'v.state = HST_STATE_8BIT;', 'v.state = HST_STATE_BF16;'),
    ('a second drive is drives twice as fast', 'if (drives > 1 &&', 'if (drives > 0 &&'),
    ('ranks have drives of their own', ' || strstr(name, "{rank}")', ''),
    ('a step that is full is known', 'p->full_tokens = q->v.tokens;', ''),
    ('tokens are more until computation is busy',
     'q->full = q->told.compute_s >= PLAN_FULL * q->told.step_s;', 'q->full = true;'),
    ('all that is asked is waited for', '            pthread_join(q[i].thread, NULL);',
     '            ;'),
    ('states are told of AdamW alone', ' && c->optimizer == HST_OPTIMIZER_ADAMW;', ';'),
)
mutate(
    'tools/verbs/plan/plan.c', 'tools/cli_plan_both',
    ('both have to fit', 'a->plan->fits && b->plan->fits ?', 'a->plan->fits ?'),
    ('two files are two', ' || strchr(comma + 1, \',\'))', ')'),
    ('an error is of a file', '        name_file(&job->error, file);\n', ''),
    ('an error ends as one of one plan', '*status = cli_fail(', 'cli_fail('),
)
mutate(
    'tools/verbs/plan/asked.c', 'tools/cli_plan_paper',
    ('a paper takes no other option', 'if (!o->paper || o->compare', 'if (1 || o->compare'),
)
mutate(
    'tools/verbs/plan/asked.c', 'tools/cli_plan_both',
    ('a file asks for nothing that is written', '{o->save_rates, "save-rates"}', '{0, ""}'),
)
mutate(
    'tools/verbs/plan/both.c', 'tools/cli_plan_both',
    ('a name cannot steer a terminal', '\'A\' + side, line.message', '\'A\' + side, names[side]'),
    ('years of drives have a row', 'if (plan_years(p) > 0)', 'if (0)'),
)
mutate(
    'tools/verbs/plan/paper.c', 'tools/cli_plan_paper',
    ('an update has weights and gradients too', 'k->here ?', 'false ?'),
    ('what is off is marked', 'return fabs(value', 'return 0 * fabs(value'),
    ('a figure is what its paper prints', '16.9, SAYS_IS', '16.8, SAYS_IS'),
    ('a bandwidth is that of its paper', '.seq = 1024, .rate = 70e9', '.seq = 1024, .rate = 71e9'),
)
mutate(
    'tools/verbs/plan/accounting.c', 'tools/cli_plan_paper',
    ('of a gather a node takes in what others have', '(a->nodes - 1) / a->ranks;',
     'a->nodes / a->ranks;'),
    ('stage 2 shards gradients', 'stage >= 2 ?', 'stage >= 3 ?'),
    ('stage 3 gathers weights twice', 'stage == 3 ? 2 : 1', '1'),
)
mutate(
    'tools/verbs/plan/page.c', 'tools/cli_plan_page',
    ('a quote does not end an argument', '"&#39;\\\\&#39;&#39;" :', '"" :'),
    ('what cannot be shown is an escape', '"&#39;" : "$&#39;"', '"&#39;" : "&#39;"'),
    ('a bar is of its budget', 'fmax((double)m->total[tier], (double)m->budget[tier])',
     '(double)m->total[tier]'),
    ('what does not fit says why', 'p->fits ? "" : p->refusal.message', '""'),
)
mutate(
    'engine/session/predict.c', 'tools/cli_plan_page',
    ('a step ends at its end', 'fmin(end_s, t->end_s)', 'end_s'),
)
mutate(
    'tools/verbs/plan/answer.c', 'tools/cli_plan_answer',
    ('all drives of a node wear', 'p->tbw * TB * plan_drives(p)', 'p->tbw * TB'),
    ('a day has its steps', 'write_bytes * p->locals * DAY_S /', 'write_bytes * p->locals /'),
    ('days are of the tokens that are given',
     '    if (p->tokens)\n        return p->tokens;\n', ''),
)
mutate(
    'tools/verbs/plan/report.c', 'tools/cli_plan',
    ('only what is short has a smallest', 'memory->total[tier] > memory->budget[tier] ?', '1 ?'),
    ('a size is rounded up', 'text_typed_up(bytes, size)', 'text_typed_down(bytes, size)'),
)
mutate(
    'tools/verbs/plan/report.c', 'tools/cli_plan_machine',
    ('a budget that can be had is no lack',
     ' || smallest(p, (enum hst_tier)t) <= there', ''),
    ('a budget that cannot be had is told', '    print_lacking(p, out);\n', ''),
)
mutate(
    'tools/cli/forecast.c', 'tools/cli_plan',
    ('drives are not touched unasked', 'age_s, how >= FORECAST_MEASURED, rates);\n    }\n    tell',
     'age_s, true, rates);\n    }\n    tell'),
    ('train measures nothing', 'const bool measure = how != FORECAST_CACHED;',
     'const bool measure = true;'),
    ('a drive that is not there yet is its parent\'s',
     'there ? list.directory : dirname(list.directory)', 'list.directory'),
)
mutate(
    'engine/probe/contention.c', 'engine/contention',
    ('threads of ours that are too many wait for each other', 'c->others_s < c->waited_s;',
     'false;'),
    ('the kernel\'s threads that help a drive are no load', 'counted = worked && ', 'counted = '),
    ('what this process ran is no other work', '.others_s = same ? since(ran_s, ',
     '.others_s = same ? since(0, '),
)
mutate(
    'engine/probe/cache.c', 'engine/cache',
    ('disturbed rates take no place of better', ' && !has_better(&c, &seen, text)', ''),
    ('better rates that are too old keep nobody out', 'look_up(c, HST_RATES_BETTER_S, ',
     'look_up(c, 1e9, '),
    ('disturbed rates are found for ten minutes',
     'max_age_s > DISTURBED_S ? DISTURBED_S : max_age_s', 'max_age_s'),
)
mutate(
    'tools/verbs/train/again.c', 'tools/cli_stop',
    ('budgets are kept to', 'if (!has_room(t)) {', 'if (0) {'),
    ('rates are measured again once', 'if (a->count == TRAIN_AGAIN_STEPS)\n',
     'if (a->count > 0)\n'),
    ('the drives are measured anew', 'train_rates_measure(t, !planned)',
     'train_rates_measure(t, false)'),
    ('rates that know less are thrown away', 'if (lost == HST_RATE_COUNT)', 'if (true)'),
)
mutate(
    'tools/cli/forecast.c', 'tools/cli_output',
    ('one slow step refutes nothing', 'slower == count ||', 'slower > 0 ||'),
)
mutate(
    'tools/model/layer/products.c', 'tools/model/model',
    ('the forward is computed twice', '.times = 2 * times,', '.times = times,'),
    ('keys and values are two', '{m->kv_width, c->hidden, 2}', '{m->kv_width, c->hidden, 1}'),
)
mutate(
    'engine/plan/graph/simulate.c', 'engine/simulate engine/scheduler',
    ('a lane is tried again when a node is done',
     '    scheduler_done(&run->scheduler, at);\n    wake(run);',
     '    scheduler_done(&run->scheduler, at);'),
    ('and when a pool lends to the next', '    if (any)\n        wake(run);\n', ''),
)
mutate(
    'engine/plan/graph/scheduler.c', 'engine/scheduler',
    ('a lane that lacks a buffer is tried again when one is let go',
     '    scheduler->turns[reservation->pool]++;\n    if (l->retained', '    if (l->retained'),
    ('and when another has had its turn',
     '    scheduler->turns[reservation->pool]++;\n    scheduler->holder', '    scheduler->holder'),
)
mutate(
    'engine/session/ranks/ranks.c', 'e2e/rank_room',
    ('who has the least is named', '*whose = have < ranks ? first + 1 : 0;', '*whose = 0;'),
)
mutate(
    'engine/session/budget.c', 'e2e/rank_room',
    ('a rank\'s part is told', 'if (engine->ranks.locals > 1)\n        snprintf(text,',
     'if (0)\n        snprintf(text,'),
)
mutate(
    'tools/verbs/train/log.c', 'e2e/rank_moves',
    ('a trace has its file\'s number',
     't->part.ranks > 1 ? o->engine.launch->rank : 1', 't->part.ranks > 1 ? t->part.rank : 1'),
)
mutate(
    'engine/session/store/shares.c', 'e2e/rank_moves',
    ('a store of parts is none of replicas', 'if (part && !name->forming)', 'if (0)'),
)
mutate(
    'tools/cli/log/runlog.c', 'e2e/ranks',
    ('the stage is told', 'json_put_whole(&json, "zero_stage", start->zero_stage);', ';'),
)
mutate(
    'engine/plan/placement/lay_out.c', 'engine/lay_out',
    ('what leaves memory passes by buffers', 'BY_RESIDENT | BY_WEIGHTS | BY_GRADS',
     'BY_RESIDENT | BY_GRADS'),
    ('states are no pool\'s unless some are elsewhere', 'BY_ANY_STATES | BY_SEGMENT', 'BY_SEGMENT'),
    ('resident units take no DRAM', '{lay_grads, BY_RESIDENT | BY_GRADS}', '{lay_grads, BY_GRADS}'),
    ('segments have fewer checkpoints', '{lay_acts, BY_ACTS | BY_SEGMENT}', '{lay_acts, BY_ACTS}'),
)
mutate(
    'engine/plan/placement/lay_out_again.c', 'engine/lay_out',
    ('each part begins at nothing', 'now.hbm_bytes = now.dram_bytes = 0;',
     'now.hbm_bytes = now.dram_bytes;'),
    ('resident units are known still', '? 0 : kept->resident_units', '? 0 : 0'),
    ('so is the segment', 'now.segment = kept->segment;', 'now.segment = 1;'),
    ('what was measured is of this choice', '    kept->choice = *c;\n', ''),
)
mutate(
    'engine/plan/search/placement_memo.c', 'engine/lay_out',
    ('drives are known as they were laid out', 'e->nvme_bytes = p->nvme_bytes;',
     'e->nvme_bytes = p->dram_bytes;'),
    ('what was measured need not have been found',
     'memo && memo->entries[place_of(memo, &key)].was_found',
     'memo && memo->entries[place_of(memo, &key)].used'),
)
mutate(
    'engine/plan/graph/scheduler.h', 'engine/scheduler engine/graph',
    ('a step window is opened when the last but one is done',
     'step_window[scheduler->opened % SCHEDULER_WINDOWS].left == 0;',
     'step_window[scheduler->opened % SCHEDULER_WINDOWS].left >= 0;'),
)
mutate(
    'engine/plan/graph/scheduler.h', 'engine/simulate',
    ('a lane is asked again when what it waits for is done', '*met->awaited != STATE_DONE;',
     'true;'),
)
