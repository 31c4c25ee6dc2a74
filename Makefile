# Everything a contributor runs. `make` alone lists it.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Packages tested at a time: on two cores most of their time is spent waiting for servers and processes.
TEST_PACKAGES ?= 4
# What check and test look at: make test PKG=./store/...
PKG ?= ./...
BENCH ?= .
COUNT ?= 1

.PHONY: help modules build run run-postgres servers servers-down check lint audit package test test-short mutants verify bench site size clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r target text; do printf '  make %-15s %s\n' "$$target" "$$text"; done

build: ## the static binary bin/weir
	@scripts/build

run: build ## build, then run the example
	scripts/quickstart

run-postgres: build ## build, then follow a PostgreSQL database: SQL in, what two customers get out
	scripts/run-postgres

servers: ## install (apt, Maven, npm) and start the servers that the tests need
	@scripts/install-servers
	@scripts/servers up
	@scripts/servers status

servers-down: ## stop them
	@scripts/servers down

# What fails on the network is tried again. Nothing is asked for when all is there.
modules:
	@for pause in 5 10 20 40 0; do \
		if go mod download; then break; fi; \
		if [ $$pause = 0 ]; then exit 1; fi; sleep $$pause; done

# It vets, so that test and test-short need not. With the tag it sees the files without it, too.
# Folders that begin with a dot are none of ours: servers write and remove files in .run.
check: modules
	@unformatted=$$(find . -name '.?*' -prune -o -name '*.go' -exec gofmt -l {} +); if [ -n "$$unformatted" ]; then echo "not formatted (gofmt -w):"; echo "$$unformatted"; exit 1; fi
	go vet -tags verify $(PKG)

test: ## formatting, vet, and all that is deterministic, with real servers, under the race detector
	@TEST_PACKAGES=$(TEST_PACKAGES) COUNT=$(COUNT) scripts/test $(PKG)

# It spends its time linking: what drives servers and processes, below tests, would only be linked to skip.
# No test of it keeps a core busy for long, so more of them wait at a time.
test-short: check ## the tests that need neither servers nor processes, in under a minute
	go test -short -vet=off -p 8 $(if $(filter ./...,$(PKG)),./internal/transport ./deliver ./tests/docs ./tests/simulation $$(go list ./... | grep -v /tests/),$(PKG))

MUTANTS ?=

mutants: servers ## small faults in the protocol's code, each with the test that must find it; MUTANTS=regexp selects
	eval "$$(scripts/servers env)" && MUTANTS='$(MUTANTS)' go run ./tests/mutants

SUITE ?=

verify: servers ## what searches or measures: SUITE=name for one (scripts/verify list); writes out/verify/evidence.md
	eval "$$(scripts/servers env)" && scripts/verify $(SUITE)

bench: servers ## benchmarks; BENCH=regexp selects; scripts/bench-e2e: whole runs, scripts/bench-rate: the rate that lasts
	WEIR_KAFKA_LASTS=1 scripts/servers restart kafka
	eval "$$(scripts/servers env)" && go test -run '^$$' -bench '$(BENCH)' -benchmem -p 1 $(PKG)

# The linter is built from its module: nothing to install, and the same version for everybody.
lint: modules ## golangci-lint with the house rules
	go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0 run --timeout 20m ./...

audit: modules ## gosec, govulncheck, outdated and unmaintained modules; writes out/sbom.json
	@scripts/audit

package: modules ## release snapshot, packages, image and chart, checked (root; TARGETS=all: for all systems)
	@scripts/package

site: ## the documentation as a site in out/site, its links checked (Python; pip)
	@scripts/site

size: ## lines of Go per folder: product, and tests with the conformance suites
	@git ls-files -z '*.go' | xargs -0 awk '{ split(FILENAME, at, "/"); tests = FILENAME ~ /_test\.go$$|^tests\/|(store|sink|log|gate)test\//; lines[at[1], tests]++; seen[at[1]]; sum[tests]++ } \
		END { for (f in seen) printf "%-16s %8d %8d\n", f, lines[f, 0], lines[f, 1] | "sort"; close("sort"); printf "%-16s %8d %8d\n", "total", sum[0], sum[1] }'

clean: ## stop the servers; remove their data, binaries and outputs, keep downloads
	scripts/servers clean
	rm -rf bin out .run/bin .run/weir*
