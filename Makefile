# Every target says what it does behind ##; `make` prints that.
GO      ?= go
BIN     := bin
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
BUILD   := CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)'
TOOL    := $(GO) tool -modfile=hack/tools/go.mod
FUZZTIME ?= 1m
RUN     ?= .

.DEFAULT_GOAL := help
.PHONY: help build build-faults test unit e2e faults lost history bench fuzz lint generate verify cross deflake presubmit demo demo-down clean tmux

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## skcd, skcctl and skc-launch into bin/
	@mkdir -p $(BIN)
	$(BUILD) -o $(BIN)/ ./cmd/...

build-faults: ## the same with fault points, into bin/faults/
	@mkdir -p $(BIN)/faults
	$(BUILD) -tags skcfaults -o $(BIN)/faults/ ./cmd/...

tmux: ## see that tmux and git are there; as root on Debian, install them
	@hack/need-tools.sh

test: unit e2e ## everything that must pass: unit tests with the race detector, then the built binaries

unit: tmux ## unit and contract tests, on real tmux, git and files
	CGO_ENABLED=1 $(GO) test -race -shuffle=on -timeout 10m ./...
	CGO_ENABLED=1 $(GO) test -race -tags skcfaults -timeout 10m ./effects/fault ./effects/files ./effects/git ./effects/prompt ./effects/quarantine ./controller/store ./effects/audit ./controller/control

e2e: tmux build build-faults ## the built binaries, driven by files and commands only; a kill at each place
	$(GO) test -tags e2e -p 1 -count=1 -timeout 20m -run '$(RUN)' ./hack/e2e/... ./hack/faults/... ./hack/lost/... ./hack/history/...

faults: tmux build build-faults ## kill skcd at every durable step of every kind of change
	$(GO) test -tags e2e -count=1 -timeout 60m -run '$(RUN)' ./hack/faults/... -args -full; s=$$?; cat $(BIN)/faults/report.txt; exit $$s

lost: tmux build build-faults ## 300 rounds of delete and restore with kills: no byte and no commit is lost
	$(GO) test -tags e2e -count=1 -timeout 120m -run '$(RUN)' ./hack/lost/... -args -full; s=$$?; cat $(BIN)/faults/lost.txt; exit $$s

history: tmux build build-faults ## 1,000 random histories of requests with kills: a model explains every answer and every program
	$(GO) test -tags e2e -count=1 -timeout 120m -run '$(RUN)' ./hack/history/... -args -full; s=$$?; cat $(BIN)/faults/history.txt; exit $$s

bench: tmux build ## ratios against raw tmux and raw files, in one run (BENCH="-n 1000" for more)
	$(GO) run ./hack/bench $(BENCH)

fuzz: ## every fuzz target for FUZZTIME (1m)
	hack/fuzz.sh $(FUZZTIME)

lint: ## vet and staticcheck
	$(GO) vet ./...
	$(GO) vet -tags 'e2e skcfaults' ./...
	$(TOOL) staticcheck ./...

generate: ## deep copies, CRDs, editors' schema, reference pages
	hack/update-codegen.sh

verify: ## generated files, go.mod and format are up to date
	hack/verify.sh

cross: ## the same tree compiles for darwin
	GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 $(GO) build ./...
	GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 $(GO) vet ./effects/... ./controller/... ./cmd/...

deflake: tmux ## RUN=TestX again and again until it fails (PKG=./effects/tmux)
	$(GO) test -race -shuffle=on -count=1000 -failfast -run '$(RUN)' $(or $(PKG),./...)

presubmit: verify lint cross test ## what CI runs, no more and no less
	hack/fuzz.sh 5s

demo: tmux build ## a controller with the sample sessions, until they are Ready
	@hack/demo.sh up

demo-down: ## end the demo and remove all of it
	@hack/demo.sh down

clean: ## built files
	rm -rf $(BIN)
