# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of the code, by folder and file; tools/hf is in rows_hf.py.

One line of a table is (what is taken out, text of the file, what stands there instead). The text
must occur once. Where the line has no third part the text ends with a condition, which is still
evaluated and no longer heeded: `if (x)` becomes `if ((x) && 0)`.
"""
import platform
from collections import namedtuple

Row = namedtuple('Row', 'file words old new tests')
ROWS = []


def unheeded(text):
    at = text.rindex('if (') + 3
    return f'{text[:at]}({text[at:]} && 0)'


def mutate(file, tests, *lines):
    for words, old, *new in lines:
        ROWS.append(Row(file, words, old, new[0] if new else unheeded(old), tests.split()))


# ---- aio ----

mutate(
    'aio/piece.c', 'aio/transfer aio/faults-sim',
    ('a short transfer is continued',
     'const bool whole = result_bytes == piece->bytes;', 'const bool whole = result_bytes > 0;'),
    ('it is continued at a whole block',
     'result_bytes - result_bytes % HST_AIO_ALIGN_BYTES', 'result_bytes'),
    ('EAGAIN is tried again so many times',
     'error == -EAGAIN && piece->retries < HST_AIO_RETRIES_MAX',
     'error == -EAGAIN && piece->retries <= HST_AIO_RETRIES_MAX'),
    ('EINTR is tried again so many times',
     'error == -EINTR && piece->retries < HST_AIO_RETRIES_MAX',
     'error == -EINTR && piece->retries <= HST_AIO_RETRIES_MAX'),
    ('a part of a block is tried again so many times',
     'result_bytes > 0 && piece->retries < HST_AIO_RETRIES_MAX',
     'result_bytes > 0 && piece->retries <= HST_AIO_RETRIES_MAX'),
    ('EAGAIN makes requests smaller',
     'if (error == -EAGAIN && piece->bytes > HST_AIO_SMALL_BYTES)'),
    ('progress makes the tries count anew',
     'piece->offset += bytes;\n    piece->retries = 0;', 'piece->offset += bytes;'),
    ('a read with a media error is tried again',
     'if (piece->media_retries < HST_AIO_READ_RETRIES_MAX)'),
    ('a write with a media error is tried again',
     'piece->media_retries < HST_AIO_WRITE_RETRIES_MAX', 'piece->media_retries < 0'),
    ('a sync with a media error is not tried again',
     'piece->kind == HST_AIO_WRITE &&\n', 'piece->kind != HST_AIO_READ &&\n'),
    ('a read with a media error is halved',
     'if (piece->bytes > HST_AIO_ALIGN_BYTES)'),
    ('the look for the end of the damage has an end',
     ' && piece->bad_bytes < HST_AIO_BAD_BYTES_MAX', ''),
    ('the first good block behind bad ones ends the look',
     'if (whole && piece->bad_bytes > 0)'),
    ("a drive's ENODATA is no end of file",
     'piece->result == -ENODATA ? -EIO : piece->result', 'piece->result'),
    ('no progress fails',
     'return fail(piece, piece->kind == HST_AIO_READ ? -ENODATA : -ENOSPC);',
     'return PIECE_FINISHED;'),
)

mutate(
    'aio/transfer.c',
    'aio/transfer aio/faults-sim aio/answers aio/stuck aio/threads aio/rows aio/fallback',
    ('an error is noted',
     '    job->error = error;\n    if (piece) {', '    if (piece) {'),
    ('the first error is the one that is told',
     'if (job->error)'),
    ('an error stops the cutting',
     'if (job == aio->pending.head)'),
    ('what would go on after the drive is gone fails',
     'if (goes_on)'),
    ('nothing goes on after the drive is gone',
     'goes_on && !job->error && !aio->gone', 'goes_on && !job->error'),
    ('nothing goes on after an error of its operation',
     'goes_on && !job->error && !aio->gone', 'goes_on && !aio->gone'),
    ('a drive that is gone ends what waits',
     'if (lost && !aio->gone)'),
    ('ENXIO means gone',
     'piece->result == -ENODEV || piece->result == -ENXIO', 'piece->result == -ENODEV'),
    ('a drive that is gone stays gone',
     '    aio->gone = -ENODEV;\n', ''),
    ('a drive that does not answer is given up',
     'if (now_ns - aio->answered_ns >= patience * aio->config.timeout_ms * 1000000u)'),
    ('time in which nobody looked does not count',
     'answered || away ||', 'answered ||'),
    ('a hash that differs is an error',
     'if (job->mismatch != UINT64_MAX)'),
    ('hashes of pieces that are no whole blocks are compared',
     'if (aio->config.piece_bytes % HST_AIO_HASH_BYTES)'),
    ('hashes of pieces that are whole blocks are compared',
     'if (verdict == PIECE_FINISHED && job->op.kind == HST_AIO_READ && job->op.hashes &&\n'
     '        !job->error && aio->config.piece_bytes % HST_AIO_HASH_BYTES == 0)'),
    ("an operation's file belongs to the context",
     'if (!file || file->aio != aio)'),
    ('a file that is read only is not written',
     'if (op->kind != HST_AIO_READ && (op->kind != HST_AIO_WRITE || file->readonly))'),
    ('an operation has a buffer and bytes',
     'if (!op->buffer || op->bytes == 0)'),
    ('an operation is aligned',
     'if ((op->offset | op->bytes | (uintptr_t)op->buffer) % HST_AIO_ALIGN_BYTES)'),
    ('an operation lies in its file',
     'if (op->offset > file->size_bytes || op->bytes > file->size_bytes - op->offset)'),
    ('a forked child submits nothing',
     'check_context(const struct hst_aio *aio)\n{\n    if (!*aio->native)'),
    ('a forked child reaps nothing',
     'size_t least, uint64_t timeout_ns)\n{\n    if (!*aio->native)'),
    ('a context that is broken stays broken',
     'return aio->broken ? aio->broken : aio->gone;', 'return aio->gone;'),
    ('a wait that fails breaks the context',
     'if (count < 0)'),
    ('a flush that fails breaks the context',
     'aio->pushed = rc == 1;\n    if (rc < 0)'),
    ('a claim that fails takes nothing',
     'rc = aio->ops->claim(aio);\n        if (rc < 0)'),
    ('a full queue is told',
     'if (room == 0)'),
)

mutate(
    'aio/hash.c', 'aio/threads',
    ('a block is compared with its hash',
     'if (hash_block(job, at) != job->op.hashes[at / HST_AIO_HASH_BYTES])'),
)

mutate(
    'aio/file.c', 'aio/answers aio/stuck aio/fallback aio/threads aio/mounts',
    ('an error of flock',
     'if (errno != EWOULDBLOCK && errno != EINTR)'),
    ('a file without its lock is not used',
     'if (rc == 0)\n        rc = prepare(', 'rc = prepare('),
    ('an error of fchmod',
     'if (created && (st.st_mode & 07777) != 0600 && fchmod(file->fd, 0600) < 0)'),
    ('a mode that is right already needs no fchmod', ' && (st.st_mode & 07777) != 0600', ''),
    ('an error of F_SETFL',
     'if (fcntl(file->fd, F_SETFL, aio->direct ? O_DIRECT : 0) < 0)'),
    ('an error of the preallocation',
     'preallocate(file->fd, old_bytes, size_bytes) : 0;\n        if (rc < 0)'),
    ('only regular files',
     'if (!S_ISREG(st.st_mode))'),
    ('a file that is read has so many bytes',
     'if (size_bytes > old_bytes)'),
    ('a file that is read has whole blocks',
     'size_bytes = old_bytes;\n        if (size_bytes % HST_AIO_ALIGN_BYTES)'),
    ('unknown flags',
     'if (flags & ~(unsigned)(HST_AIO_SCRATCH | HST_AIO_CREATE | HST_AIO_READONLY))'),
    ('flags exclude each other',
     'if (flags & (flags - 1))'),
    ('sizes are more than nothing',
     'if (size_bytes == 0 && !readonly && aio->ops)'),
    ('sizes fit an off_t',
     'if (size_bytes > INT64_MAX)'),
    ('RLIMIT_FSIZE',
     'if (!readonly && limit.rlim_cur != RLIM_INFINITY && size_bytes > limit.rlim_cur)'),
    ('a created file that cannot be used is unlinked',
     'if (flags & HST_AIO_CREATE)'),
    ('a file that was given up stays open',
     '\n        !file->lost;', ' true;'),
)

mutate(
    'aio/threads.c', 'aio/answers aio/stuck aio/fallback aio/threads',
    ("the result of fdatasync",
     'n = fdatasync(fd);', 'n = 0 * fdatasync(fd);'),
    ('an error of pread and pwrite',
     'return n < 0 ? -errno : (int)n;', 'return n < 0 ? (int)piece->bytes : (int)n;'),
    ('an error of pthread_create',
     'return -rc;', 'return 0;'),
    # Left out: an abandoned pool takes no answers. What is written without that check has been
    # freed, which the sanitizers see (aio/stuck) and a plain build does not.
)

mutate(
    'aio/probe.c', 'aio/answers aio/fallback aio/transfer aio/mounts aio/rows',
    ('an error of the write',
     'rc = run_all(aio, file, HST_AIO_WRITE, written);\n    if (rc < 0)'),
    ('an error of fdatasync',
     'rc = sync_one(aio, file, step);\n    if (rc < 0)'),
    ('an error of the read',
     'rc = run_all(aio, file, HST_AIO_READ, read);\n    if (rc < 0)'),
    ('the bytes are compared',
     'if (memcmp(written, read, total_bytes) != 0)'),
    ('the error of a completion',
     'return rc < 0 ? rc : completion.error;', 'return rc < 0 ? rc : 0;'),
    ("the kernel's word on alignment",
     'if (st.memory_align_bytes > HST_AIO_ALIGN_BYTES || '
     'st.offset_align_bytes > HST_AIO_ALIGN_BYTES)'),
    ('an error of the write or read through O_DIRECT',
     'if (fcntl(fd, F_SETFL, O_DIRECT) < 0 ||\n'
     '        (!empty && pwrite(fd, block, HST_AIO_ALIGN_BYTES, 0) < 0) ||\n'
     '        pread(fd, block, HST_AIO_ALIGN_BYTES, 0) < 0)'),
    ('an error of O_DIRECT that is no lack of it',
     'rc = fcntl(file->fd, F_SETFL, 0) < 0 ? -errno : 0;\n    if (rc < 0)'),
)

mutate(
    'aio/stream.c', 'aio/answers aio/sim aio/threads',
    ('an error of the reap',
     'take(&run, &done[i]);\n        if (rc < 0)'),
    ('an error of an operation',
     'if (done->error)'),
    ('an error of the submission',
     'run->error = rc < 0 ? rc : -EINVAL;', ';'),
    ("an error of the caller's function",
     'run->error = job->tile(', '(void)job->tile('),
    ('a job has a file, and the context nothing under way',
     'if ((!job->from && !job->to) || job->bytes == 0 || hst_aio_in_flight(stream->aio) > 0)'),
    ('a job is aligned',
     'if ((job->bytes | job->from_offset | job->to_offset) % HST_AIO_ALIGN_BYTES ||\n'
     '        (hashed && stream->tile_bytes % HST_AIO_HASH_BYTES))'),
)

mutate(
    'aio/uring.c', 'aio/answers aio/fallback aio/rows aio/uring-fixed',
    ('an error of the submission',
     'int rc = io_uring_submit(&uring->ring);\n    if (!is_passing(rc))'),
    ('an error of the wait',
     'timeout_ns == UINT64_MAX ? NULL : &limit, NULL);\n    }\n    if (!is_passing(rc))'),
    ('what passes is no error',
     'rc == -EAGAIN || rc == -EBUSY ||\n           rc == -ENOMEM;', '0;'),
    ('an error of io_uring_register_eventfd, of a new ring',
     'rc = io_uring_register_eventfd(&uring->ring, uring->event_fd);\n        if (rc < 0)'),
    ('an error of io_uring_register_eventfd',
     'rc = io_uring_register_eventfd(&uring->ring, fd);\n        if (rc < 0)'),
    ('an error of io_uring_ring_dontfork',
     'rc = io_uring_ring_dontfork(&uring->ring);\n    if (rc < 0)'),
    ('what the kernel lacks',
     'if (!(uring->ring.features & IORING_FEAT_EXT_ARG))'),
    ('an error of io_uring_setup',
     'int rc = setup(&uring->ring, aio->piece_capacity);\n    if (rc < 0)'),
    # Left out: the part that could not be registered is forgotten. The parts before it are
    # unregistered right after, and this one with them.
)

mutate(
    'aio/uring.c', 'aio/mounts',
    ('files leave a ring before it ends',
     'io_uring_unregister_files(&uring->ring);', '(void)0;'),
)

mutate(
    'aio/probe.c', 'aio/fallback',
    ('a refusal of the memory is told as one',
     'if (rc == -EPERM || rc == -ENOSYS || rc == -EACCES)'),
)

mutate(
    'aio/buffer.c', 'aio/answers aio/fallback aio/memory aio/threads',
    ('an error of madvise',
     'return rc;\n}\n\nint hst_aio_buffer_alloc', 'return 0;\n}\n\nint hst_aio_buffer_alloc'),
    ('memory that is not there',
     'if (map == MAP_FAILED)'),
    ('sizes that cannot be',
     'if (size_bytes > SIZE_MAX / 2)'),
    ('nodes that cannot be',
     'if (node >= NODES_MAX)'),
    ('an error of the bind',
     'return rc < 0 ? -errno : 0;', 'return 0;'),
    ('an error of the pinning',
     'buffer.memory, buffer.mapped_bytes);\n        if (rc < 0)'),
)

# ---- cpu_adam: fused operations taken apart, formats, and what is refused ----

mutate(
    'cpu_adam/plain.h', 'cpu_adam/update',
    ("p's NaN is the one", 'canonical(e.p));\n        uint32_t', 'e.p);\n        uint32_t'),
    ("m's NaN is the one", 'canonical(e.m)', 'e.m'),
    ("v's NaN is the one", 'canonical(e.v)', 'e.v'),
    ('an f16 weight that is not finite is counted',
     'return (weight & 0x7c00u) == 0x7c00u;', 'return 0;'),
)

def mutate_vectors():
    mutate(
        'cpu_adam/vector_isa.h', 'cpu_adam/noise',
        ('noise of a vector depends on the element',
         'plus_words(index, low_lanes(order))', 'index'),
    )
    mutate(
        'cpu_adam/vector_isa.h', 'cpu_adam/isa-avx2',
        ("p's NaN is the one", 'p = canonical_pair(p);', ';'),
        ("m's NaN is the one", 'm = canonical_pair(m);', ';'),
        ("v's NaN is the one", 'v = canonical_pair(v);', ';'),
        ('a NaN is looked for',
         'if (kind.weights == HST_CPU_F16 ? not_finite != 0 : some_nan(p))'),
        ('an f16 weight that is not finite is counted',
         'not_finite += update_pair(kind, k, &here);', 'update_pair(kind, k, &here);'),
    )
    for isa, prefix in ('avx2', '_mm256'), ('avx512', '_mm512'):
        mutate(
            f'cpu_adam/vector_{isa}.h', f'cpu_adam/isa-{isa}',
            ('fused operations', f'return {prefix}_fmadd_ps(a, b, c);',
             f'return {prefix}_add_ps({prefix}_mul_ps(a, b), c);'),
            ('a NaN in any lane', ' != 0;', ' < 0;'),
            ('the sign of a remainder', '_srai_epi16', '_srli_epi16'),
        )


if platform.machine() == 'x86_64':
    mutate_vectors()

mutate(
    'cpu_adam/numbers.h', 'cpu_adam/adamw cpu_adam/convert cpu_adam/update',
    ('NaNs are canonical', 'bits_is_nan(bits) ? 0x7fc00000u : bits', 'bits'),
    ('the noise of a rounding', 'bits_of(x) + noise', 'bits_of(x) + 0x7fffu'),
    ('ties of a split weight go away from zero', 'bits + 0x8000u', 'bits + 0x7fffu'),
    ('bf16 is the nearest', 'bits + 0x7fffu + ((bits >> 16) & 1u)', 'bits + 0x8000u'),
    ('a NaN stays one in bf16', 'bits_is_nan(bits) ? nan : nearest_even', 'nearest_even'),
    ('f16 is the nearest', '0xfffu + (normal', '0x1000u + (normal'),
    ('a NaN stays one in f16', 'bits_is_nan(magnitude) ? 0x7e00u : 0x7c00u', '0x7c00u'),
    ('what is beyond f16', 'bits = magnitude >= F16_BEYOND ? special : bits;', ''),
)

mutate(
    'cpu_adam/noise.h', 'cpu_adam/noise',
    ('noise depends on the step',
     'noise_hash(step_hash + (index >> 32))', 'noise_hash(index >> 32)'),
)

mutate(
    'cpu_adam/noise.h', 'cpu_adam/update',
    ('noise depends on the element', 'uint32_t x = index ^ key.first;', 'uint32_t x = key.first;'),
    ('the upper half of an index counts', 'step_hash + (index >> 32)', 'step_hash'),
)

mutate(
    'cpu_adam/kernels.c', 'cpu_adam/update',
    ('a range may have elements of two keys', 'n > left ? (size_t)left : n', 'n > left ? n : n'),
)

mutate(
    'cpu_adam/into.c', 'cpu_adam/into',
    ('a block begins with its own index', '            .index = f.index,\n', ''),
)

mutate(
    'engine/exec/update/tile.c', 'engine/engine engine/slices',
    ('the noise of a tile is that of its elements',
     '    job.arrays.index = layout_first_element(exec->in.layout, job.range);\n', ''),
)

mutate(
    'engine/plan/layout/layout.h', 'engine/slices',
    ('an element is counted over all units',
     'layout->units[range.unit].first_block * LAYOUT_UNIT_ALIGN + range.offset', 'range.offset'),
)

mutate(
    'engine/exec/update/optimizer.c', 'engine/nonfinite',
    ('v may overflow without clipping too', '    if (!overflows(exec, stored_norm))\n',
     '    if (isfinite(stored_norm))\n'),
    ('such steps are skipped', 'return overflows(exec, stored_norm) &&',
     'return !isfinite(stored_norm) &&'),
)

mutate(
    'engine/ckpt/version_text.c', 'e2e/resume',
    ('a store tells how moments were rounded', 'if (c->state == HST_STATE_BF16)', 'if (0)'),
    ('a store tells how norms were added', 'NORM);\n', '"");\n'),
)

mutate(
    'engine/session/store/versions.c', 'e2e/resume',
    ('what was otherwise is told', 'other_run_tell_news(engine, news);\n', '(void)news;\n'),
)

mutate(
    'cpu_adam/kernels.c', 'cpu_adam/norm',
    ("a norm's NaN is the one", 'isnan(lane[0]) ? (double)float_of(0x7fc00000u) : lane[0]',
     'lane[0]'),
)

mutate(
    'cpu_adam/update.c', 'cpu_adam/update',
    ('arrays that overlap', 'if (overlap(a, &arrays[j], n))'),
    ('arrays that are there, or are not, against the kind',
     'if ((a->start != 0) != (a->bytes != 0))'),
    ('arrays that are not aligned', 'a->start % a->bytes != 0 || ', ''),
    ('arrays that go beyond the address space', ' || n > (UINTPTR_MAX - a->start) / a->bytes', ''),
    ('coefficients that are not sound', '!hst_adam_coef_is_sound(coef) || ', ''),
)

mutate(
    'cpu_adam/coef.c', 'cpu_adam/coef cpu_adam/update',
    ('coefficients are finite', 'if (!isfinite(all[i]))'),
    ('a norm is finite', 'if (!isfinite(in->norm))'),
    ('v stays finite', 'if (in->norm * (double)rounded > HST_GRAD_NORM_MOST)'),
    ('what is left after clipping counts', 'in->norm * (double)rounded', 'in->norm'),
    ('a bound on the norm is a number', 'isnan(in->max_norm) || ', ''),
    ('a factor is finite', '!isfinite(in->factor) || ', ''),
    ('a factor is positive', ' || !(in->factor > 0)', ''),
    # Left out: steps count from 1. Without that check the coefficients are infinite and refused.
    ('hyper-parameters', ' || !hyper_is_valid(hyper)', ''),
    ('coefficients that overflow f32', 'if (!hst_adam_coef_is_sound(&c))'),
    ('eps is positive', 'return c->eps > 0;', 'return true;'),
)

# ---- engine: what versions wait for, and what waits for them ----

mutate(
    'engine/plan/graph/graph_build.c', 'engine/scheduler engine/versions',
    ('a tile is saved when it has been updated',
     'link_to(b, node, i);\n            link_to(b, i, node);', 'link_to(b, i, node);'),
    ('a tile is updated again when it has been saved',
     'link_to(b, node, i);\n            link_to(b, i, node);', 'link_to(b, node, i);'),
    ('an update waits for the version before',
     '               on its way */\n            link_to(b, i, b->committed);', '            */'),
    ('a tile is saved when the version before is made',
     'link_to(b, i, b->committed); /* after a', '/* after a'),
    ('versions are made one after another',
     'there may be none */\n            link_verdict(b, i);\n'
     '            link_to(b, i, b->committed);',
     'there may be none */\n            link_verdict(b, i);'),
)

# ---- engine: what an optimistic update waits for ----

mutate(
    'engine/plan/graph/graph_build.c', 'engine/scheduler',
    ('what is read waits for the revert',
     '    link_to(b, node, b->clip);\n    link_to(b, node, b->revert);',
     '    link_to(b, node, b->clip);'),
    ('a revert waits for what is on its way to drives',
     'if (b->graph->nodes[i].kind == NODE_WRITE_TILE)\n'
     '                link_to(b, node, i);\n}\n\n/* A unit',
     'if (false)\n                link_to(b, node, i);\n}\n\n/* A unit'),
    ('an early update waits for a redo to be written',
     '        link_redo(b, unit);', '        (void)unit;'),
    ('a tile is read when the last update of it has been forgotten',
     '    if (b->in->optimistic)\n        link_to(b, node, b->revert);', ''),
)

mutate(
    'engine/plan/graph/graph.c', 'engine/scheduler',
    ('weights are read for a redo',
     '(b->in->optimistic && !b->in->units[unit].frozen ? PHASE_REDO', '(false ? PHASE_REDO'),
    ('slots change places when all has been updated',
     'if (ends_before_clip(b, &b->graph->nodes[n]))', 'if (false)'),
    ('an early update has the coefficients of its step',
     ': node->kind == NODE_UPDATE && node->lane != LANE_UPDATE;', ': false;'),
)

mutate(
    'engine/plan/graph/graph.c', 'engine/graph_streams',
    ('weights of a second visit are not given back with those of the first',
     'if (reads && s->recomputes && !visit->recompute)',
     'if (reads && s->recomputes && !visit->recompute && s->weights != GRAPH_NONE)'),
)

# ---- engine: tiles that a device updates out of host memory ----

mutate(
    'engine/plan/graph/graph_build.c', 'engine/scheduler',
    ('a tile is streamed when its gradients are there',
     'link_to(b, i, b->units[n->unit].grads_there);', '(void)n;'),
    ('what reads memory waits until a tile is home',
     'if (kind == NODE_UPDATE ? parts_is_updated_by(b, &b->graph->nodes[i])\n'
     '                                    : b->graph->nodes[i].kind == kind)',
     'if (b->graph->nodes[i].kind == kind)'),
)

mutate(
    'engine/plan/graph/graph_updates.c', 'engine/scheduler',
    ('a streamed tile is updated when it is there', 'build_dep(b, update, fetch);', ''),
    ('a streamed tile goes home when it was updated', 'build_dep(b, store, update);', ''),
)

mutate(
    'engine/exec/moves.c', 'engine/optimistic-all',
    ('a streamed tile goes into the other slot', 'op[i].to, 0, slots.into)',
     'op[i].to, 0, slots.from)'),
)

mutate(
    'engine/exec/update/optimizer_device.c', 'engine/away',
    ('a streamed tile has the coefficients of its step',
     '.coefs = late ? &exec->verdict.coefs : &exec->verdict.early',
     '.coefs = &exec->verdict.coefs'),
)

mutate(
    'engine/exec/lanes/device.c', 'engine/away',
    ('a streamed tile goes home behind its update', 'return streams->streamed;', 'return NULL;'),
)

mutate(
    'engine/exec/update/verdict.c', 'engine/optimistic',
    ('what clips is made again', '(unsigned)PHASE_REVERT | PHASE_REDO', 'PHASE_REVERT'),
    ('a step that is skipped is reverted',
     'v->skipped ? (unsigned)PHASE_REVERT :', 'v->skipped ? 0u :'),
    ('slots stay where a step is skipped', 'v->slot ^= !v->skipped;', 'v->slot ^= 1;'),
    ('kept weights of an update that did not stand are read anew',
     'stands ? UINT64_MAX : exec->turn.step_window + 1', 'UINT64_MAX'),
)
mutate(
    'engine/session/update_time.c', 'engine/optimistic',
    ('drives have a second slot with a version of every step alone', 'v->every != 1', 'false'),
)

mutate(
    'engine/exec/visit/execute.c', 'engine/optimistic engine/orders',
    ('derived weights are made again',
     'return rc || !exec->verdict.skipped ? rc : restore_derived(exec);', 'return rc;'),
    ('what buffers kept is forgotten where an evaluation begins anew',
     '    if (restart)\n        scheduler_forget(&exec->step.scheduler);\n', ''),
)

mutate(
    'engine/plan/search/update_choice.c', 'engine/update_choice',
    ('the faster one is kept', 'c->best_s[1] < c->best_s[0]', 'true'),
    ('the first step of a trial does not count', 'c->in_trial > 0 && ', ''),
    ('what clips often is not tried', '!both && !clips_too_often(c)', '!both'),
    ('what clips often is left', 'c->optimistic && clips_too_often(c)', 'false'),
    ('both are tried again', '++c->since >= UPDATE_TRIAL_EVERY', 'false'),
)

# ---- engine: the rules of the scheduler ----

mutate(
    'engine/plan/graph/scheduler.c', 'engine/scheduler engine/graph',
    ('nothing is counted from the first step window on',
     'return scheduler->opened > SCHEDULER_WINDOWS ? scheduler->opened - SCHEDULER_WINDOWS : 0;',
     'return 0;'),
    ('a lane starts its nodes in order',
     'place->at]] == STATE_WAITING)\n                return true;',
     'place->at]] == STATE_WAITING &&\n                scheduler_ready(scheduler, '
     'next_of(scheduler, lane)))\n                return true;'),
    ('a node waits for its dependencies',
     'if (first_undone_dep(scheduler, at, &ignored))'),
    ('a dependency that is under way is not done',
     'state == STATE_STARTED || (state == STATE_WAITING && scheduler_is_run(scheduler, here))',
     'state == STATE_WAITING && scheduler_is_run(scheduler, here)'),
    ('a dependency may be one of the step window before',
     '{at.step_window - before, deps[done] % DEP_BEFORE}',
     '{at.step_window, deps[done] % DEP_BEFORE}'),
    ('what is not run here may be under way in the step window before',
     'if (scheduler_is_run(scheduler, here))\n            return true;', 'return true;'),
    ('dependencies that were met are those of this node',
     'is_new = met->at.step_window != at.step_window || met->at.node != at.node;',
     'is_new = false;'),
    ('a node waits for its buffers',
     '        met->lacks = true;\n', ''),
    ('a pool lends in order',
     ' || !is_turn(scheduler, step_window, number)', ''),
    ('a pool lends what it has',
     'return l->retained != GRAPH_NONE || scheduler->free_count[reservation->pool] > 0;',
     'return true;'),
    ('an heir waits until the buffer is let go',
     'legacy_in_use(scheduler, step_window, number) || ', ''),
    ('an heir that is not open yet gets the buffer',
     'if (hands_over && step_window + 1 == scheduler->opened)'),
    ('an heir that is open gets the buffer',
     'if (heir && heir->users > 0)'),
    ('an heir that was passed over gets nothing',
     'heir && heir->users > 0', 'heir'),
    ('what is not whole is handed to nobody',
     ' && !l->broken', ''),
    ('a reservation whose uses were cut short is broken',
     'broken =\n                    true;', 'broken =\n                    false;'),
    ('what nobody took over goes back',
     'if (l->retained != GRAPH_NONE)'),
    ('a new step window takes over what was let go',
     'if (from->users == 0)'),
    ('a new step window takes over nothing that is in use',
     'if (from->users == 0)', 'if (1)'),
    ('a buffer is let go by its last user',
     'if (--l->users == 0)', 'if (--l->users <= 1)'),
    ('a buffer is borrowed once',
     'if (l->buffer != GRAPH_NONE)\n        return;\n    l->inherited', 'l->inherited'),
    ('what is not run is passed over',
     '    pass_over(scheduler, number, false);\n', ''),
)
