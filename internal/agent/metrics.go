// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"steelyard/internal/connlimit"
)

// Maximum connections of scrapers: the agent needs its descriptors for health checks.
const (
	maxMetricsConns     = 128
	maxMetricsConnsFrom = 32 // from one address
)

// metricsServer serves /metrics, /healthz and /readyz at the configured address.
type metricsServer struct {
	mux *http.ServeMux
	log *slog.Logger

	mu      sync.Mutex
	address string
	server  *http.Server // nil: none
	err     error        // why the configured server does not run
}

func newMetricsServer(handler http.Handler, log *slog.Logger) *metricsServer {
	mux := http.NewServeMux()
	mux.Handle("/metrics", handler)
	return &metricsServer{mux: mux, log: log}
}

// listen starts serving at address; "" stops serving.
func (m *metricsServer) listen(address string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.address == address && m.err == nil {
		return
	}
	if m.server != nil {
		m.server.Close()
		m.server = nil
	}
	m.address, m.err = address, nil
	if address == "" {
		return
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		m.err = fmt.Errorf("no metrics: %w: change metrics.listen", err)
		m.log.Error("metrics", "error", err)
		return
	}
	m.log.Info("metrics are served", "address", listener.Addr())
	server := &http.Server{
		Handler: m.mux, ReadTimeout: 10 * time.Second, WriteTimeout: 2 * time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
	}
	m.server = server
	go func() { _ = server.Serve(connlimit.Listen(listener, maxMetricsConns, maxMetricsConnsFrom)) }() // Close ends it
}

func (m *metricsServer) warnings() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		return nil
	}
	return []string{m.err.Error()}
}
