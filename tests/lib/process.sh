# shellcheck shell=bash
# Children of a shell.

# runs PID: whether the child process still runs. bash may miss SIGCHLD during `read -t`. The child is a zombie then
# until `wait` reaps it, and `kill -0` succeeds for a zombie.
runs() {
	local stat
	{ read -r stat <"/proc/$1/stat"; } 2>/dev/null && [[ $stat != *") Z "* ]]
}
