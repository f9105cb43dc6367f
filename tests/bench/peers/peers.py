#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What an allocation and its free cost, ours and the peers': peers.py [--out FILE] [WORKLOAD...].

For each workload one process (turns.c), in which all arms take turns: the library under the driver that returns at once, CUB's
CachingDeviceAllocator, RMM's pool and binning resources, mimalloc, a model of PyTorch's policy, and one that does nothing,
whose figures are taken off the others'. Of each arm its quietest round counts. Where the machine counts cycles and instructions,
both are reported; elsewhere instructions are callgrind's, of a run of their own, and time is the processor's.

What it needs and the system lacks is fetched first (setup_peers of scripts/setup.sh), and compiled; what cannot be had is named
on stderr and left out. Tables on stdout; JSON with --out.
"""

import argparse
import ctypes
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent / "traces")]
import measuring  # noqa: E402  pylint: disable=wrong-import-position
import workload as recorded  # noqa: E402  pylint: disable=wrong-import-position

FOLDER = measuring.PROGRAMS / "peers"
LIBRARIES = f"{measuring.AT_ONCE}:{FOLDER}"
CUDA = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include"
HEADERS = measuring.ROOT / "build-headers" / "13.0.48" / "include"
CCCL = measuring.ROOT / "build-cccl" / "13.0.50" / "include"
RMM = measuring.ROOT / "build-rmm13" / "librmm"
LOGGER = measuring.ROOT / "build-rmm13" / "rapids_logger"
PEERS = ["cub", "rmm_pool", "rmm_binning", "mimalloc", "torch"]
# name -> (arguments of turns.c, the functions that callgrind counts; None: not counted there)
WORKLOADS = {
    "pair": (["pair"], "measured_pair"),
    "ring": (["ring"], "measured_ring"),
    "live1000": (["--live", 1000, "live_log"], "measured_live"),
    "live30000": (["--live", 30000, "live_log"], "measured_live"),
    "live100000": (["--live", 100000, "live_32"], "measured_live"),
    "live1000000": (["--live", 1000000, "live_32"], None),
    **{name: (["trace"], "measured_trace") for name in recorded.RECORDED},
    **{f"{name}+work": (["trace_work"], "measured_trace") for name in recorded.RECORDED},
    **{f"{name}+work2": (["--streams", 2, "trace_work"], "measured_trace") for name in recorded.RECORDED},
    **{f"{name}+calls": (["calls"], None) for name in recorded.RECORDED},
    **{f"{name}{work}x{n}": (["--threads", n, name + work.replace("+", "_")], None)
       for name in ("threads_12", "threads_96") for work in ("", "+work") for n in (1, 2)},
}
COUNTED_ROUNDS, COUNTED_PAIRS = 3, 2000
# what our own calls consist of, in workloads that miss: a function with all that it calls
STEPS = {"a miss with its merges": "ca_alloc_rest", "a merge": "ca_block_put_back_locked"}
STEPS_IN = ("ring", "live1000")
THREADS_PAIRS = 5  # times as many in a round: two have to run at the same time


def say(text):
    print(f"{Path(sys.argv[0]).name}: {text}", file=sys.stderr)


def fetch():
    subprocess.run(["bash", "-c", ". scripts/setup.sh; setup_peers >&2", Path(sys.argv[0]).name], cwd=measuring.ROOT, check=False)


def compiled(name, source, folders, more=()):
    """Compiles a peer, unless that was done since its source changed. None, or why it cannot be had."""
    library = FOLDER / f"libbench_{name}.so"
    absent = [str(folder) for folder in folders if not folder.exists()]
    if absent:
        return f"no {' and no '.join(absent)}"
    if library.exists() and library.stat().st_mtime > source.stat().st_mtime:
        return None
    argv = [os.environ.get("CXX", "g++"), "-std=c++17", "-O3", "-DNDEBUG", "-shared", "-fPIC", "-fvisibility=hidden",
            "-Wl,-Bsymbolic", "-Wl,-z,defs", f"-I{measuring.ROOT}", *(f"-isystem{folder}" for folder in folders), str(source),
            "-o", str(library), *more]
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    except OSError as problem:
        return str(problem)
    return f"{source.name} does not compile: {done.stdout[:500]}" if done.returncode else None


def prepare(as_built):
    """{peer: why it is left out}"""
    absent, cuda = {}, CUDA if (CUDA / "cuda_runtime_api.h").exists() else HEADERS
    if not as_built:
        fetch()
        libraries = [RMM / "lib64", LOGGER / "lib64"]
        why = compiled("rmm", HERE / "rmm.cpp", [RMM / "include", RMM / "include" / "rapids", LOGGER / "include", cuda],
                       ["-DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE", "-DRMM_LOG_ACTIVE_LEVEL=RAPIDS_LOGGER_LOG_LEVEL_OFF",
                        *(f"-L{folder}" for folder in libraries), "-lrmm", "-lrapids_logger",
                        f"-Wl,-rpath,{':'.join(map(str, libraries))}"])
        absent.update({peer: why for peer in ("rmm_pool", "rmm_binning") if why})
        if not (measuring.PROGRAMS / "libbench_cub.so").exists():
            why = compiled("cub", HERE.parent / "cub.cpp", [CCCL / "cccl", CCCL, cuda])
            absent.update({"cub": why} if why else {})
    try:
        ctypes.CDLL("libmimalloc.so.2")
    except OSError as problem:
        absent["mimalloc"] = str(problem)
    for peer in ("cub", "rmm_pool", "rmm_binning", "torch"):
        name = f"libbench_{peer.split('_')[0]}.so"
        if peer not in absent and not any((folder / name).exists() for folder in (measuring.PROGRAMS, FOLDER)):
            absent[peer] = f"no {name}"
    return absent


def turns(arguments, arms, options, trace, valgrind=()):
    """turns.c's JSON."""
    argv = [*valgrind, FOLDER / "turns", "--arms", ",".join(arms), *options, *(["--trace", trace] if trace else []), *arguments]
    argv = [str(a) for a in argv]
    done = subprocess.run(argv, env=measuring.environment(True, LIBRARIES, BENCH_DEVICE="idle"), timeout=1800,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)} ended with {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def quietest(samples, arm, key):
    """Of an operation, in the round that took least; None: there is none."""
    return min((s[key] / s["operations"] for s in samples if s["arm"] == arm), default=None)


def without_null(samples, arms, key):
    """{arm: what it takes more than the one that does nothing}"""
    nothing = quietest(samples, "null", key)
    figures = {arm: quietest(samples, arm, key) for arm in arms if arm != "null"}
    return {arm: None if figure is None else round(figure - nothing, 1) for arm, figure in figures.items()}


def sleeps(samples, arm):
    """In a million operations."""
    own = [s for s in samples if s["arm"] == arm]
    return round(1e6 * sum(s["sleeps"] for s in own) / sum(s["operations"] for s in own), 1) if own else None


def in_callgrind(name, arms, options, trace):
    """turns.c's JSON, and callgrind's text of each sample's round."""
    arguments, function = WORKLOADS[name]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        result = turns(arguments, arms, [*options, "--rounds", 1 if trace else COUNTED_ROUNDS, "--pairs", COUNTED_PAIRS], trace,
                       ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", f"--toggle-collect={function}",
                        f"--dump-after={function}", "--compress-strings=no"])
        rounds = sorted(out.parent.glob("out.*"), key=lambda path: int(path.suffix[1:]))
        return result, [path.read_text() for path in rounds[-len(result["samples"]):]]  # the first ones warmed up


def counted(name, arms, options, trace):
    """{arm: instructions}"""
    result, texts = in_callgrind(name, arms, options, trace)
    for sample, text in zip(result["samples"], texts):
        sample["instructions"] = int(re.search(r"^totals: (\d+)", text, re.MULTILINE).group(1))
    return without_null(result["samples"], arms, "instructions")


def steps(name, options):
    """{step: instructions of one of ours, the mean of the last round}"""
    text, found = in_callgrind(name, ["cachealloc"], options, None)[1][-1], {}
    for step, function in STEPS.items():
        calls = re.findall(rf"^cfn={function}\ncalls=(\d+) .*\n\S+ (\d+)", text, re.MULTILINE)
        number, instructions = (sum(int(call[i]) for call in calls) for i in (0, 1))
        found[step] = round(instructions / number, 1) if number else None
    return found


def measure(name, arms, args, folder):
    trace = name.partition("+")[0]
    trace = recorded.prepare(trace, folder) if trace in recorded.RECORDED else None
    budget = ["--budget", args.budget]
    pairs = args.pairs * (THREADS_PAIRS if name.startswith("threads") else 1)
    result = turns(WORKLOADS[name][0], arms, [*budget, "--rounds", args.rounds, "--pairs", pairs], trace)
    samples = result["samples"]
    row = {"workload": name, "counters": result["counters"], "cpu_ns": without_null(samples, arms, "cpu_ns"),
           "wall_ns": without_null(samples, arms, "wall_ns"), "cycles": None, "instructions": None,
           "rounds": {arm: sum(s["arm"] == arm for s in samples) for arm in arms},
           "gave_up": [arm for arm in arms if result["arms"][arm]["stopped"]]}
    if result["counters"]:
        row.update({key: without_null(samples, arms, key) for key in ("cycles", "instructions")})
    elif WORKLOADS[name][1] and args.count:
        row["instructions"] = counted(name, arms, budget, trace)
    if name in STEPS_IN and args.count:
        row["steps"] = steps(name, budget)
    if name.startswith("threads"):
        row["sleeps"] = {arm: sleeps(samples, arm) for arm in arms if arm != "null"}
    if name.endswith("+calls"):
        clock = result["arms"]["null"]["p50_ns"]
        row["percentiles"] = {arm: {key: max(0, result["arms"][arm][key] - clock) for key in
                                    ("p50_ns", "p99_ns", "p999_ns", "p9999_ns", "max_ns")}
                              for arm in arms if arm != "null" and "p50_ns" in result["arms"][arm]}
    return row


def measure_all(names, arms, args):
    """(rows, the names of what failed)"""
    rows, failed = [], []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            say(name)
            try:
                rows.append(measure(name, arms, args, folder))
            except (RuntimeError, subprocess.TimeoutExpired) as problem:
                say(f"{name} failed: {problem}")
                failed.append(name)
    return rows, failed


# ------------------------------------------------------------------------------------------------- tables ---


def cells(row, key, arms):
    """The figures; behind the peers', how often ours fits into them."""
    figures = row[key] or {}
    ours = figures.get("cachealloc")
    for arm in arms:
        figure = figures.get(arm)
        if figure is None:
            yield "gave up" if arm in row["gave_up"] else "-"
        else:
            yield f"{figure}" + (f" ({figure / ours:.2f})" if ours and arm != "cachealloc" else "")


def tables(rows, arms):
    arms = [arm for arm in arms if arm != "null"]
    plain = [r for r in rows if "sleeps" not in r and "percentiles" not in r]
    for key, head in (("cpu_ns", "ns"), ("cycles", "cycles"), ("instructions", "instructions")):
        chosen = [r for r in plain if r[key]]
        if chosen:
            yield measuring.table([f"{head} (times ours)", *arms], [[r["workload"], *cells(r, key, arms)] for r in chosen])
    stepped = [r for r in rows if "steps" in r]
    if stepped:
        yield measuring.table(["instructions of ours", *STEPS], [[r["workload"], *map(str, r["steps"].values())] for r in stepped])
    threads = [r for r in rows if "sleeps" in r]
    if threads:
        body = []
        for r in threads:
            body += [[f"{r['workload']}: ns of wall time a pair", *cells(r, "wall_ns", arms)],
                     [f"{r['workload']}: ns of processors a pair", *cells(r, "cpu_ns", arms)],
                     [f"{r['workload']}: sleeps in a million pairs", *(str(r["sleeps"][arm]) for arm in arms)]]
        yield measuring.table(["threads", *arms], body)
    calls = [r for r in rows if "percentiles" in r]
    if calls:
        yield measuring.table(["ns of a call, its quietest round", *arms],
                              [[f"{r['workload']} {key[:-3]}", *(str(r["percentiles"].get(arm, {}).get(key, "-")) for arm in arms)]
                               for r in calls for key in ("p50_ns", "p99_ns", "p999_ns", "p9999_ns")])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="JSON")
    parser.add_argument("--rounds", type=int, default=25, help="of each arm (%(default)s)")
    parser.add_argument("--pairs", type=int, default=10000, help="in a round (%(default)s)")
    parser.add_argument("--budget", type=int, default=10, metavar="SECONDS",
                        help="an arm that takes longer in a workload gives up (%(default)s)")
    parser.add_argument("--as-built", action="store_true", help="fetch nothing, and compile nothing")
    parser.add_argument("--no-count", dest="count", action="store_false", help="no instructions by callgrind")
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"of {', '.join(WORKLOADS)}; all if none is named")
    args = parser.parse_args()
    unknown = [name for name in args.workloads if name not in WORKLOADS]
    if unknown or min(args.rounds, args.pairs, args.budget) < 1:
        parser.error(f"no such workload: {unknown[0]}" if unknown else "numbers are at least 1")
    measuring.need_build("peers/turns", "libcuda.so.1")
    absent = prepare(args.as_built)
    for peer, why in absent.items():
        say(f"left out: {peer}: {why}")
    if args.count and measuring.without_valgrind():
        say(f"instructions are not counted by callgrind: {measuring.without_valgrind()}")
        args.count = False
    arms = ["null", "cachealloc", *(peer for peer in PEERS if peer not in absent)]
    rows, failed = measure_all([name for name in WORKLOADS if not args.workloads or name in args.workloads], arms, args)
    measuring.write({"format": "peers", "format_version": 1, "left_out": absent, "failed": failed, "rounds": args.rounds,
                     "pairs": args.pairs, "rows": rows}, args.out)
    print("\n\n".join(tables(rows, arms)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
