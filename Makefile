# SPDX-License-Identifier: Apache-2.0
# One-word verbs over CMake; CMakePresets.json says what each build folder is.
#   make            build the library and the tool into build/
#   make help       this list
#   make demo       fetch a real model (93 MB), check every feed-forward block of it, and run it in transformers with and
#                   without the drop-in; that brings PyTorch (the CPU build: 0.4 GB to download, 1.4 GB on disk)
#   make test       all tests (ARGS= for ctest, such as ARGS="-R pytest")
#   make check      the kernels against each other and the reference (ARGS= another seed)
#   make bench      speed of this machine as a share of its limits (ARGS= for swiglu bench)
#   make asan, tsan, cover     the tests under sanitizers, and their line coverage
#   make fuzz       a reader under libFuzzer: T=gguf, gguf_set, safetensors, quantised, json or npy, for SECONDS=60
#   make lint, fmt  what reviews should not have to say
#   make single     out/swiglu.c, the library as one file
#   make install, uninstall    PREFIX=/usr/local, DESTDIR=
#   make clean      removes build folders and out/
SHELL := bash
MAKEFLAGS += --no-print-directory
.SHELLFLAGS := -euo pipefail -c
PREFIX ?= /usr/local
ARGS ?=
T ?= gguf
SECONDS ?= 60
jobs := $(shell nproc)

# $(call build,PRESET,TARGETS): all targets without a list
define build
@cmake --preset $(1) >/dev/null
@cmake --build --preset $(1) -j $(jobs) $(if $(2),--target $(2))
endef

.PHONY: all build help fmt lint test check bench asan tsan cover fuzz demo single install uninstall clean
all: build
	@echo "built: build/swiglu (the tool), build/libswiglu.so, build/libswiglu.a; headers are in include/swiglu/"
	@echo "next:  build/swiglu help, make test, make demo, make install; make help lists the rest"

help:
	@sed -n '3,/^[^#]/s/^# \{0,1\}//p' Makefile

build:
	@tools/bootstrap.sh build
	$(call build,release,swiglu_static swiglu_shared swiglu_tool)

lint:
	@tools/bootstrap.sh lint
	@tools/lint.sh

fmt:
	@tools/bootstrap.sh lint
	@python3 tools/lint_source.py --fix
	@python3 tools/check_cases.py --fix
	@python3 tools/families.py
	@.venv/bin/ruff check --fix --quiet .

test:
	@tools/bootstrap.sh test
	$(call build,release)
	@tools/test.sh build $(ARGS)

check:
	@tools/bootstrap.sh build
	$(call build,release,check_kernels)
	@build/test/check_kernels $(ARGS)

bench: build
	@build/swiglu bench $(ARGS)

asan:
	@tools/bootstrap.sh test
	$(call build,asan)
	@SWIGLU_REQUIRE_ALL=0 tools/test.sh build-asan $(ARGS)

tsan:
	@tools/bootstrap.sh test
	$(call build,tsan)
	@SWIGLU_REQUIRE_ALL=0 tools/test.sh build-tsan -L unit $(ARGS)

cover:
	@tools/bootstrap.sh cover
	$(call build,cover)
	@tools/test.sh build-cover -L 'unit|kernels|python' $(ARGS)
	@tools/cover.sh build-cover

# New inputs of interest stay in build-fuzz/found/; a crash is written there too, and ends the run.
fuzz:
	@tools/bootstrap.sh cover
	$(call build,fuzz,fuzz_$(T))
	@python3 test/fuzz/make_corpus.py build-fuzz/corpus
	@mkdir -p build-fuzz/found/$(T)
	@build-fuzz/test/fuzz_$(T) -max_total_time=$(SECONDS) -timeout=5 -max_len=65536 -print_final_stats=1 \
	    -artifact_prefix=build-fuzz/found/ build-fuzz/found/$(T) build-fuzz/corpus/$(T)/good build-fuzz/corpus/$(T)/hostile

demo: build
	@tools/demo.sh build

single:
	@tools/bootstrap.sh build
	@python3 tools/amalgamate.py --out out

# The list is kept under another name, as tests install too.
install: build
	@cmake --install build --prefix $(PREFIX)
	@cp build/install_manifest.txt build/installed.txt

uninstall:
	@tools/uninstall.sh build/installed.txt

clean:
	@rm -rf build build-asan build-tsan build-cover build-fuzz build-aarch64 build-musl out
