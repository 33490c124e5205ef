package session

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api/v1alpha1"
)

// R14: a program that fails at once is started at most ten times in the first
// ten minutes, whatever the jitter; the cap is five minutes.
func TestBackoffSchedule(t *testing.T) {
	for _, jitter := range []float64{0, 0.5, 0.999} {
		var spec v1alpha1.RestartSpec
		starts, at := 1, time.Duration(0)
		for n := int64(1); ; n++ {
			wait := backoff(spec, n, jitter)
			if n == 1 && wait != 0 {
				t.Errorf("the first restart waits %s, want at once", wait)
			}
			if limit := 5*time.Minute + 30*time.Second; wait > limit {
				t.Fatalf("restart %d waits %s, more than %s", n, wait, limit)
			}
			if at += wait; at >= 10*time.Minute {
				break
			}
			starts++
		}
		if starts > 10 {
			t.Errorf("jitter %v: %d starts in ten minutes, want at most 10", jitter, starts)
		}
	}
	small := v1alpha1.RestartSpec{
		InitialBackoff: &metav1.Duration{Duration: 10 * time.Millisecond}, MaxBackoff: &metav1.Duration{Duration: 30 * time.Millisecond},
	}
	for n, want := range map[int64]time.Duration{1: 0, 2: 20 * time.Millisecond, 3: 30 * time.Millisecond, 1 << 40: 30 * time.Millisecond} {
		if got := backoff(small, n, 0); got != want {
			t.Errorf("backoff(%d) = %s, want %s", n, got, want)
		}
	}
}

func TestClipKeepsRunesWhole(t *testing.T) {
	for _, tt := range []struct {
		in   string
		n    int
		want string
	}{{"abc", 3, "abc"}, {"abcd", 3, "abc"}, {"aé", 2, "a"}, {"日本", 4, "日"}, {"", 0, ""}} {
		if got := clip(tt.in, tt.n); got != tt.want {
			t.Errorf("clip(%q, %d) = %q, want %q", tt.in, tt.n, got, tt.want)
		}
	}
}
