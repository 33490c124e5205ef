package launch

import (
	"context"
	"fmt"
	"os"
	"os/user"
)

// CurrentUser is the entry of the user that this process runs as. The shell is
// that of an entry in /etc/passwd, else the system's default.
func CurrentUser(context.Context) (User, error) {
	text, err := os.ReadFile("/etc/passwd")
	if err != nil && !os.IsNotExist(err) {
		return User{}, fmt.Errorf("look up the user: %w", err)
	}
	if u, ok := parsePasswd(string(text), os.Getuid()); ok {
		return u, nil
	}
	u, err := user.Current()
	if err != nil {
		return nobody(), nil //nolint:nilerr // no entry
	}
	return User{Name: u.Username, Home: u.HomeDir, Shell: "/bin/zsh"}, nil
}
