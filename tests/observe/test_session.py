"""Sessions that cannot be watched get one clear sentence; told by stand-ins, without a JVM."""

from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.errors import SparkUnavailable, Unsupported
from penstock.observe.spark_session import can_change_executors, check_supported, find_driver_session
from penstock.observe.spark_status import java_context, spark_errors


class ConnectSession:
    """A Connect session whose server belongs to some application; `None` where it does not say."""

    def __init__(self, application="app-1"):
        self.conf = SimpleNamespace(
            get=lambda key, default: application if key == "spark.app.id" else default
        )


ConnectSession.__module__ = "pyspark.sql.connect.session"


class StandIn(SparkSession):
    """A session of some version, master and configuration, with nothing behind it."""

    def __init__(self, version="4.3.0", master="local-cluster[2,2,1024]", running=True, **conf):
        self._stated = version
        java = object() if running else None
        self._about = SimpleNamespace(master=master, _jsc=java, applicationId="app-1")
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
    with pytest.raises(Unsupported, match=r"its driver is another process: .*penstock connect-server"):
        check_supported(ConnectSession())


def test_behind_a_connect_session_is_the_classic_one_of_its_driver_if_that_is_here():
    here = StandIn()
    assert find_driver_session(ConnectSession(), here) is here
    assert find_driver_session(here, None) is here
    assert find_driver_session("not a session", here) == "not a session"


@pytest.mark.parametrize(
    ("application", "here"),
    [("app-1", None), ("app-1", StandIn(running=False)), ("app-2", StandIn()), (None, StandIn())],
    ids=["no driver here", "one that was stopped", "another application", "a server that does not say"],
)
def test_a_connect_session_of_another_driver_is_refused_with_the_way_out(application, here):
    with pytest.raises(Unsupported, match="penstock connect-server"):
        find_driver_session(ConnectSession(application), here)


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


@pytest.mark.parametrize(
    "error",
    [
        Py4JError("no such method"),
        Py4JNetworkError("the answer was cut off"),
        PySparkException("a query failed"),
        ConnectionRefusedError("nobody listens"),
        TimeoutError("no answer"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_py4j_pyspark_and_the_connection_raise_is_sparks(error):
    told = pytest.raises(SparkUnavailable, match="did not answer while counting executors")
    with told, spark_errors("counting executors"):
        raise error


@pytest.mark.parametrize("error", [AttributeError, TypeError, KeyError, FileNotFoundError])
def test_any_other_error_is_our_own_and_keeps_its_name(error):
    with pytest.raises(error), spark_errors("counting executors"):
        raise error("a bug")


def test_the_context_of_a_stopped_session_is_out_of_reach():
    with pytest.raises(SparkUnavailable, match="has been stopped"):
        java_context(StandIn(running=False))
