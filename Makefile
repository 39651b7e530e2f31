# SPDX-License-Identifier: GPL-2.0
# ZRS: one command shows it at work (make demo), one runs its tests (make test).
# "make help" lists the rest. Everything is built inside a Debian 13 root in the cache and runs on
# a stock Debian kernel in QEMU; tests/vm/README tells how.

SHELL := /bin/bash
VM := tests/vm
IN := $(VM)/in-root
export KSERIES DEVICE TIER ONLY SEED SCALE ROUNDS QUICK V CLIPPY FUZZ_SECONDS FUZZ_RUN CONNS CHURN
# Elapsed times in the progress lines count from here.
ifndef ZRS_T0
export ZRS_T0 := $(shell date +%s)
endif

.PHONY: help
help: ## this list (the default)
	@echo "make TARGET [VARIABLE=VALUE]..."
	@echo
	@sed -n 's/^\([a-z-]*\):.*## /  \1|/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-12s %s\n", $$1, $$2 }'
	@echo
	@echo "Variables: KDIR=<kernel tree> build the module against that tree with this machine's tools"
	@echo "             (in the Debian 13 root where it has no Rust for the kernel; ROOT=yes or no says which)"
	@echo "           KSERIES=<series> another kernel series than $$(cat $(VM)/kernel) ($$(cat $(VM)/kernel-other) is supported too)"
	@echo "           DEVICE=<driver> the selftests on Soft-RoCE with that driver's limits (tests/vm/devices)"
	@echo "           PROVIDER=rxe|strict the selftests on plain Soft-RoCE (the default), or as DEVICE=strict; siw: make test-iwarp"
	@echo "           ONLY=<text> only the selftests with it in their name    SEED=<n> for the simulation"
	@echo "           V=1 show the compiler's commands    ZRS_ACCEL=tcg|kvm instead of probing"
	@echo "           XDG_CACHE_HOME=<dir> another place for the cache (about 6 GB, $${XDG_CACHE_HOME:-$$HOME/.cache}/zrs)"

.PHONY: demo
demo: modules userspace ## send a real file between two hosts, beside rsockets and TCP
	@tests/demo/run

.PHONY: demo-mem
demo-mem: modules userspace ## memory nodes: have one host's memory copied to another one's, beside a relay
	@tests/demo-mem/run

.PHONY: test
test: ## lints, host tests, selftests in QEMU
	@tests/test

.PHONY: selftests
selftests: modules userspace ## only the selftests in QEMU (ONLY=area/name for some)
	@tests/run

.PHONY: test-series
test-series: ## zrs.ko for the other kernel series that is supported, and a short list of selftests on it
	@tests/test-series

.PHONY: test-debug
test-debug: ## the selftests on the debug kernel, watched by KASAN, lockdep, kmemleak (TIER=ci or full)
	@tests/test-debug

.PHONY: test-mutants
test-mutants: kernel userspace ## plants the faults of tests/mutants in the module, one by one: the tests must fail (ONLY=name)
	@tests/mutants/run

.PHONY: test-scale
test-scale: modules userspace ## the selftests of many connections with CONNS=50000 CHURN=200000, in a VM of 4 GiB
	@tests/test-scale

.PHONY: test-iwarp
test-iwarp: modules userspace ## two machines with siw, software iWARP (ONLY=name for some)
	@tests/test-iwarp

.PHONY: test-findings
test-findings: kernel ## the kernel's bugs of Documentation/upstream/kernel: seen on it, and not with the mends (ONLY=name for some)
	@tests/findings/run

.PHONY: test-apps
test-apps: modules userspace ## programs that know nothing of ZRS, under zrs run, beside TCP and rsockets
	@tests/test-apps

.PHONY: test-nixl
test-nixl: modules userspace ## NIXL's POSIX backend, from the Python registry, on regions of memory nodes
	@tests/test-nixl

.PHONY: fuzz
fuzz: root ## fuzz until interrupted, or for FUZZ_SECONDS: TARGET=syscalls (in a VM), wire, channel, link_table, ring, mem_wire, dgram
	@tests/fuzz/run $(or $(TARGET),syscalls)

.PHONY: bench
bench: modules userspace ## beside plain verbs, rsockets and TCP, in rounds (ROUNDS=7 SCALE=1 QUICK=1 ONLY=latency,...)
	@[ -n "$(ONLY)" ] || tests/bench/mem
	@tests/bench/run

.PHONY: bench-smc
bench-smc: smc-kernel userspace ## beside SMC-R and plain TCP, between two machines (ROUNDS=7 SCALE=1)
	@ZRS_KERNEL=smc tests/vm/build-module
	@tests/bench/smc

.PHONY: bench-trace
bench-trace: modules userspace ## where half a round trip goes, from the kernel's events (CARRIERS=zrs,verbs-events,...)
	@tests/bench/trace

.PHONY: bench-profile
bench-profile: modules userspace ## which functions execute the instructions of a message, and make its atomic ones (SIZE=64 TOP=60)
	@tests/bench/profile

.PHONY: bench-mem
bench-mem: modules userspace ## memory nodes beside relays and plain verbs: put, get, copies, time to quiet (ROUNDS=7 SCALE=1)
	@tests/bench/mem

.PHONY: bench-machines
bench-machines: modules userspace ## three machines: memory nodes beside NVMe-oF, datagrams beside RDS (ROUNDS=7)
	@tests/bench/machines

.PHONY: bench-check
bench-check: userspace ## the newest results of make bench against the targets
	@$(IN) build/userspace/release/zrs-bench-report check results/bench.json \
		$(wildcard results/bench-mem.json results/bench-machines.json) --commit "$$(tests/bench/commit)"

.PHONY: performance
performance: userspace ## tables and plots of Documentation/performance.rst, from the newest results
	@tests/bench/pages

.PHONY: dashboard
dashboard: modules userspace ## the pictures of the dashboard for Grafana in the documents, from a run
	@tests/dashboard/run

.PHONY: table-hits
table-hits: userspace ## the plot of the link table's tiers, from a longer run of its host test
	@mkdir -p results
	@ZRS_TABLE_OUT=/zrs/build/userspace/table.json $(IN) -u build/userspace -C /zrs/userspace \
		cargo test --release --locked -p zrs-core --test link_table hit_rates
	@cp build/userspace/table.json results/
	@$(IN) build/userspace/release/zrs-bench-report table results/table.json --out Documentation/table-hits.svg

.PHONY: shell
shell: modules userspace ## a VM with the two hosts ready, on this terminal
	@$(VM)/run --shell --mem 3072

.PHONY: lint
lint: kernel ## rustfmt, clippy, checkpatch, shellcheck
	@tests/lint

.PHONY: modules
ifdef KDIR
modules: ## zrs.ko, into build/module (with KDIR: build/module-<release>)
	@tests/vm/build-module "$(KDIR)" $(ROOT)
else
modules: kernel
	@tests/vm/build-module
endif

.PHONY: userspace
userspace: root ## the command and the libraries, into build/userspace/release
	@tests/vm/build-userspace

.PHONY: root
root: ## stage: the Debian 13 root
	@$(VM)/stage-root

.PHONY: kernel
kernel: root ## stage: the stock kernel, its prepared tree and the initramfs
	@$(VM)/stage-kernel
	@$(VM)/stage-initramfs

.PHONY: debug-kernel
debug-kernel: kernel ## stage: the debug kernel (10 to 25 minutes on 2 cores, once)
	@$(VM)/stage-debug-kernel
	@ZRS_KERNEL=debug $(VM)/stage-initramfs

.PHONY: smc-kernel
smc-kernel: kernel ## stage: a kernel with SMC, for bench-smc (no longer than the debug kernel, once)
	@$(VM)/stage-debug-kernel smc
	@ZRS_KERNEL=smc $(VM)/stage-initramfs

.PHONY: install
install: ## install a module built with KDIR (default: the running kernel's tree), the command, its manual pages and completions, the libraries and zrs-resctrl
	@tests/vm/install "$(KDIR)"

.PHONY: deb
deb: root ## Debian packages of the command, the libraries, the module for each supported kernel, and its source for DKMS
	@packaging/deb

.PHONY: test-install
test-install: kernel ## the packages in fresh Debian 13 roots: installed, booted, upgraded, refused, removed (ONLY=modules or dkms)
	@tests/test-install

.PHONY: rust-rdma
rust-rdma: kernel ## the patches of Documentation/upstream/rust-rdma anew from rust/ib, checked and built
	@tests/rust-rdma

.PHONY: publish
publish: root ## packs the crates that programs are written with, and builds each from its package
	@tests/publish

.PHONY: docs
docs: root ## Documentation/ as a site, into build/docs (Sphinx; warnings are errors), and the manual pages checked
	@tests/docs

.PHONY: clean
clean: ## remove what was built
	rm -rf build results

.PHONY: distclean
distclean: clean ## clean, and remove this project's cache
	@. $(VM)/lib.sh && echo "rm -rf $$ZRS_CACHE" && rm -rf --one-file-system "$$ZRS_CACHE"
