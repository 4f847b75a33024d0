"""Prints requirements.txt anew: each pin with the hashes of all its files that a supported system installs.

The index is asked that pip is set up with, so none is named here. After a changed pin `make hashes` runs it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename
from packaging.version import Version
from pip._internal.commands.download import DownloadCommand
from pip._internal.index.collector import LinkCollector, parse_links

PINS = Path(__file__).parent.parent / "requirements.txt"
OLDEST = 11
"""The oldest minor version of Python 3 that is supported."""


def read_pins(text: str) -> list[Requirement]:
    """Read the pins of a file in pip's format, without their hashes."""
    lines = (line.partition("--hash")[0].strip(" \\") for line in text.splitlines())
    return [Requirement(line) for line in lines if line]


def write_pin(pin: Requirement, hashes: list[str]) -> str:
    """Return a pin with its hashes, as pip reads them."""
    return " \\\n".join([str(pin), *(f"    --hash=sha256:{one}" for one in hashes)])


def list_hashes(collector: LinkCollector, pin: Requirement) -> Iterator[str]:
    """Yield the hashes of the files that the index has of a pinned version."""
    (version,) = (Version(one.version) for one in pin.specifier)
    sources = collector.collect_sources(canonicalize_name(pin.name), candidates_from_page=lambda _: ())
    for source in sources.index_urls:
        page = collector.fetch_response(source.link) if source is not None and source.link else None
        for link in parse_links(page) if page is not None else ():
            if is_of(link.filename, version) and link.hash_name == "sha256" and link.hash:
                yield link.hash


def is_of(filename: str, version: Version) -> bool:
    """Tell whether a file holds this version, and a supported Python on a supported system can install it."""
    try:
        if not filename.endswith(".whl"):
            return parse_sdist_filename(filename)[1] == version
        _, found, _, tags = parse_wheel_filename(filename)
    except ValueError:
        return False
    return found == version and any(
        is_python(tag.interpreter, tag.abi) and not tag.platform.startswith("win") for tag in tags
    )


def is_python(interpreter: str, abi: str) -> bool:
    """Tell whether a supported Python is meant: the files of PyPy and of older ones are many."""
    minor = interpreter.removeprefix("cp3")
    return interpreter.startswith("py") or (minor.isdecimal() and (int(minor) >= OLDEST or abi == "abi3"))


def main() -> int:
    """Print all pins with their hashes, or say which one the index does not have."""
    command = DownloadCommand("download", "")
    with command.main_context():
        options, _ = command.parse_args([])
        session = command.get_default_session(options)
        collector = LinkCollector.create(session, options)
        for pin in read_pins(PINS.read_text()):
            hashes = sorted(set(list_hashes(collector, pin)))
            if not hashes:
                sys.stderr.write(f"the index that pip is set up with has no file of {pin}\n")
                return 1
            sys.stdout.write(write_pin(pin, hashes) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
