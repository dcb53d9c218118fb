// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"steelyard/internal/freeport"
	pb "steelyard/internal/gen/agentpb"
	"steelyard/internal/health"

	"connectrpc.com/connect"
)

// A shortage of this host takes no server down, and status, listing, metric and log report it.
func TestHostFaultTakesNoServerDown(t *testing.T) {
	address := freeport.Address(t)
	l := newLab(t, strings.Replace(twoServers, "interval: 500ms, timeout: 500ms", "interval: 100ms, timeout: 100ms", 1)+"metrics: { listen: '"+address+"' }\n")
	web := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer web.Close()
	var short atomic.Bool
	l.options.Probe = func(ctx context.Context, _ health.Endpoint) (net.Conn, error) {
		if short.Load() {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("socket", syscall.EMFILE)}
		}
		return new(net.Dialer).DialContext(ctx, "tcp", web.Listener.Addr().String())
	}
	l.start()
	server := func() *pb.HealthState {
		response, err := l.client.ListServices(t.Context(), connect.NewRequest(&pb.ListServicesRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		return response.Msg.GetServices()[0].GetServers()[0].GetHealth()
	}
	l.forwarder.AwaitState(vip, one, up)
	for server().GetLastCheckUnixMs() == 0 {
		time.Sleep(time.Millisecond)
	}
	short.Store(true)
	for server().GetUndecided() < 10 { // `fall` is 2
		time.Sleep(10 * time.Millisecond)
	}
	if h := server(); !h.GetUp() || !strings.Contains(h.GetUndecidedError(), "too many open files") {
		t.Errorf("%v", h)
	}
	warnings := strings.Join(l.status().GetWarnings(), "\n")
	if !strings.Contains(warnings, "servers keep their states") || !strings.Contains(warnings, "LimitNOFILE") {
		t.Errorf("warnings: %s", warnings)
	}
	for _, of := range []string{one, two} {
		if state := l.forwarder.Server(vip, of).GetState(); state != up {
			t.Errorf("%s is %s", of, state)
		}
	}
	l.log.await("a fault of this host", 1)
	if page := scrape(t, address); !strings.Contains(page, `steelyard_health_checks_undecided_total{reason="stall"} 0`) ||
		strings.Contains(page, `steelyard_health_checks_undecided_total{reason="host"} 0`) {
		t.Error(page)
	}
	short.Store(false)
	for server().GetUndecided() > 0 {
		time.Sleep(10 * time.Millisecond)
	}
}
