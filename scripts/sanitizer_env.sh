#!/bin/bash
# SPDX-License-Identifier: MIT
# sanitizer_env.sh address|thread BUILD COMMAND...: runs COMMAND so that its tests use the sanitizer build BUILD.
#
# A sanitizer's runtime must come first in the list of libraries, and LD_PRELOAD comes before what a program
# links: so it has to be preloaded before our library (tests/conftest.py does it, from
# CACHEALLOC_TEST_PRELOAD_FIRST). Leaks are looked for in the unit tests only: bash and python3 leak by design.
set -euo pipefail
kind=$1
CACHEALLOC_BUILD=$(realpath "$2")
shift 2
export CACHEALLOC_BUILD
export UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1"
case $kind in
address)
	CACHEALLOC_TEST_PRELOAD_FIRST=$(realpath "$(gcc -print-file-name=libasan.so)"):$(realpath "$(gcc -print-file-name=libubsan.so)")
	export ASAN_OPTIONS="detect_leaks=${CACHEALLOC_TEST_LEAKS:-0}:abort_on_error=1:allocator_may_return_null=1"
	prefix=()
	;;
thread)
	CACHEALLOC_TEST_PRELOAD_FIRST=$(realpath "$(gcc -print-file-name=libtsan.so)")
	# the default is to sleep a second at the end of each process that has other threads, as all on the simulator have
	export TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1:history_size=4:atexit_sleep_ms=50"
	# this runtime does not know the widest address-space randomisation of newer kernels
	prefix=(setarch -R)
	"${prefix[@]}" true 2>/dev/null || prefix=()
	;;
*)
	echo "usage: ${0##*/} address|thread BUILD COMMAND..." >&2
	exit 2
	;;
esac
export CACHEALLOC_TEST_PRELOAD_FIRST CACHEALLOC_TEST_SANITIZER=$kind
# a test may load a library of BUILD into pytest's own process
[ "$kind" != address ] || [ "${CACHEALLOC_TEST_LEAKS:-0}" = 1 ] || prefix=(env "LD_PRELOAD=$CACHEALLOC_TEST_PRELOAD_FIRST")
exec "${prefix[@]}" "$@"
