# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Set-up shared by demo.sh and test.sh; sourced, with the working directory at the repository's root.
#
# Written for Debian 12. What is missing is installed with apt-get, as root or through sudo; where neither is
# possible the packages are named in one line and the script exits with status 3. On other systems a package
# counts as present when the command it is wanted for is found.

# package=command it is wanted for (empty: a library or headers; only dpkg can tell)
PACKAGES_DEMO="gcc=gcc libc6-dev= meson=meson ninja-build=ninja pkg-config=pkg-config python3=python3 xz-utils=xz"
PACKAGES_TEST="$PACKAGES_DEMO libcmocka-dev= python3-pytest= python3-venv= python3-prometheus-client= openmpi-bin=mpirun git=git strace=strace
	binutils=readelf mandoc=mandoc util-linux=setarch shellcheck=shellcheck valgrind=valgrind
	clang=clang libclang-rt-14-dev= clang-tidy=clang-tidy clang-format=clang-format cppcheck=cppcheck
	gcc-aarch64-linux-gnu=aarch64-linux-gnu-gcc libc6-dev-arm64-cross= qemu-user=qemu-aarch64"

PYTHON=/usr/bin/python3 # Debian's own: the one that sees Debian's pytest
export JOBS; JOBS=$(nproc)

say() { printf '%s: %s\n' "${0##*/}" "$*"; }
# The comment at the top of a script.
say_usage() { sed -n '/^# Installs/,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$1"; }

# Why packages cannot be installed here; nothing when they can.
setup_obstacle() {
	if ! command -v apt-get >/dev/null; then
		echo "no apt-get on this system"
	elif [ "$(id -u)" -ne 0 ] && ! sudo -n true 2>/dev/null && ! { [ -t 0 ] && command -v sudo >/dev/null; }; then
		echo "neither root nor sudo"
	fi
}

setup_install() {
	local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0)
	[ "$(id -u)" -eq 0 ] || apt=(sudo "${apt[@]}")
	# a stale or absent package index is the usual reason for a first failure
	"${apt[@]}" install -y --no-install-recommends "$@" ||
		{ "${apt[@]}" update; "${apt[@]}" install -y --no-install-recommends "$@"; }
}

# setup_packages demo|test: installs what is missing.
setup_packages() {
	setup_missing "$1"
	[ -x "$PYTHON" ] || PYTHON=python3
}

setup_missing() {
	local wanted=$PACKAGES_TEST missing=() entry package probe obstacle
	[ "$1" != demo ] || wanted=$PACKAGES_DEMO
	for entry in $wanted; do
		package=${entry%%=*} probe=${entry#*=}
		if [ -n "$probe" ] && command -v "$probe" >/dev/null; then continue; fi
		if [[ $(dpkg -s "$package" 2>/dev/null) == *"install ok installed"* ]]; then continue; fi
		# a library, on a system without dpkg: the build itself will tell
		if [ -z "$probe" ] && ! command -v dpkg >/dev/null; then continue; fi
		missing+=("$package")
	done
	[ ${#missing[@]} -gt 0 ] || return 0
	obstacle=$(setup_obstacle)
	if [ -n "$obstacle" ]; then
		say "cannot install what is missing ($obstacle); please install: ${missing[*]}" >&2
		exit 3
	fi
	say "installing ${missing[*]}"
	if ! setup_install "${missing[@]}" </dev/null >build-setup.log 2>&1; then
		say "apt-get failed (no network? see build-setup.log); please install: ${missing[*]}" >&2
		exit 3
	fi
}

# setup_build FOLDER MESON-ARGUMENTS...: configures once, and again where that failed or its files have moved.
# Packages that came later are looked for again: without cmocka (the demo does not need it) the unit tests are
# left out.
setup_build() {
	local folder=$1 coredata=$1/meson-private/coredata.dat
	shift
	if [ -f "$coredata" ] && ninja -C "$folder" build.ninja >/dev/null 2>&1; then
		[ ! /var/lib/dpkg/status -nt "$coredata" ] || meson setup --reconfigure "$folder"
		# a user's own build has no tests, and reads the machine's settings
		grep -q '^build tests/sim/' "$folder/build.ninja" || meson configure -Dtests=true -Dsite_conf= "$folder"
		return
	fi
	rm -rf "${folder:?}/meson-private" "$folder/meson-info"
	meson setup "$@" "$folder"
}

# setup_venv FOLDER PACKAGE...: a virtual environment with these Python packages. False when the package index cannot be
# reached; the reason stands in FOLDER.log and the tests that wanted them are skipped.
setup_venv() {
	[ "$(cat "$1/ok" 2>/dev/null)" != "${*:2}" ] || return 0
	{ "$PYTHON" -m venv "$1" && "$1/bin/pip" --disable-pip-version-check --no-input install --timeout 20 \
		--retries 1 "${@:2}" && echo "${*:2}" >"$1/ok"; } </dev/null >"$1.log" 2>&1
}

# NVIDIA's own Python layers over the driver and tinygrad, 40 MB to fetch; and numba-cuda, 90 MB, for scripts/test.sh --long.
setup_clients() { setup_venv "$1" cuda-bindings cuda-core tinygrad; } # FOLDER
setup_numba() { setup_venv "$1" cuda-bindings numba-cuda; }   # FOLDER

# setup_extra LOG PACKAGE...: programs of others' for some of the tests. False when they cannot be installed; the reason
# stands in LOG and the tests that wanted them are skipped.
setup_extra() {
	local log=$1 obstacle
	shift
	obstacle=$(setup_obstacle)
	if [ -n "$obstacle" ]; then
		echo "$obstacle" >"$log"
		return 1
	fi
	setup_install "$@" </dev/null >"$log" 2>&1
}
# A program that opens libcuda by itself (128 packages, 77 MB on a system that has nothing).
setup_ffmpeg() { command -v ffmpeg >/dev/null || setup_extra "$1" ffmpeg; }
# Chromium, for the page of `cachealloc report` (25 packages, 125 MB on a system that has nothing).
setup_browser() {
	{ command -v chromium && command -v chromedriver && "$PYTHON" -c 'import selenium'; } >/dev/null 2>&1 ||
		setup_extra "$1" chromium chromium-driver python3-selenium
}
# Makes a Debian system in a folder, for scripts/test.sh --long.
setup_debootstrap() { command -v debootstrap >/dev/null || setup_extra "$1" debootstrap; }

# cuda.h as it was and as it is: the oldest and the newest headers of each generation that there are packages of.
HEADERS="nvidia-cuda-runtime-cu11==11.7.99 nvidia-cuda-runtime-cu11==11.8.89 nvidia-cuda-runtime-cu12==12.0.107
	nvidia-cuda-runtime-cu12==12.9.79 nvidia-cuda-runtime==13.0.48 nvidia-cuda-runtime==13.5.37"

# setup_headers FOLDER VENV: CUDA's headers and runtimes from Python packages, one folder VERSION with include and lib
# each; nothing else of them is kept. False when some cannot be had; the reason stands in FOLDER.log and what would be
# compared is skipped.
setup_headers() {
	local package
	mkdir -p "$1"
	{ [ -x "$2/bin/pip" ] || "$PYTHON" -m venv "$2"; } </dev/null >"$1.log" 2>&1 || return 1
	for package in $HEADERS; do
		[ -d "$1/${package#*==}/lib" ] || setup_header "$1" "$2" "$package" </dev/null >>"$1.log" 2>&1 || return 1
	done
}

setup_header() { # FOLDER VENV PACKAGE==VERSION
	local parts="$1/parts" target="$1/${3#*==}"
	rm -rf "$parts" "$target"
	"$2/bin/pip" --disable-pip-version-check --no-input download --timeout 20 --retries 1 --no-deps \
		--only-binary=:all: --dest "$parts" "$3" || return 1
	"$PYTHON" -m zipfile -e "$parts"/*.whl "$parts" || return 1
	mkdir -p "$target" && mv "$parts"/nvidia/c*/{include,lib} "$target/" && rm -rf "$parts"
}

# setup_rmm FOLDER VENV: RAPIDS's memory resources, as headers: a Python package of 4 MB, unpacked. False when it cannot be
# had; the reason stands in FOLDER.log and its test is skipped.
setup_rmm() {
	[ ! -d "$1/librmm" ] || return 0
	rm -rf "$1" && mkdir -p "$1/parts"
	{ { [ -x "$2/bin/pip" ] || "$PYTHON" -m venv "$2"; } &&
		"$2/bin/pip" --disable-pip-version-check --no-input download --timeout 20 --retries 1 --no-deps \
			--only-binary=:all: --dest "$1/parts" librmm-cu12==25.2.0 &&
		"$PYTHON" -m zipfile -e "$1"/parts/*.whl "$1/parts" &&
		mv "$1/parts/librmm" "$1/" && rm -rf "$1/parts"; } </dev/null >"$1.log" 2>&1
}

# setup_peers: what tests/bench/peers/peers.py compares with, of which nothing is kept in the tree: mimalloc as a package of the
# system, and as Python packages the headers of CUDA's runtime and of CUB, and RMM (15 MB in all). What cannot be had is named, and
# so is the file with the reason. 26.4 is the last RMM whose resources are headers.
setup_peers() {
	local package
	"$PYTHON" -c 'import ctypes; ctypes.CDLL("libmimalloc.so.2")' 2>/dev/null || setup_extra build-mimalloc.log libmimalloc2.0 ||
		say "mimalloc cannot be installed (build-mimalloc.log)"
	setup_headers_of build-headers nvidia-cuda-runtime==13.0.48 || say "CUDA's headers cannot be had (build-headers.log)"
	setup_headers_of build-cccl nvidia-cuda-cccl==13.0.50 || say "CUB's headers cannot be had (build-cccl.log)"
	for package in librmm-cu13==26.4.0 rapids-logger==0.2.3; do
		setup_wheel build-rmm13 build-venv "$package" || say "$package cannot be had (build-rmm13.log)"
	done
}

setup_headers_of() { # FOLDER PACKAGE==VERSION
	mkdir -p "$1"
	[ -d "$1/${2#*==}/lib" ] || setup_header "$1" build-venv "$2" </dev/null >"$1.log" 2>&1
}

# A Python package, unpacked in a folder beside others; the file PACKAGE==VERSION there says that it is.
setup_wheel() { # FOLDER VENV PACKAGE==VERSION
	[ ! -e "$1/$3" ] || return 0
	mkdir -p "$1"
	{ { [ -x "$2/bin/pip" ] || "$PYTHON" -m venv "$2"; } && rm -rf "$1/parts" &&
		"$2/bin/pip" --disable-pip-version-check --no-input download --timeout 20 --retries 1 --no-deps \
			--only-binary=:all: --dest "$1/parts" "$3" &&
		"$PYTHON" -m zipfile -e "$1"/parts/*.whl "$1" && rm -rf "$1/parts" && touch "$1/$3"; } </dev/null >"$1.log" 2>&1
}

# NVIDIA's driver library, 470, 525, 535, 550 and 555, as Debian's archive has it: SUITE/PACKAGE, 3 MB each.
DRIVERS="bookworm/libnvidia-tesla-470-cuda1 bookworm/libnvidia-tesla-cuda1 bookworm/libcuda1 trixie/libcuda1
	experimental/libcuda1"

# setup_drivers FOLDER: NVIDIA's driver libraries, from where this system's apt has its packages, each as libcuda.so.1
# in SUITE/PACKAGE; they are unpacked, not installed. apt itself checks signature, size and checksum. False when some
# cannot be had; the reason stands in FOLDER.log, and the tests run with those that are there.
setup_drivers() {
	local driver absent=()
	for driver in $DRIVERS; do
		[ -e "$1/$driver/libcuda.so.1" ] || absent+=("$driver")
	done
	[ ${#absent[@]} -gt 0 ] || return 0
	setup_driver_apt "$PWD/$1/apt" </dev/null >"$1.log" 2>&1 || return 1
	for driver in "${absent[@]}"; do
		setup_driver "$1" "$driver" "$PWD/$1/apt" </dev/null >>"$1.log" 2>&1 || echo "no $driver" >>"$1.log"
	done
	rm -rf "$1/apt"
	! grep -q '^no ' "$1.log"
}

# An apt beside the system's, with the same mirror, keys and proxies, and no other trace: ABSOLUTE-FOLDER/apt.conf.
setup_driver_apt() {
	local mirror codename driver keys=/usr/share/keyrings/debian-archive-keyring.gpg
	command -v apt-get && command -v dpkg-deb || return 1
	codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
	mirror=$(apt-get --print-uris update | sed -n "s,^'\(.*\)/dists/$codename/InRelease'.*,\1,p" | head -n 1)
	[ -n "$mirror" ] || { echo "apt has no archive of its own release" && return 1; }
	[ -f "$keys" ] || keys=
	mkdir -p "$1/lists/partial" "$1/archives/partial"
	for driver in $DRIVERS; do
		echo "deb [target=Packages${keys:+ signed-by=$keys}] $mirror ${driver%/*} non-free"
	done | sort -u >"$1/sources.list"
	cat >"$1/apt.conf" <<-END
		Dir::Etc::sourcelist "$1/sources.list";
		Dir::Etc::sourceparts "-";
		Dir::State::lists "$1/lists";
		Dir::Cache "$1";
		APT::Sandbox::User "";
		Acquire::Retries "1";
		Acquire::http::Timeout "20";
	END
	# fails for one suite that is not there; the others are read
	APT_CONFIG=$1/apt.conf apt-get -q update || true
}

setup_driver() { # FOLDER SUITE/PACKAGE APT
	rm -rf "${1:?}/$2" "$3"/*.deb
	(cd "$3" && APT_CONFIG=$3/apt.conf apt-get -q download "${2#*/}/${2%/*}") || return 1
	mkdir -p "$1/$2"
	dpkg-deb --fsys-tarfile "$3"/*.deb |
		tar -x -C "$1/$2" --transform 's,.*/,,' --wildcards '*/libcuda.so.1' '*/libcuda.so.*.*'
}

# setup_torch FOLDER: a virtual environment with PyTorch's package for CUDA 12.6, 3 GB to fetch; for scripts/test.sh
# --long. False when it cannot be had; the reason stands in FOLDER.log.
setup_torch() {
	[ ! -e "$1/ok" ] || return 0
	{ "$PYTHON" -m venv "$1" && "$1/bin/pip" --disable-pip-version-check --no-input install --no-cache-dir --timeout 20 \
		--retries 1 torch==2.7.1 && touch "$1/ok"; } </dev/null >"$1.log" 2>&1
}

# setup_viewers FOLDER: what others read our conversions with: Perfetto's Python classes (5 MB), and PyTorch's
# _memory_viz.py, for which its smallest package is fetched (61 MB) and all else of it thrown away. False when some cannot
# be had; the reason stands in FOLDER.log, and the tests that wanted it are skipped.
setup_viewers() {
	[ ! -e "$1/ok" ] || return 0
	{ { [ -x "$1/bin/pip" ] || "$PYTHON" -m venv "$1"; } &&
		"$1/bin/pip" --disable-pip-version-check --no-input install --timeout 20 --retries 1 --no-deps \
			perfetto protobuf && setup_memory_viz "$1" && touch "$1/ok"; } </dev/null >"$1.log" 2>&1
}

setup_memory_viz() { # FOLDER
	rm -rf "${1:?}/torch"
	"$1/bin/pip" --disable-pip-version-check --no-input download --no-cache-dir --timeout 20 --retries 1 --no-deps \
		--only-binary=:all: --platform macosx_11_0_arm64 --python-version 3.11 --dest "$1/torch" torch==2.3.1 &&
		"$PYTHON" -c 'import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extract("torch/cuda/_memory_viz.py", sys.argv[2])' \
			"$1"/torch/*.whl "$1" && rm -f "$1"/torch/*.whl
}
