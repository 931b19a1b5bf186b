# Holdfast. `make` alone lists what there is.
#
# Everything runs from .venv, which is made on first use from requirements.lock (stamp file: .venv/.installed) and brought
# up to date when requirements.lock or pyproject.toml change. System packages are installed by apt-get when we are root,
# named when we are not.

SHELL := /bin/sh
VENV ?= .venv
PYTHON_BIN := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed
SPARK_INSTALLED := $(VENV)/.spark-installed
KAFKA_INSTALLED := $(VENV)/.kafka-installed
NATS_INSTALLED := $(VENV)/.nats-installed
DOCS_INSTALLED := $(VENV)/.docs-installed
ANSIBLE_VENV ?= .venv-ansible

# Where `make run` keeps its cluster, and on which port its first node listens (0: 5672 if free, else another).
RUN_DIR ?= var/run
AMQP_PORT ?= 0
# Schedules of the simulation in `make soak`: how many, or first:last+1. A failure names its seed and shows a trace.
SEEDS ?= 20000
# Of those in which one disk after the other is lost, or groups change their members, and of each kind with older copies of nodes' data, gateways, streams or transactions.
READMISSIONS ?= 5000
OLDER_COPIES ?= 1000
# Fuzzing of `make soak`: times the examples of `make test`; 300 take a core about an hour.
EXAMPLES ?= 300
# Nonsense on every port of a node, in `make soak`.
FUZZ_SECONDS ?= 3600
# Length of each run of `make chaos`, and from which number their seeds are counted.
CHAOS_SECONDS ?= 90
CHAOS_SEED ?= 1
# Parallel test processes: on two cores the others work while some wait for elections, leases and hosts.
JOBS ?= 5
ARGS ?=

# Hundreds of node processes and commands start in a run of the tests: none of them compiles every module anew.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help install run test docs reference chaos lint bench bundle image spark-bundle provision-test spark-client-test soak proto clean clean-venv dist check

help:
	@echo "make run     three nodes on loopback, then the main job; ONCE=1 stops afterwards (exit status 0 or 1)"
	@echo "make check   ruff, mypy and the unit tests that start no nodes: minutes, after each change (ARGS='-k word' picks some)"
	@echo "make test    ruff, mypy and every test (JOBS=$(JOBS) processes; ARGS='-k word' picks some); Ansible's needs root"
	@echo "make docs    the documentation as a site that needs neither network nor server: open site/index.html"
	@echo "make bench   Holdfast beside RabbitMQ, Artemis, Kafka and NATS, one table of ratios (into benchmarks/results/); then Spark's source and sink"
	@echo "make dist    wheels, source archives and lists of components of what users install (into dist/)"
	@echo "make bundle  everything a host needs, for an installation without a package index (into dist/)"
	@echo "make image   a container image of a node, from Debian's packages and no image registry (into dist/; needs root)"
	@echo "make spark-bundle    the same with PySpark, for hosts that run Spark jobs (about 500 MiB)"
	@echo "make provision-test   Ansible builds, upgrades and tears down a real cluster on hosts of its own (needs root)"
	@echo "make spark-client-test   Ansible makes a host for Spark jobs and runs one there (needs root and a Java of 17 or newer)"
	@echo "make soak    random schedules of whole simulated clusters, SEEDS=$(SEEDS) or first:last+1; then the cluster tests in large, and fuzzing of filters and attaches"
	@echo "make chaos   every workload under every fault, CHAOS_SECONDS=$(CHAOS_SECONDS) each (hours), and every deliberate fault; pages in var/chaos/"
	@echo "make lint    ruff and mypy only"
	@echo "make reference   write anew what is made from the source: pages of docs/reference/, types of the synchronous client"
	@echo "make proto   regenerate the protobuf code from proto/"
	@echo "make clean   remove caches and var/ (clean-venv: also .venv)"

install: $(INSTALLED)

$(INSTALLED): requirements.lock pyproject.toml scripts/make-venv.sh
	@scripts/make-venv.sh $(VENV)
	@touch $@

run: $(INSTALLED)
	@$(PYTHON_BIN) -m holdfast.cli demo --dir $(RUN_DIR) --amqp-port $(AMQP_PORT) \
	    $(if $(filter-out 0 no,$(ONCE)),--once,--keep-running) $(ARGS)

lint: $(INSTALLED)
	$(PYTHON_BIN) -m ruff check .
	$(PYTHON_BIN) -m mypy

# What takes seconds and starts nothing. Four processes: some of them wait.
check: lint
	$(PYTHON_BIN) -m pytest -n 4 --dist worksteal -q -m "not cluster and not slow" tests/unit $(ARGS)

# With a short life of a cluster that Ansible builds, where we are root and may make namespaces.
test: lint $(ANSIBLE_VENV)/.installed $(SPARK_INSTALLED) $(DOCS_INSTALLED)
	@scripts/system-packages.sh --optional rhea java zookeeper provision proxy container
	@scripts/toxiproxy.sh --optional >/dev/null
	@$(PYTHON_BIN) -m chaos.disk --optional
	HOLDFAST_ANSIBLE=$(abspath $(ANSIBLE_VENV)) $(PYTHON_BIN) -m pytest -n $(JOBS) --dist worksteal -q --durations=40 --durations-min=10 $(ARGS)

# 500 MiB that only Spark's tests and jobs need; without it those tests are skipped, and say so.
$(SPARK_INSTALLED): ansible/spark.lock | $(INSTALLED)
	@echo "installing PySpark for its tests"
	@if $(PYTHON_BIN) -m pip --disable-pip-version-check install --quiet -r ansible/spark.lock; then touch $@; \
	    else echo "PySpark could not be installed: its tests are skipped"; fi

# MkDocs' own words about its future are no warning about a page.
docs: $(INSTALLED) $(DOCS_INSTALLED)
	@NO_MKDOCS_2_WARNING=1 $(PYTHON_BIN) -m mkdocs build
	@echo "site/index.html"

reference: $(INSTALLED)
	@$(PYTHON_BIN) -m scripts.docs.reference

# Only the site needs the generator; without it the site's tests are skipped, and say so.
$(DOCS_INSTALLED): scripts/docs/requirements.lock | $(INSTALLED)
	@echo "installing MkDocs for the documentation"
	@if $(PYTHON_BIN) -m pip --disable-pip-version-check install --quiet -r $<; then touch $@; \
	    else echo "MkDocs could not be installed: the site is not built, and its tests are skipped"; fi

# ARGS pick some of the first; without them the cost of TLS and logins is measured, too, and Spark's source and sink where
# there are Spark and Java.
bench: $(INSTALLED) $(SPARK_INSTALLED) $(KAFKA_INSTALLED) $(NATS_INSTALLED)
	@scripts/system-packages.sh --optional rabbitmq java
	@scripts/kafka.sh --optional >/dev/null
	@scripts/artemis.sh --optional >/dev/null
	@scripts/nats.sh --optional >/dev/null
	$(PYTHON_BIN) -m benchmarks $(ARGS)
	$(if $(ARGS),@:,$(PYTHON_BIN) -m benchmarks.client.security)
	@$(if $(ARGS),:,if [ -e $(SPARK_INSTALLED) ] && command -v java >/dev/null; then set -x; \
	    $(PYTHON_BIN) -m benchmarks.client.spark; read=$$?; $(PYTHON_BIN) -m benchmarks.client.spark_sink && exit $$read; \
	    else echo "there is no Spark or no Java here: its source and sink are not measured"; fi)

# Only the benchmark needs Kafka's client; without it Kafka's rows are left out, and the table says so.
$(KAFKA_INSTALLED): benchmarks/kafka/requirements.lock | $(INSTALLED)
	@echo "installing Kafka's client for the benchmark"
	@if $(PYTHON_BIN) -m pip --disable-pip-version-check install --quiet -r $<; then touch $@; \
	    else echo "Kafka's client could not be installed: its rows are left out"; fi

$(NATS_INSTALLED): benchmarks/nats/requirements.lock | $(INSTALLED)
	@echo "installing NATS' client for the benchmark"
	@if $(PYTHON_BIN) -m pip --disable-pip-version-check install --quiet -r $<; then touch $@; \
	    else echo "NATS' client could not be installed: its rows are left out"; fi

dist: $(INSTALLED)
	@$(PYTHON_BIN) scripts/dist/make_dist.py dist

image: $(INSTALLED)
	@scripts/system-packages.sh container
	@scripts/make-image.sh $(VENV) dist

bundle: $(INSTALLED)
	@scripts/make-bundle.sh $(VENV) dist

spark-bundle: $(INSTALLED)
	@scripts/make-bundle.sh --with spark $(VENV) dist

# Hosts are network namespaces with sshd, so it needs root; Ansible comes into an environment of its own. Chaos runs keep
# their histories by pyarrow, which comes with PySpark.
provision-test: $(INSTALLED) $(SPARK_INSTALLED) $(ANSIBLE_VENV)/.installed
	@scripts/system-packages.sh provision
	HOLDFAST_PROVISION=1 HOLDFAST_ANSIBLE=$(abspath $(ANSIBLE_VENV)) $(PYTHON_BIN) -m pytest -n 2 --dist loadfile -q tests/ansible $(ARGS)

# Apart, because of what it takes: a bundle of 500 MiB and a host with 1.5 GiB on its disk.
spark-client-test: $(INSTALLED) $(ANSIBLE_VENV)/.installed
	@scripts/system-packages.sh provision
	HOLDFAST_SPARK_CLIENT=1 HOLDFAST_ANSIBLE=$(abspath $(ANSIBLE_VENV)) $(PYTHON_BIN) -m pytest -q tests/ansible/test_spark_client.py $(ARGS)

$(ANSIBLE_VENV)/.installed: ansible/requirements.lock | $(INSTALLED)
	$(PYTHON_BIN) -m venv $(ANSIBLE_VENV)
	$(ANSIBLE_VENV)/bin/python -m pip --disable-pip-version-check install --quiet -r ansible/requirements.lock
	@touch $@

soak: $(INSTALLED)
	$(PYTHON_BIN) -m tests.simulation --seeds $(if $(findstring :,$(SEEDS)),$(SEEDS),0:$(SEEDS)) $(ARGS)
	$(PYTHON_BIN) -m tests.simulation --kind readmitting --seeds 0:$(READMISSIONS)
	$(PYTHON_BIN) -m tests.simulation --kind moving --seeds 0:$(READMISSIONS)
	$(PYTHON_BIN) -m tests.simulation --kind scaling --seeds 0:$(READMISSIONS)
	$(PYTHON_BIN) -m tests.simulation --kind replacing-by-moves --seeds 0:$(READMISSIONS)
	$(PYTHON_BIN) -m tests.simulation --kind to-and-fro --seeds 0:$(READMISSIONS)
	$(PYTHON_BIN) -m tests.simulation --kind rebalanced --seeds 0:$(READMISSIONS)
	$(PYTHON_BIN) -m tests.simulation --kind quiet --seeds 0:$(OLDER_COPIES)
	$(PYTHON_BIN) -m tests.simulation --kind peaceful --seeds 0:$(OLDER_COPIES)
	$(PYTHON_BIN) -m tests.simulation --kind rolled-back --seeds 0:$(OLDER_COPIES)
	$(PYTHON_BIN) -m tests.simulation --kind impostors --seeds 0:$(OLDER_COPIES)
	$(PYTHON_BIN) -m tests.simulation --kind through-gateways --seeds 0:$(OLDER_COPIES)
	$(PYTHON_BIN) -m tests.simulation --kind scarce-memory --seeds 0:$(OLDER_COPIES)
	$(PYTHON_BIN) -m tests.simulation --kind over-streams --seeds 0:$(OLDER_COPIES)
	$(PYTHON_BIN) -m tests.simulation --kind transactions --seeds 0:$(OLDER_COPIES)
	$(PYTHON_BIN) -m tests.simulation --kind early-answers --seeds 0:$(OLDER_COPIES)
	$(PYTHON_BIN) -m tests.simulation --kind transactions-by-links --seeds 0:$(OLDER_COPIES)
	$(PYTHON_BIN) -m tests.simulation --kind groups --seeds 0:$(OLDER_COPIES)
	$(PYTHON_BIN) -m tests.simulation --kind mixed --seeds 0:$(OLDER_COPIES)
	$(PYTHON_BIN) -m tests.simulation --kind in-bulk --seeds 0:$(OLDER_COPIES)
	$(PYTHON_BIN) -m tests.simulation --kind slow-for-minutes --seeds 0:20
	@$(PYTHON_BIN) -m tests.integration.clients.event_hubs.rust_programs --optional
	HOLDFAST_SDK_KILL_SECONDS=60 HOLDFAST_KILLS=20 HOLDFAST_FAULTS=40 HOLDFAST_MIXED=100 HOLDFAST_AWAY_EVENTS=100000 HOLDFAST_EVENTS=1000000 \
	    HOLDFAST_MISHAP_SECONDS=60 HOLDFAST_GROUP_SECONDS=60 HOLDFAST_POWER_LOSSES=50 HOLDFAST_PER_SECOND=2000 HOLDFAST_PARTITIONS=300 HOLDFAST_TRIMS=10 \
	    HOLDFAST_TRANSACTION_SECONDS=120 HOLDFAST_SPARK_FAULTS=1 HOLDFAST_SPARK_ROWS=50000 HOLDFAST_WHOLE_DAY=1 HOLDFAST_OPERATIONS=100000 \
	    HOLDFAST_CRASHES=5 HOLDFAST_MOVES=10 \
	    $(PYTHON_BIN) -m pytest -n $(JOBS) --dist worksteal -q tests/integration
	HOLDFAST_CHAOS_SECONDS=60 $(PYTHON_BIN) -m pytest -q tests/integration/chaos/test_matrix.py -k "F21 or F22"
	HOLDFAST_ATTACKS=1 HOLDFAST_FUZZ_SECONDS=$(FUZZ_SECONDS) $(PYTHON_BIN) -m pytest -s -q --timeout 14400 tests/integration/attacks
	HOLDFAST_EXAMPLES=$(EXAMPLES) $(PYTHON_BIN) -m pytest -n $(JOBS) -q --timeout 14400 \
	    tests/unit/filters/test_properties.py tests/unit/listener/test_malformed.py

# Nodes with deliberate faults first: a matrix whose checkers see nothing would prove nothing.
chaos: $(INSTALLED) $(SPARK_INSTALLED)
	@scripts/toxiproxy.sh >/dev/null
	@$(PYTHON_BIN) -m chaos.disk
	HOLDFAST_CHAOS_DEFECTS=1 $(PYTHON_BIN) -m pytest -q --durations=5 tests/integration/chaos/test_defects.py
	$(PYTHON_BIN) -m holdfast.cli chaos matrix --full --time $(CHAOS_SECONDS) --seed $(CHAOS_SEED) $(ARGS)

# Generated code lies with its user: proto/cluster/raft/raft.proto -> cluster/raft/raft_pb2.py. gRPC stubs only where the
# file declares a service.
proto: $(INSTALLED)
	@for file in $$(find proto -name '*.proto' | sort); do \
	    stubs=; grep -q '^service ' $$file && stubs=--grpc_python_out=.; \
	    echo "$$file"; \
	    $(PYTHON_BIN) -m grpc_tools.protoc -Iproto --python_out=. --pyi_out=. $$stubs $$file || exit 1; \
	done

clean:
	@if [ -f $(RUN_DIR)/cluster.json ] && [ -x $(PYTHON_BIN) ]; then \
	    $(PYTHON_BIN) -m holdfast.cli cluster down --dir $(RUN_DIR); fi
	rm -rf var build site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -not -path './node_modules/*' -prune -exec rm -rf {} +

clean-venv: clean
	rm -rf $(VENV) $(ANSIBLE_VENV)
