// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"steelyard/internal/cluster"
	pb "steelyard/internal/gen/controllerpb"
	"steelyard/internal/pki"
	"steelyard/internal/stall"

	"connectrpc.com/connect"
)

// Keys of authorities: docs/design/0042-controller.md.
const (
	memberTrust     = "member/"
	controllerTrust = "controller/"
)

// authorities are the certificate authorities whose certificates are valid.
type authorities struct {
	signs *pki.Authority
	next  *pki.Authority // signs once all members and controllers trust it; nil: none
	since time.Time      // when the replacement's current step began; zero: no replacement
	in    cluster.Snapshot
	pool  *x509.CertPool
}

// authorityKeys are the keys of all state about authorities.
var authorityKeys = []string{keyAuthority, keyNext, keySince, keyWait}

func decodeAuthorities(in cluster.Snapshot) (*authorities, error) {
	a := &authorities{in: in}
	for key, into := range map[string]**pki.Authority{keyAuthority: &a.signs, keyNext: &a.next} {
		entry := in.Get(key)
		if entry.Revision == 0 {
			continue
		}
		one, err := pki.DecodeAuthority(entry.Value)
		if err != nil {
			return nil, fmt.Errorf("the certificate authority in etcd: %w", err)
		}
		*into = one
	}
	if entry := in.Get(keySince); entry.Revision != 0 {
		at, err := strconv.ParseInt(string(entry.Value), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s in etcd: %w", keySince, err)
		}
		a.since = time.Unix(at, 0)
	}
	if a.signs == nil {
		return nil, errors.New("etcd has no certificate authority any more: if it was emptied, restore it from a backup")
	}
	a.pool = x509.NewCertPool()
	for _, one := range a.chain() {
		a.pool.AddCert(one)
	}
	return a, nil
}

// present reads the authorities from etcd, because this controller's mirror may lag behind the last step.
func (s *Server) present(ctx context.Context) (*authorities, error) {
	now, err := s.store.Snapshot(ctx, authorityKeys...)
	if err != nil {
		return nil, unavailable(err)
	}
	return decodeAuthorities(now)
}

// check fails if no authority signed the caller's certificate, or if it has expired. A connection may be older than the current authorities.
func (a *authorities) check(caller principal, at time.Time) error {
	if caller.certificate == nil {
		return nil
	}
	if err := pki.Holds(caller.certificate, a.pool, at); err != nil {
		return connect.NewError(connect.CodeUnauthenticated, fmt.Errorf("the certificate of %s is void: %w", caller, err))
	}
	return nil
}

func newest(a *authorities) *pki.Authority {
	if a.next != nil {
		return a.next
	}
	return a.signs
}

// chain returns the certificates of all authorities; the signing one is first.
func (a *authorities) chain() []*x509.Certificate {
	all := a.signs.Chain()
	if a.next != nil {
		all = append(all, a.next.Certificate)
	}
	return all
}

// same reports whether a and b are the same authorities.
func (a *authorities) same(b *authorities) bool {
	return slices.EqualFunc(a.chain(), b.chain(), (*x509.Certificate).Equal)
}

// trust is what a member or a controller has shown of the authorities that it trusts.
type trust struct {
	Issuer      string   `json:"issuer"` // of its certificate
	Authorities []string `json:"authorities"`
}

// trustIn derives trust from the certificates that a peer has presented.
func (a *authorities) trustIn(shown []*x509.Certificate) trust {
	var t trust
	for _, one := range a.chain() {
		if shown[0].CheckSignatureFrom(one) == nil {
			t.Issuer = pki.KeyHash(one)
		}
	}
	for _, one := range shown[1:] {
		t.Authorities = append(t.Authorities, pki.KeyHash(one))
	}
	return t
}

// suffices reports whether a replacement may continue with regard to a holder of this trust.
func (a *authorities) suffices(t trust) bool {
	if a.next != nil {
		return slices.Contains(t.Authorities, a.next.Hash())
	}
	return t.Issuer == a.signs.Hash()
}

// replacing reports whether one authority is being replaced by another.
func (a *authorities) replacing() bool { return a.next != nil || len(a.signs.Former) > 0 }

// bootstrap reads the authority, or creates it if this is the first controller. Then it issues this controller's certificate.
func (s *Server) bootstrap(ctx context.Context) error {
	s.identity = pki.NewIdentity("", s.now)
	s.peers = peerTransport(s.identity.Client)
	for {
		now, err := s.store.Snapshot(ctx, authorityKeys...)
		if err != nil {
			return err
		}
		if now.Get(keyAuthority).Revision != 0 {
			_, err := s.adopt(now)
			return err
		}
		made, err := pki.NewAuthority(s.now())
		if err != nil {
			return err
		}
		data, err := made.Encode()
		if err != nil {
			return err
		}
		txn := s.record(new(cluster.Txn).Unchanged(now.Get(keyAuthority)).Put(keyAuthority, data, 0).Put(keyProjects+defaultProject, encode(project{}), 0),
			"controller/"+s.id, "create", "", "", "the certificate authority")
		if _, err := s.store.Commit(ctx, txn); err != nil && !errors.Is(err, cluster.ErrConflict) {
			return err
		}
	}
}

// adopt installs the authorities of a snapshot, and a certificate of the signing one. Returns true if the authorities have changed.
func (s *Server) adopt(now cluster.Snapshot) (bool, error) {
	a, err := decodeAuthorities(now)
	if err != nil {
		return false, err
	}
	before := s.authorities.Swap(a)
	if before != nil && before.same(a) {
		return false, nil
	}
	return true, s.certify()
}

// certify issues a new certificate for this controller.
func (s *Server) certify() error {
	key, err := pki.NewKey()
	if err != nil {
		return err
	}
	request, err := pki.Request(key)
	if err != nil {
		return err
	}
	a := s.authorities.Load()
	certificate, err := a.signs.Sign(request, pki.Name{Kind: pki.Controller, Name: s.id}, s.now())
	if err != nil {
		return err
	}
	err = s.identity.Replace(key, certificate.Raw, pki.Raw(a.chain()))
	s.peers.CloseIdleConnections() // they were opened with the previous certificate
	return err
}

// wakeAuthority wakes runAuthority.
func (s *Server) wakeAuthority() {
	select {
	case s.authorityWake <- struct{}{}:
	default:
	}
}

// runAuthority follows the replacement of the authority, and starts its next steps.
func (s *Server) runAuthority(ctx context.Context) {
	ticker := time.NewTicker(housekeeping)
	defer ticker.Stop()
	for {
		select {
		case <-s.authorityWake:
		case <-ticker.C: // certificates may have expired
		case <-ctx.Done():
			return
		}
		if err := s.followAuthority(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("the certificate authority", "error", err)
			pause(ctx, time.Second)
			s.wakeAuthority()
		}
	}
}

func (s *Server) followAuthority(ctx context.Context) error {
	ctx, cancel := stall.WithTimeout(ctx, leaseLife)
	defer cancel()
	now, err := s.store.Snapshot(ctx, authorityKeys...)
	if err != nil {
		return err
	}
	changed, err := s.adopt(now)
	if err != nil {
		return err
	}
	a := s.authorities.Load()
	if changed {
		s.log.Info("authorities of certificates have changed", "signs", a.signs.Hash(), "former", len(a.signs.Former), "next", a.next != nil)
		s.mu.Lock()
		s.authoritiesAt = time.Now()
		for _, one := range s.sessions { // the agent reconnects, and then receives the new authorities
			go one.conn.Close()
		}
		for one := range s.watchers {
			if err := a.check(one.caller, s.now()); err != nil {
				one.end(err)
			}
		}
		s.mu.Unlock()
	}
	if !a.replacing() {
		return nil
	}
	if now, err = s.store.Snapshot(ctx, keyMembers, keyControllers, keyTrust); err != nil {
		return err
	}
	if lease := s.currentLease(); lease != 0 {
		if err := s.noteTrust(ctx, now, controllerTrust+s.id, s.identity.Shown(), lease, new(cluster.Txn)); err != nil {
			return err
		}
	}
	waiting, err := a.waitingFor(now, s.now())
	if err != nil || len(waiting) > 0 {
		return err
	}
	return s.advance(ctx, a)
}

// noteTrust writes the trust of a member or a controller, if it has changed.
func (s *Server) noteTrust(ctx context.Context, now cluster.Snapshot, holder string, shown []*x509.Certificate, lease cluster.Lease, txn *cluster.Txn) error {
	value := encode(s.authorities.Load().trustIn(shown))
	if string(now.Get(keyTrust+holder).Value) == string(value) {
		return nil
	}
	_, err := s.store.Commit(ctx, txn.Put(keyTrust+holder, value, lease))
	return err
}

// recordTrust writes what a member has presented, while an authority is being replaced. Only presented certificates count: a sent certificate may not
// have arrived.
func (s *Server) recordTrust(ctx context.Context, caller principal, shown []*x509.Certificate) {
	if !s.authorities.Load().replacing() {
		return
	}
	key := memberTrust + caller.Name.Name
	s.mu.Lock()
	now := cluster.Snapshot{Entries: map[string]cluster.Entry{keyTrust + key: s.mirror.Get(keyTrust + key)}}
	s.mu.Unlock()
	if err := s.noteTrust(ctx, now, key, shown, 0, new(cluster.Txn).At(keyMembers+caller.Name.Name, caller.revision)); err != nil {
		s.log.Warn("recording the authorities that a member trusts has failed", "member", caller.Name.Name, "error", err)
	}
}

// waitingFor returns the members and controllers for which the replacement waits. It excludes those whose certificate has expired, as they must join
// anew in any case. This controller's clock alone is not sufficient evidence of an expiry.
func (a *authorities) waitingFor(now cluster.Snapshot, at time.Time) ([]string, error) {
	expired := at.Sub(a.since) > pki.Lifetime && a.in.Get(keyWait).Revision == 0
	var names []string
	for _, kind := range []struct{ key, trust, what string }{{keyMembers, memberTrust, ""}, {keyControllers, controllerTrust, "controller/"}} {
		for _, entry := range now.List(kind.key) {
			name := nameOf(entry.Key, kind.key)
			var t trust
			if has := now.Get(keyTrust + kind.trust + name); has.Revision != 0 {
				if err := json.Unmarshal(has.Value, &t); err != nil {
					return nil, fmt.Errorf("%s in etcd: %w", has.Key, err)
				}
			}
			if !a.suffices(t) && (kind.key == keyControllers || !expired) {
				names = append(names, kind.what+name)
			}
		}
	}
	return names, nil
}

// beginStep adds the start of a replacement's step to a transaction.
func (s *Server) beginStep(txn *cluster.Txn, lease cluster.Lease) {
	now := []byte(strconv.FormatInt(s.now().Unix(), 10))
	txn.Put(keySince, now, 0).Put(keyWait, now, lease)
}

// advance starts the next step of a replacement: the next authority signs, or the former one ends.
func (s *Server) advance(ctx context.Context, a *authorities) error {
	txn := new(cluster.Txn)
	for _, key := range authorityKeys {
		txn.Unchanged(a.in.Get(key))
	}
	signs, detail := *a.signs, "the former ones have ended"
	signs.Former = nil
	if a.next != nil {
		signs, detail = *a.next, "the new one signs"
		signs.Former = a.signs.Chain()
		lease, err := s.store.Grant(ctx, pki.Lifetime)
		if err != nil {
			return err
		}
		s.beginStep(txn.Delete(keyNext), lease)
	} else {
		txn.Delete(keySince).Delete(keyWait)
	}
	data, err := signs.Encode()
	if err != nil {
		return err
	}
	_, err = s.store.Commit(ctx, s.record(txn.Put(keyAuthority, data, 0), "controller/"+s.id, "authority", "", "", detail))
	if errors.Is(err, cluster.ErrConflict) {
		return nil // another controller has started the step
	}
	return err
}

// ReplaceAuthority implements the service.
func (s *Server) ReplaceAuthority(ctx context.Context, request *connect.Request[pb.ReplaceAuthorityRequest]) (*connect.Response[pb.ReplaceAuthorityResponse], error) {
	caller := from(ctx)
	if !caller.admin() {
		return nil, denied("only an admin replaces the authority, and %s is none", caller)
	}
	lease, err := s.store.Grant(ctx, pki.Lifetime)
	if err != nil {
		return nil, unavailable(err)
	}
	_, err = s.retry(ctx, func() (*cluster.Txn, error) {
		a, err := s.present(ctx)
		if err != nil {
			return nil, err
		}
		made, err := newest(a).Next(s.now())
		if err != nil {
			return nil, err
		}
		data, err := made.Encode()
		if err != nil {
			return nil, err
		}
		txn := new(cluster.Txn)
		for _, key := range authorityKeys {
			txn.Unchanged(a.in.Get(key))
		}
		if request.Msg.GetDistrust() {
			return s.record(txn.Put(keyAuthority, data, 0).Delete(keyNext).Delete(keySince).Delete(keyWait), caller.String(), "authority", "", "", "replaced at once: all certificates are void"), nil
		}
		if a.replacing() {
			return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("the authority is being replaced already: see `steelyard authority show`"))
		}
		s.beginStep(txn.Put(keyNext, data, 0), lease)
		return s.record(txn, caller.String(), "authority", "", "", "a new one is introduced"), nil
	})
	return connect.NewResponse(&pb.ReplaceAuthorityResponse{}), err
}

// ListAuthorities implements the service.
func (s *Server) ListAuthorities(ctx context.Context, _ *connect.Request[pb.ListAuthoritiesRequest]) (*connect.Response[pb.ListAuthoritiesResponse], error) {
	if caller := from(ctx); !caller.mayRead() {
		return nil, denied("%s may not read", caller)
	}
	now, err := s.store.Snapshot(ctx, append(slices.Clone(authorityKeys), keyMembers, keyControllers, keyTrust)...)
	if err != nil {
		return nil, unavailable(err)
	}
	a, err := decodeAuthorities(now)
	if err != nil {
		return nil, err
	}
	response := &pb.ListAuthoritiesResponse{}
	for at, one := range a.chain() {
		state := pb.Authority_STATE_FORMER
		switch {
		case at == 0:
			state = pb.Authority_STATE_SIGNS
		case a.next != nil && one == a.next.Certificate:
			state = pb.Authority_STATE_NEXT
		}
		response.Authorities = append(response.Authorities, &pb.Authority{KeyHash: pki.KeyHash(one), State: state, ExpiresUnixS: uint64(one.NotAfter.Unix())})
	}
	if a.replacing() {
		response.SinceUnixS = uint64(a.since.Unix())
		response.WaitingFor, err = a.waitingFor(now, s.now())
	}
	return connect.NewResponse(response), err
}
