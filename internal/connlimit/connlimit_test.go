// SPDX-License-Identifier: Apache-2.0

package connlimit

import (
	"errors"
	"io"
	"net"
	"testing"
)

// source is a listener whose connections come from given addresses.
type source struct {
	net.Listener
	next chan net.Conn
}

func (s source) Accept() (net.Conn, error) { return <-s.next, nil }

type from struct {
	net.Conn
	ip string
}

func (f from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(f.ip), Port: 1} }

func TestTheOldestOfTheBusiestGivesWay(t *testing.T) {
	in := source{next: make(chan net.Conn, 1)}
	l := Listen(in, 6, 4)
	accept := func(ip string) (here, there net.Conn) {
		t.Helper()
		one, other := net.Pipe()
		in.next <- from{one, ip}
		here, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return here, other
	}
	closed := func(conn net.Conn) bool {
		_, err := conn.Write([]byte{0})
		return errors.Is(err, io.ErrClosedPipe)
	}
	var busy []net.Conn
	for range 4 {
		conn, _ := accept("2001:db8::1")
		busy = append(busy, conn)
	}
	more, _ := accept("2001:db8::2") // of the same /64
	if !closed(busy[0]) {
		t.Error("the oldest of an address is open")
	}
	first, _ := accept("10.0.0.1")
	accept("10.0.0.2")
	third, _ := accept("10.0.0.3")
	if !closed(busy[1]) {
		t.Error("the oldest of the address that has most is open")
	}
	state := l.(*limited)
	if state.all != 6 || len(state.of) != 4 {
		t.Errorf("%d connections of %d hosts", state.all, len(state.of))
	}
	for _, conn := range []net.Conn{busy[2], busy[3], more, first, third} {
		conn.Close()
		conn.Close()
	}
	if state.all != 1 || len(state.of) != 1 {
		t.Errorf("%d connections of %d hosts are left", state.all, len(state.of))
	}
}
