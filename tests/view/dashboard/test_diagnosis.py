"""The page of diagnoses: logs that are dropped, paths that are named, and what is left of them."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.errors import ActionFailed, BadInput
from penstock.view.dashboard.access import Access
from penstock.view.dashboard.diagnosis_jobs import MOST_WAITING, DiagnosisJob, Jobs
from tests.view.dashboard.served import read_events, served
from tests.view.dashboard.test_access import read_csrf


def follow(client: httpx.Client, address: str, word: str) -> str:
    """Read events until the page holds a word."""
    return next(one["job"] for one in read_events(client, f"{address}/events") if word in one["job"])


def test_a_path_is_looked_at_and_left_where_it_is(client: httpx.Client, tmp_path: Path) -> None:
    token = {"x-penstock-csrf": read_csrf(client)}
    bad = tmp_path / "<b>no-log"
    bad.write_text("nonsense\n")
    address = client.post("/diagnosis/path", headers=token, json={"path": str(bad)}).json()["address"]
    told = follow(client, address, 'class="bad"')
    assert "&lt;b&gt;no-log" in told and "<b>no-log" not in told and str(tmp_path) not in told
    assert client.get(f"{address}/report").status_code == 404 and bad.exists()
    for path in ("", "/no/such/log", "/" + "x" * 300, "~nobody-here/log", "x" * 5000, 7):
        assert client.post("/diagnosis/path", headers=token, json={"path": path}).status_code == 400


@pytest.mark.parametrize("access", [Access(token="0123456789abcdef"), Access(proxy_header="x-user")])
def test_beyond_loopback_no_path_can_be_named(sockets: Path, access: Access) -> None:
    with served(sockets, access) as client:
        client.headers["x-user"] = "ada"
        client.get(f"/?token={access.token}")
        assert "or its path on this machine" not in client.get("/diagnosis").text
        token = {"x-penstock-csrf": read_csrf(client)}
        answer = client.post("/diagnosis/path", headers=token, json={"path": "/logs/app-1"})
        assert answer.status_code == 400 and "loopback" in answer.json()["error"]


def test_a_log_is_not_taken_without_the_token_of_the_page(client: httpx.Client) -> None:
    assert client.post("/diagnosis/upload", content=b"x").status_code == 403
    assert client.get("/diagnosis/unknown").status_code == 404


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def receive(jobs: Jobs, *parts: bytes, name: str = "log") -> DiagnosisJob:
    job = await jobs.receive(name, chunks(*parts))
    assert job.task is not None
    await job.task
    return job


@pytest.fixture
def jobs() -> Iterator[Jobs]:
    made = Jobs(most_bytes=20)
    yield made
    made.close()


def list_left(jobs: Jobs) -> list[Path]:
    assert jobs._room is not None
    return [path for path in Path(jobs._room.name).rglob("*") if path.is_file()]


def test_a_log_that_is_too_large_or_empty_leaves_nothing(jobs: Jobs) -> None:
    for parts in ((b"x" * 15, b"x" * 6), ()):
        with pytest.raises(BadInput):
            asyncio.run(receive(jobs, *parts))
    assert list_left(jobs) == [] and jobs.list_jobs() == []


def test_what_was_sent_is_ours_alone_and_gone_when_it_was_read(jobs: Jobs, tmp_path: Path) -> None:
    modes: list[int] = []

    async def peek() -> AsyncIterator[bytes]:
        yield b"nonsense\n"
        modes.extend(stat.S_IMODE(path.stat().st_mode) for path in list_left(jobs))
        modes.append(stat.S_IMODE(list_left(jobs)[0].parent.stat().st_mode))
        assert list_left(jobs)[0].parent.parent.parent == Path(jobs._room.name).parent  # type: ignore[union-attr]

    async def run() -> DiagnosisJob:
        job = await jobs.receive("../../etc/passwd", peek())
        assert job.task is not None
        await job.task
        return job

    job = asyncio.run(run())
    assert modes == [0o600, 0o700]
    assert job.error and list_left(jobs) == [], "its diagnosis has failed, and it is gone"
    room = Path(jobs._room.name)  # type: ignore[union-attr]
    jobs.close()
    assert not room.exists()


def test_only_so_many_wait_at_once() -> None:
    jobs = Jobs()

    def plan() -> Any:
        from penstock.diagnose.path.spans import Span

        return jobs.plan(Path("/logs/app"), Span())

    for _ in range(MOST_WAITING):
        plan()
    with pytest.raises(ActionFailed, match="under way"):
        plan()
    jobs.close()
