"""The nodes of a SQL plan, and its scopes in words: what "WholeStageCodegen (12)" joins, sorts or reads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from penstock.diagnose.log.application import Fields, PlanNode
from penstock.diagnose.log.fields import read_name
from penstock.units.texts import list_first

MOST_NODES = 2_000
"""Of one plan; scopes behind them keep their names."""
MOST_SHOWN = 300
"""Nodes of one plan that are kept to be shown."""
LONGEST_LIST = 3
_IDENTIFIER = re.compile(r"#\d+L?")
_FILE_METRICS = {"number of files read": "files", "size of files read": "file_bytes"}
_SCOPE = re.compile(r"^WholeStageCodegen \(\d+\)$")
_EDGES = {"InputAdapter", "Exchange", "ShuffleQueryStage", "BroadcastQueryStage", "BroadcastExchange"}
_JOINS = {
    "SortMergeJoin": "sort-merge join",
    "BroadcastHashJoin": "broadcast join",
    "ShuffledHashJoin": "shuffled hash join",
    "BroadcastNestedLoopJoin": "nested-loop join",
    "CartesianProduct": "cross join",
}
_OTHERS = {"Sort": "sort", "Window": "window", "Generate": "explode", "Expand": "expand", "Range": "range"}
_PLAIN = {"Project", "Filter", "ColumnarToRow", "InputAdapter"}


def describe_scopes(plan: Fields) -> dict[str, str]:
    """Return for each generated scope of a plan what it does."""
    found: dict[str, str] = {}
    for node in _walk(plan):
        name = str(node.get("nodeName", ""))
        if _SCOPE.match(name):
            words = [word for inner in _list_inside(node) if (word := _describe_node(inner))]
            if words:
                found[name] = ", ".join(dict.fromkeys(reversed(words)))
    return found


def list_nodes(plan: Fields) -> tuple[PlanNode, ...]:
    """Return the first nodes of a plan from its root down, without the numbers that Spark gives columns."""
    found: list[PlanNode] = []
    waiting = [(plan, 0)] if plan else []
    while waiting and len(found) < MOST_SHOWN:
        node, depth = waiting.pop()
        text = _IDENTIFIER.sub("", str(node.get("simpleString", ""))[:1000])
        found.append(PlanNode(depth, read_name(node.get("nodeName", "")), read_name(text)))
        waiting.extend((child, depth + 1) for child in reversed(_children(node)))
    return tuple(found)


def list_scan_metrics(plan: Fields) -> list[tuple[int, str, str]]:
    """Return the counters of files and their bytes: their number, the table, and what they count."""
    return [
        (int(metric["accumulatorId"]), name_table(node) or str(node.get("nodeName", "")), what)
        for node in _walk(plan)
        for metric in node.get("metrics") or ()
        if (what := _FILE_METRICS.get(str(metric.get("name"))))
    ]


def expand_chain(chain: str, scopes: Mapping[str, str]) -> str:
    """Return a stage's chain of scopes with the generated ones in words."""
    if not scopes or "WholeStageCodegen" not in chain:
        return chain
    return " > ".join(dict.fromkeys(scopes.get(part, part) for part in chain.split(" > ")))


def _children(node: Fields) -> Sequence[Fields]:
    return [child for child in node.get("children") or () if isinstance(child, dict)]


def _walk(root: Fields) -> Iterator[Fields]:
    """Yield the nodes of a plan, at most `MOST_NODES`."""
    waiting = [root]
    for _ in range(MOST_NODES):
        if not waiting:
            return
        node = waiting.pop()
        yield node
        waiting.extend(reversed(_children(node)))


def _list_inside(scope: Fields) -> list[Fields]:
    """Return the nodes of a generated scope, from its output to its input."""
    found: list[Fields] = []
    waiting = list(_children(scope))
    while waiting and len(found) < MOST_NODES:
        node = waiting.pop(0)
        if str(node.get("nodeName", "")) not in _EDGES:
            found.append(node)
            waiting.extend(_children(node))
    return found


def _describe_node(node: Fields) -> str:
    name, text = str(node.get("nodeName", "")), str(node.get("simpleString", ""))
    if name in _JOINS:
        return _describe_join(_JOINS[name], node, text)
    if name.endswith("Aggregate"):
        keys = _list_columns(_find_bracket(text, "keys=") or _find_bracket(text, "key="))
        return f"aggregate by {keys}" if keys else "aggregate"
    if name == "Sort":
        keys = _list_columns(
            re.sub(r" (?:ASC|DESC)(?: NULLS (?:FIRST|LAST))?", "", _find_bracket(text, "Sort "))
        )
        return f"sort by {keys}" if keys else "sort"
    if table := name_table(node):
        return f"scan of {table}"
    return _OTHERS.get(name, "" if name in _PLAIN or _SCOPE.match(name) else name)


def _describe_join(words: str, node: Fields, text: str) -> str:
    sides = [_find_table(child) for child in _children(node)]
    tables = " and ".join(side for side in sides if side) if all(sides) and len(sides) == 2 else ""
    keys = _list_columns(_find_bracket(text, " "))
    return words + (f" of {tables}" if tables else "") + (f" on {keys}" if keys else "")


def _find_bracket(text: str, behind: str) -> str:
    """Return what the first square brackets behind this mark hold."""
    start = text.find(f"{behind}[")
    return text[start + len(behind) + 1 : text.find("]", start)] if start >= 0 else ""


def _list_columns(text: str) -> str:
    names = [_IDENTIFIER.sub("", part).strip() for part in text.split(",")]
    return list_first([name for name in names if name], LONGEST_LIST)


def _find_table(node: Fields) -> str:
    return next((table for inner in _walk(node) if (table := name_table(inner))), "")


def name_table(node: Fields) -> str:
    """Return the table or directory that a scan reads, or nothing for another node."""
    name, text = str(node.get("nodeName", "")), str(node.get("simpleString", ""))
    words = name.split()
    if not words or "Scan" not in words[0] or words[0] == "LocalTableScan":
        return ""
    if len(words) > (1 if words[0] == "BatchScan" else 2):
        return words[-1].removeprefix("spark_catalog.").removeprefix("default.")
    location = re.search(r"Location: \w+(?:\(\d+ paths?\))?\s?\[([^,\]]+)", text)
    return location[1].rstrip("/.").rsplit("/", 1)[-1] if location else ""
