#!/bin/bash
# The server's own tests against a sanitizer build (build-asan or build-tsan): random requests, clients that leave and stall, and
# mixed traffic. Sanitizer reports end the server with a status that no test expects. REQUESTS sets the random ones, SOAK_SECONDS
# the traffic; `short` leaves out what only repeats the same paths of the server.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:?usage: tools/server_sanitized.sh asan|tsan [short]}
select="not large_messages and not log_has_rows"
if [ "${2:-}" = short ]; then
  export REQUESTS="${REQUESTS:-600}" SOAK_SECONDS="${SOAK_SECONDS:-15}"
  select="server_random or framing or client_leaves or leaving_the_queue or header or broken_bodies or slow_reader or stalled or 200_clients or loading or drains or second_signal or claude_code or codex"
fi
export SPARKLING="$PWD/build-$preset/sparkling" REQUESTS="${REQUESTS:-10000}"
export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:exitcode=99 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS="halt_on_error=1:exitcode=99:atexit_sleep_ms=0:suppressions=$PWD/tools/tsan.supp"
cmake --build "build-$preset" --target sparkling >"build-$preset/server-build.log" 2>&1 || { tail -40 "build-$preset/server-build.log"; exit 1; }
.venv/bin/python -m pytest -q -p no:cacheprovider tests/server_random_test.py tests/server_framing_test.py \
  tests/server_leaving_test.py tests/server_bodies_test.py tests/server_access_test.py tests/server_crowd_test.py \
  tests/server_life_test.py tests/server_agents_test.py \
  -k "$select" </dev/null
.venv/bin/python tools/soak.py --seconds "${SOAK_SECONDS:-30}" --any-memory </dev/null
