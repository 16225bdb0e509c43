#!/bin/bash
# Runs every GPU test and measurement on a machine with a GPU and writes a folder of at most 8 files. From the bundle of
# tools/gpu_bundle.sh, or from a source tree with build/ in it. Needs the driver and NVRTC, no network.
#   gpu_report.sh [FOLDER]       FOLDER: where the results go (gpu_report)
#   MODEL=FOLDER                 ling-nano, when it is neither beside this script nor in models/
#   QUESTIONS=FILE               for the paired evaluation, instead of the fifty of the bundle or of tests/
#   STEPS="machine warm ..."     only these steps
#   SECONDS_IN_ALL=570           steps that do not fit in what is left of this are named, not run
# The cheap and the telling steps come first. Every step runs even when an earlier one failed, and is on disk when it
# ends, so that a crash or a time limit costs what comes after it only. Exit status 1 when a step failed or was not run.
set -uo pipefail
folder=$(realpath -m "${1:-gpu_report}")
here=$(cd "$(dirname "$0")" && pwd)
if [ -x "$here/sparkling" ]; then
  programs=$here
  export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
  commit=$(cat "$here/commit")
else
  programs=$here/../build
  commit=$(git -C "$here" rev-parse HEAD)
fi
for candidate in "${MODEL:-}" "$here/ling-nano" "$here/../models/ling-nano" models/ling-nano; do
  [ -n "$candidate" ] && [ -f "$candidate/config.json" ] && model=$(realpath "$candidate") && break
done
: "${model:?gpu_report: no ling-nano found; name it by MODEL=FOLDER}"
mkdir -p "$folder"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SPARKLING_KERNEL_CACHE=$work/kernels
questions=${QUESTIONS:-$here/questions.jsonl}
if [ ! -f "$questions" ]; then  # in a source tree
  questions=$work/questions.jsonl
  python3 "$here/questions.py" "$here/../tests/data/nano/problems.jsonl" >"$questions"
fi
questions=$(realpath "$questions")
sparkling=$programs/sparkling
sanitizer=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer || true)
# NVRTC where the program itself does not look: a Python environment that is not active.
if [ -z "${SPARKLING_NVRTC:-}" ] && [ ! -e /usr/local/cuda/lib64 ] && ! ldconfig -p 2>/dev/null | grep -q libnvrtc.so; then
  found=$(find /opt /usr/local -name 'libnvrtc.so.1[23]' 2>/dev/null | head -1)
  [ -z "$found" ] || export SPARKLING_NVRTC=$found
fi
budget=${SECONDS_IN_ALL:-570}
failed="" skipped=""
report=$folder/report.txt
: >"$report"

say() { printf '%s\n' "$*" | tee -a "$report"; }

# step NAME FILE SECONDS COMMAND...: the command's output is added to FILE, its last lines to the report.
step() {
  local name=$1 file=$folder/$2 limit=$3 start=$SECONDS status
  shift 3
  case " ${STEPS:-$name} " in *" $name "*) ;; *) return 0 ;; esac
  if [ $((budget - SECONDS)) -lt 10 ]; then
    say "=== $name: not run, the time is up"
    skipped="$skipped $name"
    return 0
  fi
  [ "$limit" -lt $((budget - SECONDS)) ] || limit=$((budget - SECONDS))
  say ""
  say "=== $name: $*"
  timeout -k 5 "$limit" "$@" </dev/null >"$work/out" 2>&1
  status=$?
  if [ "$file" != "$report" ]; then
    printf '\n=== %s: %s\n' "$name" "$*" >>"$file"
    tail -c 1000000 "$work/out" >>"$file"
    tail -n "${TAIL:-25}" "$work/out" | cut -c1-400 | tee -a "$report"
  else
    tail -c 200000 "$work/out" | tee -a "$report"
  fi
  say "=== $name: exit $status, $((SECONDS - start)) s of at most $limit"
  [ $status = 0 ] || failed="$failed $name"
}

machine() {
  date -u
  echo "commit $commit"
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem,temperature.gpu \
    --format=csv
  "$sparkling" --version
  uname -a
  grep -m1 'model name' /proc/cpuinfo
  grep -E 'MemTotal|MemAvailable' /proc/meminfo
  nproc
}

# Each test suite by several processes: the reference runs on one core, and each process compiles what it meets first.
verbs() {
  local shards=${SHARDS:-8} shard pids="" bad=0
  for shard in $(seq 0 $((shards - 1))); do
    SPARKLING_TEST_GPU=1 GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard \
      "$programs/sparkling_tests" --gtest_filter="$gpu_tests" >"$work/verbs-$shard" 2>&1 &
    pids="$pids $!"
  done
  for pid in $pids; do wait "$pid" || bad=1; done
  cat "$work"/verbs-*
  echo
  grep -h -E '^\[       OK |^\[  FAILED' "$work"/verbs-* | sort -u
  return $bad
}

# The same greedy text on CPU and GPU, and byte-equal text on the GPU with drafts off and at every depth, also sampled.
same_text() {
  local prompt="A tank of Bella holds 91 liters. 36 liters flow in. How many liters are in it?" depth sampling
  for sampling in "--temperature 0" "--temperature 0.8 --top-p 0.95 --seed 7"; do
    for depth in 0 1 2 3 4 5 6 7; do
      "$sparkling" run "$model" -p "$prompt" $sampling --max-tokens 64 --backend cuda --draft $depth >"$work/cuda$depth" || return 1
      cmp "$work/cuda0" "$work/cuda$depth" || { echo "drafts at depth $depth changed the text ($sampling)"; return 1; }
    done
    echo "byte-equal at every depth: $sampling"
  done
  cat "$work/cuda0"
  "$sparkling" run "$model" -p "$prompt" --temperature 0 --max-tokens 64 --backend cpu --draft 0 >"$work/cpu" || return 1
  "$sparkling" run "$model" -p "$prompt" --temperature 0 --max-tokens 64 --backend cuda --draft 0 >"$work/cuda" || return 1
  cat "$work/cpu"
  cmp "$work/cpu" "$work/cuda" && echo "the same greedy text on CPU and GPU"
}

# Logits of given ids in exact precision on CPU and GPU, with the CPU's routes: files of one size, and the largest relative difference of
# a position where there is a Python.
logits_of_ids() {
  local tokens=1,2,3,5,8,13,21,34,55,89,144,233,377,610,987,1597
  "$sparkling" logits "$model" --tokens $tokens --backend cpu --routes-out "$work/routes.npy" -o "$work/cpu.npy" || return 1
  "$sparkling" logits "$model" --tokens $tokens --backend cuda --routes-in "$work/routes.npy" -o "$work/cuda.npy" || return 1
  [ "$(stat -c %s "$work/cpu.npy")" = "$(stat -c %s "$work/cuda.npy")" ] || return 1
  command -v python3 >/dev/null || return 0
  python3 - "$work/cpu.npy" "$work/cuda.npy" <<'PYTHON'
import array, math, sys
def rows(name):
    data = open(name, "rb").read()
    start = 10 + int.from_bytes(data[8:10], "little")
    numbers = array.array("f", data[start:])
    return [numbers[i : i + len(numbers) // 16] for i in range(0, len(numbers), len(numbers) // 16)]
worst = max(math.dist(a, b) / math.hypot(*a) for a, b in zip(rows(sys.argv[1]), rows(sys.argv[2])))
print(f"largest relative difference of a position: {worst:.2e}, expected at most 1e-4")
sys.exit(worst > 1e-4)
PYTHON
}

# The same questions with all three optimisations and with none, paired.
eval_pair() {
  local options="--backend cuda --thinking on" off="--moe plain --lm-head fp32 --draft 0" on="--moe packed --lm-head fp8 --draft 3" name pids=""
  for name in off on; do
    "$sparkling" eval set "$questions" "$model" $options ${!name} --out "$work/$name.jsonl" >"$work/eval-$name" 2>&1 &
    pids="$pids $!"
  done
  for pid in $pids; do wait "$pid" || { cat "$work"/eval-*; return 1; }; done
  tail -n 8 "$work/eval-off" "$work/eval-on"
  "$sparkling" eval compare "$work/off.jsonl" "$work/on.jsonl"
}

# A server on the GPU: health, one chat answer, an orderly end.
serve_once() {
  local port body='{"messages": [{"role": "user", "content": "A tank of Bella holds 91 liters. 36 liters flow in. How many liters are in it?"}], "temperature": 0}'
  "$sparkling" serve "$model" --backend cuda --port 0 >"$work/serve" 2>&1 &
  local server=$!
  for _ in $(seq 100); do grep -q 'http://' "$work/serve" && break; sleep 0.2; done
  port=$(grep -o 'http://[^ ]*' "$work/serve" | head -1 | grep -o '[0-9]*$')
  ask() { exec 3<>"/dev/tcp/127.0.0.1/$port" && printf '%s' "$1" >&3 && timeout 20 cat <&3; }
  ask $'GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' | tail -n 1 || return 1
  echo
  ask "$(printf 'POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s' ${#body} "$body")" |
    tail -n 1 | tee "$work/answer"
  echo
  kill -TERM $server
  wait $server
  echo "serve ended with $?"
  grep -q '#### 127' "$work/answer"
}

# Most memory of the device and of the host while all of flash is loaded.
load_memory() {
  local most=0 used host=0 now
  "$sparkling" bench -v $flash --in 8 --out 2 --draft 0 --repeat 1 >"$work/load" 2>&1 &
  local pid=$!
  while kill -0 $pid 2>/dev/null; do
    used=$(nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits | head -1)
    now=$(awk '/VmHWM/ {print $2}' /proc/$pid/status 2>/dev/null)
    [ "${used:-0}" -le "$most" ] || most=$used
    [ "${now:-0}" -le "$host" ] || host=$now
    sleep 0.1
  done
  wait $pid || return 1
  grep -E '^(weights|  *weights|memory|plan|state|loading)|MiB|GiB' "$work/load" | head -20
  echo "most memory of the device $most MiB, of the host $((host / 1024)) MiB"
}

# Every test of `verbs` in its short form under one tool of compute-sanitizer, each in a process of its own.
one_sanitized() {
  SPARKLING_SHORT=1 SPARKLING_TEST_GPU=1 timeout -k 5 280 "$sanitizer" --tool "$1" --error-exitcode 9 \
    "$programs/sparkling_tests" --gtest_filter="$2" >"$work/$1/${2//\//_}" 2>&1 || true
}
sanitized() {
  local tool=$1 name bad=0
  mkdir -p "$work/$tool"
  SPARKLING_TEST_GPU=1 "$programs/sparkling_tests" --gtest_list_tests --gtest_filter="$gpu_tests" |
    awk '/^[^ ]/ {suite=$1} /^ / {print suite $1}' |
    xargs -P "${SHARDS:-8}" -I{} bash -c "one_sanitized $tool {}"
  for name in "$work/$tool"/*; do
    grep -q 'before first instrumented API call' "$name" && echo "no GPU in $(basename "$name")" && continue
    grep -q '0 errors' "$name" && grep -q '  PASSED  \] 1 test' "$name" && continue
    grep -q '0 hazards' "$name" && grep -q '  PASSED  \] 1 test' "$name" && continue
    bad=1
    echo "--- $(basename "$name")"
    tail -5 "$name"
  done
  echo "$tool: $(grep -lE '0 errors|0 hazards' "$work/$tool"/* | wc -l) of $(ls "$work/$tool" | wc -l) tests without an error"
  return $bad
}

flash="--backend cuda --synthetic ling-3.0-flash --lm-head fp8"
gpu_tests='Each/*/cuda:Session/*/cuda:CudaProof.*:CudaPacked.*:CudaSample.*:CudaSampling.*:CudaFused*:CudaResident.*:CudaRows.*:CudaAttend*'
export -f machine verbs same_text sanitized one_sanitized eval_pair serve_once load_memory logits_of_ids
export sparkling programs commit work model sanitizer questions flash gpu_tests
random="--synthetic $model/config.json"

step machine report.txt 60 bash -c machine
# Compile times, registers, spills; the self test is the logits against the reference with the routes replayed.
step warm-cold kernels.txt 150 "$sparkling" doctor --warm --backend cuda "$model"
step warm-again kernels.txt 60 "$sparkling" doctor --warm --backend cuda "$model"
step logits-random kernels.txt 60 "$sparkling" doctor --backend cuda $random
step packed-nano kernels.txt 90 "$sparkling" doctor --warm --backend cuda "$model" --precision fast --moe packed
step compare-nano compare.txt 60 "$sparkling" compare "$model" --a reference --b cuda
step compare-random compare.txt 60 "$sparkling" compare $random --a reference --b cuda
step logits-nano compare.txt 60 bash -c logits_of_ids
step same-text text.txt 90 bash -c same_text
step eval-nano text.txt 150 bash -c eval_pair
step serve-nano text.txt 60 bash -c serve_once
step bench-nano bench.txt 60 "$sparkling" bench "$model" --backend cuda --in 256 --out 64
step bench-nano-drafts bench.txt 60 "$sparkling" bench "$model" --backend cuda --in 256 --out 64 --draft 3
step warm-flash kernels.txt 120 "$sparkling" doctor --warm $flash --layers 3
step bench-flash-3 bench.txt 60 "$sparkling" bench $flash --layers 3 --in 64 --out 32 --draft 0
step bench-flash-12 bench.txt 90 "$sparkling" bench $flash --layers 12 --in 64 --out 32 --draft 0
# Every verb against the reference, and whole sessions with drafts; what is emulated elsewhere runs on the GPU here.
step verbs verbs.txt 200 bash -c verbs
# Loading against a plain parallel read of the same files, where the disk has room for 10 GB.
loading() {
  "$programs/synthetic_checkpoint" write ling-3.0-flash 6 "$work/flash6" && sync || return 1
  for _ in 1 2; do
    "$programs/synthetic_checkpoint" read "$work/flash6" || return 1
    "$sparkling" bench -v "$work/flash6" --backend cuda --in 8 --out 2 --draft 0 2>&1 || return 1
  done
  rm -rf "$work/flash6"
}
export -f loading
if [ -x "$programs/synthetic_checkpoint" ] && [ "$(df --output=avail -B1G "$work" | tail -1)" -ge 12 ]; then
  step loading loading.txt 120 bash -c loading
fi
step load-memory loading.txt 60 bash -c load_memory
short="--in 64 --out 64"
step bench-flash-42 bench.txt 90 "$sparkling" bench -v $flash $short --draft 0 --require moe=packed
step bench-flash-42-plain bench.txt 90 "$sparkling" bench $flash --moe plain $short --draft 0
step bench-flash-42-1024 bench.txt 90 "$sparkling" bench $flash --in 1024 --out 64 --draft 0
step bench-flash-42-depth bench.txt 60 "$sparkling" bench $flash --in 64 --out 64 --depth 1024 --draft 0 --repeat 2
# A prompt of 32,768 tokens takes all 42 layers most of a minute each time.
step bench-flash-12-depths bench.txt 120 "$sparkling" bench $flash --layers 12 --in 64 --out 64 --depth 1024,32768 --draft 0 --repeat 1
step bench-flash-attend bench.txt 60 "$sparkling" bench --kernel=attend --depth 32768 $flash --layers 6
step bench-flash-kernels bench.txt 90 "$sparkling" bench --kernel $flash --layers 6
step bench-flash-42-drafts bench.txt 90 "$sparkling" bench $flash $short --draft 3
step bench-flash-42-simulated bench.txt 90 "$sparkling" bench $flash $short --simulate-acceptance 2.68
step bench-flash-42-simulated-more bench.txt 90 "$sparkling" bench $flash $short --simulate-acceptance 3.9
step bench-flash-42-sampled bench.txt 90 "$sparkling" bench $flash $short --draft 0 --temperature 0.6 --top-p 0.95 --top-k 29 --seed 1
step bench-flash-42-host-sampler bench.txt 90 env SPARKLING_SAMPLER=host "$sparkling" bench $flash $short --draft 0
step bench-flash-42-composed bench.txt 90 env SPARKLING_FUSE=off "$sparkling" bench $flash $short --draft 0
step bench-flash-42-launches bench.txt 90 env SPARKLING_RESIDENT=off "$sparkling" bench $flash $short --draft 0
step bench-flash-42-timed bench.txt 90 env SPARKLING_RESIDENT=timed "$sparkling" bench $flash $short --draft 0
step bench-flash-42-single bench.txt 90 env SPARKLING_GRAPHS=off "$sparkling" bench $flash $short --draft 0
step bench-tiny bench.txt 90 "$sparkling" bench --backend cuda --synthetic ling-3.0-tiny --lm-head fp8 $short --draft 0
step bench-flash-42-ladder bench.txt 120 "$sparkling" bench --ladder --backend cuda --synthetic ling-3.0-flash --simulate-acceptance 2.68 $short
if [ -n "$sanitizer" ]; then
  for tool in memcheck racecheck initcheck; do
    step "sanitizer-$tool" sanitizer.txt 300 bash -c "sanitized $tool"
  done
fi
say ""
say "failed:${failed:- none}"
say "not run:${skipped:- none}"
say "results: $folder, $SECONDS s"
[ -z "$failed$skipped" ]
