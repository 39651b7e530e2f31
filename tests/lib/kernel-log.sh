# shellcheck shell=bash
# Reads and clears the kernel log, and finds the lines that must fail a run. Sourced.

kernel_log_bad='WARNING:|BUG:|BUG |Oops|KASAN|UBSAN|KCSAN|kernel panic|general protection fault'
kernel_log_bad+='|possible (circular|recursive|irq lock|deadlock)|INFO: (task|rcu|possible|trying)'
kernel_log_bad+='|detected stall|soft lockup|hard LOCKUP|scheduling while atomic|sleeping function'
kernel_log_bad+='|unreferenced object|refcount_t|corruption|use-after-free|[Cc]all [Tt]race|rust_kernel: panicked|still being used|leaked'
# CONFIG_DMA_API_DEBUG has run out of entries, and looks at nothing from then on.
kernel_log_bad+='|DMA-API: .*disabling'

# kernel_log_take FILE: appends what is new to FILE; prints the bad lines; 1 if there are any.
kernel_log_take() {
	dmesg --read-clear >/run/kernel-log.new 2>/dev/null || dmesg -c >/run/kernel-log.new
	cat /run/kernel-log.new >>"$1"
	! grep -E "$kernel_log_bad" /run/kernel-log.new
}
