"""Foreign names on a terminal: whatever they hold, they command nothing."""

from __future__ import annotations

import io
import json
import logging
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import RenderableType
from rich.live import Live
from rich.markup import escape
from rich.text import Text
from rich.tree import Tree

from penstock.cli import perform
from penstock.commands.printing import answer, complain, print_json, terminal
from penstock.commands.run import speak_up
from penstock.view.foreign_text import PlainConsole, PlainFormatter, replace_all_controls, replace_controls
from penstock.view.run_terminal import render_run
from penstock.view.terminal import Entries, make_panel, make_table
from tests.view.made_up import status

HOSTILE = "job\x1b]0;owned\x07\x1b[2J\x9b31m\x08\r\u202egnp\x7f"
ORDERS = {"Cc"}
TURNS = set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c")


def commands_in(text: str) -> set[str]:
    return {
        one for one in text if (unicodedata.category(one) in ORDERS and one not in "\n\t") or one in TURNS
    }


VIEWS: dict[str, RenderableType] = {
    "run": render_run(
        {**status(), "name": HOSTILE, "warnings": [HOSTILE], "advice": [HOSTILE], "error": HOSTILE}
    ),
    "panel": make_panel(HOSTILE, {HOSTILE: HOSTILE}, HOSTILE),
    "table": make_table((HOSTILE, "b"), [(Text(HOSTILE), HOSTILE)]),
    "entries": Entries(("name", "why"), [(HOSTILE, HOSTILE)], 1, title=HOSTILE),
    "blocks": Entries(("name", "why"), [(HOSTILE * 30, HOSTILE)], 1),
    "none": Entries(("name",), [], 1, otherwise=HOSTILE),
    "markup": f"[bold]{escape(HOSTILE)}[/bold]",
    "tree": Tree(Text(HOSTILE)),
}


@pytest.mark.parametrize("view", VIEWS)
def test_no_view_lets_a_name_command_the_terminal(view: str, capsys: pytest.CaptureFixture[str]):
    answer({}, False, VIEWS[view])
    printed = capsys.readouterr().out
    assert not commands_in(printed) and ("job" in printed or "owned" in printed)


def test_a_live_view_moves_the_cursor_itself_and_by_nobodys_name():
    out = io.StringIO()
    console = PlainConsole(file=out, force_terminal=True, width=100, color_system=None)
    with Live(console=console, auto_refresh=False) as live:
        live.update(Text(HOSTILE, style="bold"), refresh=True)
    printed = out.getvalue()
    assert "\x1b[?25l" in printed, "its own moves"
    assert "\x1b]0;" not in printed and "\x1b[2J" not in printed and "\x9b" not in printed


def test_an_error_is_one_line_without_orders(capsys: pytest.CaptureFixture[str]):
    complain(f"{HOSTILE}: no such file")
    assert perform(["diagnose", f"/none/{HOSTILE}"]) == 2
    assert perform(["run", "--conf", HOSTILE, "x.py"]) == 2
    assert perform([HOSTILE]) == 2
    printed = capsys.readouterr().err
    assert len(printed.splitlines()) == 4 and not commands_in(printed)


def test_json_means_the_same_and_has_no_orders_in_it(capsys: pytest.CaptureFixture[str]):
    print_json({"name": HOSTILE})
    printed = capsys.readouterr().out
    assert not commands_in(printed) and json.loads(printed) == {"name": HOSTILE}


def test_what_is_logged_stays_within_its_line():
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(PlainFormatter("penstock: %(message)s"))
    try:
        raise ValueError("of the program")
    except ValueError:
        record = logging.LogRecord(
            "penstock", logging.WARNING, "", 1, "%s", (HOSTILE + "\npenstock: forged",), sys.exc_info()
        )
    handler.handle(record)
    first, *trace = out.getvalue().splitlines()
    assert not commands_in(first) and "forged" in first
    assert trace[0].startswith("Traceback")


def test_the_log_of_a_run_is_written_so():
    logger = logging.getLogger("penstock")
    before = list(logger.handlers), logger.level, logger.propagate
    try:
        speak_up()
        assert isinstance(logger.handlers[-1].formatter, PlainFormatter)
    finally:
        logger.handlers[:], logger.level, logger.propagate = before


def test_standard_output_is_such_a_console():
    assert isinstance(terminal(), PlainConsole)


@given(st.text())
def test_any_text(text: str):
    assert not commands_in(replace_controls(text)) and len(replace_controls(text)) == len(text)
    assert len(replace_all_controls(text).splitlines()) <= 1
    sound = "".join(one for one in text if not commands_in(one) and one not in "\u2028\u2029")
    assert replace_controls(sound) == sound
