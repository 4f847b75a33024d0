"""What is shipped: extras, the oldest packages that are allowed, the bill of materials."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution, version
from itertools import product
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

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


PINS = ROOT / "requirements.txt"
HASHES: dict[str, Any] = run_path(str(ROOT / "scripts" / "hashes.py"), run_name="hashes")
PYTHONS = ("3.11.0", "3.11.9", "3.12.0", "3.13.0", "3.14.0")
SYSTEMS = (("linux", "Linux", "x86_64"), ("linux", "Linux", "aarch64"), ("darwin", "Darwin", "arm64"))


def list_environments() -> Iterator[dict[str, str]]:
    for full, (system, name, machine) in product(PYTHONS, SYSTEMS):
        yield {
            **default_environment(),  # type: ignore[dict-item]
            "python_full_version": full,
            "python_version": full.rpartition(".")[0],
            "implementation_version": full,
            "sys_platform": system,
            "platform_system": name,
            "platform_machine": machine,
        }


def list_needs(pin: Requirement) -> list[Requirement]:
    """What a pinned package needs; nothing where another version of it is installed, or none."""
    try:
        found = distribution(pin.name)
    except PackageNotFoundError:
        return []
    return list(map(Requirement, found.requires or ())) if found.version in pin.specifier else []


def test_every_pin_has_hashes_and_no_index_is_named():
    text = PINS.read_text()
    for pin in text.rstrip().replace(" \\\n    ", " ").split("\n"):
        _, *hashes = pin.split(" --hash=sha256:")
        assert hashes and all(len(one) == 64 for one in hashes), pin
    assert "://" not in text and "--index" not in text


def test_whatever_a_supported_system_needs_is_pinned():
    """With hashes pip refuses all that is not, also what Python 3.11.2 alone needs."""
    pins = {canonicalize_name(pin.name): pin for pin in HASHES["read_pins"](PINS.read_text())}
    environments = list(list_environments())
    for name, needed in ((name, needed) for name, pin in pins.items() for needed in list_needs(pin)):
        marker, pin = needed.marker, pins.get(canonicalize_name(needed.name))
        for one in environments:
            if marker is None or marker.evaluate({**one, "extra": ""}):
                assert pin is not None, f"{name} needs {needed}"
                assert pin.marker is None or pin.marker.evaluate(one), f"{name} needs {needed}"


def test_the_hashes_are_those_of_files_that_a_supported_system_can_install():
    is_of, wanted = HASHES["is_of"], Version("2.4.6")
    linux = "manylinux_2_27_aarch64.manylinux_2_28_aarch64"
    apple = "cp39-abi3-macosx_11_0_arm64"
    for tags in (f"cp311-cp311-{linux}", f"cp313-cp313-{linux}", "py3-none-any", apple):
        assert is_of(f"numpy-2.4.6-{tags}.whl", wanted), tags
    for tags in (f"cp310-cp310-{linux}", "cp312-cp312-win_amd64", f"pp311-pypy311_pp73-{linux}"):
        assert not is_of(f"numpy-2.4.6-{tags}.whl", wanted), tags
    assert is_of("numpy-2.4.6.tar.gz", wanted)
    for other in ("numpy-2.4.60.tar.gz", "numpy-2.4.6.exe", "numpy.whl"):
        assert not is_of(other, wanted), other


def test_a_file_that_was_swapped_is_refused(tmp_path: Path):
    pin = next(pin for pin in HASHES["read_pins"](PINS.read_text()) if pin.name == "iniconfig")
    (number,) = (one.version for one in pin.specifier)
    told = f"Metadata-Version: 2.1\nName: iniconfig\nVersion: {number}\n"
    with zipfile.ZipFile(tmp_path / f"iniconfig-{number}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("iniconfig.py", "raise SystemExit('foreign code')\n")
        wheel.writestr(f"iniconfig-{number}.dist-info/METADATA", told)
        wheel.writestr(f"iniconfig-{number}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"iniconfig-{number}.dist-info/RECORD", "")
    command = [sys.executable, "-m", "pip", "install", "--no-index", f"--find-links={tmp_path}"]
    place = ["--no-deps", f"--target={tmp_path / 'place'}"]
    unchecked = subprocess.run([*command, *place, str(pin)], capture_output=True, text=True, check=False)
    assert unchecked.returncode == 0, unchecked.stderr
    block = next(one for one in PINS.read_text().replace("\\\n", "").split("\n") if one.startswith(str(pin)))
    (tmp_path / "pin.txt").write_text(block + "\n")
    file = ["--requirement", str(tmp_path / "pin.txt")]
    done = subprocess.run([*command, *place, "--upgrade", *file], capture_output=True, text=True, check=False)
    assert done.returncode and "DO NOT MATCH THE HASHES" in done.stderr


def test_the_laboratory_ships_all_its_rooms() -> None:
    listed = tomllib.loads((ROOT / "penstock_lab/pyproject.toml").read_text())["tool"]["setuptools"][
        "packages"
    ]
    rooms = {path.parent.relative_to(ROOT) for path in (ROOT / "penstock_lab").rglob("__init__.py")}
    assert sorted(listed) == sorted(".".join(room.parts) for room in rooms)
