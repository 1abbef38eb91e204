# SPDX-License-Identifier: Apache-2.0
"""The 32 published DeepSpeed configurations, written anew with their keys, and what each is here.

A name is that of the project and its file. What is told is the options that a plan takes from it,
or the part of its refusal. Where it leaves the warmup open, that is so without --warmup as well.
"""
import json

STAGE = {stage: f'--zero-stage {stage}' for stage in range(4)}
CLIP = '--clip 1.0'
BATCH = f'--batch-tokens 256, {CLIP}'  # 8 sequences of 32
STATES, ALL = '--place states=dram', '--place states=dram,weights=dram'
ADAM = '--optimizer adamw, --betas 0.9,0.999, --eps 1e-8, --weight-decay 0, --lr 5e-5'
NO_WARMUP = 'Fix: --warmup'

LEFT_OPEN = {key: 'auto' for key in ('gradient_accumulation_steps', 'gradient_clipping',
                                     'train_batch_size', 'train_micro_batch_size_per_gpu')}
CPU = {'device': 'cpu', 'pin_memory': True}
SCALE = {'loss_scale': 0, 'loss_scale_window': 1000, 'hysteresis': 2, 'min_loss_scale': 1}


def auto(*keys):
    return {key: 'auto' for key in keys}


def half(enabled, power=16, **more):
    return {'enabled': enabled, 'initial_scale_power': power, **SCALE, **more}


def zero(stage, **more):
    return {'zero_optimization': {'stage': stage, 'overlap_comm': True, **more}}


def sizes(prefix='stage3_', group=1e9, live=1e9, gather='gather_16bit_weights_on_model_save'):
    return {'contiguous_gradients': True, 'sub_group_size': group, 'reduce_bucket_size': 'auto',
            f'{prefix}prefetch_bucket_size': 'auto',
            f'{prefix}param_persistence_threshold': 'auto',
            f'{prefix}max_live_parameters': live, f'{prefix}max_reuse_distance': live,
            f'{prefix}{gather}': True}


def buckets(size=5e8, reduce=5e8, **more):
    return {'allgather_partitions': True, 'allgather_bucket_size': size, 'reduce_scatter': True,
            'reduce_bucket_size': reduce, 'contiguous_gradients': True, **more}


# ---- axolotl: deepspeed_configs; its "auto" of precision is fp32, as Trainer's is by default ----

AXOLOTL = {**LEFT_OPEN, 'bf16': auto('enabled'), 'fp16': half('auto', 32, auto_cast=False),
           'wall_clock_breakdown': False}
AXOLOTL_BF16 = {**LEFT_OPEN, 'bf16': {'enabled': True}, 'wall_clock_breakdown': False}
COMPILE = {'compile': {'disable': False, 'backend': 'inductor'}}
CPU_OPTIMIZER = {'zero_force_ds_cpu_optimizer': False, 'zero_allow_untested_optimizer': True}
MIXED = {**sizes('', 0, 0), **auto('stage3_prefetch_bucket_size',
                                   'stage3_param_persistence_threshold')}
for name in ('prefetch_bucket_size', 'param_persistence_threshold'):
    del MIXED[name]
STAGE_2 = zero(2, offload_optimizer={'device': 'cpu'}, contiguous_gradients=True)

# ---- LLaMA-Factory: examples/deepspeed ----

FACTORY = {**LEFT_OPEN, 'zero_allow_untested_optimizer': True, 'fp16': half('auto'),
           'bf16': auto('enabled')}
ROBIN = buckets(round_robin_gradients=True)

# ---- accelerate: examples/deepspeed_config_templates ----

DECAY = {'scheduler': {'type': 'WarmupDecayLR', 'params': auto(
    'warmup_min_lr', 'warmup_max_lr', 'warmup_num_steps', 'total_num_steps')}}
TORCH_ADAM = {'optimizer': {'type': 'AdamW', 'params': {
    **auto('lr', 'weight_decay'), 'torch_adam': True, 'adam_w_mode': True}}}
PLAIN_ADAM = {'optimizer': {'type': 'AdamW', 'params': auto('lr', 'weight_decay')}}
ACCELERATE = {**LEFT_OPEN, **DECAY, 'fp16': half(True), 'gradient_accumulation_steps': 1,
              'steps_per_print': 2000, 'wall_clock_breakdown': False}
FP16, FP32 = '--precision fp16, --loss-scale 65536', '--precision fp32'
TEMPLATE_3 = {**sizes(), 'stage3_gather_16bit_weights_on_model_save': 'auto'}

# ---- LLMQ: benchmarks; transformers: tests/deepspeed, and its page on DeepSpeed ----

LLMQ = {**LEFT_OPEN, 'zero_allow_untested_optimizer': True,
        'bf16': {'enabled': True, 'bf16_master_weights_and_grads': True}}
AUTO_ADAM = {'optimizer': {'type': 'AdamW', 'params': auto('lr', 'betas', 'eps', 'weight_decay')}}
WARMUP = {'scheduler': {'type': 'WarmupLR', 'params': auto(
    'warmup_min_lr', 'warmup_max_lr', 'warmup_num_steps')}}
TRAINER = {**LEFT_OPEN, **AUTO_ADAM, **WARMUP, 'steps_per_print': 2000,
           'wall_clock_breakdown': False}
OLD_GATHER = {'gather': 'gather_fp16_weights_on_model_save'}
DRIVE = {'device': 'nvme', 'nvme_path': '/local_nvme', 'pin_memory': True}

PUBLISHED = {
    'axolotl zero1': ({**AXOLOTL, **zero(1)}, f'{BATCH}, {FP32}, {STAGE[1]}'),
    'axolotl zero1_torch_compile': ({**AXOLOTL, **zero(1), **COMPILE},
                                    f'{BATCH}, {FP32}, {STAGE[1]}'),
    'axolotl zero2': ({**AXOLOTL, **STAGE_2}, f'{BATCH}, {FP32}, {STAGE[2]}, {STATES}'),
    'axolotl zero2_torch_compile': ({**AXOLOTL, **STAGE_2, **COMPILE},
                                    f'{BATCH}, {FP32}, {STAGE[2]}, {STATES}'),
    'axolotl zero3': ({**AXOLOTL, **zero(3, **sizes('stage3_', 0, 0))},
                      f'{BATCH}, {FP32}, {STAGE[3]}'),
    'axolotl zero3_bf16': ({**AXOLOTL_BF16, **zero(3, **sizes('', 0, 0))},
                           f'{BATCH}, --precision bf16, {STAGE[3]}'),
    'axolotl zero3_bf16_cpuoffload_all': (
        {**AXOLOTL_BF16, **CPU_OPTIMIZER,
         **zero(3, offload_optimizer=CPU, offload_param=CPU, **MIXED)},
        f'{BATCH}, --precision bf16, {STAGE[3]}, {ALL}'),
    'axolotl zero3_bf16_cpuoffload_params': (
        {**AXOLOTL_BF16, **CPU_OPTIMIZER, **zero(3, offload_param=CPU, **MIXED)},
        f'{BATCH}, --precision bf16, {STAGE[3]}, --place weights=dram'),
    'LLaMA-Factory ds_z0_config': ({**FACTORY, **zero(0, **ROBIN)}, f'{BATCH}, {FP32}, {STAGE[0]}'),
    'LLaMA-Factory ds_z2_config': ({**FACTORY, **zero(2, **ROBIN)}, f'{BATCH}, {FP32}, {STAGE[2]}'),
    'LLaMA-Factory ds_z2_autotp_config': (
        {'_comment': 'models', **FACTORY, **zero(2, **ROBIN),
         'tensor_parallel': {'autotp_size': 2}}, 'tensor_parallel'),
    'LLaMA-Factory ds_z2_offload_config': (
        {**FACTORY, **zero(2, offload_optimizer=CPU, **ROBIN)},
        f'{BATCH}, {FP32}, {STAGE[2]}, {STATES}'),
    'LLaMA-Factory ds_z3_config': ({**FACTORY, **zero(3, **sizes())},
                                   f'{BATCH}, {FP32}, {STAGE[3]}'),
    'LLaMA-Factory ds_z3_fp8_config': (
        {**FACTORY, 'fp16': half(False), 'bf16': {'enabled': False},
         'fp8': {'enabled': True, 'loss_scale_window': 1000}, **zero(3, **sizes())}, 'fp8 {...}'),
    'LLaMA-Factory ds_z3_offload_config': (
        {**FACTORY, **zero(3, offload_optimizer=CPU, offload_param=CPU, **sizes())},
        f'{BATCH}, {FP32}, {STAGE[3]}, {ALL}'),
    'accelerate zero_stage1_config': (
        {**ACCELERATE, **TORCH_ADAM, **zero(1, **buckets(2e8, 'auto'))},
        f'{BATCH}, {ADAM}, {FP16}, {STAGE[1]}, the rates of WarmupDecayLR'),
    'accelerate zero_stage2_config': (
        {**ACCELERATE, **TORCH_ADAM, **zero(2, **buckets(2e8, 'auto'))},
        f'{BATCH}, {ADAM}, {FP16}, {STAGE[2]}, the rates of WarmupDecayLR'),
    'accelerate zero_stage2_offload_config': (
        {**ACCELERATE, **TORCH_ADAM, **zero(2, offload_optimizer=CPU, **buckets(2e8, 'auto'))},
        f'{BATCH}, {ADAM}, {FP16}, {STAGE[2]}, {STATES}, the rates of WarmupDecayLR'),
    'accelerate zero_stage3_config': (
        {**ACCELERATE, **PLAIN_ADAM, **zero(3, **TEMPLATE_3)},
        f'{BATCH}, {ADAM}, {FP16}, {STAGE[3]}, the rates of WarmupDecayLR'),
    'accelerate zero_stage3_offload_config': (
        {**ACCELERATE, **PLAIN_ADAM,
         **zero(3, offload_optimizer=CPU, offload_param=CPU, **TEMPLATE_3)},
        f'{BATCH}, {ADAM}, {FP16}, {STAGE[3]}, {ALL}, the rates of WarmupDecayLR'),
    'LLMQ 1x4090/ds_z2_offload': (
        {**LLMQ, **zero(2, offload_optimizer=CPU, **ROBIN)},
        f'{BATCH}, --precision bf16, {STAGE[2]}, {STATES}'),
    'LLMQ 1x4090/ds_z3_offload': (
        {**LLMQ, **zero(3, offload_optimizer=CPU, offload_param=CPU, **sizes())},
        f'{BATCH}, --precision bf16, {STAGE[3]}, {ALL}'),
    'LLMQ 4x4090/ds_z2_offload': (
        {**zero(2, offload_optimizer=CPU, **ROBIN), **LLMQ},
        f'{BATCH}, --precision bf16, {STAGE[2]}, {STATES}'),
    'LLMQ 4x4090/ds_z3_offload': (
        {**zero(3, offload_optimizer=CPU, offload_param=CPU, **sizes()), **LLMQ},
        f'{BATCH}, --precision bf16, {STAGE[3]}, {ALL}'),
    'transformers ds_config_zero2': (
        {**TRAINER, 'fp16': half('auto'), 'bf16': auto('enabled'),
         **zero(2, offload_optimizer=CPU, **buckets(2e8, 2e8))},
        f'{BATCH}, {ADAM}, {FP32}, {STAGE[2]}, {STATES}, the rates of WarmupLR'),
    'transformers ds_config_zero2_bf16': (
        {**TRAINER, 'bfloat16': auto('enabled'),
         **zero(2, offload_optimizer=CPU, **buckets(2e8, 2e8))},
        f'{BATCH}, {ADAM}, {FP32}, {STAGE[2]}, {STATES}, the rates of WarmupLR'),
    'transformers ds_config_zero3': (
        {**TRAINER, 'fp16': half('auto'), 'bf16': auto('enabled'),
         **zero(3, offload_optimizer=CPU, offload_param=CPU, **sizes())},
        f'{BATCH}, {ADAM}, {FP32}, {STAGE[3]}, {ALL}, the rates of WarmupLR'),
    'transformers ds_config_zero3_bf16': (
        {**TRAINER, 'bfloat16': auto('enabled'),
         **zero(3, offload_optimizer=CPU, offload_param=CPU, **sizes(**OLD_GATHER))},
        f'{BATCH}, {ADAM}, {FP32}, {STAGE[3]}, {ALL}, the rates of WarmupLR'),
    "transformers' page, ZeRO-1": (
        {'zero_optimization': {'stage': 1}}, f'{CLIP}, {STAGE[1]}'),
    # without the comma that it lacks
    "transformers' page, ZeRO-2": (
        json.dumps(zero(2, offload_optimizer=CPU, **ROBIN), indent=4).replace(
            '"contiguous_gradients": true,', '"contiguous_gradients": true'),
        f'{CLIP}, {STAGE[2]}, {STATES}'),
    "transformers' page, ZeRO-3": (
        zero(3, offload_optimizer=CPU, offload_param=CPU, **sizes()),
        f'{CLIP}, {STAGE[3]}, {ALL}'),
    # aio stands in another section than DeepSpeed reads it in
    "transformers' page, NVMe": (
        {**TRAINER, 'fp16': half('auto'),
         **zero(3, offload_optimizer={**DRIVE, 'buffer_count': 4, 'fast_init': False},
                offload_param={**DRIVE, 'buffer_count': 5, 'buffer_size': 1e8, 'max_in_cpu': 1e9},
                aio={'block_size': 262144, 'queue_depth': 32, 'thread_count': 1,
                     'single_submit': False, 'overlap_events': True}, **sizes())},
        f'{BATCH}, {ADAM}, {FP32}, {STAGE[3]}, --place states=nvme,weights=nvme, --store '
        '/local_nvme, the rates of WarmupLR'),
}

# One of each origin, and how many steps it is to train.
TRAINED = {
    'axolotl zero3_bf16_cpuoffload_all': 2, 'LLaMA-Factory ds_z3_offload_config': 2,
    'accelerate zero_stage3_offload_config': 3, 'LLMQ 1x4090/ds_z3_offload': 2,
    'transformers ds_config_zero3_bf16': 3, "transformers' page, NVMe": 3,
}
