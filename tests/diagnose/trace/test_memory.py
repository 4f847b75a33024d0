"""Blocks of columns that are used again: never while anything still refers to them."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.diagnose.path.graph import build_graph
from penstock.diagnose.path.participation import cut_windows, measure_participation
from penstock.diagnose.trace.memory import LARGE_BLOCK, allocate_columns, reuse_blocks
from penstock_lab.experiments.diagnosis_speed import TraceShape, generate_trace, sort_by_worker

# the C library gives blocks of this size back to the system at once: new ones hold zeros
SIZE = 48 << 20


def make_column(size=SIZE, value=7):
    (column,) = allocate_columns(size, np.uint8)
    column[:] = value
    return column


def is_used_again(size=SIZE):
    (column,) = allocate_columns(size, np.uint8)
    return bool((column == 7).all())


def test_a_block_whose_columns_are_gone_is_used_again():
    with reuse_blocks():
        make_column()
        assert is_used_again()
        assert is_used_again(SIZE * 3 // 4)
        # much less than a block is not worth it
        assert not is_used_again(SIZE // 3)


def test_a_block_has_room_for_a_few_columns_more():
    with reuse_blocks():
        make_column()
        (column,) = allocate_columns(SIZE * 17 // 16, np.uint8)
        assert (column[:SIZE] == 7).all()


def test_outside_nothing_is_kept():
    make_column()
    assert not is_used_again()
    with reuse_blocks():
        make_column()
    assert not is_used_again()
    with reuse_blocks():
        assert not is_used_again()


def test_an_inner_scope_leaves_the_blocks_to_the_outer_one():
    with reuse_blocks():
        with reuse_blocks():
            make_column()
        assert is_used_again()


def test_a_view_of_one_column_keeps_its_block():
    with reuse_blocks():
        first, second = allocate_columns(SIZE // 9, np.uint8, np.int64)
        first[:], second[:] = 7, 7
        part = second[5:9].view(np.uint8)
        del first, second
        assert not is_used_again(SIZE)
        del part


def test_columns_outlive_the_scope():
    with reuse_blocks():
        column = make_column()
    other = make_column(value=9)
    assert (column == 7).all() and (other == 9).all()


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.sampled_from([1, 2, 3, 5])), max_size=25))
def test_columns_in_use_never_share_memory(steps):
    held = {}
    with reuse_blocks():
        for number, (frees, place, factor) in enumerate(steps):
            held.pop(place, None)
            if not frees:
                columns = allocate_columns(factor * LARGE_BLOCK // 12, np.int64, np.int32)
                for column in columns:
                    column[:] = number
                held[place] = number, columns
        for number, columns in held.values():
            assert all((column == number).all() for column in columns)


def measure(trace):
    graph = build_graph(trace)
    return measure_participation(graph, next(cut_windows(graph)))


def test_participation_is_the_same_with_memory_that_was_used_before():
    traces = [sort_by_worker(generate_trace(TraceShape(size, seed=size))) for size in (300_000, 330_000)]
    expected = [measure(trace) for trace in traces]
    with reuse_blocks():
        for place in (0, 1, 0, 1):
            found, known = measure(traces[place]), expected[place]
            np.testing.assert_array_equal(found.local, known.local)
            np.testing.assert_array_equal(found.message, known.message)
            np.testing.assert_array_equal(found.crossing, known.crossing)
            assert found.paths_log10 == known.paths_log10
            del found
