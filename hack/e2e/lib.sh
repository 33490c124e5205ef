# The words of a case's steps.sh: controller_start, controller_stop, settle,
# procs_of, fail. The suite gives WORK, SPOOL, STATE, LOGS, TMX, SKC_HOME, a
# PATH with skcd and skcctl, E2E_PID (a controller that runs already, if one
# does) and E2E_READY (a program that waits for readiness or the end of a pid).
_pids="${E2E_PID:-}"

# Starts skcd in the background ($! is its pid) and returns when it is ready, or
# when it has ended.
controller_start() {
	skcd --home "$SKC_HOME" >>"$LOGS/skcd.log" 2>&1 &
	_pids="$_pids $!"
	E2E_HELPER=ready "$E2E_READY" "$!" "$SKC_HOME/run/skcd.sock"
}

# Ends every controller that was started with the signal (TERM), and waits.
controller_stop() {
	for _pid in $_pids; do
		kill -s "${1:-TERM}" "$_pid" 2>/dev/null || continue
		E2E_HELPER=gone "$E2E_READY" "$_pid"
	done
	_pids=""
}

# Waits for two resync periods and the settle time of a removal.
settle() { sleep "${E2E_SETTLE:-3}"; }

# Prints the pids of the main process of a session: it carries the session's
# name, and the private tmux server is its parent.
procs_of() {
	for _env in $(grep -lzFx "SKC_SESSION_NAME=$1" /proc/[0-9]*/environ 2>/dev/null); do
		_dir=${_env%/environ}
		_parent=$(awk '/^PPid:/ {print $2}' "$_dir/status" 2>/dev/null) || continue
		[ -n "$_parent" ] || continue
		if tr '\0' '\n' <"/proc/$_parent/cmdline" 2>/dev/null | grep -qFx "$SKC_HOME/run/tmux.sock"; then
			echo "${_dir#/proc/}"
		fi
	done
}

fail() {
	echo "FAIL: $*"
	exit 1
}
