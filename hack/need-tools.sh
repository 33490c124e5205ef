#!/usr/bin/env bash
# See that tmux and git are there. As root on a Debian-like machine install what
# is missing; elsewhere say the one command.
set -euo pipefail
missing=()
for tool in tmux git; do command -v "$tool" >/dev/null || missing+=("$tool"); done
[ ${#missing[@]} = 0 ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	echo "installing ${missing[*]}"
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${missing[@]}" >/dev/null
	exit 0
fi
case "$(uname)" in
Darwin) install="brew install" ;;
*) install="sudo apt-get install" ;;
esac
echo "skc needs ${missing[*]}: $install ${missing[*]}" >&2
exit 1
