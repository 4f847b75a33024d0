"""What a server for Spark Connect is told, whom it lets in, and where; Spark is in tests/spark."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest

from penstock.errors import BadInput, Unsupported
from penstock.runtime.connect import (
    ADDRESS_KEY,
    PORT_KEY,
    TOKEN_KEY,
    TOKEN_VARIABLE,
    choose_token,
    complete_conf,
    keep_token,
    name_address,
    read_port,
    require_free,
)


@pytest.mark.parametrize(
    ("given", "port", "expected"),
    [
        ({}, None, ("127.0.0.1", 15002)),
        ({}, 0, ("127.0.0.1", 0)),
        ({PORT_KEY: "16000"}, None, ("127.0.0.1", 16000)),
        ({PORT_KEY: "16000", ADDRESS_KEY: "10.0.0.1"}, 17000, ("10.0.0.1", 17000)),
    ],
)
def test_nobody_beyond_this_machine_is_let_in_unless_it_is_asked_for(given, port, expected):
    conf = complete_conf(given, port)
    assert (conf[ADDRESS_KEY], read_port(conf)) == expected


@pytest.mark.parametrize("written", ["", "ssh", "-1", "65536"])
def test_a_port_that_is_none_is_named(written):
    with pytest.raises(BadInput, match=r"spark\.connect\.grpc\.binding\.port: a port from 0 to 65535"):
        read_port({PORT_KEY: written})


def test_a_token_is_made_where_none_is_given():
    assert choose_token({TOKEN_KEY: "from conf"}, {TOKEN_VARIABLE: "from environment"}) == ("from conf", True)
    assert choose_token({}, {TOKEN_VARIABLE: "from environment"}) == ("from environment", True)
    (one, one_given), (other, _) = choose_token({}, {}), choose_token({}, {TOKEN_VARIABLE: ""})
    assert len(one) >= 32 and one != other and not one_given


def test_only_this_user_can_read_the_token_and_it_goes_with_the_server(tmp_path: Path):
    directory = tmp_path / "run"
    with keep_token(directory, 15002, "sesame") as file:
        assert file.read_text() == "sesame\n"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert not file.exists()
    file.write_text("of a server that was killed")
    with keep_token(directory, 15002, "sesame"):
        assert file.read_text() == "sesame\n"


def test_a_token_is_not_kept_where_others_look(tmp_path: Path):
    (tmp_path / "open").mkdir(mode=0o755)
    with pytest.raises(Unsupported, match="open to other users"), keep_token(tmp_path / "open", 1, "sesame"):
        pass


@pytest.mark.parametrize(
    ("host", "named"),
    [
        ("127.0.0.1", "sc://localhost:9"),
        ("::1", "sc://localhost:9"),
        ("localhost", "sc://localhost:9"),
        ("10.0.0.1", "sc://10.0.0.1:9"),
        ("fd00::1", "sc://[fd00::1]:9"),
        ("spark.example", "sc://spark.example:9"),
    ],
)
def test_an_address_is_what_a_client_can_use(host, named):
    assert name_address(host, 9) == named


def test_an_address_that_is_taken_is_refused_with_the_way_out():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        told = rf"cannot serve at 127\.0\.0\.1:{port}: another process listens there; take another"
        with pytest.raises(Unsupported, match=told):
            require_free("127.0.0.1", port, "take another")
    require_free("127.0.0.1", port, "take another")
    with pytest.raises(Unsupported, match=r"cannot serve at 192\.0\.2\.1"):
        require_free("192.0.2.1", port, "take another")
