// SPDX-License-Identifier: Apache-2.0

// Package pki issues and verifies the certificates of controllers, agents and users. A
// certificate names its holder by a URI, steelyard://KIND/NAME; host names play no part.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// Kinds of holders.
const (
	Controller = "controller"
	Forwarder  = "forwarder"
	User       = "user"
)

// Lifetimes of certificates.
const (
	Lifetime   = 30 * 24 * time.Hour
	caLifetime = 20 * 365 * 24 * time.Hour
	// After this, one that is old by this host's clock already when it comes is renewed again.
	renewPause = time.Hour
)

// begin is the NotBefore of all certificates. The time of issue would add no information about the holder, and exclude members whose clocks
// are behind the issuer's.
var begin = time.Unix(0, 0)

// ALPN names the protocol by which agents open their connections.
const ALPN = "steelyard-agent/1"

// names are those of members and projects: they are parts of keys, URIs and names of services.
var names = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// CheckName returns why a text cannot be a name.
func CheckName(what, name string) error {
	if !names.MatchString(name) {
		return fmt.Errorf("%q is no name of a %s: use at most 63 of a-z, 0-9 and -, and no - at its ends", name, what)
	}
	return nil
}

// Name is a certificate's holder.
type Name struct{ Kind, Name string }

func (n Name) String() string { return n.Kind + "/" + n.Name }

func (n Name) uri() *url.URL { return &url.URL{Scheme: "steelyard", Host: n.Kind, Path: "/" + n.Name} }

// HolderOf returns the holder of a certificate that was verified.
func HolderOf(certificate *x509.Certificate) (Name, error) {
	if len(certificate.URIs) == 1 && certificate.URIs[0].Scheme == "steelyard" {
		name := Name{certificate.URIs[0].Host, strings.TrimPrefix(certificate.URIs[0].Path, "/")}
		if name.Kind != "" && names.MatchString(name.Name) {
			return name, nil
		}
	}
	return Name{}, errors.New("the certificate names no member")
}

// KeyHash identifies a certificate's key.
func KeyHash(certificate *x509.Certificate) string {
	sum := sha256.Sum256(certificate.RawSubjectPublicKeyInfo)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// Authority issues certificates.
type Authority struct {
	Certificate *x509.Certificate
	Former      []*x509.Certificate // former authorities whose certificates are still valid
	key         *ecdsa.PrivateKey
}

// NewKey creates a private key.
func NewKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func serial() (*big.Int, error) { return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) }

// NewAuthority creates an authority.
func NewAuthority(now time.Time) (*Authority, error) {
	number, err := serial()
	if err != nil {
		return nil, err
	}
	return newAuthority(number, now)
}

// Next creates its possible successor. Serial numbers order them, whatever the clocks say.
func (a *Authority) Next(now time.Time) (*Authority, error) {
	return newAuthority(new(big.Int).Add(a.Certificate.SerialNumber, big.NewInt(1)), now)
}

func newAuthority(number *big.Int, now time.Time) (*Authority, error) {
	key, err := NewKey()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: number, Subject: pkix.Name{CommonName: "Steelyard controllers"},
		NotBefore: begin, NotAfter: now.Add(caLifetime), IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	return &Authority{Certificate: certificate, key: key}, err
}

// Encode returns the authority with its key, and the former ones, in PEM.
func (a *Authority) Encode() ([]byte, error) { return encode(Raw(a.Chain()), a.key) }

// Chain returns the authority's own certificate, and those of the former ones.
func (a *Authority) Chain() []*x509.Certificate {
	return append([]*x509.Certificate{a.Certificate}, a.Former...)
}

// Raw returns certificates as they are sent.
func Raw(certificates []*x509.Certificate) [][]byte {
	var all [][]byte
	for _, one := range certificates {
		all = append(all, one.Raw)
	}
	return all
}

// DecodeAuthority parses the result of Encode.
func DecodeAuthority(data []byte) (*Authority, error) {
	chain, key, err := decode(data)
	if err != nil {
		return nil, err
	}
	var parsed []*x509.Certificate
	for _, der := range chain {
		one, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, one)
	}
	return &Authority{Certificate: parsed[0], Former: parsed[1:], key: key}, nil
}

// Request creates a signing request for a key.
func Request(key *ecdsa.PrivateKey) ([]byte, error) {
	return x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
}

// Sign issues a certificate for the key of a request; the name is the issuer's choice.
func (a *Authority) Sign(request []byte, name Name, now time.Time) (*x509.Certificate, error) {
	parsed, err := x509.ParseCertificateRequest(request)
	if err != nil {
		return nil, fmt.Errorf("the signing request: %w", err)
	}
	if err := parsed.CheckSignature(); err != nil {
		return nil, fmt.Errorf("the signing request: %w", err)
	}
	number, err := serial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: number, Subject: pkix.Name{CommonName: name.String()}, URIs: []*url.URL{name.uri()},
		NotBefore: begin, NotAfter: now.Add(Lifetime), BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.Certificate, parsed.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// Hash identifies an authority in tokens.
func (a *Authority) Hash() string { return KeyHash(a.Certificate) }

// encode writes certificates, and a key, as PEM.
func encode(chain [][]byte, key *ecdsa.PrivateKey) ([]byte, error) {
	var out []byte
	for _, der := range chain {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return append(out, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})...), err
}

func decode(data []byte) (chain [][]byte, key *ecdsa.PrivateKey, err error) {
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		switch block.Type {
		case "CERTIFICATE":
			chain = append(chain, block.Bytes)
		case "PRIVATE KEY":
			parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			if err != nil {
				return nil, nil, err
			}
			key, _ = parsed.(*ecdsa.PrivateKey)
		}
	}
	if len(chain) == 0 || key == nil {
		return nil, nil, errors.New("no certificate with its key")
	}
	return chain, key, nil
}

// Holds returns why a certificate is of none of the authorities, or not of this time.
func Holds(certificate *x509.Certificate, authorities *x509.CertPool, now time.Time) error {
	_, err := certificate.Verify(x509.VerifyOptions{
		Roots: authorities, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	return err
}

// verify checks that a peer's certificate is of one of the authorities and of a kind.
func verify(state tls.ConnectionState, authorities *x509.CertPool, kind string, now time.Time) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("the peer shows no certificate")
	}
	if err := Holds(state.PeerCertificates[0], authorities, now); err != nil {
		return err
	}
	name, err := HolderOf(state.PeerCertificates[0])
	if err == nil && kind != "" && name.Kind != kind {
		err = fmt.Errorf("the peer is %s, not a %s", name, kind)
	}
	return err
}
