"""A reader that is fuzzed, and how its right files are damaged."""

from __future__ import annotations

import bz2
import dataclasses
import functools
import gzip
import io
import lzma
import random
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

PACKERS: Mapping[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


@dataclasses.dataclass(frozen=True)
class Target:
    """A reader.

    Attributes:
        read: takes the path of a file.
        errors: of ours, that may come.
        suffixes: the kinds of file; one that `PACKERS` has is packed after most of the damage.
        seeds: makes right files, of the first kind.
    """

    read: Callable[[Path], Any]
    errors: tuple[type[Exception], ...]
    suffixes: tuple[str, ...]
    seeds: Callable[[], list[bytes]]

    def input(self, chance: random.Random) -> tuple[bytes, str]:
        """A damaged file's content and suffix."""
        right = seeds(self)
        content, suffix = chance.choice(right), chance.choice(self.suffixes)
        if content[:2] == b"PK" and chance.random() < 0.7:
            content = _archive_damaged(chance, content)
        else:
            content = damaged(chance, content, right)
        packer = PACKERS.get(Path(suffix).suffix)
        if packer is not None:
            content = packer(content)
            if chance.random() < 0.3:
                content = damaged(chance, content, right)
        return content, suffix

    def accepts(self, path: Path) -> bool:
        """Whether there is an answer to a file; False when an error of ours came. Anything else is raised."""
        try:
            self.read(path)
        except self.errors:
            return False
        return True


@functools.cache
def seeds(target: Target) -> list[bytes]:
    return target.seeds()


# --- damage ----------------------------------------------------------------------------------------------------------

TOKENS = [
    *(
        b"",
        b"\0",
        b"\xff",
        b"\n",
        b"\r\n",
        b",",
        b";",
        b'"',
        b"'",
        b"{",
        b"}",
        b"[",
        b"]",
        b"(",
        b")",
        b":",
        b"-",
        b"|",
    ),
    *(b"nan", b"inf", b"-inf", b"1e400", b"null", b"true", b"9" * 400, b"9" * 5000, b"-1", b"0", b"4294967296", b"1_0"),
    *(
        b"&a ",
        b"*a",
        b"<<: ",
        b"!!python/object:os.system ",
        b"!!int ",
        b"? ",
        b"- ",
        b"{}",
        b"[]",
        b'"": ',
        b"\xc3\xa9",
    ),
    *(b"\x00\x00\x00\x00", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"PK\x03\x04", b"\x93NUMPY"),
    *(
        b"'shape': (1000000000, 1000000000)",
        b"'descr': '|O'",
        b"'descr': '<U1000000000'",
        b"(-1, -1)",
        b"=cmd|' /C calc'!A0",
    ),
    *(
        b"\xef\xbb\xbf",
        b"\xff\xfe",
        b"[" * 3000,
        b"{" * 3000,
        b"(" * 3000,
        b'{"a":' * 3000,
        b"\x1f\x8b",
        b"RDX3\n",
        b"\x1c",
    ),
]


def damaged(chance: random.Random, content: bytes, others: list[bytes]) -> bytes:
    """Bytes replaced, inserted, taken out, doubled, or exchanged with those of another file; perhaps cut off."""
    changed = bytearray(content)
    for _ in range(chance.choice((0, 1, 1, 1, 2, 3, 5, 9))):
        at = chance.randrange(len(changed) + 1)
        length = chance.choice((1, 1, 2, 4, 8, chance.randrange(1, 200)))
        kind = chance.randrange(6)
        if kind == 0:
            changed[at : at + 1] = bytes([chance.randrange(256)])
        elif kind == 1:
            token = chance.choice(TOKENS)
            changed[at : at + chance.choice((0, len(token)))] = token
        elif kind == 2:
            del changed[at : at + length]
        elif kind == 3:
            changed[at:at] = changed[at : at + length] * chance.choice((1, 1, 50))
        elif kind == 4:
            other = chance.choice(others)
            start = chance.randrange(len(other) + 1)
            changed[at : at + length] = other[start : start + length]
        elif at < len(changed):
            changed[at] ^= 1 << chance.randrange(8)
    if chance.random() < 0.2:
        del changed[chance.randrange(len(changed) + 1) :]
    return bytes(changed)


def _archive_damaged(chance: random.Random, content: bytes) -> bytes:
    """An archive with right checksums around damaged members, one of them perhaps missing, twice there or renamed."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    others = [member for _, member in members]
    at = chance.randrange(len(members))
    name, member = members[at]
    kind = chance.randrange(8)
    if kind == 0:
        del members[at]
    elif kind == 1:
        members.append((name, damaged(chance, member, others)))
    elif kind == 2:
        members[at] = (chance.choice(("x.npy", "../x.npy", "names.npy", "fields.npy", name[:-4])), member)
    elif kind == 3:
        members[at] = (name, chance.choice(others))
    else:
        members[at] = (name, damaged(chance, member, others))
    written = io.BytesIO()
    packing = chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
    with warnings.catch_warnings(), zipfile.ZipFile(written, "w", packing) as archive:
        warnings.simplefilter("ignore")  # of a member that is there twice
        for name, member in members:
            archive.writestr(name, member)
    return written.getvalue()


def written(write: Callable[[Path], None], name: str = "seed.npz") -> bytes:
    """What something writes to a path."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / name)
        return (Path(folder) / name).read_bytes()
