# SPDX-License-Identifier: MIT
"""The arms of a comparison: what each is called, and the variables and the command that make it so.

A and B come from the options that end in -a and -b, on top of a preset; or every arm is written out, `--arm NAME=LINE`,
where LINE is what one would type in a shell: variables, tuning keys, and perhaps a command of its own.
"""

import re
import shlex

from .args import UsageError

#: compare sets these itself
OWN = ("CACHEALLOC_STATS", "CACHEALLOC_STATS_INTERVAL", "SIMCUDA_STATS", "COMPARE_PADDING")
STOCK = {"CACHEALLOC_DISABLE": "count"}
STOCK_LABEL, CACHE_LABEL = "stock, counted", "cachealloc"
VARIABLE = re.compile(r"([A-Za-z_]\w*)=(.*)", re.S)
KEY = re.compile(r"[a-z_0-9]+:\S+")
MOST = 12

#: word: (variables that decide where memory comes from, left out of both arms; label of A; what B gets)
PRESETS = {
    "pytorch": (("PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "CACHEALLOC_TAKEOVER"),
                "PyTorch as shipped", {"CACHEALLOC_TAKEOVER": "torch"}),
    "jax": (("XLA_PYTHON_CLIENT_ALLOCATOR", "XLA_PYTHON_CLIENT_PREALLOCATE", "CACHEALLOC_TAKEOVER"),
            "JAX as shipped", {"CACHEALLOC_TAKEOVER": "jax"}),
    # RMM's own default is plain cudaMalloc; only cudf.pandas begins with a pool, which would hide everything from the cache
    "rmm": (("CUDF_PANDAS_RMM_MODE", "CACHEALLOC_TAKEOVER"), "RMM as shipped", {"CUDF_PANDAS_RMM_MODE": "cuda"}),
}


class Arm:
    """changes: variables set; removed: variables of ours that are taken away; command: words, or None for
    the common one."""

    def __init__(self, name, label, changes, removed=(), command=None):
        self.name = name
        self.label = label
        self.changes = changes
        self.removed = [variable for variable in removed if variable not in changes]
        self.command = command

    def environment(self, environ):
        """`environ` as this arm has it, before the library is put in."""
        kept = {name: value for name, value in environ.items() if name not in self.removed and name not in OWN}
        kept.pop("CACHEALLOC_DISABLE", None)
        return {**kept, **self.changes}


def variable(text):
    """A converter for K=V."""
    found = VARIABLE.fullmatch(text)
    if not found:
        raise ValueError("expected NAME=VALUE, such as OMP_NUM_THREADS=4")
    if found.group(1) in OWN:
        raise ValueError(f"{found.group(1)} is set by compare itself")
    return found.groups()


def words(text):
    """A converter for a command in one argument, quoted as for a shell; no shell runs it."""
    try:
        found = shlex.split(text)
    except ValueError as problem:
        raise ValueError(f"{str(problem).lower()}: quote it as for a shell") from None
    if not found:
        raise ValueError("expected a command, such as './app --size 10'")
    return found


def preset(text):
    """A converter for a word of PRESETS."""
    if text not in PRESETS:
        raise ValueError("expected " + ", ".join(PRESETS))
    return text


def _label(base, keys, env, command, note=None):
    parts = [f"{base} {keys}".strip()] + ([note] if note else []) + [f"{name}={value}" for name, value in env.items()]
    return ", ".join(parts) + (": " + shlex.join(command) if command else "")


def _make(name, stock, keys, env, command, removed=(), note=None):
    if keys and "CACHEALLOC_CONF" in env:
        raise UsageError(f"{name}: tuning keys are given twice, as keys and by CACHEALLOC_CONF")
    changes = {**(STOCK if stock else {}), **({"CACHEALLOC_CONF": keys} if keys is not None else {}), **env}
    if changes.get("CACHEALLOC_DISABLE", "0") in ("", "0", "off", "false"):
        changes.pop("CACHEALLOC_DISABLE", None)
    disabled = changes.get("CACHEALLOC_DISABLE")
    base = CACHE_LABEL if disabled is None else STOCK_LABEL if disabled == "count" else "stock"
    return Arm(name, _label(base, keys or "", env, command, note), changes, removed, command)


def two(values):
    """A and B by the options -a and -b."""
    removed, note, recommended = PRESETS.get(values["preset"], ((), None, {}))
    keys = {side: ",".join(values["conf_" + side]) for side in "ab"}
    env_a, env_b = (dict(values["env_" + side]) for side in "ab")
    has_keys = bool(values["conf_a"])
    a = _make("A", not has_keys, keys["a"] if has_keys else None, env_a, values["command_a"], removed, note)
    b = _make("B", False, keys["b"] or None, {**recommended, **env_b}, values["command_b"], removed)
    return [a, b]


def one(text):
    """A converter for NAME=LINE: `stock`, variables, tuning keys, then the command, each of them optional."""
    found = re.fullmatch(r"([A-Za-z0-9][\w.-]{0,23})=(.*)", text, re.S)
    if not found:
        raise ValueError("expected NAME=LINE, such as 'small=max_split_size_mb:64', 'old=stock ./old' or 'driver=stock'")
    name, left = found.group(1), words(found.group(2)) if found.group(2).strip() else []
    stock = left[:1] == ["stock"]
    keys, env = [], {}
    left = left[1:] if stock else left
    while left:
        if VARIABLE.fullmatch(left[0]):
            env.update([variable(left.pop(0))])
        elif KEY.fullmatch(left[0]):
            keys.append(left.pop(0))
        else:
            break
    if stock and keys:
        raise ValueError("stock is the driver alone, which has no tuning keys")
    try:
        return _make(name, stock, ",".join(keys) or None, env, left or None)
    except UsageError as problem:
        raise ValueError(str(problem)) from None


def of_options(values):
    """The arms that the command line asks for, the one to compare with first."""
    if not values["arm"]:
        return two(values)
    for key in ("conf_a", "conf_b", "env_a", "env_b", "command_a", "command_b", "preset"):
        if values[key]:
            raise UsageError(f"--arm names every arm, so --{key.replace('_', '-')} has none to change")
    names = [arm.name for arm in values["arm"]]
    if not 2 <= len(names) <= MOST:
        raise UsageError(f"--arm: 2 to {MOST} arms can be compared, not {len(names)}")
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"--arm: two arms are called {name}")
    return values["arm"]


def confounded(arms):
    """True if A and B differ in allocator and in command: whatever is found may come from either."""
    a, b = arms[:2]
    stock = [arm.changes.get("CACHEALLOC_DISABLE") is not None for arm in (a, b)]
    return len(arms) == 2 and a.command != b.command and stock[0] != stock[1]
