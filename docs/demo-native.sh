#!/usr/bin/env bash
# The shim on the project's own library and program: build, run, status, change while it runs. Needs gcc and g++.
set -euo pipefail

scratch=$(mktemp -d)
export PATCHKIT_NATIVE=$scratch/built PATCHKIT_SHIM_DIRECTORY=$scratch/segments
mkdir "$PATCHKIT_SHIM_DIRECTORY"
running=
trap '[[ -z $running ]] || kill "$running" 2>/dev/null || true; rm -rf "$scratch"' EXIT

show() {  # show COMMAND...: say what is run, and run it
    printf '\n$ %s\n' "$*"
    "$@"
}

show patchkit native build --target host
program=$(echo "$PATCHKIT_NATIVE"/*/attention-host)
show "$program" 1000 2
show patchkit native run --target host -- "$program" 1000 2
show patchkit native status
show patchkit native status --forget >/dev/null
show patchkit native run --target host --mode transform --set qk_scale=0.5 -- "$program" 1000 2
show "$program" 1000 2 0.125

printf '\n$ patchkit native run --target host -- %s 1000000000 1 &\n' "$program"
patchkit native run --target host -- "$program" 1000000000 1 >/dev/null &
running=$!
until patchkit native status --pid "$running" >/dev/null; do :; done
show patchkit native set --pid "$running" mode=trace
show patchkit native top --times 2
