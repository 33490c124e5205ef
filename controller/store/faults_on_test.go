//go:build skcfaults

package store_test

import (
	"testing"

	"skc.dev/skc/effects/fault"
)

func setFault(t testing.TB, spec string) {
	t.Helper()
	if err := fault.Set(spec); err != nil {
		t.Fatal(err)
	}
}
