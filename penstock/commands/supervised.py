"""`penstock run --allow-restart`: a supervisor that owns the driver's process, and may start it anew."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.commands.printing import say

if TYPE_CHECKING:
    from penstock.settings import Settings


def supervise(
    script: Path,
    arguments: Sequence[str],
    options: Sequence[str],
    given: Mapping[str, str],
    settings: Settings,
    quiet: bool,
) -> dict[str, Any]:
    """Run the script until it ends by itself; the result has its exit code and the restarts.

    `options` are those of `penstock run` for the driver, `given` the Spark settings among them: these are the
    user's word, and outrank what an earlier run was found to need. With `quiet` the driver's standard output
    goes to standard error.
    """
    from penstock.journal.store import open_journal
    from penstock.sizing import restart_rules
    from penstock.supervise.machine import Patience
    from penstock.supervise.shell import Job, Supervisor

    def command(found: Mapping[str, str]) -> list[str]:
        pairs = [word for key, value in found.items() for word in ("--conf", f"{key}={value}")]
        return [sys.executable, "-m", "penstock.cli", "run", *options, *pairs, str(script), *arguments]

    patience = Patience(settings.restart_stop_timeout, settings.restart_verify_timeout)
    with closing(open_journal(settings.journal)) as journal:
        output = sys.stderr.fileno() if quiet else None
        job = Job(job_name(script, arguments), command, output, dict(given), restart_rules(settings))
        supervisor = Supervisor(job, journal, patience, say)
        code = supervisor.run()
    return {
        "script": str(script),
        "exit_code": code,
        "applications": supervisor.statuses,
        "restarts": supervisor.restarts,
    }


def job_name(script: Path, arguments: Sequence[str]) -> str:
    """What is the same job in its next run: the script with its arguments."""
    return shlex.join([str(script.resolve()), *arguments])
