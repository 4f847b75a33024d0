"""The rules of the tree that no linter knows."""

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "penstock"
SPARK_PROGRAMS = {"workloads", "bench"}
JUNK_DRAWERS = {"utils", "helpers", "common", "misc"}


def imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_only_spark_files_import_spark() -> None:
    for file in PACKAGE.rglob("*.py"):
        room = file.relative_to(PACKAGE).parts[0]
        if file.name.startswith("spark_") or room in SPARK_PROGRAMS:
            continue
        foreign = {name for name in imported(file) if name.split(".")[0] in ("pyspark", "py4j")}
        assert not foreign, f"{file.relative_to(PACKAGE)} imports {foreign}"


def test_every_room_is_a_concept() -> None:
    for file in PACKAGE.rglob("*"):
        assert file.stem not in JUNK_DRAWERS, file
