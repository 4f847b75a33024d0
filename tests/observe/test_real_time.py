"""Queries that run all their tasks at once are named, and their slots are known."""

from penstock.observe.real_time import RealTimeQueries


def job(tasks, active=0):
    return {"numTasks": tasks, "numActiveTasks": active}


def test_the_tasks_of_all_stages_are_reserved():
    queries = RealTimeQueries()
    queries.note("run-1", "clicks", "real-time mode", [job(5, 5)])
    queries.note("run-2", "prices", "continuous mode", [job(2, 2)])
    assert (queries.slots, queries.names) == (7, ("clicks", "prices"))
    assert queries.warnings == ()
    assert queries.describe() == (
        "query clicks runs in real-time mode, which Penstock does not size yet; its 5 tasks all run at once; "
        "query prices runs in continuous mode, which Penstock does not size yet; its 2 tasks all run at once"
    )


def test_between_two_jobs_the_last_tasks_count():
    queries = RealTimeQueries()
    queries.note("run", "clicks", "real-time mode", [job(5, 5)])
    queries.note("run", "clicks", "real-time mode", [])
    assert queries.slots == 5


def test_tasks_that_are_not_known_yet_are_a_warning():
    queries = RealTimeQueries()
    queries.note("run", "clicks", "real-time mode", [])
    assert queries.slots == 0
    assert "its tasks are not known yet" in queries.warnings[0]
    assert "its tasks are not known yet" in queries.describe()


def test_a_query_that_has_ended_reserves_nothing():
    queries = RealTimeQueries()
    queries.note("run", "clicks", "real-time mode", [job(5, 5)])
    queries.keep({"another"})
    assert (queries.slots, queries.names, queries.describe()) == (0, (), "")
