# Two commands on a fresh machine: `make demo` and `make test`.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
RUN    := $(BIN)/modelfuse

.PHONY: demo test check bench clean help
.DELETE_ON_ERROR:

help:
	@echo "make demo    six clients, one shot, on the embedded digits"
	@echo "make test    the tests"
	@echo "make check   lint, format, types and the tests, the slow ones too"
	@echo "make bench   the benchmarks: each prints a ratio against a named reference"

# the environment: made once, and again when the dependencies change
$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable ".[dev]"
	touch $@

test: $(VENV)/.installed
	$(BIN)/python -m pytest

check: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -m "not bench and not gpu"

bench: $(VENV)/.installed
	$(BIN)/python -m pytest -m bench -s

# --- the demo: K = 6, α = 0.1, one shot -------------------------------------------------------------------------------

D       := demo-output
CLIENTS := $(foreach k,0 1 2 3 4 5,$(D)/clients/client_$(k).safetensors)
FISHERS := $(foreach k,0 1 2 3 4 5,$(D)/fishers/fisher_$(k).safetensors)
DATA    := --data digits --partition $(D)/split.safetensors

MODELS  := $(D)/clients/*.safetensors
BOTH    := $(MODELS) $(D)/fishers/*.safetensors

demo: $(D)/results.json
	@$(RUN) report $< --rows model --value accuracy

$(D)/split.safetensors: $(VENV)/.installed
	@mkdir -p $(D)
	$(RUN) partition --data digits --scheme dirichlet-client -K 6 --alpha 0.1 --seed 0 --server-holdout 100 -o $@

$(D)/init.safetensors: $(VENV)/.installed
	@mkdir -p $(D)
	$(RUN) init --architecture mlp:in=64,hidden=100-50,out=10 --seed 0 -o $@

$(CLIENTS) &: $(D)/init.safetensors $(D)/split.safetensors
	$(RUN) train-client $< $(DATA) --client all --local-epochs 20 --schedule cosine -o $(D)/clients

$(FISHERS) &: $(CLIENTS)
	$(RUN) fisher $(MODELS) $(DATA) --client all -o $(D)/fishers

$(D)/fedavg.safetensors: $(CLIENTS)
	$(RUN) merge --method fedavg $(MODELS) -o $@

$(D)/fisher.safetensors: $(FISHERS)
	$(RUN) merge --method fisher --rho 0.3 --lam 1e-4 $(BOTH) -o $@

$(D)/fedfiot.safetensors: $(FISHERS)
	$(RUN) merge --method fedfiot --rho 0.3 --lam 1e-4 $(BOTH) -o $@

# one model that says what the clients' ensemble says, learnt from images that nobody took
$(D)/distilled.safetensors: $(D)/fedfiot.safetensors
	$(RUN) distill $(MODELS) --start $< --data synthetic:1x8x8,count=4000 -E 10 --lr 0.05 -o $@

MERGED := $(foreach m,fedavg fisher fedfiot distilled,$(D)/$(m).safetensors)

$(D)/results.json: $(CLIENTS) $(MERGED)
	@$(RUN) eval $(MODELS) $(MERGED) --data digits --split test -o $@ > /dev/null

clean:
	rm -rf $(D)
