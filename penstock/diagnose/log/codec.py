"""Decompress event logs, also ones that are still being written or were cut off.

Such a log ends in the middle of a frame: everything before that frame is read, the rest is left out.
Formats: plain, zstd, gzip, and the streams of lz4-java, snappy-java and compress-lzf.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, Protocol, cast

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import zstandard

CHUNK = 1 << 20
# zlib: the largest window, in a gzip frame
_GZIP = 16 + zlib.MAX_WBITS
_LZ4_MAGIC, _LZ4_HEADER = b"LZ4Block", 21
_LZF_MAGIC = b"ZV"
_SNAPPY_MAGIC, _SNAPPY_HEADER = b"\x82SNAPPY\x00", 16
# Spark packs blocks of 32 kB by default; lz4-java and snappy-java allow at most 32 MB and 512 MB.
_LARGEST_BLOCK = 1 << 29

Bytes = npt.NDArray[np.uint8]


class ByteStream(Protocol):
    """A source of compressed bytes."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, fewer at the end."""


def read_plain(stream: ByteStream) -> Iterator[bytes]:
    """Yield chunks as they are."""
    while chunk := stream.read(CHUNK):
        yield chunk


def read_zstd(stream: ByteStream) -> Iterator[bytes]:
    """Yield the chunks of zstd frames; the last frame may be cut."""
    reader = zstandard.ZstdDecompressor().stream_reader(cast(BinaryIO, stream), read_across_frames=True)
    try:
        while chunk := reader.read(CHUNK):
            yield chunk
    except zstandard.ZstdError:
        return


def read_gzip(stream: ByteStream) -> Iterator[bytes]:
    """Yield the chunks of gzip members; the last member may be cut."""
    unpacker = zlib.decompressobj(wbits=_GZIP)
    while packed := stream.read(CHUNK):
        while packed:
            try:
                yield unpacker.decompress(packed)
            except zlib.error:
                return
            packed = unpacker.unused_data
            if packed:
                unpacker = zlib.decompressobj(wbits=_GZIP)


def read_lz4(stream: ByteStream) -> Iterator[bytes]:
    """Yield the blocks of lz4-java: magic, method, two lengths, checksum, data."""
    while len(header := stream.read(_LZ4_HEADER)) == _LZ4_HEADER and header.startswith(_LZ4_MAGIC):
        method = header[8] & 0xF0
        packed, size = struct.unpack_from("<ii", header, 9)
        if not (0 <= packed <= _LARGEST_BLOCK and 0 <= size <= _LARGEST_BLOCK):
            return
        block = stream.read(packed)
        unpacked = block if method == 0x10 else _unpack(block, size, "lz4_raw")
        if len(block) < packed or unpacked is None:
            return
        if size:
            yield unpacked


def read_snappy(stream: ByteStream) -> Iterator[bytes]:
    """Yield the blocks of snappy-java: a header, then each block behind its length."""
    if not stream.read(_SNAPPY_HEADER).startswith(_SNAPPY_MAGIC):
        return
    while len(length := stream.read(4)) == 4:
        size = struct.unpack(">i", length)[0]
        if not 0 <= size <= _LARGEST_BLOCK:
            return
        block = stream.read(size)
        unpacked = _unpack(block, _read_varint(block[:5]), "snappy")
        if len(block) < size or unpacked is None:
            return
        yield unpacked


def _unpack(block: bytes, size: int, codec: str) -> bytes | None:
    """Return the `size` bytes of a packed block, or None if it is broken."""
    if size > _LARGEST_BLOCK:
        return None
    try:
        return bytes(pa.decompress(block, size, codec, asbytes=True)) if size else b""
    except (OSError, ValueError):
        # Arrow's errors for broken input are among these
        return None


def _read_varint(block: bytes) -> int:
    value, shift = 0, 0
    for byte in block:
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7
    return value


def read_lzf(stream: ByteStream) -> Iterator[bytes]:
    """Yield the blocks of compress-lzf: magic, a flag, the length, if packed the unpacked length, data."""
    while len(header := stream.read(5)) == 5 and header.startswith(_LZF_MAGIC):
        length = struct.unpack_from(">H", header, 3)[0]
        unpacked = stream.read(2) if header[2] else b""
        block = stream.read(length)
        if len(block) < length:
            return
        decoded = _decode_lzf(block, struct.unpack(">H", unpacked)[0]) if header[2] else block
        if decoded is None:
            return
        yield decoded


def _decode_lzf(block: bytes, size: int) -> bytes | None:
    """Return the `size` bytes of a packed block, or None if it is broken."""
    out = np.empty(size, dtype=np.uint8)
    if _fill_from_lzf(np.frombuffer(block, dtype=np.uint8), out) != size:
        return None
    return out.tobytes()


@numba.njit(cache=True)
def _fill_from_lzf(packed: Bytes, out: Bytes) -> int:
    """Fill `out` and return the bytes written, or -1 where a step leaves either array."""
    i, o = 0, 0
    while i < len(packed):
        control = int(packed[i])
        i += 1
        if control < 32:
            if i + control + 1 > len(packed) or o + control + 1 > len(out):
                return -1
            for _ in range(control + 1):
                out[o] = packed[i]
                i, o = i + 1, o + 1
            continue
        length = control >> 5
        if i + (length == 7) >= len(packed):
            return -1
        if length == 7:
            length += int(packed[i])
            i += 1
        source = o - ((control & 31) << 8) - int(packed[i]) - 1
        i += 1
        if source < 0 or o + length + 2 > len(out):
            return -1
        for step in range(length + 2):
            out[o + step] = out[source + step]
        o += length + 2
    return o


CODECS: dict[str, Callable[[ByteStream], Iterator[bytes]]] = {
    "zstd": read_zstd,
    "zst": read_zstd,
    "gz": read_gzip,
    "lz4": read_lz4,
    "snappy": read_snappy,
    "lzf": read_lzf,
}


# The first bytes of each format; an event log that is not packed begins with a JSON object.
_MAGIC = (
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x1f\x8b", "gz"),
    (_LZ4_MAGIC, "lz4"),
    (_SNAPPY_MAGIC, "snappy"),
    (_LZF_MAGIC, "lzf"),
    (b"{", ""),
)
LONGEST_MAGIC = max(len(magic) for magic, _ in _MAGIC)


def choose_codec(head: bytes, suffix: str) -> Callable[[ByteStream], Iterator[bytes]] | None:
    """Return the reader of a packed file by its first bytes, else by its suffix; None if it is plain."""
    named = next((name for magic, name in _MAGIC if head.startswith(magic)), suffix)
    return CODECS.get(named)


def split_lines(chunks: Iterator[bytes], whole_only: bool = False) -> Iterator[bytes]:
    """Yield the lines of the chunks; without `whole_only` also a last one that has no end and may be cut."""
    # a line may be longer than many chunks: it is joined once, when its end is there
    begun: list[bytes] = []
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        begun.append(first)
        if others:
            yield b"".join(begun)
            yield from others[:-1]
            begun = [others[-1]]
    if not whole_only and (rest := b"".join(begun)):
        yield rest
