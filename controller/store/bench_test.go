package store_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skc.dev/skc/api/v1alpha1"
	"skc.dev/skc/controller/store"
	"skc.dev/skc/controller/store/storetest"
)

// busy gives a session the status of one that has run for a while.
func busy(o *v1alpha1.Session) {
	o.Finalizers = []string{v1alpha1.SessionFinalizer}
	o.Status.ObservedGeneration = 1
	for _, c := range []string{v1alpha1.SourceAccepted, v1alpha1.WorkspaceReady, v1alpha1.SessionRunning, v1alpha1.ProbeSucceeded, v1alpha1.Ready} {
		o.Status.Conditions = append(o.Status.Conditions, metav1.Condition{
			Type: c, Status: metav1.ConditionTrue, Reason: "AsItShouldBe", Message: "the thing is as it should be",
			LastTransitionTime: metav1.Now().Rfc3339Copy(), ObservedGeneration: 1,
		})
	}
	o.Status.Workspace = &v1alpha1.WorkspaceStatus{Path: "/home/somebody/src/app"}
	o.Status.Tmux = &v1alpha1.TmuxStatus{Socket: "/run/user/1000/skc/tmux.sock", ServerPID: 1234, ServerStartTime: "123456", SessionID: "$7", PaneID: "%9", PanePID: 4321, PaneStartTime: "654321", Attempt: 4}
	exit := int32(1)
	o.Status.LastTermination = &v1alpha1.Termination{ExitCode: &exit, Reason: "Error", Message: "exit code 1", Attempt: 3, LastLines: []string{"one", "two: three", "Error: no such file"}}
}

// filled is a folder of n busy sessions.
func filled(b *testing.B, n int) string {
	dir := b.TempDir() + "/objects"
	s := open(b, dir)
	apply(b, s, storetest.Desired("s0", "npm", "run", "dev"))
	update(b, s, "s0", busy)
	// The others are copies of its file, so that this is quick.
	whole := get(b, s, "s0")
	for i := 1; i < n; i++ {
		d := storetest.Desired(fmt.Sprintf("s%d", i), "npm", "run", "dev")
		apply(b, s, d)
		before := get(b, s, d.Object.GetName())
		after := before.DeepCopy()
		after.Status = *whole.Status.DeepCopy()
		if err := s.Update(b.Context(), before, after); err != nil {
			b.Fatal(err)
		}
	}
	return dir
}

// BenchmarkOpen holds a start beside reading and hashing the same files.
func BenchmarkOpen(b *testing.B) {
	const n = 10000
	dir := filled(b, n)
	b.Run("read+sha256", func(b *testing.B) {
		for b.Loop() {
			err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" {
					return err
				}
				data, err := os.ReadFile(path)
				sha256.Sum256(data)
				return err
			})
			if err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("open", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			open(b, dir)
		}
	})
	b.Run("open+sources", func(b *testing.B) {
		for b.Loop() {
			if all, err := open(b, dir).Sources(b.Context()); err != nil || len(all) != n {
				b.Fatal(len(all), err)
			}
		}
	})
	b.Run("open+list", func(b *testing.B) {
		for b.Loop() {
			if all, err := open(b, dir).List(b.Context(), v1alpha1.KindSession); err != nil || len(all) != n {
				b.Fatal(len(all), err)
			}
		}
	})
	b.Run("apply the same", func(b *testing.B) {
		s := open(b, dir)
		for b.Loop() {
			for i := range n {
				apply(b, s, storetest.Desired(fmt.Sprintf("s%d", i), "npm", "run", "dev"))
			}
		}
		if w := s.Stats().Writes; w != 0 {
			b.Errorf("%d writes", w)
		}
	})
	b.Run("client list", func(b *testing.B) {
		for b.Loop() {
			if all, err := (store.Client{Dir: dir}).List(v1alpha1.KindSession, ""); err != nil || len(all) != n {
				b.Fatal(len(all), err)
			}
		}
	})
}

func BenchmarkGet(b *testing.B) {
	s := open(b, filled(b, 1))
	b.ReportAllocs()
	for b.Loop() {
		get(b, s, "s0")
	}
}

// BenchmarkUpdate is one status write, alone and by eight at once on different
// objects.
func BenchmarkUpdate(b *testing.B) {
	for name, change := range map[string]func(*v1alpha1.Session, int64){
		"derived": func(o *v1alpha1.Session, i int64) { o.Status.ObservedGeneration = i },
		"durable": func(o *v1alpha1.Session, i int64) { o.Status.Restarts.Total = i },
	} {
		b.Run(name, func(b *testing.B) {
			s := open(b, filled(b, 1))
			b.ReportAllocs()
			for i := int64(10); b.Loop(); i++ {
				update(b, s, "s0", func(o *v1alpha1.Session) { change(o, i) })
			}
		})
		b.Run(name+" by 8", func(b *testing.B) {
			s := open(b, filled(b, 64))
			var next atomic.Int64
			b.SetParallelism(4)
			b.RunParallel(func(pb *testing.PB) {
				name := fmt.Sprintf("s%d", next.Add(1))
				for i := int64(10); pb.Next(); i++ {
					before, err := store.For[*v1alpha1.Session](s, v1alpha1.KindSession).Get(context.Background(), storetest.Key(name))
					if err != nil {
						b.Error(err)
						return
					}
					after := before.DeepCopy()
					change(after, i)
					if err := s.Update(context.Background(), before, after); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
