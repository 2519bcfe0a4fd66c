# make demo   train the number names on this machine and score them: no data, no GPU needed
# make test   every check: in sync, clean, notebooks run, tests pass
# make check  in sync, clean, links, imports …: nothing is run, under a minute
# make test-all  with the series of kills and the fuzzing, too
# make tables the tables of claims and of the API, which are made from the other notebooks, anew
# make readme README.md from nbs/index.ipynb
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-all check tables readme clean

demo: .venv/installed
	$(BIN)/transformer_demo

test: .venv/installed-dev
	$(BIN)/python -m pytest -q -n logical --dist worksteal

test-all: .venv/installed-dev
	$(BIN)/python -m pytest -q -n logical --dist worksteal -m "nightly or not nightly"

check: .venv/installed-dev
	$(BIN)/python tools/check.py

tables: .venv/installed-dev
	PYTHONWARNINGS=ignore $(BIN)/jupyter nbconvert --to notebook --execute --inplace --log-level ERROR nbs/guide/claims.ipynb nbs/guide/api.ipynb
	$(BIN)/nbdev_clean

readme: .venv/installed-dev
	$(BIN)/python tools/readme.py

# One environment: `demo` fills it with what the package needs, `test` adds the developer's tools to the same one.
# constraints.txt: the versions that were tested.
$(BIN)/python:
	$(PYTHON) -m venv .venv

.venv/installed: settings.ini setup.py constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install -c constraints.txt -e .
	touch $@

.venv/installed-dev: settings.ini setup.py constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install -c constraints.txt -e '.[dev]'
	touch .venv/installed $@

clean:
	rm -rf .venv _proc _docs build dist *.egg-info .pytest_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
