// SPDX-License-Identifier: Apache-2.0

// Package drain has the representations of orders to drain servers: of clients' requests, and of messages between controllers and agents.
package drain

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"steelyard/internal/config"
	agentpb "steelyard/internal/gen/agentpb"
	pb "steelyard/internal/gen/controllerpb"
	"steelyard/internal/model"
)

// Order is the requested state of a server.
type Order struct {
	Drain    bool // false: a drain or a kill ends
	Kill     bool
	Deadline time.Duration // after which its sessions are reset; 0: never
}

func (o Order) String() string {
	switch {
	case !o.Drain:
		return "end drain"
	case o.Kill:
		return "kill"
	}
	return "drain"
}

// Read returns the order in a request.
func Read(request *agentpb.SetDrainRequest) (Order, error) {
	deadline := request.GetDeadlineMs()
	switch {
	case deadline > uint64(config.LongestDeadline.Milliseconds()):
		return Order{}, fmt.Errorf("the deadline is too far: use at most %.0fh", config.LongestDeadline.Hours())
	case !request.GetDrain() && (request.GetKill() || deadline != 0):
		return Order{}, errors.New("the end of a drain has neither deadline nor kill: leave them out")
	case request.GetKill() && deadline != 0:
		return Order{}, errors.New("a kill has no deadline: use a drain with a deadline")
	}
	return Order{request.GetDrain(), request.GetKill(), time.Duration(deadline) * time.Millisecond}, nil
}

// FromWire returns an order from a message between controllers and agents.
func FromWire(order *pb.DrainOrder) Order {
	longest := uint64(config.LongestDeadline.Milliseconds())
	return Order{order.GetDrain(), order.GetDrain() && order.GetKill(), time.Duration(min(order.GetDeadlineMs(), longest)) * time.Millisecond}
}

// Find returns the servers of a configuration that "address" or "address:port" means, in all services or in one, with their names for
// users. If a drain is to end, servers that the file drains are an error.
func Find(running *model.Config, file, text, service string, end bool) ([]model.ServerRef, []string, error) {
	var match func(netip.AddrPort) bool
	if address, err := netip.ParseAddr(text); err == nil {
		match = func(a netip.AddrPort) bool { return a.Addr() == address }
	} else if addressPort, err := model.ParseServer(text); err == nil {
		match = func(a netip.AddrPort) bool { return a == addressPort }
	} else {
		return nil, nil, fmt.Errorf("%q is not a server: write 10.1.0.21, 10.1.0.21:8080 or [fd00::21]:8080", text)
	}
	var refs []model.ServerRef
	var names []string
	for i := range running.Services {
		svc := &running.Services[i]
		if service != "" && service != svc.Name {
			continue
		}
		for _, server := range svc.Servers {
			if !match(server.Address) {
				continue
			}
			name := model.ServerText(server.Address) + "@" + svc.Name
			if end && server.Drain {
				return nil, nil, fmt.Errorf("%s is drained by %s: remove `drain: true` there", name, file)
			}
			refs = append(refs, model.ServerRef{Service: svc.Key, Address: server.Address})
			names = append(names, name)
		}
	}
	if len(refs) == 0 {
		where := "no service"
		if service != "" {
			where = fmt.Sprintf("no service named %q", service)
		}
		return nil, nil, fmt.Errorf("%s has the server %s: see `steelyard get servers`", where, text)
	}
	return refs, names, nil
}

// Text writes a server of a service, as "tcp/10.0.0.80:80/10.1.0.21:8080".
func Text(ref model.ServerRef) string {
	return fmt.Sprintf("%s/%s/%s", ref.Service.Protocol, net.JoinHostPort(ref.Service.VIP.String(), ref.Service.Ports()), model.ServerText(ref.Address))
}

// Parse parses the format of Text.
func Parse(text string) (model.ServerRef, error) {
	ref, ok := parse(text)
	if !ok || Text(ref) != text { // one server has one text
		return model.ServerRef{}, fmt.Errorf("%q is no server of a service", text)
	}
	return ref, nil
}

func parse(text string) (ref model.ServerRef, ok bool) {
	parts := strings.Split(text, "/")
	if len(parts) != 3 {
		return ref, false
	}
	switch parts[0] {
	case model.TCP.String():
		ref.Service.Protocol = model.TCP
	case model.UDP.String():
		ref.Service.Protocol = model.UDP
	}
	vip, ports, err := net.SplitHostPort(parts[1])
	if err != nil {
		return ref, false
	}
	if ref.Service.VIP, err = netip.ParseAddr(vip); err != nil {
		return ref, false
	}
	if ref.Address, err = model.ParseServer(parts[2]); err != nil {
		return ref, false
	}
	first, last, _ := strings.Cut(strings.TrimPrefix(ports, "*"), "-")
	ref.Service.Port, ok = port(first)
	if !ok {
		return ref, false
	}
	ref.Service.LastPort, ok = port(last)
	return ref, ok
}

// port reads a port; "": 0.
func port(text string) (uint16, bool) {
	if text == "" {
		return 0, true
	}
	number, err := strconv.ParseUint(text, 10, 16)
	return uint16(number), err == nil
}
