"""Bytes of a possibly compressed and possibly unfinished log, as chunks of plain text.

A log that is still written, or was cut off, ends in the middle of a frame: what comes before it is given,
the rest is left out. Formats: plain, zstd, lz4 (stream of lz4-java), snappy (stream of snappy-java),
lzf (chunks of compress-lzf), gzip.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, Protocol, cast

import pyarrow as pa
import zstandard

CHUNK = 1 << 20
# a window of the largest size, in the frame of gzip
_GZIP = 16 + zlib.MAX_WBITS
_LZ4_MAGIC, _LZ4_HEADER = b"LZ4Block", 21
_LZF_MAGIC = b"ZV"
_SNAPPY_MAGIC, _SNAPPY_HEADER = b"\x82SNAPPY\x00", 16


class Source(Protocol):
    """What compressed bytes are read from."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, fewer at the end."""


def plain(stream: Source) -> Iterator[bytes]:
    """The chunks as they are."""
    while chunk := stream.read(CHUNK):
        yield chunk


def zstd(stream: Source) -> Iterator[bytes]:
    """Chunks of a sequence of zstd frames, the last of which may be cut."""
    reader = zstandard.ZstdDecompressor().stream_reader(cast(BinaryIO, stream), read_across_frames=True)
    try:
        while chunk := reader.read(CHUNK):
            yield chunk
    except zstandard.ZstdError:
        return


def gzip(stream: Source) -> Iterator[bytes]:
    """Chunks of one or more gzip members, as people pack logs; the last may be cut."""
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


def lz4(stream: Source) -> Iterator[bytes]:
    """Chunks of an lz4-java block stream: magic, method, two lengths, checksum, then the block."""
    while len(header := stream.read(_LZ4_HEADER)) == _LZ4_HEADER and header.startswith(_LZ4_MAGIC):
        method = header[8] & 0xF0
        packed, size = struct.unpack_from("<ii", header, 9)
        block = stream.read(packed)
        if len(block) < packed:
            return
        if size:
            yield block if method == 0x10 else pa.decompress(block, size, "lz4_raw", asbytes=True)


def snappy(stream: Source) -> Iterator[bytes]:
    """Chunks of a snappy-java stream: a header, then blocks with their length in front."""
    if not stream.read(_SNAPPY_HEADER).startswith(_SNAPPY_MAGIC):
        return
    while len(length := stream.read(4)) == 4:
        size = struct.unpack(">i", length)[0]
        block = stream.read(size)
        if len(block) < size:
            return
        yield pa.decompress(block, _varint(block), "snappy", asbytes=True)


def lzf(stream: Source) -> Iterator[bytes]:
    """Chunks of compress-lzf: magic, whether packed, length, then for packed ones their length unpacked."""
    from penstock.diagnose.lzf import decoded

    while len(header := stream.read(5)) == 5 and header.startswith(_LZF_MAGIC):
        length = struct.unpack_from(">H", header, 3)[0]
        unpacked = stream.read(2) if header[2] else b""
        block = stream.read(length)
        if len(block) < length:
            return
        plainly = decoded(block, struct.unpack(">H", unpacked)[0]) if header[2] else block
        if plainly is None:
            return
        yield plainly


def _varint(block: bytes) -> int:
    value, shift = 0, 0
    for byte in block:
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7
    return value


CODECS: dict[str, Callable[[Source], Iterator[bytes]]] = {
    "zstd": zstd,
    "zst": zstd,
    "gz": gzip,
    "lz4": lz4,
    "snappy": snappy,
    "lzf": lzf,
}


def lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Whole lines; a last one without its end is given too, and may be cut."""
    rest = b""
    for chunk in chunks:
        parts = (rest + chunk).split(b"\n")
        rest = parts.pop()
        yield from parts
    if rest:
        yield rest
