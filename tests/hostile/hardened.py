#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Are a release's programs and library built to stop at a write that none of our checks caught?

    hardened.py FILE...

Looks at each with readelf: it can be placed anywhere, its stack and tables of functions cannot be
executed or written, and calls that check buffers and stack are in it. Exits 77 without readelf.
"""
import re
import shutil
import subprocess
import sys

if not shutil.which('readelf'):
    print('skipped: there is no readelf; apt-get install binutils')
    sys.exit(77)

WANTED = (  # what readelf says, in words
    (r'Type: +DYN', 'it can be placed anywhere'),
    (r'GNU_STACK\s+0x0+ 0x0+ 0x0+ 0x0+ 0x0+ RW ', 'its stack is not executable'),
    (r'GNU_RELRO', 'its tables are read-only once it runs'),
    (r'\(FLAGS\) +BIND_NOW|Flags: .*NOW', 'all its functions are looked up at the start'),
    (r'__stack_chk_fail', 'functions look at the end of their stack'),
    (r'__\w+_chk@', 'copies into buffers of known size are checked'),
)


def main():
    bad = False
    for path in sys.argv[1:]:
        told = subprocess.run(['readelf', '-W', '-h', '-l', '-d', '--dyn-syms', path],
                              capture_output=True, text=True, check=True).stdout
        for pattern, words in WANTED:
            if not re.search(pattern, told):
                print(f'{path}: not so: {words}')
                bad = True
    print(f'{len(sys.argv) - 1} files')
    return 1 if bad or len(sys.argv) < 2 else 0


if __name__ == '__main__':
    sys.exit(main())
