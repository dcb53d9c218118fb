// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"steelyard/internal/freeport"

	"go.etcd.io/etcd/server/v3/embed"
)

// trio is a cluster of three members in this process.
type trio struct {
	*testing.T
	directory string
	options   []Options
	stores    []*Store
}

func newTrio(t *testing.T) *trio {
	t.Helper()
	directory, err := os.MkdirTemp("", "sy3")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(directory) })
	key, err := NewMembersKey()
	if err != nil {
		t.Fatal(err)
	}
	urls := map[string]string{}
	for i := range 3 {
		urls[fmt.Sprintf("c%d", i)] = "https://" + freeport.Address(t)
	}
	c := &trio{T: t, directory: directory, stores: make([]*Store, 3)}
	for i := range 3 {
		name := fmt.Sprintf("c%d", i)
		c.options = append(c.options, Options{Directory: filepath.Join(directory, name), Members: &Members{
			Name: name, URLs: urls, Key: key, Listen: strings.TrimPrefix(urls[name], "https://")}})
	}
	c.options[2].Members.Listen = "" // the default: the port of its URL
	return c
}

// start starts some members at once: one alone waits for another.
func (c *trio) start(members ...int) {
	c.Helper()
	var starting sync.WaitGroup
	for _, i := range members {
		starting.Go(func() {
			store, err := Open(c.Context(), c.options[i])
			if err != nil {
				c.Errorf("member %d: %v", i, err)
				return
			}
			c.stores[i] = store
			c.Cleanup(store.Close)
		})
	}
	starting.Wait()
	if c.Failed() {
		c.FailNow()
	}
}

// write sets a key at a member, which may have to wait for a new leader.
func (c *trio) write(member int, value string) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), 4*time.Minute)
	defer cancel()
	for {
		_, err := c.stores[member].Commit(ctx, new(Txn).Put("a", []byte(value), 0))
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			c.Fatal(err)
		}
	}
}

func (c *trio) read(member int) string {
	c.Helper()
	e, err := c.stores[member].Get(c.Context(), "a")
	if err != nil {
		c.Fatal(err)
	}
	return string(e.Value)
}

// leader returns the member that leads.
func (c *trio) leader() int {
	c.Helper()
	for i, s := range c.stores {
		if s.embedded.Server.Leader() == s.embedded.Server.MemberID() {
			return i
		}
	}
	c.Fatal("no member leads")
	return 0
}

func TestThreeMembers(t *testing.T) {
	c := newTrio(t)
	c.start(0, 1, 2)
	c.write(0, "1")
	for i := range 3 {
		if got := c.read(i); got != "1" {
			t.Errorf("member %d has %q", i, got)
		}
	}

	// Two go on without the leader; it catches up.
	lost := c.leader()
	c.stores[lost].Close()
	rest := []int{(lost + 1) % 3, (lost + 2) % 3}
	c.write(rest[0], "2")
	if got := c.read(rest[1]); got != "2" {
		t.Errorf("%q", got)
	}
	c.start(lost)
	if got := c.read(lost); got != "2" {
		t.Errorf("back, it has %q", got)
	}

	// One alone takes nothing, and says nothing that may be old.
	for _, i := range rest {
		c.stores[i].Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if _, err := c.stores[lost].Commit(ctx, new(Txn).Put("a", []byte("3"), 0)); err == nil {
		t.Error("one of three members has taken a change")
	}
	if e, err := c.stores[lost].Get(ctx, "a"); err == nil {
		t.Errorf("one of three members has answered %q", e.Value)
	}
	c.start(rest...)
	c.write(rest[0], "4")
	if got := c.read(lost); got != "4" {
		t.Errorf("%q", got)
	}
}

// A member that has lost its disk rejoins with an empty one, after Replace at another member.
func TestReplacedMemberRejoinsWithAnEmptyDisk(t *testing.T) {
	c := newTrio(t)
	c.start(0, 1, 2)
	c.write(0, "1")
	c.stores[2].Close()
	if err := os.RemoveAll(c.options[2].Directory); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"c0": "itself answers this call", "c9": "c0, c1, c2"} {
		if err := c.stores[0].Replace(t.Context(), name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for range 2 { // again: nothing more
		if err := c.stores[0].Replace(t.Context(), "c2"); err != nil {
			t.Fatal(err)
		}
	}
	joins := *c.options[2].Members
	joins.Joins = true
	c.options[2].Members = &joins
	c.start(2)
	if got := c.read(2); got != "1" {
		t.Errorf("the new one has %q", got)
	}
	// It counts: with it and one other, changes go on.
	c.stores[0].Close()
	c.write(2, "2")
	c.stores[2].Close()
	c.start(2) // the flag may stay
	c.write(2, "3")
}

// A member with another key stays outside.
func TestMembersNeedTheKey(t *testing.T) {
	c := newTrio(t)
	stranger := *c.options[2].Members
	var err error
	if stranger.Key, err = NewMembersKey(); err != nil {
		t.Fatal(err)
	}
	c.options[2].Members = &stranger
	c.start(0, 1)
	c.write(0, "1")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if s, err := Open(ctx, c.options[2]); err == nil {
		s.Close()
		t.Error("a stranger has become a member")
	}
	c.write(1, "2")
}

// A member whose host began with a wrong clock is one all the same, then and when the clock is set.
func TestMembersNeedNoClock(t *testing.T) {
	key, err := NewMembersKey()
	if err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	m := &Members{Name: "a", Key: key, URLs: map[string]string{"a": "https://h1:7444", "b": "https://h2:7444", "c": "https://h3:7444"}}
	if err := m.apply(embed.NewConfig(), directory); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(directory, "member.pem"), filepath.Join(directory, "member.pem"))
	if err != nil {
		t.Fatal(err)
	}
	authority, _, err := m.authority()
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(authority)
	for _, year := range []int{1971, 2000, 2200} {
		_, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "h1", CurrentTime: time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)})
		if err != nil {
			t.Errorf("%d: %v", year, err)
		}
	}
}

func TestMembersAreChecked(t *testing.T) {
	key, err := NewMembersKey()
	if err != nil {
		t.Fatal(err)
	}
	good := func() *Members {
		return &Members{Name: "a", Key: key, URLs: map[string]string{"a": "https://h1:7444", "b": "https://h2:7444", "c": "https://[::1]:7444"}}
	}
	if m := good(); m.Check() != nil || m.Listen != ":7444" {
		t.Errorf("%v, %q", m.Check(), m.Listen)
	}
	for want, spoil := range map[string]func(*Members){
		`lacks this controller, "x"`: func(m *Members) { m.Name = "x" },
		"at least three members":     func(m *Members) { delete(m.URLs, "c") },
		"b=http://h2:7444":           func(m *Members) { m.URLs["b"] = "http://h2:7444" },
		"b=https://h2":               func(m *Members) { m.URLs["b"] = "https://h2" },
		"new-key":                    func(m *Members) { m.Key = nil },
	} {
		m := good()
		spoil(m)
		if err := m.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}
