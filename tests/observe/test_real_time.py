"""Queries that run all their tasks at once are named, and their slots are known."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.observe.real_time import RealTimeQueries, SlotsAtOnce


def job(tasks, active=0):
    return {"numTasks": tasks, "numActiveTasks": active}


def test_the_tasks_of_all_stages_are_reserved():
    queries = RealTimeQueries()
    queries.note("run-1", "clicks", "real-time mode", [job(5, 5)])
    queries.note("run-2", "prices", "continuous mode", [job(2, 2)])
    assert (queries.slots, queries.names) == (7, ("clicks", "prices"))
    assert queries.warn(7) == ()
    assert queries.describe(8) == (
        "query clicks runs in real-time mode, which Penstock does not size yet; its 5 tasks all run at once; "
        "query prices runs in continuous mode, which Penstock does not size yet; its 2 tasks all run at once"
        "; 7 slots (5 + 2) are needed at once, one for each task: 8 are held"
    )


def test_slots_that_are_missing_are_told_with_what_spark_does_then():
    queries = RealTimeQueries()
    queries.note("run-1", "clicks", "real-time mode", [job(5, 5)])
    (told,) = queries.warn(4)
    assert told == (
        "for clicks 5 slots are needed at once, one for each task: 4 are held, 1 is missing, and Spark ends "
        "a query that is short of them (CONCURRENT_SCHEDULER_INSUFFICIENT_SLOT)"
    )
    assert queries.describe(4).endswith(told.removeprefix("for clicks "))


@given(st.lists(st.integers(0, 500), max_size=5).map(tuple), st.integers(0, 500))
def test_what_is_missing_and_held_is_what_is_needed(stages: tuple[int, ...], held: int):
    at_once = SlotsAtOnce(stages, held)
    assert at_once.needed == sum(stages)
    assert at_once.missing == 0 if at_once.needed <= held else at_once.missing + held == at_once.needed
    assert ("missing" in at_once.describe()) is (at_once.missing > 0)


def test_between_two_jobs_the_last_tasks_count():
    queries = RealTimeQueries()
    queries.note("run", "clicks", "real-time mode", [job(5, 5)])
    queries.note("run", "clicks", "real-time mode", [])
    assert queries.slots == 5


def test_tasks_that_are_not_known_yet_are_a_warning():
    queries = RealTimeQueries()
    queries.note("run", "clicks", "real-time mode", [])
    assert queries.slots == 0
    assert "its tasks are not known yet" in queries.warn(0)[0]
    assert "its tasks are not known yet" in queries.describe(0)


def test_a_query_that_has_ended_reserves_nothing():
    queries = RealTimeQueries()
    queries.note("run", "clicks", "real-time mode", [job(5, 5)])
    queries.keep({"another"})
    assert (queries.slots, queries.names, queries.describe(4)) == (0, (), "")
