"""Clusters that are kept between experiments, with a stand-in for the session."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

from penstock_lab.ground.spark_cluster import ClusterShape, _Kept

SHAPE = ClusterShape(3, 2, conf={"a": "1"})


class Session:
    """A session that only keeps its settings and a query that may be running."""

    def __init__(self, **settings):
        self.settings = dict(settings)
        self.stopped = []
        query = SimpleNamespace(stop=lambda: self.stopped.append(True))
        self.streams = SimpleNamespace(active=[query])
        self.conf = SimpleNamespace(
            getAll=self.settings, set=self.settings.__setitem__, unset=self.settings.__delitem__
        )


def kept(session, shape=SHAPE, **settings):
    waiting = _Kept()
    waiting.wanted = True
    assert waiting.keeps(session, shape, settings)
    return waiting


def test_a_cluster_of_the_same_shape_is_taken_once():
    session = Session()
    waiting = kept(session)
    assert session.stopped
    assert waiting.taken(ClusterShape(3, 2, name="another name", conf={"a": "1"})) is session
    assert waiting.taken(SHAPE) is None


def test_what_was_set_meanwhile_is_as_it_was():
    session = Session(partitions="8", store="rocksdb", extra="1")
    kept(session, partitions="2", store="rocksdb", gone="x")
    assert session.settings == {"partitions": "2", "store": "rocksdb", "gone": "x"}


def test_a_cluster_of_another_shape_is_not_taken():
    assert kept(Session()).taken(ClusterShape(3, 2, conf={"a": "2"})) is None
    assert kept(Session()).taken(ClusterShape(4, 2, conf={"a": "1"})) is None


def test_nothing_is_kept_unless_that_is_wanted_nor_after_it_was_forgotten():
    assert not _Kept().keeps(Session(), SHAPE, {})
    waiting = kept(Session())
    waiting.forget()
    assert waiting.taken(SHAPE) is None


def test_how_java_logs_is_read_from_a_file_that_nobody_could_foresee(tmp_path: Path):
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (tmp_path / f"penstock-log4j2-{os.getuid()}.properties").symlink_to(precious)
    check = "from penstock_lab.ground.spark_cluster import _quiet_start; print(_quiet_start())"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, env=environment, check=True
    )
    assert precious.read_text() == "precious"
    assert (
        done.stdout.startswith(f"file://{tmp_path}/penstock-log4j2-") and len(list(tmp_path.iterdir())) == 2
    )
