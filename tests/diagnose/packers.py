"""Compresses as Spark's codecs do: whole files, and files that are written piece by piece."""

from __future__ import annotations

import gzip
import struct

import pyarrow as pa
import zstandard


def lz4_stream(content):
    packed = pa.compress(content, codec="lz4_raw", asbytes=True)
    return b"LZ4Block" + bytes([0x26]) + struct.pack("<iii", len(packed), len(content), 0) + packed


def snappy_header():
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


def snappy_block(content):
    packed = pa.compress(content, codec="snappy", asbytes=True)
    return struct.pack(">i", len(packed)) + packed


def snappy_stream(content):
    return snappy_header() + snappy_block(content)


def lzf_block(content):
    """Literals, and references to the last place where the next three bytes were seen."""
    out, seen, literal, at = bytearray(), {}, bytearray(), 0

    def flush():
        for start in range(0, len(literal), 32):
            run = literal[start : start + 32]
            out.append(len(run) - 1)
            out.extend(run)
        literal.clear()

    while at < len(content):
        key = content[at : at + 3]
        before = seen.get(key, -1)
        seen[key] = at
        if len(key) < 3 or before < 0 or at - before > 8192:
            literal.append(content[at])
            at += 1
            continue
        length = 3
        while (
            length < 264 and at + length < len(content) and content[before + length] == content[at + length]
        ):
            length += 1
        flush()
        distance, short = at - before - 1, min(length - 2, 7)
        out.append(short << 5 | distance >> 8)
        if short == 7:
            out.append(length - 2 - 7)
        out.append(distance & 255)
        at += length
    flush()
    return bytes(out)


def lzf_stream(content):
    chunks = []
    for start in range(0, len(content), 60_000):
        piece = content[start : start + 60_000]
        packed = lzf_block(piece)
        if len(packed) < len(piece):
            chunks.append(b"ZV\x01" + struct.pack(">HH", len(packed), len(piece)) + packed)
        else:
            chunks.append(b"ZV\x00" + struct.pack(">H", len(piece)) + piece)
    return b"".join(chunks)


PACKERS = {
    "zstd": zstandard.compress,
    "gz": gzip.compress,
    "lz4": lz4_stream,
    "snappy": snappy_stream,
    "lzf": lzf_stream,
}


def growing(codec, pieces):
    """What a file holds after each piece was flushed; zstd stays in one frame, as Spark leaves it."""
    held, frame = b"", zstandard.ZstdCompressor().compressobj()
    for number, piece in enumerate(pieces):
        if codec == "zstd":
            held += frame.compress(piece) + frame.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        elif codec == "snappy":
            held += (b"" if number else snappy_header()) + snappy_block(piece)
        else:
            held += PACKERS[codec](piece) if codec else piece
        yield held
