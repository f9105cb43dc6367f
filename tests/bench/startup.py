#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the preload costs a program that has nothing to do with CUDA: startup.py [--runs N] [--out FILE].

Start-up: N interleaved pairs of /bin/true without and with the preload, order changing from pair to pair; the median
of the differences with a bootstrap 95 % interval. dlsym: nanoseconds a call of a common name, without and with. JSON.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LIBRARY = Path(os.environ.get("CACHEALLOC_BUILD", ROOT / "build")).resolve() / "shim" / "libcachealloc.so"


def environment(preload):
    env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    if preload:
        env["LD_PRELOAD"] = str(LIBRARY)
    return env


def time_start(env):
    start = time.perf_counter_ns()
    pid = os.posix_spawn("/bin/true", ["/bin/true"], env)
    status = os.waitpid(pid, 0)[1]
    if status:
        sys.exit(f"startup.py: /bin/true ended with status {status}")
    return time.perf_counter_ns() - start


def interval(values, rng, rounds=2000):
    """95 % bootstrap interval of the median."""
    medians = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(rounds))
    return medians[rounds * 25 // 1000], medians[rounds * 975 // 1000 - 1]


def measure_start(runs, rng):
    plain, loaded = environment(False), environment(True)
    pairs = []
    for i in range(runs):
        first, second = (plain, loaded) if i % 2 == 0 else (loaded, plain)
        times = {id(first): time_start(first), id(second): time_start(second)}
        pairs.append((times[id(plain)], times[id(loaded)]))
    differences = [b - a for a, b in pairs]
    low, high = interval(differences, rng)
    return {
        "runs": runs,
        "plain_median_ns": int(statistics.median(a for a, _ in pairs)),
        "preload_median_ns": int(statistics.median(b for _, b in pairs)),
        "difference_median_ns": int(statistics.median(differences)),
        "difference_low_ns": int(low),
        "difference_high_ns": int(high),
    }


DLSYM_LOOP = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <time.h>
int main(void)
{
	enum { COUNT = 300000 };
	struct timespec a, b;
	void *libc = dlopen("libc.so.6", RTLD_LAZY);
	void *volatile found;

	clock_gettime(CLOCK_MONOTONIC, &a);
	for (int i = 0; i < COUNT; i++)
		found = dlsym(libc, "getpid");
	clock_gettime(CLOCK_MONOTONIC, &b);
	printf("%.2f\n", ((b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / COUNT);
	return !found;
}
"""


def measure_dlsym(folder):
    program = folder / "dlsym_cost"
    subprocess.run([os.environ.get("CC", "cc"), "-O2", "-xc", "-", "-o", str(program), "-ldl"], input=DLSYM_LOOP,
                   check=True, text=True)
    costs = {False: [], True: []}
    for i in range(10):
        preload = i % 2 == 1
        done = subprocess.run([str(program)], env=environment(preload), check=True, stdout=subprocess.PIPE, text=True)
        costs[preload].append(float(done.stdout))
    return {"plain_ns": statistics.median(costs[False]), "preload_ns": statistics.median(costs[True])}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if not LIBRARY.exists():
        sys.exit(f"startup.py: no {LIBRARY}: build first, or set CACHEALLOC_BUILD")
    with tempfile.TemporaryDirectory() as folder:
        dlsym = measure_dlsym(Path(folder))
    result = {"format": "startup", "format_version": 1, "library": LIBRARY.name,
              "start": measure_start(args.runs, random.Random(args.seed)), "dlsym": dlsym}
    text = json.dumps(result, indent=2)
    if args.out:
        args.out.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
