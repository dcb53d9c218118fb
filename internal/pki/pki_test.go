// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func authority(t *testing.T, now time.Time) *Authority {
	t.Helper()
	made, err := NewAuthority(now)
	if err != nil {
		t.Fatal(err)
	}
	data, err := made.Encode()
	if err != nil {
		t.Fatal(err)
	}
	read, err := DecodeAuthority(data)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// member issues a certificate to a name at a time; the member's clock says `clock`.
func member(t *testing.T, a *Authority, name Name, path string, issued time.Time, clock func() time.Time) *Identity {
	t.Helper()
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	request, err := Request(key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := a.Sign(request, name, issued)
	if err != nil {
		t.Fatal(err)
	}
	identity := NewIdentity(path, clock)
	if err := identity.Replace(key, certificate.Raw, [][]byte{a.Certificate.Raw}); err != nil {
		t.Fatal(err)
	}
	return identity
}

// meet makes a TLS connection and returns both ends' errors.
func meet(client, server *tls.Config) (peer Name, clientErr, serverErr error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return peer, err, err
	}
	defer listener.Close()
	a, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		return peer, err, err
	}
	b, err := listener.Accept()
	if err != nil {
		return peer, err, err
	}
	done := make(chan error, 1)
	c, s := tls.Client(a, client), tls.Server(b, server)
	go func() {
		err := s.Handshake()
		if err != nil {
			b.Close()
		}
		done <- err
	}()
	clientErr = c.Handshake()
	if clientErr != nil {
		a.Close()
	}
	serverErr = <-done
	if certificates := s.ConnectionState().PeerCertificates; len(certificates) > 0 && serverErr == nil {
		peer, serverErr = HolderOf(certificates[0])
	}
	a.Close()
	b.Close()
	return peer, clientErr, serverErr
}

func fixed(at time.Time) func() time.Time { return func() time.Time { return at } }

func TestMutualTLS(t *testing.T) {
	now := time.Now()
	ours, theirs := authority(t, now), authority(t, now)
	controller := member(t, ours, Name{Controller, "c1"}, "", now, time.Now)
	agent := member(t, ours, Name{Forwarder, "f1"}, filepath.Join(t.TempDir(), "identity", "agent.pem"), now, time.Now)
	if peer, clientErr, serverErr := meet(agent.Client(), controller.Server()); clientErr != nil || serverErr != nil || peer != (Name{Forwarder, "f1"}) {
		t.Errorf("%v, %v, %v", peer, clientErr, serverErr)
	}
	read, err := Load(agent.path, time.Now)
	if err != nil || read.Name() != agent.Name() {
		t.Fatalf("%v", err)
	}
	if _, clientErr, serverErr := meet(read.Client(), controller.Server()); clientErr != nil || serverErr != nil {
		t.Errorf("read again: %v, %v", clientErr, serverErr)
	}
	stranger := member(t, theirs, Name{Forwarder, "f1"}, "", now, time.Now)
	if _, _, serverErr := meet(&tls.Config{InsecureSkipVerify: true, GetClientCertificate: stranger.Client().GetClientCertificate},
		controller.Server()); serverErr == nil {
		t.Error("a certificate of another authority is accepted")
	}
	if _, clientErr, _ := meet(agent.Client(), stranger.Server()); clientErr == nil {
		t.Error("a controller of another authority is accepted")
	}
	// An agent's certificate makes no controller.
	other := member(t, ours, Name{Forwarder, "f2"}, "", now, time.Now)
	if _, clientErr, _ := meet(agent.Client(), other.Server()); clientErr == nil || !strings.Contains(clientErr.Error(), "not a controller") {
		t.Errorf("an agent poses as a controller: %v", clientErr)
	}
}

func TestClocks(t *testing.T) {
	now := time.Now()
	a := authority(t, now)
	for name, test := range map[string]struct {
		issued, clock time.Time
		good          bool
	}{
		"a clock that is behind by years":   {now, now.Add(-30 * 365 * 24 * time.Hour), true},
		"an issuer that is ahead by months": {now.Add(100 * 24 * time.Hour), now, true},
		"an issuer that is behind":          {now.Add(-29 * 24 * time.Hour), now, true},
		"an issuer that is far behind":      {now.Add(-31 * 24 * time.Hour), now, false},
		"at its end":                        {now, now.Add(Lifetime - time.Minute), true},
		"after its end":                     {now, now.Add(Lifetime + time.Minute), false},
	} {
		controller := member(t, a, Name{Controller, "c1"}, "", test.issued, fixed(test.clock))
		agent := member(t, a, Name{Forwarder, "f1"}, "", test.issued, fixed(test.clock))
		if _, clientErr, serverErr := meet(agent.Client(), controller.Server()); (clientErr == nil && serverErr == nil) != test.good {
			t.Errorf("%s: %v, %v", name, clientErr, serverErr)
		}
	}
	clock := now
	agent := member(t, a, Name{Forwarder, "f1"}, "", now, func() time.Time { return clock })
	if agent.Due() {
		t.Error("due at once")
	}
	if clock = now.Add(Lifetime*2/3 + time.Hour); !agent.Due() {
		t.Error("not due after two thirds")
	}
}

// A renewal never shortens a certificate's life, and is not repeated at once if clocks differ by weeks.
func TestRenewalKeepsTheLaterExpiry(t *testing.T) {
	now := time.Now()
	const day = 24 * time.Hour
	a, other := authority(t, now), authority(t, now)
	clock := now
	agent := member(t, a, Name{Forwarder, "f1"}, "", now, func() time.Time { return clock })
	renew := func(by *Authority, at time.Time) error {
		t.Helper()
		request, err := Request(agent.Key())
		if err != nil {
			t.Fatal(err)
		}
		certificate, err := by.Sign(request, agent.Name(), at)
		if err != nil {
			t.Fatal(err)
		}
		return agent.Renew(agent.Key(), certificate.Raw, [][]byte{by.Certificate.Raw})
	}
	has := agent.Expires()
	for _, days := range []time.Duration{-1, -40} {
		if err := renew(a, now.Add(days*day)); err == nil || !strings.Contains(err.Error(), "clock") || !agent.Expires().Equal(has) {
			t.Errorf("%d days: %v, and it ends %s", days, err, agent.Expires())
		}
	}
	// By this host's clock, each one is old when it comes.
	clock = now.Add(25 * day)
	if !agent.Due() {
		t.Error("not due")
	}
	if err := renew(a, now.Add(time.Minute)); err != nil || agent.Due() {
		t.Errorf("%v; due again: %v", err, agent.Due())
	}
	agent.renewed = agent.renewed.Add(-renewPause - time.Second)
	if !agent.Due() {
		t.Error("not due an hour later")
	}
	// One of another authority counts, also if it ends sooner; but one that has ended does not.
	clock, agent.behind = now, true
	if err := renew(other, now.Add(-40*day)); err == nil {
		t.Error("it has ended")
	}
	if err := renew(other, now.Add(-day)); err != nil || agent.behind {
		t.Error(err)
	}
}

func TestJoiningByToken(t *testing.T) {
	now := time.Now()
	ours, theirs := authority(t, now), authority(t, now)
	token, err := NewToken(ours.Hash())
	if err != nil {
		t.Fatal(err)
	}
	read, err := ParseToken(" " + token.String() + "\n")
	if err != nil || read != token || !read.Matches(token.SecretHash()) {
		t.Fatalf("%v, %v", read, err)
	}
	controller := member(t, ours, Name{Controller, "c1"}, "", now, time.Now)
	if _, clientErr, serverErr := meet(Joining(read, time.Now), controller.Server()); clientErr != nil || serverErr != nil {
		t.Errorf("%v, %v", clientErr, serverErr)
	}
	// An attacker on the path may present our authority's certificate, but has no certificate issued by it.
	liar := member(t, theirs, Name{Controller, "c1"}, "", now, time.Now)
	middle := liar.Server()
	own, _ := liar.own()
	own.Certificate = [][]byte{own.Certificate[0], ours.Certificate.Raw}
	middle.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return own, nil }
	for name, config := range map[string]*tls.Config{"its own authority": liar.Server(), "ours beside it": middle} {
		if _, clientErr, _ := meet(Joining(read, time.Now), config); clientErr == nil {
			t.Errorf("a controller with %s is accepted", name)
		}
	}
	for _, text := range []string{"", "syt1", "syt1.a.b.c", "x." + token.ID + "." + token.Secret + "." + token.Authority, token.String() + ".x",
		strings.Replace(token.String(), ".", "!.", 2)} {
		if _, err := ParseToken(text); err == nil {
			t.Errorf("%q is a token", text)
		}
	}
	other, _ := NewToken(ours.Hash())
	if other.Matches(token.SecretHash()) {
		t.Error("a token matches another one")
	}
}

func TestNames(t *testing.T) {
	for name, good := range map[string]bool{"f1": true, "a-b": true, "a": true, "": false, "A": false, "a/b": false, "-a": false, "a-": false,
		"a.b": false, strings.Repeat("a", 63): true, strings.Repeat("a", 64): false} {
		if err := CheckName("forwarder", name); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func FuzzParseToken(f *testing.F) {
	f.Add("syt1.AAAAAAAAAAA.AAAAAAAAAAAAAAAA.AAAAAAAAAAAAAAAA")
	f.Fuzz(func(t *testing.T, text string) {
		token, err := ParseToken(text)
		if err == nil && token.String() != strings.TrimSpace(text) {
			t.Errorf("%q became %q", text, token)
		}
	})
}

// A member renews where a controller has newer authorities, and not where one has not heard of them yet.
func TestIdentityBehindItsControllersIsDue(t *testing.T) {
	now := time.Now()
	first := authority(t, now)
	second, err := first.Next(now.Add(-time.Hour)) // by a clock that is late
	if err != nil {
		t.Fatal(err)
	}
	a, b := first.Certificate, second.Certificate
	for name, c := range map[string]struct {
		issuer       *Authority
		knows, shown []*x509.Certificate
		behind       bool
	}{
		"nothing changes":                  {first, []*x509.Certificate{a}, []*x509.Certificate{a}, false},
		"one is introduced":                {first, []*x509.Certificate{a}, []*x509.Certificate{a, b}, true},
		"it is known":                      {first, []*x509.Certificate{a, b}, []*x509.Certificate{a, b}, false},
		"it signs":                         {first, []*x509.Certificate{a, b}, []*x509.Certificate{b, a}, true},
		"here too":                         {second, []*x509.Certificate{b, a}, []*x509.Certificate{b, a}, false},
		"not heard that it signs":          {second, []*x509.Certificate{b, a}, []*x509.Certificate{a, b}, false},
		"not heard that it was introduced": {first, []*x509.Certificate{a, b}, []*x509.Certificate{a}, false},
		"the former one has ended":         {second, []*x509.Certificate{b, a}, []*x509.Certificate{b}, true},
	} {
		i := member(t, c.issuer, Name{Forwarder, "f1"}, "", now, func() time.Time { return now })
		if err := i.Replace(i.Key(), i.certificate.Raw, Raw(c.knows)); err != nil {
			t.Fatal(err)
		}
		i.compare(tls.ConnectionState{PeerCertificates: append([]*x509.Certificate{a}, c.shown...)})
		if i.Due() != c.behind {
			t.Errorf("%s: %v", name, i.Due())
		}
	}
}
