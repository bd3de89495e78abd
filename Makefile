# `make demo` and `make test` need only Python >= 3.11 and make.
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed
COMPILED := $(VENV)/.compiled-tests
TEST_FILES := $(shell find tests -name '*.py')
INSTALL := $(BIN)/python .ci/pip_progress.py $(VENV)/install.log --no-compile --editable
WHEELS := $(VENV)/wheels
GSSAPI := import tomllib; print(tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["gssapi"][0])
EXTENSIONS := $(wildcard network/*/*.[ch] protocol/*/*.[ch] dataplane/*/*/*.[ch] client/*/*.[ch])
PACKAGES := ottla network protocol metadata_quorum dataplane client spark_integration console lake cli

MINUTES ?= 180
BUSY ?= 0
LINTS := lint-types lint-style lint-public lint-imports lint-commits
TESTED := protocol metadata_quorum dataplane client spark_integration console lake cli testing

# Every process of a test would compile what it imports again, and pytest its own form of all tests and of Hypothesis.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help venv reference docs demo demo-console test test-quick compat programs faults fuzz fuzz-c spark-4.2 lint format clean soak soak-real mutants
.PHONY: lint-types lint-style lint-public lint-imports lint-commits quick-tests suite lint-beside installed gssapi-wheel hooks
help:
	@echo "make demo    start 3 quorum nodes and 3 brokers, stream flights through them, a lake and Spark, and kill five processes"
	@echo "make demo-console  a cluster with flights and failovers, and its console; Control-C ends both"
	@echo "make test    lint, types, layering and the whole test suite"
	@echo "make test-quick PACKAGE=client  the types and the tests of one package that need no cluster, within a minute"
	@echo "make compat  our client against Apache Kafka itself; needs Java, and Maven to fetch Kafka once"
	@echo "make programs run third-party programs while nodes are killed; pip, npm, Maven, Go and Cargo fetch them once; some need Java, Node.js, Go or Rust"
	@echo "make faults  kill, pause, cut off and fill up real processes, all of it (make test has a short selection)"
	@echo "make fuzz    a million nearly valid inputs, for all code that clients reach before they log in"
	@echo "make fuzz-c  nearly valid produce requests, for the readers in C built with the AddressSanitizer; needs gcc"
	@echo "make spark-4.2  the tests of Spark's source and sink with the oldest Spark that works"
	@echo "make soak    play simulated clusters until stopped; failing seeds are kept in soak/"
	@echo "make soak-real  load, churn and faults on real processes for MINUTES=180; reports and draws values that rise"
	@echo "make mutants count the seeds that the simulations need to find each planted fault"
	@echo "make reference  write the pages that are made from the code: docs/reference/, settings, metrics, layers"
	@echo "make docs    the pages as a site with a search, in build/docs/index.html"
	@echo "make venv    only build $(VENV), with $(BIN)/ottla in it: 1.9 GB. 'pip install .' installs Ottla alone"
	@echo "make lint    ruff, mypy --strict, pyright on the public API, import contracts, subjects of commits"
	@echo "make format  let ruff format the code"
	@echo "make clean   remove $(VENV) and caches"

venv: $(READY) hooks
	@$(BIN)/python -m compileall -q $(PACKAGES)

# A checkout whose owner has chosen other hooks keeps them; a folder without git has none.
hooks:
	@[ ! -e .git ] || git config core.hooksPath >/dev/null 2>&1 || git config core.hooksPath .githooks 2>/dev/null || true

$(READY): pyproject.toml setup.py $(EXTENSIONS)
	@if [ -z "$(PYTHON)" ]; then \
	  echo "Ottla needs Python 3.11 or newer, and none was found. Name one: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; fi
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Ottla needs Python 3.11 or newer; $(PYTHON) is $$("$(PYTHON)" -V 2>&1)." >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) cannot create virtual environments. On Debian or Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@[ -x $(BIN)/python ] && $(BIN)/python -c 'import pip' 2>/dev/null || { \
	  rm -rf $(VENV) && echo "step 1 of 4: creating $(VENV) with $(PYTHON)" && "$(PYTHON)" -m venv $(VENV); }
	@echo "installing Ottla, and all that demo, test, lint and docs need, into $(VENV): 1.9 GB, some minutes"
	@$(MAKE) --no-print-directory -j2 installed gssapi-wheel
	@[ ! -d $(WHEELS) ] || $(BIN)/python -m pip install -qq --disable-pip-version-check --no-index --find-links $(WHEELS) gssapi
	@rm -rf $(WHEELS)
	@echo "step 4 of 4: compiling modules"
	@$(BIN)/python -m compileall -q -j 0 -x '/tests/' $(VENV)/lib >/dev/null || true # pip would do it on one processor
	@touch $@

installed:
	@$(INSTALL) '.[demo,test,lint,docs]'

# To compile it takes one processor as long as all else takes the other. It has to be quick to build, not to run.
gssapi-wheel:
	@! command -v krb5-config >/dev/null || CFLAGS='-O0 -g0' $(BIN)/python -m pip wheel -qq --disable-pip-version-check \
	  --wheel-dir $(WHEELS) "$$($(BIN)/python -c '$(GSSAPI)')" || { \
	  rm -rf $(WHEELS) && echo "gssapi cannot be built here: tests of Kerberos are skipped" >&2; }

reference: venv
	@for page in reference configuration metrics layers; do $(BIN)/python -m tests.render_$$page || exit; done

# Warnings are errors: a link that leads nowhere, and a page without a place in the navigation.
docs: venv
	@$(BIN)/sphinx-build -q -W --keep-going -c docs/site -d build/docs-cache . build/docs
	@echo "build/docs/index.html is the first page"

demo: venv
	@$(BIN)/python -m benchmarks.flights_demo

demo-console: venv
	@$(BIN)/python -m benchmarks.console_demo

test: venv
	@$(MAKE) --no-print-directory -j2 suite lint-beside

# Five on two cores: what waits for a broker, a timeout or Spark leaves them to others.
suite: $(COMPILED)
	$(BIN)/python -m pytest -n 5 --dist loadgroup

# It takes only what the suite leaves of the processors while it waits.
lint-beside: venv
	@nice -n 19 $(MAKE) --no-print-directory $(LINTS)

# Pytest compiles tests in a form of its own. All processes of the suite would do so at once.
$(COMPILED): $(READY) $(TEST_FILES) | venv
	@$(BIN)/python -m pytest --collect-only -qq >/dev/null || true # the suite reports errors
	@touch $@

test-quick: venv
	@case " $(TESTED) " in *" $(PACKAGE) "*) ;; *) echo "PACKAGE must be one of: $(TESTED)" >&2; exit 2 ;; esac
	@$(MAKE) --no-print-directory -j2 lint-types quick-tests

quick-tests:
	$(BIN)/python -m pytest tests/$(PACKAGE) -n 5 -m 'not (cluster or faults or java or compat or programs)'

compat: venv
	$(BIN)/python -m pytest tests/compat --compat

programs: venv
	$(BIN)/python -m pytest tests/programs --programs

faults: venv
	$(BIN)/python -m pytest tests/faults tests/spark_integration --all-faults -m faults -n 2 --dist loadgroup

fuzz: venv
	$(BIN)/python -m tests.fuzz.run

# The interpreter was built without the sanitizer, so it is loaded first; and it has to see each allocation.
fuzz-c: venv
	CFLAGS="-fsanitize=address,undefined -fno-sanitize-recover=undefined -O1 -g" LDFLAGS="-fsanitize=address,undefined" \
		$(BIN)/python setup.py -q build_ext --build-temp .sanitized/temp --build-lib .sanitized
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so)" ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=8 PYTHONMALLOC=malloc \
		$(BIN)/python -m tests.fuzz.sanitized .sanitized

spark-4.2: venv .spark-4.2/pyspark
	PYTHONPATH=$(CURDIR)/.spark-4.2 $(BIN)/python -m pytest tests/spark_integration/source tests/spark_integration/sink

.spark-4.2/pyspark:
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --target .spark-4.2 'pyspark==4.2.*'

soak: venv
	$(BIN)/python -m tests.simulation.cluster.run --soak soak

soak-real: venv
	$(BIN)/python -m benchmarks.soak_real --minutes $(MINUTES) --busy $(BUSY) --plot soak-real.svg

mutants: venv
	$(BIN)/python -m tests.simulation.cluster.run --mutants --seeds 0-300
	$(BIN)/python -m tests.simulation.mirror.run --mutants --seeds 0-100
	$(BIN)/python -m tests.simulation.share.run --mutants --seeds 0-100

lint: venv
	@$(MAKE) --no-print-directory -j2 $(LINTS)

lint-types:
	MYPYPATH=.typing $(BIN)/mypy -p ottla -p examples -p benchmarks

lint-style:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

lint-public:
	$(BIN)/basedpyright -p tests/typing --pythonpath $(BIN)/python

lint-imports:
	@cd .typing && ../$(BIN)/lint-imports --config ../.importlinter --cache-dir ../.import_linter_cache

lint-commits:
	@$(BIN)/python -m tests.commit_subjects

format: venv
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build .sanitized dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .spark-4.2
	rm -f network/*/*.so protocol/*/*.so dataplane/*/*/*.so client/*/*.so client/*/*/*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
