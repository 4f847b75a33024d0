"""Sessions that cannot be watched get one clear sentence; told by stand-ins, without a JVM."""

from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

from penstock.errors import SparkUnavailable, Unsupported
from penstock.observe.spark_session import can_change_executors, check_supported

ConnectSession = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})


class StandIn(SparkSession):
    """A session of some version, master and configuration, with nothing behind it."""

    def __init__(self, version="4.3.0", master="local-cluster[2,2,1024]", running=True, **conf):
        self._stated = version
        self._about = SimpleNamespace(master=master, _jsc=object() if running else None)
        self._settings = conf

    @property
    def version(self):
        return self._stated

    @property
    def sparkContext(self):  # noqa: N802
        return self._about

    @property
    def conf(self):
        return SimpleNamespace(get=self._settings.get)


def test_a_connect_session_is_told_where_to_attach():
    with pytest.raises(Unsupported, match=r"Spark Connect session.*attach in the driver's own process"):
        check_supported(ConnectSession())


@pytest.mark.parametrize("version", ["3.5.7", "4.0.1", "2.4", "unknown"])
def test_an_old_spark_is_told_what_is_needed(version):
    with pytest.raises(Unsupported, match=r"too old: Spark 4\.1 or later"):
        check_supported(StandIn(version))


@pytest.mark.parametrize("version", ["4.1.0", "4.3.0", "4.10.2", "5.0.0-SNAPSHOT"])
def test_newer_ones_are_fine(version):
    check_supported(StandIn(version))


def test_a_stopped_session_is_no_longer_there():
    with pytest.raises(SparkUnavailable, match="stopped"):
        check_supported(StandIn(running=False))


@pytest.mark.parametrize("other", [None, "session", 3])
def test_anything_else_is_named(other):
    with pytest.raises(Unsupported, match=f"not a {type(other).__name__}"):
        check_supported(other)


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]"])
def test_local_mode_has_nothing_to_change(master):
    assert "no executor processes" in can_change_executors(StandIn(master=master))


@pytest.mark.parametrize("master", ["local-cluster[2,2,1024]", "spark://host:7077", "yarn", "k8s://host"])
def test_clusters_can_be_changed(master):
    assert can_change_executors(StandIn(master=master)) is None


def test_two_controllers_would_fight():
    spark = StandIn(**{"spark.dynamicAllocation.enabled": "true"})
    assert "dynamicAllocation" in can_change_executors(spark)
