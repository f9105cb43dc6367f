# SPDX-License-Identifier: MIT
"""The settings that may be advised: keys of CACHEALLOC_CONF that change how memory is cut and kept.

Left out: keys that change the meaning of the program or its safety (limits, reuse, free_sync, zero, poison, fallbacks),
and those that only give unused memory back earlier, which is done anyway before memory runs out.
"""

import itertools

VALUES = {
    "large_segment_size_mb": ("11", "12", "14", "16", "24", "32", "48", "64", "128"),
    "max_split_size_mb": ("32", "64", "128", "256", "512", "1024"),
    "roundup_power2_divisions": ("4", "8", "16", "32"),
    "reuse_slack_mb": ("0", "64", "1024"),
    "give_back": ("oom",),
}

#: keys that change what a replay does; others of a recorded program are left out of replays
PLAYED = (*VALUES, "max_non_split_rounding_mb", "reuse", "free_sync", "garbage_collection_threshold", "max_cached_mb",
          "min_reserve_mb", "trim_idle_ms", "trim_every", "zero", "poison")

_DEFAULTS = {"large_segment_size_mb": 20}


def parse(conf):
    """{key: value} of "key:value,key:[list]"; what is no such pair is left out."""
    parts, depth = [""], 0
    for character in "".join(conf.split()):
        depth += {"[": 1, "]": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    pairs = (part.partition(":") for part in parts)
    return {key: value for key, colon, value in pairs if key and colon}


def text(keys):
    return ",".join(f"{key}:{value}" for key, value in keys.items())


def played(keys):
    return {key: value for key, value in keys.items() if key in PLAYED}


def changed(now, change):
    """`now` with the keys of `change`; a value None takes the key away."""
    both = {**now, **change}
    return {key: value for key, value in both.items() if value is not None}


def _megabytes(keys, key):
    value = keys.get(key, _DEFAULTS.get(key))
    return int(value) if str(value).isdigit() else None


def is_valid(keys):
    """The library would take them together: blocks that are never split are not smaller than a segment."""
    segment = _megabytes(keys, "large_segment_size_mb")
    others = (_megabytes(keys, key) for key in ("max_split_size_mb", "max_non_split_rounding_mb"))
    return segment is None or all(size is None or size >= segment for size in others)


def singles(now):
    """Every change of one key of `now`."""
    changes = [{key: value} for key, values in VALUES.items() for value in values if now.get(key) != value]
    changes += [{key: None} for key in now if key in VALUES]
    return [change for change in changes if is_valid(changed(now, change))]


def pairs(now):
    """Every change of two keys."""
    both = ({**one, **other} for one, other in itertools.combinations(singles(now), 2) if not set(one) & set(other))
    return [change for change in both if is_valid(changed(now, change))]


def extended(now, change):
    """`change` and one key more."""
    longer = ({**change, **one} for one in singles(now) if not set(one) & set(change))
    return [each for each in longer if is_valid(changed(now, each))]


def everything(now):
    """Every combination of all values: for the test that compares the search with it."""
    columns = [[(key, value) for value in (*values, None)] for key, values in VALUES.items()]
    every = ({key: value for key, value in row if value is not None} for row in itertools.product(*columns))
    return [change for change in every if change and is_valid(changed(now, change))]
