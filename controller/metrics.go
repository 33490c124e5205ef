package controller

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
)

// Metrics of all controllers of one process, with the names that users of
// controller-runtime know, under skc_.
type Metrics struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	queue    queueMetrics
}

// NewMetrics makes the metrics and registers them.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	byKind := []string{"kind"}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "skc_workqueue_" + name, Help: help}, byKind)
	}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "skc_workqueue_" + name, Help: help}, byKind)
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "skc_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(0.0001, 4, 10),
		}, byKind)
	}
	m := &Metrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "skc_reconcile_total", Help: "Passes by kind and outcome.",
		}, []string{"kind", "outcome"}),
		duration: histogram("reconcile_duration_seconds", "Time of one pass."),
		queue: queueMetrics{
			depth:      gauge("depth", "Keys that wait."),
			adds:       counter("adds_total", "Keys that were added."),
			retries:    counter("retries_total", "Keys that were added again after a failure."),
			latency:    histogram("workqueue_wait_seconds", "Time a key waited."),
			work:       histogram("workqueue_work_seconds", "Time a key was worked on."),
			unfinished: gauge("unfinished_work_seconds", "Time of the passes in hand, summed."),
			longest:    gauge("longest_running_seconds", "Time of the longest pass in hand."),
		},
	}
	q := m.queue
	reg.MustRegister(m.total, m.duration, q.depth, q.adds, q.retries, q.latency, q.work, q.unfinished, q.longest)
	return m
}

func (m *Metrics) reconciled(kind, outcome string, took time.Duration) {
	if m == nil {
		return
	}
	m.total.WithLabelValues(kind, outcome).Inc()
	m.duration.WithLabelValues(kind).Observe(took.Seconds())
}

func (m *Metrics) queueProvider() workqueue.MetricsProvider {
	if m == nil {
		return nil
	}
	return m.queue
}

// queueMetrics is what the workqueue reports into.
type queueMetrics struct {
	depth, unfinished, longest *prometheus.GaugeVec
	adds, retries              *prometheus.CounterVec
	latency, work              *prometheus.HistogramVec
}

func (q queueMetrics) NewDepthMetric(kind string) workqueue.GaugeMetric {
	return q.depth.WithLabelValues(kind)
}

func (q queueMetrics) NewAddsMetric(kind string) workqueue.CounterMetric {
	return q.adds.WithLabelValues(kind)
}

func (q queueMetrics) NewRetriesMetric(kind string) workqueue.CounterMetric {
	return q.retries.WithLabelValues(kind)
}

func (q queueMetrics) NewLatencyMetric(kind string) workqueue.HistogramMetric {
	return q.latency.WithLabelValues(kind)
}

func (q queueMetrics) NewWorkDurationMetric(kind string) workqueue.HistogramMetric {
	return q.work.WithLabelValues(kind)
}

func (q queueMetrics) NewUnfinishedWorkSecondsMetric(kind string) workqueue.SettableGaugeMetric {
	return q.unfinished.WithLabelValues(kind)
}

func (q queueMetrics) NewLongestRunningProcessorSecondsMetric(kind string) workqueue.SettableGaugeMetric {
	return q.longest.WithLabelValues(kind)
}
