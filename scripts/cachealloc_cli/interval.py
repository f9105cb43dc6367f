# SPDX-License-Identifier: MIT
"""Paired comparison of figures: ratio on the log scale, with Student's t interval; and counts of failures.

Pairing removes drift that both arms of a pair share; logarithms make "twice as fast" and "twice as slow"
the same distance from 1. The t quantile comes from inverting the distribution function, which is the
regularised incomplete beta function, evaluated by its continued fraction (modified Lentz method).
Figures of two sessions cannot be paired: their interval is Welch's. Counts are compared by Fisher's exact test.
"""

import functools
import math
import statistics


def _beta_fraction(a, b, x):
    """The continued fraction of the incomplete beta function; converges fast for x < (a+1)/(a+b+2)."""
    tiny = 1e-300

    def safe(value):
        return value if abs(value) > tiny else tiny

    c = 1.0
    d = 1.0 / safe(1.0 - (a + b) * x / (a + 1))
    result = d
    for m in range(1, 400):
        for numerator in (m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
                          -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))):
            d = 1.0 / safe(1.0 + numerator * d)
            c = safe(1.0 + numerator / c)
            result *= d * c
        if abs(d * c - 1.0) < 1e-15:
            break
    return result


def beta_regularised(a, b, x):
    """I_x(a, b)."""
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
                     + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return front * _beta_fraction(a, b, x) / a
    return 1.0 - front * _beta_fraction(b, a, 1.0 - x) / b


def t_distribution(t, freedom):
    """P(T <= t) for Student's T."""
    tail = 0.5 * beta_regularised(freedom / 2.0, 0.5, freedom / (freedom + t * t))
    return 1.0 - tail if t > 0 else tail


@functools.lru_cache(maxsize=1024)
def t_quantile(probability, freedom):
    """t with P(T <= t) = probability; 0.5 <= probability < 1, freedom >= 1."""
    low, high = 0.0, 1.0
    while t_distribution(high, freedom) < probability:
        high *= 2.0
    for _ in range(200):
        middle = (low + high) / 2.0
        if middle in (low, high):
            break
        if t_distribution(middle, freedom) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0


def paired_ratio(first, second, confidence=0.95):
    """(ratio, low, high) of first/second: geometric mean over pairs; low and high are None below 2 pairs."""
    logs = [math.log(a / b) for a, b in zip(first, second)]
    mean = statistics.fmean(logs)
    if len(logs) < 2:
        return math.exp(mean), None, None
    half = t_quantile(0.5 + confidence / 2, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def paired_difference(first, second, confidence=0.95):
    """(difference, low, high) of first - second, for figures that may be 0 or negative; None as above."""
    differences = [a - b for a, b in zip(first, second)]
    mean = statistics.fmean(differences)
    if len(differences) < 2:
        return mean, None, None
    freedom = len(differences) - 1
    half = t_quantile(0.5 + confidence / 2, freedom) * statistics.stdev(differences) / math.sqrt(len(differences))
    return mean, mean - half, mean + half


def unpaired_ratio(first, second, confidence=0.95):
    """(ratio, low, high) of first/second by Welch's interval; low and high are None where one has fewer than 2 values
    or nothing varies."""
    logs = [[math.log(value) for value in values] for values in (first, second)]
    mean = statistics.fmean(logs[0]) - statistics.fmean(logs[1])
    if min(map(len, logs)) < 2:
        return math.exp(mean), None, None
    parts = [statistics.variance(values) / len(values) for values in logs]
    error = sum(parts)
    if not error:
        return math.exp(mean), None, None
    freedom = error ** 2 / sum(part ** 2 / (len(values) - 1) for part, values in zip(parts, logs))
    half = t_quantile(0.5 + confidence / 2, freedom) * math.sqrt(error)
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def fisher_exact(first, of_first, second, of_second):
    """Two-sided p of `first` events in `of_first` runs against `second` in `of_second`, if both had the same chance: the
    chance of all tables that are no likelier than this one."""
    events, runs = first + second, of_first + of_second

    def ways(number):
        return math.comb(of_first, number) * math.comb(of_second, events - number)
    seen = ways(first)
    tables = map(ways, range(max(0, events - of_second), min(events, of_first) + 1))
    return sum(number for number in tables if number <= seen) / math.comb(runs, events)


def mean_and_sd(values):
    """(mean, sample standard deviation or None)."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None


def outliers(values, limit=10.0):
    """Indexes of values far from the median, in units of the median absolute deviation."""
    if len(values) < 4:
        return []
    middle = statistics.median(values)
    spread = 1.4826 * statistics.median(abs(value - middle) for value in values)
    spread = max(spread, abs(middle) * 0.005)
    return [index for index, value in enumerate(values) if abs(value - middle) > limit * spread]


def slow_start(values, at_least=0.05):
    """By which fraction the first value lies above the others, or None when that is ordinary."""
    if len(values) < 3:
        return None
    rest = values[1:]
    middle = statistics.median(rest)
    excess = values[0] / middle - 1.0
    return excess if excess > at_least and values[0] > max(rest) else None
