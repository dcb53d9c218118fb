// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"steelyard/internal/model"
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
	_, silent := listen(t) // accepts in the kernel, never answers
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
	probe := NewProbe(new(net.Dialer).DialContext)
	for _, test := range []struct {
		name   string
		policy model.Health
		server netip.AddrPort
		want   string // in the error; "": passes
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
		err := probe(ctx, test.policy, model.ServerRef{Address: test.server})
		cancel()
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	if asked.Host != "www.example.org" || asked.RequestURI != "/a%20b?status=503" || asked.Method != "GET" {
		t.Errorf("asked for %s %s of %s", asked.Method, asked.RequestURI, asked.Host)
	}
}
