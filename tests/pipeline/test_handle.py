"""The handle: it runs the pipeline while it leads, stands by while another does, and takes over."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import contextmanager

import httpx
import pytest

from penstock.cli import perform
from penstock.errors import ActionFailed, NotLeading
from penstock.journal.leading import Leadership, LeaseKeeper
from penstock.journal.store import open_journal
from penstock.pipeline.handle import PipelineHandle
from penstock.pipeline.metrics import tell_as_application
from penstock.runtime.control import find_running
from penstock.runtime.loop import Cycle
from penstock.settings.model import Settings
from tests.pipeline.test_definition import thumbnails
from tests.waiting import wait_for


class FakeTerm:
    """A pipeline that remembers what was done with it."""

    def __init__(self):
        self.queries, self.said, self.failed, self.problem = {"resize": 1}, [], [], None
        self.gone = False
        self.goes_on = threading.Event()
        self.goes_on.set()

    def tick(self, now):
        self.said.append("tick")
        self.goes_on.wait()
        if self.problem is not None:
            raise self.problem
        return Cycle(now, error="no window")

    def scale(self, function, parallelism):
        self.said.append((function, parallelism))
        return parallelism or 1

    def function(self, name):
        return {"reads": [], "writes": None, "parallelism": 2, "arrival_per_second": 7.0}

    def failures(self):
        return self.failed

    @property
    def fusing(self):
        return {"groups": [], "changes": []}

    def decisions(self):
        return []

    @property
    def totals(self):
        return {"failed_cycles": 3}

    def batches(self, function):
        return ("a batch",)

    def leave(self):
        self.said.append("leave")

    def stop(self):
        self.said.append("stop")


@pytest.fixture
def place(tmp_path):
    (tmp_path / "run").mkdir(mode=0o700)
    return tmp_path


@contextmanager
def a_process(place, holder, begin_term=None, patience=3.0, **changes):
    """A handle with a journal of its own, as another process would have one."""
    journal = open_journal(place / "journal.db")
    keeper = LeaseKeeper(Leadership(journal.leases, "thumbnails", holder, patience))
    terms = []

    def begin():
        terms.append(FakeTerm())
        return terms[-1]

    settings = Settings(runtime_directory=str(place / "run"), policy_interval=0.1, **changes)
    handle = PipelineHandle(thumbnails(), keeper, begin_term or begin, settings, journal.close)
    try:
        yield handle, terms
    finally:
        handle.stop()


def test_the_first_leads_and_answers_and_the_second_takes_over_when_it_stops(place):
    with a_process(place, "a") as (first, terms), a_process(place, "b") as (second, later):
        first.begin()
        second.begin()
        assert first.leads and not second.leads and second.queries == {}
        wait_for("the name of the leader", lambda: second.status()["leader"] == "a")
        assert second.status()["functions"]["resize"] == {"reads": ["images"], "writes": "small"}
        with pytest.raises(NotLeading, match="thumbnails is not run by this process; a leads"):
            second.scale("resize", 3)
        assert find_running(place / "run" / "pipelines", None).ask("scale", function="resize", parallelism=3)
        wait_for("a tick", lambda: "tick" in terms[0].said)
        assert ("resize", 3) in terms[0].said and first.status()["error"] == "no window"
        first.stop()
        assert terms[0].said[-2:] == ["leave", "stop"] and first.wait(1)
        assert first.batches("resize") == ("a batch",) and not first.status()["leads"]
        wait_for("the second to lead", lambda: second.leads)
        assert len(later) == 1
        wait_for(
            "an answer of the leader",
            lambda: find_running(place / "run" / "pipelines", None).ask("status")["status"]["leader"] == "b",
        )


def test_the_one_who_leads_serves_its_metrics_and_the_next_one_after_it(place):
    # both are given the same port, as processes of one setting on one machine are
    port = find_free_port()
    metrics = {"metrics": f"127.0.0.1:{port}"}
    with a_process(place, "a", **metrics) as (first, _), a_process(place, "b", **metrics) as (second, _):
        first.begin()
        second.begin()
        assert second.metrics_url is None
        told = httpx.get(first.metrics_url).text
        who = 'application="a",'
        assert f'penstock_function_instances{{{who}function="resize",name="thumbnails"}} 2.0' in told
        assert f'penstock_failed_cycles_total{{{who}name="thumbnails"}} 3.0' in told
        first.stop()
        assert first.metrics_url is None
        wait_for("the second to serve", lambda: second.metrics_url)
        assert 'application="b"' in httpx.get(second.metrics_url).text


def test_a_port_that_is_taken_costs_the_metrics_alone(place):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with a_process(place, "a", metrics=address) as (handle, _):
            handle.begin()
            assert handle.leads and handle.metrics_url is None


def find_free_port():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


def test_one_who_has_lost_the_lead_stops_its_functions_and_stands_by(place):
    with a_process(place, "a", patience=2.0) as (first, terms):
        first.begin()
        journal = open_journal(place / "journal.db")
        lease = None
        while lease is None:
            lease = journal.leases.take("thumbnails", "b", journal.leases.seen("thumbnails"))
        wait_for("the end of the term", lambda: not first.leads and terms[0].said[-1] == "stop")
        journal.leases.release(lease)
        wait_for("the first to lead", lambda: first.leads)
        assert len(terms) == 2
        journal.close()


def test_what_cannot_be_started_is_raised_and_the_lease_given_back(place):
    def fail():
        raise ValueError("no such table")

    with a_process(place, "a", fail) as (handle, _), pytest.raises(ValueError, match="no such table"):
        handle.begin()
    with a_process(place, "b") as (other, _):
        assert other.begin().leads


def test_a_takeover_that_fails_is_told_and_lets_others_lead(place):
    def fail():
        raise ValueError("no such table")

    with a_process(place, "a") as (first, _), a_process(place, "b", fail) as (second, _):
        first.begin()
        second.begin()
        first.stop()
        with pytest.raises(ActionFailed, match="thumbnails cannot be started: no such table"):
            second.wait(20)
        with a_process(place, "c") as (third, _):
            assert third.begin().leads


def test_a_failure_in_a_cycle_stops_nothing_and_a_failed_function_ends_the_wait(place):
    with a_process(place, "a") as (handle, terms):
        handle.begin()
        terms[0].problem = RuntimeError("unexpected")
        wait_for("the error", lambda: "unexpected" in (handle.status()["error"] or ""))
        assert handle.leads
        assert handle.wait(0.1) is False
        terms[0].failed = ["resize failed"]
        with pytest.raises(ActionFailed, match="resize failed"):
            handle.wait(5)


def test_a_loop_that_hangs_is_told_by_status_health_metrics_and_the_log(place, caplog, capsys):
    (place / "penstock.yaml").write_text(f"runtime_directory: {place / 'run'}\n")

    def ask_health(*names):
        code = perform(["health", *names, "--config", str(place / "penstock.yaml"), "--json"])
        return code, json.loads(capsys.readouterr().out.splitlines()[-1] if code != 2 else "null")

    with a_process(place, "a") as (handle, terms):
        handle._heart.hangs_after = 0.3
        handle.begin()
        terms[0].goes_on.clear()
        wait_for("the watchdog", lambda: "its loop has not come round" in caplog.text)
        assert "in tick" in caplog.text and "the autopilot hangs" in handle.status()["error"]
        code, told = ask_health()
        assert (code, [one["name"] for one in told["applications"]]) == (1, ["thumbnails"])
        known = tell_as_application(handle.status())["heartbeat"]
        assert known["hangs"] and known["hangs_after_seconds"] == 0.3
        handle._heart.hangs_after = 60.0
        terms[0].goes_on.set()
        wait_for("the loop", lambda: handle.status()["error"] == "no window")
        assert ask_health("thumbnails")[0] == 0


def test_a_session_that_was_stopped_ends_it_and_lets_others_lead(place):
    with a_process(place, "a") as (handle, terms):
        handle.begin()
        terms[0].gone = True
        with pytest.raises(ActionFailed, match="thumbnails has ended: Spark was stopped"):
            handle.wait(20)
        with a_process(place, "b") as (other, _):
            assert other.begin().leads
