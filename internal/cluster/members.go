// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
)

// Members are the embedded etcds of several controllers, which form a cluster. All controllers have the same key, from which each creates its own
// certificate; so only holders of the key are members.
type Members struct {
	Name   string            // of this member
	URLs   map[string]string // of all members, by name: https://HOST:PORT
	Listen string            // address; "": all addresses, the port of the own URL
	Key    []byte            // the result of NewMembersKey
	Joins  bool              // this member has an empty disk, and Replace was called for it at another one
}

// Certificates of members do not expire, whatever their hosts' clocks say: a holder of the key is a member, and creates its certificate at each start.
var (
	begin = time.Unix(0, 0)
	never = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC) // RFC 5280 4.1.2.5: no expiry
)

// NewMembersKey creates the key of a cluster, in PEM.
func NewMembersKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := certificate("Steelyard cluster")
	template.IsCA, template.MaxPathLenZero, template.KeyUsage = true, true, x509.KeyUsageCertSign
	return signed(template, template, key, key)
}

func certificate(name string) *x509.Certificate {
	number, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // crypto/rand cannot fail
	return &x509.Certificate{
		SerialNumber: number, Subject: pkix.Name{CommonName: name}, NotBefore: begin, NotAfter: never,
		BasicConstraintsValid: true,
	}
}

// signed returns a certificate and its key in PEM.
func signed(template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...), nil
}

// Check validates the members before anything is started.
func (m *Members) Check() error {
	own, found := m.URLs[m.Name]
	if !found {
		return fmt.Errorf("--members lacks this controller, %q: add it, or correct --name", m.Name)
	}
	if len(m.URLs) < 3 {
		return errors.New("a cluster needs at least three members: of two, both are lost with one")
	}
	for name, text := range m.URLs {
		to, err := url.Parse(text)
		if err != nil || to.Scheme != "https" || to.Hostname() == "" || to.Port() == "" || to.Path != "" || strings.ContainsAny(name, "=, ") || name == "" {
			return fmt.Errorf("the member %s=%s: write NAME=https://HOST:PORT", name, text)
		}
	}
	if m.Listen == "" {
		to, _ := url.Parse(own) // checked
		m.Listen = ":" + to.Port()
	}
	if _, _, err := m.authority(); err != nil {
		return fmt.Errorf("the members' key: %w", err)
	}
	return nil
}

func (m *Members) authority() (*x509.Certificate, *ecdsa.PrivateKey, error) {
	first, rest := pem.Decode(m.Key)
	second, _ := pem.Decode(rest)
	if first == nil || second == nil {
		return nil, nil, errors.New("no certificate with its key: create one by `steelyard controller new-key`")
	}
	authority, err := x509.ParseCertificate(first.Bytes)
	if err != nil {
		return nil, nil, err
	}
	parsed, err := x509.ParsePKCS8PrivateKey(second.Bytes)
	if err != nil {
		return nil, nil, err
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || !authority.IsCA {
		return nil, nil, errors.New("this is another kind of key: create one by `steelyard controller new-key`")
	}
	return authority, key, nil
}

// apply configures an etcd as a member.
func (m *Members) apply(config *embed.Config, directory string) error {
	if err := m.Check(); err != nil {
		return err
	}
	authority, signer, err := m.authority()
	if err != nil {
		return err
	}
	own, _ := url.Parse(m.URLs[m.Name]) // checked
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := certificate("member " + m.Name)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	if ip := net.ParseIP(own.Hostname()); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{own.Hostname()}
	}
	pair, err := signed(template, authority, key, signer)
	if err != nil {
		return err
	}
	// etcd reads these from files.
	files := map[string][]byte{"member.pem": pair, "members-ca.pem": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Raw})}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(directory, name), data, 0o600); err != nil {
			return fmt.Errorf("state: %w", err)
		}
	}
	path := filepath.Join(directory, "member.pem")
	config.PeerTLSInfo = transport.TLSInfo{
		CertFile: path, KeyFile: path, TrustedCAFile: filepath.Join(directory, "members-ca.pem"), ClientCertAuth: true,
		SkipClientSANVerify: true, // a member may connect from an address other than its own URL's
	}
	config.Name = m.Name
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{{Scheme: "https", Host: everywhere(m.Listen)}}, []url.URL{*own}
	var all []string
	for name, text := range m.URLs {
		all = append(all, name+"="+text)
	}
	slices.Sort(all)
	config.InitialCluster = strings.Join(all, ",")
	sum := sha256.Sum256(authority.RawSubjectPublicKeyInfo)
	config.InitialClusterToken = hex.EncodeToString(sum[:8])
	if m.Joins {
		config.ClusterState = embed.ClusterStateFlagExisting
	}
	// Across hosts, and beside other work: a late heartbeat does not mean a dead leader.
	config.TickMs, config.ElectionMs = 200, 2000
	return nil
}

// everywhere converts ":7444" to the wildcard address, because etcd requires one.
func everywhere(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil || host != "" {
		return listen // etcd reports what is wrong with it
	}
	host = "::" // IPv4 too
	if probe, err := net.Listen("tcp", "[::]:0"); err == nil {
		probe.Close()
	} else {
		host = "0.0.0.0"
	}
	return net.JoinHostPort(host, port)
}

// Replace prepares the cluster for a member with an empty disk, in place of the one with this name, which must not run.
func (s *Store) Replace(ctx context.Context, name string) error {
	if s.members == nil {
		return errors.New("the controllers' own etcds form no cluster: start them with --members")
	}
	to, found := s.members.URLs[name]
	if !found {
		return fmt.Errorf("there is no member %q: there are %s", name, strings.Join(slices.Sorted(maps.Keys(s.members.URLs)), ", "))
	}
	if name == s.members.Name {
		return fmt.Errorf("%s itself answers this call, so its disk is not lost: call another controller", name)
	}
	for begun := time.Now(); ; { // etcd first requires some seconds of connections between the others
		err := s.replace(ctx, to)
		if !errors.Is(err, rpctypes.ErrUnhealthy) || time.Since(begun) > 15*time.Second {
			return err
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

// replace does so for the member at a URL. It is idempotent.
func (s *Store) replace(ctx context.Context, to string) error {
	list, err := s.client.MemberList(ctx)
	if err != nil {
		return failed(err)
	}
	for _, one := range list.Members {
		if !slices.Contains(one.PeerURLs, to) {
			continue
		}
		if one.Name == "" {
			return nil // already prepared
		}
		if _, err := s.client.MemberRemove(ctx, one.ID); err != nil {
			return failed(err)
		}
	}
	if _, err := s.client.MemberAdd(ctx, []string{to}); err != nil {
		return failed(err)
	}
	return nil
}
