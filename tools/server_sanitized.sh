#!/bin/bash
# The server's own tests against a sanitizer build (build-asan or build-tsan): random requests, clients that leave and stall, and a
# minute of mixed traffic. Sanitizer reports end the server with a status that no test expects. REQUESTS sets the random ones.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:?usage: tools/server_sanitized.sh asan|tsan}
export SPARKLING="$PWD/build-$preset/sparkling" REQUESTS="${REQUESTS:-10000}"
export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:exitcode=99 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS="halt_on_error=1:exitcode=99:atexit_sleep_ms=0:suppressions=$PWD/tools/tsan.supp"
cmake --build "build-$preset" --target sparkling >"build-$preset/server-build.log" 2>&1 || { tail -40 "build-$preset/server-build.log"; exit 1; }
.venv/bin/python -m pytest -q -p no:cacheprovider tests/server_random_test.py tests/server_robust_test.py tests/server_agents_test.py \
  -k "not large_messages and not K11_defaults and not log_has_rows" </dev/null
.venv/bin/python tools/soak.py --seconds "${SOAK_SECONDS:-30}" --any-memory </dev/null
