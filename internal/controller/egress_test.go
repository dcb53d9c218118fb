// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	agentpb "steelyard/internal/gen/agentpb"
	controllerpb "steelyard/internal/gen/controllerpb"

	"connectrpc.com/connect"
)

// withLoad is a project's file whose load is read from a URL.
func withLoad(url string) string {
	return strings.Replace(service("10.8.0.1", "80", "fnat", "10.1.0.21"), "health:", "load: { type: prometheus, url: \""+url+"\", query: x, interval: 1s }, health:", 1)
}

// The agent does not fetch load from its own host for a tenant, and shows no caller what a source has answered.
func TestTenantsCannotReadFromTheAgentsHost(t *testing.T) {
	l := workflowLab(t, 1, "f1")
	admin := l.controllers[0].admin
	setProject(l, &controllerpb.Project{Name: "a", VipPrefixes: []string{"10.8.0.0/16"}, ServerPrefixes: []string{"10.1.0.0/16"}})
	operator := l.join(l.controllers[0], &controllerpb.CreateTokenRequest{Name: "op", Role: controllerpb.Role_ROLE_OPERATOR, Projects: []string{"a"}}, nil)
	var read atomic.Int32
	source := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		read.Add(1)
		fmt.Fprint(w, `{"status":"error","error":"root:secret:0:0"}`)
	}))
	defer source.Close()
	_, port, _ := net.SplitHostPort(source.Listener.Addr().String())
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "[::1]", "127.1.2.3", "[64:ff9b::7f00:1]", "169.254.169.254", "[fd00:ec2::254]", "0.0.0.0", "[fe80::1]"} {
		if _, err := apply(t.Context(), operator, "f1", "a", withLoad("http://"+host+":"+port)); connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(fmt.Sprint(err), "--allow-egress") {
			t.Errorf("%s: %v", host, err)
		}
	}
	// An admin's URL, in the default project, may lead there; the answer is still not quoted.
	text := strings.Replace(withLoad(source.URL), "version: 1", "version: 1\nlocal_addresses: [10.1.0.200]", 1)
	if _, err := apply(t.Context(), admin, "f1", "", text); err != nil {
		t.Fatal(err)
	}
	if why := l.loadError(admin, "s"); strings.Contains(why, "secret") || read.Load() == 0 {
		t.Errorf("%d readings, and the answer is shown: %s", read.Load(), why)
	}
	if _, err := apply(t.Context(), admin, "f1", "", base); err != nil {
		t.Fatal(err)
	}
	// A tenant's URL may, if root on the host allows it. Without that permission the readings end, although the file is in force.
	f1 := l.agents["f1"]
	restart := func(allow ...netip.Prefix) {
		f1.stop()
		f1.options.Token, f1.options.AllowEgress = "", allow
		l.start(f1)
		l.awaitOwner("f1")
	}
	restart(netip.MustParsePrefix("127.0.0.1/32"))
	if _, err := apply(t.Context(), operator, "f1", "a", withLoad(source.URL)); err != nil {
		t.Fatal(err)
	}
	if why := l.loadError(admin, "a.s"); strings.Contains(why, "--allow-egress") {
		t.Error(why)
	}
	restart()
	read.Store(0)
	if why := l.loadError(admin, "a.s"); !strings.Contains(why, "--allow-egress 127.0.0.1") || read.Load() != 0 {
		t.Errorf("%d readings: %s", read.Load(), why)
	}
}

// loadError waits until a service's load could not be read, and returns why.
func (l *lab) loadError(u user, service string) (why string) {
	l.Helper()
	l.until("the load of "+service+" is read", func() bool {
		request := connect.NewRequest(&agentpb.ListServicesRequest{Name: service})
		on("f1")(request)
		response, err := u.ListServices(l.Context(), request)
		if err != nil || len(response.Msg.GetServices()) != 1 {
			return false
		}
		why = response.Msg.GetServices()[0].GetServers()[0].GetLoad().GetError()
		return why != ""
	})
	return why
}
