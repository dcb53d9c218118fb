// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"steelyard/internal/dpclient"
	pb "steelyard/internal/gen/agentpb"
	"steelyard/internal/model"
)

// Views are the JSON of `-o json`. Fields are only ever added. A list is an array of views; a remark about the whole list is a warning.

type trafficView struct {
	PacketsIn       uint64 `json:"packets_in"`
	BytesIn         uint64 `json:"bytes_in"`
	PacketsOut      uint64 `json:"packets_out"`
	BytesOut        uint64 `json:"bytes_out"`
	SessionsCreated uint64 `json:"sessions_created"`
	SessionsActive  uint64 `json:"sessions_active"`
}

type serviceView struct {
	Name        string           `json:"name"`
	Protocol    string           `json:"protocol"`
	VIP         string           `json:"vip"`
	Port        uint32           `json:"port"` // 0: all
	LastPort    uint32           `json:"last_port,omitempty"`
	Mode        string           `json:"mode"`
	Scheduler   string           `json:"scheduler"`
	HashOn      string           `json:"hash_on,omitempty"`
	Persistence *persistenceView `json:"persistence"`  // null: none
	SlowStartS  uint32           `json:"slow_start_s"` // 0: none
	OnePacket   bool             `json:"one_packet"`
	SloppyTCP   bool             `json:"sloppy_tcp"`
	MaxSessions uint32           `json:"max_sessions"`          // 0: no limit
	ClientRate  uint32           `json:"client_new_per_second"` // 0: no limit
	ClientBurst uint32           `json:"client_burst"`
	ClientMost  uint32           `json:"client_sessions"`       // 0: no limit
	ClientOver  uint64           `json:"client_limits_refused"` // sessions, since the forwarder's start
	Client      string           `json:"client_address"`
	DSCP        string           `json:"dscp,omitempty"` // of packets to its servers
	Resets      *resetsView      `json:"resets"`         // null: not TCP
	SynDefence  string           `json:"syn_defence"`
	Unavailable string           `json:"when_unavailable"`
	Sync        string           `json:"sync"`
	Timeouts    timeoutsView     `json:"timeouts_s"`
	Health      healthPolicyView `json:"health"`
	Traffic     *trafficView     `json:"traffic"` // null: unknown to the forwarder
	Defence     *defenceView     `json:"syn_defence_counts,omitempty"`
	Answered    *answeredView    `json:"unavailable_answers,omitempty"`
	Drops       []serviceDrop    `json:"drops,omitempty"` // by reason; without reasons that have no drops
	Servers     []serverView     `json:"servers"`
	Feedback    *feedbackView    `json:"feedback,omitempty"` // absent: weights only
	// Only in `describe`.
	Limits  []serviceLimitView   `json:"limits,omitempty"`
	Shaping []serviceShapingView `json:"shaping,omitempty"`

	policy model.Policy
}

// serviceDrop counts dropped packets of a service by reason, since the forwarder's start.
type serviceDrop struct {
	Name    string `json:"name"` // as in `get drops`
	Packets uint64 `json:"packets"`
}

// answeredView counts the answers to clients while no server accepted their sessions, since the forwarder's start.
type answeredView struct {
	Resets uint64 `json:"resets"`
	ICMP   uint64 `json:"icmp"`
}

// defenceView is the state of the SYN defence, and its counts since the forwarder's start.
type defenceView struct {
	Answered   uint64 `json:"answered"` // SYNs
	Returned   uint64 `json:"returned"` // answers that clients returned, so their addresses are real
	Wrong      uint64 `json:"wrong"`
	On         bool   `json:"on"`            // now
	SinceMs    uint64 `json:"since_unix_ms"` // auto: of the last switch; 0: none
	Why        string `json:"why"`           // … the reason
	SwitchedOn uint64 `json:"switched_on"`   // … times
	HalfOpen   uint64 `json:"half_open"`     // sessions now
}

type persistenceView struct {
	TimeoutS uint32 `json:"timeout_s"`
	Prefix4  uint32 `json:"prefix4"`
	Prefix6  uint32 `json:"prefix6"`
}

type resetsView struct {
	Expired bool `json:"expired"`
	Down    bool `json:"down"`
	Unknown bool `json:"unknown"`
}

type timeoutsView struct {
	SynSent     uint32 `json:"syn_sent"`
	SynReceived uint32 `json:"syn_received"`
	Established uint32 `json:"established"`
	FinWait     uint32 `json:"fin_wait"`
	Closing     uint32 `json:"closing"`
	TimeWait    uint32 `json:"time_wait"`
	Reset       uint32 `json:"reset"`
	UDPOneWay   uint32 `json:"udp_one_way"`
	UDP         uint32 `json:"udp"`
	Echo        uint32 `json:"echo"`
}

type healthPolicyView struct {
	Type          string `json:"type"`
	Port          uint32 `json:"port,omitempty"`
	Path          string `json:"path,omitempty"`
	Host          string `json:"host,omitempty"`
	Expect        string `json:"expect,omitempty"`
	IntervalMs    uint64 `json:"interval_ms,omitempty"`
	TimeoutMs     uint64 `json:"timeout_ms,omitempty"`
	Rise          uint32 `json:"rise,omitempty"`
	Fall          uint32 `json:"fall,omitempty"`
	JitterPercent uint32 `json:"jitter_percent,omitempty"`
	LingerMs      uint64 `json:"linger_ms,omitempty"` // absent: checks end by a reset
}

type serverView struct {
	Service          string           `json:"service"`
	Address          string           `json:"address"`
	Port             uint32           `json:"port"` // 0: the client's
	Weight           uint32           `json:"weight"`
	State            string           `json:"state"` // "up", "drain", "down" or "kill"
	Backup           bool             `json:"backup"`
	MaxSessions      uint32           `json:"max_sessions"` // 0: no limit
	DrainedByFile    bool             `json:"drained_by_file"`
	DrainedByCommand bool             `json:"drained_by_command"`
	KilledByCommand  bool             `json:"killed_by_command"`
	KilledMs         uint64           `json:"killed_unix_ms"`  // by a drain's deadline, past or future; 0: never
	Health           *healthStateView `json:"health"`          // null: not checked
	Load             *loadView        `json:"load,omitempty"`  // of services with `load`
	Share            *shareView       `json:"share,omitempty"` // absent: no feedback
	Delay            *delayView       `json:"delay,omitempty"` // absent: no handshake was measured
	Traffic          *trafficView     `json:"traffic"`         // null: unknown to the forwarder
	UnansweredSYNs   uint64           `json:"unanswered_syns"` // in the last 10 s, if none was answered
}

type healthStateView struct {
	Up             bool   `json:"up"`
	Checked        bool   `json:"checked"` // false: no check has completed yet
	Streak         uint32 `json:"streak"`
	LastPassed     bool   `json:"last_passed"`
	LastError      string `json:"last_error"`
	LastCheckMs    uint64 `json:"last_check_unix_ms"`
	LastDurationUs uint64 `json:"last_duration_us"`
	ChangedMs      uint64 `json:"changed_unix_ms"`
	Target         string `json:"target"`
	Fallback       string `json:"fallback"`        // not empty: why the target is not the VIP
	Undecided      uint32 `json:"undecided"`       // latest checks in a row that were inconclusive
	UndecidedError string `json:"undecided_error"` // why
}

type sessionView struct {
	Protocol   string `json:"protocol"`
	Client     string `json:"client"`
	ClientPort uint32 `json:"client_port"`
	VIP        string `json:"vip"`
	VIPPort    uint32 `json:"vip_port"`
	Local      string `json:"local"` // empty: the server sees the client's address
	LocalPort  uint32 `json:"local_port"`
	Server     string `json:"server"`
	ServerPort uint32 `json:"server_port"`
	State      string `json:"state"`
	IdleS      uint32 `json:"idle_s"`
	AgeS       uint32 `json:"age_s"`
	ExpiresS   uint32 `json:"expires_s"`
	Slot       uint32 `json:"slot"`
	SNAT       string `json:"snat,omitempty"` // the rule; VIP and server are then the remote host
}

type dropView struct {
	Name    string `json:"name"`
	Packets uint64 `json:"packets"`
	Help    string `json:"help"`
}

type portView struct {
	Name            string `json:"name"`
	Backend         string `json:"backend"`
	MAC             string `json:"mac"`
	MTU             uint32 `json:"mtu"`
	Up              bool   `json:"up"`
	Queues          uint32 `json:"queues"`
	RxPackets       uint64 `json:"rx_packets"`
	RxBytes         uint64 `json:"rx_bytes"`
	TxPackets       uint64 `json:"tx_packets"`
	TxBytes         uint64 `json:"tx_bytes"`
	RxMissed        uint64 `json:"rx_missed"`
	TxFailed        uint64 `json:"tx_failed"`
	DirectorSteered uint64 `json:"director_steered"`
	DirectorPassed  uint64 `json:"director_passed"`
	DirectorDropped uint64 `json:"director_dropped"`
	Problem         string `json:"problem"` // empty: none
}

type workerView struct {
	ID         uint32 `json:"id"`
	Slots      uint32 `json:"slots"`
	Sessions   uint64 `json:"sessions"`
	RxPackets  uint64 `json:"rx_packets"`
	TxPackets  uint64 `json:"tx_packets"`
	SteeredOut uint64 `json:"steered_out"` // packets passed to their owners, other workers
	SteeredIn  uint64 `json:"steered_in"`
	HandedOut  uint64 `json:"handed_out"` // deprecated: steered_out
	HandedIn   uint64 `json:"handed_in"`  // deprecated: steered_in
	Remote     uint64 `json:"remote"`
	Foreign    uint64 `json:"foreign"` // deprecated: remote
	BusyCycles uint64 `json:"busy_cycles"`
	IdleCycles uint64 `json:"idle_cycles"`
	Sleeps     uint64 `json:"sleeps"`
}

type slotView struct {
	Slot     uint32 `json:"slot"`
	Worker   uint32 `json:"worker"`
	Sessions uint64 `json:"sessions"`
	Capacity uint64 `json:"capacity"`
	Packets  uint64 `json:"packets"`
}

func addressText(bytes []byte) string {
	if address, ok := netip.AddrFromSlice(bytes); ok {
		return address.Unmap().String()
	}
	return ""
}

func endpoint(address string, port uint32) string {
	if port == 0 {
		return net.JoinHostPort(address, "*")
	}
	return net.JoinHostPort(address, strconv.Itoa(int(port)))
}

// endpoint returns "10.0.0.80:80", "10.0.0.80:8000-8099" or, for all ports, "10.0.0.80:*".
func (s serviceView) endpoint() string {
	if s.LastPort == 0 {
		return endpoint(s.VIP, s.Port)
	}
	return net.JoinHostPort(s.VIP, fmt.Sprintf("%d-%d", s.Port, s.LastPort))
}

// localEndpoint returns "-" if the server sees the client's address.
func localEndpoint(s sessionView) string {
	if s.Local == "" {
		return "-"
	}
	return endpoint(s.Local, s.LocalPort)
}

// word turns "SERVER_STATE_UP" into "up".
func word[E fmt.Stringer](value E, words map[int32]string, number int32) string {
	if text, ok := words[number]; ok {
		return text
	}
	return value.String()
}

func protocolWord(p dpclient.Protocol) string {
	return word(p, map[int32]string{1: "icmp", 6: "tcp", 17: "udp", 58: "icmpv6"}, int32(p))
}

func stateWord(s dpclient.ServerState) string {
	return word(s, map[int32]string{1: "up", 2: "drain", 3: "down", 4: "kill"}, int32(s))
}

func viewTraffic(t *dpclient.Traffic) *trafficView {
	if t == nil {
		return nil
	}
	return &trafficView{t.GetPacketsIn(), t.GetBytesIn(), t.GetPacketsOut(), t.GetBytesOut(),
		t.GetSessionsCreated(), t.GetSessionsActive()}
}

func viewService(info *pb.ServiceInfo) serviceView {
	service := info.GetService()
	t, h, policy := service.GetTimeouts(), info.GetHealth(), dpclient.PolicyFromWire(service)
	view := serviceView{
		Name: service.GetName(), Protocol: protocolWord(service.GetKey().GetProtocol()),
		VIP: addressText(service.GetKey().GetVip()), Port: service.GetKey().GetPort(), LastPort: service.GetKey().GetLastPort(),
		Mode:      word(service.GetMode(), map[int32]string{1: "fnat", 2: "dr", 3: "nat", 4: "ipip"}, int32(service.GetMode())),
		Scheduler: policy.Scheduler.String(), SlowStartS: policy.SlowStart, OnePacket: policy.OnePacket, SloppyTCP: policy.SloppyTCP,
		MaxSessions: policy.MaxSessions, ClientRate: policy.Clients.NewPerSecond, ClientBurst: policy.Clients.Burst,
		ClientMost: policy.Clients.Sessions, ClientOver: info.GetRefusedByClientLimits(), Client: policy.ClientAddress.String(), DSCP: policy.Mark.String(), SynDefence: policy.SynDefence.String(),
		Unavailable: policy.Unavailable.String(), Sync: policy.Sync.String(), policy: policy,
		Timeouts: timeoutsView{t.GetSynSentS(), t.GetSynReceivedS(), t.GetEstablishedS(), t.GetFinWaitS(), t.GetClosingS(),
			t.GetTimeWaitS(), t.GetResetS(), t.GetUdpOneWayS(), t.GetUdpS(), t.GetEchoS()},
		Health: healthPolicyView{h.GetType(), h.GetPort(), h.GetPath(), h.GetHost(), h.GetExpect(),
			h.GetIntervalMs(), h.GetTimeoutMs(), h.GetRise(), h.GetFall(), h.GetJitterPercent(), h.GetLingerMs()},
		Traffic: viewTraffic(info.GetTraffic()),
		Servers: []serverView{},
	}
	for _, drop := range info.GetDrops() {
		view.Drops = append(view.Drops, serviceDrop{drop.GetName(), drop.GetPackets()})
	}
	if policy.HashOn != 0 {
		view.HashOn = policy.HashOn.String()
	}
	if p := service.GetPersistence(); p != nil {
		view.Persistence = &persistenceView{p.GetTimeoutS(), p.GetPrefix4(), p.GetPrefix6()}
	}
	if service.GetKey().GetProtocol() == dpclient.TCP {
		r := resetsView(policy.Resets)
		view.Resets = &r
	}
	if d := info.GetSynDefence(); d != nil {
		view.Defence = &defenceView{d.GetAnswered(), d.GetReturned(), d.GetWrong(), d.GetOn(), d.GetSinceUnixMs(), d.GetWhy(),
			d.GetSwitchedOn(), d.GetHalfOpen()}
	}
	if u := info.GetUnavailable(); u != nil {
		view.Answered = &answeredView{u.GetResets(), u.GetIcmp()}
	}
	view.Feedback = viewFeedback(info.GetFeedback())
	for _, server := range info.GetServers() {
		view.Servers = append(view.Servers, viewServer(view.Name, server))
	}
	return view
}

func viewServer(service string, info *pb.ServerInfo) serverView {
	server := info.GetServer()
	view := serverView{
		Service: service, Address: addressText(server.GetAddress()), Port: server.GetPort(),
		Weight: server.GetWeight(), State: stateWord(server.GetState()),
		Backup: server.GetBackup(), MaxSessions: server.GetMaxSessions(),
		DrainedByFile: info.GetDrainedByFile(), DrainedByCommand: info.GetDrainedByCommand(),
		KilledByCommand: info.GetKilledByCommand(), KilledMs: info.GetKilledUnixMs(),
		Traffic: viewTraffic(info.GetTraffic()), Load: viewLoad(info.GetLoad()),
		Share: viewShare(info.GetShare()), Delay: viewDelay(info.GetDelay()), UnansweredSYNs: info.GetUnansweredSyns(),
	}
	if h := info.GetHealth(); h != nil {
		view.Health = &healthStateView{h.GetUp(), h.GetLastCheckUnixMs() != 0, h.GetStreak(), h.GetLastPassed(),
			h.GetLastError(), h.GetLastCheckUnixMs(), h.GetLastDurationUs(), h.GetChangedUnixMs(),
			h.GetTarget(), h.GetFallback(), h.GetUndecided(), h.GetUndecidedError()}
	}
	return view
}

func viewSession(s *dpclient.Session) sessionView {
	return sessionView{
		Protocol: protocolWord(s.GetProtocol()), Client: addressText(s.GetClient()), ClientPort: s.GetClientPort(),
		VIP: addressText(s.GetVip()), VIPPort: s.GetVport(), Local: addressText(s.GetLocal()),
		LocalPort: s.GetLocalPort(), Server: addressText(s.GetServer()), ServerPort: s.GetServerPort(),
		State: s.GetState(), IdleS: s.GetIdleS(), AgeS: s.GetAgeS(), ExpiresS: s.GetExpiresS(), Slot: s.GetSlot(),
		SNAT: s.GetSnat(),
	}
}

func viewPort(p *dpclient.Port) portView {
	return portView{
		Name: p.GetName(), Backend: p.GetBackend(), MAC: net.HardwareAddr(p.GetMac()).String(), MTU: p.GetMtu(),
		Up: p.GetUp(), Queues: p.GetQueues(), RxPackets: p.GetRxPackets(), RxBytes: p.GetRxBytes(),
		TxPackets: p.GetTxPackets(), TxBytes: p.GetTxBytes(), RxMissed: p.GetRxMissed(), TxFailed: p.GetTxFailed(),
		DirectorSteered: p.GetDirectorSteered(), DirectorPassed: p.GetDirectorPassed(),
		DirectorDropped: p.GetDirectorDropped(), Problem: p.GetProblem(),
	}
}

func viewWorker(w *dpclient.Worker) workerView {
	return workerView{
		ID: w.GetId(), Slots: w.GetSlots(), Sessions: w.GetSessions(), RxPackets: w.GetRxPackets(),
		TxPackets: w.GetTxPackets(), SteeredOut: w.GetSteeredOut(), SteeredIn: w.GetSteeredIn(),
		HandedOut: w.GetSteeredOut(), HandedIn: w.GetSteeredIn(), Remote: w.GetRemote(), Foreign: w.GetRemote(),
		BusyCycles: w.GetBusyCycles(), IdleCycles: w.GetIdleCycles(), Sleeps: w.GetSleeps(),
	}
}

// ago returns the age of a time by this host's clock. A time in the future, from a host whose clock is ahead, counts as now.
func ago(at time.Time) string {
	return max(0, time.Since(at)).Truncate(time.Second).String() + " ago"
}

// since returns how long ago a Unix time in seconds was.
func since(unixS uint64) string {
	if unixS == 0 {
		return "never"
	}
	return ago(time.Unix(int64(unixS), 0))
}
