#!/bin/bash
# SPDX-License-Identifier: MIT
# Installs what is missing, builds, and runs every test. Usage: scripts/test.sh [--quick] [--long] [FILTER]
#
#   --quick  gcc build, its suites and the rules only: no sanitizers, no second compiler, no static analysis; of the
#            files of tests with most cases every second to eighth case, others in each run; Chromium, RMM and others'
#            viewers are not fetched
#   --long   the soak runs too (many more seeds), and the packages of PyTorch (3 GB are fetched) and numba (90 MB);
#            clang's analyzer looks six times as deep
#   FILTER   only stages whose name contains FILTER; what they need is built
#
# The last line is `N passed, N failed, N skipped`; the status is 1 if anything failed, 3 if the machine lacks
# something that cannot be installed. Stages run side by side; each one's output is kept in build-results/.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/setup.sh
. scripts/setup.sh

quick='' long='' filter=''
for argument in "$@"; do
	case $argument in
	--quick) quick=1 ;;
	--long) long=1 ;;
	-h | --help) say_usage "$0" && exit 0 ;;
	-*) say_usage "$0" >&2 && exit 2 ;;
	*) filter=$argument ;;
	esac
done

wanted() { [[ $1 == *"$filter"* ]]; }

setup_packages test
results="build-results"
rm -rf "$results" && mkdir "$results"
: >"$results/stages"
export PYTHONDONTWRITEBYTECODE=1
export CACHEALLOC_TEST_VENV=$PWD/build-venv CACHEALLOC_TEST_NUMBA=$PWD/build-numba
[ -z "$long" ] || export CACHEALLOC_TEST_LONG=1
[ -z "$quick" ] || export CACHEALLOC_TEST_QUICK=1
setup_clients build-venv ||
	say "the Python package index cannot be reached (build-venv.log): the tests of cuda-bindings, cuda.core and tinygrad will be skipped"
setup_ffmpeg build-ffmpeg.log ||
	say "ffmpeg cannot be installed (build-ffmpeg.log): its tests will be skipped"
[ -n "$quick" ] || setup_browser build-browser.log ||
	say "Chromium cannot be installed (build-browser.log): the page of cachealloc report will not be opened"
setup_headers build-headers build-venv ||
	say "CUDA's headers cannot be had (build-headers.log): tests/abi will compare with installed ones only"
[ -n "$quick" ] || setup_rmm build-rmm build-venv ||
	say "RMM's headers cannot be had (build-rmm.log): its test will be skipped"
setup_drivers build-drivers ||
	say "NVIDIA's driver library cannot be had in every version (build-drivers.log): the others will not be tested"
[ -n "$quick" ] || setup_viewers build-viewers ||
	say "others' readers of snapshots cannot be had (build-viewers.log): their tests will be skipped"
[ -z "$long" ] || ! wanted gcc-cli || setup_debootstrap build-debootstrap.log ||
	say "debootstrap cannot be installed (build-debootstrap.log): nothing will be installed in a system of its own"
[ -z "$long" ] || ! wanted gcc-process || setup_numba build-numba ||
	say "numba-cuda cannot be had (build-numba.log): its test will be skipped"
[ -z "$long" ] || ! wanted gcc-driver || setup_torch build-torch ||
	say "PyTorch's package cannot be had (build-torch.log): its test will be skipped"

# ------------------------------------------------------------------------------------------------ stages ---

# stage KIND NAME COMMAND...: runs one stage (kinds: count_results.py) and prints its line.
stage() {
	local kind=$1 name=$2 start=$SECONDS status=0 line
	shift 2
	echo "$kind $name - -" >>"$results/stages"
	"$@" >"$results/$name.log" 2>&1 </dev/null || status=$?
	echo "$kind $name $status $((SECONDS - start))" >>"$results/stages"
	line=$("$PYTHON" scripts/count_results.py "$results" --stage "$name")
	echo "$line"
	# by the count, not by the status: Meson fails for cmocka's way of skipping
	[[ $line != FAIL* ]] || tail -n 40 "$results/$name.log" | sed 's/^/    | /'
}

# built BUILD: builds build-BUILD (build for gcc) once, as a stage of its own.
declare -A done_builds=()
built() {
	[ -z "${done_builds[$1]:-}" ] || return 0
	done_builds[$1]=1
	stage check "$1-build" "build_$1"
}
build() { # FOLDER MESON-ARGUMENTS...
	setup_build "$@" && ninja -C "$1" -j "$JOBS"
}
build_gcc() { build build --native-file scripts/build-dev.ini; }
build_clang() { CC=clang build build-clang --native-file scripts/build-dev.ini; }
# A report of a sanitizer names functions and lines, which -g1 has. With -O2 ASan's build takes twice as long and its
# tests take the same; TSan's tests take longer without.
build_asan() {
	build build-asan --native-file scripts/build-dev.ini -Db_sanitize=address,undefined -Db_lundef=false \
		-Doptimization=1 -Dc_args=-g1
}
build_tsan() { build build-tsan --native-file scripts/build-dev.ini -Db_sanitize=thread -Db_lundef=false -Dc_args=-g1; }
build_aarch64() { build build-aarch64 --native-file scripts/build-dev.ini --cross-file scripts/aarch64.ini; }

# unit BUILD FOLDER [COMMAND...]: the C unit tests of a build, under COMMAND.
unit() {
	local name=$1-unit folder=$2
	shift 2
	wanted "$name" || return 0
	built "${name%-unit}"
	stage meson "$name" unit_run "$name" "$folder" "$@"
}
unit_run() {
	local name=$1 folder=$2 status=0 tests=()
	shift 2
	[ "$name" != tsan-unit ] || mapfile -t tests < <("$PYTHON" scripts/tests_with_threads.py "$folder")
	rm -f "$folder/meson-logs/testlog.json"
	"$@" meson test -C "$folder" --no-rebuild --num-processes "$JOBS" --print-errorlogs \
		--timeout-multiplier "$([ -z "$long" ] && echo 1 || echo 12)" "${tests[@]}" || status=$?
	cp "$folder/meson-logs/testlog.json" "$results/$name.json"
	return "$status"
}

# suite BUILD SUITE [COMMAND...] [-- PYTEST-ARGUMENTS...]: one folder of pytest tests, under COMMAND.
suite() {
	local build=$1 suite=$2 name=$1-${2##*/}
	shift 2
	wanted "$name" || return 0
	built "$build"
	stage pytest "$name" suite_run "$name" "$suite" "$@"
}
suite_run() {
	local name=$1 suite=$2 before=()
	shift 2
	while [ $# -gt 0 ] && [ "$1" != -- ]; do before+=("$1") && shift; done
	"${before[@]}" timeout -k 10 "$([ -z "$long" ] && echo 1800 || echo 7200)" "$PYTHON" -m pytest -p no:cacheprovider -q -ra --tb=short \
		-o junit_logging=no --junitxml="$results/$name.xml" "tests/$suite" "${@:2}"
}

check() { # NAME COMMAND...
	! wanted "$1" || stage check "$@"
}

# ------------------------------------------------------------------------------------------------- checks ---
sources() { find config allocator shim tests -name '*.[ch]' | sort; }
shell_scripts() { grep -rlE '^#!/bin/(ba)?sh|^# shellcheck shell=' scripts tests .ci; }

check_format() { sources | xargs clang-format --dry-run -Werror; }
check_shell() { shell_scripts | xargs shellcheck -x; }
check_docs() { "$PYTHON" scripts/gen_options.py --check; }
check_comments() { "$PYTHON" scripts/check_comments.py; }
check_words() { "$PYTHON" scripts/check_words.py; }
check_tidy() { "$PYTHON" scripts/check_tidy.py build-clang -j "$JOBS" --nodes "$([ -z "$long" ] && echo 40000 || echo 225000)"; }
check_cppcheck() {
	cppcheck --project=build-clang/compile_commands.json --enable=warning,portability,performance --inline-suppr \
		--suppressions-list=scripts/cppcheck.suppressions --error-exitcode=1 --quiet -j "$JOBS"
}

# ---------------------------------------------------------------------------------------------- sequences ---
# Stages that follow each other; the longest sequence first.
sequence_process() { suite gcc process; }
sequence_asan() {
	unit asan build-asan env CACHEALLOC_TEST_LEAKS=1 scripts/sanitizer_env.sh address build-asan
	suite asan process scripts/sanitizer_env.sh address build-asan
}
sequence_stress() { suite gcc stress; }
sequence_clang() {
	for each in clang-build tidy cppcheck; do ! wanted "$each" || built clang; done
	check tidy check_tidy
	check cppcheck check_cppcheck
	unit clang build-clang
}
sequence_tsan() {
	unit tsan build-tsan scripts/sanitizer_env.sh thread build-tsan
	suite tsan process/shim scripts/sanitizer_env.sh thread build-tsan -- \
		-k "captures or release or other_dev or signal or slow_death or come_back or holders or waits or streams or threads"
	suite tsan process/order/test_expandable.py scripts/sanitizer_env.sh thread build-tsan -- \
		-k "random or several or unmapped or device or auto or exported"
	suite tsan stress scripts/sanitizer_env.sh thread build-tsan
}
sequence_cli() { suite gcc cli; }
sequence_bench() { for each in bench driver; do suite gcc "$each"; done; }
sequence_fault() { for each in abi fault; do suite gcc "$each"; done; }
sequence_unit() { unit gcc build; }
sequence_aarch64() {
	suite aarch64 process/loader env CACHEALLOC_BUILD=build-aarch64 \
		CACHEALLOC_TEST_EMULATOR="qemu-aarch64 -L /usr/aarch64-linux-gnu" -- -m loader
}
sequence_rules() { for each in format shell docs comments words; do check "$each" "check_$each"; done; }

sequences=(process asan tsan clang cli stress fault bench unit aarch64 rules)
[ -z "$quick" ] || sequences=(process cli stress fault bench unit rules)

# One that dies has not written its second line, which counts as a failure.
sequence() {
	echo "sequence $1 - -" >>"$results/stages"
	"sequence_$1"
	echo "sequence $1 0 $SECONDS" >>"$results/stages"
}

# Sequences run in the background, where an interrupt from the terminal does not reach them or what they started.
kill_with_children() { # PID
	local child children
	children=$(cat "/proc/$1/task/$1/children" 2>/dev/null) || children=''
	kill "$1" 2>/dev/null || true
	for child in $children; do kill_with_children "$child"; done
}
interrupted() {
	for each in $(jobs -p); do kill_with_children "$each"; done
	say "interrupted" >&2
	exit 130
}
trap interrupted INT TERM HUP

# For two processors: many tests wait rather than compute. (With two a third of the processors' time was idle.)
SIDE_BY_SIDE=3
SECONDS=0
# More than one sequence tests the gcc build.
for each in unit abi process driver stress bench fault cli; do ! wanted "gcc-$each" || built gcc; done
for each in "${sequences[@]}"; do
	while [ "$(jobs -rp | wc -l)" -ge "$SIDE_BY_SIDE" ]; do wait -n || true; done
	sequence "$each" &
done
wait
say "took $((SECONDS / 60)) min $((SECONDS % 60)) s; outputs in $results/"
exec "$PYTHON" scripts/count_results.py "$results"
