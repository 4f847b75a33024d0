"""The versions of Spark that were tried, and how a version is read."""

from __future__ import annotations

import re

Version = tuple[int, int]
OLDEST_SPARK, NEWEST_SPARK = (4, 1), (4, 3)


def parse_version(text: str) -> Version | None:
    """Parse the first two numbers of a version such as 4.3.0."""
    found = re.match(r"(\d+)\.(\d+)", text.strip())
    return (int(found[1]), int(found[2])) if found else None
