"""The place of a run: where a job finds its input, and where it puts what it makes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RunPlace:
    """One directory for each run; its name is part of the names of topics, so runs can share a broker."""

    directory: Path
    brokers: str = ""
    """Kafka's address, for jobs that use it."""
    service: str = ""
    """Address of the lookup service, for the job that asks it."""

    @property
    def output(self) -> Path:
        """The directory that the job writes to."""
        return self.directory / "output"

    @property
    def checkpoint(self) -> Path:
        """The job's checkpoint."""
        return self.directory / "checkpoint"

    @property
    def database(self) -> Path:
        """A SQLite file, for the job that keeps one."""
        return self.directory / "shop.db"

    @property
    def tables(self) -> Path:
        """The directory of the tables that the job reads beside its streams."""
        return self.directory / "tables"

    @property
    def stop_file(self) -> Path:
        """Once this file is there, the job finishes what has arrived and ends."""
        return self.directory / "stop"

    @property
    def feed_state(self) -> Path:
        """How far the feed has got, as JSON."""
        return self.directory / "feed.json"

    def input(self, stream: str) -> Path:
        """Return the directory of one stream's files."""
        return self.directory / "input" / stream

    def topic(self, stream: str) -> str:
        """Return the topic of one stream."""
        return f"{self.directory.name}-{stream}"
