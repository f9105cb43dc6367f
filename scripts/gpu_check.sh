#!/bin/bash
# SPDX-License-Identifier: MIT
# Runs one part of the checks that need a real GPU. Usage: scripts/gpu_check.sh PART|all --out DIR [--force]
#
# Parts, each offline and under 8 minutes: build static shared torch latency native order_cost order_claims order_random
# alloc_latency torch_policy framework naive. Each writes DIR/PART.json; a part whose file is there is skipped unless --force. Status: 0 done, 1 a check failed, 2 wrong usage, 3 this
# machine lacks something (a GPU, nvcc, PyTorch, meson), which is named.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v python3 >/dev/null || {
	echo "gpu_check: python3 is needed" >&2
	exit 3
}
exec python3 tests/gpu/check.py "$@"
