"""`penstock diagnose` keeps to the command contract."""

from __future__ import annotations

import pytest

from penstock.cli import perform


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["/no/such/log"], "/no/such/log"),
        ([".", "--window", "soon"], "--window"),
        ([".", "--from", "yesterday"], "--from"),
        ([".", "--to", "noon"], "--to"),
    ],
)
def test_bad_usage_is_one_line_that_names_the_place(arguments, named, capsys):
    assert perform(["diagnose", *arguments]) == 2
    complaint = capsys.readouterr().err
    assert named in complaint
    assert complaint.count("\n") == 1
