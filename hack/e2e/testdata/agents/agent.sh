#!/bin/bash
# Behaves like the agent that it is called as: takes the same words, keeps its
# conversations below HOME in the same places, shows a prompt, and refuses a second
# process on one conversation. What is typed is remembered in the conversation; it
# ends on "bye". Every start is a line of ./log: the words, then the conversation.
set -u
name=${0##*/}
start="$name $*"
id= resume= new=
die() { echo "$*"; exit 1; }
uuid() { cat /proc/sys/kernel/random/uuid; }

if [ "$name $*" = "opencode session list --format json --max-count 20" ]; then
	echo '['
	cat "$HOME"/.local/share/opencode/db/* 2>/dev/null
	echo '{}]'
	exit 0
fi

case $name in codex) if [ "${1-}" = resume ]; then resume=${2-}; shift 2; fi ;; esac
while [ $# -gt 0 ]; do
	case "$name $1" in
	"claude --session-id" | "gemini --session-id") new=${2-}; shift ;;
	"claude --resume" | "gemini --resume" | "skc --resume" | "opencode --session") resume=${2-}; shift ;;
	"claude --model" | "codex --model" | "gemini --model" | "opencode --model" | "skc --mpreset") shift ;;
	*" --verbose") ;;
	*) die "error: unknown argument $1" ;;
	esac
	shift
done
[ -n "$new$resume" ] || case $name in
skc) new=${SKC_SESSION_ID:?} ;;
codex) new=$(uuid) ;;
opencode) new=ses_$(uuid | tr -d -) ;;
*) die "error: no session" ;;
esac
id=$new$resume

# Where the conversation is, and what is in the file.
case $name in
claude) file=${CLAUDE_CONFIG_DIR:-$HOME/.claude}/projects/${PWD//\//-}/$id.jsonl meta= ;;
codex)
	: "${CODEX_HOME:=$HOME/.codex}"
	file=$(ls "$CODEX_HOME"/sessions/*/*/*/rollout-*-"$id".jsonl 2>/dev/null)
	: "${file:=$CODEX_HOME/sessions/2026/01/02/rollout-2026-01-02T03-04-05-$id.jsonl}"
	meta='{"timestamp":"2026-01-02T03:04:05.678Z","type":"session_meta","payload":{"id":"'$id'","timestamp":"2026-01-02T03:04:05.678Z","cwd":"'$PWD'","originator":"codex_cli_rs","source":"cli"}}' ;;
gemini)
	file=$(ls "$HOME"/.gemini/tmp/*/chats/session-*-"${id:0:8}".json 2>/dev/null)
	: "${file:=$HOME/.gemini/tmp/0f1e2d/chats/session-2026-01-02T03-04-${id:0:8}.json}"
	meta='{"sessionId":"'$id'"}' ;;
opencode)
	file=$HOME/.local/share/opencode/storage/session/0f1e/$id.json
	[ -z "${AGENT_DATABASE-}" ] || file=$HOME/.local/share/opencode/db/$id
	now=$(date +%s%3N)
	meta='{"id":"'$id'","title":"t","updated":'$now',"created":'$now',"projectId":"p","directory":"'$PWD'"},'
	[ -n "${AGENT_DATABASE-}" ] || meta='{"id": "'$id'", "version": "1.1", "directory": "'$PWD'", "title": "t", "time": {"created": '$now', "updated": '$now'}}' ;;
skc) file=$HOME/.skc/history/$id meta= ;;
esac
[ -z "$new" ] || [ ! -e "$file" ] || die "Error: Session ID $id is already in use."
[ -z "$resume" ] || [ -e "$file" ] || die "No conversation found with session ID: $id"

mkdir -p "$HOME/locks"
if ! mkdir "$HOME/locks/$id" 2>/dev/null; then
	if kill -0 "$(cat "$HOME/locks/$id/pid")" 2>/dev/null; then
		echo "$id" >> "$HOME/doubles"
		die "Error: $id runs already."
	fi
fi
echo $$ > "$HOME/locks/$id/pid"
echo "$start # $id" >> log

remember() {
	mkdir -p "${file%/*}"
	[ -e "$file" ] || [ -z "$meta" ] || echo "$meta" > "$file"
	[ -z "$1" ] || echo "$1" >> "$file.said"
	touch "$file"
}
[ "$name" != skc ] || remember ""
trap 'exit 143' TERM

[ -z "$resume" ] || while read -r line; do echo "you said: $line"; done < "$file.said"
case $name in
claude) echo; echo "❯ "; echo "  ? for shortcuts" ;;
codex) echo ">_ OpenAI Codex (v0.144.6)"; echo; echo "› " ;;
gemini) echo " >   Type your message or @path/to/file" ;;
opencode) echo "Ask anything... \"Fix a TODO\"" ;;
esac
while read -r line; do
	[ "$line" != bye ] || break
	remember "$line"
	echo "noted: $line"
done
case $name in
codex) echo "To continue this session, run codex resume $id" ;;
opencode) echo "  Continue  opencode -s $id" ;;
esac
exit "${AGENT_CODE:-1}"
