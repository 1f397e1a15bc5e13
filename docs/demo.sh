#!/usr/bin/env bash
# What patchkit does, on the released wheel of vllm 0.6.3: plan, apply, status, apply again, diff, revert.
# Run by `make demo`. Everything happens in a directory of its own; the downloaded wheel stays in the cache.
set -euo pipefail

cache=${XDG_CACHE_HOME:-$PWD/.cache}/patchkit
original=$cache/vllm-0.6.3
mkdir -p "$original"
scratch=$(mktemp -d "$cache/demo.XXXXXX")  # beside the original: hard links need one file system
trap 'rm -rf "$scratch"' EXIT
target=vllm==0.6.3

say() { printf '\n'; printf '# %s\n' "$@"; }  # say LINE...

run() {  # run COMMAND...: show it and run it
    printf '$ %s\n' "$*"
    "$@"
}

digest() {  # one sha256 over the names and contents of all files but patchkit's own state
    (cd "$1" && find . -type f -not -path './.patchkit/*' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -c1-64)
}

say "The environment."
run python --version
run patchkit --version

say "The wheel of $target: fetched with pip (200 MB, the first time only) and unpacked. What would apply do?"
run patchkit plan --target "$target" --fetch "$original"

say "A copy to work on. Its files are hard links to the unpacked wheel, as uv and conda make them." \
    "patchkit never writes into a file that is there: it puts a new one in its place, and the original keeps its bytes."
cp -al "$original" "$scratch/tree"
cd "$scratch"
before=$(digest tree)
echo "sha256 of all files: $before"

say "What is here?"
run patchkit targets --root tree

say "Which toggles has the series?"
run patchkit config show --target "$target" --root tree

say "Apply: all or nothing. One patch is switched on."
run patchkit apply --target "$target" --root tree --set CONFIG_SCHED_TRACE=y

say "What is in the tree now?"
run patchkit status --target "$target" --root tree --require-applied

say "A second time there is nothing to do, and that is no error."
run patchkit apply --target "$target" --root tree

say "Switch another one on: only its files are written, and the constants that it reads."
run patchkit config set CONFIG_QK_SCALE=y CONFIG_QK_SCALE_VALUE=0.5 --target "$target" --root tree

say "What differs from the release, as a unified diff (first lines):"
printf '$ patchkit diff --target %s --root tree | head -n 30\n' "$target"
patchkit diff --target "$target" --root tree >"$scratch/diff"
head -n 30 "$scratch/diff"

say "Take it out again."
run patchkit revert --target "$target" --root tree

say "Are all bytes as before? Both trees are hashed again, which takes some seconds."
after=$(digest tree)
untouched=$(digest "$original")
say "What happened"
echo "before        $before"
echo "after revert  $after"
echo "the original  $untouched"
[[ $before == "$after" ]] || { echo "The tree is not what it was: that is a bug in patchkit." >&2; exit 1; }
[[ $before == "$untouched" ]] || { echo "The original was written to: that is a bug in patchkit." >&2; exit 1; }
cat <<TEXT
The shipped series for vllm 0.6.3 was checked against the wheel, written in one transaction, shown as a diff and taken
out again. Every file has the bytes it had before, and the unpacked wheel in
  $original
was never written to. To do it where vllm is installed: patchkit apply --target vllm==0.6.3 --python ITS/bin/python
TEXT
