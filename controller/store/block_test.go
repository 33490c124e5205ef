package store

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// roundTrip holds emit against parse and against a YAML library.
func roundTrip(t *testing.T, v map[string]any) {
	t.Helper()
	text := emit(nil, v, 0)
	got, err := parse(string(text))
	if err != nil {
		t.Fatalf("parse of what emit wrote: %v\n%s", err, text)
	}
	if diff := cmp.Diff(any(v), got); diff != "" {
		t.Fatalf("parse(emit(v)) differs (-want +got):\n%s\n%s", diff, text)
	}
	js, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		t.Fatalf("a YAML library refuses it: %v\n%s", err, text)
	}
	var lib any
	if err := utiljson.Unmarshal(js, &lib); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(any(v), lib); diff != "" {
		t.Fatalf("a YAML library reads it otherwise (-want +got):\n%s\n%s", diff, text)
	}
}

func TestBlockRoundTrip(t *testing.T) {
	for name, js := range map[string]string{
		"nested":       `{"a":{"b":[{"c":1,"d":[1,2,[3,[4]],{"e":{}}]},[],"x",{"f":[]}],"z":{}},"l":[[1],[[2]]]}`,
		"numbers":      `{"a":[0,-1,9223372036854775807,1.5,-2.25e-9,1e300]}`,
		"words":        `{"a":["yes","no","On","off","y","N","true","True","null","~","NULL","nan",".nan",".inf","-","--","- a","?","!x","&a","*a","%","@","<<","="]}`,
		"number-like":  `{"a":["1","1.10","0123","1e3","4225332e04","0x1F","2024-01-01","12:30:45","1_000","+1",".5","-"]}`,
		"uuid":         `{"a":["12345678-1234-4234-8234-123456789012","00000000-0000-4000-8000-000000000000","12345678-1234-4234-8234-12345678901"]}`,
		"spaces":       `{"a":[""," "," a","a ","a b","a: b","a:b","a:","a #b","a#b","\t","\n","a\nb\n","a\r\nb"]}`,
		"quotes":       `{"a":["\"","\\","a\"b","a\\n","'","''","it's","{","[","a,b","{}","[]","\"\""]}`,
		"controls":     `{"a":["\u0000","\u001b[31m","\u007f","\u0085","\u009b","\u2028","\ufeff","\u202e","\uffff","\u200b"]}`,
		"unicode":      `{"日本":"é","a":["😀","\ue000","‘’"]}`,
		"keys":         `{"":1,"a b":2,"a: b":{"x":1},"1":3,"yes":4,"- a":5,"skc.dev/x":6,"\"":[7],"a:":8,"#":9,"\n":10}`,
		"list of keys": `{"a":[{"a: b":1},{"":2},{"\"q\"":{"x":1}},{"k":[{"m":{}}]}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			var v map[string]any
			if err := utiljson.Unmarshal([]byte(js), &v); err != nil {
				t.Fatal(err)
			}
			roundTrip(t, v)
		})
	}
}

func FuzzBlockRoundTrip(f *testing.F) {
	f.Add([]byte(`{"a":[{"b":"c"},1,null,true,[[]]]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var v map[string]any
		if err := utiljson.Unmarshal(data, &v); err != nil || len(v) == 0 {
			return
		}
		roundTrip(t, v)
	})
}

// FuzzParse shows that parse ends with an error, and not in another way, on
// anything that emit did not write.
func FuzzParse(f *testing.F) {
	f.Add("a: b\nc:\n- d: e\n  f: {}\n- - 1\n")
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = parse(text)
	})
}
