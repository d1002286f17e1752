# Each target makes the environment by itself when it is missing or older than what it is made from.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-oldest check format docs bench soak clean

demo: $(VENV)/.made
	$(BIN)/nearfar demo

# Most tests two at a time; then those that start a cluster or a browser, or measure time.
test: $(VENV)/.made-for-tests
	$(BIN)/python -m pytest -m 'not alone' --numprocesses 2 --dist loadfile
	$(BIN)/python -m pytest -m alone

# The learners with the oldest scikit-learn, and all else that the project claims to support.
test-oldest: build/oldest/.made
	build/oldest/bin/python -m pytest tests/learners tests/data tests/objective tests/behaviour

check: $(VENV)/.made
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir build/site

format: $(VENV)/.made
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.made
	$(BIN)/mkdocs serve

bench: $(VENV)/.made-for-tests
	$(BIN)/python -m benchmarks

# An hour of training on Ray with a fault every half minute; another length: make soak MINUTES=5
soak: $(VENV)/.made-for-tests
	$(BIN)/python -m benchmarks.soak $(MINUTES)

$(VENV)/.made: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "nearfar needs Python 3.11 or newer; choose one with: make PYTHON=python3.11 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

# What searches and exports are tested with (FAISS, PyTorch, ONNX) is large, and nothing else needs it.
$(VENV)/.made-for-tests: $(VENV)/.made
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,test]'
	@touch $@

build/oldest/.made: pyproject.toml oldest.txt
	$(PYTHON) -m venv build/oldest
	build/oldest/bin/python -m pip install --quiet --disable-pip-version-check --constraint oldest.txt --editable . pytest pytest-timeout hypothesis pandas polars tensorboard
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build src/*.egg-info
