"""Each advice fits its evidence, is replayed for itself in the span, and names what to set."""

from __future__ import annotations

import pytest

from penstock.diagnose.diagnosis import diagnose_log
from penstock.diagnose.findings.advice import scale_heap
from penstock.diagnose.findings.stragglers import find_straggler
from penstock.diagnose.path.spans import Span
from penstock.view.diagnosis_terminal import rank_operators
from tests.diagnose.eventful_logs import EventfulLog, plan, waves
from tests.diagnose.logs import BASE


def one_stage(log, tasks, scopes=("Exchange",)):
    """A job of one stage of these tasks (executor, launch, finish, fields) from second 1 on."""
    log.job(0, 1000, [0]).attempt(0, 0, 1000, len(tasks), scopes=scopes)
    for executor, launch, finish, fields in tasks:
        log.task(0, executor, launch, finish, **fields)
    end = max(finish for _, _, finish, _ in tasks)
    return log.attempt(0, 0, 1000, len(tasks), scopes=scopes, done=end).job_end(0, end).application_end(end)


def test_more_partitions_are_worth_what_they_bring():
    """Two tasks of 10 s on eight slots; the median is the longest, so no straggler's gain is told."""
    log = EventfulLog().properties(sql__adaptive__enabled="false").executor("1", 0, cores=8)
    read = one_stage(log, [("1", 1000, 11_000, {"shuffled": 100}), ("1", 1000, 11_000, {"shuffled": 100})])
    finding = diagnose_log(read.read(), Span()).findings[0]
    assert finding.kind == "few partitions"
    assert finding.gain_seconds == pytest.approx(7.5, abs=0.01)  # 10 s become 2.5 s on eight slots
    assert finding.gain_share == pytest.approx(7.5 / 11, abs=0.01)
    assert finding.settings == {"spark.default.parallelism": "8"}


def test_more_executors_are_worth_what_their_own_replay_says():
    log = EventfulLog().executor("1", 0, cores=2).executor("2", 0, cores=2)
    log.job(0, 1000, [0]).attempt(0, 0, 1000, 40)
    end = waves(log, 0, ["1", "1", "2", "2"], 40, 1000, 1000)
    found = diagnose_log(log.job_end(0, end).application_end(end).read(), Span())
    finding = found.findings[0]
    assert finding.kind == "few slots"
    assert finding.gain_seconds == pytest.approx(5)
    doubled = next(item for item in found.what_if.forecasts if item.slots == 8)
    assert finding.gain_seconds == pytest.approx(found.what_if.replayed_seconds - doubled.seconds)
    assert finding.settings == {"spark.executor.instances": "4"}


def test_gains_are_those_of_the_span():
    log = EventfulLog().executor("1", 0, cores=1)
    for job in range(4):
        at = 1000 + 10_000 * job
        log.job(job, at, [job]).attempt(job, 0, at, 10)
        log.job_end(job, waves(log, job, ["1"], 10, at, 1000))
    read = log.application_end(41_000).read()
    span = Span(start_us=(BASE + 11_000) * 1000, end_us=(BASE + 21_000) * 1000)
    whole, part = diagnose_log(read, Span()).findings[0], diagnose_log(read, span).findings[0]
    assert whole.gain_seconds == pytest.approx(20, rel=0.02)
    assert part.gain_seconds == pytest.approx(5, rel=0.02)
    assert diagnose_log(read, span).what_if.measured_seconds == pytest.approx(10)


def test_the_straggler_is_the_task_that_held_up_the_stage():
    """One long task ended long before its stage did; another, launched late, held it up."""
    log = EventfulLog().executor("1", 0, cores=4)
    tasks = [("1", 1000, 15_000, {"partition": 0})]
    tasks += [("1", 1000 + 1000 * n, 2000 + 1000 * n, {"partition": 1 + n}) for n in range(4)]
    tasks += [("1", 1000, 2000, {"partition": 5}), ("1", 12_000, 25_000, {"partition": 6})]
    straggler = find_straggler(one_stage(log, tasks).read(), "stage 0: Exchange")
    assert (straggler.partition, straggler.seconds) == (6, 13.0)


def test_a_long_task_that_nobody_waited_for_is_not_named():
    log = EventfulLog().executor("1", 0, cores=2)
    tasks = [("1", 1000, 8000, {"partition": 0})]
    tasks += [("1", 1000 + 1000 * n, 2000 + 1000 * n, {"partition": 1 + n}) for n in range(9)]
    assert find_straggler(one_stage(log, tasks).read(), "stage 0: Exchange") is None


def scan(empty):
    log = EventfulLog().executor("1", 0, cores=4)
    tasks = [("1", 1000, 1050, {"partition": n, "scanned": 0}) for n in range(empty)]
    tasks += [("1", 1000, 9000, {"partition": empty, "scanned": 11_390_100, "input": 800_000_000})]
    return diagnose_log(one_stage(log, tasks, scopes=("Scan parquet",)).read(), Span())


def test_a_scan_with_empty_splits_is_not_told_to_split_hot_keys():
    finding = scan(empty=3).findings[0]
    assert "hot keys" not in finding.advice and "11390100" not in finding.sentence + finding.advice
    assert finding.kind == "uneven splits"
    assert "spark.sql.files.maxPartitionBytes" in finding.settings


def test_skewed_keys_are_told_with_their_distribution_and_levelled_in_the_replay():
    log = EventfulLog().executor("1", 0, cores=4)
    tasks = [("1", 1000, 2000, {"partition": n, "shuffled": 100}) for n in range(3)]
    tasks += [("1", 1000, 10_000, {"partition": 3, "shuffled": 900})]
    finding = diagnose_log(one_stage(log, tasks).read(), Span()).findings[0]
    assert finding.kind == "skew"
    assert "900 records, 9.0 times the median of 100" in finding.sentence
    # 12 s of work on four slots take 3 s instead of 9
    assert finding.gain_seconds == pytest.approx(6, abs=0.1)


def test_stragglers_of_every_batch_are_levelled():
    log, at = EventfulLog().executor("1", 0, cores=4), 1000
    for job in range(3):
        log.job(job, at, [job]).attempt(job, 0, at, 4, scopes=("Exchange",))
        for partition in range(4):
            longer = partition == 3
            fields = {"partition": partition, "shuffled": 900 if longer else 100}
            log.task(job, "1", at, at + (9000 if longer else 1000), **fields)
        log.job_end(job, at + 9000)
        at += 9000
    finding = diagnose_log(log.application_end(at).read(), Span()).findings[0]
    # each job takes 3 s instead of 9
    assert finding.gain_seconds == pytest.approx(18, abs=0.1)


def copied(copy_finish, copy_won):
    log = EventfulLog().properties(speculation="true").executor("1", 0, cores=4).executor("2", 0, cores=4)
    killed = {"killed": True, "reason": {"Reason": "TaskKilled", "Kill Reason": "another attempt succeeded"}}
    tasks = [("1", 1000, 2000, {"partition": n}) for n in range(7)]
    original, copy = {"partition": 7}, {"partition": 7, "speculative": True}
    tasks.append(("1", 1000, copy_finish, original | (killed if copy_won else {})))
    tasks.append(("2", 3000, copy_finish, copy | ({} if copy_won else killed)))
    return diagnose_log(one_stage(log, tasks).read(), Span())


def test_no_speculation_is_advised_where_a_copy_was_no_faster():
    finding = copied(11_000, copy_won=False).findings[0]
    assert "spark.speculation" not in finding.settings
    assert "speculative copy" in finding.advice and "no faster" in finding.advice


def test_a_copy_that_won_keeps_the_time_that_was_waited_for_it():
    found = copied(11_000, copy_won=True)
    assert found.what_if.replayed_seconds == pytest.approx(found.what_if.measured_seconds)


def test_speculation_is_advised_where_none_ran():
    log = EventfulLog().executor("1", 0, cores=4).executor("2", 0, cores=4)
    tasks = [("1", 1000, 2000, {"partition": n}) for n in range(7)] + [("2", 1000, 9000, {"partition": 7})]
    finding = diagnose_log(one_stage(log, tasks).read(), Span()).findings[0]
    assert finding.settings == {"spark.speculation": "true"}
    assert finding.gain_seconds == pytest.approx(7, abs=0.1)


def short_jobs(tasks, launch_gap):
    """Fifty jobs of one stage each, whose time is the driver's."""
    log, at = EventfulLog().executor("1", 0, cores=4), 1000
    for job in range(50):
        log.job(job, at, [job]).attempt(job, 0, at + 100, tasks)
        for task in range(tasks):
            launch = at + 150 + launch_gap * task
            log.task(job, "1", launch, launch + 5, partition=task)
        end = at + 150 + launch_gap * tasks + 5
        log.attempt(job, 0, at + 100, tasks, done=end).job_end(job, end)
        at = end + 5
    return diagnose_log(log.application_end(at).read(), Span())


def test_stages_of_one_task_are_not_told_to_use_fewer_tasks():
    finding = next(one for one in short_jobs(1, 0).findings if one.cause == "scheduling")
    assert "larger tasks" not in finding.advice and "fewer tasks" not in finding.advice
    assert "50 jobs" in finding.advice


def test_many_small_tasks_are_told_how_many_would_do():
    finding = next(one for one in short_jobs(100, 6).findings if one.cause == "scheduling")
    assert finding.kind == "small tasks"
    assert not any("more executors would shorten" in one.advice for one in short_jobs(100, 6).findings)
    assert finding.settings == {"spark.default.parallelism": "8"}


def test_a_slow_executor_is_named():
    log = EventfulLog().executor("1", 0, cores=4).executor("2", 0, cores=4)
    tasks = [("1", 1000, 2000, {"partition": n}) for n in range(4)]
    tasks += [("2", 1000, 9000, {"partition": 4 + n}) for n in range(4)]
    finding = diagnose_log(one_stage(log, tasks).read(), Span()).findings[0]
    assert finding.kind == "slow executor"
    assert "executor 2" in finding.sentence
    assert finding.gain_seconds == pytest.approx(7, abs=0.1)


def test_a_slow_host_is_named_rather_than_one_of_its_executors():
    log = EventfulLog()
    for name, host in zip("123456", ("a", "a", "b", "b", "c", "c"), strict=True):
        log.on_host(name, host)
    tasks = [(str(1 + n // 2), 1000, 2000 if n < 8 else 7000, {"partition": n}) for n in range(12)]
    finding = diagnose_log(one_stage(log, tasks).read(), Span()).findings[0]
    assert finding.kind == "slow host" and "host c" in finding.sentence
    assert finding.gain_seconds == pytest.approx(5, abs=0.1)


def test_waiting_for_executors_names_how_many_to_keep():
    log = EventfulLog().properties(dynamicAllocation__enabled="true").job(0, 0, [0]).attempt(0, 0, 0, 2)
    log.executor("1", 6000, cores=1).executor("2", 6000, cores=1)
    log.task(0, "1", 6000, 10_000).task(0, "2", 6000, 10_000)
    found = diagnose_log(log.job_end(0, 10_000).application_end(10_000).read(), Span())
    assert found.findings[0].cause == "executors"
    assert found.findings[0].settings == {"spark.dynamicAllocation.minExecutors": "2"}


def test_spill_is_named_with_its_size_and_the_partitions_that_avoid_it():
    log = EventfulLog().properties(sql__shuffle__partitions=4, sql__adaptive__enabled="false")
    log.executor("1", 0, cores=4)
    work = {"shuffled": 1000, "cpu": 4000, "spilled": 3_000_000_000, "spilled_to_disk": 900_000_000,
            "peak": 1_000_000_000}  # fmt: skip
    tasks = [("1", 1000, 11_000, {"partition": n} | work) for n in range(4)]
    log.sql(7, 900, plan("Exchange"))
    log.job(0, 1000, [0], properties={"spark.sql.execution.id": "7"}).attempt(0, 0, 1000, 4, scopes=("Sort",))
    for executor, launch, finish, fields in tasks:
        log.task(0, executor, launch, finish, **fields)
    found = diagnose_log(log.job_end(0, 11_000).sql_end(7, 11_000).application_end(11_000).read(), Span())
    finding = found.findings[0]
    assert finding.kind == "spill"
    assert "12.0 GB" in finding.sentence and "3.6 GB to disk" in finding.sentence
    assert finding.settings == {"spark.sql.shuffle.partitions": "16"}
    assert 0 < finding.gain_seconds <= 6.01  # at most what the tasks did not compute


def test_garbage_collection_names_the_heap():
    log = EventfulLog().properties(executor__memory="4g").executor("1", 0, cores=4)
    tasks = [("1", 1000, 11_000, {"partition": n, "gc": 6000}) for n in range(4)]
    finding = diagnose_log(one_stage(log, tasks).read(), Span()).findings[0]
    assert finding.cause == "gc"
    # 60 % would need six times the heap: that is for smaller objects, not for one setting
    assert finding.settings == {"spark.executor.memory": "16g"}
    assert "a heap of 16g would be a first step" in finding.sentence
    assert finding.gain_seconds == pytest.approx(6, abs=0.1)


@pytest.mark.parametrize(
    ("share", "held", "growth"),
    [
        # 0.3 / 0.7 is 3.86 times 0.1 / 0.9, and so must the free part of the heap grow
        (0.3, 0.0, 3.857), (0.3, 0.6, 0.6 + 0.4 * 3.857), (0.1, 0.6, 1.0), (0.05, 0.0, 1.0), (1.0, 0.0, 4.0),
    ],
)  # fmt: skip
def test_the_heap_grows_until_collections_are_rare_enough(share, held, growth):
    assert scale_heap(share, 0.1, held) == pytest.approx(growth, abs=0.001)


def test_garbage_collection_of_a_local_application_is_the_drivers():
    log = EventfulLog().properties(driver__memory="2g", master="local[4]").executor("driver", 0, cores=4)
    tasks = [("driver", 1000, 11_000, {"partition": n, "gc": 3000}) for n in range(4)]
    finding = diagnose_log(one_stage(log, tasks).read(), Span()).findings
    (found,) = [one for one in finding if one.cause == "gc"]
    # 2 GiB times 0.6 + 0.4 * 3.857, in mebibytes
    assert found.settings == {"spark.driver.memory": "4389m"}
    assert "a heap of 4389m would bring it to 10%" in found.sentence


def test_the_operators_table_shows_the_named_bottleneck_first():
    """100 workers share it, so that divided by them it would be less than what one small task has."""
    log = EventfulLog()
    for number in range(100):
        log.executor(str(number), 0, cores=1)
    log.job(0, 100, [0]).attempt(0, 0, 100, 1, scopes=("Small",)).task(0, "0", 100, 1100)
    log.attempt(0, 0, 100, 1, done=1100).job_end(0, 1100)
    log.job(1, 1100, [1]).attempt(1, 0, 1100, 1000, scopes=("Large",))
    end = waves(log, 1, [str(number) for number in range(100)], 1000, 1100, 300)
    found = diagnose_log(
        log.attempt(1, 0, 1100, 1000, done=end).job_end(1, end).application_end(end).read(), Span()
    )
    name, share, workers = rank_operators(found.whole)[0]
    assert name.endswith("Large") and share > 0.5 and workers == 100
    assert "Large" in found.answer


def test_three_findings_at_most_and_five_lines():
    found = copied(11_000, copy_won=False)
    assert len(found.findings) <= 3
    assert len(found.answer.splitlines()) <= 5


def test_where_the_replay_misses_what_happened_no_gain_is_told():
    log = EventfulLog().executor("1", 0, cores=2).job(0, 1000, [0]).attempt(0, 0, 1000, 4)
    for number in range(4):
        log.task(0, "1", 1000 + 3000 * number, 2000 + 3000 * number)
    found = diagnose_log(log.job_end(0, 11_000).application_end(11_000).read(), Span())
    assert all(one.gain_seconds is None for one in found.findings if one.cause == "run")
    assert "replay of what happened takes 3 s instead of 11 s" in found.answer


def test_generated_scopes_are_told_in_words():
    orders, items = (
        plan(
            "Scan parquet",
            text=f"FileScan parquet [id#{n}] Location: InMemoryFileIndex(1 paths)[file:/lake/{t}]",
        )
        for n, t in ((1, "orders"), (2, "items"))
    )
    sorts = "Sort [id#1 ASC NULLS FIRST], false"
    sides = [plan("InputAdapter", plan("Sort", plan("Exchange", one), text=sorts)) for one in (orders, items)]
    join = plan("SortMergeJoin", *sides, text="SortMergeJoin [id#1], [id#2], Inner")
    log = EventfulLog().executor("1", 0, cores=1)
    log.sql(0, 500, plan("WholeStageCodegen (12)", plan("Project", join)))
    log.job(0, 1000, [0], properties={"spark.sql.execution.id": "0"})
    log.attempt(0, 0, 1000, 1, scopes=("WholeStageCodegen (12)", "Exchange")).task(0, "1", 1000, 9000)
    found = diagnose_log(log.job_end(0, 9000).sql_end(0, 9000).application_end(9000).read(), Span())
    assert "sort-merge join of orders and items on id" in found.answer
