"""The rules of the tree that no linter knows."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import penstock

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "penstock"
LABORATORY = ROOT / "penstock_lab"
JUNK_DRAWERS = {"utils", "helpers", "common", "misc"}


def imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_only_spark_files_of_the_product_import_spark() -> None:
    for file in PACKAGE.rglob("*.py"):
        if file.name.startswith("spark_"):
            continue
        foreign = {name for name in imported(file) if name.split(".")[0] in ("pyspark", "py4j")}
        assert not foreign, f"{file.relative_to(PACKAGE)} imports {foreign}"


def test_the_top_of_the_product_holds_nothing_but_its_doors() -> None:
    assert {file.name for file in PACKAGE.glob("*.py")} == {"__init__.py", "cli.py", "errors.py"}


def rooms_on_the_page() -> dict[str, str]:
    """Room → its layer, as the architecture's tables have them."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| (\d+|laboratory) \| `([^`]+?)/?` \|", page, flags=re.MULTILINE)
    rooms = {room: layer for layer, room in found}
    assert len(rooms) == len(found), "a room is listed twice"
    return rooms


def test_the_page_lists_every_room_and_no_other() -> None:
    folders = {file.parent for package in (PACKAGE, LABORATORY) for file in package.rglob("*.py")}
    modules = {PACKAGE / "cli.py", PACKAGE / "errors.py"}
    rooms = {str(room.relative_to(ROOT)) for room in (folders | modules) - {PACKAGE, LABORATORY}}
    listed = set(rooms_on_the_page())
    assert listed == rooms, f"not on the page: {rooms - listed}; not in the tree: {listed - rooms}"


def test_the_layers_of_the_page_are_those_that_import_linter_checks() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (layers,) = (contract for contract in contracts if contract.get("containers") == ["penstock"])
    assert layers["type"] == "layers" and layers["exhaustive"]
    height = {
        name.strip(): str(number)
        for number, names in enumerate(reversed(layers["layers"]), start=1)
        for name in names.split("|")
    }
    product = {room: layer for room, layer in rooms_on_the_page().items() if layer != "laboratory"}
    assert product == {room: height[Path(room).parts[1].removesuffix(".py")] for room in product}


def test_what_the_pages_call_is_there() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    called = {name for page in pages for name in re.findall(r"\bpenstock\.(\w+)\(", page.read_text())}
    assert {"attach", "publish_service"} <= called
    for name in called:
        assert callable(getattr(penstock, name)), name
    assert not any(re.search(r"\bpenstock\.\w+\.\w+\(", page.read_text()) for page in pages)


def test_every_room_is_a_concept() -> None:
    for package in (PACKAGE, LABORATORY):
        for file in package.rglob("*"):
            assert file.stem not in JUNK_DRAWERS, file
