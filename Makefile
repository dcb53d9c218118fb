# SPDX-License-Identifier: Apache-2.0
#
# The everyday commands. `make` alone lists them.

SHELL := /bin/bash
.DEFAULT_GOAL := help

PREFIX     ?= /usr/local
CONFDIR    ?= /etc/steelyard
OPTIONS    ?= /etc/default/steelyard-forwarder
UNITDIR    ?= /usr/lib/systemd/system
DESTDIR    ?=
DEMO       ?= first_light
DEMOS      := first_light attack controller failover limits modes priority restart shaping stack
JOBS       ?= $(shell nproc)

BIN   := build/bin
BUILT := build/dev
FORWARDER := $(BUILT)/dataplane/forwarder/steelyard-forwarder
# The library with its links, for building and for running programs.
TCP_LIBRARY := libsteelyard-tcp.so libsteelyard-tcp.so.0 libsteelyard-tcp.so.0.1.0
UNITS := $(notdir $(wildcard deploy/*.service))
# Guides, design records and their pictures, READMEs of folders. Manual pages are installed elsewhere.
DOCUMENTS := README.md ARCHITECTURE.md CHANGELOG.md CONTRIBUTING.md deploy/packages \
	$(wildcard docs/*.md docs/design/*.md docs/benchmarks/*) \
	$(shell find dataplane internal tests bench -name README.md)
# The toolchain of scripts/setup, used if the machine's own is too old.
export PATH := $(CURDIR)/build/toolchain/bin:$(PATH)
export GOTOOLCHAIN := local
# Compilers write large files; /tmp may be small.
export GOTMPDIR := $(CURDIR)/build/tmp
SCRATCH := TMPDIR=$(GOTMPDIR)
$(shell mkdir -p "$(GOTMPDIR)")
# Clones in other folders share entries of ccache.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1

.PHONY: help setup build asan test soak bench bench-docs adopt schedulers lint format demo demo-clean install uninstall clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo; echo "  make demo DEMO=restart  thousands of connections through kill -9, restart and upgrade"
	@echo "  make demo DEMO=attack   what clients notice of floods, flood by flood: a table"
	@echo "  make demo DEMO=controller  a controller, three forwarders, requests, moves: a table"
	@echo "  make demo DEMO=failover  a pair, then three nodes by ECMP and BGP, under load: nodes die and return: tables"
	@echo "  make demo DEMO=limits   tenants held to their limits, live changes, a noisy client: a table"
	@echo "  make demo DEMO=modes    every mode, family and protocol, one and two workers: a table"
	@echo "  make demo DEMO=priority redis and lighttpd, hooks loaded and swapped live, latencies: a table"
	@echo "  make demo DEMO=shaping  a narrow port shared by tenants, services and classes: a table"
	@echo "  make demo DEMO=stack    unmodified servers on the user-space TCP stack beside Linux's: a table"
	@echo "  make test ONLY=\"c go\"  some suites: c asan fuzz go bench soak wire wire-asan"
	@echo "  make test DISTURB=\"load stalls\"  the same on a busy machine that also stalls"

setup: ## install the packages and tools for building and testing (Debian 12, as root)
	@scripts/setup

build/dev/build.ninja:
	@meson setup build/dev >/dev/null || { tail -n 20 build/dev/meson-logs/meson-log.txt; exit 1; }

# -Og takes half of -O1's time to compile what sanitizers add, and gold a third of ld's to link. GCC's two warnings have
# false positives with sanitizers; build/dev keeps them.
build/asan/build.ninja:
	@CC_LD=gold meson setup build/asan -Db_sanitize=address,undefined -Db_lundef=false -Doptimization=g -Ddebug=false \
		"-Dc_args=-g1 -fno-sanitize-recover=all -Wno-maybe-uninitialized -Wno-format-truncation" >/dev/null \
		|| { tail -n 20 build/asan/meson-logs/meson-log.txt; exit 1; }

build: build/dev/build.ninja ## build the programs into build/bin
	@$(SCRATCH) ninja -C build/dev -j $(JOBS) --quiet
	@mkdir -p $(BIN)
	@ln -sf ../dev/dataplane/forwarder/steelyard-forwarder ../dev/bench/load/steelyard-load \
		../dev/dataplane/preload/steelyard-supervisor ../dev/dataplane/preload/libsteelyard-preload.so $(BIN)/
	@ln -sfn ../dev/dataplane/hook/ready $(BIN)/hooks
	@scripts/generate-go
	@scripts/generate-python
	@# Without the C library, which would load further libraries to look up names and groups.
	@CGO_ENABLED=0 go build -o $(BIN)/ ./cmd/steelyard ./tests/commands ./tests/traffic ./bench/fleet ./examples/nfv-manager

asan: build build/asan/build.ninja ## build with AddressSanitizer and UBSan into build/asan
	@$(SCRATCH) ninja -C build/asan -j $(JOBS) --quiet

test: setup build asan ## set up, build and run every test
	@DISTURB="$(DISTURB)" scripts/check test $(ONLY)

soak: setup build asan ## run the long forms of randomised tests: hours; ONLY="soak-traffic …": some
	@scripts/check soak $(ONLY)

bench: setup build ## measure: all, or BENCH="density …"; QUICK=1: headline cells only
	@.venv/bin/python -m bench $(BENCH) $(if $(QUICK),--quick) $(if $(RESUME),--resume)

bench-docs: setup ## write results of the last full runs (QUICK=1: quick ones) into README and docs
	@.venv/bin/python -m bench.docs $(if $(QUICK),--quick)

adopt: build ## measure the adoption of 10 million sessions after a crash
	@build/dev/bench/steelyard-adopt --sessions 10000000

schedulers: build ## print each scheduler's distribution, moved sessions and cost
	@for servers in 10 100 1000; do \
		build/dev/bench/steelyard-schedulers --servers $$servers || exit 1; echo; \
	done

lint: setup ## check format and style of everything
	@scripts/generate-go
	@scripts/check lint

format: ## format all sources in place
	@git ls-files -z '*.c' '*.h' | xargs -0 clang-format -i
	@gofmt -w $$(git ls-files '*.go')
	@PYTHONPATH=scripts python3 -m checks.rulers
	@PYTHONPATH=scripts python3 -m checks.mechanisms
	@.venv/bin/ruff format --quiet bench tests scripts/check scripts/checks
	@.venv/bin/ruff check --quiet --fix bench tests scripts/check scripts/checks

ifneq ($(filter demo,$(MAKECMDGOALS)),)
ifeq ($(filter $(DEMO),$(DEMOS)),)
$(error there is no demo $(DEMO): use DEMO=$(subst $() , or ,$(DEMOS)))
endif
endif
demo: setup build ## run a demo, first_light by default; KEEP=1 keeps its lab
	@.venv/bin/python -m tests.demo.$(DEMO) $(if $(KEEP),--keep) $(DEMO_OPTIONS)

demo-clean: ## remove labs of KEEP=1
	@.venv/bin/python -c "from tests.lab import reap; reap.main()"

install: ## install what `make build` built: programs, man pages, documents, units, configuration
	install -D -m 755 $(FORWARDER) \
		$(DESTDIR)$(PREFIX)/sbin/steelyard-forwarder
	install -D -m 755 $(BIN)/steelyard $(DESTDIR)$(PREFIX)/bin/steelyard
	install -D -m 755 $(BUILT)/bench/load/steelyard-load $(DESTDIR)$(PREFIX)/bin/steelyard-load
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/libexec/steelyard $(BUILT)/dataplane/preload/steelyard-supervisor \
		$(BUILT)/dataplane/preload/libsteelyard-preload.so
	@for page in $(notdir $(wildcard docs/man/*.[13578])); do \
		install -D -v -m 644 docs/man/$$page \
			$(DESTDIR)$(PREFIX)/share/man/man$${page##*.}/$$page; \
	done
	@for unit in $(UNITS); do \
		install -d $(DESTDIR)$(UNITDIR); \
		sed 's,/usr/local/,$(PREFIX)/,g' deploy/$$unit >$(DESTDIR)$(UNITDIR)/$$unit; \
		echo "'deploy/$$unit' -> '$(DESTDIR)$(UNITDIR)/$$unit'"; \
	done
	@# In the same folders, so that links between them work.
	@for file in $(DOCUMENTS); do \
		install -D -m 644 $$file $(DESTDIR)$(PREFIX)/share/doc/steelyard/$$file; \
	done
	@echo "$(words $(DOCUMENTS)) documents -> '$(DESTDIR)$(PREFIX)/share/doc/steelyard'"
	@install -D -v -m 644 LICENSE $(DESTDIR)$(PREFIX)/share/doc/steelyard/copyright
	@for name in $(TCP_LIBRARY); do \
		install -d $(DESTDIR)$(PREFIX)/lib; \
		cp -dv $(BUILT)/dataplane/sockets/$$name $(DESTDIR)$(PREFIX)/lib/; \
	done
	@# The loader finds libraries through its cache.
	@test -n "$(DESTDIR)" || ldconfig
	@install -D -v -m 644 dataplane/sockets/include/sy_tcp.h $(DESTDIR)$(PREFIX)/include/sy_tcp.h
	@install -D -v -m 644 dataplane/hook/include/sy_hook_program.h \
		$(DESTDIR)$(PREFIX)/include/sy_hook_program.h
	@install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig
	@sed 's,@PREFIX@,$(PREFIX),' dataplane/sockets/steelyard-tcp.pc.in \
		>$(DESTDIR)$(PREFIX)/lib/pkgconfig/steelyard-tcp.pc
	@for file in $(wildcard $(BUILT)/dataplane/hook/ready/*.bpf.o); do \
		install -D -v -m 644 -t $(DESTDIR)$(PREFIX)/lib/steelyard/hooks $$file; \
	done
	@install -D -v -m 644 -t $(DESTDIR)$(PREFIX)/share/doc/steelyard/examples/hooks $(wildcard dataplane/hook/ready/*.c)
	@for name in echo.c ranks.c clients.h; do \
		install -D -v -m 644 examples/$$name $(DESTDIR)$(PREFIX)/share/doc/steelyard/examples/$$name; \
	done
	@install -D -v -m 644 -t $(DESTDIR)$(PREFIX)/share/doc/steelyard/examples/priority $(wildcard examples/priority/*.[ch])
	@install -D -v -m 644 deploy/steelyard.yaml \
		$(DESTDIR)$(PREFIX)/share/doc/steelyard/examples/steelyard.yaml
	@for file in agent-marks.conf agent-routes.conf steelyard-setup; do \
		install -D -v -m $$(test -x deploy/$$file && echo 755 || echo 644) deploy/$$file \
			$(DESTDIR)$(PREFIX)/share/steelyard/$$file; \
	done
	@for file in keepalived.conf notify; do \
		install -d $(DESTDIR)$(PREFIX)/share/steelyard/keepalived; \
		sed 's,/usr/local/,$(PREFIX)/,g' deploy/keepalived/$$file \
			>$(DESTDIR)$(PREFIX)/share/steelyard/keepalived/$$file; \
		echo "'deploy/keepalived/$$file' -> '$(DESTDIR)$(PREFIX)/share/steelyard/keepalived/$$file'"; \
	done
	@chmod 755 $(DESTDIR)$(PREFIX)/share/steelyard/keepalived/notify
	@for daemon in bird frr; do \
		install -D -v -m 644 deploy/$$daemon/steelyard.conf $(DESTDIR)$(PREFIX)/share/steelyard/$$daemon/steelyard.conf; \
	done
	@# With DESTDIR, the package's installation does this.
	@test -n "$(DESTDIR)" || CONFDIR=$(CONFDIR) $(PREFIX)/share/steelyard/steelyard-setup
	@# Files that the administrator has changed are kept. The example is not installed as the live
	@# configuration, because it would claim the example's addresses.
	@test -e $(DESTDIR)$(OPTIONS) || \
		install -D -v -m 644 deploy/steelyard-forwarder.default $(DESTDIR)$(OPTIONS)

uninstall: ## remove installed files; the configuration stays
	rm -f $(DESTDIR)$(PREFIX)/sbin/steelyard-forwarder $(DESTDIR)$(PREFIX)/bin/steelyard{,-load}
	@for page in $(notdir $(wildcard docs/man/*.[13578])); do \
		rm -fv $(DESTDIR)$(PREFIX)/share/man/man$${page##*.}/$$page; \
	done
	@for unit in $(UNITS); do rm -fv $(DESTDIR)$(UNITDIR)/$$unit; done
	@for name in $(TCP_LIBRARY) pkgconfig/steelyard-tcp.pc; do rm -fv $(DESTDIR)$(PREFIX)/lib/$$name; done
	rm -f $(DESTDIR)$(PREFIX)/include/{sy_tcp,sy_hook_program}.h
	rm -rf $(DESTDIR)$(PREFIX)/share/doc/steelyard $(DESTDIR)$(PREFIX)/share/steelyard \
		$(DESTDIR)$(PREFIX)/libexec/steelyard $(DESTDIR)$(PREFIX)/lib/steelyard
	@# Directories that are empty now; with DESTDIR also those above them.
	@for dir in $(PREFIX)/sbin $(PREFIX)/bin $(PREFIX)/include $(PREFIX)/lib/pkgconfig $(PREFIX)/libexec \
		$(PREFIX)/share/doc $(UNITDIR) $(foreach n,1 3 5 7 8,$(PREFIX)/share/man/man$n); do \
		test -z "$(DESTDIR)" || test ! -d "$(DESTDIR)$$dir" || \
			(cd "$(DESTDIR)" && rmdir -p --ignore-fail-on-non-empty "$${dir#/}"); \
	done
	@test ! -d $(DESTDIR)$(CONFDIR) || rmdir --ignore-fail-on-non-empty $(DESTDIR)$(CONFDIR)
	@for kept in $(CONFDIR) $(OPTIONS); do \
		test ! -e $(DESTDIR)$$kept || echo "left in place: $(DESTDIR)$$kept"; \
	done

clean: ## remove everything that was built, except the toolchain
	rm -rf build/dev build/asan build/fuzz build/fuzz-long build/bin build/results build/bench build/tmp build/clock
