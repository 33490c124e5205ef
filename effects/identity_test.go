package effects

import "testing"

func TestFileIdentity(t *testing.T) {
	for _, i := range []FileIdentity{
		{Dev: 1, Ino: 2}, {Dev: 1, Ino: 2, Birth: 3}, {Dev: 1, Ino: 2, Birth: 3, Boot: "0a-b"}, {Dev: 1, Ino: 2, Boot: "0a-b"},
		{Dev: 1<<64 - 1, Ino: 1<<64 - 1, Birth: 1<<63 - 1},
	} {
		if got, err := ParseFileIdentity(i.String()); err != nil || got != i {
			t.Errorf("ParseFileIdentity(%q) = %+v, %v; want %+v", i, got, err, i)
		}
	}
	for _, text := range []string{"", "1", "1:", "1:2:", "1:2:3:", "1:2:3:X", "-1:2", "1:2:-3", "1:2 ", "99999999999999999999:1"} {
		if got, err := ParseFileIdentity(text); err == nil {
			t.Errorf("ParseFileIdentity(%q) = %+v, want an error", text, got)
		}
	}
}

func TestSameFile(t *testing.T) {
	was := FileIdentity{Dev: 1, Ino: 2, Birth: 3, Boot: "a"}
	for name, tt := range map[string]struct {
		is   FileIdentity
		want bool
	}{
		"itself":                            {was, true},
		"another inode":                     {FileIdentity{Dev: 1, Ino: 9, Birth: 3, Boot: "a"}, false},
		"an inode number used again":        {FileIdentity{Dev: 1, Ino: 2, Birth: 9, Boot: "a"}, false},
		"another device":                    {FileIdentity{Dev: 9, Ino: 2, Birth: 3, Boot: "a"}, false},
		"devices numbered anew after boot":  {FileIdentity{Dev: 9, Ino: 2, Birth: 3, Boot: "b"}, true},
		"the same, and no birth is known":   {FileIdentity{Dev: 9, Ino: 2, Boot: "b"}, false},
		"no birth is known at the same dev": {FileIdentity{Dev: 1, Ino: 2}, true},
	} {
		if got := was.Same(tt.is); got != tt.want {
			t.Errorf("%s: Same = %v, want %v", name, got, tt.want)
		}
	}
}
