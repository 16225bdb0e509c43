#!/bin/bash
# Runs each libFuzzer target of build-fuzz for a number of seconds, one per core at a time. New inputs go to
# build-fuzz/corpus/TARGET; the corpus in tests/fuzz/corpus/TARGET is read, never written.
set -uo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
targets=$(find build-fuzz -maxdepth 1 -type f -executable -name 'fuzz_*' -printf '%f\n' | sort)
if [ -z "$targets" ]; then
  echo "fuzz: no targets in build-fuzz" >&2
  exit 1
fi

run_one() {
  local target=$1 seconds=$2
  local mine=build-fuzz/corpus/$target given=tests/fuzz/corpus/${target#fuzz_} log=build-fuzz/$target.log
  mkdir -p "$mine" build-fuzz/findings
  [ -d "$given" ] || given=""
  if build-fuzz/"$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="build-fuzz/findings/$target-" "$mine" $given >"$log" 2>&1 </dev/null; then
    echo "fuzz: $target: $(grep -E 'number_of_executed_units' "$log" | tr -s ' ' | cut -d' ' -f2) runs," \
      "$(grep -o -E 'cov: [0-9]+ ft: [0-9]+' "$log" | tail -1)"
  else
    tail -40 "$log"
    echo "fuzz: $target FAILED; inputs are in build-fuzz/findings" >&2
    return 1
  fi
}
export -f run_one
printf '%s\n' $targets | xargs -P "$(nproc)" -I{} bash -c 'run_one {} '"$seconds"
