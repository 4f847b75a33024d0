"""What is free on a standalone cluster, told by a real HTTP server in the master's words."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import orjson
import pytest

from penstock.dataflow.window import SizingFacts
from penstock.decide.policy import Scale
from penstock.decide.sage.policy import SagePolicy
from penstock.decide.sage.resizer import Host, Limits
from penstock.decide.sage.settings import SageSettings
from penstock.decide.surroundings import Surroundings
from penstock.errors import BadInput
from penstock.observe.executors.standalone import StandaloneCluster, hosts_from, own_use
from tests.fakes import FixedPolicy, a_query, a_scale, a_window

GIB = 1024.0**3
CONF = {"spark.executor.memory": "2g", "spark.executor.memoryOverhead": "1g"}


def a_worker(host: str, cores: int, memory_mb: int, state: str = "ALIVE") -> dict[str, object]:
    return {"host": host, "coresfree": cores, "memoryfree": memory_mb, "state": state}


TOLD = {"workers": [a_worker("node", 3, 4096), a_worker("other", 1, 8192), a_worker("gone", 9, 9999, "DEAD")]}


@pytest.fixture
def master() -> Iterator[tuple[str, dict[str, bytes]]]:
    answers = {"text": orjson.dumps(TOLD)}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answers["text"])

        def log_message(self, *arguments: object) -> None:
            """Nothing is to be printed."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/json/", answers
    server.shutdown()
    server.server_close()


def a_sized_window(end: float = 10.0, backlog: float = 10.0):
    query = a_query(end - 10, backlog=backlog)
    return replace(a_window(end, queries=(query,)), sizing=SizingFacts(CONF))


def test_own_executors_count_as_free(master):
    assert own_use(a_sized_window()) == {"node": (4, 4 * GIB)}
    found = StandaloneCluster(master[0], 5.0).hosts(a_sized_window())
    assert found == (Host(7, 8 * GIB), Host(1, 8 * GIB))


def test_a_master_that_talks_nonsense_or_not_at_all_tells_nothing(master):
    url, answers = master
    answers["text"] = b"<html>"
    assert StandaloneCluster(url, 5.0).hosts(a_sized_window()) == ()
    assert StandaloneCluster("http://127.0.0.1:9/json/", 0.5).hosts(a_sized_window()) == ()
    with pytest.raises(BadInput, match="standalone master"):
        hosts_from(b'{"workers": [{"state": "ALIVE"}]}', {})


def test_growth_stops_where_the_hosts_are_full(master):
    limits = Limits(16, 64 * GIB, 1000, 1000 * GIB)
    hosts: list[Host] = []
    cluster = StandaloneCluster(master[0], 5.0)
    around = Surroundings(hosts=lambda window: tuple(hosts) or cluster.hosts(window))
    policy = SagePolicy(FixedPolicy(a_scale(9)), SageSettings(), limits=limits, around=around)
    for number in range(1, 14):
        answer = policy.propose(a_sized_window(10.0 * number, 1000.0 * number))
    assert not isinstance(answer, Scale), "two executors of 2 cores and 3 GiB are all that fits"
    hosts += [Host(7, 20 * GIB), Host(1, 8 * GIB)]
    answer = policy.propose(a_sized_window(140.0, 14_000.0))
    assert isinstance(answer, Scale) and answer.parallelism == {"executors": 3}
    assert "scattered over 2 hosts" in answer.reason
