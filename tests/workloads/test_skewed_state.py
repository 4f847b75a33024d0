"""A state with a key that becomes hot: where records go, without Spark."""

from collections import Counter

import pytest

from penstock.errors import BadInput
from penstock.workloads.skewed_state import SkewedState


def workload(**changes):
    return SkewedState(**{"profile": "constant:100", "seconds_per_record": 0.0, "share": 0.5, **changes})


def test_keys_are_alike_until_the_first_one_becomes_hot():
    load = workload(even_records=64_000)
    before = Counter(load.place_of(number) for number in range(64_000))
    after = Counter(load.place_of(number) for number in range(64_000, 128_000))
    assert set(before.values()) == {1000}
    assert after[0] / 64_000 == pytest.approx(0.5 + 0.5 / 64, rel=0.02)
    assert max(count for place, count in after.items() if place) / min(after.values()) < 1.1


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_the_hot_bin_gets_its_share_beside_its_part_of_the_rest(share):
    load = workload(share=share)
    bins = Counter(load.place_of(number) % load.bins for number in range(50_000))
    assert bins[0] / 50_000 == pytest.approx(load.hot_bin_share(), rel=0.02)


@pytest.mark.parametrize("changes", [{"share": 1.5}, {"share": -0.1}, {"bins": 0}, {"keys_a_bin": 0}])
def test_what_cannot_be_is_refused(changes):
    with pytest.raises(BadInput):
        workload(**changes)
