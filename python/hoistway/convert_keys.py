# SPDX-License-Identifier: Apache-2.0
"""What becomes of each key that a file of another trainer can have. Three tables of each kind: keys
that are used, keys that change no number and are left out, keys that are refused. A key that is in
none of them is refused, too. A name may end in *."""
from __future__ import annotations

TRAINED = 'hoistway trains weights themselves: all of them, or those of --train-only'
OPTIMIZER = 'hoistway has it not, or not with such states: --optimizer and --state list them'
OBJECTIVE = 'hoistway learns the next token of what it is given, and nothing else'
MODEL = 'the model is as its directory says'
DATA = 'rows are as the files have them'

OTHER_MEAN = ('another loss than the mean over all targets of a step, which hoistway has: padding '
              'is never learned, and ranks count together')

# Of refused keys which are on where they are absent, what changes nothing.
ON = {'ignore_pad_token_for_loss': (True,), 'average_tokens_across_devices': (True,)}

# Of a refused key, what changes nothing; other values are those of its own.
OFF = (False, '', 0, 'none', 'no', 'None')

# transformers' TrainingArguments, which axolotl and LLaMA-Factory pass on as well.
TRAINER_USED = ('learning_rate', 'adam_beta1', 'adam_beta2', 'adam_epsilon', 'weight_decay',
                'max_grad_norm', 'warmup_steps', 'warmup_ratio', 'gradient_accumulation_steps',
                'max_steps', 'bf16', 'fp16', 'tf32', 'seed', 'deepspeed', 'output_dir',
                'eval_steps', 'lr_scheduler_kwargs')
TRAINER_LEFT = (
    'logging_*', 'log_*', 'save_*', 'disable_tqdm', 'report_to', 'run_name', 'project',
    'trackio_*', 'eval_strategy', 'evaluation_strategy', 'eval_delay', 'per_device_eval_batch_size',
    'prediction_loss_only', 'eval_on_start', 'eval_do_concat_batches', 'eval_use_gather_object',
    'eval_accumulation_steps', 'include_for_metrics', 'batch_eval_metrics',
    'include_num_input_tokens_seen', 'include_tokens_per_second', 'push_to_hub', 'hub_*',
    'gradient_checkpointing', 'gradient_checkpointing_kwargs', 'activation_checkpointing',
    'activation_checkpointing_kwargs', 'torch_compile', 'torch_compile_backend',
    'torch_compile_mode', 'torch_empty_cache_steps', 'use_liger_kernel', 'liger_kernel_config',
    'use_cache', 'dataloader_num_workers', 'dataloader_pin_memory', 'dataloader_in_order',
    'dataloader_persistent_workers', 'dataloader_prefetch_factor', 'skip_memory_metrics',
    'dataloader_multiprocessing_context', 'ddp_*', 'fsdp', 'fsdp_*', 'local_rank', 'do_train',
    'do_eval', 'do_predict', 'use_cpu', 'enable_jit_checkpoint', 'overwrite_output_dir', 'debug',
    'metric_for_best_model', 'greater_is_better', 'bf16_full_eval', 'fp16_full_eval',
    'half_precision_backend', 'full_determinism', 'remove_unused_columns', 'label_names',
    'length_column_name')
TRAINER_REFUSED = {
    'average_tokens_across_devices': OTHER_MEAN,
    'optim_*': OPTIMIZER, 'label_smoothing_factor': OBJECTIVE, 'neftune_noise_alpha': OBJECTIVE,
    'auto_find_batch_size': 'a batch is what it is asked to be',
    'load_best_model_at_end': 'the counterpart is --keep-best of train, with --eval',
    'ignore_data_skip': 'a run that goes on is the run that was begun',
    'restore_callback_states_from_checkpoint': 'hoistway has no callbacks',
    'resume_from_checkpoint': 'a run goes on from its own store alone',
    'data_seed': 'the order of the data follows --seed', 'group_by_length': DATA,
    'train_sampling_strategy': 'rows come in an order of chance, or one after the other',
    'dataloader_drop_last': 'a pass is whole steps, the last of them filled from the next pass',
    'accelerator_config': 'what it says of batches has no counterpart',
    'parallelism_config': 'ranks share the batch, and nothing else'}
# of a refused key, values beside OFF that change nothing
TRAINER_HARMLESS = {'train_sampling_strategy': ('random',), 'dataloader_drop_last': (True,)}

LORA = {name: TRAINED for name in (
    'adapter', 'lora_*', 'qlora*', 'loraplus_*', 'peft*', 'load_in_8bit', 'load_in_4bit', 'relora*',
    'jagged_restart_*', 'gptq*', 'bnb_config_kwargs', 'quantization*',
    'finetuning_args', 'freeze_*', 'use_galore', 'galore_*', 'use_badam', 'badam_*', 'use_apollo',
    'apollo_*', 'use_dora', 'use_rslora', 'pissa_*', 'create_new_adapter', 'additional_target',
    'use_llama_pro', 'adapter_*', 'oft_*', 'qat', 'fp8*')}
RL = {name: OBJECTIVE for name in (
    'rl', 'rl_*', 'reward*', 'process_reward_model', 'dpo_*', 'orpo_*', 'kto_*', 'pref_*', 'trl',
    'ppo_*', 'simpo_*', 'kd_*', 'ref_model*', 'num_labels', 'use_dft_loss', 'use_asft_loss',
    'chunked_cross_entropy_loss', 'z_loss*', 'ld_alpha')}

AXOLOTL_USED = TRAINER_USED + (
    'base_model', 'datasets', 'test_datasets', 'sequence_len', 'sample_packing', 'micro_batch_size',
    'num_epochs', 'optimizer', 'lr_scheduler', 'val_set_size', 'train_on_inputs', 'chat_template',
    'special_tokens', 'tokenizer_config', 'excess_length_strategy', 'early_stopping_patience',
    'cosine_min_lr_ratio', 'plugins', 'unfrozen_parameters')
AXOLOTL_LEFT = TRAINER_LEFT + (
    'model_type', 'tokenizer_type', 'trust_remote_code', 'is_*_derived_model', 'strict',
    'dataset_prepared_path', 'dataset_processes', 'dataset_num_proc', 'dataset_keep_in_memory',
    'eval_sample_packing', 'sample_packing_*', 'pad_to_sequence_len', 'pad_to_sequence_length',
    'wandb_*', 'mlflow_*', 'comet_*', 'use_wandb', 'use_mlflow', 'use_tensorboard', 'use_comet',
    'saves_per_epoch', 'evals_per_epoch', 'eval_batch_size', 'eval_table_size', 'loss_watchdog_*',
    'eval_max_new_tokens', 'flash_attention', 'flash_attn_*', 'xformers_attention', 'attn_*',
    'sdp_attention', 'eager_attention', 'flex_attention', 'unsloth_*', 'liger_*', 'axolotl_*',
    'cut_cross_entropy', 'low_cpu_mem_usage', 'gc_steps', 'device_map', 'max_memory', 'profiler_*',
    'gpu_memory_limit', 'shuffle_merged_datasets', 'ddp')
GROUPS = "tensors with a rate of their own are --group 'GLOB:lr=0.1x' of train"
AXOLOTL_REFUSED = {
    **TRAINER_REFUSED, **LORA, **RL, 'optim_args': OPTIMIZER, 'tokens': MODEL,
    'added_tokens_overrides': MODEL, 'resize_token_embeddings_to_32x': MODEL,
    'overrides_of_model_*': MODEL, 'revision_of_model': MODEL, 'rope_*': MODEL,
    'torch_dtype': MODEL, 'base_model_config': MODEL, 'skip_prepare_dataset': DATA,
    'auto_resume_from_checkpoints': 'a run goes on from its own store alone',
    'base_model_ignore_patterns': MODEL, 'tokenizer_legacy': MODEL,
    'tokenizer_use_fast': MODEL, 'tokenizer_use_mistral_common': MODEL, 'is_multimodal': MODEL,
    'chat_template_jinja': 'save it in a file for --template of prep',
    'default_system_message': DATA, 'pretraining_dataset': DATA, 'streaming': DATA,
    'lr_groups': GROUPS, 'embedding_lr*': GROUPS,
    'cosine_constant_lr_ratio': 'the counterpart is --schedule wsd of train',
    'bfloat16': 'bf16 says it here', 'float16': 'fp16 says it here', 'dataset_exact_dedup*': DATA,
    'dataset_exact_deduplication': DATA, 'min_sample_len': DATA, 'roles_to_train': DATA,
    'sequence_parallel_degree': 'ranks share the batch, and nothing else',
    'context_parallel_size': 'ranks share the batch, and nothing else',
    'tensor_parallel_size': 'ranks share the batch, and nothing else',
    'dp_shard_size': 'the ranks are those that mpirun starts', 'noisy_embedding_alpha': OBJECTIVE,
    'liger_use_token_scaling': OTHER_MEAN}

FACTORY_USED = TRAINER_USED + (
    'model_name_or_path', 'stage', 'finetuning_type', 'dataset', 'dataset_dir', 'eval_dataset',
    'template', 'cutoff_len', 'packing', 'neat_packing', 'per_device_train_batch_size',
    'num_train_epochs', 'lr_scheduler_type', 'optim', 'val_size', 'train_on_prompt',
    'mask_history', 'freeze_trainable_layers', 'freeze_trainable_modules', 'freeze_extra_modules')
FACTORY_LEFT = TRAINER_LEFT + (
    'overwrite_cache', 'preprocessing_num_workers', 'preprocessing_batch_size', 'plot_loss',
    'flash_attn', 'enable_liger_kernel', 'use_unsloth', 'use_unsloth_gc', 'trust_remote_code',
    'cache_dir', 'tokenized_path', 'low_cpu_mem_usage', 'use_fast_tokenizer', 'hf_hub_token',
    'ms_hub_token', 'om_hub_token', 'disable_gradient_checkpointing', 'print_param_status',
    'use_reentrant_gc', 'offload_folder', 'ray_*', 'use_swanlab', 'swanlab_*', 'infer_*',
    'data_shared_file_system', 'include_effective_tokens_per_second')
FACTORY_REFUSED = {
    **TRAINER_REFUSED, **LORA, **RL, 'pure_bf16': 'master weights stay exact: bf16 says bf16',
    'max_samples': 'cut the file, with head -n', 'streaming': DATA, 'mix_strategy': DATA,
    'interleave_probs': DATA, 'buffer_size': DATA, 'rope_scaling': MODEL, 'shift_attn': MODEL,
    'ignore_pad_token_for_loss': OTHER_MEAN, 'mixture_of_depths': MODEL, 'resize_vocab': MODEL,
    'new_special_tokens': MODEL,
    'add_tokens': MODEL, 'add_special_tokens': MODEL, 'model_revision': MODEL, 'moe_aux_loss_coef':
    OBJECTIVE, 'upcast_*': 'it changes where numbers are rounded', 'use_muon': OPTIMIZER,
    'use_adam_mini': OPTIMIZER, 'tool_format': DATA, 'default_system': DATA, 'enable_thinking':
    '--template-args of prep has the counterpart', 'split_special_tokens': DATA,
    'image_*': DATA, 'video_*': DATA, 'audio_*': DATA,
    'media_dir': DATA, 'train_from_scratch': 'the counterpart is --init random of train',
    'compute_accuracy': 'hoistway evaluates the loss', 'predict_with_generate':
    'hoistway evaluates the loss', 'reserved_label_len': DATA,
    'disable_shuffling': 'the counterpart is --order sequential of train'}
FACTORY_HARMLESS = {'mix_strategy': ('concat',), **TRAINER_HARMLESS}

ARGUMENTS_USED = TRAINER_USED + ('per_device_train_batch_size', 'num_train_epochs',
                                 'lr_scheduler_type', 'optim')

ACCELERATE_USED = ('mixed_precision', 'num_processes', 'distributed_type') + tuple(
    f'deepspeed_config.{key}' for key in (
        'deepspeed_config_file', 'gradient_clipping', 'offload_optimizer_device',
        'offload_param_device', 'offload_optimizer_nvme_path', 'offload_param_nvme_path',
        'zero_stage', 'gradient_accumulation_steps'))
ACCELERATE_LEFT = (
    'compute_environment', 'num_machines', 'machine_rank', 'main_process_ip', 'main_process_port',
    'gpu_ids', 'main_training_function', 'rdzv_backend', 'same_network', 'use_cpu', 'debug',
    'downcast_bf16', 'tpu_*', 'enable_cpu_affinity', 'dynamo_*', 'fsdp_config', 'fsdp_config.*',
    'deepspeed_config.zero3_*', 'deepspeed_config.deepspeed_hostfile', 'ipex_config', 'mpirun_*',
    'deepspeed_config.deepspeed_multinode_launcher', 'deepspeed_config.deepspeed_exclusion_filter',
    'deepspeed_config.deepspeed_inclusion_filter', 'deepspeed_config.deepspeed_moe_layer_cls_names')
ACCELERATE_REFUSED = {
    'fp8_config': 'precisions are fp32, bf16 and fp16', 'command_file': 'name the command itself',
    'megatron_lm_config': 'ranks share the batch, and nothing else',
    'parallelism_config': 'ranks share the batch, and nothing else'}
