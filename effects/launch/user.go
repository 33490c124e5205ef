package launch

import (
	"os"
	"strconv"
	"strings"
)

// User is what of a passwd entry makes an environment.
type User struct{ Name, Home, Shell string }

// parsePasswd finds the entry of a user id in text of the form of /etc/passwd.
func parsePasswd(text string, uid int) (User, bool) {
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), ":")
		if len(f) != 7 || f[2] != strconv.Itoa(uid) || f[0] == "" {
			continue
		}
		u := User{Name: f[0], Home: f[5], Shell: f[6]}
		if u.Home == "" {
			u.Home = "/"
		}
		if u.Shell == "" { // what passwd(5) says that an empty one means
			u.Shell = "/bin/sh"
		}
		return u, true
	}
	return User{}, false
}

// nobody is for a user id without an entry, as in a container: its number for a
// name and / for a home. The config can set others.
func nobody() User {
	return User{Name: strconv.Itoa(os.Getuid()), Home: "/", Shell: "/bin/sh"}
}
