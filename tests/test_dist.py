"""What is shipped: extras, the oldest packages that are allowed, the bill of materials."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from penstock.errors import Unsupported
from penstock.fleet.reporting import connect_to_fleet
from penstock.journal.store import journal_at
from penstock.runtime.telemetry.spans import SpanTeller

ROOT = Path(__file__).parent.parent


def run_script(name: str) -> str:
    command = [sys.executable, str(ROOT / "scripts" / name)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_without_an_extra_one_sentence_names_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(Unsupported, match=r"^a journal in PostgreSQL needs psycopg: .*penstock\[postgres\]$"):
        journal_at("postgresql://user:secret@host/journal")
    with pytest.raises(Unsupported, match=r"^reporting to Kafka needs .*penstock\[kafka\]$"):
        connect_to_fleet("kafka://host:9092/fleet", "words")
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(Unsupported, match=r"^otlp_endpoint needs OpenTelemetry: .*penstock\[otel\]$"):
        SpanTeller("http://127.0.0.1:4318/v1/traces", {"application": "app-1", "name": "words"})


def test_what_some_need_is_an_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = ("psycopg", "confluent", "opentelemetry", "grpcio")
    assert not [one for one in project["dependencies"] if one.startswith(extras)]
    assert set(project["optional-dependencies"]) == {"postgres", "kafka", "connect", "otel"}


def test_the_lowest_of_every_package_is_tried():
    lines = run_script("lowest.py").splitlines()
    assert "numpy==2.0" in lines and "pandas==2.2.2" in lines and "psycopg[binary]==3.2.1" in lines
    assert "confluent-kafka==2.5" in lines and any(line.startswith("pytest==") for line in lines)
    assert not [line for line in lines if line.startswith("penstock")]
    assert not [line for line in lines if line.startswith("grpcio")], "pip could not install them together"
    bare = [line for line in lines if "==" not in line]
    assert bare == ["py4j"], "pyspark says which one it takes"


def test_the_bill_of_materials_names_all_that_is_needed_with_its_version():
    bill = json.loads(run_script("sbom.py"))
    assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == ("CycloneDX", "penstock")
    told = {one["name"].lower(): one["version"] for one in bill["components"]}
    # one that is needed, one by way of another package, one of each extra
    for name in ("numpy", "llvmlite", "psycopg-binary", "confluent-kafka", "opentelemetry-proto"):
        assert told[name] == version(name)
    assert "pytest" not in told, "what only tests need is not shipped"
    refs = {one["bom-ref"] for one in bill["components"]} | {bill["metadata"]["component"]["bom-ref"]}
    assert {one["ref"] for one in bill["dependencies"]} == refs
    assert all(set(one["dependsOn"]) <= refs for one in bill["dependencies"])


def test_the_laboratory_ships_all_its_rooms() -> None:
    listed = tomllib.loads((ROOT / "penstock_lab/pyproject.toml").read_text())["tool"]["setuptools"][
        "packages"
    ]
    rooms = {path.parent.relative_to(ROOT) for path in (ROOT / "penstock_lab").rglob("__init__.py")}
    assert sorted(listed) == sorted(".".join(room.parts) for room in rooms)
