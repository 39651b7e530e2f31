# SPDX-License-Identifier: GPL-2.0
# The kernel's Rust crates and nothing else of what "make prepare" does: read in place of the kernel's Makefile.
include Makefile

.PHONY: zrs-rust
zrs-rust:
	$(Q)$(MAKE) $(build)=scripts scripts/target.json
	$(Q)$(MAKE) $(build)=rust
