"""A simulation's seeds in parallel on real executors: the same figures as one after the other."""

import pytest

from penstock.simulate.comparison import here, run_seeds
from penstock.simulate.loading import load
from penstock.simulate.spark_seeds import on_spark

pytestmark = pytest.mark.spark
HELD = 2


def test_seeds_on_spark_equal_the_serial_run(local_cluster):
    experiment, policies = load("image-pipeline"), ["ds2"]
    serial = run_seeds(experiment, policies, range(2), here)
    spark = local_cluster(held=HELD)
    assert run_seeds(experiment, policies, range(2), on_spark(spark)) == serial
