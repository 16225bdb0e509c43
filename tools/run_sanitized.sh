#!/bin/bash
# Runs sparkling_tests of build-asan (all of it) or build-tsan (whatever starts threads), in the short form: property tests
# with fewer cases, and SPARKLING_SHORT=1 for tests that can do with less. Sanitizers cost a factor of 3 to 15.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
export SPARKLING_SHORT=1 RC_PARAMS="max_success=20"
export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS="halt_on_error=1:suppressions=$PWD/tools/tsan.supp"
select=()
[ "$preset" = tsan ] && select=(-R 'Thread|Team|Cpu|/cpu|Engine|Bandwidth')
ctest --test-dir "build-$preset" -j "$(nproc)" --output-on-failure --no-tests=error --timeout 600 \
  "${select[@]}" </dev/null >"build-$preset/ctest.log" 2>&1 || { tail -150 "build-$preset/ctest.log"; exit 1; }
tail -4 "build-$preset/ctest.log"
