//go:build !skcfaults

package store_test

import "testing"

func setFault(testing.TB, string) {}
