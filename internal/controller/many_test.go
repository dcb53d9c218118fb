// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"strings"
	"testing"

	"steelyard/internal/cluster"
	pb "steelyard/internal/gen/controllerpb"

	"connectrpc.com/connect"
)

// One file goes to several forwarders at once; one that refuses it keeps its configuration, and the others change theirs.
func TestApplyToSeveral(t *testing.T) {
	l := newLab(t, 2)
	c := l.controllers[0]
	names := []string{"f1", "f2", "f3"}
	for _, name := range names {
		l.addForwarder(name)
	}
	weights := func() string {
		var all []string
		for _, name := range names {
			all = append(all, fmt.Sprint(l.agents[name].Server(vip, server).GetWeight()))
		}
		return strings.Join(all, " ")
	}
	if response, err := apply(t.Context(), c.admin, "f1,f3", "", file(10)); err != nil || len(response.GetWarnings()) > 0 || response.GetGeneration() == 0 || weights() != "10 0 10" {
		t.Fatalf("%v, %v, %s", response, err, weights())
	}
	if _, err := apply(t.Context(), c.admin, AllForwarders, "", file(20)); err != nil || weights() != "20 20 20" {
		t.Fatalf("%v, %s", err, weights())
	}
	l.agents["f2"].Refuse(refuses)
	if _, err := apply(t.Context(), c.admin, AllForwarders, "", file(30)); connect.CodeOf(err) != connect.CodeInvalidArgument ||
		!strings.Contains(err.Error(), "f2 refuses") || !strings.Contains(err.Error(), "2 of 3") || weights() != "30 20 30" {
		t.Errorf("%v, %s", err, weights())
	}
	l.agents["f2"].Refuse(nil)
	// An error for one forwarder is found before anything is written.
	if _, err := apply(t.Context(), c.admin, "f1,f9", "", file(40)); connect.CodeOf(err) != connect.CodeNotFound || weights() != "30 20 30" {
		t.Errorf("%v, %s", err, weights())
	}
	if list := l.list(c.admin); list["f1"].GetError() != "" || len(list["f2"].GetTakenBack()) != 1 {
		t.Errorf("%v", list)
	}
}

// More forwarders than fit into one transaction; the quota counts over all of them.
func TestQuotaCountsOverManyForwarders(t *testing.T) {
	l := newLab(t, 1)
	c := l.controllers[0]
	const count = 3*maxTogether + 1
	for i := range count {
		if _, err := l.store.Commit(t.Context(), new(cluster.Txn).Put(fmt.Sprintf("%sf%d", keyMembers, i), encode(member{Role: pb.Role_ROLE_FORWARDER}), 0)); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		quota uint32
		want  connect.Code
	}{{count - 1, connect.CodeResourceExhausted}, {count, 0}} {
		quota, want := test.quota, test.want
		if _, err := c.admin.SetProject(t.Context(), connect.NewRequest(&pb.SetProjectRequest{Project: &pb.Project{Name: defaultProject, MaxServices: quota}})); err != nil {
			t.Fatal(err)
		}
		if _, err := apply(t.Context(), c.admin, AllForwarders, "", file(10)); (err != nil || want != 0) && connect.CodeOf(err) != want {
			t.Errorf("a quota of %d: %v", quota, err)
		}
		if desired, err := l.store.Names(t.Context(), keyDesired); err != nil || want != 0 && len(desired) > 0 {
			t.Errorf("a quota of %d: %d forwarders have it, %v", quota, len(desired), err)
		}
	}
	desired, err := l.store.Names(t.Context(), keyDesired)
	if err != nil || len(desired) != count {
		t.Errorf("%d forwarders have it, %v", len(desired), err)
	}
}
