# Everything a contributor runs. `make` alone lists it.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Packages tested at a time. Two fit two cores; more would make timeouts of servers likely.
TEST_PACKAGES ?= 2
# What check and test look at: make test PKG=./store/...
PKG ?= ./...
FUZZ_TIME ?= 10s
BENCH ?= .
COUNT ?= 1

.PHONY: help modules build run servers servers-down check lint audit test test-short crash chaos load-check load-frontdoor limits bench sim fuzz model clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r target text; do printf '  make %-15s %s\n' "$$target" "$$text"; done

build: ## the static binary bin/pipeline
	CGO_ENABLED=0 go build -trimpath -o bin/pipeline ./cmd/pipeline

run: build ## build, then run the example
	scripts/quickstart

servers: ## install (apt, Maven, npm) and start the servers that the tests need
	@scripts/install-servers
	@scripts/servers up
	@scripts/servers status

servers-down: ## stop them
	@scripts/servers down

# What fails on the network is tried again. Nothing is asked for when all is there.
modules:
	@for folder in . bench; do for pause in 5 10 20 40 0; do \
		if (cd $$folder && go mod download); then break; fi; \
		if [ $$pause = 0 ]; then exit 1; fi; sleep $$pause; done; done

# Folders that begin with a dot are none of ours: servers write and remove files in .run.
check: modules
	@unformatted=$$(find . -name '.?*' -prune -o -name '*.go' -exec gofmt -l {} +); if [ -n "$$unformatted" ]; then echo "not formatted (gofmt -w):"; echo "$$unformatted"; exit 1; fi
	go vet $(PKG)
	@if command -v golangci-lint >/dev/null; then golangci-lint run ./...; fi

test: check servers ## everything: formatting, vet, all tests with real servers under the race detector
	eval "$$(scripts/servers env)" && CGO_ENABLED=1 go test -race -timeout 60m -p $(TEST_PACKAGES) -count=$(COUNT) $(PKG)
	cd bench && go test ./...

test-short: check ## the tests that need no server
	go test -short $(PKG)

crash: servers ## kill the pipeline at every crash point, compare every sink; writes docs/crash-matrix.md
	eval "$$(scripts/servers env)" && go test -run TestCrashMatrix -timeout 60m -parallel 4 -count=1 ./crashtest -crash.full -crash.table ../docs/crash-matrix.md

limits: servers ## memory under a million events while a sink is dead, as a table (docs/limits.md)
	eval "$$(scripts/servers env)" && go test -run TestMemory -v -timeout 60m -count=1 ./limits -limits.events 1000000

CHAOS_ROUNDS ?= 20
CHAOS_SEED ?= 1

chaos: servers ## CHAOS_ROUNDS rounds of random faults of processes, servers and networks, from CHAOS_SEED
	eval "$$(scripts/servers env)" && go test ./chaos -run TestChaos -count=1 -v -timeout 90m -chaos.rounds $(CHAOS_ROUNDS) -chaos.seed $(CHAOS_SEED)

FRONTDOOR_LOAD ?= 10m
FRONTDOOR_RATE ?= 80

load-frontdoor: servers ## posts for FRONTDOOR_LOAD (10m), embedded and with servers, while clients hang up and processes are killed; one effect of each key
	eval "$$(scripts/servers env)" && go test ./e2e/frontdoor -run TestLoad -count=1 -v -timeout 0 -frontdoor.load $(FRONTDOOR_LOAD) -frontdoor.rate $(FRONTDOOR_RATE)

bench: servers ## benchmarks; BENCH=regexp selects
	eval "$$(scripts/servers env)" && go test -run '^$$' -bench '$(BENCH)' -benchmem -p 1 $(PKG)
	cd bench && go run .

load-check: servers ## 1,000 requests/s for a minute on check services with 2,000,000 rows (docs/performance.md)
	eval "$$(scripts/servers env)" && go test -run TestLoad -v -timeout 30m -count=1 ./frontdoor/checkapi -checkapi.rows 2000000 -checkapi.rate 1000 -checkapi.time 1m

lint: ## golangci-lint with the house rules
	@command -v golangci-lint >/dev/null || { echo "golangci-lint is not installed: https://golangci-lint.run/docs/welcome/install/"; exit 1; }
	golangci-lint run ./...

audit: modules ## gosec, govulncheck, outdated and unmaintained modules; writes out/sbom.json
	@scripts/audit

SIM_SEEDS ?= 20000
SIM_FROM ?= 1

sim: ## run SIM_SEEDS schedules of faults from SIM_FROM against the product's code, in virtual time
	go test ./simulation -run TestSchedules -count=1 -timeout 0 -v -sim.seeds $(SIM_SEEDS) -sim.from $(SIM_FROM)

fuzz: ## each fuzz target for FUZZ_TIME (10s)
	@scripts/fuzz $(FUZZ_TIME)

model: ## explore the protocol models (spin), each rule on and off
	@scripts/model

clean: ## stop the servers; remove their data, binaries and outputs, keep downloads
	scripts/servers clean
	rm -rf bin out .run/bin
