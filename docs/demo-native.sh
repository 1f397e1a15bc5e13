#!/usr/bin/env bash
# The shim on the project's own library and program: build, run, status, change while it runs. Needs gcc and g++.
set -euo pipefail

scratch=$(mktemp -d)
export PATCHKIT_NATIVE=$scratch/built PATCHKIT_SHIM_DIRECTORY=$scratch/segments
mkdir "$PATCHKIT_SHIM_DIRECTORY"
running=
trap '[[ -z $running ]] || kill "$running" 2>/dev/null || true; rm -rf "$scratch"' EXIT

say() { printf '\n'; printf '# %s\n' "$@"; }  # say LINE...

show() {  # show COMMAND...: say what is run, and run it
    printf '$ %s\n' "$*"
    "$@"
}

say "A library that computes attention, a program that calls it, and the shim: compiled here, which takes half a minute."
show patchkit native build --target host
program=$(echo "$PATCHKIT_NATIVE"/*/attention-host)

say "The program alone: 1000 calls in each of 2 threads. The sum of the last outputs tells whether two runs computed the same."
show "$program" 1000 2

say "Behind the shim: the same sum."
show patchkit native run --target host -- "$program" 1000 2

say "What the shim counted."
show patchkit native status
patchkit native status --forget >/dev/null

say "Half the softmax scale, by the shim: another sum ..."
show patchkit native run --target host --mode transform --set qk_scale=0.5 -- "$program" 1000 2

say "... and by the program itself, whose scale is 0.25 when it is not told another: the same."
show "$program" 1000 2 0.125

say "A program that runs: traced from now on, without a restart. Calls a second, time of a call, shape of q." \
    "It does nothing but call: a trace keeps the newest records and counts those that were written over as lost."
printf '$ patchkit native run --target host -- %s 1000000000 1 &\n' "$program"
patchkit native run --target host -- "$program" 1000000000 1 >/dev/null &
running=$!
until patchkit native status --pid "$running" >/dev/null; do
    kill -0 "$running" 2>/dev/null || { echo "The program has ended, and should not." >&2; exit 1; }
done
show patchkit native set --pid "$running" mode=trace
show patchkit native top --times 2

say "Every call was counted, half a scale gave what the program itself computes with it, and a program that runs was traced." \
    "To do it to an engine: docs/native.md"
