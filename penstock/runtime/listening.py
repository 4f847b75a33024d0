"""Addresses at which something of ours is to listen: who reaches them, and whether they are free."""

from __future__ import annotations

import errno
import ipaddress
import socket


def why_not_free(host: str, port: int, kind: socket.SocketKind = socket.SOCK_STREAM) -> str | None:
    """Say why nobody can listen at this address now; None where it is free, as port 0 always is."""
    try:
        found = socket.getaddrinfo(host, port, type=kind, flags=socket.AI_PASSIVE)
        family, _, protocol, _, address = found[0]
        with socket.socket(family, kind, protocol) as trial:
            if kind is socket.SOCK_STREAM:
                # as servers do: connections of a former one that are still closing do not matter
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
            if kind is socket.SOCK_STREAM:
                trial.listen(1)
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        return "another process listens there" if taken else str(error.strerror or error)
    return None


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
