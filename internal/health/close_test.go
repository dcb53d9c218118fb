// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"steelyard/internal/model"
)

// For servers, a check ends as a client's connection does: whatever they have sent, and whichever side closes first.
func TestChecksEndInOrder(t *testing.T) {
	const web = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
	for name, test := range map[string]struct {
		kind   model.HealthType
		linger time.Duration
		serve  func(net.Conn)
		reset  bool
	}{
		"tcp":                       {model.HealthTCP, time.Minute, func(net.Conn) {}, false},
		"tcp with a greeting":       {model.HealthTCP, time.Minute, func(c net.Conn) { io.WriteString(c, "220 mail.example.org\r\n") }, false},
		"tcp, a reset":              {model.HealthTCP, 0, func(net.Conn) {}, true},
		"http":                      {model.HealthHTTP, time.Minute, func(c net.Conn) { serveWeb(c, web+"hello") }, false},
		"http, a body not read":     {model.HealthHTTP, time.Minute, func(c net.Conn) { serveWeb(c, web); io.WriteString(c, "hello") }, false},
		"http, an error":            {model.HealthHTTP, time.Minute, func(c net.Conn) { serveWeb(c, strings.Replace(web, "200", "503", 1)+"hello") }, false},
		"http, a server that stays": {model.HealthHTTP, 100 * time.Millisecond, func(c net.Conn) { serveWeb(c, web+"hello"); io.Copy(io.Discard, c) }, false},
		"http, a reset":             {model.HealthHTTP, 0, func(c net.Conn) { serveWeb(c, web+"hello") }, true},
	} {
		listener, address := listen(t)
		ended := make(chan error, 1)
		go func() {
			conn, err := listener.Accept()
			if err != nil {
				ended <- err
				return
			}
			defer conn.Close()
			test.serve(conn)
			if test.kind == model.HealthHTTP && test.linger == time.Minute {
				conn.(*net.TCPConn).CloseWrite()
			}
			_, err = io.Copy(io.Discard, conn)
			ended <- err
		}()
		policy := model.Health{Type: test.kind, Path: "/", Expect: model.StatusRange{First: 200, Last: 299}, Timeout: time.Minute, Linger: test.linger}
		_ = NewProbe(Connect, nil)(t.Context(), policy, Server{Ref: model.ServerRef{Address: address}})
		if err := <-ended; test.reset != errors.Is(err, syscall.ECONNRESET) || !test.reset && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func serveWeb(conn net.Conn, answer string) {
	request := make([]byte, 4096)
	_, _ = conn.Read(request)
	io.WriteString(conn, answer)
}

// Checks leave half of a destination's ports, and half of the kernel's TIME-WAITs, to others.
func TestTimeWaitIsBounded(t *testing.T) {
	c := newCloser()
	if c.perDestination < 100 || c.all < 100 {
		t.Errorf("%+v", c)
	}
	c.perDestination, c.all = 100, 250
	now := time.Now()
	fill := func(to string, tries int) (allowed int) {
		for range tries {
			if c.allow(netip.MustParseAddrPort(to), now) {
				allowed++
			}
		}
		return allowed
	}
	if n := fill("10.0.0.1:80", 1000); n != 100 {
		t.Errorf("%d of the first", n)
	}
	if n := fill("10.0.0.2:80", 1000) + fill("10.0.0.3:80", 1000); n != 150 {
		t.Errorf("%d of the others", n)
	}
	now = now.Add(timeWait / 2)
	if n := fill("10.0.0.1:80", 1000); n != 50 {
		t.Errorf("%d after half of the time", n)
	}
	now = now.Add(2 * timeWait)
	if n := fill("10.0.0.1:80", 1000); n != 100 || len(c.each) != 1 {
		t.Errorf("%d, %d destinations", n, len(c.each))
	}
}

// A check that is over its bound ends by a reset, and says so.
func TestChecksAboveTheBoundEndByAReset(t *testing.T) {
	listener, address := listen(t)
	c := newCloser()
	c.perDestination = 1
	for i := range 2 {
		conn, err := c.dial(Connect)(withLinger(t.Context(), lingering{limit: time.Minute}), Endpoint{Address: address})
		if err != nil {
			t.Fatal(err)
		}
		peer, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		if _, err = io.Copy(io.Discard, peer); errors.Is(err, syscall.ECONNRESET) != (i == 1) {
			t.Errorf("%d: %v", i, err)
		}
		peer.Close()
	}
	if c.resets.Load() != 1 {
		t.Errorf("%d resets", c.resets.Load())
	}
}

// Sockets with an address of their own share ports between destinations.
func TestMarkedChecksShareLocalPorts(t *testing.T) {
	const destinations = 3
	ports := map[int]int{}
	control := func(_, _ string, conn syscall.RawConn) error { return bindWithoutPort(conn) }
	// A range of one port: the second destination gets it only if the port is not bound before connect().
	free, address := listen(t)
	free.Close()
	for range destinations {
		_, to := listen(t)
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}, Control: func(network, at string, conn syscall.RawConn) error {
			if err := control(network, at, conn); err != nil {
				return err
			}
			return narrowPorts(conn, address.Port())
		}}
		conn, err := dialer.DialContext(context.Background(), "tcp", to.String())
		if errors.Is(err, syscall.ENOPROTOOPT) {
			t.Skip("this kernel has no port range of a socket")
		}
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ports[conn.LocalAddr().(*net.TCPAddr).Port]++
	}
	if ports[int(address.Port())] != destinations {
		t.Errorf("%v", ports)
	}
}

// narrowPorts sets the range of local ports of a socket to one (IP_LOCAL_PORT_RANGE, Linux 6.3).
func narrowPorts(conn syscall.RawConn, port uint16) error {
	var failed error
	err := conn.Control(func(fd uintptr) {
		failed = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, 51, int(port)<<16|int(port))
	})
	return errors.Join(err, failed)
}
