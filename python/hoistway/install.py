# SPDX-License-Identifier: Apache-2.0
"""How the packages are got that a Python here does not have."""
from __future__ import annotations

import os

NEEDED = ('transformers', 'tokenizers', 'jinja2', 'numpy')
OLDEST = {'transformers': 'transformers>=4.57'}


def in_clone() -> bool:
    """Whether ./run is there; an installed program has no such script."""
    package = os.path.dirname(os.path.abspath(__file__))
    return os.access(os.path.join(package, os.pardir, os.pardir, 'run'), os.X_OK)


def how_to_install(*more: str) -> str:
    if in_clone():
        return ' '.join(['./run prep-install', *(f'--{name}' for name in more)])
    names = ' '.join(f"'{OLDEST[name]}'" if name in OLDEST else name for name in NEEDED + more)
    return (f'python3 -m venv ENV && ENV/bin/pip install {names}, and then '
            'HOISTWAY_PYTHON=ENV/bin/python')
