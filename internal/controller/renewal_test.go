// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/tls"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "steelyard/internal/gen/controllerpb"
	joining "steelyard/internal/member"
	"steelyard/internal/pki"
)

// Certificates of a controller and of a connected agent are renewed after two thirds of their life; the agent reconnects with its new one.
func TestCertificatesAreRenewedInTime(t *testing.T) {
	var later atomic.Int64
	clock := func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	l := newLab(t, 0)
	l.tune = func(o *Options) { o.Now, o.MaintainEvery = clock, 5*time.Millisecond }
	c := l.addController()
	shown := func() time.Time { // when the controller's certificate expires
		conn, err := tls.Dial("tcp", strings.TrimPrefix(c.url, "https://"), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].NotAfter
	}
	path := filepath.Join(t.TempDir(), joining.IdentityFile)
	if _, _, err := joining.Join(t.Context(), path, []string{c.url}, l.token(c, &pb.CreateTokenRequest{Name: "f1", Role: pb.Role_ROLE_FORWARDER}), pki.Forwarder); err != nil {
		t.Fatal(err)
	}
	identity, err := pki.Load(path, clock)
	if err != nil {
		t.Fatal(err)
	}
	m := &joining.Member{Identity: identity, Handler: http.NotFoundHandler(), Log: l.log("f1"), Controllers: []string{c.url}, LookEvery: 5 * time.Millisecond}
	var running sync.WaitGroup
	defer running.Wait()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	running.Go(func() { m.Run(ctx) })
	l.awaitOwner("f1")
	_, entry, err := read[owner](t.Context(), l.store, keyOwners+"f1")
	if err != nil {
		t.Fatal(err)
	}
	first, agents, controllers := entry.Revision, identity.Expires(), shown()

	later.Store(int64(pki.Lifetime*2/3 - 2*time.Hour)) // not yet
	time.Sleep(100 * time.Millisecond)                 // many looks
	if !identity.Expires().Equal(agents) || !shown().Equal(controllers) {
		t.Error("renewed too early")
	}
	later.Store(int64(pki.Lifetime*2/3 + time.Hour))
	l.until("the controller has another one", func() bool { return shown().After(controllers) })
	l.until("the agent has another one", func() bool { return identity.Expires().After(agents) })
	l.until("the agent shows it", func() bool {
		_, entry, err := read[owner](t.Context(), l.store, keyOwners+"f1")
		return err == nil && entry.Revision > first
	})
	kept, err := pki.Load(path, clock)
	if err != nil || !kept.Expires().Equal(identity.Expires()) {
		t.Errorf("the next start has another one: %v", err)
	}
}
