// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	pb "steelyard/internal/gen/controllerpb"

	"connectrpc.com/connect"
)

// A forwarder that died is lost, whatever it had confirmed before, and in force again after its restart.
func TestDeadForwarderIsNotInForce(t *testing.T) {
	l := newLab(t, 0)
	l.tune = func(o *Options) { o.MeasureEvery = 10 * time.Millisecond }
	c := l.addController()
	f := l.addForwarder("f1")
	if _, err := apply(t.Context(), c.admin, "f1", "default", file(1)); err != nil {
		t.Fatal(err)
	}
	shown := func() *pb.Forwarder {
		response, err := c.admin.ListForwarders(t.Context(), connect.NewRequest(&pb.ListForwardersRequest{}))
		if err != nil || len(response.Msg.GetForwarders()) != 1 {
			t.Fatalf("%v, %v", response, err)
		}
		return response.Msg.GetForwarders()[0]
	}
	l.until("it is in force", func() bool { return shown().GetInForwarder() && shown().GetLost() == "" })
	watching, err := c.admin.Watch(t.Context(), connect.NewRequest(&pb.WatchRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	defer watching.Close()
	f.Forwarder.Stop()
	l.until("it is lost", func() bool { return !shown().GetInForwarder() && shown().GetLost() != "" })
	if now := shown(); now.GetController() == "" || now.GetAppliedRevision() != now.GetDesiredRevision() {
		t.Errorf("the agent has gone with its forwarder: %v", now)
	}
	f.Forwarder.Start()
	l.until("it is in force again", func() bool { return shown().GetInForwarder() && shown().GetLost() == "" })
	var seen []string
	for len(seen) < 2 && watching.Receive() {
		if what := watching.Msg().GetWhat(); what == "lost" || what == "back" {
			seen = append(seen, what+" "+watching.Msg().GetForwarder())
		}
	}
	if !slices.Equal(seen, []string{"lost f1", "back f1"}) {
		t.Errorf("%v, %v", seen, watching.Err())
	}
	happened := l.happened()
	if len(happened) != 2 || !strings.Contains(happened[0], " lost f1: its agent does not reach it: ") || !strings.HasSuffix(happened[1], " back f1: its agent reaches it again") {
		t.Errorf("%q", happened)
	}
}
