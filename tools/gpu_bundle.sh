#!/bin/bash
# Makes build-gpu/bundle: all that a machine with a GPU needs to run tools/gpu_report.sh, except its driver and NVRTC.
# Programs, the shared libraries they use (the C library apart), ling-nano once; at most 60 MiB.
#   tools/gpu_bundle.sh [--without-model]    leaves ling-nano out, for a machine that has the source tree
set -euo pipefail
cd "$(dirname "$0")/.."
model=yes
[ "${1:-}" = --without-model ] && model=no
bundle=build-gpu/bundle
# Without the embedded model: it would be in there twice, once in each program.
mkdir -p build-gpu
cmake -S . -B build-gpu -G Ninja -DCMAKE_BUILD_TYPE=Release -DSPARKLING_EMBED= >build-gpu/configure.log
cmake --build build-gpu --target sparkling sparkling_tests synthetic_checkpoint -j "${JOBS:-2}"
rm -rf $bundle
mkdir -p $bundle/lib
strip -o $bundle/sparkling build-gpu/sparkling
strip -o $bundle/sparkling_tests build-gpu/sparkling_tests
strip -o $bundle/synthetic_checkpoint build-gpu/synthetic_checkpoint
ldd build-gpu/sparkling build-gpu/sparkling_tests | awk '$3 ~ /^\// {print $3}' | sort -u |
  grep -v -E '/(libc|libm|libdl|libpthread|librt|ld-linux[^/]*)\.so' | xargs -I{} cp -L {} $bundle/lib/
cp tools/gpu_report.sh $bundle/
python3 tools/questions.py tests/data/nano/problems.jsonl >$bundle/questions.jsonl
git rev-parse HEAD >$bundle/commit
[ $model = no ] || cp -r models/ling-nano $bundle/ling-nano
size=$(du -sm $bundle | cut -f1)
echo "$bundle: $size MiB"
[ "$size" -le 60 ] || { echo "gpu_bundle: expected at most 60 MiB" >&2; exit 1; }
