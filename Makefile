# A front door of verbs; the build itself is CMake's (CMakeLists.txt, CMakePresets.json).
PREFIX ?= /usr/local
SECONDS ?= 60

all: ; @tools/build.sh default
setup: ; @tools/setup.sh
check: ; @tools/check.sh check
check-ci: ; @tools/check.sh ci
check-full: ; @tools/check.sh full
demo: ; @tools/setup.sh && tools/demo.sh
demo-vllm: ; @tools/setup.sh && tools/demo-vllm.sh
install: all ; cmake --install build/default --prefix "$(PREFIX)"
fuzz: ; @tools/build.sh fuzz -DCAIRN_FUZZ_SECONDS=$(SECONDS) && ctest --preset fuzz -V
format: ; git ls-files -co --exclude-standard -- '*.c' '*.h' '*.cc' | xargs clang-format -i
clean: ; rm -rf build

.PHONY: all setup check check-ci check-full demo demo-vllm install fuzz format clean
