#!/usr/bin/env bash
# Records docs/cleanup-session.txt: deletes and gives back a session with work in
# it, with the built binaries, and checks that every byte came back. The one
# argument is the file to write; SKC_BIN is where the binaries are.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath "${1:-docs/cleanup-session.txt}")
bin=$(realpath "${SKC_BIN:-bin}")
[ -x "$bin/skcd" ] || { echo "run make build first" >&2; exit 1; }
export PATH=$bin:$PATH

# Short, as sockets need it, and always the same, as a record needs it.
top=${SKC_RECORD:-/tmp/skc-cleanup}
[ ! -e "$top" ] || { echo "$top is there; remove it first" >&2; exit 1; }
mkdir -m 700 "$top"
export SKC_HOME=$top/home GIT_CONFIG_GLOBAL=$top/gitconfig GIT_CONFIG_NOSYSTEM=1
skcd_pid=
cleanup() {
	[ -z "$skcd_pid" ] || { kill "$skcd_pid" 2>/dev/null && wait "$skcd_pid" 2>/dev/null; } || true
	[ ! -S "$SKC_HOME/run/tmux.sock" ] || tmux -S "$SKC_HOME/run/tmux.sock" kill-server 2>/dev/null || true
	rm -rf "$top"
}
trap cleanup EXIT

cat >"$GIT_CONFIG_GLOBAL" <<'CONF'
[user]
	name = You
	email = you@example.org
[init]
	defaultBranch = main
[advice]
	detachedHead = false
CONF

# What you have: a clone with a remote, and a session file.
cd "$top"
git init -q --bare origin.git
git clone -q origin.git app 2>/dev/null
printf 'package main\n' >app/login.go
git -C app add . && git -C app commit -qm 'first' && git -C app push -q origin main
cat >fix-login.yaml <<YAML
apiVersion: skc.dev/v1alpha1
kind: Session
metadata: {name: fix-login}
spec:
  target: {worktree: {repo: $top/app, branch: fix/login}}
  command: [sleep, "3600"]
YAML
mkdir -p "$SKC_HOME/spool"
skcd >"$top/skcd.log" 2>&1 </dev/null &
skcd_pid=$!

record=$top/record.txt
: >"$record"
say() { printf '\n# %s\n' "$*" >>"$record"; }
# run shows a command and all that it prints, and what it ends with if that is
# not 0. want is what it should end with.
want=0
run() {
	local code=0
	printf '$ %s\n' "$*" >>"$record"
	bash -c "$*" >>"$record" 2>&1 </dev/null || code=$?
	[ "$code" -eq 0 ] || printf '[exit code %d]\n' "$code" >>"$record"
	[ "$code" -eq "$want" ] || { cat "$record"; tail -n 20 "$top/skcd.log"; echo "ended with $code, not with $want: $*" >&2; exit 1; }
	want=0
}

printf '# Recorded by hack/record-cleanup.sh, with the programs of this tree.\n' >>"$record"
say 'A session in a worktree of its own.'
run 'cat fix-login.yaml'
run 'skcctl apply -f fix-login.yaml --wait'
run 'skcctl get'
tree=$(skcctl get fix-login -o 'jsonpath={.status.workspace.path}')
run 'git -C app worktree list'

say 'Work is done in it: a commit that nobody else has, a change, a new file.'
run "cd $tree && printf 'package main // better\n' >login.go && git commit -qam 'try' && printf '// and better\n' >>login.go && printf 'notes\n' >notes.txt"
run "skcctl describe session fix-login | sed -n '/^Safe/,/^Conditions/p'"
before=$(cd "$tree" && find . -path ./.git -prune -o -type f -print0 | sort -z | xargs -0 sha256sum)
commit=$(git -C "$tree" rev-parse HEAD)

say 'It is deleted. What becomes of the work is said first.'
run 'skcctl delete fix-login --wait'
want=2 run "ls $tree"
run 'skcctl get quarantines'
name=$(skcctl get quarantines -o 'jsonpath={.items[0].metadata.name}')
run "skcctl describe quarantine $name"

say 'git keeps what belongs to it, whatever is tidied up meanwhile.'
run 'git -C app gc -q --prune=now; git -C app worktree prune; git -C app worktree list'
run 'git -C app log --oneline -1 fix/login'

say 'It comes back: folder, branch and session.'
run "skcctl restore fix-login"
run 'skcctl wait fix-login --for=condition=Ready && skcctl get'
run "git -C $tree status --short --branch"
after=$(cd "$tree" && find . -path ./.git -prune -o -type f -print0 | sort -z | xargs -0 sha256sum)
[ "$before" = "$after" ] || { echo "the files differ: $before; $after" >&2; exit 1; }
[ "$commit" = "$(git -C "$tree" rev-parse HEAD)" ] || { echo "HEAD is another" >&2; exit 1; }

say 'Deleted again, and something new is at its place: nothing is overwritten.'
run 'skcctl delete fix-login --wait'
run "mkdir -p $tree && echo new >$tree/new.txt"
want=7 run 'skcctl restore fix-login'
run "skcctl restore fix-login --to $top/app.worktrees/login-again"
run "git -C $top/app.worktrees/login-again status --short --branch"
run "cat $tree/new.txt"
after=$(cd "$top/app.worktrees/login-again" && find . -path ./.git -prune -o -type f -print0 | sort -z | xargs -0 sha256sum)
[ "$before" = "$after" ] || { echo "the files differ: $before; $after" >&2; exit 1; }

say 'What is not wanted back can go before its time. That asks, or needs --yes.'
run 'skcctl delete fix-login --wait'
want=2 run 'skcctl purge fix-login'
run 'skcctl purge fix-login --yes'
run 'skcctl get quarantines'
run 'git -C app log --oneline -1 fix/login'

sed 's/ *$//' "$record" >"$out"
echo "recorded $out"
