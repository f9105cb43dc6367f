# SPDX-License-Identifier: MIT
"""Random numbers that are the same everywhere: integers, and only those floating point operations that IEEE 754
defines to the last bit (Python's own random module may change its ways, and libm's functions differ)."""

from functools import lru_cache
from math import ldexp

_MASK = (1 << 64) - 1
_LN2 = 0.6931471805599453


def exp(x):
    """e to the x, for |x| < 700."""
    n = int(x / _LN2)
    x -= n * _LN2
    total = term = 1.0
    for i in range(1, 24):
        term *= x / i
        total += term
    return ldexp(total, n)


@lru_cache(maxsize=64)
def log(x):
    """The natural logarithm, x > 0."""
    n = 0
    while x > 1.5:
        x /= 2.0
        n += 1
    while x < 0.75:
        x *= 2.0
        n -= 1
    z = (x - 1.0) / (x + 1.0)
    total, power = 0.0, z
    for i in range(1, 40, 2):
        total += power / i
        power *= z * z
    return 2.0 * total + n * _LN2


class Chance:
    """splitmix64, and distributions over it."""

    def __init__(self, seed, name=""):
        self.state = seed & _MASK
        for letter in name.encode("ascii"):
            self.state = (self.bits() ^ letter) & _MASK

    def bits(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & _MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)

    def unit(self):
        """In [0, 1)."""
        return (self.bits() >> 11) * 2.0**-53

    def integer(self, low, high):
        """In low..high, both included."""
        return low + ((self.bits() * (high - low + 1)) >> 64)

    def chance(self, probability):
        return self.unit() < probability

    def pick(self, things):
        return things[self.integer(0, len(things) - 1)]

    def normal(self):
        """Mean 0, deviation 1: twelve uniform numbers, which reaches to 6 deviations."""
        total = -6.0
        for _ in range(12):  # not sum(), whose rounding depends on the version
            total += self.unit()
        return total

    def lognormal(self, median, sigma, low, high):
        """A whole number, clipped to low..high."""
        return int(min(max(median * exp(sigma * self.normal()), low), high))

    def exponential(self, mean):
        return -mean * log(1.0 - self.unit())

    def log_uniform(self, low, high):
        """A whole number in low..high, as likely in each power of two."""
        return int(low * exp(self.unit() * log((high + 1) / low)))


class Zipf:
    """Ranks 1..n, rank k with probability in proportion to 1/k."""

    def __init__(self, n):
        self.sums, total = [], 0.0
        for k in range(1, n + 1):
            total += 1.0 / k
            self.sums.append(total)

    def rank(self, chance):
        wanted = chance.unit() * self.sums[-1]
        low, high = 0, len(self.sums) - 1
        while low < high:
            middle = (low + high) // 2
            if self.sums[middle] > wanted:
                high = middle
            else:
                low = middle + 1
        return low + 1
