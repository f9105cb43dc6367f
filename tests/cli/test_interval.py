# SPDX-License-Identifier: MIT
"""The statistics against printed tables and known cases."""

import math
import random

import pytest
import command  # noqa: F401  (puts scripts/ on the path)
from cachealloc_cli import interval

# Student's t, as printed in statistics textbooks (three decimals).
TABLE = {
    (0.95, 1): 6.314, (0.95, 2): 2.920, (0.95, 5): 2.015, (0.95, 10): 1.812, (0.95, 30): 1.697,
    (0.975, 1): 12.706, (0.975, 2): 4.303, (0.975, 3): 3.182, (0.975, 4): 2.776, (0.975, 5): 2.571,
    (0.975, 6): 2.447, (0.975, 7): 2.365, (0.975, 8): 2.306, (0.975, 9): 2.262, (0.975, 10): 2.228,
    (0.975, 15): 2.131, (0.975, 19): 2.093, (0.975, 20): 2.086, (0.975, 30): 2.042, (0.975, 60): 2.000,
    (0.975, 120): 1.980, (0.995, 1): 63.657, (0.995, 5): 4.032, (0.995, 10): 3.169, (0.995, 29): 2.756,
}


@pytest.mark.parametrize("key", sorted(TABLE))
def test_t_quantile_against_the_table(key):
    assert interval.t_quantile(*key) == pytest.approx(TABLE[key], abs=0.00051)


@pytest.mark.parametrize("probability", [0.6, 0.9, 0.975, 0.9995])
def test_t_quantile_where_it_has_a_closed_form(probability):
    assert interval.t_quantile(probability, 1) == pytest.approx(math.tan(math.pi * (probability - 0.5)), rel=1e-9)
    alpha = 4 * probability * (1 - probability)
    exact = 2 * (probability - 0.5) * math.sqrt(2 / alpha)
    assert interval.t_quantile(probability, 2) == pytest.approx(exact, rel=1e-9)


def test_t_quantile_tends_to_the_normal_one():
    assert interval.t_quantile(0.975, 100000) == pytest.approx(1.95996, abs=1e-4)


def test_beta_is_symmetric_and_monotone():
    for a, b, x in [(0.5, 0.5, 0.3), (3, 0.5, 0.9), (10, 20, 0.2)]:
        assert interval.beta_regularised(a, b, x) == pytest.approx(1 - interval.beta_regularised(b, a, 1 - x))
    assert interval.beta_regularised(2, 3, 0.5) == pytest.approx(0.6875)


def test_paired_ratio_of_known_numbers():
    # log ratios 0.1, 0.2, 0.3: mean 0.2, sd 0.1, half width 4.303 * 0.1 / sqrt(3)
    first = [math.exp(x) for x in (0.1, 0.2, 0.3)]
    ratio, low, high = interval.paired_ratio(first, [1.0, 1.0, 1.0])
    assert ratio == pytest.approx(math.exp(0.2))
    assert low == pytest.approx(math.exp(0.2 - 4.30265 * 0.1 / math.sqrt(3)), rel=1e-5)
    assert high == pytest.approx(math.exp(0.2 + 4.30265 * 0.1 / math.sqrt(3)), rel=1e-5)


def test_pairing_removes_shared_drift():
    drift = [1.0, 1.5, 2.0, 3.0, 1.2]
    ratio, low, high = interval.paired_ratio([2 * d for d in drift], drift)
    assert (ratio, low, high) == pytest.approx((2, 2, 2))


def test_swapping_the_arms_inverts_the_interval():
    a, b = [1.0, 1.2, 0.9, 1.1], [2.0, 1.9, 2.2, 2.4]
    ratio, low, high = interval.paired_ratio(a, b)
    assert interval.paired_ratio(b, a) == pytest.approx((1 / ratio, 1 / high, 1 / low))


def test_one_pair_has_no_interval():
    assert interval.paired_ratio([2.0], [1.0]) == (pytest.approx(2.0), None, None)


def test_the_interval_covers_the_truth_95_times_in_100():
    seed = 20240601
    print("seed", seed)
    rng = random.Random(seed)
    inside = 0
    for _ in range(2000):
        a = [math.exp(rng.gauss(0.1, 0.2)) for _ in range(6)]
        _, low, high = interval.paired_ratio(a, [1.0] * 6)
        inside += low <= math.exp(0.1) <= high
    assert 0.935 < inside / 2000 < 0.965


def test_outliers_and_slow_start():
    assert interval.outliers([10, 10.1, 9.9, 10.05, 30, 10]) == [4]
    assert interval.outliers([10, 10.1, 9.9, 10.05, 10.2, 10]) == []
    assert interval.outliers([10, 10, 10, 10]) == []
    assert interval.slow_start([12, 10, 10.1, 9.9]) == pytest.approx(0.2)
    assert interval.slow_start([10, 10.2, 9.9]) is None
    assert interval.slow_start([12, 14, 9, 9]) is None
