# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of messages between ranks, of another NIC, and of what a plan tells
that does not fit."""
from rows import mutate

mutate(
    'engine/plan/graph/simulate.c', 'engine/network',
    ('messages take time', '(net->operation_s + messages_seconds(net, node))', 'net->operation_s'),
    ('those of a node have their own', '? net->near_messages_s', '? net->gather_messages_s'),
)
mutate(
    'engine/comm/rates.c', 'comm/rates',
    ('a ring has a step for each other rank', '{ranks - nodes, nodes - 1}', '{0, nodes - 1}'),
    ('what is read in place is no message', 'const double first = shared ? 0 : group - 1;',
     'const double first = group - 1;'),
    ('groups of a node exchange sums', 'first + locals / group - 1', 'first'),
)
mutate(
    'engine/session/ranks/rates.c', 'tools/cli_plan_machine',
    ('messages to other nodes count',
     'm.between * seconds_of_one(rates, HST_RATE_NET_MESSAGES_BETWEEN)', '0'),
)
mutate(
    'tools/verbs/plan/help.c', 'tools/cli_plan_machine',
    ('a NIC more is one beside those that are there', '(nics + 1.0) / nics', '2.0'),
    ('it brings what crosses nodes', 'scale_between(&t->rates, v->between);', ''),
    ('what is known is not lacked', 'p->machine->nics == 0 && waits_for_nodes(p)',
     'waits_for_nodes(p)'),
)
mutate(
    'tools/verbs/plan/plan.c', 'tools/cli_plan_machine',
    ('a latency that is given is all of it',
     '        rates->figures[r] = (struct hst_figure){.value = 0};\n', ''),
    ('what makes it fit is planned',
     '    native = native ? native : make_instead(p, o, error);\n', ''),
)
mutate(
    'tools/verbs/train/engine.c', 'tools/cli_plan_machine',
    ('what would not fit is not named', 'fits[i] = would_fit(t, beside, way);', 'fits[i] = true;'),
    ('both are named where neither does', '(both && t->way_out)', 'false'),
    ('ranks meet in DRAM then', 'options->engine.comm = HST_COMM_MPI;', ';'),
)
