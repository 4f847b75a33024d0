"""`penstock watch`, `status`, `pause` and `resume`: talk to a running application."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.live import Live

from penstock import control
from penstock.commands.printing import Json, answer, reported, say, terminal
from penstock.errors import NotFound

EVERY_SECONDS = 1.0

Application = Annotated[
    str | None, typer.Argument(help="The application's id or name; may be left out while only one runs.")
]
Config = Annotated[Path | None, typer.Option("--config", help="The settings file.")]
Html = Annotated[Path | None, typer.Option("--html", help="Also write the run so far to this HTML page.")]


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("watch")(watch)
    app.command("status")(status)
    app.command("pause")(pause)
    app.command("resume")(resume)


@reported
def watch(
    application: Application = None,
    once: Annotated[bool, typer.Option("--once", help="Show it once and end.")] = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show an application live: rates, backlog, slots, decisions. With --json once, as `status` does."""
    from penstock.view.terminal import line, render

    running = find_running(application, config)
    if once or as_json:
        seen = _status(running)
        answer(seen, as_json, render(seen))
    elif sys.stdout.isatty():
        _watch_live(running)
    else:
        for seen in _updates(running):
            sys.stdout.write(line(seen) + "\n")
            sys.stdout.flush()


@reported
def status(
    application: Application = None, html: Html = None, config: Config = None, as_json: Json = False
) -> None:
    """Show an application once."""
    from penstock.view.html import write_page
    from penstock.view.terminal import render

    seen = _status(find_running(application, config))
    if html is not None:
        say(f"wrote {write_page(seen, html)}")
    answer(seen, as_json, render(seen))


@reported
def pause(application: Application = None, config: Config = None, as_json: Json = False) -> None:
    """Keep watching, but decide and change nothing until `resume`."""
    _tell(application, config, "pause", as_json)


@reported
def resume(application: Application = None, config: Config = None, as_json: Json = False) -> None:
    """Act again after `pause`."""
    _tell(application, config, "resume", as_json)


def _tell(application: str | None, config: Path | None, command: str, as_json: bool) -> None:
    running = find_running(application, config)
    paused = bool(running.ask(command)["paused"])
    result = {"application": running.application, "name": running.name, "paused": paused}
    answer(result, as_json, f"{running.application} is {'paused' if paused else 'running'}")


def find_running(application: str | None, config: Path | None) -> control.Running:
    """The application of this id or name, or the only one that runs."""
    from penstock.settings import load_settings

    return control.find(Path(load_settings(config).runtime_directory), application)


def _status(running: control.Running) -> dict[str, Any]:
    seen: dict[str, Any] = running.ask("status")["status"]
    return seen


def _updates(running: control.Running) -> Iterator[dict[str, Any]]:
    """A status a second until the application is gone."""
    while True:
        try:
            yield _status(running)
        except NotFound:
            say(f"{running.application} has ended")
            return
        time.sleep(EVERY_SECONDS)


def _watch_live(running: control.Running) -> None:
    from penstock.view.terminal import render

    with Live(console=terminal(), auto_refresh=False, screen=False) as live:
        try:
            for seen in _updates(running):
                live.update(render(seen), refresh=True)
        except KeyboardInterrupt:
            # the way to leave this view; the application runs on
            return
