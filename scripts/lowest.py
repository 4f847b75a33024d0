"""Prints the oldest packages that pyproject.toml allows, and the tools of the tests, as pip takes them."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

TOOLS = ("httpx", "hypothesis", "pytest", "pytest-timeout", "pytest-xdist", "setuptools")
"""Of requirements.txt: what runs the tests, whose bounds are nobody's concern."""
OWN = "penstock"
APART = ("connect",)
"""Extras that are left out: the oldest gRPC needs a newer protobuf than the oldest OpenTelemetry allows."""


def list_lowest(root: Path) -> list[str]:
    """Return a line for each package: its lower bound, or its name alone where it has none."""
    lines = []
    for file in (root / "pyproject.toml", root / "penstock_lab" / "pyproject.toml"):
        project = tomllib.loads(file.read_text())["project"]
        extras = project.get("optional-dependencies", {})
        kept = (one for name, extra in extras.items() if name not in APART for one in extra)
        for written in (*project["dependencies"], *kept):
            needed = Requirement(written)
            if needed.name != OWN:
                lines.append(pin_lowest(needed))
    pins = (root / "requirements.txt").read_text().split()
    return lines + [pin for pin in pins if pin.partition("==")[0] in TOOLS]


def pin_lowest(needed: Requirement) -> str:
    """Return the requirement with its lower bound as the only version."""
    name = f"{needed.name}[{','.join(sorted(needed.extras))}]" if needed.extras else needed.name
    bounds = [one.version for one in needed.specifier if one.operator == ">="]
    return f"{name}=={bounds[0]}" if bounds else name


if __name__ == "__main__":
    sys.stdout.write("\n".join(list_lowest(Path(__file__).parent.parent)) + "\n")
