//go:build e2e

package lost

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
)

// attempt is a test whose failure is only written down, so that it can be tried
// again with less.
type attempt struct {
	testing.TB // of the test that tries

	mu    sync.Mutex
	wrong []string
	said  []string
	last  []func()
}

// try runs fn as a test of its own. It returns what was wrong, and what was said.
func try(t testing.TB, fn func(testing.TB)) (wrong, said []string) {
	a := &attempt{TB: t}
	apart := func(fn func()) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			fn()
		}()
		<-done
	}
	apart(func() { fn(a) })
	for len(a.last) > 0 {
		fn := a.last[len(a.last)-1]
		a.last = a.last[:len(a.last)-1]
		apart(fn)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.wrong), slices.Clone(a.said)
}

func (a *attempt) note(to *[]string, text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	*to = append(*to, text)
}

func (a *attempt) Failed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.wrong) > 0
}

func (a *attempt) Helper()                   {}
func (a *attempt) Cleanup(fn func())         { a.last = append(a.last, fn) }
func (a *attempt) Log(args ...any)           { a.note(&a.said, fmt.Sprint(args...)) }
func (a *attempt) Logf(f string, v ...any)   { a.note(&a.said, fmt.Sprintf(f, v...)) }
func (a *attempt) Error(args ...any)         { a.note(&a.wrong, fmt.Sprint(args...)) }
func (a *attempt) Errorf(f string, v ...any) { a.note(&a.wrong, fmt.Sprintf(f, v...)) }
func (a *attempt) Fail()                     { a.Error("failed") }
func (a *attempt) FailNow()                  { a.Fail(); runtime.Goexit() }
func (a *attempt) Fatal(args ...any)         { a.Error(args...); runtime.Goexit() }
func (a *attempt) Fatalf(f string, v ...any) { a.Errorf(f, v...); runtime.Goexit() }
