# SPDX-License-Identifier: Apache-2.0
"""What a report says of the machine, and what a card can do by its maker's word."""
import os
import platform
import re
import subprocess

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
              'clocks.max.mem', 'temperature.gpu', 'ecc.mode.current')
    try:
        done = subprocess.run(
            ['nvidia-smi', '--query-gpu=' + ','.join(fields), '--format=csv,noheader'],
            capture_output=True, text=True, timeout=20, check=True)
        return dict(zip(fields, map(str.strip, done.stdout.split('\n')[0].split(','))))
    except (OSError, subprocess.SubprocessError):
        return {}


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
