# SPDX-License-Identifier: Apache-2.0
"""Where things are: the same scripts run from a source tree that is built and from a bundle."""
import glob
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUNDLE_FILE = os.path.join(ROOT, 'bundle.json')  # made by make_bundle.py
IN_BUNDLE = os.path.exists(BUNDLE_FILE)

# Tests of another build than the user's name its folder.
BUILD = os.environ.get('HST_BUILD') or os.path.join(ROOT, 'build')
# Folders of programs and of plugins, of a bundle below the root and of a build folder.
PROGRAMS = ('bin', *(os.path.join(BUILD, folder) for folder in (
    'tools', 'tests/kernels', 'tests/gpu', 'tests/cuda', 'tests/cudnn')))
RANKS_PLUGIN = 'libhoistway-mpi.so'
PLUGINS = ('lib', 'lib/ranks', *(os.path.join(BUILD, folder) for folder in (
    'kernels/cuda', 'engine/comm/mpi')))


def program(name):
    """The path of a program, None where this build does not have it."""
    for folder in PROGRAMS:
        path = os.path.join(ROOT, folder, name)
        if os.access(path, os.X_OK):
            return path
    return None


def programs(prefix):
    """All programs whose name begins so: name -> path, in alphabetical order."""
    found = {}
    for folder in PROGRAMS:
        full = os.path.join(ROOT, folder)
        for name in os.listdir(full) if os.path.isdir(full) else ():
            path = os.path.join(full, name)
            if name.startswith(prefix) and os.path.isfile(path) and os.access(path, os.X_OK):
                found.setdefault(name, path)
    return dict(sorted(found.items()))


# name -> value: what a report goes on with where the machine does not serve with the default; kept
# in the report, so that a later call has it too. A user's own value goes before.
chosen = {}
python_folders = ''  # for HOISTWAY_CUDA_PATH, where NVIDIA's libraries are in Python's packages


def look_into_python():
    """The folders of NVIDIA's libraries among the packages that this Python imports; '' none.
    What is not absolute is passed over: the working directory is no place for libraries."""
    found = {os.path.dirname(path) for folder in sys.path if os.path.isabs(folder)
             for path in glob.glob(os.path.join(glob.escape(folder), 'nvidia/*/lib/lib*.so*'))}
    return ':'.join(sorted(found))


def plugin(name):
    """The path of a plugin, None where it is in none of the folders that programs look in."""
    for folder in environment()['HOISTWAY_PLUGIN_PATH'].split(':'):
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            return path
    return None


def environment():
    """What programs are run with: the plugin is found, unless the user says where it is."""
    settings = dict(os.environ)
    if python_folders and not settings.get('HOISTWAY_CUDA_PATH'):
        settings['HOISTWAY_CUDA_PATH'] = python_folders
    for name, value in chosen.items():
        settings[name] = settings.get(name) or value
    if not settings.get('HOISTWAY_PLUGIN_PATH'):
        settings['HOISTWAY_PLUGIN_PATH'] = ':'.join(
            folder for folder in (os.path.join(ROOT, p) for p in PLUGINS) if os.path.isdir(folder))
    if IN_BUNDLE:  # not the machine's plugins, which are of another hwloc
        settings['HWLOC_PLUGINS_PATH'] = os.path.join(ROOT, 'lib/hwloc')
    return settings


def git(*args):
    done = subprocess.run(['git', *args], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit():
    """The commit that is measured; '+' behind it where files differ from it."""
    if IN_BUNDLE:
        with open(BUNDLE_FILE, encoding='utf-8') as file:
            return json.load(file)['commit']
    try:
        return git('rev-parse', 'HEAD') + ('+' if git('status', '--porcelain', '-uno') else '')
    except (OSError, subprocess.CalledProcessError):
        return 'unknown'
