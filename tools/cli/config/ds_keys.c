/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides what becomes of each key of a DeepSpeed configuration. docs/deepspeed.md is printed from
 * this table, and a test compares both, and the table with the keys that DeepSpeed itself reads.
 * What would change a number, or promises what is not there, is refused; what only says how
 * DeepSpeed goes about it is noted.
 */
#include "cli/config/ds_keys.h"

#include "cli/options/options.h"

#include <assert.h>
#include <string.h>

#define SIZED "hoistway sizes its own buffers and transfers, from the budgets"
#define SHOWN "hoistway tells its own figures: --log, --trace, inspect"
#define ONE   "hoistway has one way of doing this"

#define ROW(p, t, v, ...)                                                                          \
    {                                                                                              \
        .path = p, .type = DS_##t, .verdict = v, __VA_ARGS__                                       \
    }
#define OPTION(p, t, ...)  ROW(p, t, DS_OPTION, __VA_ARGS__)
#define NOTED(p, t, ...)   ROW(p, t, DS_NOTED, __VA_ARGS__)
#define REFUSED(p, t, ...) ROW(p, t, DS_REFUSED, __VA_ARGS__)

const struct ds_key ds_keys[] = {
    OPTION("train_batch_size", WHOLE,
           .words = "--batch-tokens: so many sequences of --seq-len; the product of the two below "
                    "and the ranks is checked"),
    OPTION("train_micro_batch_size_per_gpu", WHOLE, .automatic = "8",
           .words = "a factor of the batch; no number depends on it beside"),
    OPTION("gradient_accumulation_steps", WHOLE, .automatic = "1",
           .words = "a factor of the batch; no number depends on it beside"),
    NOTED("managed_gradient_accumulation", BOOL, .words = ONE),
    OPTION("gradient_clipping", REAL, .absent = "1.0", .automatic = "1.0",
           .words = "--clip; older DeepSpeed, whose default was 0, did not clip without it"),
    OPTION("seed", WHOLE, .older = true, .words = "--seed"),
    OPTION("optimizer", SECTION,
           .words = "where the command line has --optimizer, that counts, and its own numbers but "
                    "the rate; keys that are not there get the defaults of DeepSpeed"),
    OPTION("optimizer.type", TEXT,
           .words = "--optimizer: Adam and AdamW are AdamW; what it has not is refused"),
    OPTION("optimizer.params", SECTION, .words = "what follows"),
    OPTION("optimizer.params.lr", REAL, .absent = "1e-3", .automatic = "5e-5",
           .words = "--lr; where it is absent, that of its class"),
    OPTION("optimizer.params.betas", REALS, .absent = "0.9,0.999", .automatic = "0.9,0.999",
           .words = "--betas"),
    OPTION("optimizer.params.eps", REAL, .absent = "1e-8", .automatic = "1e-8", .words = "--eps"),
    OPTION("optimizer.params.weight_decay", REAL, .absent = "0", .automatic = "0",
           .words = "--weight-decay; of tensors of two or more dimensions alone, while DeepSpeed "
                    "decays all that it is given"),
    OPTION("optimizer.params.momentum", REAL, .absent = "0", .words = "--momentum, of SGD"),
    REFUSED("optimizer.params.nesterov", BOOL, .harmless = "false",
            .words = "hoistway's SGD does not look ahead. Fix: false, or leave it out."),
    REFUSED("optimizer.params.dampening", REAL, .harmless = "0",
            .words = "hoistway's SGD has none. Fix: 0, or leave it out."),
    OPTION("optimizer.params.torch_adam", BOOL,
           .words = "decides what weight_decay is where it is not given: 0.01 with it, 0 without"),
    REFUSED("optimizer.params.adam_w_mode", BOOL, .harmless = "true",
            .words = "hoistway trains by AdamW, and this asks for Adam, whose decay is a part of "
                     "the gradient. Fix: true, or leave it out."),
    REFUSED("optimizer.params.bias_correction", BOOL, .harmless = "true",
            .words = "hoistway corrects the bias of the moments. Fix: true, or leave it out."),
    REFUSED("optimizer.params.amsgrad", BOOL, .harmless = "false",
            .words = "hoistway has no AMSGrad. Fix: false, or leave it out."),
    REFUSED("optimizer.params.max_grad_norm", REAL, .harmless = "0",
            .words = "DeepSpeed does not clip by it either. Fix: gradient_clipping."),
    NOTED("optimizer.params.fp32_optimizer_states", BOOL,
          .words = "--state says of which type the states are"),
    NOTED("optimizer.params.foreach", BOOL, .words = ONE),
    NOTED("optimizer.params.set_grad_none", BOOL, .words = ONE),
    NOTED("optimizer.legacy_fusion", BOOL, .words = ONE),
    OPTION("scheduler", SECTION,
           .words = "the rates of its class, step by step; where the command line has --schedule, "
                    "that counts"),
    OPTION("scheduler.type", TEXT,
           .words = "WarmupLR, WarmupDecayLR and WarmupCosineLR; others are refused"),
    OPTION("scheduler.params", SECTION, .words = "what follows"),
    OPTION("scheduler.params.warmup_min_lr", REAL, .absent = "0", .automatic = "0",
           .words = "the first rate, of steps 1 and 2"),
    OPTION("scheduler.params.warmup_max_lr", REAL, .automatic = "5e-5",
           .words = "--lr; absent: that of the optimizer, of WarmupDecayLR 0.001; \"auto\": that "
                    "of the optimizer"),
    OPTION("scheduler.params.warmup_num_steps", WHOLE, .absent = "1000",
           .words = "\"auto\": --warmup"),
    OPTION("scheduler.params.warmup_type", TEXT, .absent = "log", .automatic = "log",
           .words = "log or linear"),
    OPTION("scheduler.params.total_num_steps", WHOLE,
           .words =
               "where the rates of WarmupDecayLR and WarmupCosineLR end; \"auto\": with the run"),
    OPTION("scheduler.params.warmup_min_ratio", REAL, .absent = "0",
           .words = "the first rate of WarmupCosineLR, as a fraction of --lr"),
    OPTION("scheduler.params.cos_min_ratio", REAL, .absent = "0.0001",
           .words = "the last rate of WarmupCosineLR, as a fraction of --lr"),
    REFUSED("scheduler.params.last_batch_iteration", WHOLE, .harmless = "-1",
            .words = "--resume goes on where a run ended. Fix: -1, or leave it out."),
    NOTED("scheduler.params.cycle_min_lr", TREE,
          .words = "of OneCycle or LRRangeTest, which are refused where no --schedule counts in "
                   "their place"),
    NOTED("scheduler.params.cycle_max_lr", TREE,
          .words = "of OneCycle or LRRangeTest, which are refused where no --schedule counts in "
                   "their place"),
    NOTED("scheduler.params.decay_lr_rate", TREE,
          .words = "of OneCycle or LRRangeTest, which are refused where no --schedule counts in "
                   "their place"),
    NOTED("scheduler.params.cycle_first_step_size", TREE,
          .words = "of OneCycle or LRRangeTest, which are refused where no --schedule counts in "
                   "their place"),
    NOTED("scheduler.params.cycle_second_step_size", TREE,
          .words = "of OneCycle or LRRangeTest, which are refused where no --schedule counts in "
                   "their place"),
    NOTED("scheduler.params.cycle_first_stair_count", TREE,
          .words = "of OneCycle or LRRangeTest, which are refused where no --schedule counts in "
                   "their place"),
    NOTED("scheduler.params.cycle_second_stair_count", TREE,
          .words = "of OneCycle or LRRangeTest, which are refused where no --schedule counts in "
                   "their place"),
    NOTED("scheduler.params.decay_step_size", TREE,
          .words = "of OneCycle or LRRangeTest, which are refused where no --schedule counts in "
                   "their place"),
    NOTED("scheduler.params.cycle_momentum", TREE,
          .words = "of OneCycle or LRRangeTest, which are refused where no --schedule counts in "
                   "their place"),
    NOTED("scheduler.params.cycle_min_mom", TREE,
          .words = "of OneCycle or LRRangeTest, which are refused where no --schedule counts in "
                   "their place"),
    NOTED("scheduler.params.cycle_max_mom", TREE,
          .words = "of OneCycle or LRRangeTest, which are refused where no --schedule counts in "
                   "their place"),
    NOTED("scheduler.params.decay_mom_rate", TREE,
          .words = "of OneCycle or LRRangeTest, which are refused where no --schedule counts in "
                   "their place"),
    NOTED("scheduler.params.lr_range_test_min_lr", TREE,
          .words = "of OneCycle or LRRangeTest, which are refused where no --schedule counts in "
                   "their place"),
    NOTED("scheduler.params.lr_range_test_step_size", TREE,
          .words = "of OneCycle or LRRangeTest, which are refused where no --schedule counts in "
                   "their place"),
    NOTED("scheduler.params.lr_range_test_step_rate", TREE,
          .words = "of OneCycle or LRRangeTest, which are refused where no --schedule counts in "
                   "their place"),
    NOTED("scheduler.params.lr_range_test_staircase", TREE,
          .words = "of OneCycle or LRRangeTest, which are refused where no --schedule counts in "
                   "their place"),
    OPTION("bf16", SECTION, .aliases = "bfloat16", .words = "what follows"),
    OPTION("bf16.enabled", BOOL, .aliases = "bfloat16.enabled", .absent = "false",
           .automatic = "false",
           .words = "--precision bf16; false in all sections that are there: fp32"),
    NOTED("bf16.immediate_grad_update", BOOL, .aliases = "bfloat16.immediate_grad_update",
          .words = ONE),
    NOTED("bf16.check_grad_overflow", BOOL, .aliases = "bfloat16.check_grad_overflow",
          .words = "--skip-nonfinite leaves such steps out; without it one ends the run"),
    NOTED("bf16.bf16_master_weights_and_grads", BOOL,
          .aliases = "bfloat16.bf16_master_weights_and_grads",
          .words = "master weights stay exact"),
    OPTION("bf16.bf16_optimizer_states", BOOL, .aliases = "bfloat16.bf16_optimizer_states",
           .absent = "false", .words = "--state bf16"),
    OPTION("fp16", SECTION, .words = "what follows"),
    OPTION("fp16.enabled", BOOL, .absent = "false", .automatic = "false",
           .words = "--precision fp16; false in all sections that are there: fp32"),
    OPTION("fp16.loss_scale", REAL, .absent = "0",
           .words = "--loss-scale with --loss-scaling static; 0: it adapts itself"),
    OPTION("fp16.initial_scale_power", WHOLE, .absent = "16", .automatic = "16",
           .words = "--loss-scale: 2 to this power, where fp16.loss_scale is 0 or absent"),
    NOTED("fp16.auto_cast", BOOL, .words = ONE),
    NOTED("fp16.loss_scale_window", REAL,
          .words =
              "the loss scale is halved where a step overflows, and doubled after 2,000 good ones"),
    NOTED("fp16.hysteresis", WHOLE,
          .words =
              "the loss scale is halved where a step overflows, and doubled after 2,000 good ones"),
    NOTED("fp16.consecutive_hysteresis", BOOL,
          .words =
              "the loss scale is halved where a step overflows, and doubled after 2,000 good ones"),
    NOTED("fp16.min_loss_scale", REAL,
          .words =
              "the loss scale is halved where a step overflows, and doubled after 2,000 good ones"),
    REFUSED("fp16.fp16_master_weights_and_grads", BOOL, .harmless = "false",
            .words = "hoistway keeps master weights exact. Fix: false, or leave it out."),
    NOTED("fp16.fp16_opt_level", TEXT, .older = true, .words = ONE),
    NOTED("fp16.opt_level", TEXT, .older = true, .words = ONE),
    OPTION("zero_optimization", SECTION, .words = "what follows"),
    OPTION("zero_optimization.stage", WHOLE, .absent = "0",
           .words = "--zero-stage; no number depends on it, and 2 takes less memory than 0 and 1"),
    OPTION("zero_optimization.offload_optimizer", SECTION, .words = "what follows"),
    OPTION("zero_optimization.offload_optimizer.device", TEXT, .absent = "none",
           .words = "--place states: cpu is dram, nvme is nvme; none leaves it to the budgets"),
    OPTION("zero_optimization.offload_optimizer.nvme_path", TEXT,
           .words = "--store, of the devices that are nvme"),
    NOTED("zero_optimization.offload_optimizer.buffer_count", WHOLE, .words = SIZED),
    NOTED("zero_optimization.offload_optimizer.buffer_size", WHOLE, .older = true, .words = SIZED),
    NOTED("zero_optimization.offload_optimizer.pin_memory", BOOL, .words = SIZED),
    NOTED("zero_optimization.offload_optimizer.pipeline_read", BOOL, .words = SIZED),
    NOTED("zero_optimization.offload_optimizer.pipeline_write", BOOL, .words = SIZED),
    NOTED("zero_optimization.offload_optimizer.fast_init", BOOL, .words = SIZED),
    NOTED("zero_optimization.offload_optimizer.ratio", REAL,
          .words = "--gpu-update says which share of the tiles a GPU updates"),
    REFUSED("zero_optimization.offload_optimizer.super_offload", BOOL, .harmless = "false",
            .words = "hoistway has its own overlap of update and backward. Fix: false, and "
                     "--update optimistic."),
    NOTED("zero_optimization.offload_optimizer.cpuadam_cores_perc", REAL, .words = "--threads"),
    OPTION("zero_optimization.cpu_offload", BOOL, .words = "--place states=dram"),
    OPTION("zero_optimization.offload_param", SECTION, .words = "what follows"),
    OPTION("zero_optimization.offload_param.device", TEXT, .absent = "none",
           .words = "--place weights: cpu is dram, nvme is nvme; none leaves it to the budgets"),
    OPTION("zero_optimization.offload_param.nvme_path", TEXT,
           .words = "--store, of the devices that are nvme"),
    NOTED("zero_optimization.offload_param.buffer_count", WHOLE, .words = SIZED),
    NOTED("zero_optimization.offload_param.buffer_size", WHOLE, .words = SIZED),
    NOTED("zero_optimization.offload_param.pin_memory", BOOL, .words = SIZED),
    NOTED("zero_optimization.offload_param.max_in_cpu", WHOLE, .words = SIZED),
    OPTION("zero_optimization.cpu_offload_param", BOOL, .words = "--place weights=dram"),
    NOTED("zero_optimization.cpu_offload_use_pin_memory", BOOL, .words = SIZED),
    NOTED("zero_optimization.contiguous_gradients", BOOL, .words = ONE),
    NOTED("zero_optimization.reduce_scatter", BOOL, .words = ONE),
    NOTED("zero_optimization.use_multi_rank_bucket_allreduce", BOOL, .words = ONE),
    NOTED("zero_optimization.allgather_partitions", BOOL, .words = ONE),
    NOTED("zero_optimization.overlap_comm", BOOL, .words = ONE),
    NOTED("zero_optimization.compute_grad_norm", BOOL, .words = ONE),
    NOTED("zero_optimization.round_robin_gradients", BOOL, .words = ONE),
    NOTED("zero_optimization.parameter_alignment", BOOL, .words = ONE),
    NOTED("zero_optimization.memory_efficient_linear", BOOL, .words = ONE),
    NOTED("zero_optimization.override_module_apply", BOOL, .words = ONE),
    NOTED("zero_optimization.pipeline_loading_checkpoint", BOOL, .words = ONE),
    NOTED("zero_optimization.legacy_stage1", BOOL, .words = ONE),
    NOTED("zero_optimization.load_from_fp32_weights", BOOL, .words = ONE),
    NOTED("zero_optimization.ignore_unused_parameters", BOOL, .words = ONE),
    NOTED("zero_optimization.log_trace_cache_warnings", BOOL, .words = ONE),
    NOTED("zero_optimization.enable_sanity_checks", BOOL, .words = ONE),
    NOTED("zero_optimization.save_muon_momentum_buffer_in_memory", BOOL, .words = ONE),
    REFUSED("zero_optimization.elastic_checkpoint", BOOL, .harmless = "false",
            .words = "nothing has to be switched on: `--resume` takes any number of ranks that can "
                     "share the ways. Fix: false."),
    NOTED("zero_optimization.reduce_bucket_size", WHOLE, .words = SIZED),
    NOTED("zero_optimization.allgather_bucket_size", WHOLE, .words = SIZED),
    NOTED("zero_optimization.sub_group_size", WHOLE, .words = SIZED),
    NOTED("zero_optimization.prefetch_bucket_size", WHOLE,
          .aliases = "zero_optimization.stage3_prefetch_bucket_size", .words = SIZED),
    NOTED("zero_optimization.param_persistence_threshold", WHOLE,
          .aliases = "zero_optimization.stage3_param_persistence_threshold", .words = SIZED),
    NOTED("zero_optimization.model_persistence_threshold", WHOLE,
          .aliases = "zero_optimization.stage3_model_persistence_threshold", .words = SIZED),
    NOTED("zero_optimization.max_live_parameters", WHOLE,
          .aliases = "zero_optimization.stage3_max_live_parameters", .words = SIZED),
    NOTED("zero_optimization.max_reuse_distance", WHOLE,
          .aliases = "zero_optimization.stage3_max_reuse_distance", .words = SIZED),
    NOTED("zero_optimization.module_granularity_threshold", WHOLE,
          .aliases = "zero_optimization.stage3_module_granularity_threshold", .words = SIZED),
    NOTED("zero_optimization.use_all_reduce_for_fetch_params", BOOL,
          .aliases = "zero_optimization.stage3_use_all_reduce_for_fetch_params", .words = ONE),
    NOTED("zero_optimization.allgather_sequential", BOOL,
          .aliases = "zero_optimization.stage3_allgather_sequential", .words = ONE),
    NOTED("zero_optimization.gather_16bit_weights_on_model_save", BOOL,
          .aliases = "zero_optimization.stage3_gather_16bit_weights_on_model_save|"
                     "zero_optimization.stage3_gather_fp16_weights_on_model_save",
          .words = "--export writes whole tensors, in the type of --export-dtype"),
    OPTION("zero_optimization.zero_hpz_partition_size", WHOLE,
           .words = "--secondary node, where it is more than 1; that is among all ranks of a node, "
                    "and another number than theirs is noted"),
    OPTION("zero_optimization.zero_quantized_weights", BOOL, .words = "--gather int8"),
    REFUSED("zero_optimization.zero_quantized_nontrainable_weights", BOOL, .harmless = "false",
            .words =
                "hoistway sends what it computed, not quantized. Fix: false, or leave it out."),
    OPTION("zero_optimization.zero_quantized_gradients", BOOL,
           .words = "--reduce int4: 4 bits within a node and between nodes, as "
                    "DeepSpeed has them, with a scale to each block of 512; of two ways or more"),
    REFUSED("zero_optimization.mics_shard_size", WHOLE, .harmless = "-1", .older = true,
            .words = "hoistway shards among all ranks. Fix: -1, or leave it out."),
    REFUSED("zero_optimization.mics_hierarchical_params_gather", BOOL, .harmless = "false",
            .older = true,
            .words = "hoistway shards among all ranks. Fix: false, or leave it out."),
    REFUSED("zero_optimization.zenflow", TREE,
            .words = "it updates from gradients of an earlier step. Fix: leave it out; --update "
                     "optimistic hides the update without that."),
    NOTED("zero_optimization.leaf_module", TREE, .words = ONE),
    NOTED("aio", SECTION, .aliases = "zero_optimization.aio",
          .words = "--io, and rates that are measured, decide how the store is read and written"),
    NOTED("aio.block_size", WHOLE, .aliases = "zero_optimization.aio.block_size", .words = SIZED),
    NOTED("aio.queue_depth", WHOLE, .aliases = "zero_optimization.aio.queue_depth", .words = SIZED),
    NOTED("aio.intra_op_parallelism", WHOLE,
          .aliases = "zero_optimization.aio.intra_op_parallelism|"
                     "aio.thread_count|"
                     "aio.num_threads|"
                     "zero_optimization.aio.thread_count|"
                     "zero_optimization.aio.num_threads",
          .words = SIZED),
    NOTED("aio.single_submit", BOOL, .aliases = "zero_optimization.aio.single_submit",
          .words = SIZED),
    NOTED("aio.overlap_events", BOOL, .aliases = "zero_optimization.aio.overlap_events",
          .words = SIZED),
    NOTED("aio.use_gds", BOOL, .aliases = "zero_optimization.aio.use_gds", .words = SIZED),
    OPTION("activation_checkpointing", SECTION, .words = "what follows"),
    OPTION("activation_checkpointing.cpu_checkpointing", BOOL, .words = "--place acts=dram"),
    NOTED("activation_checkpointing.partition_activations", BOOL,
          .words = "--activations decides what is kept and what is recomputed"),
    NOTED("activation_checkpointing.number_checkpoints", WHOLE,
          .words = "--activations decides what is kept and what is recomputed"),
    NOTED("activation_checkpointing.contiguous_memory_optimization", BOOL,
          .words = "--activations decides what is kept and what is recomputed"),
    NOTED("activation_checkpointing.synchronize_checkpoint_boundary", BOOL,
          .words = "--activations decides what is kept and what is recomputed"),
    NOTED("activation_checkpointing.profile", BOOL,
          .words = "--activations decides what is kept and what is recomputed"),
    OPTION("tensorboard", SECTION, .words = "what follows"),
    OPTION("tensorboard.enabled", BOOL, .absent = "false",
           .words = "--tfevents output_path/job_name"),
    OPTION("tensorboard.output_path", TEXT, .absent = "",
           .words = "a part of that path; an enabled one needs it"),
    OPTION("tensorboard.job_name", TEXT, .absent = "DeepSpeedJobName",
           .words = "a part of that path"),
    OPTION("csv_monitor", SECTION, .words = "what follows"),
    OPTION("csv_monitor.enabled", BOOL, .absent = "false",
           .words = "--csv output_path/job_name.csv"),
    OPTION("csv_monitor.output_path", TEXT, .absent = "",
           .words = "a part of that path; an enabled one needs it"),
    OPTION("csv_monitor.job_name", TEXT, .absent = "DeepSpeedJobName",
           .words = "a part of that path"),
    NOTED("wandb", TREE, .words = "`hoistway watch` sends the log there"),
    NOTED("comet", TREE, .words = "`hoistway watch` is for W&B alone"),
    NOTED("steps_per_print", REAL, .words = SHOWN),
    NOTED("wall_clock_breakdown", BOOL, .words = SHOWN),
    NOTED("memory_breakdown", BOOL, .words = SHOWN),
    NOTED("dump_state", BOOL, .words = SHOWN),
    NOTED("log_level", TEXT, .words = SHOWN),
    NOTED("flops_profiler", TREE, .words = SHOWN),
    NOTED("comms_logger", TREE, .words = SHOWN),
    NOTED("timers", TREE, .words = SHOWN),
    NOTED("zero_allow_untested_optimizer", BOOL, .words = ONE),
    NOTED("zero_force_ds_cpu_optimizer", BOOL, .words = ONE),
    NOTED("disable_allgather", BOOL, .words = ONE),
    NOTED("disable_python_gc", BOOL, .words = ONE),
    NOTED("use_data_before_expert_parallelism", BOOL, .words = ONE),
    NOTED("dataloader_drop_last", BOOL, .words = ONE),
    NOTED("vocabulary_size", WHOLE, .words = ONE),
    NOTED("check_overflow", BOOL, .older = true,
          .words = "--skip-nonfinite leaves such steps out; without it one ends the run"),
    NOTED("communication_data_type", TEXT, .words = "--reduce says what gradients are rounded to"),
    NOTED("seq_parallel_communication_data_type", TEXT,
          .words = "--reduce says what gradients are rounded to"),
    NOTED("prescale_gradients", BOOL, .words = "gradients are added exactly"),
    NOTED("gradient_predivide_factor", REAL, .words = "gradients are added exactly"),
    REFUSED("gradient_allreduce_op", TEXT, .harmless = "mean",
            .words =
                "the loss is the mean over all targets of a step. Fix: \"mean\", or leave it out."),
    NOTED("sparse_gradients", BOOL, .older = true, .words = ONE),
    NOTED("compile", TREE, .words = ONE),
    NOTED("checkpoint", TREE, .words = "--durability, --keep and --resume decide about versions"),
    NOTED("datastates_ckpt", TREE,
          .words = "--durability, --keep and --resume decide about versions"),
    NOTED("nebula", TREE, .older = true,
          .words = "--durability, --keep and --resume decide about versions"),
    NOTED("data_types", SECTION, .words = "what follows"),
    NOTED("data_types.grad_accum_dtype", TEXT, .words = "gradients are added in fp32"),
    REFUSED("data_types.param_dtype", TEXT,
            .words = "--precision says it. Fix: bf16.enabled or fp16.enabled."),
    REFUSED("data_types.buffer_dtype", TEXT,
            .words = "--precision says it. Fix: bf16.enabled or fp16.enabled."),
    NOTED("data_types.keep_in_fp32_modules", TREE, .words = "--precision is that of all layers"),
    REFUSED("torch_autocast", TREE, .harmless = "enabled: false",
            .words = "--precision is that of all layers. Fix: bf16.enabled in its place."),
    REFUSED("tensor_parallel", TREE, .harmless = "autotp_size: 0|autotp_size: 1|no autotp_size",
            .words = "hoistway has data parallelism alone. Fix: leave it out."),
    REFUSED("expert_parallel", TREE, .harmless = "enabled: false",
            .words = "hoistway has no experts. Fix: leave it out."),
    REFUSED("pipeline", TREE,
            .words = "hoistway has no pipeline of layers. Fix: leave it out; --store and --dram "
                     "take what no GPU holds."),
    REFUSED("hybrid_engine", TREE, .harmless = "enabled: false",
            .words = "hoistway trains, and generates nothing between steps. Fix: leave it out; "
                     "--samples shows answers."),
    REFUSED("data_efficiency", TREE, .harmless = "enabled: false",
            .words = "hoistway takes all data, in an order of its own. Fix: leave it out; --order "
                     "sequential keeps the order of the files."),
    REFUSED("weight_quantization", TREE,
            .words = "hoistway quantizes no weights. Fix: leave it out."),
    REFUSED("autotuning", TREE, .harmless = "enabled: false",
            .words = "hoistway chooses placement and sizes itself. Fix: leave it out; `hoistway "
                     "plan` tells them."),
    REFUSED("sequence_parallel_size", WHOLE, .harmless = "1", .older = true,
            .words = "hoistway has data parallelism alone. Fix: 1, or leave it out."),
    REFUSED("elasticity", TREE, .harmless = "enabled: false", .older = true,
            .words = "hoistway chooses no batch and no ranks; `--resume` takes any number of ranks "
                     "that can share the ways. Fix: leave it out."),
    REFUSED("compression_training", TREE, .harmless = "enabled: false", .older = true,
            .words = "hoistway trains all weights as they are. Fix: leave it out."),
    REFUSED("curriculum_learning", TREE, .harmless = "enabled: false", .older = true,
            .words = "hoistway takes all data, in an order of its own. Fix: leave it out; --order "
                     "sequential keeps the order of the files."),
    REFUSED("progressive_layer_drop", TREE, .harmless = "enabled: false", .older = true,
            .words = "hoistway drops no layers. Fix: leave it out."),
    REFUSED("eigenvalue", TREE, .harmless = "enabled: false", .older = true,
            .words = "hoistway quantizes no weights. Fix: leave it out."),
    REFUSED("quantize_training", TREE, .harmless = "enabled: false", .older = true,
            .words = "hoistway quantizes no weights. Fix: leave it out."),
    REFUSED("amp", TREE, .harmless = "enabled: false", .older = true,
            .words = "hoistway has no apex. Fix: bf16.enabled in its place."),
    REFUSED("sparse_attention", TREE, .older = true,
            .words = "attention is that of the model. Fix: leave it out."),
};
const size_t ds_key_count = sizeof ds_keys / sizeof ds_keys[0];
static_assert(sizeof ds_keys / sizeof ds_keys[0] <= DS_MAX_KEYS,
              "a configuration has room for all");

bool ds_among(const char *list, const char *word)
{
    const size_t length = strlen(word);
    for (const char *at = list; at && *at; at += strcspn(at, "|"), at += *at == '|')
        if (strcspn(at, "|") == length && memcmp(at, word, length) == 0)
            return true;
    return false;
}

const struct ds_key *ds_key_find(const char *path)
{
    for (size_t i = 0; i < ds_key_count; i++)
        if (strcmp(ds_keys[i].path, path) == 0 || ds_among(ds_keys[i].aliases, path))
            return &ds_keys[i];
    return NULL;
}

static const char *last(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

const char *ds_key_nearest(const char *path)
{
    const char *near[DS_MAX_KEYS];
    const size_t section = (size_t)(last(path) - path);
    size_t count = 0;
    for (size_t i = 0; i < ds_key_count; i++)
        if ((size_t)(last(ds_keys[i].path) - ds_keys[i].path) == section &&
            memcmp(ds_keys[i].path, path, section) == 0)
            near[count++] = last(ds_keys[i].path);
    const char *found = cli_nearest(last(path), near, count);
    if (found)
        return found;
    for (size_t i = 0; i < ds_key_count; i++) /* one that stands in the wrong section */
        if (strcmp(last(ds_keys[i].path), last(path)) == 0)
            return ds_keys[i].path;
    return NULL;
}

const char *ds_verdict_name(enum ds_verdict verdict)
{
    static const char *const names[] = {"option", "noted", "refused"};
    return names[verdict];
}

const char *ds_type_name(enum ds_type type)
{
    static const char *const names[] = {"true or false", "a whole number",      "a number",
                                        "a text",        "an array of numbers", "an object",
                                        "anything"};
    return names[type];
}
