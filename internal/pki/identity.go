// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"steelyard/internal/store"
)

// Identity is a certificate with its key, and the authorities whose certificates it accepts. Its certificate can be
// replaced while connections are made with it.
type Identity struct {
	path string // "": in memory only
	now  func() time.Time

	mu          sync.Mutex
	certificate *x509.Certificate
	authorities []*x509.Certificate
	key         *ecdsa.PrivateKey
	behind      bool      // a controller has other authorities
	renewed     time.Time // when a controller has renewed the certificate, by the clock that is never set; zero: none has, since the start
}

// NewIdentity returns an identity, which Replace fills.
func NewIdentity(path string, now func() time.Time) *Identity { return &Identity{path: path, now: now} }

// Load reads an identity's file, in which the authorities follow its own certificate.
func Load(path string, now func() time.Time) (*Identity, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	chain, key, err := decode(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	i := NewIdentity(path, now)
	return i, i.set(key, chain[0], chain[1:])
}

func (i *Identity) set(key *ecdsa.PrivateKey, der []byte, authorities [][]byte) error {
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return err
	}
	if !key.PublicKey.Equal(certificate.PublicKey) {
		return errors.New("the certificate is for another key")
	}
	var parsed []*x509.Certificate
	pool := x509.NewCertPool()
	for _, der := range authorities {
		authority, err := x509.ParseCertificate(der)
		if err != nil {
			return err
		}
		parsed = append(parsed, authority)
		pool.AddCert(authority)
	}
	if _, err := HolderOf(certificate); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.key, i.certificate, i.authorities, i.behind = key, certificate, parsed, false
	return nil
}

// Replace installs a new certificate, and writes the file.
func (i *Identity) Replace(key *ecdsa.PrivateKey, der []byte, authorities [][]byte) error {
	if err := i.set(key, der, authorities); err != nil || i.path == "" {
		return err
	}
	data, err := encode(append([][]byte{der}, authorities...), key)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(i.path), 0o700); err != nil {
		return err
	}
	return store.WriteFile(i.path, data, 0o600)
}

// Renew installs a new certificate from a controller, unless it expires sooner than the current one: a controller whose clock is far behind would replace
// a valid certificate by one that no other controller accepts.
func (i *Identity) Renew(key *ecdsa.PrivateKey, der []byte, authorities [][]byte) error {
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return err
	}
	i.mu.Lock()
	now, has, behind := i.now(), i.certificate.NotAfter, i.behind
	i.mu.Unlock()
	if end := certificate.NotAfter; !end.After(now) || !behind && !end.After(has) { // another authority's counts, also if it ends sooner
		return fmt.Errorf("the new certificate ends on %s, the present one on %s, and it is %s here: the controller's clock or this host's is wrong",
			end.UTC().Format(time.RFC3339), has.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	if err := i.Replace(key, der, authorities); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.renewed = time.Now()
	return nil
}

// Name returns the holder.
func (i *Identity) Name() Name {
	i.mu.Lock()
	defer i.mu.Unlock()
	name, _ := HolderOf(i.certificate)
	return name
}

// Expires returns when the certificate ends.
func (i *Identity) Expires() time.Time {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.certificate.NotAfter
}

// Due reports whether two thirds of the certificate's life are over, or a controller has presented other authorities. A certificate that was just renewed
// is not due, however old it is by this host's clock: if clocks differ by weeks, the next one would look as old.
func (i *Identity) Due() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	old := i.now().After(i.certificate.NotAfter.Add(-Lifetime / 3))
	return i.behind || old && (i.renewed.IsZero() || time.Since(i.renewed) > renewPause)
}

// compare records whether a verified controller presents other authorities than are known here, or signs by another one than signed this certificate:
// controllers present all of them, the signing one first. A controller with older ones has not received a change yet.
func (i *Identity) compare(controller tls.ConnectionState) {
	i.mu.Lock()
	defer i.mu.Unlock()
	shown := controller.PeerCertificates[1:]
	if len(shown) == 0 {
		return
	}
	older := func(a, b *x509.Certificate) int { return a.SerialNumber.Cmp(b.SerialNumber) }
	same := len(shown) == len(i.authorities)
	for _, one := range shown {
		same = same && slices.ContainsFunc(i.authorities, one.Equal)
	}
	if !same && older(slices.MaxFunc(shown, older), slices.MaxFunc(i.authorities, older)) >= 0 {
		i.behind = true
	}
	for _, issuer := range i.authorities {
		if i.certificate.CheckSignatureFrom(issuer) == nil && !issuer.Equal(shown[0]) && older(shown[0], issuer) >= 0 {
			i.behind = true
		}
	}
}

func (i *Identity) pool() *x509.CertPool {
	i.mu.Lock()
	defer i.mu.Unlock()
	pool := x509.NewCertPool()
	for _, authority := range i.authorities {
		pool.AddCert(authority)
	}
	return pool
}

func (i *Identity) own() (*tls.Certificate, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	chain := [][]byte{i.certificate.Raw}
	for _, authority := range i.authorities {
		chain = append(chain, authority.Raw) // a joining member compares it with the token
	}
	return &tls.Certificate{Certificate: chain, PrivateKey: i.key, Leaf: i.certificate}, nil
}

// Shown returns what is presented to peers: the certificate, and the authorities.
func (i *Identity) Shown() []*x509.Certificate {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]*x509.Certificate{i.certificate}, i.authorities...)
}

// Client returns how to connect to a controller.
func (i *Identity) Client() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		// The name is in a URI, which the standard verification ignores.
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			err := verify(state, i.pool(), Controller, i.now())
			if err == nil {
				i.compare(state)
			}
			return err
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return i.own() },
	}
}

// Server returns how a controller accepts connections: with certificates of its authorities, or with none, to join.
func (i *Identity) Server() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS13,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return i.own() },
		ClientAuth:     tls.RequestClientCert,
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 {
				return nil
			}
			return verify(state, i.pool(), "", i.now())
		},
		SessionTicketsDisabled: true, // each connection shows its certificate
	}
}

// Joining returns the TLS configuration for a controller that is known by a token alone.
func Joining(token Token, now func() time.Time) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, // replaced by:
		VerifyConnection: func(state tls.ConnectionState) error {
			for _, certificate := range state.PeerCertificates {
				if certificate.IsCA && KeyHash(certificate) == token.Authority {
					pool := x509.NewCertPool()
					pool.AddCert(certificate)
					return verify(state, pool, Controller, now())
				}
			}
			return errors.New("this controller is not of the authority that the token names")
		},
	}
}

// Key returns the private key, for a request for another certificate.
func (i *Identity) Key() *ecdsa.PrivateKey {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.key
}
