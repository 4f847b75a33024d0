"""What a driver pays for being watched, from blocks whose answers are plain, and pages that are held open."""

import math
import time
from contextlib import closing
from pathlib import Path

import pytest

from penstock.errors import ActionFailed
from penstock_lab.experiments.overhead import Block, order_blocks
from penstock_lab.experiments.watched_driver import CLOSED, OPEN, compare_driver
from penstock_lab.ground.dashboard_server import follow_events, serve_dashboard
from tests.view.dashboard.served import FakeApplication
from tests.waiting import wait_for


def blocks(share_open: float, count: int = 16) -> list[Block]:
    shares = {True: (OPEN, share_open), False: (CLOSED, 0.2)}
    return [Block(shares[one][0], 500.0, 1.0, 20, 50.0, shares[one][1]) for one in order_blocks(count)]


def test_a_driver_that_pays_two_per_cent_is_told_so_with_an_interval() -> None:
    found = compare_driver(blocks(0.204))
    assert found.summary["driver_overhead_ratio"] == pytest.approx(1.02)
    assert found.summary["driver_overhead_ratio_low"] == pytest.approx(1.02)
    assert found.summary["driver_throughput_ratio"] == pytest.approx(1.0)
    assert [row["ratio"] for row in found.rows] == pytest.approx([1.02, 1.0])


def test_four_blocks_have_a_ratio_and_no_interval() -> None:
    found = compare_driver(blocks(0.2, count=4))
    assert found.summary["driver_overhead_ratio"] == pytest.approx(1.0)
    assert math.isnan(found.summary["driver_overhead_ratio_low"])


def is_left_alone(watched: FakeApplication) -> bool:
    """Tell whether nobody asks for longer than two rounds of the dashboard are apart."""
    before = len(watched.asked)
    time.sleep(2.5)
    return len(watched.asked) == before


def test_an_application_is_asked_while_its_page_is_followed_and_not_after(tmp_path: Path) -> None:
    with (
        closing(FakeApplication(tmp_path / "run", "app-1")) as watched,
        serve_dashboard(tmp_path) as (_, address),
    ):
        with follow_events(f"{address}applications/app-1/events"):
            before = len(watched.asked)
            wait_for("more rounds", lambda: len(watched.asked) >= before + 3)
        wait_for("the end of the rounds", lambda: is_left_alone(watched))
        with pytest.raises(ActionFailed), follow_events(f"{address}applications/none/events"):
            pass
