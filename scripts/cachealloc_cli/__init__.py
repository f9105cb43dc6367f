# SPDX-License-Identifier: MIT
"""The cachealloc command: run, compare, doctor, version. Python's standard library only."""

__version__ = "0.1.0"
