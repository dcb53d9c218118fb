// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"crypto/tls"
	"net/http"
	"strings"
	"testing"

	agentpb "steelyard/internal/gen/agentpb"
	pb "steelyard/internal/gen/controllerpb"
	forwarderpb "steelyard/internal/gen/forwarderpb"
	joining "steelyard/internal/member"
	"steelyard/internal/pki"

	"connectrpc.com/connect"
)

func TestApplyReachesTheForwarder(t *testing.T) {
	l := newLab(t, 1)
	c := l.controllers[0]
	f := l.addForwarder("f1")
	response, err := apply(t.Context(), c.admin, "f1", "", file(10))
	if err != nil || response.GetRevision() == 0 || len(response.GetWarnings()) > 0 {
		t.Fatalf("%v, %v", response, err)
	}
	if weight := f.Server(vip, server).GetWeight(); weight != 10 {
		t.Errorf("weight %d", weight)
	}
	again, err := apply(t.Context(), c.admin, "f1", "", file(10))
	if err != nil || again.GetGeneration() != response.GetGeneration() {
		t.Errorf("the same again is revision %d after %d, %v", again.GetGeneration(), response.GetGeneration(), err)
	}
	list := l.list(c.admin)
	if got := list["f1"]; !got.GetInForwarder() || got.GetAppliedRevision() != int64(response.GetGeneration()) || got.GetController() != c.url {
		t.Errorf("%v", got)
	}

	// The controller forwards what the agent answers on its socket.
	services := connect.NewRequest(&agentpb.ListServicesRequest{})
	on("f1")(services)
	if got, err := c.admin.ListServices(t.Context(), services); err != nil || got.Msg.GetServices()[0].GetService().GetName() != "web" {
		t.Errorf("%v, %v", got, err)
	}
	diff := connect.NewRequest(&agentpb.DiffConfigRequest{Yaml: []byte(file(7)), File: "new.yaml"})
	on("f1")(diff)
	if got, err := c.admin.DiffConfig(t.Context(), diff); err != nil || len(got.Msg.GetChanges()) != 1 || !strings.Contains(got.Msg.GetChanges()[0].GetDetail(), "10 -> 7") {
		t.Errorf("%v, %v", got, err)
	}
	drain := connect.NewRequest(&agentpb.SetDrainRequest{Server: "10.1.0.21", Drain: true})
	on("f1")(drain)
	if got, err := c.admin.SetDrain(t.Context(), drain); err != nil || len(got.Msg.GetServers()) != 1 {
		t.Errorf("%v, %v", got, err)
	}

	audit, err := c.admin.ListAudit(t.Context(), connect.NewRequest(&pb.ListAuditRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	var what []string
	for _, record := range audit.Msg.GetRecords() {
		what = append(what, record.GetWhat())
		if record.GetWhat() == "apply" && (record.GetRevision() != int64(response.GetGeneration()) || !strings.HasPrefix(record.GetWho(), "socket/uid=")) {
			t.Errorf("%v", record)
		}
	}
	if got := strings.Join(what, ", "); got != "drain, apply, join, create token, create" {
		t.Errorf("recorded: %s", got)
	}
}

func (l *lab) list(u user) map[string]*pb.Forwarder {
	l.Helper()
	response, err := u.ListForwarders(l.Context(), connect.NewRequest(&pb.ListForwardersRequest{}))
	if err != nil {
		l.Fatal(err)
	}
	all := map[string]*pb.Forwarder{}
	for _, f := range response.Msg.GetForwarders() {
		all[f.GetName()] = f
	}
	return all
}

func TestRefusedChangesNothing(t *testing.T) {
	l := newLab(t, 1)
	c := l.controllers[0]
	f := l.addForwarder("f1")
	if _, err := apply(t.Context(), c.admin, "f1", "", "version: 1\nservices: [{ name: x }]\n"); connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "test.yaml:2") {
		t.Errorf("a bad file: %v", err)
	}
	if _, err := apply(t.Context(), c.admin, "f1", "", file(10)); err != nil {
		t.Fatal(err)
	}
	// A forwarder that is disconnected at the moment refuses later.
	l.until("the first one is in force", func() bool {
		got := l.list(c.admin)["f1"]
		return got.GetInForwarder() && got.GetAppliedRevision() == got.GetDesiredRevision()
	})
	f.Refuse(&forwarderpb.Error{Code: forwarderpb.Code_CODE_INVALID, Text: "10.0.0.80 is an address of this host"})
	if _, err := apply(t.Context(), c.admin, "f1", "", strings.Replace(file(20), "port: 80\n", "port: 81\n", 1)); connect.CodeOf(err) != connect.CodeInvalidArgument ||
		!strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("a refusal: %v", err)
	}
	f.Refuse(nil)
	l.until("the old one is in force again", func() bool {
		got := l.list(c.admin)["f1"]
		return got.GetInForwarder() && got.GetError() == "" && got.GetAppliedRevision() == got.GetDesiredRevision()
	})
	if f.Server(vip, server).GetWeight() != 10 {
		t.Error("the forwarder has changed")
	}
	projects, err := c.admin.ListProjects(t.Context(), connect.NewRequest(&pb.ListProjectsRequest{}))
	if err != nil || projects.Msg.GetProjects()[0].GetServices() != 1 {
		t.Errorf("%v, %v", projects, err)
	}
}

func TestNamesOfOtherProjects(t *testing.T) {
	l := newLab(t, 1)
	c := l.controllers[0]
	l.addForwarder("f1")
	if _, err := apply(t.Context(), c.admin, "f1", "", strings.Replace(file(1), "web", "shop.web", 1)); connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "shop.web") {
		t.Errorf("a name that counts for another project: %v", err)
	}
}

func TestWhoMayDoWhat(t *testing.T) {
	l := newLab(t, 1)
	c := l.controllers[0]
	l.addForwarder("f1")
	for _, name := range []string{"shop", "blog"} {
		request := &pb.SetProjectRequest{Project: &pb.Project{Name: name, MaxServices: 3, MaxServers: 5,
			VipPrefixes: []string{"10.0.0.0/8"}, ServerPrefixes: []string{"10.1.0.0/16"}}}
		if _, err := c.admin.SetProject(t.Context(), connect.NewRequest(request)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := apply(t.Context(), c.admin, "f1", "default", file(10)); err != nil {
		t.Fatal(err)
	}
	operator := l.join(c, &pb.CreateTokenRequest{Name: "ada", Role: pb.Role_ROLE_OPERATOR, Projects: []string{"shop"}}, nil)
	viewer := l.join(c, &pb.CreateTokenRequest{Name: "vic", Role: pb.Role_ROLE_VIEWER}, nil)
	// A user cannot impersonate another one by the controllers' header.
	liar := l.join(c, &pb.CreateTokenRequest{Name: "liz", Role: pb.Role_ROLE_VIEWER}, map[string]string{behalfHeader: "user/root"})

	if _, err := apply(t.Context(), operator, "f1", "shop", part(2, 2, 2)); err != nil {
		t.Error(err)
	}
	for name, test := range map[string]struct {
		user    user
		project string
		text    string
		want    connect.Code
	}{
		"another project":   {operator, "blog", part(3, 1, 1), connect.CodePermissionDenied},
		"a viewer":          {viewer, "shop", part(2, 1, 1), connect.CodePermissionDenied},
		"a liar":            {liar, "shop", part(2, 1, 1), connect.CodePermissionDenied},
		"too many services": {operator, "shop", part(2, 4, 1), connect.CodeResourceExhausted},
		"too many servers":  {operator, "shop", part(2, 2, 3), connect.CodeResourceExhausted},
		"another's VIP":     {operator, "shop", strings.Replace(part(2, 1, 1), "10.2.0.1", "10.0.0.80", 1), connect.CodeInvalidArgument},
		"settings of all":   {operator, "shop", "version: 1\nlocal_addresses: [10.9.9.9]\nservices: []\n", connect.CodeInvalidArgument},
		"no such project":   {c.admin, "missing", part(2, 1, 1), connect.CodeNotFound},
	} {
		if _, err := apply(t.Context(), test.user, "f1", test.project, test.text); connect.CodeOf(err) != test.want {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
	if _, err := apply(t.Context(), c.admin, "f9", "default", file(1)); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("no such forwarder: %v", err)
	}
	for name, test := range map[string]struct {
		user    user
		service string
		want    connect.Code
	}{
		"own service": {operator, "shop.s0", 0}, "of the default project": {operator, "web", connect.CodePermissionDenied},
		"of all services": {operator, "", connect.CodePermissionDenied}, "by a viewer": {viewer, "shop.s0", connect.CodePermissionDenied},
		"by a liar": {liar, "shop.s0", connect.CodePermissionDenied},
	} {
		request := connect.NewRequest(&agentpb.SetDrainRequest{Server: "10.1.0.21", Service: test.service, Drain: true})
		on("f1")(request)
		if _, err := test.user.SetDrain(t.Context(), request); (err != nil || test.want != 0) && connect.CodeOf(err) != test.want {
			t.Errorf("drain %s: %v", name, err)
		}
	}
	if _, err := viewer.CreateToken(t.Context(), connect.NewRequest(&pb.CreateTokenRequest{Name: "x", Role: pb.Role_ROLE_ADMIN})); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("a viewer makes tokens: %v", err)
	}
	// After its removal, a member's well-formed certificate is void.
	if _, err := c.admin.RemoveMember(t.Context(), connect.NewRequest(&pb.RemoveMemberRequest{Name: "ada"})); err != nil {
		t.Error(err)
	}
	if _, err := apply(t.Context(), operator, "f1", "shop", part(2, 1, 1)); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("a removed member: %v", err)
	}
}

// A project that may no longer use a forwarder may only remove services there.
func TestProjectMayOnlyShrinkOnAForwarderItLost(t *testing.T) {
	l := newLab(t, 1)
	c := l.controllers[0]
	l.addForwarder("f1")
	change := func(forwarders ...string) {
		t.Helper()
		if _, err := c.admin.SetProject(t.Context(), connect.NewRequest(&pb.SetProjectRequest{Project: &pb.Project{Name: "shop", Forwarders: forwarders}})); err != nil {
			t.Fatal(err)
		}
	}
	change()
	if _, err := apply(t.Context(), c.admin, "f1", "", file(10)); err != nil {
		t.Fatal(err)
	}
	if _, err := apply(t.Context(), c.admin, "f1", "shop", part(2, 3, 1)); err != nil {
		t.Fatal(err)
	}
	change("f2")
	for _, test := range []struct {
		what, text string
		want       connect.Code
	}{
		{"the same", part(2, 3, 1), 0}, {"more", part(2, 4, 1), connect.CodePermissionDenied}, {"others", part(3, 3, 1), connect.CodePermissionDenied},
		{"fewer, one of them changed", strings.Replace(part(2, 2, 1), "10.1.0.", "10.1.1.", 1), connect.CodePermissionDenied},
		{"fewer, but one with another name", strings.Replace(part(2, 2, 1), "name: s0", "name: new", 1), connect.CodePermissionDenied},
		{"fewer", part(2, 1, 1), 0}, {"none", part(2, 0, 0), 0}, {"some again", part(2, 1, 1), connect.CodePermissionDenied},
	} {
		if _, err := apply(t.Context(), c.admin, "f1", "shop", test.text); (err != nil || test.want != 0) && connect.CodeOf(err) != test.want {
			t.Errorf("%s: %v", test.what, err)
		}
	}
}

func TestStrangers(t *testing.T) {
	for method, want := range map[string]bool{"ListServices": true, "GetStatus": true, "SetDrain": false, "ApplyConfig": false, "DiffConfig": false, "New": false} {
		if onlyReads(method) != want {
			t.Errorf("%s only reads: %v", method, !want)
		}
	}
	l := newLab(t, 1)
	c := l.controllers[0]
	stranger := userOn(t, c.url, &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, map[string]string{behalfHeader: "user/root"})
	if _, err := stranger.ListForwarders(t.Context(), connect.NewRequest(&pb.ListForwardersRequest{})); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("a stranger reads: %v", err)
	}
	if _, err := apply(t.Context(), stranger, "f1", "", file(1)); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("a stranger applies: %v", err)
	}
	if _, err := stranger.Join(t.Context(), connect.NewRequest(&pb.JoinRequest{Token: strings.Repeat("x", 1<<20)})); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("a large request of a stranger: %v", err)
	}
	// A forwarder's certificate is not a user's.
	identity, _, err := joining.Join(t.Context(), "", []string{c.url}, l.token(c, &pb.CreateTokenRequest{Name: "f1", Role: pb.Role_ROLE_FORWARDER}), pki.Forwarder)
	if err != nil {
		t.Fatal(err)
	}
	agent := userOn(t, c.url, &http.Transport{TLSClientConfig: identity.Client()}, nil)
	if _, err := agent.ListAudit(t.Context(), connect.NewRequest(&pb.ListAuditRequest{})); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("a forwarder reads the audit: %v", err)
	}
	if _, err := apply(t.Context(), agent, "f1", "", file(1)); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("a forwarder applies: %v", err)
	}
}

func TestTokensHoldOnce(t *testing.T) {
	l := newLab(t, 1)
	c := l.controllers[0]
	token := l.token(c, &pb.CreateTokenRequest{Name: "ada", Role: pb.Role_ROLE_ADMIN})
	if _, _, err := joining.Join(t.Context(), "", []string{c.url}, token, pki.User); err != nil {
		t.Fatal(err)
	}
	if _, _, err := joining.Join(t.Context(), "", []string{c.url}, token, pki.User); err == nil || !strings.Contains(err.Error(), "was used") {
		t.Errorf("twice: %v", err)
	}
	parsed, _ := pki.ParseToken(l.token(c, &pb.CreateTokenRequest{Name: "bob", Role: pb.Role_ROLE_ADMIN}))
	other, _ := pki.NewToken(parsed.Authority)
	parsed.Secret = other.Secret
	if _, _, err := joining.Join(t.Context(), "", []string{c.url}, parsed.String(), pki.User); err == nil {
		t.Error("a wrong secret is accepted")
	}
	parsed.Authority = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	if _, _, err := joining.Join(t.Context(), "", []string{c.url}, parsed.String(), pki.User); err == nil || !strings.Contains(err.Error(), "authority") {
		t.Errorf("another authority: %v", err)
	}
}

func TestWatch(t *testing.T) {
	l := newLab(t, 1)
	c := l.controllers[0]
	stream, err := c.admin.Watch(t.Context(), connect.NewRequest(&pb.WatchRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if !stream.Receive() || stream.Msg().GetWhat() != "watching" {
		t.Fatalf("%v, %v", stream.Msg(), stream.Err())
	}
	l.addForwarder("f1")
	if _, err := apply(t.Context(), c.admin, "f1", "", file(10)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"joined", "owner", "desired", "status"} {
		if !stream.Receive() || stream.Msg().GetWhat() != want || stream.Msg().GetForwarder() != "f1" {
			t.Fatalf("%v, %v: want %s", stream.Msg(), stream.Err(), want)
		}
	}
}
