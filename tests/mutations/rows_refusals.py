# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of what is said of a GPU that cannot be used."""
from rows import mutate

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
    'kernels/cuda/failure.c', 'cuda/refusals',
    ('memory that has failed is not an Xid to look up', 'error == cudaErrorECCUncorrectable',
     'error == cudaErrorIllegalAddress'),
)
mutate(
    'kernels/cuda/library.c', 'cuda/info cuda/faults',
    ('its own version is not another', 'strncmp(name, soname, whole) != 0 ||', 'true ||'),
    ('what lies beside is told', 'cuda_library_unlike(soname, unlike, sizeof unlike);',
     '*unlike = 0;'),
)
mutate(
    'kernels/cuda/device.c', 'cuda/faults',
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
    'tools/verbs/doctor_clock.c', 'tools/cli_doctor',
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
