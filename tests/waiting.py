"""The one way in which tests wait, with patience for a busy machine."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

Value = TypeVar("Value")
PATIENCE_SECONDS = 180


def wait_for(
    what: str,
    attempt: Callable[[], Value | None],
    every: float = 0.1,
    patience: float = PATIENCE_SECONDS,
    seen: Callable[[], object] | None = None,
) -> Value:
    """Try until the attempt gives something that is true, and return it; `seen` tells a failure's story."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        value = attempt()
        if value:
            return value
        time.sleep(every)
    story = f": {seen()}" if seen is not None else ""
    raise AssertionError(f"waited {patience:g} s in vain for {what}{story}")


@contextmanager
def started(words: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Start a process that is killed at the end: a test that fails must not wait for it for ever."""
    with subprocess.Popen(words, **options) as process:
        try:
            yield process
        finally:
            process.kill()
