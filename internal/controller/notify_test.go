// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	agentpb "steelyard/internal/gen/agentpb"
	"steelyard/internal/gen/forwarderpb"

	"connectrpc.com/connect"
)

// keepalived's notify scripts set servers' states at the agent's own socket, also under a controller, and without one.
func TestNotifyScriptsWorkUnderAController(t *testing.T) {
	l := newLab(t, 1)
	f := l.addForwarder("f1")
	if _, err := apply(t.Context(), l.controllers[0].admin, "f1", "", file(10)); err != nil {
		t.Fatal(err)
	}
	own := userOn(t, "http://agent", &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", f.options.Socket)
	}}, nil)
	set := func(drain bool, want forwarderpb.ServerState) {
		t.Helper()
		if _, err := own.SetDrain(t.Context(), connect.NewRequest(&agentpb.SetDrainRequest{Server: "10.1.0.21", Drain: drain})); err != nil {
			t.Error(err)
		}
		if got := f.Server("10.0.0.80:80", "10.1.0.21:8080").GetState(); got != want {
			t.Errorf("drain %v: %v", drain, got)
		}
	}
	const drained, up = forwarderpb.ServerState_SERVER_STATE_DRAIN, forwarderpb.ServerState_SERVER_STATE_UP
	set(true, drained)
	set(true, drained) // keepalived may say the same twice
	if _, err := apply(t.Context(), l.controllers[0].admin, "f1", "", file(20)); err != nil {
		t.Fatal(err)
	}
	if got := f.Server("10.0.0.80:80", "10.1.0.21:8080"); got.GetState() != drained || got.GetWeight() != 20 {
		t.Errorf("after a change from the controller: %v", got)
	}
	if _, err := apply(t.Context(), own, "", "", file(30)); connect.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), "configures this agent") {
		t.Errorf("two masters: %v", err)
	}
	l.controllers[0].stop()
	set(false, up)
	set(false, up)
	set(true, drained)
}
