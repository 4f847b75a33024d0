"""A UDP port to which executors report, open only where a setting asks for it."""

from __future__ import annotations

import socket
import threading
import time

from penstock.errors import ActionFailed
from penstock.observe.executor_metrics import ExecutorBoard

LARGEST_DATAGRAM = 8192
LOOK_EVERY_SECONDS = 0.5

_open: dict[int, MetricsListener] = {}
_opening = threading.Lock()


class MetricsListener:
    """Takes in datagrams in a daemon thread, for the board."""

    def __init__(self, host: str, port: int) -> None:
        self.board = ExecutorBoard()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.bind((host, port))
        except OSError as error:
            self._socket.close()
            raise ActionFailed(
                f"cannot listen for executors on UDP {host}:{port}: {error.strerror}"
            ) from error
        self._socket.settimeout(LOOK_EVERY_SECONDS)
        self.host, self.port = self._socket.getsockname()[:2]
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="penstock-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._stopping.set()
        self._thread.join(timeout=2 * LOOK_EVERY_SECONDS)
        self._socket.close()
        with _opening:
            _open.pop(self.port, None)

    def _listen(self) -> None:
        while not self._stopping.is_set():
            try:
                datagram = self._socket.recv(LARGEST_DATAGRAM)
            except TimeoutError:
                continue
            except OSError:
                return
            self.board.take_in(time.time(), datagram)


def listener_on(host: str, port: int) -> MetricsListener:
    """The listener of this process on that port, opened where there is none; port 0 takes a free one.

    The port must be open before Spark starts, and is used by whoever attaches to it later.
    """
    with _opening:
        known = _open.get(port)
        if known is not None:
            return known
        listener = MetricsListener(host, port)
        _open[listener.port] = listener
        return listener


def address_for(master: str, environment_ip: str | None) -> str:
    """Where executors reach this machine: on itself by loopback, else by the address of its name."""
    if environment_ip:
        return environment_ip
    if master.startswith("local"):
        return "127.0.0.1"
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"
