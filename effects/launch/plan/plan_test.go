package plan

import (
	"bytes"
	"reflect"
	"slices"
	"testing"
)

func TestDecode(t *testing.T) {
	for _, p := range []Plan{
		{Argv: []string{"a"}, Env: []string{}, Dir: "/"},
		{Argv: []string{"a", "", "b\n \xff"}, Env: []string{"A=", "B=x=y\n"}, Dir: "/d e"},
		{Argv: slices.Repeat([]string{""}, 1000), Env: []string{}, Dir: ""},
	} {
		whole := p.Encode()
		got, err := Decode(whole)
		if err != nil || !reflect.DeepEqual(got, p) {
			t.Fatalf("Decode(Encode(%+v)) = %+v, %v", p, got, err)
		}
		for n := range whole {
			if _, err := Decode(whole[:n]); err == nil {
				t.Fatalf("the first %d of %d bytes are taken for a whole plan", n, len(whole))
			}
		}
		if _, err := Decode(append(whole, 0)); err == nil {
			t.Error("a byte too many is taken for a plan")
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(Plan{Argv: []string{"a", ""}, Env: []string{"A=b"}, Dir: "/"}.Encode())
	f.Add([]byte("skc-launch 1\n1 0 4\n\x00\x00\x00\x00"))
	f.Add([]byte("skc-launch 1\n9999999 9999999 0\n"))
	f.Add([]byte("skc-launch 1\n-1 0 0\n"))
	f.Add([]byte("skc-launch 2\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Decode(data)
		if err == nil && !bytes.Equal(p.Encode(), data) {
			t.Errorf("%q is read as %+v, which is written otherwise", data, p)
		}
	})
}

func FuzzDecodeFailure(f *testing.F) {
	f.Add(Failure{Reason: "ExecFailed", Message: "m"}.Encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		fa, err := DecodeFailure(data)
		if err != nil {
			return
		}
		if again, err := DecodeFailure(fa.Encode()); err != nil || bytes.Contains([]byte(again.Message), []byte("\n")) {
			t.Errorf("%q is read as %+v, then as %+v, %v", data, fa, again, err)
		}
	})
}
