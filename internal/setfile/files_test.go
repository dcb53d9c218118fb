// SPDX-License-Identifier: Apache-2.0

package setfile

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"steelyard/internal/model"
)

type bench struct {
	*testing.T
	*Files
	log  bytes.Buffer
	used chan map[string]*model.SetData
	path string
	sets []model.AccessSet
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{T: t, used: make(chan map[string]*model.SetData, 100), path: filepath.Join(t.TempDir(), "bad.txt")}
	b.Files = New(func(contents map[string]*model.SetData) { b.used <- contents }, slog.New(slog.NewTextHandler(&b.log, nil)))
	b.sets = []model.AccessSet{{Name: "office"}, {Name: "bad", File: b.path}, {Name: "worse", File: b.path}}
	return b
}

func (b *bench) run() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { b.Files.Run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// await waits until the file's contents in use are these; nil: none.
func (b *bench) await(want *model.SetData) {
	b.Helper()
	for contents := range b.used {
		if contents[b.path].Equal(want) {
			return
		}
	}
}

func TestFilesAreReadAgain(t *testing.T) {
	b := newBench(t)
	b.Configure(b.sets)
	b.await(nil)
	if w := b.Warnings(); len(w) != 2 || !strings.Contains(w[0], "access set bad keeps the forwarder's previous data, or is empty: "+b.path+" does not exist") {
		t.Errorf("warnings: %q", w)
	}
	defer b.run()()
	write(t, b.path, "10.0.0.1\n10.0.0.2\n10.0.0.3\n10.0.0.4\n")
	b.await(data("10.0.0.1/32", "10.0.0.2/32", "10.0.0.3/32", "10.0.0.4/32"))
	if err := os.WriteFile(b.path, []byte("10.0.0.9"), 0o600); err != nil { // in place
		t.Fatal(err)
	}
	b.await(data("10.0.0.9/32"))
	if len(b.Warnings()) != 0 {
		t.Errorf("warnings: %q", b.Warnings())
	}
}

func TestABrokenFileChangesNothing(t *testing.T) {
	b := newBench(t)
	write(t, b.path, "10.0.0.1\n10.0.0.2\n10.0.0.3\n")
	want := data("10.0.0.1/32", "10.0.0.2/32", "10.0.0.3/32")
	b.Configure(b.sets)
	b.await(want)
	write(t, b.path, "10.0.0.1\nx\n")
	b.look()
	if got := <-b.used; !got[b.path].Equal(want) {
		t.Errorf("got %v", got)
	}
	status := b.Status()
	if len(status) != 2 || status[0].Set != "bad" || status[0].Loaded.IsZero() || !strings.HasSuffix(status[0].Err.Error(), `bad.txt:2: this line is not a prefix: write one like 10.1.0.0/24 or fd00:1::/64`) {
		t.Errorf("status: %+v", status)
	}
	if w := b.Warnings(); len(w) != 2 || !strings.Contains(w[1], "access set worse has its file as it was at ") {
		t.Errorf("warnings: %q", w)
	}
	b.look()
	if n := strings.Count(b.log.String(), "keeps its prefixes"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, b.log.String())
	}
	if err := os.Remove(b.path); err != nil {
		t.Fatal(err)
	}
	b.look()
	write(t, b.path, "10.0.0.2\n")
	b.look()
	b.await(data("10.0.0.2/32"))
	if !strings.Contains(b.log.String(), "less than half") || len(b.Warnings()) != 0 {
		t.Errorf("%q\n%s", b.Warnings(), b.log.String())
	}
}

// A file that is being written in place is not read until it has been unchanged for a while; one that was only
// cut off does not empty its set.
func TestFileBeingWrittenIsReadWhenStable(t *testing.T) {
	b := newBench(t)
	write(t, b.path, "10.0.0.1\n10.0.0.2\n")
	b.Configure(b.sets)
	want := data("10.0.0.1/32", "10.0.0.2/32")
	b.await(want)
	before := b.Status()[0]
	for _, step := range []struct {
		text    string
		age     time.Duration
		again   bool
		want    *model.SetData
		problem bool
	}{
		{"10.0.0.9\n", 0, true, want, false},
		{"10.0.0.1\n1", settleTime / 4, true, want, false},
		{"", time.Minute, false, want, true},
		{"10.0.0.3\n", -time.Hour, false, data("10.0.0.3/32"), false}, // the clock of a file server
		{"# none\n", time.Minute, false, data(), false},
	} {
		if err := os.WriteFile(b.path, []byte(step.text), 0o600); err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		b.now = func() time.Time { return now }
		if err := os.Chtimes(b.path, now.Add(-step.age), now.Add(-step.age)); err != nil {
			t.Fatal(err)
		}
		if again := b.look(); again != step.again {
			t.Errorf("%q: look again: %v", step.text, again)
		}
		if got := <-b.used; !got[b.path].Equal(step.want) {
			t.Errorf("%q: got %v", step.text, got[b.path])
		}
		if status := b.Status()[0]; (status.Err != nil) != step.problem || step.want == want && status.Loaded != before.Loaded {
			t.Errorf("%q: %+v", step.text, status)
		}
	}
}

func TestCheckNamesWhatIsWrong(t *testing.T) {
	b := newBench(t)
	config := &model.Config{AccessSets: b.sets}
	if err := b.Check(config); err == nil || err.Error() != "access set bad: "+b.path+" does not exist" {
		t.Errorf("%v", err)
	}
	write(t, b.path, "10.0.0.1\n")
	if err := b.Check(config); err != nil {
		t.Error(err)
	}
	b.Configure(b.sets)
	write(t, b.path, "broken since\n")
	b.look()
	if err := b.Check(config); err != nil || len(b.Warnings()) != 2 {
		t.Errorf("a file that broke later refuses other changes: %v", err)
	}
}

// All sets together have a limit: a file that would exceed it is not used until there is room.
func TestAllFilesTogether(t *testing.T) {
	b := newBench(t)
	b.limit = 7
	other := filepath.Join(filepath.Dir(b.path), "other.txt")
	b.sets = append(b.sets, model.AccessSet{Name: "other", File: other})
	config := &model.Config{AccessSets: b.sets}
	expect := func(bad, good *model.SetData, problems ...string) {
		t.Helper()
		got := <-b.used
		if !got[b.path].Equal(bad) || !got[other].Equal(good) {
			t.Errorf("got %v and %v", got[b.path], got[other])
		}
		w := b.Warnings()
		if len(w) != len(problems) {
			t.Fatalf("warnings: %q", w)
		}
		for i, problem := range problems {
			if !strings.Contains(w[i], problem) {
				t.Errorf("warning %q", w[i])
			}
		}
	}
	two, three := data("10.0.0.1/32", "10.0.0.2/32"), data("10.0.0.1/32", "10.0.0.2/32", "10.0.0.3/32")
	write(t, b.path, "10.0.0.1\n10.0.0.2\n") // of two sets
	write(t, other, "10.0.0.1\n10.0.0.2\n10.0.0.3\n")
	if err := b.Check(config); err != nil {
		t.Error(err)
	}
	b.Configure(b.sets)
	expect(two, three)
	write(t, b.path, "10.0.0.1\n10.0.0.2\n10.0.0.3\n")
	if err := b.Check(config); err == nil || err.Error() != "the files of the access sets have 9 prefixes: all sets together may have 7 from files" {
		t.Errorf("%v", err)
	}
	for range 2 {
		b.look()
		expect(two, three, "bad.txt has 3 prefixes: all sets together may have 7 from files", "bad.txt has 3 prefixes")
	}
	if err := b.Check(config); err != nil {
		t.Errorf("a file that grew later refuses other changes: %v", err)
	}
	write(t, other, "10.0.0.9\n")
	b.look()
	expect(three, data("10.0.0.9/32"))
	write(t, other, "10.0.0.1\n10.0.0.2\n")
	b.look()
	expect(three, data("10.0.0.9/32"), "other.txt has 2 prefixes")
}

// A file that no set names any more is not read again.
func TestForgottenFiles(t *testing.T) {
	b := newBench(t)
	write(t, b.path, "10.0.0.1\n")
	b.Configure(b.sets)
	b.await(data("10.0.0.1/32"))
	b.Configure(b.sets[:1])
	b.await(nil)
	if len(b.Status()) != 0 || len(b.watcher.WatchList()) != 0 {
		t.Errorf("%v, %v", b.Status(), b.watcher.WatchList())
	}
}
