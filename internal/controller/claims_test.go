// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"steelyard/internal/cluster"
	"steelyard/internal/config"
	controllerpb "steelyard/internal/gen/controllerpb"
	pb "steelyard/internal/gen/nfvpb"

	"connectrpc.com/connect"
)

func setProject(l *lab, project *controllerpb.Project) {
	l.Helper()
	if _, err := l.controllers[0].admin.SetProject(l.Context(), connect.NewRequest(&controllerpb.SetProjectRequest{Project: project})); err != nil {
		l.Fatal(err)
	}
}

// tenants returns a lab with two forwarders, an operator of each of the projects a and b, and services of b and of the default project.
func tenants(t *testing.T) (l *lab, a, b user) {
	t.Helper()
	l = workflowLab(t, 1, "f1", "f2")
	c := l.controllers[0]
	join := func(name string) user {
		return l.join(c, &controllerpb.CreateTokenRequest{Name: "op-" + name, Role: controllerpb.Role_ROLE_OPERATOR, Projects: []string{name}}, nil)
	}
	setProject(l, &controllerpb.Project{Name: "a", VipPrefixes: []string{"10.8.0.0/16", "fd00:8::/64"}, ServerPrefixes: []string{"10.1.0.0/16", "10.8.0.0/16", "fd00:1::/64"}})
	setProject(l, &controllerpb.Project{Name: "b", VipPrefixes: []string{"10.8.0.0/16"}, ServerPrefixes: []string{"10.1.0.0/16"}})
	setProject(l, &controllerpb.Project{Name: "none"})
	a, b = join("a"), join("b")
	if _, err := apply(t.Context(), b, "f2", "b", service("10.8.0.80", "80", "fnat", "10.1.0.31")); err != nil {
		t.Fatal(err)
	}
	return l, a, b
}

// service is a project's file with one service.
func service(vip, port, mode, server string) string {
	return fmt.Sprintf("version: 1\nservices:\n  - { name: s, vip: %q, port: %s, mode: %s, health: { type: none }, servers: [ { address: %q } ] }\n", vip, port, mode, server)
}

func TestOneOwnerOfAnAddress(t *testing.T) {
	l, a, b := tenants(t)
	admin := l.controllers[0].admin
	const local = "10.1.0.200" // of both forwarders
	request := balancing("held", 80)
	request.Virtual.Vip = "10.8.0.90"
	if _, err := admin.RequestBalancing(t.Context(), connect.NewRequest(&pb.RequestBalancingRequest{Balancing: request})); err != nil {
		t.Fatal(err)
	}
	for what, test := range map[string]struct {
		by      user
		project string
		text    string
		code    connect.Code
		says    string
	}{
		"a VIP outside the prefixes":           {a, "a", service("10.9.0.1", "80", "fnat", "10.1.0.21"), connect.CodePermissionDenied, "no prefix of the project a"},
		"an admin's is refused likewise":       {admin, "a", service("10.9.0.1", "80", "fnat", "10.1.0.21"), connect.CodePermissionDenied, "no prefix of the project a"},
		"a server outside them":                {a, "a", service("10.8.0.1", "80", "fnat", "10.2.0.21"), connect.CodePermissionDenied, "the server 10.2.0.21"},
		"another's VIP":                        {a, "a", service("10.8.0.80", "80", "fnat", "10.1.0.21"), connect.CodeInvalidArgument, ""},
		"another's VIP, another port":          {a, "a", service("10.8.0.80", "81", "fnat", "10.1.0.21"), connect.CodeInvalidArgument, "belongs to another project"},
		"another's VIP, all ports":             {a, "a", service("10.8.0.80", "all", "fnat", "10.1.0.21"), connect.CodeInvalidArgument, "belongs to another project"},
		"another's VIP, a range":               {a, "a", service("10.8.0.80", "70-90", "fnat", "10.1.0.21"), connect.CodeInvalidArgument, "belongs to another project"},
		"another's VIP, another protocol":      {a, "a", strings.Replace(service("10.8.0.80", "80", "fnat", "10.1.0.21"), "mode:", "protocol: udp, mode:", 1), connect.CodeInvalidArgument, "belongs to another project"},
		"a request's VIP":                      {a, "a", service("10.8.0.90", "443", "fnat", "10.1.0.21"), connect.CodeInvalidArgument, ""},
		"another's server":                     {admin, "none", service("10.1.0.31", "80", "fnat", "10.1.0.21"), connect.CodeInvalidArgument, "is a server of the project b"},
		"a forwarder's own address":            {admin, "none", service(local, "80", "dr", "10.1.0.21"), connect.CodeInvalidArgument, ""},
		"an operator without prefixes":         {b, "b", service("10.3.0.1", "80", "fnat", "10.1.0.31"), connect.CodePermissionDenied, "no prefix"},
		"NAT on another's server":              {a, "a", service("10.8.0.1", "80", "nat", "10.1.0.31"), connect.CodeInvalidArgument, "mode nat"},
		"NAT of all ports on another's server": {a, "a", service("10.8.0.1", "all", "nat", "10.1.0.31"), connect.CodeInvalidArgument, "mode nat"},
		"NAT on another's VIP":                 {a, "a", service("10.8.0.1", "80", "nat", "10.8.0.80"), connect.CodeInvalidArgument, "VIP of another project"},
		"NAT on a request's VIP":               {a, "a", service("10.8.0.1", "80", "nat", "10.8.0.90"), connect.CodeInvalidArgument, ""},
		"balancing to a forwarder":             {a, "a", service("10.8.0.1", "80", "fnat", local), connect.CodeInvalidArgument, ""},
	} {
		for _, forwarder := range []string{"f1", "f2", "*"} {
			if _, err := apply(t.Context(), test.by, forwarder, test.project, test.text); connect.CodeOf(err) != test.code || !strings.Contains(fmt.Sprint(err), test.says) && forwarder == "f1" {
				t.Errorf("%s at %s: %v", what, forwarder, err)
			}
		}
	}
	// Requests are checked likewise.
	for what, vip := range map[string]string{"another's VIP": "10.8.0.80", "another's server": "10.1.0.31", "a forwarder's own address": local} {
		again := balancing("more", 8443)
		again.Virtual.Vip = vip
		if _, err := admin.RequestBalancing(t.Context(), connect.NewRequest(&pb.RequestBalancingRequest{Balancing: again})); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("a request for %s: %v", what, err)
		}
	}
	again := balancing("more", 8443)
	again.Settings, again.Virtual.RealServices = "mode: nat", []*pb.RealService{{Dip: "10.1.0.31", Dport: 8443}}
	if _, err := admin.RequestBalancing(t.Context(), connect.NewRequest(&pb.RequestBalancingRequest{Balancing: again})); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a request for NAT on another's server: %v", err)
	}
	// Allowed: a server of two projects without NAT, one project at two forwarders, and a VIP that its former owner has released.
	for _, test := range []struct {
		what, forwarder, text string
		by                    user
		project               string
	}{
		{"a shared server", "f1", service("10.8.0.1", "80", "fnat", "10.1.0.31"), a, "a"},
		{"the same at another forwarder", "f2", service("10.8.0.1", "80", "fnat", "10.1.0.31"), a, "a"},
		{"another port of an own VIP", "f1", service("10.8.0.1", "all", "fnat", "10.1.0.31"), a, "a"},
		{"the owner ends its service", "f2", part(0, 0, 0), b, "b"},
		{"and another project has the VIP, under NAT", "f1", service("10.8.0.80", "80", "nat", "10.1.0.41"), a, "a"},
	} {
		if _, err := apply(t.Context(), test.by, test.forwarder, test.project, test.text); err != nil {
			t.Errorf("%s: %v", test.what, err)
		}
	}
	if _, err := apply(t.Context(), b, "f2", "b", service("10.8.0.99", "80", "fnat", "10.1.0.41")); connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(fmt.Sprint(err), "mode nat") {
		t.Errorf("a server that another project has under NAT: %v", err)
	}
}

// A project keeps its addresses when its prefixes are removed, and may change their services.
func TestPrefixesBoundNewAddressesOnly(t *testing.T) {
	l, _, b := tenants(t)
	setProject(l, &controllerpb.Project{Name: "b", VipPrefixes: []string{"10.7.0.0/16"}, ServerPrefixes: []string{"10.7.0.0/16"}})
	if _, err := apply(t.Context(), b, "f2", "b", strings.Replace(service("10.8.0.80", "80", "fnat", "10.1.0.31"), "{ address", "{ weight: 7, address", 1)); err != nil {
		t.Error(err)
	}
	if _, err := apply(t.Context(), b, "f1", "b", service("10.8.0.80", "80", "fnat", "10.1.0.31")); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("the same at another forwarder: %v", err)
	}
	setProject(l, &controllerpb.Project{Name: "b"})
	for option, text := range map[string]string{
		"--vips":    service("10.8.0.80", "81", "fnat", "10.1.0.31"),
		"--servers": strings.Replace(service("10.8.0.80", "80", "fnat", "10.1.0.31"), "servers: [", "servers: [ { address: 10.1.0.32 },", 1),
	} {
		_, err := apply(t.Context(), b, "f2", "b", text)
		if connect.CodeOf(err) != connect.CodePermissionDenied || !strings.Contains(fmt.Sprint(err), "ask an admin for it: `steelyard project set b "+option+" PREFIX") {
			t.Errorf("an operator without prefixes, %s: %v", option, err)
		}
	}
	bad := &controllerpb.Project{Name: "b", VipPrefixes: []string{"10.0.0.1/8"}}
	if _, err := l.controllers[0].admin.SetProject(t.Context(), connect.NewRequest(&controllerpb.SetProjectRequest{Project: bad})); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("%v", err)
	}
}

// Addresses of the control plane are refused as VIPs, whichever controller its agents are connected to, even if a controller's URL has a host name.
func TestAddressesOfTheControlPlaneAreRefused(t *testing.T) {
	l, a, _ := tenants(t)
	record, _, err := read[owner](t.Context(), l.store, keyOwners+"f1")
	if at := netip.MustParseAddr("127.0.0.1"); err != nil || record.Agent != at || record.At != at {
		t.Errorf("the agent's connection: %+v, %v", record, err)
	}
	l.commit(new(cluster.Txn).Put(keyControllers+"c9", encode(owner{ID: "c9", URL: "https://c9.example:7443"}), 0).
		Put(keyOwners+"f8", encode(owner{ID: "c9", Agent: netip.MustParseAddr("10.8.0.8"), At: netip.MustParseAddr("fd00:8::9")}), 0).
		Put(keyOwners+"f9", encode(owner{ID: "c9", Agent: netip.MustParseAddr("fd00:8::8"), At: netip.MustParseAddr("10.8.0.9")}), 0))
	for vip, what := range map[string]string{"10.8.0.8": "the agent of f8", "fd00:8::8": "the agent of f9", "10.8.0.9": "a controller", "fd00:8::9": "a controller"} {
		server := "10.1.0.21"
		if strings.Contains(vip, ":") {
			server = "fd00:1::21"
		}
		if _, err := apply(t.Context(), a, "f1", "a", service(vip, "80", "dr", server)); connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(fmt.Sprint(err), what) {
			t.Errorf("the VIP %s: %v", vip, err)
		}
	}
	if _, err := apply(t.Context(), a, "f1", "a", service("10.8.0.1", "80", "dr", "10.8.0.9")); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("balancing to a controller: %v", err)
	}
}

// A project cannot hide addresses from the check: neither by YAML whose meaning changes when files are merged, nor otherwise.
func TestHiddenAddressesAreRefused(t *testing.T) {
	_, a, b := tenants(t)
	hidden := "version: 1\nservices:\n  - { ? &k vip : 10.8.0.70, name: s, port: 80, health: { type: none }, servers: [ { address: 10.1.0.31 } ] }\n" +
		"  - { ? *k : 10.8.0.71, name: t, port: 80, health: { type: none }, servers: [ { address: 10.1.0.31 } ] }\n"
	if _, err := apply(t.Context(), b, "f1", "b", hidden); connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(fmt.Sprint(err), "alias") {
		t.Errorf("an alias as a key: %v", err)
	}
	if _, err := apply(t.Context(), a, "f2", "a", service("10.8.0.71", "80", "fnat", "10.1.0.21")); err != nil {
		t.Error(err)
	}
	parsed, err := config.Parse("merged", []byte(strings.Replace(service("10.8.0.72", "80", "dr", "10.1.0.21"), "name: s", "name: a.s", 1)))
	if err != nil {
		t.Fatal(err)
	}
	p := &plan{project: "a", text: []byte(service("10.8.0.73", "80", "dr", "10.1.0.21")), parsed: parsed}
	if _, err := new(Server).claim(t.Context(), &work{}, p); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a file that reads otherwise: %v", err)
	}
}

// If several projects claim one VIP at different forwarders concurrently, one succeeds.
func TestOneOfConcurrentClaimsSucceeds(t *testing.T) {
	l := workflowLab(t, 2, "f1", "f2")
	admin := l.controllers[0].admin
	for _, name := range []string{"p1", "p2"} {
		setProject(l, &controllerpb.Project{Name: name})
	}
	for round := range 8 {
		var both sync.WaitGroup
		errs := make([]error, 3)
		vip := fmt.Sprintf("10.8.1.%d", 1+round)
		for i := range 2 {
			both.Go(func() {
				name := fmt.Sprintf("p%d", 1+i)
				_, errs[i] = apply(t.Context(), admin, fmt.Sprintf("f%d", 1+i), name, service(vip, "80", "fnat", "10.1.0.21"))
			})
		}
		both.Go(func() {
			request := balancing(fmt.Sprintf("r%d", round), 443)
			request.Virtual.Vip = vip
			_, errs[2] = admin.RequestBalancing(t.Context(), connect.NewRequest(&pb.RequestBalancingRequest{Balancing: request}))
		})
		both.Wait()
		won := 0
		for _, err := range errs {
			if err == nil {
				won++
			}
		}
		if won != 1 {
			t.Errorf("%s: %v", vip, errs)
		}
	}
}
