# SPDX-License-Identifier: Apache-2.0
"""What a report says of the machine, and what a card can do by its maker's word."""
import glob
import importlib.metadata
import os
import platform
import re
import resource
import shutil
import subprocess
import sys

# Dense bf16 FLOP/s with f32 sums, by NVIDIA's data sheets. Boards of one name differ in power.
NOMINAL_FLOPS = (
    (r'B200', 2250e12), (r'GH200|H200|H100.*(HBM3|SXM)', 989.4e12), (r'H100.*NVL', 835e12),
    (r'H100', 756e12), (r'A100|A800', 312e12), (r'L40S', 362e12), (r'RTX 4090', 165.2e12),
    (r'RTX 3090', 71e12),
)


def nominal_flops(model):
    """None for a card that is not in the table."""
    return next((flops for name, flops in NOMINAL_FLOPS if re.search(name, model or '')), None)


def first_line(path, pattern):
    try:
        with open(path, encoding='utf-8', errors='replace') as file:
            found = re.search(pattern, file.read(), re.M)
        return found.group(1).strip() if found else None
    except OSError:
        return None


def nvidia_smi():
    """The driver and the first card's state, by the driver's own program; {} without it."""
    fields = ('name', 'driver_version', 'memory.total', 'power.limit', 'clocks.max.sm',
              'clocks.max.mem', 'temperature.gpu', 'ecc.mode.current', 'mig.mode.current',
              'compute_mode')
    try:
        done = subprocess.run(
            ['nvidia-smi', '--query-gpu=' + ','.join(fields), '--format=csv,noheader'],
            capture_output=True, text=True, timeout=20, check=True)
        return dict(zip(fields, map(str.strip, done.stdout.split('\n')[0].split(','))))
    except (OSError, subprocess.SubprocessError):
        return {}


# ---- what may differ in the next call ------------------------------------------------------------

LIBRARIES = ('libcublasLt.so.13', 'libcudnn.so.9', 'libnccl.so.2')
NCCL_VERSION = ('import ctypes, sys; v = ctypes.c_int(); '
                'ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(v)); print(v.value)')


def said(*command):
    """What a command prints; '' where it does not run, or is not done within 5 s."""
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, timeout=5, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ''


def files_of(soname, settings):
    """Where a library lies: every place that the plugin looks into (docs/gpu-suite.md)."""
    lists = (settings.get(name, '') for name in ('HOISTWAY_CUDA_PATH', 'LD_LIBRARY_PATH'))
    patterns = [folder for text in lists for folder in text.split(':') if os.path.isabs(folder)]
    found = [os.path.join(folder, soname) for folder in patterns]
    found += re.findall(rf'^\s*{re.escape(soname)} .*=> (.*)$', said('/sbin/ldconfig', '-p'), re.M)
    for pattern in ('/usr/local/cuda*/lib64', '/usr/local/nvidia/lib64'):
        found += glob.glob(os.path.join(pattern, soname))
    for name in ('VIRTUAL_ENV', 'CONDA_PREFIX'):
        for below in ('lib', 'lib/python3*/site-packages/nvidia/*/lib'):
            if settings.get(name):
                found += glob.glob(os.path.join(glob.escape(settings[name]), below, soname))
    return list(dict.fromkeys(path for path in found if os.path.exists(path)))


def torch_version():
    try:
        return importlib.metadata.version('torch')
    except importlib.metadata.PackageNotFoundError:
        return 'not installed'


def facts(scratch, settings):
    """name -> text. settings: the environment that programs run with."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    told = {
        'cards': said('nvidia-smi', '-L').strip().replace('\n', ', ') or 'nvidia-smi tells of none',
        'C library': os.confstr('CS_GNU_LIBC_VERSION'),
        'memory available': first_line('/proc/meminfo', r'^MemAvailable:\s*(.*)$'),
        'memory that may be locked': 'no limit' if soft == resource.RLIM_INFINITY else f'{soft} B',
        'free on the drive': f'{shutil.disk_usage(scratch).free / 1e9:.1f} GB ({scratch})',
        'Python': platform.python_version(), 'torch': torch_version(),
    }
    for soname in LIBRARIES:
        told[soname] = ', '.join(files_of(soname, settings)) or 'not found'
    nccl = told['libnccl.so.2'].split(', ')[0]
    told['libnccl.so.2'] += f" (version {said(sys.executable, '-c', NCCL_VERSION, nccl).strip()})" \
        if os.path.isabs(nccl) else ''
    return told


def lasting(facts):
    """What of a machine is the same in a later call: not how warm it is."""
    if isinstance(facts, dict):
        return {name: value for name, value in facts.items() if name != 'temperature.gpu'}
    return facts


def describe():
    return {
        'processor': first_line('/proc/cpuinfo', r'^model name\s*:\s*(.*)$'),
        'cores': os.cpu_count(),
        'memory': first_line('/proc/meminfo', r'^MemTotal:\s*(.*)$'),
        'system': first_line('/etc/os-release', r'^PRETTY_NAME="?([^"\n]*)'),
        'kernel': platform.release(),
        'nvidia-smi': nvidia_smi(),
    }
