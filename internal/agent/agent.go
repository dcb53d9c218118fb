// SPDX-License-Identifier: Apache-2.0

// Package agent connects the agent's parts: file → store → reconciler → forwarder, with health checks, the API and metrics.
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"steelyard/internal/answers"
	"steelyard/internal/api"
	"steelyard/internal/config"
	"steelyard/internal/dpclient"
	"steelyard/internal/egress"
	"steelyard/internal/feedback"
	"steelyard/internal/health"
	"steelyard/internal/inflight"
	"steelyard/internal/member"
	"steelyard/internal/metrics"
	"steelyard/internal/model"
	"steelyard/internal/reconcile"
	"steelyard/internal/routes"
	"steelyard/internal/sampling"
	"steelyard/internal/setfile"
	"steelyard/internal/store"
	"steelyard/internal/unixsock"

	"github.com/prometheus/client_golang/prometheus"
)

// Default paths.
const (
	DefaultSocket = "/run/steelyard/agent/agent.sock"
	DefaultConfig = "/etc/steelyard/steelyard.yaml"
	DefaultState  = "/var/lib/steelyard/agent"
	// The configuration from a controller, in the state directory.
	DesiredFile = "desired.yaml"
	// The learned URLs of controllers, in the state directory.
	ControllersFile = "controllers"
	// The part of a group of forwarders, in the state directory: it has secrets.
	NodeFile = "node.json"
	// Groups of the two sockets.
	DefaultGroup     = "steelyard"
	DefaultReadGroup = "steelyard-read"
)

// maxChecks bounds the concurrent health checks, and so their sockets.
const maxChecks = 2048

// Maximum connections to a socket of the agent: of all users except root and the agent's own, and of each of these.
const (
	maxConnections       = 128
	maxConnectionsOfUser = 32
)

// Options configure an agent.
type Options struct {
	Config    string // file
	Forwarder string // its socket
	Socket    string // the agent's socket; the reading socket is beside it
	Group     string // its members may control the agent; "": only this user and root may
	ReadGroup string // its members may read; "": only this user and root may
	State     string // directory
	Log       *slog.Logger
	Probe     health.Dial     // how health checks connect
	MayMark   func() error    // returns why checks cannot be marked; nil: they can
	Reload    <-chan struct{} // a value requests a reload of the file
	Watch     bool            // load the file whenever it is saved
	// URLs of controllers, which replace Config by a file in State; none: the agent uses Config.
	Controllers []string
	Token       string // to join them for the first time
	// Addresses that root allows in addition to those of the egress policy.
	AllowEgress []netip.Prefix
	Sets        string // directory of the files of access sets; "": that of Config
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
	undecided  *prometheus.CounterVec
	troubles   hostTroubles
	sampler    *sampling.Sampler
	sets       *setfile.Files
	loads      *loads
	shares     *feedback.Loop
	answers    *answers.Watch
	metrics    *metricsServer
	routes     *routes.Manager
	member     *member.Member // nil: no controllers
	node       *member.Node   // likewise
	egress     *egress.Policy
	requests   inflight.Requests
}

// Run runs until ctx ends; it fails if the agent cannot start. The forwarder keeps its configuration afterwards.
func Run(ctx context.Context, options Options) error {
	sets := cmp.Or(options.Sets, filepath.Dir(cmp.Or(options.Config, DefaultConfig)))
	a := &Agent{options: options}
	a.egress = &egress.Policy{Allow: options.AllowEgress, Control: a.controllers}
	a.loads = newLoads(a.egress, a.author)
	defer a.loads.Close()
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
	a.undecided = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "steelyard_health_checks_undecided_total",
		Help: "Inconclusive health checks, by reason: host, an error of this host; stall, this host was stalled.",
	}, []string{"reason"})
	for _, reason := range []health.Undecided{health.HostFault, health.HostStalled} {
		a.undecided.WithLabelValues(reason.String())
	}
	a.troubles.log = options.Log
	a.checker = health.New(health.Options{
		Probe: a.probe(health.NewProbe(options.Probe, a.answered)), Report: a.reportHealth, Limit: maxChecks, Observe: a.observeCheck,
	})
	defer a.checker.Close()
	if err := inheritState(options.State); err != nil {
		return err
	}
	var err error
	if a.store, err = store.Open(options.State, a.loads.wrapChecks(a.checker)); err != nil {
		return err
	}
	a.loads.store = a.store
	if len(options.Controllers) > 0 {
		identity, err := member.Open(ctx, options.State, options.Controllers, options.Token)
		if err != nil {
			return err
		}
		if err := a.store.Share(); err != nil { // it is retried, and the status shows the error until it succeeds
			options.Log.Warn("drains are not saved", "error", err)
		}
		options.Config = filepath.Join(options.State, DesiredFile)
		a.options = options
		a.member = &member.Member{Identity: identity, Log: options.Log, Controllers: options.Controllers}
		a.member.Remember(filepath.Join(options.State, ControllersFile))
		a.node = &member.Node{Path: filepath.Join(options.State, NodeFile), Dial: a.dial, Log: options.Log}
		if err := a.node.Open(); err != nil {
			return err
		}
	}
	a.sets = setfile.New(a.store.SetFiles, options.Log)
	a.sets.Directory = setfile.Directory(sets)
	a.file = &config.File{Path: options.Config, Use: a.use, Check: a.check, Log: options.Log}
	a.reconciler = reconcile.New(a.store, reconcile.Options{
		Dial: a.dialMarking,
		Log:  options.Log, First: 50 * time.Millisecond, Longest: 500 * time.Millisecond, Poll: 2 * time.Second,
		Retry: 30 * time.Second, AnswerTimeout: 10 * time.Second,
	})
	a.shares = a.newShares()
	a.answers = answers.New(answers.Options{Name: a.store.ServiceName, Log: options.Log, Dial: a.dialAnswers})
	registry := prometheus.NewRegistry()
	a.sampler = sampling.New(sampling.Options{
		Dial: func(ctx context.Context) (sampling.Forwarder, error) { return a.dial(ctx) }, Log: options.Log, Egress: a.egress,
	})
	registry.MustRegister(a.durations, a.behind, a.late, a.undecided, a.sampler, a.sets, a.loads, shareMetrics{a}, answerMetrics{a}, routeMetrics{a})
	a.metrics = newMetricsServer(metrics.NewHandler(metrics.Sources{
		Dial: a.dial, Store: a.store, File: a.file.Status,
		Forwarder: func() reconcile.Status { status, _ := a.reconciler.Status(); return status },
	}, registry, a.detail), options.Log)
	defer a.metrics.listen("")

	changing, err := unixsock.Listen(options.Socket, options.Group, "the agent's socket", options.Log)
	if err != nil {
		return err
	}
	reading, err := unixsock.Listen(unixsock.Reading(options.Socket), options.ReadGroup, "the agent's reading socket", options.Log)
	if err != nil {
		changing.Close()
		return err
	}
	a.serve(ctx, changing, reading)
	return nil
}

// serve runs the parts until ctx ends, then waits for them.
func (a *Agent) serve(ctx context.Context, changing, reading net.Listener) {
	var running sync.WaitGroup
	defer a.requests.End() // a controller's request writes to the state
	defer running.Wait()
	service := &api.Server{
		Store: a.store, File: a.file, Checker: a.checker, Reconciler: a.reconciler, Dial: a.dial,
		Socket: a.options.Forwarder, Started: time.Now(), Sources: a.sampler.Sources, SetFiles: a.sets.Status, Load: a.loads.Reading, Shares: a.shares.State, Silent: a.answers.Silent, Warnings: a.warnings, Log: a.options.Log,
		CheckFile: a.checkByUser,
	}
	a.routes = a.newRoutes(service)
	service.Routes = a.routes
	a.metrics.handleHealth(service)                  // before the file sets the address
	if a.member == nil || exists(a.options.Config) { // otherwise no controller has sent one yet
		_, _ = a.file.Load() // an invalid file is logged; a corrected one is loaded later
	}
	if a.options.Watch && a.member == nil {
		if err := a.file.Watch(ctx); err != nil {
			a.options.Log.Warn("the configuration file is not watched: run `steelyard apply` after changing it", "error", err)
		}
	}
	running.Go(func() { a.reconciler.Run(ctx) })
	running.Go(func() { a.followReloads(ctx) })
	running.Go(func() { a.sampler.Run(ctx) })
	running.Go(func() { a.sets.Run(ctx) })
	running.Go(func() { a.loads.follow(ctx) })
	running.Go(func() { a.shares.Run(ctx) })
	running.Go(func() { a.answers.Run(ctx) })
	running.Go(func() { a.routes.Run(ctx) })

	if a.member != nil {
		service.Managed = "a controller"
		a.member.Handler = a.requests.Handler(a.memberHandler(service))
		running.Go(func() { a.member.Run(ctx) })
		running.Go(func() { a.node.Run(ctx) })
	}
	readers := api.NewReadingHandler(service, func() string {
		return "this is allowed only to root" + unixsock.Members(a.options.Socket, " and members of the group ") + ": you may only read"
	})
	running.Go(func() { a.serveSocket(ctx, reading, readers) })
	a.options.Log.Info("agent is ready", "socket", a.options.Socket, "forwarder", a.options.Forwarder)
	a.serveSocket(ctx, changing, api.NewHandler(service))
}

// serveSocket serves one socket until ctx ends. Each user may use a part of its connections.
func (a *Agent) serveSocket(ctx context.Context, listener net.Listener, handler http.Handler) {
	server := &http.Server{
		Handler: a.requests.Handler(handler), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10,
		// Calls that wait end when the agent ends.
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: unixsock.WithPeer,
	}
	closed := make(chan struct{})
	context.AfterFunc(ctx, func() {
		server.Close()
		close(closed)
	})
	err := server.Serve(unixsock.Shared(listener, maxConnections, maxConnectionsOfUser))
	if !errors.Is(err, http.ErrServerClosed) {
		a.options.Log.Error("the agent's socket failed; the command line cannot reach it", "socket", listener.Addr(), "error", err)
	}
	<-closed // wait until the connections are closed, too: otherwise a client would use them for the next agent
}

func (a *Agent) followReloads(ctx context.Context) {
	for {
		select {
		case <-a.options.Reload:
			_, _ = a.file.Load() // an error is logged and kept in the status
		case <-ctx.Done():
			return
		}
	}
}

func (a *Agent) dial(ctx context.Context) (*dpclient.Client, error) {
	return dpclient.Dial(ctx, a.options.Forwarder)
}

// dialMarking connects for the reconciler.
func (a *Agent) dialMarking(ctx context.Context) (reconcile.Forwarder, error) {
	client, err := a.dial(ctx)
	if err != nil {
		return nil, err
	}
	return markingClient{client, a.options.MayMark}, nil
}

// markingClient is a connection that sets marks, if the forwarder supports them and this process may mark. Otherwise servers are checked on their own
// addresses, instead of being taken down.
type markingClient struct {
	*dpclient.Client
	mayMark func() error
}

func (c markingClient) Marks(ctx context.Context) (model.Marks, error) {
	marks, err := c.Client.Marks(ctx)
	if err == nil && marks.Active && c.mayMark != nil {
		if missing := c.mayMark(); missing != nil {
			marks = model.Marks{Refused: missing.Error()}
		}
	}
	return marks, err
}

// inheritState copies the state of an earlier version's agent, which ran as root, from the parent directory. The old file stays.
func inheritState(directory string) error {
	if filepath.Base(directory) != filepath.Base(DefaultState) {
		return nil
	}
	path := filepath.Join(directory, store.StateFile)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil // opening the state reports errors
	}
	data, err := os.ReadFile(filepath.Join(filepath.Dir(directory), store.StateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil { // without the state, drained servers would get sessions again
		return fmt.Errorf("the state of an earlier agent: %w: copy it to %s, or remove it", err, path)
	}
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return fmt.Errorf("state: %w", err)
	}
	return store.WriteFile(path, data, 0o600)
}

// detail returns the running configuration's detail of metrics.
func (a *Agent) detail() model.Detail {
	if running := a.store.Config(); running != nil {
		return running.Metrics.Detail
	}
	return model.DetailServers
}

// use makes a configuration from the file the running one.
func (a *Agent) use(config *model.Config) uint64 {
	a.sets.Configure(config.AccessSets)
	generation := a.store.SetConfig(config)
	a.metrics.listen(config.Metrics.Listen)
	a.sampler.Configure(config.SFlow)
	return generation
}

// warnings returns warnings of the agent's own parts.
func (a *Agent) warnings() []string {
	warnings := slices.Concat(a.metrics.warnings(), a.sampler.Warnings(), a.sets.Warnings(), a.loads.warnings(), a.shares.Warnings(), a.routes.Warnings())
	if a.member != nil {
		warnings = slices.Concat(warnings, a.member.Warnings(), a.node.Warnings())
	} else if !a.options.Watch && a.file.Changed() {
		warnings = append(warnings, a.options.Config+" has changed since it was loaded: `steelyard diff` shows how, `steelyard apply` loads it")
	}
	return warnings
}

// probe checks servers with a mark on the VIP once the forwarder routes marked packets to them, and otherwise on their own address.
func (a *Agent) probe(probe health.Probe) health.Probe {
	return func(ctx context.Context, policy model.Health, server health.Server) error {
		ctx = egress.By(ctx, a.egress, a.author(a.store.ServiceName(server.Ref.Service)))
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
	if check.Undecided != health.Decided {
		a.undecided.WithLabelValues(check.Undecided.String()).Inc()
	}
	a.troubles.note(check, time.Now())
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
