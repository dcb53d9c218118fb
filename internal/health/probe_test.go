// SPDX-License-Identifier: Apache-2.0

package health

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"steelyard/internal/model"
	"steelyard/internal/store"
)

func listen(t *testing.T) (net.Listener, netip.AddrPort) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener, netip.MustParseAddrPort(listener.Addr().String())
}

// A server that expects the PROXY protocol's header answers only checks that begin with the header.
func TestProbesSendAUserAgent(t *testing.T) {
	listener, address := listen(t)
	seen := make(chan string, 1)
	go http.Serve(introducedListener{listener, seen}, http.NotFoundHandler())
	probe := NewProbe(Connect, nil)
	policy := model.Health{Type: model.HealthHTTP, Path: "/", Expect: model.StatusRange{First: 404, Last: 404}}
	for how, header := range map[model.ClientAddress]string{
		model.ProxyV1: "PROXY UNKNOWN\r\n", model.ProxyV2: "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00", 0: "", model.TOA: "",
	} {
		for _, port := range []uint16{0, address.Port(), address.Port() - 1} {
			policy.Proxy, policy.Port = how, port
			server := address
			if port == address.Port()-1 { // the check uses another port than the server's
				policy.Port, server = address.Port(), netip.AddrPortFrom(address.Addr(), port)
				header = ""
			}
			if err := probe(t.Context(), policy, Server{Ref: model.ServerRef{Address: server}}); err != nil {
				t.Errorf("%s, port %d: %v", how, port, err)
			}
			if got := <-seen; got != header {
				t.Errorf("%s, port %d: began with %q, not %q", how, port, got, header)
			}
		}
	}
}

// introducedListener reads the bytes before a request's first line from each connection.
type introducedListener struct {
	net.Listener
	seen chan<- string
}

func (l introducedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	reader := bufio.NewReader(conn)
	var before []byte
	for {
		if next, err := reader.Peek(5); err != nil || string(next) == "GET /" {
			break
		}
		b, _ := reader.ReadByte()
		before = append(before, b)
	}
	l.seen <- string(before)
	return bufferedConn{conn, reader}, nil
}

type bufferedConn struct {
	net.Conn
	reader *bufio.Reader
}

func (c bufferedConn) Read(p []byte) (int, error) { return c.reader.Read(p) }

// A server may send back what it got; the query stays out of the error, as it may be a token.
func TestErrorsHaveNoQuery(t *testing.T) {
	listener, address := listen(t)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			line, _ := bufio.NewReader(conn).ReadString('\r')
			fmt.Fprintf(conn, "%s\r\n\r\n", line)
			conn.Close()
		}
	}()
	policy := model.Health{Type: model.HealthHTTP, Path: "/healthz?token=s3cr3t-s3cr3t", Timeout: time.Minute}
	err := NewProbe(Connect, nil)(t.Context(), policy, Server{Ref: model.ServerRef{Address: address}})
	if err == nil || strings.Contains(err.Error(), "s3cr3t") || strings.Contains(err.Error(), "/healthz") {
		t.Errorf("%v", err)
	}
}

func TestProbes(t *testing.T) {
	var asked *http.Request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r
		var status int
		fmt.Sscanf(r.URL.Query().Get("status"), "%d", &status)
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
	}))
	defer server.Close()
	web := netip.MustParseAddrPort(server.Listener.Addr().String())
	_, silent := listen(t) // the kernel accepts, but no answer comes
	closedListener, closed := listen(t)
	closedListener.Close()

	get := func(status int) model.Health {
		return model.Health{Type: model.HealthHTTP, Path: fmt.Sprintf("/a%%20b?status=%d", status), Host: "www.example.org",
			Expect: model.StatusRange{First: 200, Last: 399}, Timeout: time.Minute}
	}
	brief := func(h model.Health) model.Health {
		h.Timeout = 20 * time.Millisecond
		return h
	}
	tcp := model.Health{Type: model.HealthTCP, Timeout: time.Minute}
	other := tcp
	other.Port = web.Port()
	probe := NewProbe(Connect, nil)
	for _, test := range []struct {
		name   string
		policy model.Health
		server netip.AddrPort
		want   string // text in the error; "": the check passes
	}{
		{"tcp", tcp, silent, ""},
		{"tcp refused", tcp, closed, "connection refused"},
		{"tcp on another port", other, closed, ""},
		{"http", get(200), web, ""},
		{"http redirect is a status like others", get(302), web, ""},
		{"http error", get(503), web, "answered 503 Service Unavailable, expected 200-399"},
		{"http refused", get(200), closed, "connection refused"},
		{"http without an answer", brief(get(200)), silent, "no answer from " + silent.String() + " within 20ms"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), test.policy.Timeout)
		err := probe(ctx, test.policy, Server{Ref: model.ServerRef{Address: test.server}})
		cancel()
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	if asked.Host != "www.example.org" || asked.RequestURI != "/a%20b?status=503" || asked.Method != "GET" {
		t.Errorf("asked for %s %s of %s", asked.Method, asked.RequestURI, asked.Host)
	}
}

// A server with a mark is checked on the VIP; this does not change the HTTP host name.
func TestMarkedChecksGoToTheVIP(t *testing.T) {
	var host string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { host = r.Host }))
	defer server.Close()
	var to Endpoint
	probe := NewProbe(func(ctx context.Context, asked Endpoint) (net.Conn, error) {
		to = asked
		return new(net.Dialer).DialContext(ctx, "tcp", server.Listener.Addr().String())
	}, nil)
	one := Server{Mark: 0x53000009, Ref: model.ServerRef{
		Service: model.ServiceKey{VIP: netip.MustParseAddr("10.0.0.80"), Port: 80}, Address: netip.MustParseAddrPort("10.1.0.21:80")}}
	policy := model.Health{Type: model.HealthHTTP, Path: "/", Expect: model.StatusRange{First: 200, Last: 299}, Timeout: time.Minute}
	want := Endpoint{netip.MustParseAddrPort("10.0.0.80:80"), 0x53000009, netip.MustParseAddr("10.1.0.21")}
	if err := probe(t.Context(), policy, one); err != nil || to != want || host != "10.1.0.21:80" {
		t.Errorf("%v: connected to %+v, asked for %s", err, to, host)
	}
	policy.Port, policy.Type = 8080, model.HealthTCP
	want.Address = netip.MustParseAddrPort("10.0.0.80:8080")
	if err := probe(t.Context(), policy, one); err != nil || to != want {
		t.Errorf("%v: connected to %+v", err, to)
	}
	policy.Expect, policy.Type = model.StatusRange{First: 300, Last: 300}, model.HealthHTTP
	if err := probe(t.Context(), policy, one); err == nil || !strings.Contains(err.Error(), "10.0.0.80:8080 at 10.1.0.21 answered") {
		t.Errorf("%v", err)
	}
}

func TestConnectMarksItsSocket(t *testing.T) {
	listener, address := listen(t)
	conn, err := Connect(t.Context(), Endpoint{address, 0x53000009, netip.MustParseAddr("127.0.0.1")})
	if errors.Is(err, syscall.EPERM) {
		t.Skip("marks are root's")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var mark int
	if err := raw.Control(func(fd uintptr) { mark, err = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_MARK) }); err != nil || mark != 0x53000009 {
		t.Errorf("mark %#x, %v", mark, err)
	}
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	if peer := accepted.RemoteAddr().(*net.TCPAddr).AddrPort().Addr(); peer != netip.MustParseAddr("127.0.0.1") {
		t.Errorf("the server sees %s", peer)
	}
}

func TestSourcesOfTheOtherFamily(t *testing.T) {
	addresses, err := hostAddresses()
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, a := range addresses {
		found = found || a.address == netip.MustParseAddr("127.0.0.1") && a.interfaceIndex == 1 && !a.deprecated
	}
	if !found {
		t.Errorf("lo's address is missing: %v", addresses)
	}
	source, err := sourceTo(netip.MustParseAddr("127.0.0.1"), false)
	if err == nil && (source.Is4() || source.IsLoopback()) || err != nil && !strings.Contains(err.Error(), "no IPv6 address") {
		t.Errorf("%s, %v", source, err)
	}
}

// A server may say in its answer how busy it is; one that failed says nothing that counts.
func TestAnswersReachTheCallback(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Endpoint-Load-Metrics", "TEXT cpu_utilization=0.5")
		if r.URL.Path == "/bad" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = w.Write([]byte("body"))
	}))
	defer server.Close()
	var got []string
	probe := NewProbe(Connect, func(_ Server, response *http.Response) {
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Error(err)
		}
		got = append(got, response.Header.Get("Endpoint-Load-Metrics")+" "+string(body))
	})
	one := Server{Ref: model.ServerRef{Address: netip.MustParseAddrPort(server.Listener.Addr().String())}}
	policy := model.Health{Type: model.HealthHTTP, Path: "/", Expect: model.StatusRange{First: 200, Last: 299}, Timeout: time.Minute}
	if err := probe(t.Context(), policy, one); err != nil {
		t.Error(err)
	}
	policy.Path = "/bad"
	if err := probe(t.Context(), policy, one); err == nil {
		t.Error("it passed")
	}
	if want := "TEXT cpu_utilization=0.5 body"; len(got) != 1 || got[0] != want {
		t.Errorf("%q", got)
	}
}

// How long connecting took is known of a check, apart from how long the answer did.
func TestChecksKnowTheirConnection(t *testing.T) {
	const slow = 20 * time.Millisecond
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(slow) }))
	defer server.Close()
	address := netip.MustParseAddrPort(server.Listener.Addr().String())
	policy := model.Health{Type: model.HealthHTTP, Path: "/", Expect: model.StatusRange{First: 200, Last: 299}, Timeout: time.Minute, Interval: 5 * time.Millisecond, Rise: 1, Fall: 1}
	states := make(chan State, 1)
	checker := New(Options{Limit: 1, Probe: NewProbe(func(ctx context.Context, to Endpoint) (net.Conn, error) {
		time.Sleep(slow)
		return Connect(ctx, to)
	}, nil), Report: func(_ model.ServerRef, _ uint64, state State) { states <- state }, Observe: func(Observation) {}})
	defer checker.Close()
	ref := model.ServerRef{Address: address}
	checker.Watch([]store.Target{{Ref: ref, Policy: policy}})
	<-states
	state, _ := checker.State(ref)
	if state.LastConnect < slow || state.LastDuration < state.LastConnect+slow {
		t.Errorf("%+v", state)
	}
	listener, gone := listen(t)
	listener.Close()
	connect := &connection{}
	err := NewProbe(Connect, nil)(context.WithValue(t.Context(), connectionKey{}, connect), policy, Server{Ref: model.ServerRef{Address: gone}})
	if err == nil || connect.took() != 0 {
		t.Errorf("%v, %s", err, connect.took())
	}
}
