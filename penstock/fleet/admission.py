"""Whose windows a controller believes, and how it reads them: signed ones, or files of this user alone.

Files are measured before they are read, and no more of them is in memory than is parsed at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from penstock.errors import BadInput
from penstock.fleet.decision import CLOCK_SECONDS
from penstock.fleet.files import MIB, Ownership, find_trusted_users, local_path, read_bounded
from penstock.fleet.keys import FleetKey
from penstock.fleet.places import LONGEST_LINE, FleetTopic
from penstock.fleet.records import Read, read_lines, refuse

AT_ONCE_BYTES = 16 * MIB
"""Lines that are parsed together: many small files at once cost less than each alone."""
MOST_LINES = 100_000


@dataclass(frozen=True, slots=True)
class Admission:
    """The rules that the controller's tasks carry: the fleet's key, if any, and how far clocks may differ.

    `users` are those of the machine that starts the job; tasks may run as another.
    """

    key: FleetKey | None = None
    ahead_seconds: float = CLOCK_SECONDS
    users: frozenset[int] = field(default_factory=find_trusted_users)

    def check(self, place: Path | FleetTopic) -> None:
        """Refuse a place of which nothing could be believed, by this controller or by its agents."""
        if self.key is not None:
            return
        if isinstance(place, FleetTopic):
            raise BadInput(
                "whoever reaches the broker could speak for every application: a fleet that meets in Kafka "
                "needs a key, fleet_key_file or --key-file; `penstock fleet key FILE` makes one"
            )
        fault = Ownership(self.users).distrust_directory(place)
        if fault and place.is_dir():
            raise BadInput(fault)

    def read_files(self, addresses: Iterable[str], now: float) -> Iterator[Read]:
        """Read files of JSON lines; one that is not believed or too large is one bad record."""
        owners = Ownership(self.users)
        lines: list[bytes] = []
        origins: list[str] = []
        held = 0
        for address in addresses:
            try:
                content = self._read_file(address, owners)
            except (BadInput, OSError) as error:
                yield refuse(f"the file is not read: {error}", address)
                continue
            found = content.split(b"\n")
            lines.extend(found)
            origins.extend([address] * len(found))
            held += len(content)
            if held >= AT_ONCE_BYTES:
                yield read_lines(lines, origins, now + self.ahead_seconds, self.key)
                lines, origins, held = [], [], 0
        yield read_lines(lines, origins, now + self.ahead_seconds, self.key)

    def _read_file(self, address: str, owners: Ownership) -> bytes:
        path = local_path(address)
        if path is None:
            raise BadInput(f"{address}: on no file system of this machine")
        fault = owners.distrust_file(path) if self.key is None else ""
        if fault:
            raise BadInput(fault)
        if address.endswith(".parquet"):
            raise BadInput("windows travel as JSON lines, not as Parquet")
        content = read_bounded(path)
        if content.count(b"\n") > MOST_LINES:
            raise BadInput(f"it has more than {MOST_LINES} lines")
        return content

    def read_messages(self, origins: Iterable[str], contents: Iterable[bytes], now: float) -> Read:
        """Read messages of JSON lines; one that is too long is one bad record."""
        lines: list[bytes] = []
        places: list[str] = []
        for origin, content in zip(origins, contents, strict=True):
            found = [content] if len(content) > LONGEST_LINE else content.split(b"\n")
            lines.extend(found)
            places.extend([origin] * len(found))
        return read_lines(lines, places, now + self.ahead_seconds, self.key)

    def sign(self, decisions: pa.Table) -> pa.Table:
        """Return the decisions as agents believe them."""
        return decisions if self.key is None else self.key.sign(decisions)
