"""Policies by name: those of Penstock, and those that installed packages add under an entry point.

Finding reads the metadata of installed packages; loading imports their code, with the rights of this process.
The current directory may be anybody's, so nothing of either is taken from there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, distributions
from pathlib import Path
from typing import Any

from penstock.decide.forecast.policy import PREFIX
from penstock.decide.registry import OPERATORS, POLICIES, SLOTS, PolicyEntry, add_forecast, policy_entry
from penstock.errors import BadInput, BadSettings
from penstock.settings.model import section_kinds
from penstock.units.fields import suggest_name
from penstock.units.texts import LONGEST_SHOWN, cut_text

GROUP = "penstock.policies"
"""The entry point group under which packages add policies."""
TEXTS = ("summary", "needs", "promises", "choose_when")


@dataclass(frozen=True, slots=True)
class InstalledPolicy:
    """A policy as the metadata of a package names it; nothing of it is imported yet."""

    point: EntryPoint
    package: str

    @property
    def origin(self) -> str:
        """The package with its version, and the object in it."""
        return f"{self.package} ({self.point.value})"

    def load(self) -> PolicyEntry:
        """Import it; BadInput says in one line why that fails."""
        name = self.point.name
        if name in POLICIES or name.startswith(PREFIX):
            raise BadInput(f"{name} of {self.origin}: Penstock has a policy of this name")
        with _without_current_directory():
            entry = load_policy(self.point.value, self.origin)
        if entry.name != name:
            raise BadInput(f"{name} of {self.origin}: it calls itself {entry.name!r}")
        return entry


def list_installed() -> tuple[InstalledPolicy, ...]:
    """List what installed packages add; of packages and names that appear twice the first counts."""
    found: dict[str, InstalledPolicy] = {}
    seen: set[str] = set()
    for package in distributions(path=_list_installed_paths()):
        called = package.metadata["Name"] or "a package without a name"
        if called in seen:
            continue
        seen.add(called)
        for point in package.entry_points.select(group=GROUP):
            found.setdefault(point.name, InstalledPolicy(point, f"{called} {package.version}"))
    return tuple(found.values())


def find_policy(name: str) -> PolicyEntry:
    """Find a policy of Penstock, or else of an installed package; `forecast:` may stand before either."""
    plain = name.removeprefix(PREFIX)
    if plain in POLICIES:
        return policy_entry(name)
    installed = {one.point.name: one for one in list_installed()}
    if plain not in installed:
        known = sorted({*POLICIES, *installed})
        raise BadSettings(f"policy: unknown policy {name!r}{suggest_name(name, known, cutoff=0.3)}")
    entry = installed[plain].load()
    return entry if plain == name else add_forecast(entry)


def list_policies() -> tuple[tuple[PolicyEntry, ...], tuple[str, ...]]:
    """List all policies, baselines last, and in one line each those that cannot be loaded."""
    entries, failures = list(POLICIES.values()), []
    for one in list_installed():
        try:
            entries.append(one.load())
        except BadInput as error:
            failures.append(str(error))
    return tuple(sorted(entries, key=lambda entry: entry.baseline)), tuple(failures)


def load_policy(place: str, origin: str = "") -> PolicyEntry:
    """Import `module:Class` and describe the policy; BadInput says what is wrong with it."""
    module, _, name = place.partition(":")
    if not module.strip() or not name.strip():
        raise BadInput(f"{place!r} is not module:Class")
    try:
        kind: Any = import_module(module.strip())
        for part in name.strip().split("."):
            kind = getattr(kind, part)
    except (Exception, SystemExit) as error:
        told = cut_text(" ".join(str(error).split()), LONGEST_SHOWN)
        raise BadInput(f"{origin or place}: cannot be imported: {type(error).__name__}: {told}") from error
    return _describe(kind, place, origin or place)


def _describe(kind: Any, place: str, origin: str) -> PolicyEntry:
    """Make an entry of a class; its attributes say what it sizes and what it takes."""
    name, propose = getattr(kind, "name", None), getattr(kind, "propose", None)
    if not isinstance(kind, type) or not callable(propose):
        raise BadInput(f"{place}: is no class with a method `propose`")
    if not isinstance(name, str) or not name.strip() or name != name.strip() or ":" in name:
        raise BadInput(f"{place}: its `name` is {name!r}, not a word for --policy")
    sections = tuple(getattr(kind, "sections", ()))
    unknown = [one for one in sections if one not in section_kinds().values()]
    if unknown:
        raise BadInput(f"{place}: its `sections` has {unknown[0]!r}, which is no section of the settings")
    sizes = frozenset(getattr(kind, "sizes", {SLOTS, OPERATORS}))
    if not sizes or not sizes <= {SLOTS, OPERATORS}:
        raise BadInput(f"{place}: its `sizes` has neither SLOTS nor OPERATORS, or something else")
    summary, needs, promises, choose_when = (str(getattr(kind, text, "")) for text in TEXTS)
    return PolicyEntry(
        name, summary, kind, sections, needs, promises, choose_when, sizes=sizes, origin=origin
    )


def _list_installed_paths() -> list[str]:
    """List where packages are installed: everything on the path but the current directory."""
    try:
        here = Path.cwd().resolve()
    except OSError:
        # it was deleted, so nothing can be in it
        here = None
    return [entry for entry in sys.path if entry not in {"", "."} and Path(entry).resolve() != here]


@contextmanager
def _without_current_directory() -> Iterator[None]:
    kept = list(sys.path)
    sys.path[:] = _list_installed_paths()
    try:
        yield
    finally:
        sys.path[:] = kept
