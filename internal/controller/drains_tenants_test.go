// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"

	"steelyard/internal/cluster"
	"steelyard/internal/gen/nfvpb"
)

// A controller of an older version accepted a file with the VIP of another project's request, at another forwarder. Orders for the servers of one do not
// apply to those of the other, although both have the same servers.
func TestDrainsOfAFileAndARequestWithOneVIPAreSeparate(t *testing.T) {
	l := workflowLab(t, 1, "f1")
	admin := l.controllers[0].admin
	l.request(balancing("web", 80))
	l.awaitState("web", nfvpb.State_STATE_ROUTING, nil)
	l.confirm("web", 1)
	l.awaitState("web", nfvpb.State_STATE_ROUTED, nil)
	f1, f2 := l.agents["f1"], l.addForwarder("f2")
	const web = "10.9.0.80:80"
	text, err := l.store.Save(t.Context(), []byte(strings.ReplaceAll(twoServers, "10.0.0.80", "10.9.0.80")))
	if err != nil {
		t.Fatal(err)
	}
	l.commit(new(cluster.Txn).PutLarge(keyConfigs+"f2/default", text.Value).PutLarge(keyDesired+"f2", text.Value))
	l.awaitServer(f2, web, server, stateUp)
	l.mustOrder(admin, "f1", "10.1.0.21@nfv.web", true)
	l.mustOrder(admin, "f2", "10.1.0.22@web", true)
	l.awaitServer(f1, web, server, stateDrain)
	l.awaitServer(f2, web, secondServer, stateDrain)
	if got := f2.Server(web, server).GetState(); got != stateUp {
		t.Errorf("by the request's owner, the file's server is %s", got)
	}
	if got := f1.Server(web, secondServer).GetState(); got != stateUp {
		t.Errorf("by the file's owner, the request's server is %s", got)
	}
	// Likewise at the agent's own socket, and for both at once.
	l.mustOrder(l.own(f2), "", "10.1.0.21@web", true)
	l.until("the store has both of the file's", func() bool { return len(l.stored(keyDrains+"f2/")) == 2 })
	l.mustOrder(admin, "f1", "10.1.0.21@nfv.web", false)
	l.awaitServer(f1, web, server, stateUp)
	l.awaitServer(f2, web, server, stateDrain)
	// The request takes its own orders with it, and no others.
	l.remove("web")
	l.confirm("web", l.awaitState("web", nfvpb.State_STATE_WITHDRAWING, nil).GetRoute().GetGeneration())
	l.awaitState("web", nfvpb.State_STATE_REMOVED, nil)
	l.until("its orders end with it", func() bool { return len(l.stored(keyMoving)) == 0 })
	l.mustOrder(admin, "f2", "10.1.0.21@web", false)
	l.awaitServer(f2, web, server, stateUp)
	if got := f2.Server(web, secondServer).GetState(); got != stateDrain {
		t.Errorf("after the request, the file's server is %s", got)
	}
}

// A controller of an older version ends a request but keeps the orders for its servers. The next request for the VIP does not inherit them.
func TestRequestInheritsNoDrains(t *testing.T) {
	l := workflowLab(t, 1, "f1")
	left := new(cluster.Txn).Put(keyMoving+"10.9.0.80/tcp/10.9.0.80:80/"+server, encode(drainRecord{Drain: true, Service: "nfv.web"}), 0)
	if _, err := l.store.Commit(t.Context(), left); err != nil {
		t.Fatal(err)
	}
	l.request(balancing("web", 80))
	l.awaitState("web", nfvpb.State_STATE_ROUTING, nil)
	if got := l.agents["f1"].Server("10.9.0.80:80", server).GetState(); got != stateUp || len(l.stored(keyMoving)) != 0 {
		t.Errorf("%s, %v", got, l.stored(keyMoving))
	}
}
