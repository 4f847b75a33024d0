"""Texts as people write them, files that are read whole and YAML, and texts cut to what people read."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from penstock.errors import BadInput


def read_text(path: Path, refusal: type[BadInput] = BadInput) -> str:
    """Return the text of a file without the byte order mark that spreadsheets put before it."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise refusal(f"{path}: no such file") from None
    except UnicodeDecodeError:
        raise refusal(f"{path}: not a text file in UTF-8") from None
    except OSError as error:
        raise refusal(f"{path}: cannot be read: {error.strerror}") from None


LONGEST_SHOWN = 200
"""Characters of a value that a message shows: aliases make a short text stand for very long ones."""


def cut_text(text: str, most: int) -> str:
    """Return a text of at most so many characters; one that was cut says so."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def show_value(value: object) -> str:
    """Quote a foreign value in a message: cut to a length, and of nested ones only what is on top.

    A huge number has no text of its own, and JSON can be read deeper than Python writes it.
    """
    if isinstance(value, int) and value.bit_length() > 200:
        return "a number of hundreds of digits"
    text = repr(value[:80]) if isinstance(value, str) else reprlib.repr(value)
    return text if len(text) <= 100 else f"{text[:100]}..."


def list_first(names: Sequence[str], most: int) -> str:
    """List at most so many names; a list that was cut says so."""
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")


MOST_PARTS = 100_000
"""Values that a text may stand for once its aliases are unfolded: far more than people write."""


def parse_yaml(file: str, text: str, refusal: type[BadInput] = BadInput) -> tuple[Any, dict[str, int]]:
    """Return what a YAML text says, and the line of each key at the top; errors name file and line.

    A text whose aliases unfold to far more than is written is refused: whoever shows it would never end.
    """
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        # before anything is built, which puts what is merged into its place
        for node in _list_mappings(root):
            _find_key_lines(file, node, refusal)
        lines = _find_key_lines(file, root, refusal) if isinstance(root, yaml.MappingNode) else {}
        _count_parts(root, {})
        return None if root is None else loader.construct_document(root), lines
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # YAML itself takes 2024-99-99 for a date, and fails on it with a bare ValueError
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
        raise refusal(f"{file}{where}: not valid YAML: {problem}") from None


def _count_parts(node: yaml.Node | None, known: dict[int, int | None]) -> int:
    """Count the values that a node stands for with all aliases unfolded; refuse too many, and a circle."""
    if not isinstance(node, yaml.CollectionNode):
        return 1
    if id(node) in known:
        count = known[id(node)]
        if count is None:
            raise yaml.MarkedYAMLError(problem="it contains itself", problem_mark=node.start_mark)
        return count
    known[id(node)] = None
    parts = (
        [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
    )
    count = 1 + sum(_count_parts(part, known) for part in parts)
    if count > MOST_PARTS:
        problem = f"with its aliases unfolded it says more than {MOST_PARTS} things"
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
    known[id(node)] = count
    return count


def _list_mappings(root: yaml.Node | None) -> list[yaml.MappingNode]:
    """Return every mapping in the text once, however often others refer to it."""
    found, seen, waiting = [], set(), [root]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, yaml.CollectionNode) or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            found.append(node)
            waiting.extend(part for pair in node.value for part in pair)
        else:
            waiting.extend(node.value)
    return found


def _find_key_lines(file: str, node: yaml.MappingNode, refusal: type[BadInput]) -> dict[str, int]:
    """Map each key to its line. A repeated key is an error, which YAML's own reader would not report."""
    lines: dict[str, int] = {}
    for key, _ in node.value:
        name, line = str(key.value), key.start_mark.line + 1
        if name in lines:
            raise refusal(f"{file} line {line}: {name} is given twice, first in line {lines[name]}")
        lines[name] = line
    return lines
