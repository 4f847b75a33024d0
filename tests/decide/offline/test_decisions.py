from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.decide.offline.decisions import OfflineSettings, decide_offline
from penstock.decide.offline.recording import parse_rates, parse_source_rates, parse_topology
from penstock.errors import BadSettings

TOPOLOGY = parse_topology(["s,source,1,f,flatmap,2", "f,flatmap,2,c,count,1"], "topology.csv")


def rows(*lines, topology=TOPOLOGY):
    return parse_rates(lines, "rates.csv", topology)


def epoch(at, source=(0, 40, 0, 40), flatmap=(10, 200, 5, 100), count=(400, 0, 200, 0)):
    """One epoch of the topology above; two instances of flatmap, a little apart in time."""
    return [
        _line("s", 1, 1, at, source),
        _line("f", 1, 2, at + 3, flatmap),
        _line("c", 1, 1, at + 1, count),
        _line("f", 2, 2, at + 2, flatmap),
    ]


def _line(operator, instance, instances, at, rates):
    return f"{operator},{instance},{instances},{at},{','.join(str(rate) for rate in rates)}"


def decide(lines, source_rates=None, topology=TOPOLOGY, **settings):
    given_rates = None if source_rates is None else parse_source_rates(source_rates, "s.csv", topology)
    return decide_offline(topology, rows(*lines, topology=topology), given_rates, OfflineSettings(**settings))


def test_one_decision_per_epoch_in_order_of_time():
    # 40/s on 10/s is 4; 20 words a sentence make 800/s on 400/s, so 2. Then half and so half.
    answer = decide(epoch(2_000, source=(0, 20, 0, 20)) + epoch(1_000))
    assert answer.to_json() == {
        "epochs": [
            {"exact": {"flatmap": 4.0, "count": 2.0}, "parallelism": {"flatmap": 4, "count": 2}},
            {"exact": {"flatmap": 2.0, "count": 1.0}, "parallelism": {"flatmap": 2, "count": 1}},
        ]
    }
    assert answer.warnings == ()


def test_the_answer_is_plain_json():
    text = json.dumps(decide(epoch(0)).to_json())
    assert json.loads(text)["epochs"][0]["parallelism"] == {"flatmap": 4, "count": 2}


def test_sources_are_not_in_the_answer():
    assert "source" not in decide(epoch(0)).epochs[0].parallelism


def test_the_rates_of_instances_are_averaged():
    # 10/s and 30/s on two instances: 20/s each on average, so 40/s needs 2; selectivity 400/40 = 10.
    lines = epoch(0)
    lines[1] = _line("f", 1, 2, 3, (30, 200, 5, 100))
    assert decide(lines).epochs[0].exact == {"flatmap": 2.0, "count": 1.0}


def test_un_rounded_values_flow_downstream():
    # 15/s on 10/s is 1.5; the 300/s that follow are 0.75 of count, where 2 · 200/s would be 1.
    answer = decide(epoch(0, source=(0, 15, 0, 15))).epochs[0]
    assert answer.exact == {"flatmap": 1.5, "count": 0.75}
    assert answer.parallelism == {"flatmap": 2, "count": 1}


class TestSourceRates:
    def test_without_a_file_the_true_output_counts(self):
        assert decide(epoch(0, source=(0, 40, 0, 10))).epochs[0].exact["flatmap"] == 4

    def test_minus_one_takes_the_observed_output(self):
        answer = decide(epoch(0, source=(0, 40, 0, 10)), ["source,-1"])
        assert answer.epochs[0].exact["flatmap"] == 1

    def test_a_given_rate_counts_for_each_instance(self):
        topology = parse_topology(["s,source,3,m,map,1"], "topology.csv")
        lines = [_line("s", number, 3, 0, (0, 1, 0, 1)) for number in range(3)]
        lines.append(_line("m", 1, 1, 0, (10, 0, 3, 0)))
        assert decide(lines, ["source,20"], topology).epochs[0].exact == {"map": 6.0}

    def test_sources_that_the_file_leaves_out_keep_their_true_output(self):
        topology = parse_topology(["a,a,1,j,join,1", "b,b,1,j,join,1"], "topology.csv")
        lines = [_line("a", 1, 1, 0, (0, 30, 0, 20)), _line("b", 1, 1, 0, (0, 50, 0, 20))]
        lines.append(_line("j", 1, 1, 0, (10, 0, 10, 0)))
        assert decide(lines, ["a,10"], topology).epochs[0].exact == {"join": 6.0}


class TestScalingFactor:
    def test_it_is_added_before_rounding_up(self):
        # 1.5 · 1.4 = 2.1 → 3; 0.75 · 1.4 = 1.05 → 2; the exact values stay
        answer = decide(epoch(0, source=(0, 15, 0, 15)), scaling_factor=0.4).epochs[0]
        assert answer.exact == {"flatmap": 1.5, "count": 0.75}
        assert answer.parallelism == {"flatmap": 3, "count": 2}

    def test_it_does_not_compound_downstream(self):
        answer = decide(epoch(0), scaling_factor=1.0).epochs[0]
        assert answer.parallelism == {"flatmap": 8, "count": 4}

    @pytest.mark.parametrize("factor", [-0.1, math.nan, math.inf])
    def test_it_has_a_range(self, factor):
        with pytest.raises(BadSettings, match="scaling-factor"):
            OfflineSettings(scaling_factor=factor)


class TestTargetRateRatio:
    def test_without_scale_up_a_shortfall_multiplies_every_answer(self):
        # True 20/s, observed 8/s: ratio 2.5; answers 2 and 1 become 5 and ⌈2.5⌉ = 3.
        answer = decide(epoch(0, source=(0, 20, 0, 8)), target_rate_ratio=2.0).epochs[0]
        assert answer.parallelism == {"flatmap": 5, "count": 3}
        assert answer.exact == {"flatmap": 2.0, "count": 1.0}

    @pytest.mark.parametrize("ratio", [2.5, 3.0])
    def test_a_shortfall_up_to_the_ratio_is_accepted(self, ratio):
        answer = decide(epoch(0, source=(0, 20, 0, 8)), target_rate_ratio=ratio).epochs[0]
        assert answer.parallelism == {"flatmap": 2, "count": 1}

    def test_an_epoch_that_scales_up_is_left_alone(self):
        answer = decide(epoch(0, source=(0, 30, 0, 10)), target_rate_ratio=1.0).epochs[0]
        assert answer.parallelism == {"flatmap": 3, "count": 2}

    def test_the_scaling_factor_may_be_what_scales_up(self):
        lines = epoch(0, source=(0, 20, 0, 8))
        answer = decide(lines, target_rate_ratio=2.0, scaling_factor=0.5).epochs[0]
        assert answer.parallelism == {"flatmap": 3, "count": 2}

    def test_the_largest_ratio_of_all_sources_counts(self):
        topology = parse_topology(["a,a,1,j,join,9", "b,b,1,j,join,9"], "topology.csv")
        lines = [_line("a", 1, 1, 0, (0, 30, 0, 20)), _line("b", 1, 1, 0, (0, 50, 0, 20))]
        lines += [_line("j", number, 9, 0, (10, 0, 10, 0)) for number in range(9)]
        answer = decide(lines, topology=topology, target_rate_ratio=1.2).epochs[0]
        assert answer.parallelism == {"join": 20}

    def test_a_given_source_rate_is_what_the_source_falls_short_of(self):
        answer = decide(epoch(0, source=(0, 99, 0, 5)), ["source,20"], target_rate_ratio=3.0).epochs[0]
        assert answer.parallelism == {"flatmap": 8, "count": 4}

    def test_a_source_that_was_seen_to_put_out_nothing_does_not_divide_by_zero(self):
        answer = decide(epoch(0, source=(0, 20, 0, 0)), target_rate_ratio=1.0).epochs[0]
        assert answer.parallelism == {"flatmap": 2, "count": 1}

    @pytest.mark.parametrize("ratio", [0.9, -1.0, math.nan])
    def test_it_has_a_range(self, ratio):
        with pytest.raises(BadSettings, match="target-rate-ratio"):
            OfflineSettings(target_rate_ratio=ratio)


class TestIncompleteEpochs:
    def test_an_incomplete_last_epoch_is_left_out_with_a_warning(self):
        answer = decide(epoch(0) + epoch(100)[:3])
        assert len(answer.epochs) == 1
        (warning,) = answer.warnings
        assert "1 instances of 'flatmap' reported, 2 are expected" in warning

    def test_an_incomplete_epoch_before_the_last_has_no_answer(self):
        # the second report of flatmap 1 closes an epoch in which count has not reported
        lines = epoch(0)
        answer = decide([lines[0], lines[1], lines[3], *epoch(100)])
        first, second = answer.to_json()["epochs"]
        assert first["exact"] == first["parallelism"] == {}
        assert "0 instances of 'count' reported, 1 are expected" in first["not_ready"]
        assert second["parallelism"] == {"flatmap": 4, "count": 2}

    def test_nothing_recorded(self):
        answer = decide(["# only a header"])
        assert answer.to_json() == {"epochs": []}
        assert "no complete epoch" in answer.warnings[0]

    def test_a_rescale_between_epochs_is_followed(self):
        after = [_line("f", number, 3, 102, (10, 200, 5, 100)) for number in (1, 2, 3)]
        lines = [*epoch(0), epoch(100)[0], epoch(100)[2], *after]
        answer = decide(lines)
        assert [len(e.parallelism) for e in answer.epochs] == [2, 2]
        assert answer.epochs[1].exact == pytest.approx({"flatmap": 4.0, "count": 2.0})

    def test_a_rescale_within_an_epoch_has_no_answer(self):
        lines = epoch(0)
        lines[3] = _line("f", 2, 3, 2, (10, 200, 5, 100))
        answer = decide([*lines, *epoch(100)])
        assert "changed its number of instances" in str(answer.epochs[0].not_ready)


class TestNotReady:
    @pytest.mark.parametrize(
        ("figures", "reason"),
        [
            ({"flatmap": (0, 0, 0, 0)}, "'flatmap' was idle"),
            ({"count": (0, 0, 0, 0)}, "'count' was idle"),
            ({"source": (0, 0, 0, 0)}, "source 'source' was idle"),
            ({"flatmap": (1e308, 1, 1, 1)}, "rates of 'flatmap' are too large"),
            ({"source": (0, 1e308, 0, 1), "flatmap": (1e-9, 1e-9, 1, 1)}, "too large"),
        ],
    )
    def test_an_epoch_that_says_too_little_has_no_answer(self, figures, reason):
        (answer,) = decide(epoch(0, **figures)).epochs
        assert answer.parallelism == {}
        assert reason in str(answer.not_ready)

    def test_a_source_observed_at_nothing_is_not_believed(self):
        (answer,) = decide(epoch(0, source=(0, 40, 0, 0)), ["source,-1"]).epochs
        assert "source 'source' was idle" in str(answer.not_ready)

    def test_a_rate_of_zero_that_was_given_is_believed(self):
        (answer,) = decide(epoch(0), ["source,0"]).epochs
        assert answer.parallelism == {"flatmap": 1, "count": 1}


def test_the_word_count_of_section_5_2():
    topology = parse_topology(["s,source,1,f,flatmap,1", "f,flatmap,1,c,count,1"], "topology.csv")
    lines = [
        "s,1,1,0,0,1000000,0,50000",
        "f,1,1,1,100000,2000000,50000,1000000",
        "c,1,1,2,1000000,0,1000000,0",
    ]
    (answer,) = decide(lines, topology=topology).epochs
    assert answer.parallelism == {"flatmap": 10, "count": 20}


@given(st.permutations(epoch(0) + epoch(100, source=(0, 30, 0, 30)) + epoch(200, source=(0, 50, 0, 50))))
def test_the_order_of_lines_does_not_matter(lines):
    assert [e.exact["flatmap"] for e in decide(lines).epochs] == pytest.approx([4, 3, 5])
