package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"skc.dev/skc/api/lifecycle"
	"skc.dev/skc/controller/control"
	"skc.dev/skc/controller/home"
)

// config is all that can be set, by a flag or by the same name in the config
// file; a flag wins. Lifecycle is in the file only.
type config struct {
	Spool          []string `json:"spool,omitempty"`
	State          string   `json:"state,omitempty"`
	Run            string   `json:"run,omitempty"`
	Tmux           string   `json:"tmux,omitempty"`
	Launcher       string   `json:"launcher,omitempty"`
	SessionEnv     []string `json:"sessionEnv,omitempty"`
	Cgroups        string   `json:"cgroups,omitempty"`
	Workers        int      `json:"workers,omitempty"`
	MetricsAddress string   `json:"metricsAddress,omitempty"`
	Verbosity      int      `json:"verbosity,omitempty"`

	Resync      metav1.Duration `json:"resync,omitzero"`
	Settle      metav1.Duration `json:"settle,omitzero"`
	PruneSettle metav1.Duration `json:"pruneSettle,omitzero"`
	MassHold    metav1.Duration `json:"massHold,omitzero"`
	Rescan      metav1.Duration `json:"rescan,omitzero"`
	TmuxTimeout metav1.Duration `json:"tmuxTimeout,omitzero"`
	OrphanGrace metav1.Duration `json:"orphanGrace,omitzero"`

	Lifecycle lifecycleConfig `json:"lifecycle,omitzero"`
}

// lifecycleConfig is about requests. Without a secret file no chat is served,
// and nothing listens.
type lifecycleConfig struct {
	SecretFile   string          `json:"secretFile,omitempty"` // absolute, or below ~
	PairedChat   string          `json:"pairedChat,omitempty"`
	Profile      string          `json:"profile,omitempty"`
	Address      string          `json:"address,omitempty"` // loopback
	Retention    metav1.Duration `json:"retention,omitzero"`
	CreateLimit  int             `json:"createLimit,omitempty"`
	CreateWindow metav1.Duration `json:"createWindow,omitzero"`
}

func defaults() config {
	d := func(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }
	return config{
		Tmux: "tmux", Cgroups: "auto", Workers: 16,
		Resync: d(5 * time.Minute), Settle: d(50 * time.Millisecond), PruneSettle: d(2 * time.Second),
		MassHold: d(time.Minute), Rescan: d(time.Minute), TmuxTimeout: d(5 * time.Second), OrphanGrace: d(time.Hour),
		Lifecycle: lifecycleConfig{
			Profile: "skc", Address: "127.0.0.1:0", Retention: d(30 * 24 * time.Hour),
			CreateLimit: lifecycle.CreateRateLimit.Max, CreateWindow: d(lifecycle.CreateRateLimit.Window),
		},
	}
}

// options is a config with what only the command line says.
type options struct {
	config
	home        home.Home
	dir         string // --home
	configFile  string
	listFaults  bool
	showVersion bool
}

// errUsage is matched by every error of the command line or the config file.
var errUsage = errors.New("wrong usage")

// parse reads the command line and the config file. The line is read twice: once
// to find the file, and once more over what the file says.
func parse(args []string, env home.Env, cwd string) (options, *pflag.FlagSet, error) {
	first := options{config: defaults()}
	flags := first.flags()
	if err := flags.Parse(args); err != nil {
		return first, flags, usage(err)
	}
	if flags.NArg() > 0 {
		return first, flags, usage(fmt.Errorf("skcd takes no argument, got %q", flags.Arg(0)))
	}
	h, err := home.Find(first.dir, env, cwd)
	if err != nil && (first.State == "" || len(first.Spool) == 0) {
		return first, flags, usage(err)
	}
	o := options{config: defaults(), home: h}
	if err := o.readConfig(first.configFile, first.dir, env); err != nil {
		return o, flags, usage(err)
	}
	flags = o.flags()
	if err := flags.Parse(args); err != nil {
		return o, flags, usage(err)
	}
	if err := o.place(cwd); err != nil {
		return o, flags, usage(err)
	}
	return o, flags, nil
}

func usage(err error) error {
	if errors.Is(err, pflag.ErrHelp) {
		return err
	}
	return errors.Join(errUsage, err)
}

// flags binds the command line to o, whose present values are the defaults.
func (o *options) flags() *pflag.FlagSet {
	f := pflag.NewFlagSet("skcd", pflag.ContinueOnError)
	f.SortFlags = false
	f.StringVar(&o.dir, "home", "", "one folder for spool, state and run; without it the XDG folders")
	f.StringVar(&o.configFile, "config", "", "config file (default <home>/skcd.yaml, else $XDG_CONFIG_HOME/skc/skcd.yaml, if it is there)")
	f.StringArrayVar(&o.Spool, "spool", o.Spool, "folder of desired state; may be given several times")
	f.StringVar(&o.State, "state", o.State, "folder of what the controller writes")
	f.StringVar(&o.Run, "run", o.Run, "folder of sockets and the lock")
	f.StringVar(&o.Tmux, "tmux", o.Tmux, "tmux program")
	f.StringVar(&o.Launcher, "launcher", o.Launcher, "skc-launch program (default: beside skcd)")
	f.StringArrayVar(&o.SessionEnv, "session-env", o.SessionEnv, "NAME=VALUE in the environment of every session; may be given several times")
	f.StringVar(&o.Cgroups, "cgroups", o.Cgroups, "auto: a control group for each session where that can be had; off: none")
	f.IntVar(&o.Workers, "workers", o.Workers, "sessions that are reconciled at the same time")
	f.StringVar(&o.MetricsAddress, "metrics-address", o.MetricsAddress, "loopback address for /metrics and /healthz, as 127.0.0.1:9477, beside the control socket")
	f.IntVarP(&o.Verbosity, "verbosity", "v", o.Verbosity, "1 logs what is done, 0 only what matters")
	for _, d := range o.durations() {
		f.DurationVar(&d.value.Duration, d.name, d.value.Duration, d.help)
	}
	f.BoolVar(&o.listFaults, "list-fault-points", false, "print every fault point of a test build and end")
	f.BoolVar(&o.showVersion, "version", false, "print the version and end")
	return f
}

type durationFlag struct {
	name, help string
	value      *metav1.Duration
}

func (c *config) durations() []durationFlag {
	return []durationFlag{
		{"resync", "time between two full looks at everything", &c.Resync},
		{"settle", "time for which a file written in place must stand still", &c.Settle},
		{"prune-settle", "time for which a file must be gone before its objects are deleted", &c.PruneSettle},
		{"mass-hold", "time for which a removal of most objects at once is held", &c.MassHold},
		{"rescan", "time between two full looks at the spool", &c.Rescan},
		{"tmux-timeout", "time within which tmux must answer", &c.TmuxTimeout},
		{"orphan-grace", "time for which a thing of ours that has no owner is left where it is", &c.OrphanGrace},
	}
}

// readConfig takes what the config file says. Without --config it may be missing.
func (o *options) readConfig(path, dir string, env home.Env) error {
	asked := path != ""
	if !asked {
		if dir == "" {
			dir = env("SKC_HOME")
		}
		if dir == "" {
			dir = filepath.Dir(o.home.Spool)
		}
		path = filepath.Join(dir, "skcd.yaml")
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !asked {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read config: %w", err)
	}
	if err := yaml.UnmarshalStrict(data, &o.config); err != nil {
		return fmt.Errorf("config %s: %w", path, err)
	}
	return nil
}

// place makes every folder absolute and checks what the parts rely on.
func (o *options) place(cwd string) error {
	abs := func(p string) string {
		if !filepath.IsAbs(p) {
			p = filepath.Join(cwd, p)
		}
		return filepath.Clean(p)
	}
	if o.State != "" {
		o.home.State = abs(o.State)
		if o.Run == "" && o.home.Run == "" {
			o.home.Run = filepath.Join(o.home.State, "run")
		}
	}
	if o.Run != "" {
		o.home.Run = abs(o.Run)
	}
	if len(o.Spool) == 0 {
		o.Spool = []string{o.home.Spool}
	}
	for i, p := range o.Spool {
		o.Spool[i] = abs(p)
	}
	o.home.Spool = o.Spool[0]
	if err := o.home.Check(); err != nil {
		return err
	}
	for _, kv := range o.SessionEnv {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || name == "" || strings.ContainsRune(kv, 0) {
			return fmt.Errorf("session-env %q is not NAME=VALUE", name)
		}
	}
	if o.Cgroups != "auto" && o.Cgroups != "off" {
		return fmt.Errorf("cgroups is %q, want auto or off", o.Cgroups)
	}
	if o.Workers < 1 {
		return fmt.Errorf("workers is %d, want at least 1", o.Workers)
	}
	for _, d := range o.durations() {
		if d.value.Duration <= 0 {
			return fmt.Errorf("%s is %s, want more than 0", d.name, d.value.Duration)
		}
	}
	return o.Lifecycle.check()
}

// check refuses what no request could be served with.
func (l lifecycleConfig) check() error {
	if p := l.SecretFile; p != "" && !filepath.IsAbs(p) && !strings.HasPrefix(p, "~/") {
		return fmt.Errorf("lifecycle.secretFile is %q, want an absolute path", p)
	}
	if l.SecretFile == "" && l.PairedChat != "" {
		return errors.New("lifecycle.pairedChat needs lifecycle.secretFile")
	}
	if err := control.CheckAddress(l.Address); err != nil {
		return fmt.Errorf("lifecycle.address: %w", err)
	}
	if len(validation.IsDNS1123Label(l.Profile)) > 0 {
		return fmt.Errorf("lifecycle.profile %q is no name", l.Profile)
	}
	if l.CreateLimit < 1 {
		return fmt.Errorf("lifecycle.createLimit is %d, want at least 1", l.CreateLimit)
	}
	for name, d := range map[string]metav1.Duration{"retention": l.Retention, "createWindow": l.CreateWindow} {
		if d.Duration <= 0 {
			return fmt.Errorf("lifecycle.%s is %s, want more than 0", name, d.Duration)
		}
	}
	return nil
}
