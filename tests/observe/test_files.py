"""Records a file, told by batches and listings that do not come at the same moment."""

import math

from hypothesis import given
from hypothesis import strategies as st

from penstock.observe.files import FileTally


def test_unknown_until_something_was_read():
    tally = FileTally()
    assert math.isnan(tally.records_per_file)
    tally.listed(5, batch_running=False)
    assert math.isnan(tally.records_per_file)


def test_a_query_seen_from_its_start_is_known_after_the_first_batch():
    tally = FileTally()
    tally.started_empty()
    tally.reported(300)
    tally.listed(3, batch_running=False)
    assert tally.records_per_file == 100


def test_a_query_that_ran_before_needs_two_listings():
    tally = FileTally()
    tally.reported(40)
    tally.listed(1000, batch_running=False)
    assert math.isnan(tally.records_per_file)
    tally.reported(60)
    tally.listed(1003, batch_running=False)
    assert tally.records_per_file == 20


def test_files_of_a_running_batch_wait_for_its_records():
    """10,000 files are being read: until that batch is reported they must not dilute the records."""
    tally = FileTally()
    tally.started_empty()
    tally.reported(1000)
    tally.listed(10, batch_running=False)
    tally.listed(10_010, batch_running=True)
    assert tally.records_per_file == 100
    tally.reported(1_000_000)
    assert tally.records_per_file == 100


def test_reports_that_were_missed_spoil_only_what_was_before():
    tally = FileTally()
    tally.started_empty()
    tally.reported(100)
    tally.listed(1, batch_running=True)
    tally.missed_reports()
    tally.reported(100)
    tally.listed(50, batch_running=False)
    assert math.isnan(tally.records_per_file)
    tally.reported(100)
    tally.listed(51, batch_running=False)
    assert tally.records_per_file == 100


def test_files_that_grow_are_followed():
    tally = FileTally()
    for files in range(1, 200):
        tally.reported(100 if files < 100 else 500)
        tally.listed(files, batch_running=False)
    assert tally.records_per_file == 500


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1))
def test_files_of_one_size_are_always_weighed_right(batches):
    """Each batch reads some files of 10 records; it is listed while it runs or after its report."""
    tally = FileTally()
    tally.started_empty()
    read = 0
    for files, listed_while_running in batches:
        read += files
        if listed_while_running:
            tally.listed(read, batch_running=True)
        tally.reported(10.0 * files)
        if not listed_while_running:
            tally.listed(read, batch_running=False)
    assert math.isnan(tally.records_per_file) or tally.records_per_file == 10
