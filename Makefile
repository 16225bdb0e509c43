# The front door. Each target sets up what it needs (tools/setup.sh: apt and pip only for what is missing), builds and
# ends by itself with no standard input. The build proper is CMake's; the folders are those of CMakePresets.json.
QUESTION ?= A tank of Bella holds 91 liters. 36 liters flow in. 13 liters leak out. Vera is 54 years old. Rain brings the water to 4 times as much. How many liters are in it in the end?
FUZZ_SECONDS ?= 60
SECONDS ?= 3600
ARGS ?=
BENCH ?= --ladder --prompts tests/data/bench_prompts.jsonl --out 256 --repeat 5

.PHONY: build run test serve bench soak equality fuzz asan tsan format clean
build:
	@tools/setup.sh build
	@tools/configure.sh release
	@cmake --build build --target sparkling

run: build
	build/sparkling run -p "$(QUESTION)" $(ARGS) </dev/null

test:
	@tools/setup.sh test
	@tools/configure.sh release
	@cmake --build build
	@tools/run_tests.sh

serve: build
	build/sparkling serve $(ARGS)

# What each optimisation adds, on ling-nano and on six layers of the shapes of ling-3.0-flash, which have 9.5 GiB;
# BENCH="..." measures something else, and that alone.
FLASH = --ladder --synthetic ling-3.0-flash --layers 6 --simulate-acceptance 2.68 --draft-head 32768
bench: build
	build/sparkling bench $(BENCH) $(ARGS) </dev/null
ifeq ($(origin BENCH),file)
	build/sparkling bench $(FLASH) $(ARGS) </dev/null
endif

# Mixed agent traffic for an hour: flat memory, and every answer as if it had been alone (tools/soak.py).
soak: build
	python3 tools/soak.py --seconds $(SECONDS) </dev/null

# Drafts never change a text: 200 prompts of 256 tokens at depth 0 to 4 for every expert kernel and head.
equality: build
	@tools/setup.sh test
	EQUALITY_PROMPTS=200 EQUALITY_TOKENS=256 .venv/bin/python -m pytest -q tests/equality_test.py </dev/null

fuzz:
	@tools/setup.sh ci
	@tools/configure.sh fuzz
	@cmake --build build-fuzz --target fuzzers
	@tools/run_fuzz.sh $(FUZZ_SECONDS)

asan tsan:
	@tools/setup.sh test
	@tools/configure.sh $@
	@cmake --build build-$@
	@tools/run_sanitized.sh $@

# Formats every C++ file with the version that .ci/run checks with.
format:
	git ls-files -co --exclude-standard 'src/*.h' 'src/*.cc' 'src/*.cuh' 'tests/*.h' 'tests/*.cc' | xargs clang-format-14 -i

clean:
	rm -rf build build-*
