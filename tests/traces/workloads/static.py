# SPDX-License-Identifier: MIT
"""static: weights that are loaded once and stay. 6,000 blocks live at the same time, of 0.1 to 20 MiB, log-normal about
1.4 MiB (two standard deviations reach both ends; what lies beyond is cut off); a phase ends, and nothing is freed."""

from .chance import exp, log
from .trace import KIB, MIB

BLOCKS = 6000  # at scale 1
LEAST, MOST = 102 * KIB, 20 * MIB
SUM = 12  # uniform numbers whose sum has nearly the normal distribution, variance 1


def static(trace, chance, scale, synthetic):
    """weights that stay: log-normal, 0.1 to 20 MiB, no free"""
    middle, deviation = (log(MOST) + log(LEAST)) / 2, (log(MOST) - log(LEAST)) / 4
    for _ in range(max(10, round(BLOCKS * scale))):
        normal = sum(chance.unit() for _ in range(SUM)) - SUM / 2
        trace.take(min(MOST, max(LEAST, int(exp(middle + deviation * normal)))))
    trace.phase()
