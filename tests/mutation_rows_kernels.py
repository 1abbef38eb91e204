# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of the CUDA device's own kernels, and of what they use of a card."""
from mutation_rows import mutate

mutate(
    'kernels/cuda/ops/attention_forward.cu', 'cuda/resources',
    ('values in their one buffer are waited for',
     '            hst_cp_async_wait<0>();\n            __syncthreads(); /* the values',
     '            __syncthreads(); /* the values'),
    ('keys stay until all have used them',
     '            __syncthreads(); /* the values are here', '            /* the values are here'),
    ('eight warps have room for one tile', 'D > 128 && WARPS == 8 ? 1 : 2', '2'),
)
mutate(
    'kernels/cuda/ops/attention.cu', 'simt/suite/attention',
    ('chains that a thread has together are apart by threads', 'sum[j], apart / N)',
     'sum[j], apart)'),
    ('rows end where they end', 'add_products(u[k], v[k], sum)',
     'add_products(u[0], v[0], sum)'),
)
mutate(
    'kernels/cuda/ops/rope.cu', 'simt/suite/elementwise',
    ('a head that is not there stays', 'head + rows < a.heads ? HEADS : 1', 'HEADS'),
    ('a block goes over more heads than it has threads for',
     'head < a.heads; head += HEADS * rows', 'head < HEADS * rows; head += HEADS * rows'),
    ('and over longer ones', 'at < half; at += lanes * N', 'at < lanes * N; at += lanes * N'),
    ('sequences have places of their own', '(q * a.seq + place) * a.heads', 'place * a.heads'),
)
mutate(
    'kernels/cuda/ops/cross_entropy.cu', 'cuda/resources',
    ('so much under way does not spill', 'UNROLL = 2 }', 'UNROLL = 4 }'),
)
