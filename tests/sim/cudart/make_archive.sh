#!/bin/sh
# SPDX-License-Identifier: MIT
# make_archive.sh OUT.a IN.a OBJCOPY AR LINKER...: one relocatable object of all of IN, in which only the cuda* names
# are global, as an archive. So a program that links it cannot meet our internal names.
set -eu
out=$1 in=$2 objcopy=$3 ar=$4
shift 4
object=${out%.a}.o
"$@" -r -nostdlib -o "$object" -Wl,--whole-archive "$in" -Wl,--no-whole-archive
"$objcopy" -w --keep-global-symbol='cuda*' "$object"
rm -f "$out"
"$ar" rcs "$out" "$object"
