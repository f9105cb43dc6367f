# SPDX-License-Identifier: MIT
"""python -m cachealloc, where this folder is the Python package of that name."""

import sys

from .main import script

sys.exit(script())
