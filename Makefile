# Everything here needs Go, git, make and, for the race detector, a C compiler. The tools are pinned and run
# with `go run`, so they appear in nobody's go.mod.

GOFUMPT       = go run mvdan.cc/gofumpt@v0.12.0
GOLANGCI_LINT = go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GOVULNCHECK   = go run golang.org/x/vuln/cmd/govulncheck@v1.8.0
DEADCODE      = go run golang.org/x/tools/cmd/deadcode@v0.52.0
APIDIFF       = go run golang.org/x/exp/cmd/apidiff@v0.0.0-20261014143641-f0251eb4aa3e
BENCHSTAT     = go run golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da

# Every folder with a go.mod of its own, but for the peers of the benchmark: those have other projects' programs only.
MODULES = . testing/controlplane testing/alerts testing/packages testing/traces testing/upstream examples/pod-security bench

# Those that are vetted. testing/upstream is not, because go vet would first analyse the 2300 packages that it imports.
VETTED = $(filter-out testing/upstream,$(MODULES))

# The folder with kube-apiserver, etcd and kube-controller-manager: of the minor release of Kubernetes that K8S names
# (K8S=1.34), else KUBEBUILDER_ASSETS where that is set, else of the newest release. Built from Go modules once and kept
# in the user's cache.
CONTROLPLANE = go -C testing/controlplane run .
ASSETS = assets="$$($(CONTROLPLANE) -k8s "$(K8S)")" && KUBEBUILDER_ASSETS="$$assets"

.PHONY: help
help: ## show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## a pod goes into a real API server and comes out changed; KUBECONFIG=... uses your cluster
	@go run ./examples/demo $(if $(filter command line,$(origin KUBECONFIG)),-kubeconfig "$(KUBECONFIG)") $(ARGS)

# Packages where goroutines of ours meet. Elsewhere the race detector finds nothing, and takes five times the CPU time; so
# do the specs of the label sequential, which compute for long, in LONG, and examples, which fips runs.
RACE = . $(addprefix ./internal/,audit certsource chain cluster hang lograte metricsauth modes reads record)
LONG = $(addprefix ./internal/,admit controller serving)

# Packages all of whose specs fips runs, so that test runs them only there.
STRICT = $(addprefix ./internal/,ca certsecret convert)

# The garbage collector takes a quarter of the CPU time of the longest specs, and a fifth of the compiler's, unless heaps may
# grow, up to a limit.
GOTEST = go test -vet=off -ldflags=-s -shuffle=on -timeout 40m

.PHONY: test
test: export GOGC = 400
test: export GOMEMLIMIT = 1500MiB
test: ## all specs, against a real API server; the last line says what they cost
	@$(ASSETS) go run ./testing/internal/hold $(MAKE) --no-print-directory -j3 test-race test-plain test-modules

# Two control planes serve the packages that share them one after the other, so some of these wait for others.
.PHONY: test-race test-plain test-modules
test-race:
	@status=0; $(GOTEST) -race -skip ^Example $(RACE) || status=1; \
		$(GOTEST) -race $(LONG) -ginkgo.label-filter='!sequential' || status=1; exit $$status
test-plain:
	@status=0; $(GOTEST) -p 3 ./testing/rotation $$(go list ./... | grep -vxF "$$(go list $(RACE) $(LONG) $(STRICT) ./testing/rotation)") || status=1; \
		$(GOTEST) -run ^Test $(LONG) -ginkgo.label-filter=sequential || status=1; exit $$status
test-modules:
	@status=0; for m in testing/controlplane testing/alerts testing/packages testing/traces examples/pod-security bench; do \
		go -C $$m test -vet=off -ldflags=-s -timeout 40m ./... || status=1; done; $(MAKE) --no-print-directory fips || status=1; exit $$status

.PHONY: fips
fips: export KUBEBUILDER_ASSETS = /no/API/server
fips: export GODEBUG = fips140=only
fips: ## the specs of TLS, certificates and rotation, where the standard library refuses all that FIPS 140-3 does not approve
	@go test -vet=off -ldflags=-s -timeout 40m $(STRICT)
	@go test -vet=off -ldflags=-s -timeout 40m . $(addprefix ./internal/,certsource controller record serving) \
		-skip '^ExampleNewControlPlane$$' -ginkgo.label-filter='!api-server && !slow && !sequential'

.PHONY: fast
fast: export KUBEBUILDER_ASSETS = /no/API/server
fast: ## the specs that need no API server; one that starts one fails
	@EIRINIX_STEPS=2000 go test -vet=off -ldflags=-s -p 4 . $$(go list ./internal/... | grep -v /inprocess$$) -ginkgo.label-filter='!api-server && !slow'
	@EIRINIX_SEEDS=60 go test -vet=off -ldflags=-s -run '^Test[^D]' ./internal/inprocess ./testing/internal/world

.PHONY: seeds
seeds: ## N (1000) lives of whole programs in memory, from SEED (0) on, each with faults of its own; then each known defect is put back and looked for (DEFECTS=F1,cut)
	@EIRINIX_SEEDS=$(or $(N),1000) EIRINIX_SEED=$(or $(SEED),0) go test -vet=off -ldflags=-s -v -timeout 24h -run '^TestSeeds$$' ./testing/internal/world
	@EIRINIX_DEFECTS=$(or $(DEFECTS),all) EIRINIX_SEEDS=$(or $(N),1000) go test -vet=off -ldflags=-s -v -timeout 24h -run '^TestDefects$$' ./testing/internal/world

.PHONY: fast-testing
fast-testing: export KUBEBUILDER_ASSETS = /no/API/server
fast-testing: ## the same for testing, preview and examples
	@go test -vet=off ./examples/hello/...
	@go test -vet=off -ldflags=-s -p 4 -skip '^ExampleNewControlPlane$$|OfAnAPIServer$$' ./testing $$(go list ./testing/internal/... | grep -v /world) ./preview \
		./examples/demo -ginkgo.label-filter='!api-server && !slow'

.PHONY: conformance
conformance: ## Kubernetes' own webhook scenarios, with a table of them at the end (K8S=1.34, ARGS=-ginkgo.label-filter=S24)
	@$(ASSETS) go test -v -timeout 20m ./testing/conformance $(ARGS)

.PHONY: matrix
matrix: ## the same for each release of Kubernetes: a line for each, and why a spec of it cannot be played
	@status=0; for k in $$($(CONTROLPLANE) -list); do \
		report="$$($(MAKE) -s --no-print-directory conformance K8S=$$k ARGS="-count=1 -ginkgo.no-color $(ARGS)")" || { status=1; echo "$$report" | grep -F '[FAIL]'; }; \
		echo "$$report" | grep '^Kubernetes v' || { echo "Kubernetes $$k: not played"; echo "$$report" | tail -20; }; \
	done; exit $$status

.PHONY: upstream
upstream: ## Kubernetes' own specs of webhooks, as they are, with examples/agnhost (ARGS=-ginkgo.focus=attach)
	@$(ASSETS) go -C testing/upstream test -vet=off -v -count=1 -timeout 20m . $(ARGS)

.PHONY: podsecurity
podsecurity: ## Kubernetes' own tests of its plugin PodSecurity, with examples/pod-security, on the oldest and the newest release
	@all="$$($(CONTROLPLANE) -list)" || exit 1; for k in $$(echo "$$all" | sed -n '1p;$$p'); do \
		assets="$$($(CONTROLPLANE) -k8s "$$k")" || exit 1; \
		report="$$(KUBEBUILDER_ASSETS="$$assets" go -C examples/pod-security test -v -count=1 . $(ARGS))" || { echo "$$report"; exit 1; }; \
		echo "$$report" | sed -n 's/.*: \(Kubernetes v.* were sent\)$$/\1/p'; \
		echo "$$report" | grep -c '^    --- PASS: TestUpstream/' | sed 's/$$/ subtests passed/'; \
	done

.PHONY: soak
soak: ## a thousand rotations of the CA under load, a million steps of the model of it, 100,000 edits, 2,100 sequences of applies, 60 restarts, a migration of 10,000 objects: four hours
	@EIRINIX_SOAK=1 go test -timeout 1h ./internal/controller ./internal/patch
	@$(ASSETS) EIRINIX_SOAK=1 go test . -timeout 1h -v -ginkgo.focus 'A Manager at rest|Random edits'
	@$(ASSETS) EIRINIX_SOAK=1 go test ./testing/balancing -timeout 1h -v -ginkgo.label-filter=soak
	@$(ASSETS) EIRINIX_SOAK=1 go test ./testing/drills -timeout 1h -v -ginkgo.focus 'A storage migration'
	@$(ASSETS) EIRINIX_ROTATIONS=1000 go test ./testing/rotation -timeout 4h -v -ginkgo.label-filter=soak

.PHONY: mutants
mutants: export KUBEBUILDER_ASSETS = /no/API/server
mutants: ## change N (10) operators of a ROOM (internal/rollout), one at a time, drawn by SEED, and name those that no spec notices
	@go run ./.ci/mutants -room "$(ROOM)" $(if $(N),-n $(N)) $(if $(SEED),-seed $(SEED)) $(ARGS)

.PHONY: check-us
check-us: ## play docs/check-us.md: each promise holds, and breaks with the change that the page names (ARGS=-row=patches)
	@$(ASSETS) go run ./.ci/mutants -page docs/check-us.md $(ARGS)

.PHONY: bench
bench: ## the request path beside its peers', as ratios of one run (ARGS=-help)
	@$(ASSETS) go -C bench run . $(ARGS)

.PHONY: peers
peers: ## build the real webhooks beside which bench's section podsecurity runs: ten minutes, once
	@go -C bench run ./peers/build

.PHONY: charts
charts: ## draw the charts of docs/performance.md from the figures in bench/testdata
	@go -C bench run . -charts

.PHONY: dashboard
dashboard: ## make the Grafana dashboard docs/dashboard.json
	@text="$$(go -C testing/alerts run .)" && echo "$$text" >docs/dashboard.json

.PHONY: fuzz
fuzz: ## let every fuzz target run for FUZZTIME (30s)
	@go list -f '{{.Dir}}' ./internal/... | while read -r dir; do \
		grep -ho '^func Fuzz[A-Za-z0-9]*' "$$dir"/*_test.go 2>/dev/null | sed 's/^func //' | while read -r target; do \
			echo "$$dir $$target" && go test "$$dir" -run '^$$' -fuzz "^$$target\$$" -fuzztime $(or $(FUZZTIME),30s) -fuzzminimizetime 200x || exit 1; \
		done || exit 1; \
	done

.PHONY: assets
assets: ## build the control plane and print its folder (K8S=1.34: of an older release)
	@$(CONTROLPLANE) -k8s "$(K8S)"

.PHONY: check
check: fmt-check vet tidy-check lint prose ## what CI checks beside the specs

.PHONY: measure
measure: ## the size of the house: lines, methods, exported names, options
	@go run ./.ci/measure

.PHONY: prose
prose: ## the language of comments, and the length of pages
	@go run ./.ci/prose

.PHONY: deadcode
deadcode: ## functions of internal packages that nothing reaches
	@found="$$($(DEADCODE) -test -filter '/eirinix/(testing/)?internal/' ./...)" && test -z "$$found" || { echo "$$found"; exit 1; }

# BASE is the commit to compare with; the last tag by default.
BASE ?= $(shell git describe --tags --abbrev=0 2>/dev/null)
AT_BASE = base="$$(mktemp -d)" && trap 'git worktree remove --force "$$base"' EXIT && git worktree add --quiet --detach "$$base" "$(BASE)"

.PHONY: api
api: ## what of the exported API breaks since the last tag (BASE=<commit>)
	@test -n "$(BASE)" || { echo "api: no tag yet; name a commit to compare with: make api BASE=<commit>"; exit 0; }; \
	test -z "$(BASE)" || { $(AT_BASE) && mkdir "$$base/.api" && status=0 && for p in . ./audit ./conversion ./diagnosis ./manifests ./offline ./preview ./recording ./testing; do \
		test -d "$$base/$$p" || continue; \
		(cd "$$base" && $(APIDIFF) -w "$$base/.api/$$(basename $$p).export" "$$(go list $$p)") && \
		breaks="$$($(APIDIFF) -incompatible "$$base/.api/$$(basename $$p).export" "$$(go list $$p)")" && \
		{ test -z "$$breaks" || { echo "$$(go list $$p)"; echo "$$breaks"; status=1; }; } || exit 1; \
	done; exit $$status; }

.PHONY: benchstat
benchstat: ## the benchmarks of the request path beside those of the last tag (BASE=<commit>)
	@test -n "$(BASE)" || { echo "benchstat: no tag yet; name a commit: make benchstat BASE=<commit>"; exit 1; }
	@$(AT_BASE) && go -C "$$base/bench" test -run '^$$' -bench . -count 6 >"$$base/old.txt" && \
		go -C bench test -run '^$$' -bench . -count 6 >"$$base/new.txt" && $(BENCHSTAT) "$$base/old.txt" "$$base/new.txt"

.PHONY: fmt
fmt: ## format
	@$(GOFUMPT) -w .

.PHONY: fmt-check
fmt-check:
	@unformatted="$$($(GOFUMPT) -l .)"; test -z "$$unformatted" || { echo "not formatted, run make fmt:"; echo "$$unformatted"; exit 1; }

.PHONY: vet
vet:
	@for m in $(VETTED); do echo "vet $$m" && go -C "$$m" vet ./... || exit 1; done

.PHONY: tidy
tidy: ## tidy every module
	@for m in $(MODULES); do go -C "$$m" mod tidy || exit 1; done

.PHONY: tidy-check
tidy-check:
	@for m in $(MODULES); do echo "tidy $$m" && go -C "$$m" mod tidy -diff || exit 1; done

.PHONY: lint
lint: ## golangci-lint
	@$(GOLANGCI_LINT) run ./...

.PHONY: vuln
vuln: ## known vulnerabilities, where their database can be reached
	@report="$$($(GOVULNCHECK) ./... 2>&1)" && echo "govulncheck: nothing known" || { \
		echo "$$report" | grep 'fetching vulnerabilities:' && echo "govulncheck: not checked, its database cannot be reached from here" || \
		{ echo "$$report"; exit 1; }; \
	}
