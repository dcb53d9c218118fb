// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"steelyard/internal/dpclient"
	pb "steelyard/internal/gen/agentpb"
)

// Views of the agent's and the forwarder's status.

type statusView struct {
	Build            string              `json:"build"`
	StartedS         uint64              `json:"started_unix_s"`
	Config           configStatusView    `json:"config"`
	Forwarder        forwarderStatusView `json:"forwarder"`
	Services         uint32              `json:"services"`
	Servers          uint32              `json:"servers"`
	ServersUp        uint32              `json:"servers_up"`
	ServersDrained   uint32              `json:"servers_drained"`
	ServersKilled    uint32              `json:"servers_killed"`
	ServersUnchecked uint32              `json:"servers_unchecked"`
	Warnings         []string            `json:"warnings"`
	Health           *healthView         `json:"health,omitempty"` // absent: an older agent
}

type configStatusView struct {
	File       string `json:"file"`
	Generation uint64 `json:"generation"`
	LoadedS    uint64 `json:"loaded_unix_s"`
	AttemptedS uint64 `json:"attempted_unix_s"`
	Error      string `json:"error"`
}

type forwarderStatusView struct {
	Socket            string   `json:"socket"`
	Connected         bool     `json:"connected"`
	InSync            bool     `json:"in_sync"`
	Error             string   `json:"error"`
	AppliedGeneration uint64   `json:"applied_generation"`
	RefusedGeneration uint64   `json:"refused_generation"` // 0: none
	Revision          uint64   `json:"revision"`
	Build             string   `json:"build"`
	StartedS          uint64   `json:"started_unix_s"`
	Workers           uint32   `json:"workers"`
	Sessions          uint64   `json:"sessions"`
	SessionCapacity   uint64   `json:"session_capacity"`
	SessionsEmbryonic uint64   `json:"sessions_embryonic"` // TCP: half open; UDP: nothing from the client since the server's first reply
	SessionsUnproven  uint64   `json:"sessions_unproven"`  // deprecated: sessions_embryonic
	SessionBytes      uint64   `json:"session_bytes_mapped"`
	HugePages         bool     `json:"huge_pages"`
	RoutingRefused    string   `json:"routing_refused"`
	PortProblems      []string `json:"port_problems"`

	EventDevice *eventDeviceView `json:"event_device"` // null: it is not open

	Node  uint32     `json:"node"`  // 0: it has no peers
	Role  string     `json:"role"`  // "master" or "backup"; empty: it has no peers
	Peers []peerView `json:"peers"` // those of `get peers`

	PID       uint32        `json:"pid"`
	Upgrading bool          `json:"upgrading"`
	Adoption  *adoptionView `json:"adoption"` // null: unknown
	Phases    []phaseView   `json:"phases"`   // of its start, in order; empty: unknown
}

type eventDeviceView struct {
	Name    string `json:"name"`
	Model   string `json:"model"` // of its queue
	Packets uint64 `json:"packets"`
	Refused uint64 `json:"refused"` // because it was full
	Waiting uint64 `json:"waiting"` // queued now
}

type phaseView struct {
	Name     string `json:"name"`
	Help     string `json:"help"`
	WallNs   uint64 `json:"wall_ns"`
	CPUNs    uint64 `json:"cpu_ns"`
	QueuedNs uint64 `json:"queued_ns"` // runnable, without a CPU
	Faults   uint64 `json:"faults"`
}

type adoptionView struct {
	Source     string            `json:"source"` // "new", "crashed", "stopped" or "handed-over"
	Refused    string            `json:"refused"`
	AwayNs     uint64            `json:"away_ns"`
	DurationNs uint64            `json:"duration_ns"`
	Results    map[string]uint64 `json:"results"`  // sessions, by result of the adoption
	Verdicts   map[string]uint64 `json:"verdicts"` // deprecated: results
	Trusted    bool              `json:"trusted"`  // after an upgrade: adopted without checking each session
}

func viewStatus(s *pb.GetStatusResponse) statusView {
	c, f := s.GetConfig(), s.GetForwarder()
	status := f.GetStatus()
	view := statusView{
		Build: s.GetBuild(), StartedS: s.GetStartedUnixS(),
		Config: configStatusView{c.GetFile(), c.GetGeneration(), c.GetLoadedUnixS(), c.GetAttemptedUnixS(), c.GetError()},
		Forwarder: forwarderStatusView{
			Socket: f.GetSocket(), Connected: f.GetConnected(),
			InSync: f.GetConnected() && c.GetGeneration() > 0 && f.GetAppliedGeneration() == c.GetGeneration(),
			Error:  f.GetError(), AppliedGeneration: f.GetAppliedGeneration(), RefusedGeneration: f.GetRefusedGeneration(), Revision: f.GetRevision(),
			Build: status.GetBuild(), StartedS: status.GetStartedUnixS(), Workers: status.GetWorkers(),
			Sessions: status.GetSessions(), SessionCapacity: status.GetSessionCapacity(), SessionsEmbryonic: status.GetSessionsEmbryonic(), SessionsUnproven: status.GetSessionsEmbryonic(),
			SessionBytes: status.GetSessionBytesMapped(), HugePages: status.GetHugePages(),
			RoutingRefused: status.GetRoutingRefused(), PortProblems: append([]string{}, status.GetPortProblems()...),
			EventDevice: viewEventDevice(status.GetEventDevice()),
			Node:        f.GetPeers().GetNode(), Peers: viewPeers(f.GetPeers()),
			PID: status.GetPid(), Upgrading: status.GetUpgrading(), Adoption: viewAdoption(status.GetAdoption()),
			Phases: viewPhases(status.GetPhases()),
		},
		Services: s.GetServices(), Servers: s.GetServers(), ServersUp: s.GetServersUp(),
		Health:         viewHealth(s.GetHealth()),
		ServersDrained: s.GetServersDrained(), ServersKilled: s.GetServersKilled(), ServersUnchecked: s.GetServersUnchecked(), Warnings: s.GetWarnings(),
	}
	if view.Forwarder.Node != 0 {
		view.Forwarder.Role = dpclient.RoleWord(f.GetPeers().GetRole())
	}
	if view.Warnings == nil {
		view.Warnings = []string{}
	}
	return view
}

func viewEventDevice(d *dpclient.EventDevice) *eventDeviceView {
	if d == nil {
		return nil
	}
	return &eventDeviceView{d.GetName(), d.GetModel(), d.GetPackets(), d.GetRefused(), d.GetWaiting()}
}

func viewAdoption(a *dpclient.Adoption) *adoptionView {
	if a == nil {
		return nil
	}
	view := &adoptionView{
		Source:  word(a.GetSource(), map[int32]string{1: "new", 2: "crashed", 3: "stopped", 4: "handed-over"}, int32(a.GetSource())),
		Refused: a.GetRefused(), AwayNs: a.GetAwayNs(), DurationNs: a.GetDurationNs(), Results: map[string]uint64{},
		Trusted: a.GetTrusted(),
	}
	for _, result := range a.GetResults() {
		view.Results[result.GetName()] = result.GetSessions()
	}
	view.Verdicts = view.Results
	return view
}

func viewPhases(phases []*dpclient.Phase) []phaseView {
	view := make([]phaseView, 0, len(phases))
	for _, p := range phases {
		view = append(view, phaseView{p.GetName(), p.GetHelp(), p.GetWallNs(), p.GetCpuNs(), p.GetQueuedNs(), p.GetFaults()})
	}
	return view
}
