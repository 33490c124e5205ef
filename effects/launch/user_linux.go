package launch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// CurrentUser is the passwd entry of the user that this process runs as:
// /etc/passwd, else what getent says, which knows of directories too.
func CurrentUser(ctx context.Context) (User, error) {
	text, err := os.ReadFile("/etc/passwd")
	if err != nil && !os.IsNotExist(err) {
		return User{}, fmt.Errorf("look up the user: %w", err)
	}
	if u, ok := parsePasswd(string(text), os.Getuid()); ok {
		return u, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "getent", "passwd", strconv.Itoa(os.Getuid()))
	cmd.WaitDelay = time.Second
	text, err = cmd.Output()
	if ctx.Err() != nil {
		return User{}, fmt.Errorf("look up the user with getent: %w", context.Cause(ctx))
	}
	if err == nil { // else there is no getent, or no entry
		if u, ok := parsePasswd(string(text), os.Getuid()); ok {
			return u, nil
		}
	}
	return nobody(), nil
}
