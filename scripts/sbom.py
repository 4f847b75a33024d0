"""Prints a bill of materials (CycloneDX, JSON): what is installed here for Penstock and its extras."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).parent.parent / "pyproject.toml"


class Installed:
    """The packages that are needed by whatever way, and what each of them needs itself."""

    def __init__(self, wanted: Iterable[Requirement]) -> None:
        self.packages: dict[str, Distribution] = {}
        self.needs: dict[str, set[str]] = {}
        self._extras: dict[str, set[str]] = {}
        for needed in wanted:
            self._add(needed)

    def refer(self, names: Iterable[str]) -> list[str]:
        """Return the references of those that are installed: some are for other systems alone."""
        return sorted(_refer(self.packages[name]) for name in names if name in self.packages)

    def _add(self, needed: Requirement) -> None:
        name = canonicalize_name(needed.name)
        known = self._extras.setdefault(name, set())
        if name in self.packages and needed.extras <= known:
            return
        known |= needed.extras
        try:
            self.packages[name] = distribution(name)
        except PackageNotFoundError:
            return
        further = list(_list_needs(self.packages[name], known))
        self.needs[name] = {canonicalize_name(one.name) for one in further}
        for one in further:
            self._add(one)


def make_bill(project: dict[str, Any]) -> dict[str, Any]:
    """Return the bill of a project, from its own requirements and the metadata of what is installed."""
    extras = project.get("optional-dependencies", {}).values()
    wanted = [Requirement(one) for group in (project["dependencies"], *extras) for one in group]
    found = Installed(wanted)
    own = f"pkg:pypi/{project['name']}@{project['version']}"
    top = {"type": "application", "bom-ref": own, "name": project["name"], "version": project["version"]}
    top |= {"purl": own, "licenses": [{"expression": project["license"]}]}
    direct = found.refer({canonicalize_name(one.name) for one in wanted})
    names = sorted(found.packages)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": top},
        "components": [_describe(found.packages[name]) for name in names],
        "dependencies": [{"ref": own, "dependsOn": direct}]
        + [
            {"ref": _refer(found.packages[name]), "dependsOn": found.refer(found.needs[name])}
            for name in names
        ],
    }


def _list_needs(package: Distribution, extras: set[str]) -> Iterator[Requirement]:
    for written in package.requires or ():
        needed = Requirement(written)
        chosen = ({"extra": extra} for extra in ("", *extras))
        if needed.marker is None or any(needed.marker.evaluate(one) for one in chosen):
            yield needed


def _describe(package: Distribution) -> dict[str, Any]:
    metadata, ref = package.metadata, _refer(package)
    told: dict[str, Any] = {"type": "library", "bom-ref": ref, "name": metadata["Name"]}
    told |= {"version": package.version, "purl": ref}
    if expression := metadata.get("License-Expression"):
        return told | {"licenses": [{"expression": expression}]}
    classifiers = [one for one in metadata.get_all("Classifier") or () if one.startswith("License ::")]
    # older metadata has it in words, some of them the whole text
    words = (metadata.get("License") or "").strip().partition("\n")[0]
    found = [one.rpartition(" :: ")[2] for one in classifiers] or ([words] if words else [])
    licenses = [{"license": {"name": one}} for one in found]
    return told | ({"licenses": licenses} if licenses else {})


def _refer(package: Distribution) -> str:
    return f"pkg:pypi/{canonicalize_name(package.metadata['Name'])}@{package.version}"


if __name__ == "__main__":
    bill = make_bill(tomllib.loads(PROJECT.read_text())["project"])
    sys.stdout.write(json.dumps(bill, indent=2) + "\n")
