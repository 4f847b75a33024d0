"""Where a journal is, as messages may tell it."""

from __future__ import annotations

import re

_PASSWORD = re.compile(r"(://[^:/@]*:)[^?]*(?=@)|([?&](?:ssl)?password=)[^&]*")


def without_password(address: str) -> str:
    """The same address with its password, before the host or among the parameters, made unreadable."""
    return _PASSWORD.sub(lambda found: f"{found[1] or found[2]}***", address)
