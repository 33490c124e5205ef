package launch

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/effects/files"
	"skc.dev/skc/effects/process"
)

// BasePath is the PATH of a session after ~/.local/bin and ~/bin, unless the
// config or the spec sets another.
const BasePath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// BaseEnv is the environment that every session begins with: HOME, USER,
// LOGNAME and SHELL of the user's passwd entry, PATH, LANG=C.UTF-8, and then
// the config's additions, as NAME=VALUE, which replace any of these. Nothing
// of the controller's own environment is in it.
func BaseEnv(u User, additions []string) ([]string, error) {
	base := []string{
		"HOME=" + u.Home,
		"USER=" + u.Name,
		"LOGNAME=" + u.Name,
		"SHELL=" + u.Shell,
		"PATH=" + filepath.Join(u.Home, ".local/bin") + ":" + filepath.Join(u.Home, "bin") + ":" + BasePath,
		"LANG=C.UTF-8",
	}
	for i, a := range additions {
		if name, _, ok := strings.Cut(a, "="); !ok || name == "" || strings.IndexByte(a, 0) >= 0 {
			return nil, fmt.Errorf("addition %d to the environment is not NAME=VALUE", i+1)
		}
	}
	return Join(base, additions), nil
}

// Join is one environment of several, in which a later variable replaces an
// earlier one of the same name.
func Join(envs ...[]string) []string {
	var out []string
	at := map[string]int{}
	for _, env := range envs {
		for _, v := range env {
			name, _, _ := strings.Cut(v, "=")
			if i, ok := at[name]; ok {
				out[i] = v
				continue
			}
			at[name] = len(out)
			out = append(out, v)
		}
	}
	return out
}

// Markers say to the program, and to whoever looks for the session's processes,
// which session it is in.
func Markers(uid, namespace, name string) []string {
	return []string{
		process.UIDVariable + "=" + uid,
		"SKC_SESSION_NAMESPACE=" + namespace,
		"SKC_SESSION_NAME=" + name,
	}
}

// maxValue is the longest value of a variable, as the spec's schema has it.
const maxValue = 131071

// ErrEnvironment is matched when the value of a variable cannot be read.
var ErrEnvironment = errors.New("environment cannot be read")

// EnvironmentError says which variable could not be read from which file. It
// never holds what is in the file.
type EnvironmentError struct {
	Name, File string
	Err        error
}

// Error names the variable, the file and the reason.
func (e *EnvironmentError) Error() string {
	return fmt.Sprintf("the value of %s cannot be read from %s: %v", e.Name, e.File, e.Err)
}

// Unwrap has it match ErrEnvironment and the reason.
func (e *EnvironmentError) Unwrap() []error { return []error{ErrEnvironment, e.Err} }

// Resolve is the spec's variables as NAME=VALUE. Those with valueFrom.file are
// read now: the file's bytes less one line end (\n or \r\n) at the close, at
// most 131071 of them and no NUL. An error is an *EnvironmentError.
func Resolve(vars []v1alpha1.EnvVar, userHome string) ([]string, error) {
	env := make([]string, 0, len(vars))
	for _, v := range vars {
		value := ""
		switch {
		case v.ValueFrom != nil:
			file := expand(string(v.ValueFrom.File), userHome)
			data, err := readValue(file)
			if err != nil {
				return nil, &EnvironmentError{Name: v.Name, File: file, Err: err}
			}
			value = string(data)
		case v.Value != nil:
			value = *v.Value
		}
		env = append(env, v.Name+"="+value)
	}
	return env, nil
}

func readValue(file string) ([]byte, error) {
	data, err := files.Read(file, maxValue+2)
	if err != nil {
		return nil, err
	}
	if cut, ok := bytes.CutSuffix(data, []byte("\n")); ok {
		data = bytes.TrimSuffix(cut, []byte("\r"))
	}
	if len(data) > maxValue {
		return nil, fmt.Errorf("%w: at most %d bytes", files.ErrTooLarge, maxValue)
	}
	if bytes.IndexByte(data, 0) >= 0 {
		return nil, errors.New("it holds a NUL")
	}
	return data, nil
}

// expand makes a path of a spec absolute.
func expand(path, userHome string) string {
	if rest, ok := strings.CutPrefix(path, "~"); ok && (rest == "" || rest[0] == '/') {
		return filepath.Join(userHome, rest)
	}
	return filepath.Clean(path)
}
