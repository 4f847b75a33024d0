"""What is free on a standalone cluster, told by a real HTTP server in the master's words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import orjson
import pytest

from penstock.dataflow.window import SizingFacts
from penstock.decide.policy import Scale
from penstock.decide.sage.policy import SagePolicy
from penstock.decide.sage.resizer import Host, Limits
from penstock.decide.sage.settings import SageSettings
from penstock.decide.surroundings import Surroundings
from penstock.errors import BadInput
from penstock.observe.executors.standalone import StandaloneCluster, own_use, read_free
from tests.fakes import FixedPolicy, a_query, a_scale, a_window
from tests.observe.web_server import WebServer
from tests.waiting import wait_for

GIB = 1024.0**3
CONF = {"spark.executor.memory": "2g", "spark.executor.memoryOverhead": "1g"}


def a_worker(host: str, cores: int, memory_mb: int, state: str = "ALIVE") -> dict[str, object]:
    return {"host": host, "coresfree": cores, "memoryfree": memory_mb, "state": state}


TOLD = {"workers": [a_worker("node", 3, 4096), a_worker("other", 1, 8192), a_worker("gone", 9, 9999, "DEAD")]}


@pytest.fixture
def master() -> Iterator[WebServer]:
    made = WebServer(orjson.dumps(TOLD).decode())
    yield made
    made.close()


def ask(url: str, timeout: float = 5.0) -> StandaloneCluster:
    cluster = StandaloneCluster(url, 1.0, timeout)
    cluster.look()
    return cluster


def a_sized_window(end: float = 10.0, backlog: float = 10.0):
    query = a_query(end - 10, backlog=backlog)
    return replace(a_window(end, queries=(query,)), sizing=SizingFacts(CONF))


def test_own_executors_count_as_free(master: WebServer):
    assert own_use(a_sized_window()) == {"node": (4, 4 * GIB)}
    assert ask(master.url).hosts(a_sized_window()) == (Host(7, 8 * GIB), Host(1, 8 * GIB))


def test_a_master_that_talks_nonsense_or_not_at_all_tells_nothing(master: WebServer):
    master.text = "<html>"
    assert ask(master.url).hosts(a_sized_window()) == ()
    assert ask("http://127.0.0.1:9/json/", 0.5).hosts(a_sized_window()) == ()
    with pytest.raises(BadInput, match="standalone master"):
        read_free(b'{"workers": [{"state": "ALIVE"}]}')


NESTED = "[" * 1000 + "]" * 1000


@pytest.mark.parametrize("cores", ["1e308", "-1", "1e400", "null", '"x"', "[]", NESTED])
@pytest.mark.parametrize("host", ['"a"', NESTED])
def test_a_master_that_tells_impossible_amounts_tells_nothing(cores: str, host: str):
    text = f'{{"workers": [{{"host": {host}, "coresfree": {cores}, "memoryfree": 1, "state": "ALIVE"}}]}}'
    with pytest.raises(BadInput, match="standalone master"):
        read_free(text.encode())


def test_hosts_have_names():
    for host in ("7", "null", NESTED):
        text = f'{{"workers": [{{"host": {host}, "coresfree": 1, "memoryfree": 1, "state": "ALIVE"}}]}}'
        with pytest.raises(BadInput, match="standalone master"):
            read_free(text.encode())


@pytest.mark.parametrize("part", ["body", "head"])
def test_a_master_that_drips_tells_nothing(master: WebServer, part: str, caplog: pytest.LogCaptureFixture):
    master.dripping, master.drip = part, 0.05
    cluster = ask(master.url, 0.3)
    cluster.look()
    assert cluster.hosts(a_sized_window()) == ()
    (record,) = caplog.records
    assert "timed out after 0.3 s" in record.message


def test_whoever_decides_does_not_wait_for_the_master(master: WebServer):
    """The loop's own thread asks for hosts, and that asks nobody."""
    cluster = StandaloneCluster(master.url, 0.02, 5.0)
    assert cluster.hosts(a_sized_window()) == () and master.asked == 0
    with cluster:
        wait_for("what the master tells", lambda: cluster.hosts(a_sized_window()), every=0.01)
    assert master.asked > 0


def test_what_the_master_told_long_ago_does_not_count(master: WebServer):
    cluster = StandaloneCluster(master.url, 0.0, 5.0, told_for=0.0)
    cluster.look()
    assert cluster.hosts(a_sized_window()) == ()


def test_growth_stops_where_the_hosts_are_full(master: WebServer):
    limits = Limits(16, 64 * GIB, 1000, 1000 * GIB)
    hosts: list[Host] = []
    cluster = ask(master.url)
    around = Surroundings(hosts=lambda window: tuple(hosts) or cluster.hosts(window))
    policy = SagePolicy(FixedPolicy(a_scale(9)), SageSettings(), limits=limits, around=around)
    for number in range(1, 14):
        answer = policy.propose(a_sized_window(10.0 * number, 1000.0 * number))
    assert not isinstance(answer, Scale), "two executors of 2 cores and 3 GiB are all that fits"
    hosts += [Host(7, 20 * GIB), Host(1, 8 * GIB)]
    answer = policy.propose(a_sized_window(140.0, 14_000.0))
    assert isinstance(answer, Scale) and answer.parallelism == {"executors": 3}
    assert "scattered over 2 hosts" in answer.reason
