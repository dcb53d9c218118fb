// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

func TestWhatIsRefused(t *testing.T) {
	p := &Policy{
		Control: func() []netip.Addr { return []netip.Addr{netip.MustParseAddr("10.0.0.7")} },
		IsLocal: func(a netip.Addr) (bool, error) { return a == netip.MustParseAddr("192.0.2.1"), nil },
	}
	for text, want := range map[string]struct{ admin, tenant bool }{
		"10.1.0.21": {true, true}, "2001:db8::1": {true, true}, "64:ff9b::a01:15": {true, true}, "fd00:1::1": {true, true},
		"127.0.0.1": {true, false}, "127.9.9.9": {true, false}, "::1": {true, false}, "::ffff:127.0.0.1": {true, false}, "::127.0.0.1": {true, false},
		"64:ff9b::7f00:1": {true, false}, "2002:7f00:1::": {true, false}, "192.0.2.1": {true, false}, "::ffff:192.0.2.1": {true, false},
		"64:ff9b::c000:201": {true, false}, "10.0.0.7": {true, false}, "::ffff:10.0.0.7": {true, false},
		"169.254.169.254": {}, "::ffff:169.254.169.254": {}, "64:ff9b::a9fe:a9fe": {}, "2002:a9fe:a9fe::1": {}, "::ffff:0:169.254.169.254": {},
		"fe80::1": {}, "fd00:ec2::254": {}, "100.100.100.200": {}, "0.0.0.0": {}, "0.1.2.3": {}, "::": {}, "224.0.0.1": {}, "ff02::1": {},
		"255.255.255.255": {}, "240.0.0.1": {}, "fe80::1%1": {},
		"fd00:ec2::23": {}, "fd00:c1::a9fe:a9fe": {}, "fd20:ce::254": {}, "fd20:ce::253": {true, true}, "fd00:42::42": {},
		"64:ff9b:1::a9fe:a9fe": {}, "64:ff9b:1::7f00:1": {true, false}, "2001:db8::5efe:169.254.169.254": {}, "2001:db8::200:5efe:127.0.0.1": {true, false},
	} {
		address := netip.MustParseAddr(text)
		if got := p.Check(address, Administrator) == nil; got != want.admin {
			t.Errorf("%s for an administrator: %v", text, got)
		}
		if got := p.Check(address, Tenant) == nil; got != want.tenant {
			t.Errorf("%s for a tenant: %v", text, got)
		}
	}
	var err error
	if p.Allow, err = ParseAllow([]string{"127.0.0.1", "169.254.0.0/16", "::ffff:192.0.2.1"}); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{"127.0.0.1": true, "::ffff:127.0.0.1": true, "127.0.0.2": false, "169.254.169.254": true, "192.0.2.1": true} {
		if got := p.Check(netip.MustParseAddr(text), Tenant) == nil; got != want {
			t.Errorf("%s, allowed: %v", text, got)
		}
	}
	if _, err := ParseAllow([]string{"localhost"}); err == nil {
		t.Error("a name is allowed")
	}
}

func TestKernelKnowsItsAddresses(t *testing.T) {
	p := &Policy{}
	for _, text := range []string{"127.0.0.1", "127.0.0.77", "::1"} {
		if local, err := kernelHas(netip.MustParseAddr(text)); err != nil || !local && text != "::1" {
			t.Errorf("%s: %v, %v", text, local, err)
		}
	}
	if local, err := kernelHas(netip.MustParseAddr("198.51.100.1")); err != nil || local {
		t.Errorf("a documentation address: %v, %v", local, err)
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range addresses {
		if address, ok := netip.AddrFromSlice(one.(*net.IPNet).IP); ok && p.Check(address.Unmap(), Tenant) == nil {
			t.Errorf("%s is an address of this host", address)
		}
	}
}

// The address is checked when a connection begins, whatever the name led to before, and whichever address an answer redirects to.
func TestConnectingIsChecked(t *testing.T) {
	secret := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "secret") }))
	defer secret.Close()
	_, port, _ := net.SplitHostPort(secret.Listener.Addr().String())
	p := &Policy{}
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]"} {
		for by, want := range map[Author]bool{Administrator: true, Tenant: false} {
			client := &http.Client{Transport: &http.Transport{DialContext: p.Dialer(by).DialContext, DisableKeepAlives: true}}
			response, err := client.Get("http://" + host + ":" + port)
			if err == nil {
				response.Body.Close()
			}
			var refused *Refusal
			if (err == nil) != want || err != nil && !errors.As(err, &refused) {
				t.Errorf("%s by %d: %v", host, by, err)
			}
		}
	}
	if err := p.control("unix", "/run/steelyard/forwarder.sock", Administrator); err == nil {
		t.Error("a Unix socket is no server")
	}
	if err := p.CheckURL("http://localhost:9090", Tenant); err == nil {
		t.Error("localhost passes")
	}
	p.Resolve = func(string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("127.0.0.1")}, nil
	}
	if err := p.CheckURL("http://two.example", Tenant); err == nil {
		t.Error("a name of two addresses, one of them this host's, passes")
	}
	if Of(context.Background(), netip.MustParseAddr("127.0.0.1")) != nil || Of(By(context.Background(), p, Tenant), netip.MustParseAddr("127.0.0.1")) == nil {
		t.Error("the author in a context")
	}
}

func TestErrorsQuoteNothing(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	answers := []string{"root:secret:0:0\n", "HTTP/1.1 secret\r\n\r\n", "HTTP/1.1 200 OK\r\nsecret\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: secret\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: secret\r\n\r\n", "SSH-2.0-secret\r\n", ""}
	go func() {
		for _, answer := range answers {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 4096))
			_, _ = conn.Write([]byte(answer))
			conn.Close()
		}
	}()
	for _, answer := range answers {
		_, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get("http://" + listener.Addr().String())
		if err == nil {
			t.Errorf("%q is an answer", answer)
		} else if text := Explain(err).Error(); strings.Contains(text, "secret") {
			t.Errorf("%q is quoted: %s", answer, text)
		}
	}
}
