// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// openSmall starts an etcd that takes few bytes.
func openSmall(t *testing.T, quota int64) *Store {
	t.Helper()
	directory, err := os.MkdirTemp("", "syc")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(directory) })
	s, err := Open(t.Context(), Options{Directory: directory, Quota: quota, Large: []string{"big/"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// noise makes a text that does not become smaller.
func noise(random *rand.Rand, length int) []byte {
	text := make([]byte, length)
	for i := range text {
		text[i] = byte(random.Uint32())
	}
	return text
}

// set makes a large text a key's value.
func set(ctx context.Context, s *Store, key string, text []byte) error {
	l, err := s.Save(ctx, text)
	if err != nil {
		return err
	}
	_, err = s.Commit(ctx, new(Txn).PutLarge(key, l.Value))
	return err
}

// texts counts the texts and the pieces that the store has.
func texts(t *testing.T, s *Store) (marks, parts int64) {
	t.Helper()
	for begin, count := range map[string]*int64{markRoot: &marks, partRoot: &parts} {
		found, err := s.client.Get(t.Context(), begin, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		*count = found.Count
	}
	return marks, parts
}

func TestLargeValues(t *testing.T) {
	s := openSmall(t, 0)
	random := rand.New(rand.NewPCG(1, 2))
	for _, length := range []int{0, 1, maxInline / 2, maxInline + 1, 3*partBytes + 5} {
		text := noise(random, length)
		for _, key := range []string{"big/1", "big/2"} {
			if err := set(t.Context(), s, key, text); err != nil {
				t.Fatal(err)
			}
		}
		s.cache = cache{} // as another process
		entry, err := s.Get(t.Context(), "big/2")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := s.Load(t.Context(), entry.Value); err != nil || !bytes.Equal(got.Text, text) || len(entry.Value) > maxInline {
			t.Errorf("%d bytes: %v, a value of %d", length, err, len(entry.Value))
		}
	}
	if marks, parts := texts(t, s); marks != 2 || parts != 1+4 {
		t.Errorf("%d texts in %d pieces: equal ones are not kept once", marks, parts)
	}
	if got, err := s.Load(t.Context(), nil); err != nil || got.Text != nil {
		t.Errorf("nothing is %v, %v", got, err)
	}
	// A writer that saves a text, but refers to it only after its removal, must save it again.
	lone, err := s.Save(t.Context(), noise(random, 2*maxInline))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.squeeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), new(Txn).PutLarge("big/3", lone.Value)); !errors.Is(err, ErrConflict) {
		t.Errorf("a key refers to nothing: %v", err)
	}
	if marks, parts := texts(t, s); marks != 1 || parts != 4 {
		t.Errorf("%d texts in %d pieces are left of one in four", marks, parts)
	}
}

// The pieces of an unfinished upload.
func TestUnfinishedUploadIsRepeated(t *testing.T) {
	s := openSmall(t, 0)
	text := noise(rand.New(rand.NewPCG(3, 4)), 2*maxInline)
	l := newLarge(text)
	if _, err := s.client.Put(t.Context(), markRoot+l.hash, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), new(Txn).PutLarge("big/1", l.Value)); !errors.Is(err, ErrConflict) {
		t.Errorf("a key refers to half a text: %v", err)
	}
	if err := set(t.Context(), s, "big/1", text); err != nil {
		t.Error(err)
	}
}

// Many more changes than fit: each takes the room of those before it.
func TestChangesBeyondTheQuota(t *testing.T) {
	const quota = 24 << 20
	s := openSmall(t, quota)
	random := rand.New(rand.NewPCG(5, 6))
	for i := range 40 {
		if err := set(t.Context(), s, "big/1", noise(random, 2<<20)); err != nil {
			t.Fatalf("change %d: %v", i, err)
		}
	}
	if size, err := s.Size(t.Context()); err != nil || size.File > quota || size.Quota != quota {
		t.Errorf("%+v, %v", size, err)
	}
	// What is all in use cannot be spared.
	var err error
	for i := 0; err == nil && i < 20; i++ {
		err = set(t.Context(), s, fmt.Sprintf("big/%d", i), noise(random, 2<<20))
	}
	if !errors.Is(err, ErrFull) {
		t.Fatalf("too much fits: %v", err)
	}
	put(t, s, new(Txn).Put("status", []byte("small ones go on"), 0))
	// Asking again and again does not rewrite the file each time.
	s.squeezed = time.Now()
	before := s.squeezed
	for range 3 {
		if err := set(t.Context(), s, "big/99", noise(random, 2<<20)); !errors.Is(err, ErrFull) {
			t.Errorf("%v", err)
		}
	}
	if s.squeezed != before {
		t.Error("the file was rewritten for nothing")
	}
	s.squeezed = time.Time{} // some time later
	// With room again, it goes on.
	for i := range 20 {
		put(t, s, new(Txn).Delete(fmt.Sprintf("big/%d", i)))
	}
	if err := set(t.Context(), s, "big/1", noise(random, 2<<20)); err != nil {
		t.Error(err)
	}
}

// An etcd that others have filled raises its alarm, and takes writes again when it is tidied.
func TestAlarmOfAFullEtcdIsCleared(t *testing.T) {
	s := openSmall(t, 16<<20)
	random := rand.New(rand.NewPCG(7, 8))
	var err error
	for i := 0; err == nil && i < 100; i++ {
		_, err = s.client.Put(t.Context(), "other", string(noise(random, 1<<20)))
	}
	if !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), new(Txn).Put("a", []byte("1"), 0)); !errors.Is(err, ErrFull) {
		t.Errorf("%v", err)
	}
	if err := s.Tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
	put(t, s, new(Txn).Put("a", []byte("1"), 0))
}

// History is bounded: a watch from before it fails with ErrGone.
func TestTidyCompacts(t *testing.T) {
	s := openSmall(t, 0)
	first := put(t, s, new(Txn).Put("a", []byte("1"), 0))
	for range historyKept + 1 {
		put(t, s, new(Txn).Put("a", []byte("2"), 0))
		if err := s.Tidy(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.GetAt(t.Context(), "a", first); !errors.Is(err, rpctypes.ErrCompacted) {
		t.Errorf("%v", err)
	}
	if err := s.Watch(t.Context(), "", first, func(Event) {}); !errors.Is(err, rpctypes.ErrCompacted) {
		t.Errorf("%v", err)
	}
}
