"""No message tells the password of a journal."""

from __future__ import annotations

import pytest

from penstock.journal.address import without_password


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://user:secret@host:5432/db", "postgresql://user:***@host:5432/db"),
        ("postgresql://user:sec@ret/s@host/db", "postgresql://user:***@host/db"),
        ("postgresql://host/db?user=u&password=secret&x=1", "postgresql://host/db?user=u&password=***&x=1"),
        ("postgresql://host/db?sslpassword=secret", "postgresql://host/db?sslpassword=***"),
        ("postgresql://user@host:5432/db", "postgresql://user@host:5432/db"),
        ("postgresql://host:5432/db", "postgresql://host:5432/db"),
        ("/srv/a:b@c/journal.db", "/srv/a:b@c/journal.db"),
    ],
)
def test_a_password_is_hidden_and_nothing_else(address: str, shown: str) -> None:
    assert without_password(address) == shown
