// SPDX-License-Identifier: Apache-2.0

// Package agent connects the agent's parts: file → store → reconciler → forwarder, with health checks
// beside them, and the API and metrics on top.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"steelyard/internal/api"
	"steelyard/internal/config"
	"steelyard/internal/dpclient"
	"steelyard/internal/health"
	"steelyard/internal/metrics"
	"steelyard/internal/model"
	"steelyard/internal/reconcile"
	"steelyard/internal/store"

	"github.com/prometheus/client_golang/prometheus"
)

// Default paths.
const (
	DefaultSocket = "/run/steelyard/agent.sock"
	DefaultConfig = "/etc/steelyard/steelyard.yaml"
	DefaultState  = "/var/lib/steelyard"
)

// maxChecks bounds the number of simultaneous health checks, and so the number of sockets.
const maxChecks = 2048

// Options of an agent.
type Options struct {
	Config    string // file
	Forwarder string // its socket
	Socket    string // the agent's own
	State     string // directory
	Log       *slog.Logger
	Probe     health.Dial     // how health checks connect
	Reload    <-chan struct{} // a value requests a reload of the file
}

// Agent is a running agent.
type Agent struct {
	options    Options
	store      *store.Store
	file       *config.File
	checker    *health.Checker
	reconciler *reconcile.Reconciler
	durations  *prometheus.HistogramVec
	behind     prometheus.Histogram
	late       prometheus.Counter
	metrics    *metricsServer
}

// Run works until ctx ends; an error means that it could not start. The forwarder keeps its configuration.
func Run(ctx context.Context, options Options) error {
	a := &Agent{options: options}
	a.durations = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "steelyard_health_check_duration_seconds", Help: "Duration of health checks, by result.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	}, []string{"result"})
	a.behind = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "steelyard_health_check_behind_seconds", Help: "Delay of the start of health checks.",
		Buckets: []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
	})
	a.late = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "steelyard_health_checks_late_total",
		Help: "Health checks that began late by more than a tenth of their interval and by more than 100 ms.",
	})
	a.checker = health.New(health.Options{
		Probe: a.probe(health.NewProbe(options.Probe)), Report: a.reportHealth, Limit: maxChecks, Observe: a.observeCheck,
	})
	defer a.checker.Close()
	var err error
	if a.store, err = store.Open(options.State, a.checker); err != nil {
		return err
	}
	a.file = &config.File{Path: options.Config, Use: a.use, Log: options.Log}
	a.reconciler = reconcile.New(a.store, reconcile.Options{
		Dial: func(ctx context.Context) (reconcile.Forwarder, error) { return a.dial(ctx) },
		Log:  options.Log, First: 50 * time.Millisecond, Longest: 500 * time.Millisecond, Poll: 2 * time.Second,
		Retry: 30 * time.Second, AnswerTimeout: 10 * time.Second,
	})
	registry := prometheus.NewRegistry()
	registry.MustRegister(a.durations, a.behind, a.late)
	a.metrics = newMetricsServer(metrics.NewHandler(metrics.Sources{
		Dial: a.dial, Store: a.store, File: a.file.Status,
		Forwarder: func() reconcile.Status { status, _ := a.reconciler.Status(); return status },
	}, registry, a.detail), options.Log)
	defer a.metrics.listen("")

	listener, err := listen(options.Socket)
	if err != nil {
		return err
	}
	a.serve(ctx, listener)
	return nil
}

// serve runs the parts until ctx ends, then waits for them.
func (a *Agent) serve(ctx context.Context, listener net.Listener) {
	var running sync.WaitGroup
	defer running.Wait()
	_, _ = a.file.Load() // a bad file is logged; a corrected one is loaded later
	if err := a.file.Watch(ctx); err != nil {
		a.options.Log.Warn("the configuration file is not watched: run `steelyard apply` after changing it", "error", err)
	}
	running.Go(func() { a.reconciler.Run(ctx) })
	running.Go(func() { a.followReloads(ctx) })

	handler := api.NewHandler(&api.Server{
		Store: a.store, File: a.file, Checker: a.checker, Reconciler: a.reconciler, Dial: a.dial,
		Socket: a.options.Forwarder, Started: time.Now(), Warnings: a.metrics.warnings, Log: a.options.Log,
	})
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10,
		// Calls that wait end when the agent does.
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	running.Go(func() {
		<-ctx.Done()
		server.Close()
	})
	a.options.Log.Info("agent is ready", "socket", a.options.Socket, "forwarder", a.options.Forwarder)
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		a.options.Log.Error("the agent's socket failed; the command line cannot reach it", "error", err)
		<-ctx.Done()
	}
}

func (a *Agent) followReloads(ctx context.Context) {
	for {
		select {
		case <-a.options.Reload:
			_, _ = a.file.Load() // logged, and kept in the status
		case <-ctx.Done():
			return
		}
	}
}

func (a *Agent) dial(ctx context.Context) (*dpclient.Client, error) {
	return dpclient.Dial(ctx, a.options.Forwarder)
}

// detail returns what the running configuration says about metrics.
func (a *Agent) detail() model.Detail {
	if running := a.store.Config(); running != nil {
		return running.Metrics.Detail
	}
	return model.DetailServers
}

// use makes a configuration from the file the running one.
func (a *Agent) use(config *model.Config) uint64 {
	generation := a.store.SetConfig(config)
	a.metrics.listen(config.Metrics.Listen)
	return generation
}

// probe checks servers with a mark on the VIP once the forwarder leads marks to them, and on their own
// address if it cannot.
func (a *Agent) probe(probe health.Probe) health.Probe {
	return func(ctx context.Context, policy model.Health, server health.Server) error {
		if server.Mark != 0 {
			status, _ := a.reconciler.Status()
			switch {
			case status.Marks.Refused != "":
				server.Mark = 0
			case !status.Marks.Active || status.Version < server.Marked:
				return health.ErrNotYet
			}
		}
		return probe(ctx, policy, server)
	}
}

func (a *Agent) reportHealth(ref model.ServerRef, epoch uint64, state health.State) {
	if !a.store.SetUp(ref, epoch, state.Up) {
		return // the server was removed meanwhile
	}
	service := a.store.ServiceName(ref.Service)
	if state.Up {
		a.options.Log.Info("server is up", "server", ref.Address, "service", service, "reason", "health checks passed")
	} else {
		a.options.Log.Warn("server is down", "server", ref.Address, "service", service,
			"reason", "health checks failed", "error", state.LastError)
	}
}

func (a *Agent) observeCheck(check health.Observation) {
	result := "failed"
	if check.Passed {
		result = "passed"
	}
	a.durations.WithLabelValues(result).Observe(check.Duration.Seconds())
	a.behind.Observe(check.Behind.Seconds())
	if check.Late {
		a.late.Inc()
	}
}

// listen replaces a socket that a dead agent left, but never one on which a process answers.
func listen(socket string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		return nil, fmt.Errorf("the agent's socket: %w", err)
	}
	if conn, err := net.Dial("unix", socket); err == nil {
		conn.Close()
		return nil, fmt.Errorf("an agent is running already, on %s: stop it, or use another --socket", socket)
	} else if errors.Is(err, syscall.ECONNREFUSED) {
		if err := os.Remove(socket); err != nil {
			return nil, fmt.Errorf("the agent's socket: %w", err)
		}
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("the agent's socket: %w", err)
	}
	// Write access to the socket allows control of the forwarder: root, and the socket's group.
	if err := os.Chmod(socket, 0o660); err != nil {
		listener.Close()
		return nil, fmt.Errorf("the agent's socket: %w", err)
	}
	return listener, nil
}
