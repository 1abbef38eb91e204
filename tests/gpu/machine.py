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


SMI_FIELDS = ('name', 'driver_version', 'memory.total', 'power.limit', 'clocks.max.sm',
              'clocks.max.mem', 'temperature.gpu', 'ecc.mode.current', 'mig.mode.current',
              'compute_mode', 'memory.used')
# Asked apart: a driver that does not know one of them answers nothing at all.
SMI_ERRORS = ('ecc.errors.uncorrected.volatile.total', 'retired_pages.pending')
SMI_ROWS = ('remapped_rows.pending',)  # of cards that remap rows in place of retiring pages
SMI_S = 20


def smi_name(device, settings):
    """What nvidia-smi calls cuda:INDEX: CUDA counts what its variable lets through."""
    index = int(device.partition(':')[2] or 0)
    visible = (settings.get('CUDA_VISIBLE_DEVICES') or '').split(',')
    return visible[index].strip() if index < len(visible) and visible[index] else str(index)


def ask_smi(fields, card, query='--query-gpu'):
    """field -> value of one card; {} where nvidia-smi is not there or does not know it."""
    try:
        done = subprocess.run(
            ['nvidia-smi', f"{query}={','.join(fields)}", '--format=csv,noheader',
             *(['-i', card] if card else [])],
            capture_output=True, text=True, timeout=SMI_S, check=True)
        return dict(zip(fields, map(str.strip, done.stdout.split('\n')[0].split(','))))
    except (OSError, subprocess.CalledProcessError):
        return {}


def nvidia_smi(device, settings):
    """The driver and the card's state, by the driver's own program; {} without it. Where the card
    is a MIG slice, or hidden, it is the first card's."""
    card = smi_name(device, settings)
    try:
        told = ask_smi(SMI_FIELDS, card) or ask_smi(SMI_FIELDS, None)
        return {**told, **(ask_smi(SMI_ERRORS, card) if told else {}),
                **(ask_smi(SMI_ROWS, card, '--query-remapped-rows') if told else {})}
    except subprocess.TimeoutExpired:  # it waits for the driver, and others would too
        return {'state': f'not done within {SMI_S} s'}


def is_slice(smi):
    """MIG: what runs has a part of the card, and nvidia-smi tells of the whole."""
    return smi.get('mig.mode.current') == 'Enabled'


def mebibytes(text):
    found = re.fullmatch(r'(\d+) MiB', text or '')
    return int(found.group(1)) if found else 0


def concerns(smi):
    """What of a card's state explains failures and figures: a line each, with what to do."""
    name, told = smi.get('name', 'the card'), []
    used, total = mebibytes(smi.get('memory.used')), mebibytes(smi.get('memory.total'))
    mode = smi.get('compute_mode', 'Default')
    errors = smi.get(SMI_ERRORS[0], '')
    if 'state' in smi:
        told.append(f"nvidia-smi was {smi['state']}: the driver hangs. Fix: look at dmesg for its "
                    'messages (Xid), restart the machine')
    if is_slice(smi):
        told.append(f'{name} is cut into slices (mig.mode.current Enabled): figures are of a '
                    'slice, and what nvidia-smi tells is of the whole card. Fix: nvidia-smi -mig 0')
    if total and used > total / 10:
        told.append(f'{name}: {used} of {total} MiB are in use before anything ran: others share '
                    'the card and its time. Fix: end what nvidia-smi lists')
    if mode not in ('Default', '[N/A]', ''):
        told.append(f'{name} is in compute mode {mode}: one process at a time. Fix: nvidia-smi -c '
                    'DEFAULT')
    if errors.isdigit() and int(errors) > 0:
        told.append(f'{name}: {errors} uncorrected ECC errors since it was reset: results may be '
                    'wrong. Fix: nvidia-smi --gpu-reset, or another card')
    told += [f'{name}: a part of its memory waits to be replaced ({field} {smi[field]}). '
             'Fix: nvidia-smi --gpu-reset'
             for field in (SMI_ERRORS[1], *SMI_ROWS) if smi.get(field) in ('Yes', '1')]
    return told


# ---- what may differ in the next call ------------------------------------------------------------

LIBRARIES = ('libcublasLt.so.13', 'libcudnn.so.9', 'libnccl.so.2')
NCCL_VERSION = '''
import ctypes, sys
try:
    library, version = ctypes.CDLL(sys.argv[1]), ctypes.c_int()
    failed, v = library.ncclGetVersion(ctypes.byref(version)), version.value
    print(f'its first call fails: ncclResult_t {failed}' if failed else
          f'version {v // 10000}.{v // 100 % 100}.{v % 100}')
except (OSError, AttributeError) as error:
    print('not usable:', str(error).removeprefix(sys.argv[1] + ': '))
'''


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


def nccl(path):
    """What NCCL says of itself, in a process of its own: it may be anything."""
    told = said(sys.executable, '-c', NCCL_VERSION, path).strip()
    return f"{path} ({told or 'a process that asks its version dies, or is not done within 5 s'})"


def between_cards(text):
    """What `nvidia-smi topo -p2p r` says, in a line; '' of a single card."""
    rows = [line.split() for line in text.split('\n') if line.lstrip().startswith('GPU')]
    names = rows[0] if rows else []
    apart = [f'{row[0]}-{name} {word}' for row in rows[1:] for name, word in zip(names, row[1:])
             if word not in ('X', 'OK') and names.index(name) > names.index(row[0])]
    if len(names) < 2:
        return ''
    told = f"not between {', '.join(apart)}" if apart else 'between all'
    return told + ' (a run has one card and copies nothing to another)'


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
        'copies between cards':
            between_cards(said('nvidia-smi', 'topo', '-p2p', 'r')) or 'one card, or not told',
        'CUDA_VISIBLE_DEVICES': settings.get('CUDA_VISIBLE_DEVICES', 'not set'),
        'C library': os.confstr('CS_GNU_LIBC_VERSION'),
        'memory available': first_line('/proc/meminfo', r'^MemAvailable:\s*(.*)$'),
        'memory that may be locked': 'no limit' if soft == resource.RLIM_INFINITY else f'{soft} B',
        'free on the drive': f'{shutil.disk_usage(scratch).free / 1e9:.1f} GB ({scratch})',
        'Python': platform.python_version(), 'torch': torch_version(),
    }
    for soname in LIBRARIES:
        told[soname] = ', '.join(files_of(soname, settings)) or 'not found'
    told['libnccl.so.2'] = ', '.join(map(nccl, files_of('libnccl.so.2', settings))) or 'not found'
    return told


def lasting(facts):
    """What of a machine is the same in a later call: not how warm it is."""
    if isinstance(facts, dict):
        return {name: value for name, value in facts.items()
                if name not in ('temperature.gpu', 'memory.used', *SMI_ERRORS, *SMI_ROWS)}
    return facts


def describe(device, settings):
    return {
        'processor': first_line('/proc/cpuinfo', r'^model name\s*:\s*(.*)$'),
        'cores': os.cpu_count(),
        'memory': first_line('/proc/meminfo', r'^MemTotal:\s*(.*)$'),
        'system': first_line('/etc/os-release', r'^PRETTY_NAME="?([^"\n]*)'),
        'kernel': platform.release(),
        'nvidia-smi': nvidia_smi(device, settings),
    }
