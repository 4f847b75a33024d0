"""Whose connection it is: on loopback the kernel knows, so that only this user's browsers need no token."""

from __future__ import annotations

import ipaddress
import socket
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
LOCAL, REMOTE, USER = 1, 2, 7
"""Columns of the kernel's tables of connections."""

End = tuple[str, int]


def find_peer(client: End, server: End, tables: Iterable[Path] = TABLES) -> int | None:
    """Return the user whose process connected from here to there; None where the kernel does not tell."""
    wanted = [write_end(client), write_end(server)]
    for table in tables:
        try:
            with table.open(encoding="ascii") as lines:
                for line in lines:
                    words = line.split()
                    if words[LOCAL : REMOTE + 1] == wanted:
                        return int(words[USER])
        except OSError:
            continue
    return None


def write_end(end: End) -> str:
    """Write an address and a port as the kernel's tables have them: words of four bytes in its own order."""
    address = ipaddress.ip_address(end[0])
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    packed = socket.inet_pton(family, str(address))
    order = "<" if sys.byteorder == "little" else ">"
    words = struct.unpack(f"{order}{len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{end[1]:04X}"
