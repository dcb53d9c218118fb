// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"steelyard/internal/model"
)

// Errors of this host decide nothing, however clients wrap them; those of servers and of the way to them do.
func TestErrorsOfThisHostAreRecognized(t *testing.T) {
	call := func(name string, errno syscall.Errno) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError(name, errno)}
	}
	server := netip.MustParseAddr("10.1.0.21")
	for name, test := range map[string]struct {
		err  error
		host bool
	}{
		"no local port":          {call("connect", syscall.EADDRNOTAVAIL), true},
		"no descriptor":          {call("socket", syscall.EMFILE), true},
		"no descriptor anywhere": {call("socket", syscall.ENFILE), true},
		"no buffers":             {call("connect", syscall.ENOBUFS), true},
		"no memory to write":     {call("write", syscall.ENOMEM), true},
		"firewall":               {call("connect", syscall.EPERM), true},
		"prohibiting route":      {call("connect", syscall.EACCES), true},
		"interface down":         {call("connect", syscall.ENETDOWN), true},
		"no IPv6":                {call("socket", syscall.EAFNOSUPPORT), true},
		"any failure to bind":    {call("bind", syscall.EINVAL), true},
		"by an HTTP client":      {&url.Error{Op: "Get", URL: "http://a", Err: call("socket", syscall.EMFILE)}, true},
		"by the resolver":        {&net.DNSError{Err: "socket: too many open files", Name: "a"}, true},
		"by both":                {fmt.Errorf("proxy: %w", &url.Error{Op: "Get", Err: &net.OpError{Op: "dial", Err: &net.DNSError{Err: "socket: too many open files"}}}), true},
		"without its query":      {withoutQuery(fmt.Errorf("GET /a?token=secret: %w", call("write", syscall.ENOBUFS)), "/a?token=secret"), true},
		"refused":                {call("connect", syscall.ECONNREFUSED), false},
		"reset":                  {call("read", syscall.ECONNRESET), false},
		"no answer":              {call("connect", syscall.ETIMEDOUT), false},
		"no neighbour":           {call("connect", syscall.EHOSTUNREACH), false},
		"no route":               {call("connect", syscall.ENETUNREACH), false},
		"no such name":           {&net.DNSError{Err: "no such host", IsNotFound: true}, false},
		"status":                 {errors.New("10.1.0.21:80 answered 503"), false},
	} {
		var host *HostError
		if err := ofHost(test.err, server); errors.As(err, &host) != test.host || err.Error() != test.err.Error() {
			t.Errorf("%s: %v, this host's: %v", name, err, !test.host)
		}
	}
	// A server's firewall answers EACCES over IPv6; this host has a route to the address, and none that prohibits it.
	var host *HostError
	if err := ofHost(call("connect", syscall.EACCES), netip.IPv6LinkLocalAllNodes()); !errors.As(err, &host) {
		t.Errorf("%v: datagrams to it are refused here too", err) // without a zone
	}
	if prohibits(netip.IPv6Loopback()) {
		t.Skip("this host has no IPv6")
	}
	if err := ofHost(call("connect", syscall.EACCES), netip.IPv6Loopback()); errors.As(err, &host) {
		t.Errorf("%v: ICMPv6 says that", err)
	}
}

// A real shortage, with both kinds of probe: this process cannot open further files.
func TestMissingDescriptorsAreAHostError(t *testing.T) {
	web := httptest.NewServer(nil)
	defer web.Close()
	address := netip.MustParseAddrPort(web.Listener.Addr().String())
	probe := NewProbe(Connect, nil)
	file, err := os.Open("/dev/null") // its number is about the lowest that is free
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := syscall.Rlimit{Cur: 3, Max: limit.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Error(err)
		}
	}()
	for _, kind := range []model.HealthType{model.HealthTCP, model.HealthHTTP} {
		policy := model.Health{Type: kind, Path: "/", Expect: model.StatusRange{First: 200, Last: 499}, Timeout: time.Minute}
		err := probe(t.Context(), policy, Server{Ref: model.ServerRef{Address: address}})
		var host *HostError
		if !errors.As(err, &host) || !strings.Contains(Remedy(err), "LimitNOFILE") {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// A full table of tracked connections drops the SYNs of checks, without an error.
func TestFullConntrackTableIsAHostError(t *testing.T) {
	files := trackingFiles
	defer func() { trackingFiles = files }()
	listener, silent := listen(t)
	defer listener.Close()
	policy := model.Health{Type: model.HealthHTTP, Path: "/", Timeout: time.Millisecond}
	for _, test := range []struct {
		count, maximum string
		full           bool
	}{{"262144", "262144\n", true}, {"250000\n", "262144\n", true}, {"1000", "262144", false}, {"0", "0", false}, {"", "", false}} {
		directory := t.TempDir()
		for i, text := range []string{test.count, test.maximum} {
			trackingFiles[i] = filepath.Join(directory, strconv.Itoa(i))
			if err := os.WriteFile(trackingFiles[i], []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), policy.Timeout)
		err := NewProbe(Connect, nil)(ctx, policy, Server{Ref: model.ServerRef{Address: silent}})
		cancel()
		var host *HostError
		if errors.As(err, &host) != test.full || !strings.Contains(err.Error(), "no answer") || test.full && !strings.Contains(Remedy(err), "nf_conntrack_max") {
			t.Errorf("%s of %s: %v", test.count, test.maximum, err)
		}
	}
}

// Servers keep their states while this host lacks something, and checks decide again afterwards.
func TestErrorsOfThisHostChangeNoState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		short := &HostError{syscall.EMFILE}
		var failure error
		observed := map[Undecided]int{}
		c := New(Options{Limit: 10,
			Probe: func(context.Context, model.Health, Server) error {
				r.mu.Lock()
				defer r.mu.Unlock()
				return failure
			},
			Report: func(_ model.ServerRef, _ uint64, state State) { t.Errorf("%+v", state) },
			Observe: func(o Observation) {
				r.mu.Lock()
				defer r.mu.Unlock()
				observed[o.Undecided]++
			}})
		defer c.Close()
		fail := func(err error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			failure = err
		}
		fail(fmt.Errorf("dial: %w", short))
		list := targets(1, policy, true, true)
		c.Watch(list)
		time.Sleep(20 * policy.Interval)
		synctest.Wait()
		state, _ := c.State(list[0].Ref)
		l := c.Lateness()
		if !state.Up || state.Undecided < 19 || !strings.Contains(state.UndecidedError, "too many open files") || !state.LastCheck.IsZero() {
			t.Errorf("%+v", state)
		}
		if r.mu.Lock(); observed[HostFault] < 19 || observed[HostFault] > 21 || l.HostFault == 0 || l.HostError == nil {
			t.Errorf("%v, %+v", observed, l)
		}
		r.mu.Unlock()
		fail(nil)
		time.Sleep(2 * policy.Interval)
		synctest.Wait()
		if state, _ := c.State(list[0].Ref); state.Undecided != 0 || state.UndecidedError != "" || !state.LastPassed {
			t.Errorf("%+v", state)
		}
	})
}
