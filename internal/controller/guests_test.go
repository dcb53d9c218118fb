// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	pb "steelyard/internal/gen/controllerpb"

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
	if g.enter(neighbour) != nil {
		t.Error("the same /64 has more than its share")
	}
	stranger, _ := pipe(t, "2001:db8:0:1::1", 1)
	if g.enter(stranger) == nil {
		t.Error("another one is refused")
	}
	// A member is no guest: there is room for another, and it is not closed for one.
	first.(*guest).admit()
	if neighbour := g.enter(neighbour); neighbour == nil {
		t.Error("no room after a member was admitted")
	}
	var oldest net.Conn
	for i := 0; g.all.Len() < maxGuests; i++ {
		here, _ := pipe(t, net.IPv4(10, 0, byte(i/maxGuestsFrom), 1).String(), i)
		g.enter(here)
	}
	second := g.all.Front().Value.(*guest)
	oldest = second.Conn
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

// Strangers who say nothing, or little, do not keep members from the controller.
func TestMembersComeThroughStrangers(t *testing.T) {
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
