"""Ad events by number, and Redis on a real server."""

import socket
import threading
from collections import Counter
from contextlib import contextmanager

import pytest

from penstock.errors import ActionFailed, BadInput
from penstock.simulate.profiles import parse_profile
from penstock_lab.workloads.yahoo import (
    ADS_A_CAMPAIGN,
    ADS_KEY,
    CAMPAIGNS,
    AdEvents,
    AdSource,
    WindowResult,
    connect_redis,
    find_campaign,
    list_final_latencies,
    load_campaigns,
    read_results,
)
from tests.redis_server import redis_server

EVENTS = AdEvents(parse_profile("constant:500"), start=1_700_000_000.0, seed=4)


@pytest.fixture(scope="module")
def redis():
    with redis_server() as address:
        yield address


def test_a_third_are_views_and_all_ads_occur():
    batch = EVENTS.batch(0, 60_000)
    kinds = Counter(batch.column("event_type").to_pylist())
    assert kinds["view"] / 60_000 == pytest.approx(1 / 3, abs=0.01)
    assert set(batch.column("ad").to_pylist()) == set(range(CAMPAIGNS * ADS_A_CAMPAIGN))


def test_event_time_is_the_moment_of_the_offer_and_events_do_not_depend_on_the_range():
    batch = EVENTS.batch(1500, 2000)
    assert batch.column("event_time")[0].as_py().timestamp() == pytest.approx(1_700_000_003.0, abs=1e-3)
    assert EVENTS.batch(2500, 100).to_pylist() == batch.slice(1000, 100).to_pylist()


def test_ad_events_need_their_start():
    with pytest.raises(BadInput, match="start"):
        AdSource({"profile": "constant:1"}).schema()


def test_what_redis_refuses_is_an_error_of_ours(redis):
    with connect_redis(redis) as connection:
        connection.set("greeting", "grüezi")
    with pytest.raises(ActionFailed, match=f"Redis at {redis} failed"), connect_redis(redis) as connection:
        connection.incr("greeting")
    with connect_redis(redis) as connection:
        assert connection.get("greeting") == "grüezi"


def test_campaigns_are_loaded_and_old_results_forgotten(redis):
    with connect_redis(redis) as connection:
        connection.hset("campaign:7:1700000000", mapping={"count": 3, "updated": "1700000012.5"})
        assert read_results(redis) == [WindowResult(7, 1_700_000_000.0, 3, 1_700_000_012.5)]
        assert read_results(redis)[0].latency == pytest.approx(2.5)
        load_campaigns(redis)
        assert connection.hlen(ADS_KEY) == CAMPAIGNS * ADS_A_CAMPAIGN
        assert connection.hget(ADS_KEY, "25") == str(find_campaign(25)) == "2"
    assert read_results(redis) == []


def test_latency_is_over_windows_that_are_final_and_began_after_the_warm_up():
    # by window: the latency of its last change; the newest, at 30, may still change
    seen = {0: 9.0, 10: 2.0, 20: -0.5, 30: 0.1}
    found = [WindowResult(1, float(start), 5, start + 10 + late) for start, late in seen.items()]
    assert list_final_latencies(found, warm_up_seconds=10) == pytest.approx([2.0, -0.5])
    assert list_final_latencies(found) == pytest.approx([9.0, 2.0, -0.5])
    assert list_final_latencies([]) == list_final_latencies(found[:1]) == []


@pytest.mark.parametrize("address", ["localhost", "127.0.0.1:1", ":6379"])
def test_no_redis_is_a_clear_error(address):
    with pytest.raises(BadInput, match="Redis"), connect_redis(address):
        pass


@contextmanager
def another_server(reply):
    """Something that is no Redis, and answers a first line with this."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            connection, _ = listening.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(reply)
                connection.recv(1024)

        serving = threading.Thread(target=serve)
        serving.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        serving.join()


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "Protocol Error"),
        (b"\x15\x03\x01\x00\x02\x02F\r\n", "Protocol Error"),
        (b"-NOAUTH Authentication required.\r\n", "Authentication required"),
        (b"", "Timeout"),
    ],
)
def test_what_does_not_speak_as_redis_does_is_no_redis(reply, said):
    with (
        another_server(reply) as address,
        pytest.raises(BadInput, match=f"no Redis answers at {address} .*{said}"),
        # only what never answers is waited for
        connect_redis(address, timeout_seconds=10.0 if reply else 0.2),
    ):
        pass
