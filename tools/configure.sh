#!/bin/bash
# Configures one preset of CMakePresets.json, quietly unless something is wrong. Cheap when nothing changed: the build
# itself configures again when a CMake file or the list of sources did.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
folder=build
[ "$preset" = release ] || folder=build-$preset
[ -f "$folder/build.ninja" ] && exit 0
mkdir -p "$folder"
if ! cmake --preset "$preset" >"$folder/configure.log" 2>&1; then
  cat "$folder/configure.log" >&2
  echo "configure: preset $preset failed" >&2
  exit 1
fi
