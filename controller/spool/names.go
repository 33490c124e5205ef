package spool

import (
	"path/filepath"
	"strings"
)

// hidden names are passed over, as files and as directories: what editors,
// version control and ..data swaps keep beside the real names.
func hidden(name string) bool { return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "#") }

// leftovers are the endings that editors and patch tools put on copies.
var leftovers = []string{"~", ".swp", ".tmp", ".orig", ".bak"}

// resourceName tells whether a file of that name holds resources. It decides by the
// name as a user sees it, so that a link counts by its own name and not by its
// target's.
func resourceName(name string) bool {
	if hidden(name) {
		return false
	}
	for _, end := range leftovers {
		if strings.HasSuffix(name, end) {
			return false
		}
	}
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// Hidden tells whether a file or folder of that name is passed over. It is for
// commands that read a folder as the spool does, as is ResourceName.
func Hidden(name string) bool { return hidden(name) }

// ResourceName tells whether a file of that name is read.
func ResourceName(name string) bool { return resourceName(name) }
