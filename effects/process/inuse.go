package process

import (
	"fmt"
	"strconv"
	"strings"
)

// User is a process that uses a folder.
type User struct {
	PID  int
	Name string // of the program, any bytes
}

// String is how people see it; the name is safe to show.
func (u User) String() string {
	name := u.Name
	if q := strconv.QuoteToGraphic(name); q != `"`+name+`"` || strings.ContainsAny(name, ", ") {
		name = q
	}
	return fmt.Sprintf("%s (pid %d)", name, u.PID)
}
