# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of the answers to words on the command line, and of what is said of a
GPU that cannot be used."""
from rows import mutate

mutate(
    'tools/verbs/train/inputs.c', 'tools/cli_program',
    ('a name that plan knows is no directory', 'if (hst_shape_find(o->model) && ',
     'if (false && '),
)
mutate(
    'tools/hf/model.c', 'tools/cli_program',
    ('the fix of a missing directory names one',
     'to where it is"\n                      : rc == -ENOENT || ',
     'to where it is"\n                      : '),
    ('the fix of a missing config.json names a directory',
     '    if (rc == -ENOENT)\n        return fail(error, FAIL_CONFIG_FILE, rc, "%s: %s. Fix: "',
     '    if (false)\n        return fail(error, FAIL_CONFIG_FILE, rc, "%s: %s. Fix: "'),
)
mutate(
    'tools/cli/options/nearest.c', 'tools/cli_options',
    ('what other programs call it comes before edits',
     '*nearest = cli_synonym(name, candidates, count);', '*nearest = NULL;'),
    ('_ is -', "c == '_' ? '-' :", "c == '_' ? '_' :"),
)
mutate(
    'tools/cli/options/meant.c', 'tools/cli_options',
    ('what is told is a value that the option takes',
     'return hst_option_parse(&size, dst, &bytes, why, sizeof why) == 0;', 'return true;'),
    ('a few bytes were meant to be more', 'if (!plain && !strchr(', 'if (!strchr('),
)
mutate(
    'tools/cli/options/options.c', 'tools/cli_plan',
    ('an option of train is not unknown to plan', 'if (p->verb->kin && ', 'if (false && '),
)
mutate(
    'tools/verbs/train/engine.c', 'tools/cli_plan',
    ('--state bf16 is told what it lacks', 'return check_state(t);', 'return 0;'),
)
mutate(
    'tools/verbs/train/options.c', 'tools/cli_options',
    ('cpu is host', 'native = native ? native : check_device(options, error);', ''),
)
mutate(
    'tools/verbs/plan/report.c', 'tools/cli_plan',
    ('budgets that are needed together are in one line', '        before = "";\n', ''),
)
mutate(
    'tools/cli/options/help.c', 'tools/cli_program',
    ('the help says where the table is explained', 'if (verb->see)', 'if (false)'),
)
mutate(
    'kernels/cuda/refusal.c', 'cuda/refusals',
    ('a driver without its module has a file', 'if (*driver_file(path))', 'if (false)'),
    ('on purpose is not by mistake', '!*visible || strcmp(visible, "-1") == 0', '!*visible'),
    ('a stub is not a broken driver', '    case cudaErrorStubLibrary:\n', ''),
    ('a service has a fix of its own',
     'error == cudaErrorSystemNotReady ? HST_DEV_NOT_READY : HST_DEV_EXECUTION',
     'HST_DEV_EXECUTION'),
    ('the variable is named beside an index', 'visible ? visible : ""', '""'),
    ('the compute mode is asked for', 'told_of_mode(index)', '""'),
)
mutate(
    'kernels/cuda/device/failure.c', 'cuda/refusals',
    ('memory that has failed is not an Xid to look up', 'error == cudaErrorECCUncorrectable',
     'error == cudaErrorIllegalAddress'),
)
mutate(
    'kernels/cuda/libraries/library.c', 'cuda/info cuda/faults',
    ('its own version is not another', 'strncmp(name, soname, whole) != 0 ||', 'true ||'),
    ('what lies beside is told', 'cuda_library_unlike(soname, unlike, sizeof unlike);',
     '*unlike = 0;'),
)
mutate(
    'kernels/cuda/device/device.c', 'cuda/faults',
    ('another version is told', '    tell_unlike(cuda);\n', ''),
)
mutate(
    'kernels/cuda/cudnn/cache.c', 'cudnn/runs',
    ('a cuDNN that is not whole is not remembered of the shape', 'rc == -ENOMEM || rc == -ENODEV',
     'rc == -ENOMEM'),
)
mutate(
    'kernels/cuda/cudnn/graph.c', 'cudnn/runs',
    ('what no proposal could do without is told', '        graph->broken = graph->status;\n', ''),
)
mutate(
    'tools/verbs/doctor/clock.c', 'tools/cli_doctor',
    ('a capped clock is a warning',
     'bool low = look.clock.now_hz < SHARE_LEAST * look.clock.most_hz;', 'bool low = false;'),
    ('a clock that is not known is not told', '    if (!gpu_clock_read(pci, CLOCK_MS, &idle))\n',
     '    if (false)\n'),
)
mutate(
    'kernels/fix.c', 'tools/cli_doctor e2e/device',
    ('a variable that hides cards has its fix',
     '        return "unset CUDA_VISIBLE_DEVICES, or name in it what nvidia-smi -L lists";\n',
     '        return "";\n'),
)
