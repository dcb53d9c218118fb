// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	pb "steelyard/internal/gen/controllerpb"
	joining "steelyard/internal/member"
	"steelyard/internal/pki"

	"connectrpc.com/connect"
)

// at is one end of a connection from an address.
type at struct {
	net.Conn
	address net.Addr
}

func (a at) RemoteAddr() net.Addr { return a.address }

func pipe(t *testing.T, ip string, port int) (net.Conn, net.Conn) {
	t.Helper()
	here, there := net.Pipe()
	t.Cleanup(func() { here.Close(); there.Close() })
	return at{here, &net.TCPAddr{IP: net.ParseIP(ip), Port: port}}, there
}

func closed(conn net.Conn) bool {
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	_, err := conn.Read(make([]byte, 1))
	return errors.Is(err, io.EOF)
}

func TestGuestsAreBounded(t *testing.T) {
	g := newGuests(nil)
	var first, firstThere net.Conn
	for i := range maxGuestsFrom {
		here, there := pipe(t, "2001:db8::1", i)
		one := g.enter(here)
		if one == nil {
			t.Fatalf("connection %d is refused", i)
		}
		if i == 0 {
			first, firstThere = one, there
		}
	}
	neighbour, _ := pipe(t, "2001:db8::ffff", 1)
	second := g.all.Front().Next().Value.(*guest)
	first.(*guest).heard.Store(true)
	if g.enter(neighbour) == nil || g.from[second.from] != maxGuestsFrom || second.closed.Err() == nil || closed(firstThere) {
		t.Error("the oldest silent guest of the same /64 does not give way")
	}
	stranger, _ := pipe(t, "2001:db8:0:1::1", 1)
	if g.enter(stranger) == nil {
		t.Error("another one is refused")
	}
	// A member is no guest: its slot is free for another guest, and it is not evicted.
	first.(*guest).accept()
	if neighbour := g.enter(neighbour); neighbour == nil {
		t.Error("no slot is free after a member was accepted")
	}
	var oldest net.Conn
	for i := 0; g.all.Len() < maxGuests; i++ {
		here, _ := pipe(t, net.IPv4(10, 0, byte(i/maxGuestsFrom), 1).String(), i)
		g.enter(here)
	}
	oldest = g.all.Front().Value.(*guest).Conn
	late, _ := pipe(t, "192.0.2.1", 1)
	if g.enter(late) == nil || g.all.Len() != maxGuests {
		t.Errorf("a newcomer among %d", g.all.Len())
	}
	if _, err := oldest.Write([]byte{0}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("the oldest guest is not closed: %v", err)
	}
	if closed(firstThere) {
		t.Error("a member is closed")
	}
	for g.all.Len() > 0 {
		g.all.Front().Value.(*guest).Close()
	}
	if len(g.from) != 0 {
		t.Errorf("%v", g.from)
	}
}

// A few addresses that use up all slots, and send data, do not displace a new client from elsewhere: neither eight addresses nor a whole /48.
func TestGuestsOfLargestNetworkAreEvictedFirst(t *testing.T) {
	for what, address := range map[string]func(i int) string{
		"eight addresses": func(i int) string { return net.IPv4(10, 0, byte(i%8), 1).String() },
		"a network":       func(i int) string { return fmt.Sprintf("2001:db8:7:%x::1", i) },
	} {
		g := newGuests(nil)
		enter := func(ip string, port int) *guest {
			here, _ := pipe(t, ip, port)
			return g.enter(here)
		}
		for i := range maxGuests {
			enter(address(i), i).heard.Store(true)
		}
		newcomer := enter("192.0.2.1", 1)
		for i := range maxGuests {
			enter(address(i), maxGuests+i).heard.Store(true)
		}
		if newcomer.closed.Err() != nil || g.all.Len() != maxGuests {
			t.Errorf("%s: a new client is evicted instead of one with many connections", what)
		}
		for g.all.Len() > 0 {
			g.all.Front().Value.(*guest).Close()
		}
		if len(g.from) != 0 || len(g.near) != 0 {
			t.Errorf("%v, %v", g.from, g.near)
		}
	}
}

// Unauthenticated clients that send nothing, or little, do not keep members from the controller.
func TestMembersConnectDespiteUnauthenticatedClients(t *testing.T) {
	l := newLab(t, 1)
	c := l.controllers[0]
	user := l.join(c, &pb.CreateTokenRequest{Name: "ada", Role: pb.Role_ROLE_ADMIN}, nil)
	list := func() error {
		_, err := user.ListForwarders(t.Context(), connect.NewRequest(&pb.ListForwardersRequest{}))
		return err
	}
	if err := list(); err != nil { // its connection is a member's from now on
		t.Fatal(err)
	}
	for i := range 2 * maxGuestsFrom {
		var conn net.Conn
		var err error
		if i%2 == 0 {
			conn, err = net.Dial("tcp", c.url[len("https://"):])
		} else {
			conn, err = tls.Dial("tcp", c.url[len("https://"):], &tls.Config{InsecureSkipVerify: true})
		}
		if err != nil {
			break // refused at last
		}
		defer conn.Close()
		if i%2 == 1 {
			_, _ = io.WriteString(conn, "POST /steelyard.controller.v1.ControllerService/Join HTTP/1.1\r\nHost: c\r\nContent-Length: 9000\r\n\r\nx")
		}
	}
	if err := list(); err != nil {
		t.Errorf("a member: %v", err)
	}
}

// Silent connections of an address do not block other clients behind it.
func TestSilentConnectionsAreEvicted(t *testing.T) {
	l := newLab(t, 1)
	c := l.controllers[0]
	for range maxGuestsFrom {
		conn, err := net.Dial("tcp", c.url[len("https://"):])
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	viewer := l.join(c, &pb.CreateTokenRequest{Name: "vic", Role: pb.Role_ROLE_VIEWER}, nil)
	if _, err := viewer.ListForwarders(t.Context(), connect.NewRequest(&pb.ListForwardersRequest{})); err != nil {
		t.Error(err)
	}
}

func TestBudgets(t *testing.T) {
	now := time.Unix(1000, 0)
	b := &buckets{now: func() time.Time { return now }}
	of := budget{10, 20}
	for i := range 20 {
		if wait := b.charge("a", of); wait != 0 {
			t.Fatalf("request %d waits %s", i, wait)
		}
	}
	if wait := b.charge("a", of); wait != 100*time.Millisecond {
		t.Errorf("one more waits %s", wait)
	}
	if wait := b.charge("b", of); wait != 0 {
		t.Errorf("another client waits %s", wait)
	}
	now = now.Add(time.Second)
	if wait := b.charge("a", of); wait != 0 {
		t.Errorf("a second later it waits %s", wait)
	}
	for range 100000 {
		b.charge("a", of)
	}
	if wait := b.charge("a", of); wait != maxPause {
		t.Errorf("after a flood it waits %s", wait)
	}
	for i := range 2 * maxBuckets {
		b.charge(string(rune(i)), of)
	}
	if len(b.of) > maxBuckets {
		t.Errorf("%d buckets", len(b.of))
	}
}

// One client's flood of reset requests is refused, and others are served.
func TestRapidResetIsRefused(t *testing.T) {
	before := memberRequests
	memberRequests = budget{5, 50}
	t.Cleanup(func() { memberRequests = before })
	l := newLab(t, 1)
	c := l.controllers[0]
	join := func(name string) user {
		token := l.token(c, &pb.CreateTokenRequest{Name: name, Role: pb.Role_ROLE_VIEWER})
		identity, _, err := joining.Join(t.Context(), "", []string{c.url}, token, pki.User)
		if err != nil {
			t.Fatal(err)
		}
		return userOn(t, c.url, &http.Transport{TLSClientConfig: identity.Client(), ForceAttemptHTTP2: true}, nil)
	}
	viewer, other := join("vic"), join("ada")
	list := func(ctx context.Context, u user) error {
		_, err := u.ListForwarders(ctx, connect.NewRequest(&pb.ListForwardersRequest{}))
		return err
	}
	l.until("the flood is refused", func() bool {
		for range 60 {
			ctx, reset := context.WithCancel(t.Context())
			go reset()
			_ = list(ctx, viewer)
		}
		return connect.CodeOf(list(t.Context(), viewer)) == connect.CodeResourceExhausted
	})
	if err := list(t.Context(), other); err != nil {
		t.Errorf("another client: %v", err)
	}
}
