# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of how a device is measured: events that take the time, warming, what
a layer consists of, page-locking, a GPU's clock."""
from rows import mutate

mutate(
    'kernels/host/stream.c', 'kernels/stream',
    ('a mark has the time of its own', 'e->stamp = stamp;',
     'e->stamp = e->stamp ? e->stamp : stamp;'),
    ('an event of the other kind has no time', 'e->stamp ? 0 : -EINVAL', '0'),
    ('time is told forwards', '*seconds = to - from;', '*seconds = from - to;'),
    ('a descriptor tells when a mark is passed', '    timeline_ring(t);\n}', '}'),
    ('a descriptor tells of a mark that was passed before',
     '        t->watched = mark;\n        timeline_ring(t);', '        t->watched = mark;'),
    ('a descriptor forgets what it told of', 'eventfd_read(fd, &told);', '(void)told;'),
)
mutate(
    'kernels/device.c', 'kernels/stream',
    ('times of two devices are none', ' || begin->dev != end->dev', ''),
)
mutate(
    'kernels/device.c', 'kernels/device',
    ('whole pages are locked', '(uintptr_t)memory % page == 0 && size_bytes % page == 0',
     'size_bytes % page == 0'),
)
mutate(
    'engine/probe/probe.c', 'engine/probe',
    ('a device is warm before its rates', '        probe_burn(probe);\n', '        (void)0;\n'),
)
mutate(
    'engine/probe/probe_burn.c', 'engine/probe',
    ('the host is not warmed', 'if (!probe_is_apart(probe) ||', 'if (!probe->dev ||'),
    ('it lasts', 'clock_seconds() - start < PROBE_BURN_S', 'batch < BATCH_MOST / 128'),
)
mutate(
    'tools/bench/burn.c', 'tools/bench_figure',
    ('a smoke run warms nothing', 'return !smoke &&', 'return'),
    ('the host is not warmed', ' && !(hst_dev_flags(dev) & HST_DEV_HOST_MEMORY)', ''),
    ('it lasts as long as was asked for', 'while (before - start < seconds);', 'while (0);'),
)
mutate(
    'tools/bench/layer/locking.c', 'tools/bench_figure',
    ('a quarter of what is available is enough',
     'available / SHARE < most ? available / SHARE : most', 'most'),
    ('whole huge pages are locked', 'bytes = bytes / HUGE_PAGE * HUGE_PAGE;', ''),
    ('a device that locks nothing is no failure', 'if (rc == -ENOTSUP)'),
)
mutate(
    'tools/bench/step/watch.c', 'tools/bench_watch',
    ('what is refused is not seen', '    if (rc)\n        return rc;\n    w->seen[w->count++]',
     '    w->seen[w->count++]'),
    ('there is room for more', 'if (rc == 0 && w->count == w->room)\n        rc = grow(w);',
     'if (rc == 0 && w->count == w->room)\n        return 0;'),
    ('each run begins anew', '    watch->count = 0;\n', ''),
)
mutate(
    'tools/bench/step/watched.c', 'tools/bench_watch',
    ('a result that is added to is read', '* (a->accumulate ? 2 : 1)', '* 1'),
    ('a mask leaves half of the scores', 'seq * (seq + 1) / 2', 'seq * seq'),
    ('keys have fewer heads', ' / (double)a->heads * (double)a->kv_heads', ''),
    ('a residual is read, and its sum written', 'a->residual ? 4 : 2', '2'),
    ('a block of the vocabulary is as wide as it is', 'a->columns ? a->columns : a->vocab',
     'a->vocab'),
)
mutate(
    'tools/bench/layer/layer.c', 'tools/bench_layer',
    ('operations of one name are one row',
     '        if (seen_before(seen, i))\n            continue;\n', ''),
    ('GEMMs are held against a product', 'w->computes ? w->flops / b->ceilings.flops_per_s',
     '0 ? w->flops / b->ceilings.flops_per_s'),
    ('the head is measured', '    rc = rc ? rc : measure_head(&b);\n', ''),
)
mutate(
    'tools/verbs/bench/layer.c', 'tools/bench_layer',
    ('sequences are whole', 'if (b->in.tokens % length != 0)'),
    ('a list has an end', 'if (length == 0 || errno || (*end != \',\' && *end))',
     'if (length == 0 || errno)'),
    ('the host has no clock to ask for', '    if (!b->gpu)\n        return;\n', ''),
)
mutate(
    'tools/verbs/doctor/gpu_clock.c', 'tools/bench_watch',
    ('a clock has a unit that is known', 'strspn(text + end, " \\r\\n") == 0 ||', ''),
    ('no clock stands still', 'now > 0 && now < HZ_MOST', 'now < HZ_MOST'),
)
mutate(
    'tools/verbs/doctor/gpu.c', 'tools/cli_doctor',
    ('doctor tells how fast memory is locked', '        report_locking(d, dev);\n',
     '        (void)0;\n'),
)
