"""Clusters that are kept between experiments, with stand-ins for sessions."""

from types import SimpleNamespace

from penstock.bench.spark_cluster import ClusterShape, _Kept

SHAPE = ClusterShape(3, 2, conf={"a": "1"})


class Session:
    """What is kept, and the sessions made of it."""

    def __init__(self, made_of=None):
        self.made_of = made_of
        self.stopped = []
        query = SimpleNamespace(stop=lambda: self.stopped.append(True))
        self.streams = SimpleNamespace(active=[query])

    def newSession(self):  # noqa: N802
        return Session(self)


def kept(session, shape=SHAPE):
    waiting = _Kept()
    waiting.wanted = True
    assert waiting.keeps(session, shape)
    return waiting


def test_a_cluster_of_the_same_shape_is_taken_once_as_a_new_session():
    first = Session()
    waiting = kept(first)
    assert first.stopped
    again = waiting.taken(ClusterShape(3, 2, name="another name", conf={"a": "1"}))
    assert again.made_of is first
    assert waiting.taken(SHAPE) is None


def test_a_cluster_of_another_shape_is_not_taken():
    assert kept(Session()).taken(ClusterShape(3, 2, conf={"a": "2"})) is None
    assert kept(Session()).taken(ClusterShape(4, 2, conf={"a": "1"})) is None


def test_nothing_is_kept_unless_that_is_wanted_nor_after_it_was_forgotten():
    assert not _Kept().keeps(Session(), SHAPE)
    waiting = kept(Session())
    waiting.forget()
    assert waiting.taken(SHAPE) is None
