"""The lookup service answers over one connection and over many, and waits before it does."""

import http.client
import json
import socket
import struct
import threading
from contextlib import closing

from penstock_lab.jobs.lookup_service import LookupServer, lookup_service
from penstock_lab.jobs.tables import credit_limit
from tests.waiting import wait_for


def ask(address, *customers):
    with closing(http.client.HTTPConnection(address, timeout=30)) as connection:
        for customer in customers:
            connection.request("GET", f"/customers/{customer}")
            yield json.load(connection.getresponse())["credit"]


def test_a_service_of_its_own_process_answers():
    with lookup_service(wait_ms=1) as address:
        assert list(ask(address, 3, 300, 3)) == [credit_limit(3), credit_limit(300), credit_limit(3)]


def test_requests_wait_side_by_side():
    server = LookupServer(wait_seconds=0.0)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    address, found = f"127.0.0.1:{server.server_port}", []
    try:
        askers = [threading.Thread(target=lambda n=n: found.extend(ask(address, n))) for n in range(20)]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join()
        with closing(http.client.HTTPConnection(address, timeout=30)) as connection:
            connection.request("GET", "/nobody")
            assert connection.getresponse().status == 404
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
    assert sorted(found) == sorted(map(credit_limit, range(20)))


def test_a_client_that_resets_its_connection_leaves_no_traceback(capfd):
    server = LookupServer(0.001)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    before = threading.active_count()
    with socket.create_connection(("127.0.0.1", server.server_port)) as client:
        client.send(b"GET /customers/7 HTTP/1.1\r\n\r\n")
        assert client.recv(4096)
        # no lingering: closing it sends a reset
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_for("the end of its thread", lambda: threading.active_count() <= before or None)
    server.shutdown()
    serving.join()
    server.server_close()
    assert capfd.readouterr().err == ""
