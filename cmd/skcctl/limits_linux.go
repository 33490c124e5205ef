package main

import (
	"os"
	"strconv"
	"strings"
)

// readLimits is what Linux tells of pseudo-terminals and inotify.
func readLimits() []limit {
	var all []limit
	add := func(name, usedFile, maxFile string, least int, raise string) {
		l := limit{name: name, used: -1, least: least, raise: raise}
		var ok bool
		if l.max, ok = readNumber(maxFile); !ok {
			return
		}
		if usedFile != "" {
			if n, ok := readNumber(usedFile); ok {
				l.used = n
			}
		}
		all = append(all, l)
	}
	add("pseudo-terminals", "/proc/sys/kernel/pty/nr", "/proc/sys/kernel/pty/max", 16, "raise it: sysctl kernel.pty.max=8192")
	add("inotify instances", "", "/proc/sys/fs/inotify/max_user_instances", 16, "raise it: sysctl fs.inotify.max_user_instances=1024")
	add("inotify watches", "", "/proc/sys/fs/inotify/max_user_watches", 1024, "raise it: sysctl fs.inotify.max_user_watches=524288; without it skcd looks again and again")
	return all
}

func readNumber(path string) (int, bool) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(data)))
	return n, err == nil
}
