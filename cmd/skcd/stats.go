package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"skc.dev/skc/controller/spool"
	"skc.dev/skc/controller/store"
	"skc.dev/skc/effects/files"
	"skc.dev/skc/effects/tmux"
)

// registerStats shows the parts' own counts as metrics.
func registerStats(reg prometheus.Registerer, layer *files.Layer, objects *store.Store, sources *spool.Spool, mux *tmux.Client) {
	counter := func(name, help string, value func() float64) {
		reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "skc_" + name, Help: help}, value))
	}
	counter("files_writes_total", "Files written or removed.", func() float64 { return float64(layer.Writes()) })
	counter("files_syncs_total", "Files synced.", func() float64 { return float64(layer.Syncs()) })
	counter("store_writes_total", "State files written or removed.", func() float64 { return float64(objects.Stats().Writes) })
	counter("store_durable_writes_total", "State files written durably.", func() float64 { return float64(objects.Stats().Durable) })
	counter("store_conflicts_total", "Updates of an old version.", func() float64 { return float64(objects.Stats().Conflicts) })
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "skc_store_objects", Help: "Objects in the store."},
		func() float64 { return float64(objects.Stats().Objects) }))
	counter("spool_parses_total", "Files decoded.", func() float64 { return float64(sources.Stats().Parses) })
	counter("spool_reads_total", "Files read.", func() float64 { return float64(sources.Stats().Reads) })
	counter("spool_rescans_total", "Full looks at a root.", func() float64 { return float64(sources.Stats().Rescans) })
	counter("spool_overflows_total", "Times that events were lost.", func() float64 { return float64(sources.Stats().Overflows) })
	counter("spool_events_total", "Events heard.", func() float64 { return float64(sources.Stats().Events) })
	counter("tmux_commands_total", "Lines sent to tmux.", func() float64 { return float64(mux.Stats().Commands) })
	counter("tmux_errors_total", "Lines that tmux refused or did not answer.", func() float64 { return float64(mux.Stats().Errors) })
	counter("tmux_round_trip_seconds_total", "Time until answers, summed.", func() float64 { return mux.Stats().RoundTrip.Seconds() })
	counter("tmux_connects_total", "Control connections that came up.", func() float64 { return float64(mux.Stats().Connects) })
	counter("tmux_server_starts_total", "Servers started.", func() float64 { return float64(mux.Stats().ServerStarts) })
	counter("tmux_deaths_total", "Panes whose program ended.", func() float64 { return float64(mux.Stats().Deaths) })
	counter("tmux_deaths_blind_total", "Of them, those of which tmux could not say how.", func() float64 { return float64(mux.Stats().DeathsBlind) })
}
