"""The corpus: inputs that once failed, one small file each, in a folder per command; `rest` has the requests.

Files with the suffix .gz are compressed. A file holds the bytes that a client sends on one connection, or a request:

    PUT /admin/v2/tenants/acme?force=true
    the body, from the second line on
"""

from __future__ import annotations

import gzip
from hashlib import sha256
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
REST = "rest"
_COMPRESSED_FROM = 2000


def paths() -> list[Path]:
    return sorted(path for path in CORPUS.rglob("*") if path.is_file())


def read(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def add(folder: str, data: bytes, name: str = "") -> Path:
    """Writes an input; without a name it is called by its hash."""
    path = CORPUS / folder / (name or sha256(data).hexdigest()[:16])
    path.parent.mkdir(parents=True, exist_ok=True)
    if len(data) >= _COMPRESSED_FROM:
        path = path.with_name(f"{path.name}.gz")
        data = gzip.compress(data, mtime=0)
    path.write_bytes(data)
    return path


def frames_in(data: bytes) -> list[bytes]:
    """The frames of a conversation; what is not a whole frame is the last one."""
    frames = []
    start = 0
    while start < len(data):
        end = start + 4 + int.from_bytes(data[start : start + 4], "big")
        frames.append(data[start:end])
        start = end
    return frames
