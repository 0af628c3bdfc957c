# Sprat: every target prints what it does. `make` alone lists the targets.

SHELL := /bin/bash
# Where rustup puts cargo: a shell that was open before does not have it.
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup build test test-all test-guest test-rack test-ranks demo demo-rack bench bench-store bench-cluster bench-bypass bench-lab bench-flow bench-browser bench-rack bench-grape sim mutations kills kills-cluster kills-flow fuzz sanitize deny doc clean

TARGET := $(or $(CARGO_TARGET_DIR),target)
SPRAT := $(TARGET)/release/sprat
# Seconds of `make sim`; kills of `make kills`; kills of `make kills-cluster` and `make kills-flow`;
# seconds that `make fuzz` spends on each fuzz target.
SIM_SECONDS ?= 600
KILLS ?= 1000
KILLS_FLOW ?= 50
FUZZ_SECONDS ?= 60

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /\1\t/' | expand -t 14

setup: ## install what a fresh Debian 12 machine lacks (prints it; safe to run again)
	@scripts/setup

build: ## build the `sprat` binary, optimised (MPI=yes: with ranks; each machine that runs it then needs Open MPI)
	@scripts/setup build
	@scripts/features >/dev/null
	cargo build --release --locked --bin sprat $$(scripts/features)
	@scripts/split-debug $(SPRAT)

test: ## format, lints and all tests except slow ones (DEEP=yes: also slow tests that the change can affect, lints without DPDK, links in the documentation, long histories)
	@scripts/test

test-all: ## every target of this file once, with small parameters; takes hours (root)
	@scripts/test-all

test-guest: setup build ## the driver on an emulated PCI card, and a virtual function of it, between guests (QEMU)
	@SPRAT=$(SPRAT) scripts/test-guest

test-ranks: setup ## tests that mpirun starts, with a program built with MPI
	@scripts/test-ranks

test-rack: setup ## real racks: tests that start Cassandra and guests, and a smaller demonstration (root; CI runs them too)
	@scripts/test-rack

demo: build ## the store on real files: import, verify, measure, kill, restart, verify
	$(SPRAT) demo

demo-rack: setup build ## three real Cassandras on this machine, from a plan; one is killed under load and replaced (root)
	@SPRAT=$(SPRAT) scripts/demo-rack

bench: bench-store ## the store's benchmarks; the other parts have separate targets

bench-store: setup build ## the store and its peers, in one run; results in target/bench/
	@mkdir -p $(TARGET)/bench
	$(SPRAT) bench store --out $(TARGET)/bench/store.json --html $(TARGET)/bench/store.html

bench-cluster: setup build ## replicas on other servers, compared with Redis's; recovery of a dead server's data; deaths under load (FULL=1 for 1 GB and 100 deaths)
	@mkdir -p $(TARGET)/bench
	$(SPRAT) bench cluster $(if $(FULL),--full) --out $(TARGET)/bench/cluster.json --html $(TARGET)/bench/cluster.html

bench-bypass: setup build ## kernel bypass: round trips over every path from shared memory to TCP, and reads over each
	@mkdir -p $(TARGET)/bench
	$(SPRAT) bench bypass --out $(TARGET)/bench/bypass.json --html $(TARGET)/bench/bypass.html

bench-lab: setup build ## the network box: delay, rate, loss, long fat streams, fairness, switch (root; FULL=1 for 10 Gb/s)
	@mkdir -p $(TARGET)/bench
	$(SPRAT) bench lab $(if $(FULL),--full) --out $(TARGET)/bench/lab.json --html $(TARGET)/bench/lab.html

bench-flow: setup build ## the mover through long fat pipes, compared with curl, aria2, axel, rclone, BBR and CUBIC (root; FULL=1 for up to 4 GB and 5 Gb/s)
	@mkdir -p $(TARGET)/bench
	$(SPRAT) bench flow $(if $(FULL),--full) --out $(TARGET)/bench/flow.json --html $(TARGET)/bench/flow.html

bench-browser: setup build ## a click on a link, 200 ms away: the extension compared with the browser's own download (root; FULL=1 for 1 GB too)
	@mkdir -p $(TARGET)/bench
	$(SPRAT) bench flow --only browser $(if $(FULL),--full) --out $(TARGET)/bench/browser.json --html $(TARGET)/bench/browser.html

bench-rack: build ## a real Cassandra: how the load shows a stall, compared with latte; latency before and after tuning (root; half an hour)
	@scripts/setup bench-rack
	@mkdir -p $(TARGET)/bench
	SPRAT_CASSANDRA=$(TARGET)/tools/cassandra/lib SPRAT_ANSIBLE=$(abspath $(TARGET))/tools/ansible SPRAT_LATTE=$(abspath $(TARGET))/tools/latte/bin/latte \
	$(SPRAT) bench rack --out $(TARGET)/bench/rack.json --html $(TARGET)/bench/rack.html

bench-grape: build ## kernels compared with the processor's peak, numba and KeOps; energy drift; steps of a GRAPE-DR
	@scripts/setup bench-grape
	@mkdir -p $(TARGET)/bench
	SPRAT_GRAPE_PEERS=$(TARGET)/tools/grape-peers $(SPRAT) bench grape --out $(TARGET)/bench/grape.json --html $(TARGET)/bench/grape.html

sim: build ## the deterministic simulator for SIM_SECONDS (default 600) over fresh seeds: clusters, long histories, one server; failures go to target/sim-failed
	$(SPRAT) sim --cluster --operations 10000 --fresh --for $$(($(SIM_SECONDS) / 2)) --keep target/sim-failed
	$(SPRAT) sim --cluster --fresh --for $$(($(SIM_SECONDS) / 4)) --keep target/sim-failed
	$(SPRAT) sim --fresh --for $$(($(SIM_SECONDS) / 4)) --keep target/sim-failed

mutations: ## break the store on purpose, one patch at a time, and check that the tests notice each
	scripts/mutations

kills: ## kill the real server KILLS times (default 1000) while clients write, and check every promise
	SPRAT_KILLS=$(KILLS) cargo test --release --locked -p sprat-cli $$(scripts/features) --test cli kill:: -- --nocapture

kills-cluster: ## kill servers of a real cluster KILLS_FLOW times (default 50) while clients write
	SPRAT_KILLS=$(KILLS_FLOW) cargo test --release --locked -p sprat-cli $$(scripts/features) --test cli cluster:: -- --nocapture

kills-flow: ## kill either end of real transfers KILLS_FLOW times (default 50), and check every file
	SPRAT_KILLS=$(KILLS_FLOW) cargo test --release --locked -p sprat-cli $$(scripts/features) --test cli -- --nocapture cp::the_file_is_exact_when_either_end_is_killed upload::an_uploaded_file_is_exact_when_either_end_is_killed upload::durable_bytes_are_not_sent_again_after_a_kill
	SPRAT_KILLS=$(KILLS_FLOW) cargo test --release --locked -p sprat-flow --test flow interrupted::killed -- --nocapture

fuzz: setup ## fuzz every parser for FUZZ_SECONDS each (default 60)
	@scripts/fuzz $(FUZZ_SECONDS)

sanitize: ## the crates with `unsafe` under the address sanitizer (needs a nightly toolchain)
	@scripts/sanitize

deny: setup ## licences, bans and sources of the dependencies
	@scripts/deny

doc: ## the API documentation of the workspace, in target/doc
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

clean: ## remove everything that was built
	cargo clean
