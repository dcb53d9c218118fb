// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"steelyard/internal/cluster"
	"steelyard/internal/freeport"
	pb "steelyard/internal/gen/controllerpb"

	"connectrpc.com/connect"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// externalMember is a member of an external etcd cluster: a separate process, which a test can kill and freeze.
type externalMember struct {
	Name, Directory, Client, Peer, Cluster string
	process                                *exec.Cmd // nil: it is dead
	frozen                                 bool
}

// memberVariable contains a member's parameters, and makes this program run as that member.
const memberVariable = "STEELYARD_TEST_ETCD_MEMBER"

func TestMain(m *testing.M) {
	if text := os.Getenv(memberVariable); text != "" {
		fmt.Fprintln(os.Stderr, beMember(text))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// beMember runs an etcd with its usual limits, until it is killed. Its clients need certificates.
func beMember(text string) error {
	var m externalMember
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return err
	}
	config := embed.NewConfig()
	config.Name, config.Dir, config.InitialCluster = m.Name, filepath.Join(m.Directory, m.Name), m.Cluster
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	client, peer := url.URL{Scheme: "https", Host: m.Client}, url.URL{Scheme: "http", Host: m.Peer}
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	at := func(name string) string { return filepath.Join(m.Directory, name) }
	config.ClientTLSInfo = transport.TLSInfo{CertFile: at("server.pem"), KeyFile: at("server.pem"), TrustedCAFile: at("ca.pem"), ClientCertAuth: true}
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); os.Exit(0) }() // with the test
	return <-etcd.Err()
}

type external struct {
	*testing.T
	members []*externalMember
	options cluster.Options
}

func newExternal(t *testing.T) *external {
	t.Helper()
	x := &external{T: t}
	directory := t.TempDir()
	var all []string
	for i := range 3 {
		m := &externalMember{Name: fmt.Sprintf("e%d", i+1), Directory: directory, Client: freeport.Address(t), Peer: freeport.Address(t)}
		x.members = append(x.members, m)
		x.options.Endpoints = append(x.options.Endpoints, "https://"+m.Client)
		all = append(all, m.Name+"=http://"+m.Peer)
	}
	x.options.TLS, x.options.Large = certificates(t, directory), LargeKeys
	for _, m := range x.members {
		m.Cluster = strings.Join(all, ",")
		x.start(m)
	}
	return x
}

// certificates writes the members' certificates, and returns the TLS configuration of a client.
func certificates(t *testing.T, directory string) *tls.Config {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	template := func(number int64) *x509.Certificate {
		return &x509.Certificate{SerialNumber: big.NewInt(number), Subject: pkix.Name{CommonName: fmt.Sprintf("etcd %d", number)}, NotBefore: time.Now().Add(-time.Hour),
			NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	}
	root := template(1)
	root.IsCA, root.KeyUsage = true, x509.KeyUsageCertSign
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	write := func(name string, number int64) {
		key, one := signer, root
		if number > 1 {
			key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			must(err)
			one = template(number)
		}
		der, err := x509.CreateCertificate(rand.Reader, one, root, &key.PublicKey, signer)
		must(err)
		private, err := x509.MarshalPKCS8PrivateKey(key)
		must(err)
		text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
		if number > 1 {
			text = append(text, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
		}
		must(os.WriteFile(filepath.Join(directory, name), text, 0o600))
	}
	write("ca.pem", 1)
	write("server.pem", 2)
	write("client.pem", 3)
	path := filepath.Join(directory, "client.pem")
	pair, err := tls.LoadX509KeyPair(path, path)
	must(err)
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, RootCAs: x509.NewCertPool()}
	ca, err := os.ReadFile(filepath.Join(directory, "ca.pem"))
	must(err)
	config.RootCAs.AppendCertsFromPEM(ca)
	return config
}

func (x *external) start(m *externalMember) {
	x.Helper()
	text, err := json.Marshal(m)
	if err != nil {
		x.Fatal(err)
	}
	m.process = exec.Command(os.Args[0])
	m.process.Env = append(os.Environ(), memberVariable+"="+string(text))
	m.process.Stderr = os.Stderr
	if _, err := m.process.StdinPipe(); err != nil { // it ends with this process
		x.Fatal(err)
	}
	if err := m.process.Start(); err != nil {
		x.Fatal(err)
	}
	x.Cleanup(func() { x.kill(m) })
}

func (x *external) kill(m *externalMember) {
	if m.process != nil {
		_ = m.process.Process.Kill()
		_ = m.process.Wait()
		m.process, m.frozen = nil, false
	}
}

func (x *external) freeze(m *externalMember) {
	_ = m.process.Process.Signal(syscall.SIGSTOP)
	m.frozen = true
}

// heal restarts and thaws all members.
func (x *external) heal() {
	for _, m := range x.members {
		if m.process == nil {
			x.start(m)
		} else if m.frozen {
			_ = m.process.Process.Signal(syscall.SIGCONT)
			m.frozen = false
		}
	}
}

// Members of an external etcd are killed and frozen one after another, then two of the three: confirmed changes stay, nothing is reverted, and
// forwarders are not affected. etcd has its usual limits, its clients need certificates.
func TestExternalEtcdLosesMembers(t *testing.T) {
	t.Parallel() // elections take seconds
	x := newExternal(t)
	store, err := cluster.Open(t.Context(), x.options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	l := &lab{T: t, directory: short(t), agents: map[string]*runningAgent{}, store: store}
	for range 2 {
		l.addControllerOn(x.options, 0)
	}
	f1 := l.addForwarder("f1")
	random, confirmed := mathrand.New(mathrand.NewPCG(3, 1)), 0
	// change sends changes to both controllers in turn until one is confirmed.
	change := func() {
		t.Helper()
		confirmed++
		l.until(fmt.Sprintf("weight %d is confirmed", confirmed), func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			response, err := apply(ctx, l.controllers[random.IntN(2)].admin, "f1", "", file(confirmed))
			return err == nil && response.GetRevision() > 0 && len(response.GetWarnings()) == 0
		})
		if got := f1.Server(vip, server).GetWeight(); int(got) != confirmed {
			t.Fatalf("%d is confirmed, and the forwarder has %d", confirmed, got)
		}
	}
	change()
	for i, m := range x.members {
		x.heal()
		change()
		if i == 1 {
			x.freeze(m)
		} else {
			x.kill(m)
		}
		change()
		change()
	}
	// One of three members accepts nothing, and the forwarder keeps its configuration.
	x.freeze(x.members[1])
	var asking sync.WaitGroup
	for i, c := range l.controllers {
		asking.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // etcd's client retries until its deadline
			defer cancel()
			_, err := apply(ctx, c.admin, "f1", "", file(1000))
			if code := connect.CodeOf(err); code != connect.CodeDeadlineExceeded && code != connect.CodeUnavailable {
				t.Errorf("controller %d, with one of three members: %v", i, err)
			}
		})
	}
	asking.Wait()
	if got := f1.Server(vip, server).GetWeight(); int(got) != confirmed {
		t.Errorf("the forwarder has %d, not %d", got, confirmed)
	}
	x.heal()
	// Changes that were sent meanwhile may have been accepted or not; the next change is newer.
	confirmed = 1000
	change()
	l.until("all agree", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		list, err := l.controllers[1].admin.ListForwarders(ctx, connect.NewRequest(&pb.ListForwardersRequest{}))
		return err == nil && list.Msg.GetForwarders()[0].GetInForwarder() && list.Msg.GetForwarders()[0].GetAppliedRevision() == list.Msg.GetForwarders()[0].GetDesiredRevision()
	})
	neverBack(t, "f1", f1.Forwarder)
}
