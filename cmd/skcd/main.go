// Command skcd is the controller: it keeps tmux sessions as the files in the
// spool say. This package reads flags and config and joins the parts.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"skc.dev/skc/config/crd"
	"skc.dev/skc/controller/lease"
	"skc.dev/skc/effects"
	"skc.dev/skc/effects/fault"
)

// version is set when a release is built.
var version = "dev"

// judge names all that decides whether a file is accepted, beside its bytes: an
// upgrade judges every file anew. A build without a version has no name.
func judge() string {
	if version == "dev" {
		return ""
	}
	sum := sha256.Sum256(crd.Sessions)
	return version + " " + hex.EncodeToString(sum[:])
}

// Exit codes of skcd.
const (
	exitOK       = 0
	exitFailure  = 1
	exitUsage    = 2
	exitHeld     = 3 // another skcd owns the home
	exitLostHome = 4 // another skcd took the home over
)

func main() {
	// Everything skcd makes is for its user alone, at every instant.
	syscall.Umask(0o077)
	// It lives beside people's work, and rests most of the time: less headroom for
	// the heap costs it nothing that can be noticed. GOGC says otherwise.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, env func(string) string, out, errOut io.Writer) int {
	cwd, err := os.Getwd()
	if err != nil {
		fmt.Fprintln(errOut, "skcd:", err)
		return exitFailure
	}
	o, flags, err := parse(args, env, cwd)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprintf(out, "skcd keeps tmux sessions as the files in the spool say.\n\n  skcd --home ~/skc\n\nExit codes: 1 failure, 2 wrong usage, 3 another skcd owns the home, 4 another skcd took it over.\n\n%s", flags.FlagUsages())
		return exitOK
	case err != nil:
		fmt.Fprintf(errOut, "skcd: %v\nSee 'skcd --help'.\n", err)
		return exitUsage
	case o.showVersion:
		fmt.Fprintln(out, "skcd", version)
		return exitOK
	case o.listFaults:
		if !fault.Enabled {
			fmt.Fprintln(errOut, "skcd: this build has no fault points; build with -tags skcfaults")
			return exitFailure
		}
		for _, p := range fault.List() {
			fmt.Fprintln(out, p)
		}
		return exitOK
	}
	log, sync := newLogger(errOut, o.Verbosity)
	defer sync()
	err = serve(logr.NewContext(ctx, log), o)
	var held *lease.HeldError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &held):
		fmt.Fprintln(errOut, "skcd:", held)
		return exitHeld
	case errors.Is(err, effects.ErrNotOwner):
		fmt.Fprintln(errOut, "skcd:", err)
		return exitLostHome
	case ctx.Err() != nil && errors.Is(err, context.Canceled): // told to end while it started
		return exitOK
	}
	fmt.Fprintln(errOut, "skcd:", err)
	return exitFailure
}

func newLogger(w io.Writer, verbosity int) (logr.Logger, func()) {
	enc := zap.NewProductionEncoderConfig()
	enc.EncodeTime = zapcore.TimeEncoderOfLayout(time.RFC3339Nano)
	level := zapcore.Level(-min(verbosity, 1)) //nolint:gosec // 0 or 1
	core := zapcore.NewCore(zapcore.NewConsoleEncoder(enc), zapcore.Lock(zapcore.AddSync(w)), level)
	z := zap.New(core)
	return zapr.NewLogger(z), func() { _ = z.Sync() }
}
