// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"steelyard/internal/cluster"
	pb "steelyard/internal/gen/controllerpb"
	joining "steelyard/internal/member"
	"steelyard/internal/pki"

	"connectrpc.com/connect"
)

// visit sends one request of a user over a new connection.
func (l *lab) visit(c *runningController, identity *pki.Identity) error {
	u := userOn(l.T, c.url, &http.Transport{TLSClientConfig: identity.Client(), DisableKeepAlives: true}, nil)
	_, err := u.ListForwarders(l.Context(), connect.NewRequest(&pb.ListForwardersRequest{}))
	return err
}

// awaitAuthorities waits for the states of authorities, and for the members that are missing.
func (l *lab) awaitAuthorities(states []pb.Authority_State, waiting ...string) *pb.ListAuthoritiesResponse {
	l.Helper()
	var now *pb.ListAuthoritiesResponse
	for begun := time.Now(); time.Since(begun) < 4*time.Minute; time.Sleep(5 * time.Millisecond) {
		response, err := l.controllers[0].admin.ListAuthorities(l.Context(), connect.NewRequest(&pb.ListAuthoritiesRequest{}))
		if err != nil {
			l.Fatal(err)
		}
		now = response.Msg
		var have []pb.Authority_State
		for _, one := range now.GetAuthorities() {
			have = append(have, one.GetState())
		}
		if slices.Equal(have, states) && slices.Equal(now.GetWaitingFor(), waiting) {
			return now
		}
	}
	l.Fatalf("not %v, waiting for %v: %v", states, waiting, now)
	return nil
}

func (l *lab) replaceAuthority(distrust bool) error {
	_, err := l.controllers[0].admin.ReplaceAuthority(l.Context(), connect.NewRequest(&pb.ReplaceAuthorityRequest{Distrust: distrust}))
	return err
}

const (
	signs  = pb.Authority_STATE_SIGNS
	next   = pb.Authority_STATE_NEXT
	former = pb.Authority_STATE_FORMER
)

// All members trust the new authority before it signs, and have its certificates before the former one ends. Agents renew theirs automatically, users
// with their next commands; members that are missing are named.
func TestReplacedAuthorityKeepsMembersConnected(t *testing.T) {
	l := newLab(t, 2)
	f1, f2 := l.addForwarder("f1"), l.addForwarder("f2")
	c := l.controllers[0]
	path := filepath.Join(t.TempDir(), "ada.pem")
	ada, _, err := joining.Join(t.Context(), path, []string{c.url}, l.token(c, &pb.CreateTokenRequest{Name: "ada", Role: pb.Role_ROLE_VIEWER}), pki.User)
	if err != nil {
		t.Fatal(err)
	}
	old, err := pki.Load(path, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := apply(t.Context(), c.admin, "f1", "", file(1)); err != nil {
		t.Fatal(err)
	}
	first := l.awaitAuthorities([]pb.Authority_State{signs}).GetAuthorities()[0].GetKeyHash()

	if err := l.replaceAuthority(false); err != nil {
		t.Fatal(err)
	}
	l.awaitAuthorities([]pb.Authority_State{signs, next}, "ada") // the agents know it
	if err := l.replaceAuthority(false); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("%v", err)
	}
	renew := func() {
		t.Helper()
		if err := l.visit(l.controllers[1], ada); err != nil || !ada.Due() {
			t.Fatalf("%v, %v", err, ada.Due())
		}
		if err := joining.Renew(t.Context(), ada, c.url); err != nil {
			t.Fatal(err)
		}
		if err := l.visit(l.controllers[1], ada); err != nil { // shows what she has now
			t.Fatal(err)
		}
	}
	renew()
	now := l.awaitAuthorities([]pb.Authority_State{signs, former}, "ada")
	if now.GetAuthorities()[1].GetKeyHash() != first || now.GetSinceUnixS() == 0 {
		t.Errorf("%v", now)
	}
	renew()
	l.awaitAuthorities([]pb.Authority_State{signs})
	if ada, err = pki.Load(path, time.Now); err != nil {
		t.Fatal(err)
	}
	l.until("she has no more than the one that signs", func() bool {
		if err := l.visit(c, ada); err != nil {
			t.Fatal(err)
		}
		if !ada.Due() {
			return true
		}
		if err := joining.Renew(t.Context(), ada, c.url); err != nil {
			t.Fatal(err)
		}
		return false
	})
	l.until("the former one's certificates are void", func() bool { return l.visit(c, old) != nil })

	for _, f := range []*runningAgent{f1, f2} { // also from its disk
		f.stop()
		f.options.Token = ""
		l.start(f)
	}
	l.until("a change reaches its forwarder", func() bool {
		response, err := apply(t.Context(), c.admin, "f1", "", file(2))
		return err == nil && response.GetRevision() > 0 && len(response.GetWarnings()) == 0
	})
	l.addForwarder("f3") // a token names the new one
	neverBack(t, "f1", f1.Forwarder)
}

// keyWithRequest creates a key, and a certificate request for it.
func keyWithRequest(t *testing.T) (*ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	request, err := pki.Request(key)
	if err != nil {
		t.Fatal(err)
	}
	return key, request
}

// keep returns a user whose connections stay open.
func (l *lab) keep(c *runningController, identity *pki.Identity, headers map[string]string) user {
	return userOn(l.T, c.url, &http.Transport{TLSClientConfig: identity.Client(), ForceAttemptHTTP2: true}, headers)
}

// A connection that is older than the end of the authority is closed: it can no longer call, watch, or obtain a certificate of the new authority. So
// is the connection of a thief who has signed a controller's certificate.
func TestDistrustedAuthorityClosesOpenConnections(t *testing.T) {
	l := newLab(t, 1)
	c := l.controllers[0]
	identities := map[string]*pki.Identity{}
	for _, name := range []string{"ada", "rae", "wim"} {
		one, _, err := joining.Join(t.Context(), "", []string{c.url}, l.token(c, &pb.CreateTokenRequest{Name: name, Role: pb.Role_ROLE_ADMIN}), pki.User)
		if err != nil {
			t.Fatal(err)
		}
		identities[name] = one
	}
	now, err := l.store.Snapshot(t.Context(), authorityKeys...)
	if err != nil {
		t.Fatal(err)
	}
	stolen, err := decodeAuthorities(now)
	if err != nil {
		t.Fatal(err)
	}
	key, request := keyWithRequest(t)
	forged, err := stolen.signs.Sign(request, pki.Name{Kind: pki.Controller, Name: "c0ffee"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	identities["thief"] = pki.NewIdentity("", time.Now)
	if err := identities["thief"].Replace(key, forged.Raw, pki.Raw(stolen.chain())); err != nil {
		t.Fatal(err)
	}
	behalf := map[string]string{behalfHeader: socketKind + "/uid=0"} // a header that only controllers may send
	users := map[string]user{}
	for name, identity := range identities {
		users[name] = l.keep(c, identity, behalf)
	}
	list := func(name string) error {
		_, err := users[name].ListForwarders(t.Context(), connect.NewRequest(&pb.ListForwardersRequest{}))
		return err
	}
	for name := range users {
		if err := list(name); err != nil {
			t.Fatal(name, err)
		}
	}
	var watches []*connect.ServerStreamForClient[pb.WatchResponse]
	for _, name := range []string{"wim", "thief"} {
		stream := watchAs(t, l.keep(c, identities[name], behalf), 0)
		if !stream.Receive() {
			t.Fatal(name, stream.Err())
		}
		watches = append(watches, stream)
	}
	own := watchAs(t, c.admin, 0) // over the Unix socket, which needs no certificate
	if !own.Receive() {
		t.Fatal(own.Err())
	}

	if err := l.replaceAuthority(true); err != nil {
		t.Fatal(err)
	}
	for _, stream := range watches {
		for stream.Receive() { // events that were sent before
		}
		if connect.CodeOf(stream.Err()) != connect.CodeUnauthenticated {
			t.Errorf("a watch ends by %v", stream.Err())
		}
	}
	for _, name := range []string{"ada", "thief"} {
		if err := list(name); connect.CodeOf(err) != connect.CodeUnauthenticated {
			t.Errorf("%s, on an open connection: %v", name, err)
		}
	}
	if request, err = pki.Request(identities["rae"].Key()); err != nil {
		t.Fatal(err)
	}
	if _, err := users["rae"].Renew(t.Context(), connect.NewRequest(&pb.RenewRequest{Request: request})); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("a certificate of the new authority for one of the stolen one: %v", err)
	}
	l.until("ada's connection is closed", func() bool {
		err := list("ada")
		return err != nil && connect.CodeOf(err) != connect.CodeUnauthenticated // the next one is refused by its handshake
	})
	if _, err := l.store.Commit(t.Context(), new(cluster.Txn).Put(keyStatus+"f1", encode(status{Applied: 1}), 0)); err != nil {
		t.Fatal(err)
	}
	if !own.Receive() {
		t.Errorf("the watch of the socket: %v", own.Err())
	}
}

type joinMethod func(context.Context, *connect.Request[pb.JoinRequest]) (*connect.Response[pb.JoinResponse], error)

// joinRaw joins without checking the authority that a token names. Returns the certificates of the answer.
func joinRaw(t *testing.T, join joinMethod, token string) ([]*x509.Certificate, error) {
	t.Helper()
	_, request := keyWithRequest(t)
	response, err := join(t.Context(), connect.NewRequest(&pb.JoinRequest{Token: token, Request: request}))
	if err != nil {
		return nil, err
	}
	var all []*x509.Certificate
	for _, der := range append([][]byte{response.Msg.GetCertificate()}, response.Msg.GetAuthorities()...) {
		one, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	return all, nil
}

// A token ends with the authority that signed when it was created, even at a controller that does not know of the replacement yet.
func TestTokensEndWithTheirAuthority(t *testing.T) {
	for _, distrust := range []bool{false, true} {
		l := newLab(t, 1)
		c := l.controllers[0]
		deaf := &Server{store: l.store, id: "deaf", url: "https://deaf", now: time.Now}
		before, err := deaf.present(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		deaf.authorities.Store(before)
		request := &pb.CreateTokenRequest{Name: "ada", Role: pb.Role_ROLE_ADMIN}
		early := l.token(c, request)
		if err := l.replaceAuthority(distrust); err != nil {
			t.Fatal(err)
		}
		now := l.awaitAuthorities([]pb.Authority_State{signs}).GetAuthorities()[0].GetKeyHash()

		healthy := userOn(t, c.url, &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, nil)
		for name, join := range map[string]joinMethod{"a controller": healthy.Join, "a controller that has missed it": deaf.Join} {
			if _, err := joinRaw(t, join, early); connect.CodeOf(err) != connect.CodeUnauthenticated {
				t.Errorf("distrust %v, %s, a token from before: %v", distrust, name, err)
			}
			token := l.token(c, request)
			has, err := joinRaw(t, join, token)
			if err != nil || pki.KeyHash(has[1]) != now || has[0].CheckSignatureFrom(has[1]) != nil {
				t.Errorf("distrust %v, %s: %v, %v", distrust, name, has, err)
			}
			if _, err := joinRaw(t, join, token); connect.CodeOf(err) != connect.CodeUnauthenticated {
				t.Errorf("distrust %v, %s, a used token: %v", distrust, name, err)
			}
		}

		// New certificates are of the new authority too, and a caller with a void certificate receives none.
		_, csr := keyWithRequest(t)
		void, err := before.signs.Sign(csr, pki.Name{Kind: pki.User, Name: "ada"}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		admin := principal{Name: pki.Name{Kind: socketKind, Name: "root"}, member: member{Role: pb.Role_ROLE_ADMIN, Key: pki.KeyHash(void)}}
		as := func(caller principal) context.Context { return context.WithValue(t.Context(), callerKey{}, caller) }
		made, err := deaf.CreateToken(as(admin), connect.NewRequest(request))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := joinRaw(t, healthy.Join, made.Msg.GetToken()); err != nil {
			t.Errorf("distrust %v, a token of a controller that has missed it: %v", distrust, err)
		}
		admin.Name, admin.certificate = pki.Name{Kind: pki.User, Name: "ada"}, void
		if _, err := deaf.CreateToken(as(admin), connect.NewRequest(request)); connect.CodeOf(err) != connect.CodeUnauthenticated {
			t.Errorf("distrust %v, a token by a void certificate: %v", distrust, err)
		}
		if _, err := deaf.Renew(as(admin), connect.NewRequest(&pb.RenewRequest{Request: csr})); connect.CodeOf(err) != connect.CodeUnauthenticated {
			t.Errorf("distrust %v, a certificate for one that is void: %v", distrust, err)
		}
	}
}

// All certificates of a stolen authority are void at once, and forwarders keep their configuration; a member with a new token joins again.
func TestDistrustedAuthorityVoidsCertificatesAtOnce(t *testing.T) {
	l := newLab(t, 2)
	f1 := l.addForwarder("f1")
	c := l.controllers[0]
	if _, err := apply(t.Context(), c.admin, "f1", "", file(1)); err != nil {
		t.Fatal(err)
	}
	ada, _, err := joining.Join(t.Context(), "", []string{c.url}, l.token(c, &pb.CreateTokenRequest{Name: "ada", Role: pb.Role_ROLE_ADMIN}), pki.User)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.replaceAuthority(true); err != nil {
		t.Fatal(err)
	}
	for _, one := range l.controllers {
		l.until("her certificate is void", func() bool { return l.visit(one, ada) != nil })
	}
	l.until("the agent is disconnected", func() bool { return l.owner("f1") == "" })
	if f1.Server(vip, server).GetWeight() != 1 {
		t.Error("the forwarder has lost what it had")
	}
	f1.stop()
	f1.options.Token = l.token(c, &pb.CreateTokenRequest{Name: "f1", Role: pb.Role_ROLE_FORWARDER})
	f1.options.State = t.TempDir() // as if identity.pem had been removed
	l.start(f1)
	l.awaitOwner("f1")
	l.until("a change reaches it", func() bool {
		response, err := apply(t.Context(), c.admin, "f1", "", file(2))
		return err == nil && response.GetRevision() > 0 && len(response.GetWarnings()) == 0
	})
}

// errorsOf collects a controller's logged errors about its authority.
type errorsOf struct {
	slog.Handler
	errors chan string
}

func (errorsOf) Enabled(context.Context, slog.Level) bool { return true }

func (e errorsOf) WithAttrs([]slog.Attr) slog.Handler { return e }

func (e errorsOf) Handle(ctx context.Context, record slog.Record) error {
	record.Attrs(func(one slog.Attr) bool {
		if err, is := one.Value.Any().(error); is && record.Message == "the certificate authority" {
			select {
			case e.errors <- err.Error():
			default:
			}
		}
		return true
	})
	return nil
}

// A controller whose etcd was emptied logs it, and continues with its last authority.
func TestControllerKeepsItsAuthorityIfEtcdLosesIt(t *testing.T) {
	l := newLab(t, 0)
	said := errorsOf{slog.DiscardHandler, make(chan string, 1)}
	l.tune = func(o *Options) { o.Log = slog.New(said) }
	c := l.addController()
	ada, _, err := joining.Join(t.Context(), "", []string{c.url}, l.token(c, &pb.CreateTokenRequest{Name: "ada", Role: pb.Role_ROLE_ADMIN}), pki.User)
	if err != nil {
		t.Fatal(err)
	}
	before, err := l.store.Get(t.Context(), keyAuthority)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.store.Commit(t.Context(), new(cluster.Txn).Delete(keyAuthority)); err != nil {
		t.Fatal(err)
	}
	const want = "no certificate authority any more"
	if text := <-said.errors; !strings.Contains(text, want) {
		t.Error(text)
	}
	if err := l.replaceAuthority(true); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a replacement of nothing: %v", err)
	}
	if err := l.visit(c, ada); err != nil {
		t.Error(err)
	}
	if _, err := l.store.Commit(t.Context(), new(cluster.Txn).Put(keyAuthority, before.Value, 0)); err != nil {
		t.Fatal(err)
	}
	if err := l.replaceAuthority(true); err != nil {
		t.Error(err)
	}
	l.until("her certificate is void", func() bool { return l.visit(c, ada) != nil })
}
