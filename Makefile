# Everything a person or CI does here: `make help` lists what one needs first, `make help-all` the rest. Needs Go, make, git and bash; test also a C compiler.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# The toolchain is the machine's and C never decides what we build; only the race detector turns cgo on again.
export GOTOOLCHAIN := local
export CGO_ENABLED := 0

# The minor of Kubernetes that everything is made of: that of go.mod, or an older one of hack/kubernetes, whose programs lie in bin/v1.36 and so on.
DEFAULT_KUBERNETES := $(shell sed -nE 's/^\tk8s\.io\/kubernetes (v1\.[0-9]+)\..*/\1/p' go.mod)
override KUBERNETES := $(or $(KUBERNETES),$(DEFAULT_KUBERNETES))
export KUBERNETES
ifeq ($(KUBERNETES),$(DEFAULT_KUBERNETES))
BIN := bin
else
BIN := bin/$(KUBERNETES)
MODFILE := hack/kubernetes/$(KUBERNETES)/go.mod
ifeq ($(wildcard $(MODFILE)),)
$(error KUBERNETES=$(KUBERNETES) is no minor of Kubernetes that these sources are built for: write one of $(DEFAULT_KUBERNETES) $(notdir $(wildcard hack/kubernetes/*)))
endif
endif

# How many Nodes `make run` and `make demo` register.
NODES ?= 12

##@ Try it

.PHONY: run
run: tools build ## Start a control plane with our controller manager, and watch NODES=12 Nodes get podCIDRs
	@$(BIN)/local-cluster run --nodes=$(NODES)

.PHONY: demo
demo: ## The same, but end as soon as every Node is served
	@hack/build.sh bin/etcd go.etcd.io/etcd/server/v3 hack/tools -- $(BIN)/kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver hack/tools/kubernetes -- \
		$(BIN)/local-cluster ./cmd/local-cluster -- $(BIN)/kube-controller-manager ./cmd/kube-controller-manager
ifdef MODFILE
	@ln -sf ../etcd $(BIN)/etcd
endif
	@$(BIN)/local-cluster demo --nodes=$(NODES)

.PHONY: demo-cluster-ipam
demo-cluster-ipam: tools build #: Give clusters and their machines addresses from pools, show who has what, and end; see docs/cluster-ipam/README.md
	@$(BIN)/local-cluster cluster-ipam

# `make cluster INSTALL=no`, and so with all targets: no Debian package is installed, it is only said which one is missing.

# How many control planes `make cluster` starts, each with a member of etcd, and how many workers it joins.
CONTROL_PLANES ?= 1
WORKERS ?= 2

.PHONY: cluster
cluster: cluster-tools cluster-image ## Start a real kubeadm cluster on this host, as root on Linux: CONTROL_PLANES=1 WORKERS=2
	@hack/ensure-cluster-programs.sh
ifdef MODFILE
	@mkdir -p $(BIN)/patches
	@for file in manifests/kubeadm/patches/*; do sed 's/v[0-9.]*-mc[0-9][0-9A-Za-z.-]*/$(TAG)/' "$$file" >$(BIN)/patches/"$${file##*/}"; done
endif
	@$(BIN)/cluster up --control-planes=$(CONTROL_PLANES) --workers=$(WORKERS) --config=manifests/kubeadm/kubeadm.yaml --patches=$(if $(MODFILE),$(BIN),manifests/kubeadm)/patches \
		--image=$(BIN)/images/kube-controller-manager-linux-$$(go env GOARCH).tar --apply=manifests/crds --apply=manifests/rbac

.PHONY: cluster-down
cluster-down: ## End it
	@go build -o $(BIN)/cluster ./hack/cluster
	@$(BIN)/cluster down

.PHONY: setup-test-env
setup-test-env: tools build #: Start a control plane with the CRDs only, in the background, to run node-ipam-controller by hand on; says how
	@hack/test-env.sh up

.PHONY: teardown-test-env
teardown-test-env: #: End it
	@hack/test-env.sh down

##@ Build

.PHONY: build
build: ## Build our programs into bin/; with KUBERNETES=v1.36 for that minor, into bin/v1.36
	@hack/build.sh $(BIN)/kube-controller-manager ./cmd/kube-controller-manager
	@hack/build.sh $(BIN)/node-ipam-controller ./cmd/node-ipam-controller
	@hack/build.sh $(BIN)/cluster-ipam-controller ./cmd/cluster-ipam-controller
	@hack/build.sh $(BIN)/local-cluster ./cmd/local-cluster
	@hack/build.sh $(BIN)/kubectl-node_ipam ./cmd/kubectl-node_ipam

.PHONY: build-example
build-example: #: Build bin/cloud-controller-manager, the example for authors of cloud providers
	@hack/build.sh $(BIN)/cloud-controller-manager ./examples/cloud-controller-manager

TOOLS := $(BIN)/etcd $(BIN)/kube-apiserver $(BIN)/kubectl

.PHONY: tools
tools: $(TOOLS) #: Build etcd, kube-apiserver and kubectl into bin/, at the versions of hack/tools/go.mod and hack/tools/kubernetes/go.mod

# Kubernetes' programs are of a module of their own, whose dependencies have the versions that ours have: they are compiled once for all.
bin/etcd: package := go.etcd.io/etcd/server/v3
$(BIN)/kube-apiserver: package := k8s.io/kubernetes/cmd/kube-apiserver
$(BIN)/kubectl: package := k8s.io/kubernetes/cmd/kubectl

# What docs/operate/restore-etcd.md uses.
ETCD_TOOLS := $(BIN)/etcdctl $(BIN)/etcdutl

bin/etcdctl bin/etcdutl: package = go.etcd.io/etcd/$(@F)/v3

KUBEADM_TOOLS := $(BIN)/kubeadm $(BIN)/kubelet $(BIN)/kube-scheduler

.PHONY: kubeadm-tools
kubeadm-tools: $(KUBEADM_TOOLS) #: Build kubeadm, kubelet and kube-scheduler

$(KUBEADM_TOOLS) $(BIN)/kube-proxy: package = k8s.io/kubernetes/cmd/$(@F)
$(BIN)/kube-apiserver $(BIN)/kubectl $(KUBEADM_TOOLS) $(BIN)/kube-proxy: $(or $(MODFILE),hack/tools/kubernetes/go.mod hack/tools/kubernetes/go.sum) hack/build.sh
	@hack/build.sh $@ $(package) hack/tools/kubernetes
bin/etcd bin/etcdctl bin/etcdutl: hack/tools/go.mod hack/tools/go.sum hack/build.sh
	@hack/build.sh $@ $(package) hack/tools
# All minors have the same etcd.
ifdef MODFILE
$(BIN)/etcd $(ETCD_TOOLS): $(BIN)/%: bin/%
	@mkdir -p $(BIN)
	@ln -sf ../$(@F) $@
endif

UPSTREAM := $(BIN)/upstream/kube-controller-manager

.PHONY: upstream
upstream: $(UPSTREAM) #: Build Kubernetes' own controller manager, which the parity test compares ours with

$(UPSTREAM): $(or $(MODFILE),go.mod go.sum) hack/build.sh
	@hack/build.sh $@ k8s.io/kubernetes/cmd/kube-controller-manager

# The IPAM provider that in-cluster-ip-pool-controller is compared with, and the CRDs of the modules that it is made of.
ORIGINAL := bin/original/cluster-api-ipam-provider-in-cluster

$(ORIGINAL): test/conformance/original/go.mod test/conformance/original/go.sum hack/original.sh
	@hack/original.sh $(@D)

.PHONY: cluster-tools
cluster-tools: tools build upstream kubeadm-tools $(BIN)/node #: Build what make cluster needs: kubeadm, kubelet, containerd, network plugins
	@hack/build.sh $(BIN)/cluster ./hack/cluster

# What runs on a cluster's machines beside Kubernetes.
bin/node: hack/cluster/tools/go.mod hack/cluster/tools/go.sum hack/cluster/pause/main.go
	@echo "build $@"
	@go -C hack/cluster/tools build -tags=no_btrfs,no_zfs,no_devmapper -o $(CURDIR)/$@/ tool
	@go build -o $@/pause ./hack/cluster/pause
	@touch $@
ifdef MODFILE
$(BIN)/node: bin/node
	@mkdir -p $(BIN)
	@ln -sfn ../node $@
endif

# The network plugins that make e2e-networks tries, each of a module of its own, and kube-proxy.
NETWORKS := hack/cluster/networks
.PHONY: networks
networks: $(BIN)/kube-proxy bin/networks/kube-router bin/networks/flannel bin/networks/cilium-agent

bin/networks/kube-router: $(NETWORKS)/kube-router/go.mod $(NETWORKS)/kube-router/go.sum
	@echo "build $@"
	@go -C $(NETWORKS)/kube-router build -o $(CURDIR)/$@ tool
	@touch $@
bin/networks/flannel: $(NETWORKS)/flannel/go.mod $(NETWORKS)/flannel/go.sum $(NETWORKS)/flannel/cni/main.go
	@echo "build $@"
	@CGO_ENABLED=1 go -C $(NETWORKS)/flannel build -o $(CURDIR)/bin/networks/ tool
	@go -C $(NETWORKS)/flannel build -o $(CURDIR)/bin/networks/flannel-cni ./cni
	@touch $@
bin/networks/cilium-agent: $(NETWORKS)/cilium/go.mod $(NETWORKS)/cilium/go.sum
	@echo "build $@"
	@go -C $(NETWORKS)/cilium build -ldflags='-s -w' -o $(CURDIR)/bin/networks/ github.com/cilium/cilium/plugins/cilium-cni
	@go -C $(NETWORKS)/cilium build -ldflags='-s -w' -o $(CURDIR)/$@ github.com/cilium/cilium/daemon
	@touch $@

.PHONY: kubectl-node-ipam
kubectl-node-ipam: #: Build bin/kubectl-node_ipam, the plugin behind `kubectl node-ipam`, and what completes its arguments: docs/use/kubectl-node-ipam.md
	@hack/build.sh bin/kubectl-node_ipam ./cmd/kubectl-node_ipam
	@ln -sf kubectl-node_ipam bin/kubectl_complete-node_ipam

# How make image calls the images, and for which machines it makes them. Name another tag for a build that is to replace one on a machine
# that has it.
REGISTRY ?= localhost/multicidr
TAG ?= $(shell KUBERNETES=$(KUBERNETES) hack/image-tag.sh)
PLATFORMS ?= linux/amd64,linux/arm64

.PHONY: image
image: ## Write images of our programs to bin/images: REGISTRY=, TAG=, PLATFORMS=linux/amd64,linux/arm64
	@REGISTRY=$(REGISTRY) TAG=$(TAG) PLATFORMS=$(PLATFORMS) hack/image.sh

# The name that users of kubernetes-sigs/node-ipam-controller know.
.PHONY: image-build
image-build: image

# The image of our kube-controller-manager that manifests/kubeadm names, for this machine.
.PHONY: cluster-image
cluster-image:
	@REGISTRY=$(REGISTRY) TAG=$(TAG) PLATFORMS=linux/$$(go env GOARCH) hack/image.sh kube-controller-manager

# The epoch is the time of all files in the archive, so that the same files make the same archive.
.PHONY: chart
chart: #: Package the Helm charts into bin/
	@SOURCE_DATE_EPOCH=0 go -C test/chart tool helm package $(CURDIR)/manifests/charts/node-ipam-controller $(CURDIR)/manifests/charts/cluster-ipam-controller --destination $(CURDIR)/bin

##@ Release it

# VERSION is that of the sources: make set-version writes it. PROGRAMS, PLATFORMS, COMMANDS and COMMAND_PLATFORMS make less of it, to try something.
VERSION ?= $(shell cat controllers/build/VERSION)
RELEASE := bin/release/$(VERSION)

.PHONY: release
release: ## Make all files of a release from a clean clone of HEAD: VERSION=, REGISTRY=
	@VERSION=$(VERSION) REGISTRY=$(REGISTRY) $(if $(filter-out file,$(origin PLATFORMS)),PLATFORMS=$(PLATFORMS)) PROGRAMS='$(PROGRAMS)' COMMANDS='$(COMMANDS)' COMMAND_PLATFORMS=$(COMMAND_PLATFORMS) hack/release.sh $(RELEASE)

# What it builds a second time: kubectl-node_ipam, or a program of an image.
REBUILD ?= kubectl-node_ipam

.PHONY: verify-release
verify-release: tools #: Read a release back: checksums, programs, charts and manifests in an API server; and build REBUILD=kubectl-node_ipam again, for the same bytes
	@REBUILD=$(REBUILD) hack/verify-release.sh $(RELEASE)

##@ Change it

.PHONY: generate
generate: ## Write deepcopy, clients, CRDs, RBAC roles and docs/reference again
	hack/generate.sh

# Minutes the first time, since it is compiled and compiles all that it looks at; then seconds.
bin/golangci-lint: hack/lint/go.mod hack/lint/go.sum
	@echo "build $@"
	@go -C hack/lint build -o $(CURDIR)/$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

.PHONY: set-version
set-version: #: Write VERSION=v0.3.0 into the sources, charts, manifests and documentation; see docs/versions.md
	hack/set-version.sh $(VERSION)

.PHONY: lint
lint: bin/golangci-lint #: Look for mistakes and needless words in the Go code, as .golangci.yaml says; go vet is in it
	@hack/lint.sh

.PHONY: verify
verify: bin/golangci-lint ## Fail if linters find something, or generated files, formatting or pins are not up to date
	hack/verify.sh

.PHONY: docs docs-serve docs-lint docs-outputs
docs: ## Build the site of docs/ into bin/site; needs Node.js
	@hack/docs.sh build
docs-serve: #: Show the site on this machine, and every change of a page at once
	@hack/docs.sh serve
docs-lint: #: Look for links that lead nowhere, and for sentences and words that the style guide has not; make verify does it, too
	@hack/docs.sh links
	@hack/docs.sh prose
docs-outputs: tools build #: Run the shell blocks of README.md and docs/, and write what they print into the pages; make test fails if that is something else
	$(INTEGRATION) ./test/pages -rewrite

# What the programs that are released can reach; VULNDB names a mirror of the database.
.PHONY: vulncheck
vulncheck: #: Look for known vulnerabilities in what our programs can reach; ends with 3 if there are some, with 2 if it cannot tell
	@hack/vulncheck.sh ./cmd/kube-controller-manager ./cmd/node-ipam-controller ./cmd/cluster-ipam-controller ./cmd/kubectl-node_ipam

##@ Test

# Together with make verify what CI runs for every commit: at most 15 minutes on two cores once everything is compiled. What takes longer, or
# guards what hardly changes, is in make nightly.
.PHONY: test
test: test-unit ## Run what CI runs for every commit, beside verify: 15 minutes on two cores
	@# These wait more than they work, for leases, backoffs and a minute in which nothing may happen; so three of them at a time, the longest first.
	$(MAKE) --jobs=3 $(if $(filter output-sync,$(.FEATURES)),--output-sync=target) \
		test-processes-n-z test-processes-a-m test-programs test-scripts test-chart test-clusteripam-pools test-parity-static

# The lanes of make nightly, in this order, for less than three hours on two cores. Of the older minors it tries the oldest, which differs most; e2e-upgrade
# begins with the next one. Measurements judge nothing, and want a quiet machine: make scale, bench and performance are for that.
NIGHTLY ?= test-race test-slow test-clusteripam test-harness test-parity test-chaos chaos inputs simulate mutants \
	test-monitoring test-image test-release $(addprefix test-older-,$(firstword $(OLDER))) conformance consumer test-move test-distributions e2e e2e-ha e2e-networks e2e-upgrade

.PHONY: nightly
nightly: ## Run everything else, for hours; NIGHTLY='chaos inputs' picks some
	@hack/nightly.sh $(NIGHTLY)

# Where goroutines share memory, of what compiles in minutes with cgo: what imports Kubernetes' own programs is left to test-race.
RACE := ./controllers/lease/... ./controllers/nodeipam/... ./controllers/cloudmanager/... ./controllers/clusteripam/runner/... ./test/worlds
# Random histories that run in one goroutine, and thousands of Nodes, which take minutes with the race detector.
HISTORIES := TestRandomHistories|TestRandomClusters|TestManyFailedOnce|TestFenceClosesAgainAndAgain

.PHONY: test-unit
test-unit: ## Run the unit tests: after every change
	@hack/ensure-c-compiler.sh
	@echo "== unit tests"
	go test ./apis/... ./controllers/... ./test/worlds
	CGO_ENABLED=1 go test -race -skip='^($(HISTORIES))$$' $(RACE)

.PHONY: test-race
test-race: #: Run all unit tests with the race detector; package race says how many random histories that plays
	@hack/ensure-c-compiler.sh
	CGO_ENABLED=1 go test -race ./apis/... ./controllers/... ./test/worlds

# Without the clients of all clouds, in which Prometheus looks for targets.
bin/promtool: test/monitoring/go.mod test/monitoring/go.sum
	@echo "build $@"
	@go -C test/monitoring build -tags=remove_all_sd -o $(CURDIR)/$@ github.com/prometheus/prometheus/cmd/promtool

.PHONY: test-monitoring test-image test-release test-chart
test-monitoring: bin/promtool #: Try the alerts on samples with promtool, and see that alerts and dashboard use documented metrics
	@mkdir -p bin/monitoring
	@# promtool reads what the Prometheus Operator makes of a PrometheusRule: its spec.
	@for rules in manifests/monitoring/*prometheusrule.yaml; do sed '1,/^spec:/d' "$$rules" >bin/monitoring/"$${rules##*/}"; done
	bin/promtool check rules --lint=all --lint-fatal bin/monitoring/*prometheusrule.yaml
	bin/promtool test rules test/monitoring/*.yaml
	go -C test/monitoring test -count=1 ./...
test-image: #: Read the images back, and see that the same program makes the same bytes
	go -C hack/image test ./...
test-release: tools #: Make a small release of HEAD twice, which must have the same bytes, and read it back
	@rm -rf bin/release/once bin/release/again
	@for output in once again; do VERSION=$(VERSION) PROGRAMS=node-ipam-controller PLATFORMS=linux/$$(go env GOARCH) COMMANDS=kubectl-node_ipam COMMAND_PLATFORMS=linux/$$(go env GOARCH),windows/amd64 hack/release.sh bin/release/$$output; done
	diff --recursive bin/release/once bin/release/again
	hack/verify-release.sh bin/release/once
test-chart: tools build #: Try the Helm chart with Helm, and the program with what the chart gives it, on a real etcd and kube-apiserver
	go -C test/chart test -count=1 ./...

# Control planes share the machine badly, so these packages run one after the other; and they run programs that
# go test's cache does not know, so their results are never taken from it.
INTEGRATION := go test $(addprefix -modfile=$(CURDIR)/,$(MODFILE)) -count=1 -p=1 -timeout=30m

# test/integration takes longest of all, so it has lanes: its scripts, the others by their names, and those that are for the night.
SCRIPTS := ^TestScripts$$
SLOW := ^(TestDebug|TestExamples.*|TestRestoreEtcd.*|TestOneObjectPanics|Test.*Migration.*|TestCloudManager.*)$$

.PHONY: test-scripts test-processes-a-m test-processes-n-z test-slow test-minor-processes
test-scripts test-processes-a-m test-processes-n-z test-slow test-minor-processes: tools build build-example upstream
test-scripts: #: Run the ClusterCIDR scripts with kube-controller-manager on a real etcd and kube-apiserver
	$(INTEGRATION) -run='$(SCRIPTS)' ./test/integration
test-processes-a-m:
	$(INTEGRATION) -run='^Test[A-M]' -skip='$(SCRIPTS)|$(SLOW)' ./test/integration
test-processes-n-z:
	$(INTEGRATION) -run='^Test[^A-M]' -skip='$(SCRIPTS)|$(SLOW)' ./test/integration
test-slow: $(ETCD_TOOLS) #: Run the scripts in the other forms of the program, restores of etcd, leader migration, and what else of test/integration takes long
	$(INTEGRATION) -run='$(SLOW)' ./test/integration
test-minor-processes:
	$(INTEGRATION) -run='^(TestTakeover.*|TestExamples.*)$$' ./test/integration

.PHONY: test-programs test-harness
test-programs: tools build upstream $(BIN)/kubeadm #: Try kubectl node-ipam, local-cluster, the manifests, and what the other tests rest on
	$(INTEGRATION) $$(go list ./cmd/... ./test/... | grep -vE '/test/(clusteripam|conformance|e2e|inputs|integration|parity|scale|worlds)(/|$$)')
test-harness: tools build upstream #: Try what measurements rest on
	$(INTEGRATION) ./test/scale/...

.PHONY: test-clusteripam test-clusteripam-pools
test-clusteripam test-clusteripam-pools: tools build
test-clusteripam: #: Run Cluster IPAM in both programs on a real etcd and kube-apiserver
	$(INTEGRATION) ./test/clusteripam
test-clusteripam-pools:
	$(INTEGRATION) -run='^(TestFlow|TestPools|TestInfoblox)$$/^cluster-ipam-controller$$' ./test/clusteripam

# The commit that the upgrade test begins with.
EARLIER ?= 5a2123dc

.PHONY: test-upgrade-cluster-ipam
test-upgrade-cluster-ipam: tools build #: Upgrade cluster-ipam-controller from the commit EARLIER=5a2123dc, with claims, shared host records and moved claims
	@hack/earlier.sh $(EARLIER) bin/earlier
	$(INTEGRATION) -run='^TestUpgrade$$' ./test/clusteripam

.PHONY: conformance
conformance: tools build $(ORIGINAL) #: Compare in-cluster-ip-pool-controller with the original provider of Cluster API, object by object
	$(INTEGRATION) ./test/conformance

.PHONY: test-parity test-parity-static
test-parity: tools build upstream #: Compare our controller manager with Kubernetes' own
	$(INTEGRATION) ./test/parity/...
test-parity-static: build upstream
	$(INTEGRATION) -run='^(TestHelpParity|TestCommandLineParity|TestVersionParity)$$' ./test/parity

# The older minors of Kubernetes that the same sources are built for.
OLDER := $(notdir $(wildcard hack/kubernetes/v*))

.PHONY: test-minor test-vet test-older $(OLDER:%=test-older-%)
test-minor: test-vet test-scripts test-minor-processes test-parity test-chaos #: Vet all that ships, and run the scripts, takeover, parity and chaos, with the programs of KUBERNETES=v1.36: half an hour
test-vet:
	go vet $(addprefix -modfile=$(CURDIR)/,$(MODFILE)) ./apis/... ./controllers/... ./cmd/...
test-older: $(OLDER:%=test-older-%) #: The same with each older minor of Kubernetes
$(OLDER:%=test-older-%): test-older-%:
	$(MAKE) --keep-going KUBERNETES=$* test-minor

.PHONY: e2e e2e-ha e2e-networks e2e-upgrade
e2e: #: Run it in real kubeadm clusters: ranges, takeover and back, reboot; as root on Linux, elsewhere it says why not; installs as make cluster does
	@hack/e2e.sh -skip='^(TestThreeControlPlanes|TestNetworks|TestRenumber|TestUpgrade.*)$$'
e2e-ha: #: Run it in a kubeadm cluster with three control planes: swap one after the other, kill, cut off and reboot leaders; as make e2e
	@hack/e2e.sh -v -timeout=30m -run='^TestThreeControlPlanes$$'
e2e-networks: #: Run Pods on bridge, flannel, kube-router and Cilium, with kube-proxy in its modes, and print a table of plugins and cases; move a cluster to another range, to dual stack, and back; as make e2e
	@NETWORKS=yes hack/e2e.sh -v -timeout=60m -run='^(TestNetworks|TestRenumber)$$'

# The minor that `make e2e-upgrade` begins with: kubeadm goes one minor at a time.
UPGRADE_FROM ?= $(lastword $(OLDER))
e2e-upgrade: #: Upgrade kubeadm clusters with one and with three control planes of our manager from UPGRADE_FROM=v1.36 while Nodes join, then forget --patches, and repair that; as make e2e
	@UPGRADE_FROM=$(UPGRADE_FROM) hack/e2e.sh -v -timeout=60m -run='^TestUpgrade'

.PHONY: build-chaos
build-chaos: tools build
	@hack/build.sh $(BIN)/chaos ./test/chaos

# The leases are short, so that a leader is deposed every few seconds. The second run is without the server-side fence, which would hide
# that a leader writes when it should not; in the third no watch lasts.
.PHONY: test-chaos
test-chaos: build-chaos #: Three minutes of killed, paused and parted managers, with and without the server-side fence, and with watches that are cut all the time
	$(BIN)/chaos --duration=1m --lease=6s --interval=1500ms --max-delay=15s
	$(BIN)/chaos --duration=1m --lease=6s --interval=1500ms --late=false --fence=false
	$(BIN)/chaos --duration=1m --cut-watches

# How long `make chaos` and `make inputs` last; CHAOS takes more flags, for instance CHAOS='--cut-watches --seed=7'.
DURATION ?= 5m
CHAOS ?=

.PHONY: chaos
chaos: build-chaos #: Chaos with the usual leases for DURATION=5m; CHAOS=--cut-watches lets no watch last; docs/engineering/testing.md says what it does and how to read it
	@$(BIN)/chaos --duration=$(DURATION) $(CHAOS)

# INPUTS takes more flags, for instance INPUTS='-seed=7'.
INPUTS ?=

.PHONY: inputs
inputs: tools build #: Throw whatever the API server accepts at both programs for DURATION=5m; docs/engineering/testing.md says what, and what is checked
	$(INTEGRATION) -timeout=0 -v ./test/inputs -inputs.duration=$(DURATION) -seed=0 $(INPUTS)

# How many random worlds and histories `make simulate` runs, or the seed of the only world.
SEEDS ?= 1000
SEED ?=
RANDOM_HISTORIES := $(addprefix ./controllers/,ipam lease nodeipam/allocator nodeipam/pool nodeipam/inspect clusteripam/addresses clusteripam/incluster clusteripam/infoblox)

.PHONY: simulate
simulate: #: Run SEEDS=1000 random worlds with simulated time, and as many histories of each random test, or one world with its history: SEED=7
	go test -count=1 -timeout=0 ./test/worlds -run='^TestWorlds$$' $(if $(SEED),-v -seed=$(SEED) -seeds=1,-seed=0 -seeds=$(SEEDS))
ifndef SEED
	go test -count=1 -timeout=0 $(RANDOM_HISTORIES) -run='^Test(.*Histories|Simulation|RandomClusters|Candidates)$$' -seed=0 -seeds=$(SEEDS)
endif

.PHONY: consumer
consumer: tools build #: Give machines of Cluster API's vSphere provider, in a simulated vCenter, addresses from our pools; minutes the first time
	@hack/consumer.sh
	go -C test/consumer test -count=1 -timeout=15m -v ./...

.PHONY: test-move
test-move: tools build #: Move management clusters with the code of clusterctl, and let it install our providers; minutes the first time
	go -C test/move test -count=1 -timeout=20m -v ./...

.PHONY: test-distributions
test-distributions: #: Hold examples/distributions against the code of Cluster API, kind and Talos; minutes the first time
	go -C test/distributions test -count=1 ./...

.PHONY: mutants mutants-apply
mutants: #: Put one defect of test/defects.md after another into the sources and fail if its test does not notice; RUN=regexp picks some
	@go run ./test/mutants $(if $(RUN),-run='$(RUN)')
mutants-apply: #: See that each of them fits the sources as they are, and that its test exists: seconds
	go test -count=1 ./test/mutants

.PHONY: said
said: #: Write test/said/said.golden again: what the product tells people, as tests hear it
	go test -p=1 -count=1 $$(grep -rl '/test/said"' --include='*_test.go' controllers cmd | xargs -n1 dirname | sort -u | sed 's#^#./#') -said.update

##@ Measure it

BENCHSTAT := go tool -modfile=$(CURDIR)/hack/tools/go.mod benchstat

# The benchmarks that `make bench` runs, as a regular expression, and results to compare with: those of another commit, bin/bench.txt copied away.
BENCH ?= .
OLD ?=

.PHONY: bench
bench: #: Run Go's benchmarks six times, into bin/bench.txt, and summarize or compare them: BENCH=Serve OLD=old.txt
	@mkdir -p bin
	go test -run='^$$' -bench='$(BENCH)' -count=6 -timeout=0 $$(grep -rl --include='*_test.go' '^func Benchmark' controllers | xargs -n1 dirname | sort -u | sed 's#^#./#') | tee bin/bench.txt
	@$(BENCHSTAT) $(OLD) bin/bench.txt

# What `make scale` measures, with NODES instead of the scenario's own number, and more flags, for instance SCALE='--rounds=6 --contestants=ours'.
SCENARIO ?= burst
SCALE ?=

.PHONY: build-scale
build-scale: tools build upstream
	@hack/build.sh bin/scale ./test/scale

.PHONY: scale
scale: build-scale $(if $(filter addresses,$(SCENARIO)),$(ORIGINAL)) ## Measure us and others on a real control plane: SCENARIO=burst, overload, restart, idle, addresses, bound
	@bin/scale $(SCENARIO) $(if $(filter-out file,$(origin NODES)),--nodes=$(NODES)) $(SCALE) | tee bin/scale.txt
	@$(BENCHSTAT) -col /who bin/scale.txt

.PHONY: performance
performance: build-scale $(ORIGINAL) #: Measure all that docs/engineering/performance.md shows, into bin/performance.txt: hours, on a quiet machine
	@$(MAKE) --no-print-directory bench
	@rm -f bin/performance.txt
	@for scenario in "burst --nodes=5000,20000" overload "restart --nodes=1000,100000" idle addresses bound; do bin/scale $$scenario --rounds=6 | tee -a bin/performance.txt; done
	@$(BENCHSTAT) -col /who bin/performance.txt

##@ Other

.PHONY: clean
clean: ## Remove bin/, unless something in it runs; Go's build cache stays
	@for marker in bin/*/.made-by bin/*/*/.made-by; do \
		[[ -e $$marker ]] || continue; \
		echo "$${marker%/*} is in use, by $$(<$$marker): run make teardown-test-env, or sudo bin/cluster down --dir=$${marker%/*}, first" >&2; exit 1; \
	done
	rm -rf bin

# `##` describes what a newcomer needs, `#:` the rest.
.PHONY: help
help: #: Show what a newcomer needs
	@sed -nE 's/^([a-z0-9-]+):.*\#\# (.*)/\1|\2/p' Makefile | while IFS='|' read -r target text; do printf '  %-14s %s\n' "$$target" "$$text"; done

.PHONY: help-all
help-all: ## Show all targets
	@sed -nE -e 's/^\#\#@ (.*)/\n\1/p' -e 's/^([a-z0-9-]+):.*\#[\#:] (.*)/\1|\2/p' Makefile | \
		while IFS='|' read -r target text; do if [[ -z $$text ]]; then echo "$$target"; else printf '  %-18s %s\n' "$$target" "$$text"; fi; done
