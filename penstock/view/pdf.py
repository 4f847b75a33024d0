"""Pages printed as PDF by a Chromium that is installed; without one the page itself can be printed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from penstock.errors import ActionFailed, Unsupported

BROWSERS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
LONGEST_SECONDS = 120.0


def print_pdf(page: str, path: Path, find: Callable[[str], str | None] = shutil.which) -> Path:
    """Print a page to a file and return its absolute path."""
    browser = next(filter(None, map(find, BROWSERS)), None)
    if browser is None:
        raise Unsupported("no Chromium was found to print a PDF: install one, or print the page of --html")
    with tempfile.TemporaryDirectory(prefix="penstock-") as directory:
        source, made = Path(directory) / "page.html", Path(directory) / "page.pdf"
        source.write_text(page, encoding="utf-8")
        _run([browser, *_list_options(directory), f"--print-to-pdf={made}", source.as_uri()], directory)
        if not made.is_file():
            raise ActionFailed(f"{browser} printed no PDF")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(made.read_bytes())
        except OSError as error:
            raise ActionFailed(f"cannot write {path}: {error.strerror}") from error
    return path.resolve()


def _list_options(directory: str) -> list[str]:
    options = [
        "--headless",
        "--disable-gpu",
        "--no-pdf-header-footer",
        "--no-first-run",
        "--disable-background-networking",
        f"--user-data-dir={directory}/profile",
    ]
    # the sandbox does not work for root; the page is our own, and loads nothing
    return [*options, "--no-sandbox"] if os.geteuid() == 0 else options


def _run(command: list[str], directory: str) -> None:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=LONGEST_SECONDS,
            check=False,
            cwd=directory,
        )
    except subprocess.TimeoutExpired:
        raise ActionFailed(f"{command[0]} has not printed the page within {LONGEST_SECONDS:.0f} s") from None
    except OSError as error:
        raise ActionFailed(f"{command[0]} cannot be started: {error.strerror}") from error
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ActionFailed(f"{command[0]} could not print the page: {said[-1] if said else 'no reason'}")
