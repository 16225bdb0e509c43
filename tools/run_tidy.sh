#!/bin/bash
# clang-tidy (checks in .clang-tidy, all of them errors) over the source files of a change, newest first.
#
# The change is what differs from $SPARKLING_BASE or, without it, from the branch this one left; where neither is known (a
# clone of one branch) it is every file. Files that do not fit into the time are named, not failed.
set -uo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-600}
base=${SPARKLING_BASE:-}
if [ -z "$base" ]; then
  head=$(git rev-parse HEAD)
  base=$(git merge-base HEAD origin/HEAD 2>/dev/null || true)
  [ "$base" != "$head" ] || base=""
fi
# Newest first, so that the time goes to what is likely to be part of the change; each name once.
mapfile -t files < <(git log --format= --name-only ${base:+$base..HEAD} -- 'src/*.cc' 'src/*.h' | awk '!seen[$0]++')
sources=()
for file in "${files[@]}"; do
  [ -f "$file" ] || continue
  # A header is checked through its own .cc file (HeaderFilterRegex), which may not be in the list.
  [[ $file == *.h ]] && file=${file%.h}.cc
  [ -f "$file" ] && sources+=("$file")
done
mapfile -t sources < <(printf '%s\n' "${sources[@]}" | awk 'NF && !seen[$0]++')

deadline=$(($(date +%s) + seconds))
export deadline
check() {
  if [ "$(date +%s)" -ge "$deadline" ]; then
    echo "tidy: no time left for $1"
    return 0
  fi
  output=$(clang-tidy-14 --quiet -p build --extra-arg=-w "$1" 2>/dev/null) || { printf '%s\n' "$output"; echo "tidy: $1 FAILED"; return 1; }
}
export -f check
echo "tidy: ${#sources[@]} files${base:+ changed since $base}"
[ ${#sources[@]} = 0 ] && exit 0
printf '%s\n' "${sources[@]}" | xargs -P "$(nproc)" -I{} bash -c 'check {}'
