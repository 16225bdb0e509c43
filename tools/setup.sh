#!/bin/bash
# Installs what a build (`setup.sh build`), the tests (`test`), the micro benchmarks (`bench`) or continuous integration
# (`ci`) need on Debian 12 or Ubuntu 24.04, and nothing that is there already: with everything in place it makes no network call.
set -euo pipefail
cd "$(dirname "$0")/.."

build="g++ cmake ninja-build pkg-config libcli11-dev libspdlog-dev nlohmann-json3-dev libpcre2-dev libutf8proc-dev
  libedit-dev libcpp-httplib-dev prometheus-cpp-dev libgtest-dev librapidcheck-dev"
test="$build python3-venv"
bench="$build libbenchmark-dev"
# libpython3-stdlib is what the sanitizers' symboliser and clang-tidy's runner need python3 for.
ci="$test libbenchmark-dev git clang-14 clang-format-14 clang-tidy-14 libclang-rt-14-dev qemu-user chromium"
# The cross compiler and the emulator serve the other architecture's check; on an Arm machine the native run is it.
if [ "$(uname -m)" = x86_64 ]; then ci="$ci g++-aarch64-linux-gnu"; fi

what=${1:-build}
case $what in
  build) packages=$build ;;
  test) packages=$test ;;
  bench) packages=$bench ;;
  ci) packages=$ci ;;
  *) echo "usage: tools/setup.sh [build|test|bench|ci]" >&2; exit 2 ;;
esac

# A tool that came from elsewhere (a newer cmake, a compiler of the user's) is as good as its package.
present() {
  case $1 in
    g++ | cmake | git | pkg-config) command -v "$1" >/dev/null && return 0 ;;
    ninja-build) command -v ninja >/dev/null && return 0 ;;
    g++-aarch64-linux-gnu) command -v aarch64-linux-gnu-g++ >/dev/null && return 0 ;;
    clang-14 | clang-format-14 | clang-tidy-14) command -v "$1" >/dev/null && return 0 ;;
    chromium) command -v chromium chromium-browser google-chrome >/dev/null && return 0 ;;
    qemu-user) command -v qemu-aarch64 >/dev/null && return 0 ;;
  esac
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

missing=""
if ! command -v dpkg-query >/dev/null; then
  echo "setup: no dpkg here; taking for granted that these are installed:" $packages >&2
else
  for package in $packages; do present "$package" || missing="$missing $package"; done
fi
if [ -n "$missing" ]; then
  root=""
  if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
      echo "setup: these packages are missing:$missing" >&2
      echo "setup: not root and no sudo; as root run: apt-get install --no-install-recommends$missing" >&2
      exit 3
    fi
    root="sudo"
  fi
  echo "setup: installing$missing" >&2
  export DEBIAN_FRONTEND=noninteractive
  $root apt-get update -qq </dev/null >&2 || echo "setup: apt-get update had errors; trying all the same" >&2
  $root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing </dev/null >&2
fi

# python_environment FOLDER REQUIREMENTS: FOLDER/requirements.txt is what is in it.
python_environment() {
  cmp -s "$2" "$1/requirements.txt" && return 0
  echo "setup: making $1 from $2" >&2
  python=/usr/bin/python3
  [ -x $python ] || python=python3
  rm -rf "$1"
  $python -m venv "$1"
  "$1/bin/pip" install -q --disable-pip-version-check -r "$2" </dev/null >&2
  cp "$2" "$1/requirements.txt"
}
if [ "$what" = test ] || [ "$what" = ci ]; then python_environment .venv tests/requirements.txt; fi
if [ "$what" = ci ]; then python_environment .venv-browser tests/browser/requirements.txt; fi
