#!/bin/bash
# Runs every test of build/: ctest over sparkling_tests, then pytest over tests/*_test.py, then a look at what was skipped
# (tools/check_skips.py). All three run even when one fails; the closing lines of ctest and pytest come last.
set -uo pipefail
cd "$(dirname "$0")/.."
export SPARKLING="$PWD/build/sparkling"
status=0
reports=build/reports
mkdir -p $reports
rm -f $reports/ctest.xml $reports/pytest.xml

ctest --test-dir build -j "$(nproc)" --output-on-failure --no-tests=error --progress \
  --output-junit reports/ctest.xml </dev/null >$reports/ctest.log 2>&1 || status=1
# --progress writes one line over and over; keep the failures and the summary.
tr '\r' '\n' <$reports/ctest.log | grep -v -E '^Test project|^ *[0-9]+/[0-9]+ Test|^\[[0-9]+/[0-9]+\]|^ *Start +[0-9]+' || true

.venv/bin/python -m pytest -rs -p no:cacheprovider --junitxml=$reports/pytest.xml tests </dev/null || status=1
.venv/bin/python tools/check_skips.py $reports/ctest.xml $reports/pytest.xml || status=1
exit $status
