#!/usr/bin/env bash
# A demo in a folder of its own: `up` starts a controller with the sample
# sessions and waits until they are Ready; `down` ends and removes all of it.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$PWD/bin
# A short path: the kernel takes about a hundred bytes for a socket.
demo=${SKC_DEMO:-/tmp/skc-demo}
export SKC_HOME=$demo/home
ctl() { "$bin/skcctl" "$@"; }

# A process that was killed and not yet waited for answers kill -0; ps tells.
running() {
	[ -s "$demo/skcd.pid" ] || return 1
	case "$(ps -o stat= -p "$(cat "$demo/skcd.pid")")" in "" | Z*) return 1 ;; esac
}

up() {
	mkdir -p -m 700 "$demo"
	if running; then
		echo "the demo is up already"
	else
		mkdir -p -m 700 "$SKC_HOME" "$SKC_HOME/spool"
		if [ ! -e "$SKC_HOME/skcd.yaml" ]; then # a secret for the audit, so that requests are served
			(umask 077 && head -c 24 /dev/urandom | base64 >"$SKC_HOME/secret")
			echo "lifecycle: {secretFile: $SKC_HOME/secret, profile: notes}" >"$SKC_HOME/skcd.yaml"
		fi
		"$bin/skcd" >"$demo/skcd.log" 2>&1 </dev/null &
		echo $! >"$demo/skcd.pid"
		disown
	fi
	if [ ! -d "$demo/app" ]; then
		git init -q -b main "$demo/app"
		echo "# app" >"$demo/app/README"
		git -C "$demo/app" add README
		git -C "$demo/app" -c user.name=demo -c user.email=demo@localhost commit -qm "begin"
	fi
	for sample in config/samples/*.yaml; do
		sed "s,/tmp/skc-demo,$demo,g" "$sample"
		echo ---
	done | ctl apply -f -
	if ! ctl wait --for=condition=Ready session --all --timeout=60s; then
		ctl get
		tail -n 20 "$demo/skcd.log" >&2
		exit 1
	fi
	echo
	ctl get
	cat <<TXT

Try it (SKC_HOME says which skc is meant):
  export SKC_HOME=$SKC_HOME PATH=$bin:\$PATH
  skcctl attach shell            # leave with Ctrl-b d; the session goes on
  skcctl logs log-reader
  skcctl describe session fix-login        # a git worktree: what is in it that is nowhere else
  skcctl delete fix-login --wait           # goes into quarantine
  skcctl restore fix-login                 # and comes back
  skcctl create session idea --dir /tmp/skc-demo/idea --key k1   # once, however often you ask
  kill -9 $(cat "$demo/skcd.pid")                  # the controller; no session notices
  make demo                      # starts it again, and it adopts them all
  make demo-down                 # ends and removes everything
TXT
}

down() {
	[ -d "$demo" ] || { echo "there is no demo"; return; }
	if [ -d "$SKC_HOME/state" ]; then
		running || { "$bin/skcd" >>"$demo/skcd.log" 2>&1 </dev/null & echo $! >"$demo/skcd.pid"; disown; }
		ctl delete session --all --wait --timeout=60s || true
	fi
	if running; then
		local pid
		pid=$(cat "$demo/skcd.pid")
		kill "$pid"
		while running; do sleep 0.1; done
	fi
	# kill-server may wait for ever for a control client whose controller was killed.
	local server
	if server=$(tmux -S "$SKC_HOME/run/tmux.sock" display-message -p '#{pid}' 2>/dev/null); then
		timeout 5 tmux -S "$SKC_HOME/run/tmux.sock" kill-server || kill -9 "$server"
	fi
	rm -rf "$demo"
	echo "the demo is gone"
}

case "${1:-}" in
up) up ;;
down) down ;;
*) echo "usage: $0 up|down" >&2; exit 2 ;;
esac
