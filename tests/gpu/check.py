#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The checks of scripts/gpu_check.sh; see there. Programs are built into build-gpu/, with and without the preload
they run one after the other, and what they printed stands in the result beside the conclusions."""

import datetime
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = ROOT / "build-gpu"
LIBRARY = BUILD / "shim" / "libcachealloc.so"
PARTS = ("build", "static", "shared", "torch", "latency", "native", "order_cost", "order_claims", "order_random",
         "alloc_latency", "torch_policy", "framework", "naive")
RANDOM_SOURCES = ("random_program", "ranges", "rng", "worker", "world")
DONE, FAILED, USAGE, LACKING = 0, 1, 2, 3


class Lacking(Exception):
    """What this machine does not have."""


class Broken(Exception):
    """A command that had to succeed did not."""


# ---- tools

def tool(name):
    found = shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin")
    if not found:
        raise Lacking(f"{name} is needed and was not found")
    return found


def output(words, timeout=120):
    """Standard output of a command, or None when it fails."""
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=timeout,
                              check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def must(words, timeout=420):
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=timeout, check=False, cwd=ROOT)
    if done.returncode:
        raise Broken(f"{words[0]} exited with {done.returncode}:\n{done.stdout[-3000:]}")
    return done.stdout


def gpus():
    """[{name, driver, memory_mib}] or Lacking."""
    text = output(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader,nounits"])
    if not text:
        raise Lacking("no NVIDIA GPU here (nvidia-smi finds none)")
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    return [{"name": row[0], "driver": row[1], "memory_mib": int(row[2]) if row[2].isdigit() else None} for row in rows]


def program(name, *options):
    """Compiles tests/gpu/NAME.cu into build-gpu/gpu/ and returns the path."""
    folder = BUILD / "gpu"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "-".join([name, *(re.sub(r"\W", "", option) for option in options)])
    source = HERE / f"{name}.cu"
    newest = max(file.stat().st_mtime for file in (source, HERE / "need.hpp"))
    if not path.exists() or path.stat().st_mtime < newest:
        nvcc = tool("nvcc")
        stubs = Path(nvcc).resolve().parent.parent / "lib64" / "stubs"
        must([nvcc, "-O2", *options, "-o", path, source, f"-L{stubs}", "-lcuda"])
    return path


def environment(preload, **extra):
    env = {name: value for name, value in os.environ.items()
           if not name.startswith(("CACHEALLOC_", "SIMCUDA_")) and name != "LD_PRELOAD"}
    if preload:
        if not LIBRARY.exists():
            raise Lacking(f"{LIBRARY} is not built: run the part `build` first")
        env["LD_PRELOAD"] = str(LIBRARY)
    env.update(extra)
    return env


def run(words, preload, timeout=200, **extra):
    """{exit_code, seconds, output (last line's JSON), stderr, stats} of one run."""
    with tempfile.TemporaryDirectory() as folder:
        if preload:
            extra["CACHEALLOC_STATS"] = f"{folder}/%p.json"
        start = time.monotonic()
        done = subprocess.run([str(word) for word in words], env=environment(preload, **extra), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout, check=False)
        spent = time.monotonic() - start
        stats = [json.loads(path.read_text()) for path in sorted(Path(folder).glob("*.json"))]
    lines = done.stdout.strip().splitlines()
    try:
        said = json.loads(lines[-1]) if lines else None
    except ValueError:
        said = None
    return {"exit_code": done.returncode, "seconds": round(spent, 3), "output": said,
            "stderr": done.stderr[-2000:], "stats": stats}


def first_device(result):
    devices = [device for stats in result["stats"] for device in stats["devices"]]
    return devices[0] if devices else {}


# ---- parts: each returns (data, [what failed])

def part_build(_):
    meson, ninja = tool("meson"), tool("ninja")
    if not (BUILD / "build.ninja").exists():
        must([meson, "setup", BUILD])
    must([ninja, "-C", BUILD])
    sources = {name: str(program(name, *options).name) for name, options in
               (("runtime", ("-cudart=static",)), ("runtime", ("-cudart=shared",)), ("latency", ()), ("native", ()),
                ("alloc_latency", ("-x=c++",)), ("naive", ("-x=c++", "-cudart=static")))}
    doctor = output([sys.executable, str(ROOT / "scripts" / "cachealloc"), "doctor", "--json", "--library",
                     str(LIBRARY), str(BUILD / "gpu" / sources["latency"])])
    return {"meson": output([meson, "--version"]), "compiler": (output(["cc", "--version"]) or "").split("\n")[0],
            "nvcc": (output([tool("nvcc"), "--version"]) or "").split("\n")[-1],
            "doctor": {key: json.loads(doctor or "{}").get(key) for key in ("will_intercept", "reason", "roads")}}, []


def runtime_part(kind):
    """An nvcc program, stock and preloaded: same results, each allocation counted once."""
    path = program("runtime", f"-cudart={kind}")
    gpus()
    stock, ours = run([path], preload=False), run([path], preload=True)
    counted = run([path], preload=True, CACHEALLOC_DISABLE="count")
    failed = [f"{name}: exit code {result['exit_code']}: {result['stderr'][-300:]}"
              for name, result in (("stock", stock), ("preload", ours), ("count", counted)) if result["exit_code"]]
    if not failed:
        allocs = ours["output"]["allocs"]
        for name, result in (("preload", ours), ("count", counted)):
            seen = first_device(result).get("alloc_calls")
            if seen is None or seen < allocs:
                failed.append(f"{name}: the program allocated {allocs} times, {seen} were counted")
        for key in ("allocs", "checksum", "errors"):
            if not stock["output"][key] == ours["output"][key] == counted["output"][key]:
                failed.append(f"{key} differs")
    return {"stock": stock, "preload": ours, "count": counted}, failed


def part_torch(_):
    gpus()
    script = [sys.executable, HERE / "torch_train.py"]
    if output([sys.executable, "-c", "import torch; assert torch.cuda.is_available()"]) is None:
        raise Lacking("PyTorch with CUDA is needed (import torch; torch.cuda.is_available())")
    native = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    off = {**native, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    results = {"pytorch_allocator": run(script, preload=False, **native),
               "stock": run(script, preload=False, **off),
               "count": run(script, preload=True, CACHEALLOC_DISABLE="count", **off),
               "preload": run(script, preload=True, **off)}
    failed = [f"{name}: exit code {result['exit_code']}: {result['stderr'][-300:]}"
              for name, result in results.items() if result["exit_code"]]
    if not failed:
        losses = {name: result["output"]["losses"] for name, result in results.items()}
        failed += [f"losses of {name} differ from stock" for name in losses if losses[name] != losses["stock"]]
        if not first_device(results["preload"]).get("cache_hits"):
            failed.append("nothing was served from the cache")
    summary = {name: {"step_ms": (result["output"] or {}).get("step_ms"),
                      "used_peak_bytes": (result["output"] or {}).get("used_peak_bytes"),
                      **{key: first_device(result).get(key) for key in
                         ("alloc_calls", "cache_hits", "driver_alloc_calls", "driver_free_calls", "driver_ns")},
                      "peak_reserved_bytes": (first_device(result).get("reserved_bytes") or {}).get("peak")}
               for name, result in results.items()}
    return {"summary": summary, "runs": results}, failed


def part_latency(_):
    """Stock latencies; the median over processes of each figure."""
    path = program("latency")
    gpus()
    runs = [run([path], preload=False) for _ in range(3)]
    failed = [f"exit code {result['exit_code']}: {result['stderr'][-300:]}" for result in runs if result["exit_code"]]
    if failed:
        return {"runs": runs}, failed
    tables = [result["output"]["calls"] for result in runs]
    merged = {name: {size: {key: round(statistics.median(table[name][size][key] for table in tables))
                            for key in tables[0][name][size]} for size in tables[0][name]} for name in tables[0]}
    return {"device": runs[0]["output"]["device"], "driver_version": runs[0]["output"]["driver_version"],
            "calls": merged}, []


def part_native(_):
    """What stock answers to misuse, and what a preloaded process answers: one process a case."""
    path = program("native")
    gpus()
    names = must([path, "--list"]).split()
    table, different = {}, []
    for name in names:
        stock, ours = (run([path, name], preload=preload, timeout=60) for preload in (False, True))
        answers = [(result["output"] or {}).get("answers") for result in (stock, ours)]
        table[name] = {"stock": answers[0], "preload": answers[1],
                       "exit_codes": [stock["exit_code"], ours["exit_code"]]}
        if answers[0] != answers[1]:
            different.append(name)
    return {"cases": table, "different": different, "assumptions": tried(path)}, []


def tried(path):
    """What the library's own trials of the driver found (docs/ORDER.md, rule 19): reasons, none where all are kept."""
    return first_device(run([path, "assumptions"], preload=True, timeout=60)).get("finished_only_reasons")


def kernels():
    """The kernels of the simulator, for this device."""
    path, source = BUILD / "gpu" / "kernels.fatbin", HERE / "kernels.cu"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.stat().st_mtime < source.stat().st_mtime:
        must([tool("nvcc"), "-fatbin", "-arch=all-major", "-o", path, source])
    return path


def part_order_cost(_):
    """What the tracker's calls cost, and what the preload adds to a launch: interleaved runs, medians."""
    path, fatbin = program("order"), kernels()
    gpus()
    runs = {False: [], True: []}
    for _ in range(5):
        for preload in (False, True):
            runs[preload].append(run([path, "cost", fatbin], preload=preload))
    failed = [f"exit code {result['exit_code']}: {result['stderr'][-300:]}"
              for result in runs[False] + runs[True] if result["exit_code"]]
    if failed:
        return {"runs": runs[False] + runs[True]}, failed
    table = {name: {"stock_ns": statistics.median(result["output"][name] for result in runs[False]),
                    "preload_ns": statistics.median(result["output"][name] for result in runs[True])}
             for name in runs[False][0]["output"]}
    burst = table["launch_burst_ns"]
    added = (burst["preload_ns"] - burst["stock_ns"]) / burst["stock_ns"]
    return {"median_of_5": table, "launch_added_share": round(added, 4)}, \
        [f"a launch costs {added:.1%} more, the limit is 1 %"] if added > 0.01 else []


def part_order_claims(_):
    """What is only documented and the tracker rests on; stock driver."""
    path, fatbin = program("order"), kernels()
    gpus()
    result = run([path, "claims", fatbin], preload=False)
    if result["exit_code"]:
        return result, [f"exit code {result['exit_code']}: {result['stderr'][-300:]}"]
    return result["output"], [f"{name} does not hold" for name, holds in result["output"].items() if not holds]


def part_order_random(_):
    """The random programs of tests/stress with real kernels: contents checked on the device."""
    path, fatbin = BUILD / "gpu" / "random_program", kernels()
    stubs = Path(tool("nvcc")).resolve().parent.parent / "lib64" / "stubs"
    sources = [ROOT / "tests" / "stress" / f"{name}.c" for name in RANDOM_SOURCES]
    must(["cc", "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-I", ROOT, "-o", path, *sources, f"-L{stubs}", "-lcuda", "-lpthread"])
    gpus()
    failed, table = [], []
    begin = time.monotonic()
    for seed in range(1, 1000):
        for streams, threads in ((1, 1), (4, 1), (6, 3)):
            for conf in ("reuse_slack_mb:0", "reuse_slack_mb:256"):
                if time.monotonic() - begin > 300:
                    break
                result = run([path, seed, 2000, streams, threads, 1], preload=True, CACHEALLOC_CONF=conf,
                             CACHEALLOC_TEST_KERNELS=str(fatbin))
                figures = first_device(result)
                table.append([seed, streams, threads, conf, result["exit_code"],
                              *(figures.get(key) for key in ("taken_clean", "taken_same_stream", "order_waits"))])
                if result["exit_code"]:
                    failed.append(f"seed {seed}, {streams} streams, {threads} threads, {conf}: exit code "
                                  f"{result['exit_code']}: {result['stderr'][-300:]}")
    return {"columns": ["seed", "streams", "threads", "conf", "exit_code", "taken_clean", "taken_same_stream",
                        "order_waits"], "runs": table}, failed


def exit_codes(results):
    """What failed of {name: [results]}."""
    return [f"{name}: exit code {result['exit_code']}: {result['stderr'][-300:]}"
            for name, runs in results.items() for result in runs if result["exit_code"]]


def interleaved(arms, rounds):
    """{name: [results]} of {name: run()}; every other round in reverse, so that none is always the first."""
    results = {name: [] for name in arms}
    for i in range(rounds):
        for name in list(arms) if i % 2 == 0 else reversed(list(arms)):
            results[name].append(arms[name]())
    return results


def part_alloc_latency(_):
    """Every call that takes or gives back memory, by size: stock, and through the cache. Medians over processes."""
    path = program("alloc_latency", "-x=c++")
    gpus()
    results = interleaved({"stock": lambda: run([path], preload=False), "preload": lambda: run([path], preload=True)}, 3)
    failed = exit_codes(results)
    if failed:
        return results, failed
    data = {"device": results["stock"][0]["output"]["device"],
            "driver_version": results["stock"][0]["output"]["driver_version"]}
    for name, runs in results.items():
        tables = [result["output"]["calls"] for result in runs]
        data[name] = {"refused": runs[0]["output"]["refused"],
                      "calls": {call: {size: {key: round(statistics.median(table[call][size][key] for table in tables))
                                              for key in tables[0][call][size]} for size in tables[0][call]}
                                for call in tables[0]}}
    if data["stock"]["refused"] != data["preload"]["refused"]:
        failed.append(f"stock refuses {data['stock']['refused']}, the preload {data['preload']['refused']}")
    return data, failed


def need_torch():
    if output([sys.executable, "-c", "import torch; assert torch.cuda.is_available()"]) is None:
        raise Lacking("PyTorch with CUDA is needed (import torch; torch.cuda.is_available())")


def policy_row(runs):
    """Medians of one arm: step time, memory at the peak, calls that reached the driver."""
    figures = [first_device(result) for result in runs]
    row = {key: statistics.median(result["output"][key] for result in runs)
           for key in ("used_peak_bytes", "torch_peak_reserved_bytes")}
    row["step_ms"] = {key: statistics.median(result["output"]["step_ms"][key] for result in runs)
                      for key in runs[0]["output"]["step_ms"]}
    row["peak_reserved_bytes"] = max((figure.get("reserved_bytes") or {}).get("peak") or 0 for figure in figures) or None
    for key in ("alloc_calls", "cache_hits", "driver_alloc_calls", "driver_free_calls", "driver_ns", "alloc_retries",
                "host_syncs"):
        row[key] = figures[0].get(key)
    return row


def part_torch_policy(_):
    """A transformer on batches of mixed lengths under three policies: PyTorch's own cache, none, and ours. The counted
    arm has PyTorch's cache on and only counts what it asks of the driver."""
    gpus()
    need_torch()
    script, native = [sys.executable, HERE / "torch_train.py", 120], {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    off = {**native, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    arms = {"pytorch": lambda: run(script, preload=False, **native),
            "pytorch_counted": lambda: run(script, preload=True, CACHEALLOC_DISABLE="count", **native),
            "stock": lambda: run(script, preload=False, **off),
            "preload": lambda: run(script, preload=True, **off)}
    results = interleaved(arms, 3)
    failed = exit_codes(results)
    if failed:
        return results, failed
    losses = results["stock"][0]["output"]["losses"]
    failed += [f"losses of {name} differ from stock" for name, runs in results.items()
               if any(result["output"]["losses"] != losses for result in runs)]
    table = {name: policy_row(runs) for name, runs in results.items()}
    ours, theirs, stock = (table[name]["step_ms"]["p50"] for name in ("preload", "pytorch", "stock"))
    if not table["preload"]["cache_hits"]:
        failed.append("nothing was served from the cache")
    if ours > stock:
        failed.append(f"a step takes {ours:.1f} ms with the preload and {stock:.1f} ms without")
    return {"rounds": 3, "steps": 120, "arms": table, "step_time_against_pytorch": round(ours / theirs, 4),
            "step_time_against_stock": round(ours / stock, 4)}, failed


def part_framework(_):
    """PyTorch with its own cache on and nothing else set: its memory passes straight through."""
    gpus()
    need_torch()
    script = [sys.executable, HERE / "torch_framework.py"]
    results = interleaved({"stock": lambda: run(script, preload=False), "preload": lambda: run(script, preload=True)}, 2)
    failed = exit_codes(results)
    if failed:
        return results, failed
    table = {name: {key: value if isinstance(value, str) else statistics.median(r["output"][key] for r in runs)
                    for key, value in runs[0]["output"].items()} for name, runs in results.items()}
    stock, ours = table["stock"], table["preload"]
    if ours["largest_tensor_bytes"] < stock["largest_tensor_bytes"]:
        failed.append(f"the largest tensor is {ours['largest_tensor_bytes']} bytes, {stock['largest_tensor_bytes']} "
                      "without the preload")
    if ours["peak_used_bytes"] > 1.01 * stock["peak_used_bytes"]:
        failed.append(f"{ours['peak_used_bytes']} bytes at the peak, {stock['peak_used_bytes']} without the preload")
    if ours["after_empty_cache_bytes"] > 1.01 * stock["after_empty_cache_bytes"]:
        failed.append(f"{ours['after_empty_cache_bytes']} bytes in use after empty_cache(), "
                      f"{stock['after_empty_cache_bytes']} without the preload")
    device = first_device(results["preload"][0])
    return {"arms": table, "passed_alloc_calls": device.get("passed_alloc_calls"),
            "cached_bytes": device.get("cached_bytes")}, failed


def part_naive(_):
    """cudaMalloc and cudaFree in every step: what such a program gains, with nothing changed in it."""
    path = program("naive", "-x=c++", "-cudart=static")
    gpus()
    arms = {"stock": lambda: run([path], preload=False), "preload": lambda: run([path], preload=True),
            "count": lambda: run([path], preload=True, CACHEALLOC_DISABLE="count")}
    results = interleaved(arms, 5)
    failed = exit_codes(results)
    if failed:
        return results, failed
    table = {name: {"step_us_p50": statistics.median(r["output"]["step_us"]["p50"] for r in runs),
                    "first_step_us": statistics.median(r["output"]["first_step_us"] for r in runs),
                    **{key: first_device(runs[0]).get(key) for key in
                       ("alloc_calls", "cache_hits", "driver_alloc_calls", "driver_free_calls", "driver_ns")},
                    "peak_reserved_bytes": (first_device(runs[0]).get("reserved_bytes") or {}).get("peak")}
             for name, runs in results.items()}
    ratio = table["preload"]["step_us_p50"] / table["stock"]["step_us_p50"]
    if ratio > 1:
        failed.append(f"a step takes {ratio:.2f} times as long with the preload")
    return {"arms": table, "step_time_against_stock": round(ratio, 4)}, failed


RUN = {"build": part_build, "static": lambda _: runtime_part("static"), "shared": lambda _: runtime_part("shared"),
       "torch": part_torch, "latency": part_latency, "native": part_native, "order_cost": part_order_cost,
       "order_claims": part_order_claims, "order_random": part_order_random, "alloc_latency": part_alloc_latency,
       "torch_policy": part_torch_policy, "framework": part_framework, "naive": part_naive}


def record(part, out):
    """Runs a part and writes its file. Returns the exit status."""
    start = time.monotonic()
    data, failed = RUN[part](out)
    try:
        machine = gpus()
    except Lacking:
        machine = []
    result = {"part": part, "machine": machine, "driver": machine[0]["driver"] if machine else None,
              "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
              "commit": output(["git", "-C", str(ROOT), "rev-parse", "HEAD"]),
              "seconds": round(time.monotonic() - start, 1), "failed": failed, "data": data}
    path = out / (f"{part}.json" if not failed else f"{part}.failed.json")
    path.write_text(json.dumps(result, indent=1) + "\n")
    for text in failed:
        print(f"gpu_check: {part}: {text}", file=sys.stderr)
    print(f"{part}: {'failed' if failed else 'done'} in {result['seconds']} s: {path}")
    return FAILED if failed else DONE


def main(argv):
    force = "--force" in argv
    words = [word for word in argv if word != "--force"]
    if len(words) != 3 or words[1] != "--out" or words[0] not in PARTS + ("all",):
        print(f"usage: scripts/gpu_check.sh PART|all --out DIR [--force]; parts: {' '.join(PARTS)}", file=sys.stderr)
        return USAGE
    out = Path(words[2])
    out.mkdir(parents=True, exist_ok=True)
    status = DONE
    for part in PARTS if words[0] == "all" else [words[0]]:
        if (out / f"{part}.json").exists() and not force:
            print(f"{part}: {out / part}.json is there; --force measures again")
            continue
        try:
            status = max(status, record(part, out))
        except Lacking as problem:
            print(f"gpu_check: {part}: {problem}", file=sys.stderr)
            status = LACKING
        except (Broken, subprocess.TimeoutExpired) as problem:
            print(f"gpu_check: {part}: {problem}", file=sys.stderr)
            status = max(status, FAILED)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
