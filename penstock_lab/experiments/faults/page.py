"""Writes docs/faults.md from the rows of a run: python -m penstock_lab.experiments.faults.page RESULT...

RESULT is what `penstock bench faults --json` has printed, or the file in which it keeps cells that are done;
of several the later ones have precedence.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import orjson

from penstock.errors import BadInput
from penstock_lab.experiments.faults.matrix import FAULTS, PARTS, list_cells
from penstock_lab.experiments.faults.rows import is_wrong
from penstock_lab.experiments.measurement import Row

HEAD = """# The fault matrix

Every fault meets every part of Penstock. For each cell a run that is disturbed is compared with one that is
not: its output is the same, no action is done twice and none is lost, the job lives, and the right size is
back in a stated time.

```
$ penstock bench faults --json
$ penstock bench faults --quick
```

The whole run needs the right to mount file systems, to make control groups and network namespaces, and
takes hours; cells that are done are kept in `artifacts/faults.jsonl`, so that a run that was broken off
goes on. A quick run tries what needs neither Spark nor a server. This page is written from the rows of a
run, by `python -m penstock_lab.experiments.faults.page`.

`python -m penstock_lab.experiments.faults.rehearsals` rehearses faults of Spark without it: of a made-up one
executors die, stand still or are slow, a driver dies and is started again after 20 s, or stands still, and a
broker is away. That shows what Penstock does then, not what Spark does: these cells are still to be tried.

| part | what runs | where |
| --- | --- | --- |
| loop | one application with the default policy, whose load doubles | virtual time; on Spark `penstock run` |
| migration | a query with state, all on one executor at first | virtual time; on Spark `penstock drain` |
| fleet | three applications and their controller | virtual time; on Spark `penstock fleet run` |
| pipeline | two functions joined by a topic | virtual time; on Spark file topics |
| restart | a supervised job that gets a larger heap | processes; on Spark `--allow-restart` |

In virtual time the loop, the manager, the policies, the actuators, the fleet's rounds and the journal are
the real ones, and a fault lasts 60 seconds. It begins while an action is under way, just before one, at the
start, and long after. The journal lies on a disk of its own, which is filled, covered or taken away;
PostgreSQL is a real server, and one with a synchronous standby. Where the driver itself is ended, by a kill
or by Spark because the checkpoint's disk is full, whoever watches the job starts it again.

The right size is that of the undisturbed run. Of a pipeline and of a fleet it is one that keeps up and is
not reduced by the manager, since a larger backlog asks for more.
"""


def read_rows(path: Path) -> list[Row]:
    """Read the rows of a run, or of one that was broken off."""
    try:
        plain = [orjson.loads(line) for line in path.read_bytes().splitlines() if line.startswith(b"{")]
        rows = [row for one in plain for row in one.get("results", [one])]
        assert all(row["fault"] and row["part"] for row in rows)
    except (OSError, ValueError, KeyError, TypeError, AssertionError) as error:
        raise BadInput(f"{path} has no rows of the fault matrix: {error}") from None
    return rows


def write_page(rows: Iterable[Row]) -> str:
    """Return the page: what each cell has shown, and why some cannot occur."""
    known = {(row["fault"], row["part"]): row for row in rows}
    lines = [HEAD, "## What was seen", "", *_explain_cells(known), ""]
    lines += [f"| fault | {' | '.join(PARTS)} |", f"| --- |{' --- |' * len(PARTS)}"]
    numbers = _number_reasons()
    for fault in FAULTS:
        cells = [_write_cell(fault, part, known, numbers) for part in PARTS]
        lines.append(f"| {fault} | {' | '.join(cells)} |")
    lines += ["", "## What cannot occur", ""]
    lines += [f"{number}. {reason[0].upper()}{reason[1:]}." for reason, number in numbers.items()]
    return "\n".join(lines) + "\n"


def _explain_cells(known: Mapping[tuple[str, str], Row]) -> list[str]:
    cells = list(list_cells())
    ran = [row for row in known.values() if row["runs"]]
    tried = [row for row in ran if not row["rehearsed"]]
    impossible = sum(bool(cell.cannot_occur) for cell in cells)
    runs, wrong = sum(row["runs"] for row in ran), sum(is_wrong(row) for row in ran)
    left = len(cells) - impossible - len(tried)
    return [
        f"Of {len(cells)} cells {len(tried)} were tried, {impossible} cannot occur, and {left} are not tried "
        f"yet (`…`), of which {len(ran) - len(tried)} were rehearsed without Spark (in brackets). These were "
        f"{runs} disturbed runs in all; {wrong} cells are wrong.",
        "A number is the longest time to the right size, in seconds, virtual ones where the time is virtual.",
    ]


def _number_reasons() -> dict[str, int]:
    reasons = dict.fromkeys(cell.cannot_occur for cell in list_cells() if cell.cannot_occur)
    return {reason: number for number, reason in enumerate(reasons, start=1)}


def _write_cell(
    fault: str, part: str, known: Mapping[tuple[str, str], Row], numbers: Mapping[str, int]
) -> str:
    (cell,) = (one for one in list_cells() if one.key == (fault, part))
    if cell.cannot_occur:
        return f"cannot ({numbers[cell.cannot_occur]})"
    row = known.get(cell.key)
    if row is None or not row["runs"]:
        return "…"
    seen = "**wrong**" if is_wrong(row) else f"{row['seconds_to_recover']:.0f}"
    return f"({seen})" if row["rehearsed"] else seen


def main(paths: Sequence[str]) -> int:
    """Print the page."""
    try:
        print(write_page([row for path in paths for row in read_rows(Path(path))]), end="")
    except BadInput as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
