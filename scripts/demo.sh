#!/bin/bash
# SPDX-License-Identifier: MIT
# Installs what is missing, builds, and runs the main job: one unmodified program with and without the
# preload, compared. On the GPU if there is one, on the simulated driver if not. Usage: scripts/demo.sh [PAIRS]
#
# The program plays a recorded PyTorch training step (allocations, frees and a little work on each block).
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/setup.sh
. scripts/setup.sh

pairs=${1:-5}
case $#,$pairs in
1,-h | 1,--help) say_usage "$0" && exit 0 ;;
[01],*[!0-9]* | [01],0 | [!01],*) say_usage "$0" >&2 && exit 2 ;;
esac
setup_packages demo
say "building"
{ setup_build build -Dtests=true -Dsite_conf= && ninja -C build -j "$JOBS" demo; } >build-demo.log 2>&1 || {
	tail -n 20 build-demo.log >&2
	say "the build failed; all of its output is in build-demo.log" >&2
	exit 1
}

trace=build/demo.trc
"$PYTHON" tests/traces/workload.py med128 "$trace"
say "program: the recorded training step med128, played by build/tests/traces/trace_program"

where=(--sim)
if nvidia-smi -L >build-gpu.log 2>&1 && grep '^GPU 0' build-gpu.log; then
	where=()
	# the program was linked with the simulated driver; this one is to be found first
	driver=$(/sbin/ldconfig -p | awk '/libcuda\.so\.1 .*(x86-64|AArch64)/ { print $NF; exit }')
	export LD_LIBRARY_PATH=${driver%/*}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
else
	say "no GPU here: the simulated driver stands in for it, with latencies as published (simulated times)"
	export SIMCUDA_LATENCY=published
fi
command=(scripts/cachealloc compare --runs "$pairs" --warmup 1 "${where[@]}" -- build/tests/traces/trace_program "$trace")
"$PYTHON" "${command[@]}"

cat <<END

Next, your own program:
  LD_PRELOAD=$PWD/build/shim/libcachealloc.so CACHEALLOC_STATS=1 ./app
  $PWD/scripts/cachealloc doctor ./app
END
