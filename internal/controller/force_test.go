// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	agentpb "steelyard/internal/gen/agentpb"
	pb "steelyard/internal/gen/controllerpb"

	"connectrpc.com/connect"
)

// forced applies a file with --force.
func forced(l *lab, u user, forwarder, project, yaml string) error {
	request := connect.NewRequest(&agentpb.ApplyConfigRequest{Yaml: []byte(yaml), File: "test.yaml", Force: true})
	on(forwarder)(request)
	request.Header().Set(ProjectHeader, project)
	_, err := u.ApplyConfig(l.Context(), request)
	return err
}

// --force through a controller claims addresses from other hosts: for an admin, all of the project's; for an operator, those within its prefixes.
func TestForceClaimsOnlyAddressesThatTheCallerMayClaim(t *testing.T) {
	l := newLab(t, 2)
	c := l.controllers[0]
	f1 := l.addReady("f1")
	expect := func(what string, left ...string) {
		t.Helper()
		got := f1.Contested()
		if len(got) != len(left) || slices.ContainsFunc(left, func(address string) bool {
			return !slices.ContainsFunc(got, func(text string) bool { return strings.HasPrefix(text, address+" ") })
		}) {
			t.Errorf("%s: %q", what, got)
		}
	}
	setProject(l, &pb.Project{Name: "shop", VipPrefixes: []string{"10.8.0.0/24", "fd00:8::/64"}, ServerPrefixes: []string{"10.1.0.0/16", "fd00:1::/64"}})
	setProject(l, &pb.Project{Name: "none"})
	join := func(name string, role pb.Role, projects ...string) user {
		return l.join(c, &pb.CreateTokenRequest{Name: name, Role: role, Projects: projects}, nil)
	}
	shop, none, viewer := join("shop-op", pb.Role_ROLE_OPERATOR, "shop"), join("none-op", pb.Role_ROLE_OPERATOR, "none"), join("viewer", pb.Role_ROLE_VIEWER)
	two := service("10.8.0.1", "80", "fnat", "10.1.0.21") + strings.TrimPrefix(strings.ReplaceAll(service("10.8.1.1", "80", "fnat", "10.1.0.21"), "name: s", "name: s2"),
		"version: 1\nservices:\n")
	// An admin's file has a VIP outside the operators' prefixes: it is in the file already when the operator applies it.
	setProject(l, &pb.Project{Name: "shop", VipPrefixes: []string{"10.8.0.0/16"}, ServerPrefixes: []string{"10.1.0.0/16"}})
	if _, err := apply(t.Context(), c.admin, "f1", "shop", two); err != nil {
		t.Fatal(err)
	}
	setProject(l, &pb.Project{Name: "shop", VipPrefixes: []string{"10.8.0.0/24"}, ServerPrefixes: []string{"10.1.0.0/16"}})

	all := []string{"10.8.0.1", "10.8.1.1", "10.1.0.200", "10.77.0.1"}
	f1.Contest(all...)
	if _, err := apply(t.Context(), shop, "f1", "shop", two); err != nil {
		t.Fatal(err)
	}
	expect("without --force", all...)
	if err := forced(l, viewer, "f1", "shop", two); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("a viewer: %v", err)
	}
	if err := forced(l, none, "f1", "none", part(0, 0, 0)); connect.CodeOf(err) != connect.CodePermissionDenied || !strings.Contains(fmt.Sprint(err), "project set none --vips") {
		t.Errorf("an operator without prefixes: %v", err)
	}
	expect("refused", all...)
	if err := forced(l, shop, "f1", "shop", two); err != nil {
		t.Error(err)
	}
	expect("an operator", "10.8.1.1", "10.1.0.200", "10.77.0.1")
	if err := forced(l, l.controllers[1].admin, "f1", "shop", two); err != nil { // whichever controller has the agent
		t.Error(err)
	}
	expect("an admin, of a project", "10.1.0.200", "10.77.0.1")
	if err := forced(l, c.admin, "f1", "", base); err != nil {
		t.Error(err)
	}
	expect("an admin, of the forwarder's own file", "10.77.0.1")
	if err := forced(l, c.admin, "*", "shop", two); connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(fmt.Sprint(err), "--forwarder") {
		t.Errorf("at all forwarders: %v", err)
	}
	request := connect.NewRequest(&agentpb.ClaimAddressesRequest{})
	on("f1")(request)
	if _, err := c.admin.ClaimAddresses(t.Context(), request); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("past the records: %v", err)
	}
	expect("past the records", "10.77.0.1")
	records, err := c.admin.ListAudit(t.Context(), connect.NewRequest(&pb.ListAuditRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	var claims []string
	for _, r := range records.Msg.GetRecords() {
		if r.GetWhat() == "claim" {
			claims = append(claims, r.GetWho()+" "+r.GetDetail())
		}
	}
	slices.Sort(claims)
	if len(claims) != 3 || !strings.HasPrefix(claims[2], "user/shop-op from other hosts: 10.8.0.1") {
		t.Errorf("%q", claims)
	}
	// Without an agent, nothing is claimed, and the response says so.
	f1.stop()
	l.until("no controller owns f1", func() bool { return l.owner("f1") == "" })
	order := connect.NewRequest(&agentpb.ApplyConfigRequest{Yaml: []byte(two), File: "test.yaml", Force: true})
	on("f1")(order)
	order.Header().Set(ProjectHeader, "shop")
	if response, err := c.admin.ApplyConfig(t.Context(), order); err == nil &&
		!slices.ContainsFunc(response.Msg.GetWarnings(), func(text string) bool { return strings.Contains(text, "no address was claimed") }) {
		t.Errorf("%v", response.Msg.GetWarnings())
	}
}
