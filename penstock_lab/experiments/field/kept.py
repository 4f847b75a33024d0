"""Trials of the field that are done, in a file: a run that was broken off goes on where it stopped."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from penstock.errors import BadInput
from penstock_lab.experiments.field.plan import FieldTrial
from penstock_lab.experiments.field.rows import DoneTrial

Key = tuple[str | float, ...]
_NAMED = ("job", "load", "records_per_second", "seconds", "start", "system", "start_executors")


class KeptTrials:
    """The trials that are done: what was measured once is not measured again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = cut_unfinished(path).splitlines()
        self._done = dict(_read_line(path, number, line) for number, line in enumerate(lines, start=1))

    def find(self, trial: FieldTrial) -> DoneTrial | None:
        """Return a trial that is done."""
        return self._done.get(_make_key(trial.describe()))

    def add(self, done: DoneTrial) -> DoneTrial:
        """Keep a trial; one that failed is not kept, so that it is tried again."""
        if done.row["failure"]:
            return done
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.write(orjson.dumps(_write_plain(done)) + b"\n")
        self._done[_make_key(done.row)] = done
        return done

    def forget(self) -> None:
        """Begin anew."""
        self._path.unlink(missing_ok=True)
        self._done = {}


def cut_unfinished(path: Path) -> bytes:
    """Return the lines of a file; one that was broken off while it was written is taken off the file."""
    text = path.read_bytes() if path.exists() else b""
    whole = text[: text.rfind(b"\n") + 1]
    if whole != text:
        path.write_bytes(whole)
    return whole


def _make_key(row: Mapping[str, Any]) -> Key:
    return tuple(row[name] for name in _NAMED)


def _write_plain(done: DoneTrial) -> dict[str, Any]:
    ages = [round(age, 3) for age in done.latencies]
    sizes = sorted(done.held_seconds.items())
    return {"row": done.row, "held_seconds": sizes, "latencies": ages, "shows": done.shows}


def _read_line(path: Path, number: int, line: bytes) -> tuple[Key, DoneTrial]:
    try:
        plain = orjson.loads(line)
        done = DoneTrial(
            plain["row"],
            {int(size): seconds for size, seconds in plain["held_seconds"]},
            plain["latencies"],
            plain["shows"],
        )
        return _make_key(done.row), done
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{path}, line {number} is no trial of the field: {error}; remove the file") from None
