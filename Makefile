# Two targets matter: `make demo` does the main job, `make test` is what CI runs.

.PHONY: all build demo test bench bench-join lint fmt fuzz clean

all: build

build:
	CGO_ENABLED=0 go build -trimpath -o bin/assay ./cmd/assay

demo: build
	bin/assay build //examples/quickstart/...

# The tests share downloads (wheels, uv's cache) below the user's cache directory;
# everything else they make is temporary. The race detector sees other system calls
# than the product makes (rules/internal/nonblock), hence the second line.
test:
	go test -race -timeout 60m ./...
	go test ./rules/internal/nonblock ./rules/internal/upstream ./rules/internal/worker

# What the gateway adds to a request and to a chunk, against peers (bench/README.md):
# make bench BENCH='-streams 1,8 -rounds 2'; make bench BENCH='-soak 2m'
BENCH ?=
bench: build
	go build -o bin/relay ./bench/relay
	bin/relay -assay bin/assay -out out/bench $(BENCH)

# Joining an export with a server's records, against peers (bench/join/README.md):
# make bench-join JOIN='-requests 200000 -rounds 3'
JOIN ?=
bench-join:
	python3 -m venv out/bench/python
	out/bench/python/bin/pip install --quiet --require-hashes -r bench/join/requirements.txt
	go build -o bin/join ./bench/join
	go build -o bin/join-assay ./rules/join/bench
	bin/join -out out/bench $(JOIN)

lint:
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); \
	  if [ -n "$$unformatted" ]; then echo "not formatted (make fmt):"; echo "$$unformatted"; exit 1; fi
	go vet ./...
	go tool staticcheck ./...
	GOOS=darwin go vet ./cmd/assay

fmt:
	gofmt -w $$(git ls-files '*.go')

# Each fuzz target for a short while: make fuzz FUZZTIME=1m
FUZZTIME ?= 10s
fuzz:
	@for target in $$(grep -rhoE '^func Fuzz\w+' --include=*_test.go . | sed 's/func //' | sort -u); do \
	  for pkg in $$(grep -rlE "^func $$target\(" --include=*_test.go . | xargs -n1 dirname | sort -u); do \
	    echo "$$pkg $$target"; go test $$pkg -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) || exit 1; \
	  done; done

clean:
	rm -rf bin out
