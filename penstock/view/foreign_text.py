"""The one place through which foreign text reaches a terminal: what would command it is replaced.

Names of applications, queries, hosts and files are given by others. A terminal takes some characters for
orders: to clear itself, to set its title, to answer as if the user had typed, or to write from right to left.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_BIDIRECTIONAL = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_ORDERS = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029{_BIDIRECTIONAL}]")
_ORDERS_OR_LINES = re.compile(f"[\t\n]|{_ORDERS.pattern}")


def replace_controls(text: str) -> str:
    """Replace all control characters but tabs and ends of lines."""
    return _ORDERS.sub(REPLACEMENT, text)


def replace_all_controls(text: str) -> str:
    """Replace all control characters: for text that is to stay within its line."""
    return _ORDERS_OR_LINES.sub(REPLACEMENT, text)


def escape_controls(json: str) -> str:
    """Write control characters of a JSON text as JSON's own escapes, which mean the same."""
    return _ORDERS.sub(lambda found: f"\\u{ord(found[0]):04x}", json)


class PlainConsole(Console):
    """A console on which nothing that is printed commands the terminal; only its own styles and moves do."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render as ever, with control characters replaced."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(replace_controls(segment.text), segment.style)


class PlainFormatter(logging.Formatter):
    """A formatter that lets a message be one line, whatever names are in it."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """Format the message as ever, with control characters replaced."""
        return replace_all_controls(super().formatMessage(record))
