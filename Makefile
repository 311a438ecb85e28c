# Everything the project does, one target each. `make` alone lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

# One setting for every go command, the tests' own included, so that all share one build cache: another value
# compiles Kubernetes anew.
export CGO_ENABLED := 0
export GOFLAGS := -trimpath -buildvcs=false

# The operator's image, and the kubectl that install, deploy and undeploy use.
IMG ?= docker.io/library/pg-operator:dev
KUBECTL ?= kubectl
# Further flags of `kubectl apply` in install and deploy.
APPLY_FLAGS ?=
# Components of config/ that deploy adds: prometheus, self-certs (the last).
COMPONENTS ?=

# What takes long to build stands outside the checkout, so that a clean clone does not build it again.
CACHE := $(or $(PG_OPERATOR_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/pg-operator)
TOOLS := $(CACHE)/tools-$(shell cat hack/tools/go.mod hack/tools/go.sum | sha256sum | cut -c1-12)
GOLANGCI_LINT := $(TOOLS)/golangci-lint-kube-api-linter
GOVULNCHECK := $(TOOLS)/govulncheck
KUSTOMIZE := $(TOOLS)/kustomize
CONTROLLER_GEN := go tool controller-gen

# Packages whose tests start an API server, and all packages whose tests need no cluster.
MODULE := github.com/acme/pg-operator
API_TESTS = $(shell grep -rl --include='*_test.go' '$(MODULE)/test/controlplane"' test | grep -v '^test/bench/' | xargs -r dirname | sort -u | sed 's|^|./|')
UNIT = $(filter-out $(API_TESTS:./%=$(MODULE)/%) $(MODULE)/test/e2e $(MODULE)/test/chaos,$(shell go list ./...))
# Packages whose tests compare with golden files.
GOLDEN = $(shell grep -rl --include='*_test.go' '$(MODULE)/test/golden"' apis instance postgres reconciler webhooks | xargs -r dirname | sort -u | sed 's|^|./|')
# Everything that `make generate manifests` writes.
GENERATED := apis/v1alpha1/zz_generated.deepcopy.go apis/applyconfiguration config/crd/bases config/rbac/role.yaml config/webhook/manifests.yaml

##@ Help

.PHONY: help
help: ## List the targets.
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z0-9-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##@ Code

# Kubernetes' own types in our spec have their apply configurations in client-go; plain structs would own zero values.
CORE := k8s.io/api/core/v1
CORE_AC := k8s.io/client-go/applyconfigurations/core/v1
AC_EXTERNAL := $(CORE).Affinity@$(CORE_AC);$(CORE).ResourceRequirements@$(CORE_AC);$(CORE).Toleration@$(CORE_AC);$(CORE).TopologySpreadConstraint@$(CORE_AC)

.PHONY: generate
generate: ## Generate deep copies and apply configurations from the API types.
	@$(CONTROLLER_GEN) object:headerFile=hack/boilerplate.go.txt \
	  "applyconfiguration:headerFile=hack/boilerplate.go.txt,externalApplyConfigurations=$(AC_EXTERNAL)" \
	  paths=./apis/v1alpha1

.PHONY: manifests
manifests: ## Generate the CRD, the operator's ClusterRole and the webhook configurations.
	@$(CONTROLLER_GEN) crd rbac:roleName=pg-operator webhook \
	  "paths={./apis/v1alpha1,./reconciler/...,./webhooks/...}" \
	  output:crd:dir=config/crd/bases output:rbac:dir=config/rbac output:webhook:dir=config/webhook

.PHONY: catalogue
catalogue: bin/cluster ## Rewrite postgres/catalogue.tsv from real servers of each major version. Root on Linux.
	@go run ./hack/catalogue --launcher bin/cluster --output postgres/catalogue.tsv

.PHONY: golden
golden: ## Rewrite the golden files of the tests from what the code renders now.
	@UPDATE_GOLDEN=1 go test -count=1 $(GOLDEN)

.PHONY: rejections
rejections: bin/cluster ## Rewrite docs/rejections.md from what the API server and kubectl say now.
	@bin/cluster build --for api
	@assets=$${KUBEBUILDER_ASSETS:-}; eval "$$(bin/cluster env)"; \
	  KUBEBUILDER_ASSETS=$${assets:-$$KUBEBUILDER_ASSETS} UPDATE_GOLDEN=1 go test -count=1 -run TestRejectionsPage ./test/api

.PHONY: fmt
fmt: $(GOLANGCI_LINT) ## Format the Go code (gofumpt, import groups).
	@$(GOLANGCI_LINT) fmt ./...
	@cd test/cluster && $(GOLANGCI_LINT) fmt --config ../../.golangci.yaml ./...

.PHONY: vet
vet: ## Run go vet.
	@go vet ./...
	@cd test/cluster && go vet ./...

.PHONY: lint
lint: $(GOLANGCI_LINT) ## Check the import rules, the API conventions and the rest of .golangci.yaml.
	@failed=0; \
	  echo "lint: root module"; $(GOLANGCI_LINT) run ./... || failed=1; \
	  echo "lint: test/cluster"; cd test/cluster && $(GOLANGCI_LINT) run --config ../../.golangci.yaml ./... || failed=1; \
	  exit $$failed

.PHONY: verify
verify: $(GOLANGCI_LINT) $(GOVULNCHECK) $(KUSTOMIZE) ## Regenerate everything and fail on a difference; lint, go.mod files, known vulnerabilities.
	@GOVULNCHECK=$(GOVULNCHECK) KUSTOMIZE=$(KUSTOMIZE) hack/verify.sh $(GENERATED)

##@ Build

.PHONY: build
build: ## Build bin/pg-operator; VERSION=v1.2.3 names the version.
	@go build $(if $(VERSION),-ldflags "-X $(MODULE)/instance/contract.Version=$(VERSION)") -o bin/pg-operator .

.PHONY: image
image: build bin/image ## Write the image IMG to bin/pg-operator-image.tar (a Docker archive), without a container engine.
	@bin/image --binary bin/pg-operator --reference $(IMG) --output bin/pg-operator-image.tar

##@ Tests

.PHONY: test
test: ## Run all tests: test-unit, test-api, test-e2e.
	@hack/test.sh test-unit test-api test-e2e

.PHONY: test-unit
test-unit: ## Test the packages alone; needs nothing but Go.
	@go test $(UNIT)
	@cd test/cluster && go test ./internal/...

# How many schedules make test-simulation runs, and the seed of the first.
SCHEDULES ?= 1000000
FIRST ?= 1

.PHONY: test-simulation
test-simulation: ## Run the agents' election core against a million schedules of faults; make test runs some. SCHEDULES=n FIRST=seed.
	@go test -count=1 -timeout 3h -v -run 'TestSimulation$$|TestSabotage' ./instance/election -schedules $(SCHEDULES) -first $(FIRST) | grep -v '=== '

# Its servers have memory enough to collect garbage seldom, which saves an eighth of the processor's time.
.PHONY: test-api
test-api: bin/cluster ## Test against a real kube-apiserver with cert-manager's controllers; builds them the first time.
	@bin/cluster build --for api
	@assets=$${KUBEBUILDER_ASSETS:-}; eval "$$(bin/cluster env)"; \
	  KUBEBUILDER_ASSETS=$${assets:-$$KUBEBUILDER_ASSETS} GOGC=400 go test -count=1 -timeout 20m -parallel 3 $(API_TESTS)

.PHONY: test-crash
test-crash: bin/cluster ## End the operator before and after every single write of its flows; make test-api tries a few.
	@bin/cluster build --for api
	@assets=$${KUBEBUILDER_ASSETS:-}; eval "$$(bin/cluster env)"; \
	  KUBEBUILDER_ASSETS=$${assets:-$$KUBEBUILDER_ASSETS} go test -count=1 -timeout 60m -v ./test/crash -every-write | grep -v '=== '

# The image whose PostgreSQL make test-agents takes, and further flags of the tests.
POSTGRES ?= postgres-17
FLAGS ?=

.PHONY: test-agents
test-agents: bin/cluster ## Test the agents with the PostgreSQL of an image of the local cluster. POSTGRES=postgres-17 FLAGS="-test.v ...". Root on Linux.
	@hack/test-agents.sh $(POSTGRES) $(FLAGS)

.PHONY: test-random
test-random: bin/cluster ## Draw many more random objects than make test-api, for rules and schema and for what can be created.
	@bin/cluster build --for api
	@assets=$${KUBEBUILDER_ASSETS:-}; eval "$$(bin/cluster env)"; \
	  KUBEBUILDER_ASSETS=$${assets:-$$KUBEBUILDER_ASSETS} go test -count=1 -timeout 60m -v -run 'TestRulesAgreeWithSchema|TestWhatIsAdmittedCanBeCreated' \
	  ./test/api -pairs 30000 -creatable-for 5m -rapid.checks 3000 | grep -v '=== '

.PHONY: test-e2e
test-e2e: bin/cluster ## Test on the local cluster with real PostgreSQL; starts it if needed. Root on Linux.
	@bin/cluster up --kubectl bin/kubectl
	@# Servers of PostgreSQL alone need no cluster, and the guide's commands mostly wait: those two run side by side.
	@failed=0; \
	  PGO_E2E=1 go test -p 1 -count=1 -timeout 60m -parallel 4 ./test/localcluster/... ./test/ledger/... ./test/e2e/... ./test/chaos || failed=1; \
	  PGO_E2E=1 go test -p 2 -count=1 -timeout 60m ./test/pgserver/... ./test/docs/... || failed=1; \
	  exit $$failed

# What make test-chaos does: see the flags of test/chaos.
SEED ?= 1
INSTANCES ?= 3,2,1
MODES ?= async,required
FAULTS ?=
ROUNDS ?= 1
REPORT ?= $(CURDIR)/bin/chaos.txt

.PHONY: test-chaos
test-chaos: bin/cluster ## Break databases in every way while clients write; prints a table. FAULTS=a,b INSTANCES=3 MODES=async SEED=1 ROUNDS=1.
	@bin/cluster up --kubectl bin/kubectl
	@PGO_CHAOS=1 go test -count=1 -timeout 6h -v -run TestFaults ./test/chaos -seed $(SEED) -instances $(INSTANCES) \
	  -modes $(MODES) -faults '$(FAULTS)' -rounds $(ROUNDS) -report $(REPORT) | grep -v '=== '

.PHONY: test-cluster
test-cluster: ## Prove the local cluster itself: start, faults, repair, nothing left behind. Removes the machine's cluster.
	@cd test/cluster && PGO_CLUSTER_SMOKE=1 go test -count=1 -timeout 15m -run TestSmoke ./internal/cluster

.PHONY: bench
bench: bin/cluster ## Print the benchmarks' figures: passes, admission, time to ready, memory.
	@bin/cluster up --kubectl bin/kubectl
	@go test -count=1 -timeout 60m -run '^$$' -p 1 -bench . -benchtime 1x ./test/bench/...

##@ An existing cluster (kubectl's current context)

.PHONY: install
install: ## Apply the CRD and the policy that goes with it.
	@$(KUBECTL) apply --server-side $(APPLY_FLAGS) -k config/crd
	@$(KUBECTL) apply --server-side $(APPLY_FLAGS) -k config/policy

.PHONY: deploy
deploy: $(KUSTOMIZE) ## Apply the CRD and the operator with the image IMG; COMPONENTS=self-certs: without cert-manager's certificate.
	@hack/manifests.sh $(KUSTOMIZE) $(IMG) $(COMPONENTS) | $(KUBECTL) apply --server-side $(APPLY_FLAGS) -f -

.PHONY: undeploy
undeploy: $(KUSTOMIZE) ## Delete the operator but not the CRD and its policy: PostgresClusters stay, and their databases go on.
	@hack/manifests.sh $(KUSTOMIZE) $(IMG) $(COMPONENTS) | \
	  awk 'BEGIN { RS = "---\n"; ORS = "---\n" } !/(^|\n)kind: (CustomResourceDefinition|ValidatingAdmissionPolicy(Binding)?)\n/' | \
	  $(KUBECTL) delete --ignore-not-found -f -

.PHONY: run
run: ## Run the operator on this machine, without webhooks; no other one may run.
	@go run . manager --webhooks=false --leader-elect=false --operator-image=$(IMG)

##@ The local cluster (root on Linux)

.PHONY: cluster-up
cluster-up: bin/cluster ## Start the local Kubernetes; bin/kubectl talks to it.
	@bin/cluster up --kubectl bin/kubectl

.PHONY: cluster-down
cluster-down: bin/cluster ## Remove the local Kubernetes with all that runs on it.
	@bin/cluster down

.PHONY: demo
demo: bin/cluster bin/image $(KUSTOMIZE) ## From nothing to a replicated database: local cluster, operator, seed manifest, psql, a refused manifest.
	@hack/demo.sh

.PHONY: demo-down
demo-down: cluster-down ## Remove the demo and its cluster.

# The launcher and the image packer of the local cluster; go build decides whether there is anything to do.
.PHONY: bin/cluster bin/image
bin/cluster bin/image:
	@cd test/cluster && go build -o ../../$@ ./cmd/$(@F)

# Tools are built from the tool lines of hack/tools, each into place in one step.
$(TOOLS)/%:
	@echo "Building $* from hack/tools"
	@cd hack/tools && mkdir -p $(@D) && go build -ldflags "-s -w" -o $@.$$$$ "$$(go list tool | grep -E '/$*(/v[0-9]+)?$$')" && mv $@.$$$$ $@
