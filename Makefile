# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0

SHELL      := bash
.SHELLFLAGS := -eu -o pipefail -c
GO         ?= go
# Every directory with a go.mod; those outside go.work are always built with GOWORK=off.
MODULES    := $(shell find . -name go.mod -not -path '*/.*/*' -not -path '*/testdata/*' -not -path '*/build/*' | sed 's,/go.mod,,' | sort)
# What users build: everything but the tools, the comparisons with other libraries and the programs of tests.
SHIPPED    := $(filter-out ./internal/tools ./internal/tools/snapshot ./internal/tools/vale ./benchmarks ./test/browser ./test/prometheus ./test/kubernetes,$(MODULES))
# The systems that make vet checks.
SYSTEMS    ?= linux/amd64 darwin/arm64 windows/amd64
TOOLS      := $(CURDIR)/internal/tools
BIN        := $(CURDIR)/bin
# The tools and sources of the site are outside the repository, whose tests read every Markdown file below it.
DOCS       := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/otelgpu/docs
# The environment in which the Python package is built: its compiler is 300 MB, which several checkouts share.
PYBUILD    := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/otelgpu/python-build
# The time of all files that are built from a commit.
EPOCH       = $(or $(SOURCE_DATE_EPOCH),$(shell git log -1 --format=%ct))
TEST       := internal/tools/test.sh
# A cache that several checkouts share reports lines of files that are gone.
export GOLANGCI_LINT_CACHE ?= $(BIN)/lint-cache
# Each module, alone: the versions that its users get.
each        = for m in $(1); do echo "--- $$m: $(2)"; (cd $$m && GOWORK=off $(2)); done

.PHONY: docs apidiff snapshot test-snapshot push-images image-base test-module modules vulncheck actionlint release-prepare release-tags help test test-integration race efence test-arm lint style gremlins mutate fmt vet generate build build-modules build-full build-cluster capture capture-release wheel bench hardware hardware-kit hardware-rehearsal run check jaeger pictures

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

test: $(BIN)/gotestsum ## run the tests of every module and of the Python package, without servers of others
	$(TEST)

test-integration: $(BIN)/gotestsum ## run the tests with servers and libraries of others (Jaeger, Prometheus, Kafka, Chromium, Helm), where they can be had
	$(TEST) -integration

test-module: $(BIN)/gotestsum ## run the tests of one module, MODULE=gpuspan; SHORT=1 leaves out end-to-end and long ones
	$(TEST) -module $(MODULE) $(if $(SHORT),-short)

modules: ## print as a JSON list the modules that CI tests one by one: others need servers, and run in separate jobs
	@printf '"%s"\n' $(patsubst ./%,%,$(filter-out ./test/browser ./test/prometheus ./benchmarks,$(MODULES))) | paste -sd, | sed 's/.*/[&]/'

apidiff: ## print incompatible changes of the Go API since BASE (a commit; default: the last release), an error without a changelog line
	cd $(TOOLS) && GOWORK=off $(GO) run ./release apidiff -root $(CURDIR) -base "$(BASE)"

vulncheck: $(BIN)/builder ## look for known vulnerabilities in what is shipped (reads vuln.go.dev, or VULNDB, a URL like file:///DIR)
	cd $(TOOLS) && GOWORK=off $(GO) build -o $(BIN)/govulncheck golang.org/x/vuln/cmd/govulncheck
	for m in $(SHIPPED); do (cd $$m && $(BIN)/govulncheck $(VULNDB:%=-db %) ./...); done # in the workspace: a release has no replace lines
	cd cmd/otelcol-gpu && GOWORK=off $(BIN)/builder --config builder-full.yaml --skip-compilation
	cd cmd/otelcol-gpu/build && GOWORK=off $(BIN)/govulncheck $(VULNDB:%=-db %) -scan package ./... # the full build's 400 modules

actionlint: ## check the workflows of .github
	cd $(TOOLS) && GOWORK=off $(GO) run github.com/rhysd/actionlint/cmd/actionlint $(CURDIR)/.github/workflows/*.yml

race: $(BIN)/gotestsum ## the same as test under the race detector, without the end-to-end tests and packages that start no goroutine
	CGO_ENABLED=1 $(TEST) -race -short

efence: ## calls into C at 3,000 stack depths, with memory that is never used again
	GODEBUG=efence=1 $(GO) test -count=1 -run='StackDepth|GrowsTheStack|Frame' ./gpuspan/internal/dl ./gpuspan/cuda/... ./gpuspan/hip ./gpuspan/nvtx

test-arm: ## run the tests of the library that depend on the processor for ARM64, emulated (qemu-user, gcc-aarch64-linux-gnu)
	cd gpuspan && GOARCH=arm64 CGO_ENABLED=0 CC=aarch64-linux-gnu-gcc QEMU_LD_PREFIX=/usr/aarch64-linux-gnu \
		$(GO) test -short -exec qemu-aarch64 -skip 'ProgramsThatAreStarted|ExitRunsTheHandlers' \
		. ./cuda/... ./hip ./nvtx ./internal/dl ./internal/engine # skipped: tests that start themselves, which needs binfmt

mutate: ## make small faults in the code, one at a time, and report the ones that the tests miss
	cd internal/tools && GOWORK=off $(GO) build -o $(BIN)/mutate ./mutate
	$(BIN)/mutate

gremlins: ## mutate a package mechanically and list what its tests miss, PACKAGE=./internal/series
	$(GO) run github.com/go-gremlins/gremlins/cmd/gremlins@v0.6.0 unleash $(PACKAGE)

lint: $(BIN)/golangci-lint ## run golangci-lint on every module
	$(call each,$(MODULES),$(BIN)/golangci-lint run ./...)

style: $(BIN)/vale ## check the wording of documents and comments (internal/tools/vale), and that no large file was added
	git ls-files -z -- '*.md' '*.go' '*.py' '*.c' '*.h' ':!*testdata*' ':!*generated_*' | \
		xargs -0 $(BIN)/vale --config $(TOOLS)/vale/vale.ini --no-wrap --output=line
	! git ls-files -z | xargs -0 sh -c 'find "$$@" -maxdepth 0 -type f -size +1024k' sh | grep . # a program or a database, by mistake

fmt: $(BIN)/golangci-lint ## format every module and repair what lint can repair by itself
	$(call each,$(MODULES),$(BIN)/golangci-lint run --fix --issues-exit-code=0 ./...)

vet: ## vet without cgo for each of SYSTEMS (lint vets what is built here)
	for s in $(SYSTEMS); do for m in $(SHIPPED); do echo "--- $$m for $$s"; \
		(cd $$m && CGO_ENABLED=0 GOOS=$${s%/*} GOARCH=$${s#*/} $(GO) vet ./...); done; done

generate: ## regenerate all code and documentation that is generated
	$(call each,./semconv $(filter-out ./semconv,$(SHIPPED)),$(GO) generate ./...) # other modules compile with the new names
	$(GO) test -count=1 -run DeploymentsHave ./config -update

docs: $(DOCS)/venv/bin/mkdocs ## build the documentation as a site in bin/docs (Python); broken links fail
	rm -rf $(DOCS)/src && mkdir -p $(DOCS)/src
	git ls-files -z -- '*.md' docs/images ':!*testdata*' ':!.github' | xargs -0 cp --parents -t $(DOCS)/src
	NO_MKDOCS_2_WARNING=1 DOCS_SRC=$(DOCS)/src $(DOCS)/venv/bin/mkdocs build --strict --config-file docs/site/mkdocs.yml

$(DOCS)/venv/bin/mkdocs: docs/site/requirements.txt
	python3 -m venv $(DOCS)/venv
	$(DOCS)/venv/bin/pip install --quiet --requirement docs/site/requirements.txt
	@touch $@

build: ## build the distribution, bin/otelcol-gpu
	$(GO) build -trimpath -ldflags='-s -w' -o $(BIN)/otelcol-gpu ./cmd/otelcol-gpu

build-full: $(BIN)/builder ## build cmd/otelcol-gpu/build/otelcol-gpu-full with the Kubernetes and Kafka components
	cd cmd/otelcol-gpu && GOWORK=off $(BIN)/builder --config builder-full.yaml

build-cluster: $(BIN)/builder ## build otelcol-gpu-cluster beside it, with what the tests of gateways need, in less time
	mkdir -p cmd/otelcol-gpu/build
	grep -vE '/(prometheusreceiver|hostmetricsreceiver|transformprocessor|resourcedetectionprocessor) ' \
		cmd/otelcol-gpu/builder-full.yaml | sed 's/otelcol-gpu-full$$/otelcol-gpu-cluster/' > cmd/otelcol-gpu/build/builder.yaml
	cd cmd/otelcol-gpu && GOWORK=off $(BIN)/builder --config build/builder.yaml

capture: ## build bin/libotelgpu_capture.so, which CUDA processes are started with to be captured (gcc)
	@mkdir -p $(BIN)
	gcc -std=c11 -O2 -Wall -Wextra -fvisibility=hidden -fPIC -shared -o $(BIN)/libotelgpu_capture.so \
		receiver/gpucapturereceiver/shim/*.c -lpthread -ldl

wheel: $(PYBUILD)/.ready ## build the Python package's sdist and wheels, with the capture library for Linux, in dist/python
	rm -rf dist/python
	SOURCE_DATE_EPOCH=$(EPOCH) $(PYBUILD)/bin/python python/build_wheels.py dist/python

capture-release: $(PYBUILD)/.ready ## build dist/capture/linux_{amd64,arm64}/libotelgpu_capture.so, which load with glibc 2.17 and later
	$(PYBUILD)/bin/python python/build_wheels.py dist/capture --library

$(PYBUILD)/.ready: python/requirements-build.txt
	python3 -m venv $(PYBUILD)
	$(PYBUILD)/bin/pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

test-snapshot: ## build a snapshot twice, compare the hashes, install and start it (Linux, several minutes)
	cd $(TOOLS)/snapshot && OTELGPU_SNAPSHOT=1 GOWORK=off $(GO) test -count=1 -timeout 40m -run Integration -v .

snapshot: wheel capture-release $(BIN)/builder ## build everything that a release publishes, in dist; PLATFORMS and BUILDS select less
	cd $(TOOLS)/snapshot && SOURCE_DATE_EPOCH=$(EPOCH) GOWORK=off $(GO) run . build -root $(CURDIR) -out $(CURDIR)/dist \
		$(if $(PLATFORMS),-platforms $(PLATFORMS)) $(if $(BUILDS),-builds $(BUILDS))

push-images: ## push the images of dist to the registry and namespace TO, with their tags
	cd $(TOOLS)/snapshot && GOWORK=off $(GO) run . push -out $(CURDIR)/dist -to $(TO)

image-base: ## set the Debian packages in the images to the newest versions (deploy/container/base.json)
	cd $(TOOLS)/snapshot && GOWORK=off $(GO) run . base -root $(CURDIR)

build-modules: ## build each module alone, outside the workspace
	$(call each,$(MODULES),$(GO) build -o /dev/null ./...)

bench: ## run the benchmarks of every module once, with allocations
	$(call each,$(SHIPPED),$(GO) test -run='^$$' -bench=. -benchmem ./...)

hardware: hardware-kit ## measure everything that needs a GPU, in ten minutes; prints the rows of docs/hardware.md
	$${OTELGPU_PYTHON:-python3} python/benchmarks/hardware.py $(BIN)/hardware.zip

hardware-kit: capture build ## build bin/hardware.zip: what python/benchmarks/hardware.py needs on a machine without Go and network
	rm -rf $(BIN)/hardware $(BIN)/hardware.zip && mkdir -p $(BIN)/hardware
	cp $(BIN)/libotelgpu_capture.so $(BIN)/otelcol-gpu $(BIN)/hardware
	cd gpuspan && CGO_ENABLED=0 $(GO) test -c -trimpath -ldflags='-s -w' -tags hardware -o $(BIN)/hardware/hardware.test ./cuda
	$${OTELGPU_PYTHON:-python3} -m pip install -q --target $(BIN)/hardware/site --python-version 3.12 --only-binary :all: opentelemetry-sdk --no-compile
	cd $(BIN)/hardware && $${OTELGPU_PYTHON:-python3} -m zipfile -c ../hardware.zip *

STUBS = $(BIN)/stubs
hardware-rehearsal: hardware-kit ## rehearse `make hardware` without a GPU, on stubs of the driver, CUPTI and NVML (gcc; torch for CPUs)
	rm -rf $(STUBS) && mkdir -p $(STUBS)/loads
	gcc -std=gnu11 -O2 -w -shared -fPIC -fvisibility=hidden -o $(STUBS)/libcuda.so gpuspan/internal/ctest/csrc/cuda.c -lm -lpthread
	gcc -std=gnu11 -O2 -w -shared -fPIC -o $(STUBS)/libcupti.so receiver/gpucapturereceiver/testdata/stub/cupti.c -lpthread
	gcc -std=gnu11 -O2 -w -shared -fPIC -o $(STUBS)/libnvidia-ml.so python/tests/nvml_stub.c -lm -lpthread
	GPUSPAN_CUDA_LIBRARY=$(STUBS)/libcuda.so OTELGPU_CUPTI_LIBRARY=$(STUBS)/libcupti.so OTELGPU_STUB_LOADS=$(STUBS)/loads \
		$${OTELGPU_PYTHON:-python3} python/benchmarks/hardware.py $(BIN)/hardware.zip --cpu --nvml $(STUBS)/libnvidia-ml.so

run: ## run the Collector with its built-in pipeline
	$(GO) run ./cmd/otelcol-gpu

pictures: build ## take the pictures of docs/images (Chromium; the one of a trace with OTELGPU_JAEGER_UI, the folder of a built jaeger-ui)
	cd test/browser && OTELGPU_INTEGRATION=1 GOWORK=off $(GO) test -count=1 -timeout 20m -v -run Picture -pictures $(CURDIR)/docs/images -program $(BIN)/otelcol-gpu .

jaeger: ## build Jaeger and run it on its usual loopback ports, in memory
	$(GO) run ./test/cmd/jaeger

check: test test-integration race efence vet build-modules lint ## everything that CI checks but the generated files

$(BIN)/builder: internal/tools/go.mod
	cd $(TOOLS) && GOWORK=off $(GO) build -o $@ go.opentelemetry.io/collector/cmd/builder

$(BIN)/vale: internal/tools/vale/go.mod
	cd $(TOOLS)/vale && GOWORK=off $(GO) build -o $@ github.com/vale-cli/vale/v3/cmd/vale

$(BIN)/gotestsum: internal/tools/go.mod
	cd $(TOOLS) && GOWORK=off $(GO) build -o $@ gotest.tools/gotestsum

$(BIN)/golangci-lint: internal/tools/go.mod
	cd $(TOOLS) && GOWORK=off $(GO) build -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

release-prepare: ## set VERSION (as v0.2.0) in every file that states it
	cd $(TOOLS) && GOWORK=off $(GO) run ./release prepare -root $(CURDIR) -version $(VERSION)

release-tags: ## print the tags of VERSION
	@cd $(TOOLS) && GOWORK=off $(GO) run ./release tags -version $(VERSION)
