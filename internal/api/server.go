// SPDX-License-Identifier: Apache-2.0

// Package api serves the agent's API (api/steelyard/agent/v1).
package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"steelyard/internal/config"
	"steelyard/internal/dpclient"
	"steelyard/internal/drain"
	"steelyard/internal/feedback"
	pb "steelyard/internal/gen/agentpb"
	"steelyard/internal/gen/agentpb/agentpbconnect"
	"steelyard/internal/health"
	"steelyard/internal/load"
	"steelyard/internal/model"
	"steelyard/internal/reconcile"
	"steelyard/internal/routes"
	"steelyard/internal/sampling"
	"steelyard/internal/setfile"
	"steelyard/internal/store"
	"steelyard/internal/version"

	"connectrpc.com/connect"
)

// Server implements the agent's API on top of the agent's parts.
type Server struct {
	Store   *store.Store
	File    *config.File
	Checker *health.Checker
	Load    func(model.ServerRef) (load.Reading, bool)    // nil: no load is read
	Shares  func(model.ServiceKey) (feedback.State, bool) // nil: no shares are computed
	// Silent returns the servers that have answered no SYN recently, with the number of SYNs; nil: unknown.
	Silent     func() map[model.ServerRef]uint64
	Reconciler *reconcile.Reconciler
	Dial       func(ctx context.Context) (*dpclient.Client, error)
	Socket     string // of the forwarder
	Started    time.Time
	// Sources returns the sources of an attack.
	Sources func(*dpclient.Attack) sampling.Sources
	// SetFiles returns the state of the files of access sets.
	SetFiles func() []setfile.Status
	// Managed names the manager that configures this agent instead of its users; empty: none.
	Managed string
	// CheckFile returns what the user of a request may not apply of a file; nil: no check.
	CheckFile func(context.Context, *model.Config) error
	// Warnings returns warnings of the agent's other parts.
	Warnings func() []string
	Log      *slog.Logger

	// Routes announces addresses to routers.
	Routes *routes.Manager

	beats    beats
	lacking  lacking
	synced   atomic.Bool // the agent has read the forwarder's servers
	applying sync.Mutex  // serializes ApplyConfig, so that a rollback restores the right file
}

var _ agentpbconnect.AgentServiceHandler = (*Server)(nil)

func unavailable(err error) error {
	return connect.NewError(connect.CodeUnavailable, err)
}

func invalid(err error) error {
	return connect.NewError(connect.CodeInvalidArgument, err)
}

// withForwarder runs f on its own connection, so that a long answer does not delay other requests.
func (s *Server) withForwarder(ctx context.Context, f func(*dpclient.Client) error) error {
	client, err := s.Dial(ctx)
	if err != nil {
		return unavailable(err)
	}
	defer client.Close()
	if err := f(client); err != nil {
		return unavailable(err)
	}
	return nil
}

// GetStatus implements the service.
func (s *Server) GetStatus(ctx context.Context, _ *connect.Request[pb.GetStatusRequest]) (
	*connect.Response[pb.GetStatusResponse], error) {
	file, snapshot := s.File.Status(), s.Store.Snapshot()
	forwarder, _ := s.Reconciler.Status()
	status := &pb.GetStatusResponse{
		Build: version.Build, StartedUnixS: uint64(s.Started.Unix()),
		Config: &pb.ConfigStatus{
			File: s.File.Path, Generation: file.Generation,
			LoadedUnixS: unixSeconds(file.Loaded), AttemptedUnixS: unixSeconds(file.Attempted),
			Error: errorText(file.Err),
		},
		Forwarder: &pb.ForwarderStatus{
			Socket: s.Socket, Connected: forwarder.Connected, Error: s.refusalInStatus(forwarder.Err),
			AppliedGeneration: forwarder.Generation, RefusedGeneration: forwarder.Refused, Revision: forwarder.Revision,
		},
		Warnings: s.Warnings(),
	}
	if refused := forwarder.Marks.Refused; refused != "" {
		status.Warnings = append(status.Warnings,
			"servers of dr and ipip services are checked on their own addresses, not on the VIP: "+refused)
	}
	if err := s.Store.Unsaved(); err != nil {
		status.Warnings = append(status.Warnings, notSaved(err))
	}
	status.Health = s.Health(ctx, &pb.GetHealthRequest{})
	lateness := s.Checker.Lateness()
	status.Warnings = append(status.Warnings, lateChecks(lateness)...)
	status.Warnings = append(status.Warnings, undecidedChecks(lateness)...)
	status.Warnings = append(status.Warnings, s.silentServers()...)
	if snapshot.Config != nil {
		status.Services = uint32(len(snapshot.Config.Services))
	}
	checked := checkedServices(snapshot.Config)
	for ref, spec := range snapshot.States {
		status.Servers++
		switch spec.State {
		case model.Up:
			health, watched := s.Checker.State(ref)
			if checked[ref.Service] && (!watched || health.LastCheck.IsZero()) {
				status.ServersUnchecked++
			} else {
				status.ServersUp++
			}
		case model.Drain:
			status.ServersDrained++
		case model.Kill:
			status.ServersKilled++
		}
	}
	if forwarder.Connected {
		err := s.withForwarder(ctx, func(c *dpclient.Client) (err error) {
			status.Forwarder.Status, err = c.Status(ctx)
			status.Warnings = append(status.Warnings, status.Forwarder.Status.GetWarnings()...)
			if err == nil {
				status.Forwarder.Peers, err = peersOf(ctx, c)
			}
			return err
		})
		if err != nil {
			status.Warnings = append(status.Warnings, "reading the forwarder's status: "+errorText(err))
		}
	}
	return connect.NewResponse(status), nil
}

// DiffConfig implements the service.
func (s *Server) DiffConfig(ctx context.Context, request *connect.Request[pb.DiffConfigRequest]) (
	*connect.Response[pb.DiffConfigResponse], error) {
	name, text, err := s.textOf(request.Msg.GetFile(), request.Msg.GetYaml())
	if err != nil {
		return nil, invalid(err)
	}
	wanted, err := s.File.Parse(name, text)
	if err != nil {
		return nil, invalid(err)
	}
	var actual *model.Table
	err = s.withForwarder(ctx, func(c *dpclient.Client) (err error) {
		actual, _, err = c.ReadTable(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	desired := s.Store.Preview(wanted)
	names := func(key model.ServiceKey) string {
		for _, table := range []*model.Table{desired, actual} {
			if service := table.Services[key]; service != nil {
				return service.Spec.Name
			}
		}
		return key.String()
	}
	response := &pb.DiffConfigResponse{Warnings: append(config.Warnings(name, text, wanted), s.absentPorts(ctx, name, text, wanted)...)}
	for _, change := range model.Diff(actual, desired) {
		response.Changes = append(response.Changes, changeToWire(model.Describe(change, actual, names)))
	}
	response.Changes = append(response.Changes, settingsToWire(s.Store.Config(), wanted)...)
	return connect.NewResponse(response), nil
}

func changeToWire(d model.Description) *pb.ConfigChange {
	return &pb.ConfigChange{Action: d.Action, Object: d.Object, Detail: d.Detail}
}

// settingsToWire returns the differences of the agent's own settings.
func settingsToWire(before, after *model.Config) []*pb.ConfigChange {
	var changes []*pb.ConfigChange
	for _, d := range model.DescribeSettings(before, after) {
		changes = append(changes, changeToWire(d))
	}
	return changes
}

// ApplyConfig implements the service.
func (s *Server) ApplyConfig(ctx context.Context, request *connect.Request[pb.ApplyConfigRequest]) (
	*connect.Response[pb.ApplyConfigResponse], error) {
	if s.Managed != "" && len(request.Msg.GetYaml()) > 0 {
		return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New(s.Managed+" configures this agent: use `steelyard apply --context NAME`"))
	}
	if s.CheckFile != nil && len(request.Msg.GetYaml()) > 0 {
		if wanted, err := s.File.Parse(request.Msg.GetFile(), request.Msg.GetYaml()); err == nil { // errors are reported below
			if err := s.CheckFile(ctx, wanted); err != nil {
				return nil, connect.NewError(connect.CodePermissionDenied, err)
			}
		}
	}
	response, err := s.Apply(ctx, request.Msg)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(response), nil
}

// Apply installs a file as the agent's, or reloads that, and waits for the forwarder.
func (s *Server) Apply(ctx context.Context, request *pb.ApplyConfigRequest) (*pb.ApplyConfigResponse, error) {
	s.applying.Lock()
	defer s.applying.Unlock()
	var generation uint64
	var err error
	install := len(request.GetYaml()) > 0
	before := s.Store.Config()
	if install {
		generation, err = s.File.Install(request.GetFile(), request.GetYaml())
	} else {
		generation, err = s.File.Load()
	}
	if err != nil {
		return nil, invalid(err)
	}
	ctx, cancel := beforeDeadline(ctx)
	defer cancel()
	status, err := s.Reconciler.WaitConfig(ctx, generation)
	var refusal *dpclient.Error
	if errors.As(err, &refusal) && refusal.Refused() {
		return nil, invalid(s.giveUp(generation, request, refusal))
	}
	if err != nil {
		return nil, unavailable(fmt.Errorf("the configuration is loaded, but the forwarder does not have it yet: %w", err))
	}
	if request.GetForce() {
		err := s.withForwarder(ctx, func(c *dpclient.Client) error {
			_, err := c.Claim(ctx)
			return err
		})
		if err != nil {
			return nil, unavailable(fmt.Errorf("the forwarder has the configuration, but addresses of other hosts are not claimed: %w", err))
		}
	}
	running := s.Store.Config()
	name, text, _ := s.textOf(request.GetFile(), request.GetYaml()) // on an error, warnings have no line
	return &pb.ApplyConfigResponse{
		Generation: generation, Revision: status.Revision, Changes: uint32(status.Changes),
		Warnings: slices.Concat(config.Warnings(name, text, running), s.absentPorts(ctx, name, text, running), s.contested(ctx)),
		Settings: settingsToWire(before, running),
	}, nil
}

// giveUp restores the previous file if a new one was installed, and returns the error.
func (s *Server) giveUp(generation uint64, request *pb.ApplyConfigRequest, refusal *dpclient.Error) error {
	name, text, _ := s.textOf(request.GetFile(), request.GetYaml()) // on an error, the reason has no line
	where := cmp.Or(s.place(name, text, refusal.Text), name+": ")
	if len(request.GetYaml()) == 0 {
		return fmt.Errorf("the forwarder refuses %s%s; it keeps its configuration, and the agent retries periodically", where, refusal.Text)
	}
	s.Store.Abandon(generation)
	if err := s.File.Restore(generation); err != nil {
		return fmt.Errorf("the forwarder refuses %s%s; %w", where, refusal.Text, err)
	}
	return fmt.Errorf("the forwarder refuses %s%s; nothing was changed", where, refusal.Text)
}

// textOf returns the name and content of a request's file, or of the agent's file.
func (s *Server) textOf(name string, text []byte) (string, []byte, error) {
	if len(text) > 0 {
		return name, text, nil
	}
	text, err := s.File.Text()
	return s.File.Path, text, err
}

// place returns the position in the file of the address, limit or shaped port that a refusal begins with, or "".
func (s *Server) place(name string, text []byte, refusal string) string {
	word, rest, _ := strings.Cut(refusal, " ")
	if word == "limit" {
		return s.placeOf(name, text, rest, "limits", func(c *model.Config, limit string) int {
			return slices.IndexFunc(c.Limits, func(l model.ConfigLimit) bool { return l.Name == limit })
		})
	}
	if port, ok := strings.CutPrefix(refusal, "shaping of port "); ok {
		return s.placeOf(name, text, port, "shaping", func(c *model.Config, port string) int {
			return slices.IndexFunc(c.Shaping, func(one model.ConfigShaping) bool { return one.Port == port })
		})
	}
	address, err := netip.ParseAddr(word)
	if err != nil {
		address, err = netip.ParseAddr(strings.TrimSuffix(word, ":"))
	}
	if err != nil {
		return ""
	}
	wanted, err := s.File.Parse(name, text)
	if err != nil {
		return ""
	}
	if path := wanted.PathOf(address); path != "" {
		return config.Place(name, text, path)
	}
	return ""
}

// placeOf is place for a refusal that begins with the name of a list element, which find looks up.
func (s *Server) placeOf(name string, text []byte, rest, list string, find func(*model.Config, string) int) string {
	element, _, _ := strings.Cut(rest, " ")
	wanted, err := s.File.Parse(name, text)
	if err != nil {
		return ""
	}
	at := find(wanted, strings.TrimSuffix(element, ":"))
	if at < 0 {
		return ""
	}
	return config.Place(name, text, fmt.Sprintf("%s[%d]", list, at))
}

// maxPlaced bounds the files in which GetStatus searches the position of a refusal, because it may be called often.
const maxPlaced = 1 << 20

// refusalInStatus returns why the forwarder has refused the agent's file, or is not connected.
func (s *Server) refusalInStatus(err error) string {
	var refusal *dpclient.Error
	if errors.As(err, &refusal) && refusal.Refused() {
		if name, text, err := s.textOf("", nil); err == nil && len(text) <= maxPlaced {
			return s.place(name, text, refusal.Text) + refusal.Text
		}
	}
	return reason(err)
}

// beforeDeadline shortens a client's deadline, to leave time for an answer that explains it.
func beforeDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); ok {
		return context.WithTimeout(ctx, time.Until(deadline)*9/10)
	}
	return context.WithCancel(ctx)
}

// orderOf returns the requested drain; nil: none. It ends by the monotonic clock; after a restart, by the wall clock.
func orderOf(wanted drain.Order) *store.Drain {
	switch {
	case !wanted.Drain:
		return nil
	case wanted.Deadline != 0:
		return &store.Drain{Until: time.Now().Add(wanted.Deadline)}
	}
	return &store.Drain{Kill: wanted.Kill}
}

// isSame reports whether a request changes nothing. A deadline always restarts.
func isSame(has store.Drain, ordered bool, wanted *store.Drain) bool {
	if wanted == nil || !ordered {
		return wanted == nil && !ordered
	}
	return has == *wanted
}

// SetDrain implements the service.
func (s *Server) SetDrain(ctx context.Context, request *connect.Request[pb.SetDrainRequest]) (
	*connect.Response[pb.SetDrainResponse], error) {
	order, err := drain.Read(request.Msg)
	if err != nil {
		return nil, invalid(err)
	}
	running := s.Store.Config()
	if running == nil {
		return nil, invalid(errors.New("no configuration is loaded: see `steelyard get status`"))
	}
	refs, names, err := drain.Find(running, s.File.Path, request.Msg.GetServer(), request.Msg.GetService(), !order.Drain)
	if err != nil {
		return nil, invalid(err)
	}
	wanted := orderOf(order)
	drained := s.Store.Drained()
	unchanged := map[string]bool{}
	for i, ref := range refs {
		has, ordered := drained[ref]
		unchanged[names[i]] = isSame(has, ordered, wanted)
	}
	saveErr := s.Store.SetDrain(refs, wanted)
	text := "server is drained"
	switch {
	case wanted == nil:
		text = "server is no longer drained"
	case wanted.Kill:
		text = "server is killed"
	}
	for i, ref := range refs {
		if !unchanged[names[i]] {
			s.Log.Info(text, "server", model.ServerText(ref.Address), "service", s.Store.ServiceName(ref.Service), "reason", "by command")
		}
	}
	response := &pb.SetDrainResponse{Servers: names}
	if saveErr != nil {
		response.Warnings = append(response.Warnings, notSaved(saveErr))
	}
	for _, name := range names {
		if unchanged[name] {
			response.Unchanged = append(response.Unchanged, name)
		}
	}
	if warning := s.Settle(ctx); warning != "" {
		response.Warnings = append(response.Warnings, warning)
	}
	return connect.NewResponse(response), nil
}

// Settle waits until the forwarder matches the store, or returns why it does not. Before the first configuration it returns at once.
func (s *Server) Settle(ctx context.Context) string {
	if s.Store.Config() == nil {
		return ""
	}
	if status, _ := s.Reconciler.Status(); !status.Connected {
		return "saved; the agent sends it when the forwarder reconnects: " + errorText(status.Err)
	}
	ctx, cancel := beforeDeadline(ctx)
	defer cancel()
	if _, err := s.Reconciler.Wait(ctx, s.Store.Version()); err != nil {
		return "saved, but the forwarder does not have it yet: " + err.Error()
	}
	return ""
}

// notSaved returns the warning that drains are not on disk.
func notSaved(err error) string {
	return "drains are in effect but not saved: a restart of the agent would lose them: " + err.Error()
}

func unixSeconds(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(t.Unix())
}

func unixMillis(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(t.UnixMilli())
}

// errorText returns an error without the name of its code.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	var answer *connect.Error
	if errors.As(err, &answer) {
		return answer.Message()
	}
	return err.Error()
}

// reason returns why the forwarder has refused a change, or the text of any other error.
func reason(err error) string {
	var refusal *dpclient.Error
	if errors.As(err, &refusal) {
		return refusal.Text
	}
	return errorText(err)
}
