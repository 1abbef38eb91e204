# SPDX-License-Identifier: Apache-2.0
"""The files of a store, read and forged without the engine: engine/store/README.md says what is
where. For tests that compare what two stores hold, or that make a bad one from a good one."""

import ctypes
import os
import struct

PAGE = 4096
BLOCK = 1 << 20
KINDS = ('weights', 'states')
NO_VERSION = (1 << 64) - 1


class Digest(ctypes.Structure):
    _fields_ = [('low', ctypes.c_uint64), ('high', ctypes.c_uint64)]


def load_xxhash():
    library = ctypes.CDLL('libxxhash.so.0')
    library.XXH3_128bits_withSeed.restype = Digest
    library.XXH3_128bits_withSeed.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64]
    return library.XXH3_128bits_withSeed


XXH3 = load_xxhash()


def digest(data, seed=0):
    hashed = XXH3(bytes(data), len(data), seed)
    return struct.pack('<QQ', hashed.low, hashed.high)


def sealed(page, seed):
    """A page with the checksum that its bytes call for."""
    page = bytearray(page)
    page[16:32] = bytes(16)
    page[16:32] = digest(page, seed)
    return bytes(page)


def file_name(drive, rank=0):
    return f'r{rank:05}.d{drive}.blk'


class Entry:
    """Where an extent of the version is."""

    BYTES = 32

    def __init__(self, raw):
        (self.tile, self.kind, self.drive, self.slot, self.flags, self.offset, self.bytes,
         self.first_block, self.version) = struct.unpack('<IBBBBQIIQ', raw)

    def raw(self):
        return struct.pack('<IBBBBQIIQ', self.tile, self.kind, self.drive, self.slot, self.flags,
                           self.offset, self.bytes, self.first_block, self.version)

    def is_written(self):
        return not self.flags & 1


class Store:
    """As it is now in its directories, in the order of its drives."""

    def __init__(self, *directories, rank=0):
        self.paths = [os.path.join(d, file_name(i, rank)) for i, d in enumerate(directories)]
        header = self.read(0, 0, PAGE)
        assert header[:8] == b'HSTSTORE', header[:8]
        self.align, _, self.extents, blocks, self.room, self.slot_bytes, derived = struct.unpack(
            '<IIIQQQQ', header[68:112])
        self.hashes_at = PAGE + self.extents * Entry.BYTES
        self.cursor_at = self.hashes_at + blocks * 8
        self.tail = 3 * self.align + 2 * self.room + 2 * self.slot_bytes + derived
        self.newest = max((self.superblock(slot) for slot in range(2)), key=lambda s: s[0])
        _, self.place, (self.version, self.step, self.manifest_slot, self.manifest_bytes) = (
            self.newest)
        self.manifest = self.read(0, self.manifest_at(0), self.manifest_bytes)
        assert self.manifest[:8] == b'HSTMANIF', self.manifest[:8]

    def read(self, drive, offset, count):
        with open(self.paths[drive], 'rb') as file:
            file.seek(offset)
            return file.read(count)

    def write(self, drive, offset, data):
        with open(self.paths[drive], 'r+b') as file:
            file.seek(offset)
            file.write(data)

    def size(self, drive):
        return os.path.getsize(self.paths[drive])

    def header_at(self, drive, copy):
        return self.size(drive) - PAGE if copy else 0

    def superblock_at(self, slot, copy):
        first = self.tail + 2 * self.room if copy else self.align
        return first + slot * self.align

    def manifest_at(self, copy):
        first = self.tail if copy else 3 * self.align
        return first + self.manifest_slot * self.room

    def superblock(self, slot):
        """-> sequence number (-1: none), slot, what it says of the committed version."""
        page = self.read(0, self.superblock_at(slot, 0), PAGE)
        if page[:8] != b'HSTSUPER':
            return -1, slot, None
        version, step, _, manifest_slot, _, manifest_bytes = struct.unpack(
            '<QQ16sIIQ', page[96:144])
        return struct.unpack('<Q', page[56:64])[0], slot, (
            version, step, manifest_slot, manifest_bytes)

    def entries(self):
        return [Entry(self.manifest[PAGE + i * Entry.BYTES:PAGE + (i + 1) * Entry.BYTES])
                for i in range(self.extents)]

    def entry(self, kind, tile):
        return self.entries()[KINDS.index(kind) * self.extents // 2 + tile]

    def slot_bytes_of(self, drive):
        return struct.unpack('<Q', self.read(drive, 96, 8))[0]

    def offset_of(self, entry):
        """In its drive's file."""
        return entry.offset + entry.slot * self.slot_bytes_of(entry.drive)

    def extent(self, entry):
        """Its bytes in the committed version."""
        if not entry.is_written():
            return bytes(entry.bytes)
        return self.read(entry.drive, self.offset_of(entry), entry.bytes)

    def cursor(self):
        """-> steps, updates, loss scale, good steps, what the client left."""
        values, at = [], self.cursor_at
        for form in ('<Q', '<Q', '<f', '<I', None):
            _, count = struct.unpack('<II', self.manifest[at:at + 8])
            raw = self.manifest[at + 8:at + 8 + count]
            values.append(struct.unpack(form, raw)[0] if form else raw)
            at += 8 + (count + 7) // 8 * 8
        return tuple(values)

    def trained(self):
        """All that training is: every extent's bytes in order, and where it stands."""
        return [self.extent(e) for e in self.entries() if not e.flags & 2], self.cursor()

    # ---- forging: what is changed has the checksums that it calls for ----

    def forge_header(self, drive, field_at, raw):
        for copy in range(2):
            at = self.header_at(drive, copy)
            page = bytearray(self.read(drive, at, PAGE))
            page[field_at:field_at + len(raw)] = raw
            self.write(drive, at, sealed(page, copy))

    def forge_manifest(self, change):
        """change(bytearray): of the committed version's, in both copies."""
        manifest = bytearray(self.manifest)
        change(manifest)
        for copy in range(2):
            self.write(0, self.manifest_at(copy), manifest)
            at = self.superblock_at(self.place, copy)
            page = bytearray(self.read(0, at, PAGE))
            page[144:160] = digest(manifest)
            self.write(0, at, sealed(page, self.place << 4 | copy))

    def forge_entry(self, index, change):
        """change(Entry)."""
        def put(manifest):
            at = PAGE + index * Entry.BYTES
            entry = Entry(manifest[at:at + Entry.BYTES])
            change(entry)
            manifest[at:at + Entry.BYTES] = entry.raw()
        self.forge_manifest(put)

    def forge_client_cursor(self, change):
        """change(bytes) -> bytes, of no more: what the client left with the version."""
        def put(manifest):
            at = self.cursor_at
            for _ in range(4):
                at += 8 + (struct.unpack('<I', manifest[at + 4:at + 8])[0] + 7) // 8 * 8
            count, = struct.unpack('<I', manifest[at + 4:at + 8])
            raw = change(bytes(manifest[at + 8:at + 8 + count]))
            end = at + 8 + (len(raw) + 7) // 8 * 8
            manifest[at + 4:at + 8] = struct.pack('<I', len(raw))
            manifest[at + 8:] = raw + bytes(len(manifest) - at - 8 - len(raw))
            manifest[100:104] = struct.pack('<I', end - self.cursor_at)
        self.forge_manifest(put)

    def forge_settings(self, change):
        """change(text) -> the lines of settings, which stand before what the client left."""
        def put(raw):
            end = 4 + struct.unpack('<I', raw[:4])[0]
            text = change(raw[4:end].decode()).encode()
            return struct.pack('<I', len(text)) + text + raw[end:]
        self.forge_client_cursor(put)

    def forge_kill(self):
        """As a run leaves it that is killed when its last commit has returned: the version before
        is there too, and named by the other superblock."""
        slot = self.manifest_slot ^ 1
        manifest = self.read(0, 3 * self.align + slot * self.room, self.manifest_bytes)
        version, commit_id = struct.unpack('<Q16s', manifest[56:80])
        assert version == self.version - 1
        before = struct.pack('<QQ16sIIQ', version, self.step - 1, commit_id, slot, 0,
                             len(manifest)) + digest(manifest)
        newest = bytearray(self.read(0, self.superblock_at(self.place, 0), PAGE))
        newest[80:84] = struct.pack('<I', 2)  # open
        newest[160:224] = before
        other = bytearray(newest)
        other[56:64] = struct.pack('<Q', self.newest[0] - 1)
        other[96:160] = before
        other[160:224] = struct.pack('<Q', NO_VERSION) + bytes(56)
        for place, page in ((self.place, newest), (self.place ^ 1, other)):
            for copy in range(2):
                self.write(0, self.superblock_at(place, copy), sealed(page, place << 4 | copy))

    def damage(self, drive, offset, count=16):
        """Other bytes, whatever is there."""
        self.write(drive, offset, bytes(b ^ 0xa5 for b in self.read(drive, offset, count)))
