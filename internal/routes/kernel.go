// SPDX-License-Identifier: Apache-2.0

package routes

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"syscall"
	"time"

	"steelyard/internal/model"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	// Protocol marks our routes in the kernel (rtnetlink(7), rtm_protocol).
	Protocol = 202
	// remoteMetric is added to the metric of an address of which another node is the home.
	remoteMetric = 1000
	// kernelResync is the time after which the kernel's routes are read again, in case another program has changed them.
	kernelResync = 5 * time.Second
	// kernelTimeout bounds the wait for an answer of the kernel.
	kernelTimeout = 2 * time.Second
)

// kernelRoute is a route as the kernel identifies it.
type kernelRoute struct {
	prefix netip.Prefix
	table  uint32
	metric uint32
}

// kernel keeps the kernel's routes with our protocol number equal to the announced ones.
type kernel struct {
	has    map[kernelRoute]bool // as read last; nil: unknown
	readAt time.Time
}

// set adds and removes routes until the kernel has exactly these. Without a table it has none.
func (k *kernel) set(config model.KernelRoutes, routes []Route) error {
	wanted := map[kernelRoute]bool{}
	if config.Table != 0 {
		for _, route := range routes {
			metric := config.Metric
			if route.Remote {
				metric += remoteMetric
			}
			wanted[kernelRoute{route.Prefix, config.Table, metric}] = true
		}
	}
	if k.has != nil && maps.Equal(k.has, wanted) && (len(wanted) == 0 || time.Since(k.readAt) < kernelResync) {
		return nil
	}
	err := k.replace(wanted)
	if err != nil {
		k.has = nil
	}
	return err
}

// replace withdraws first: a route to a node that cannot serve does harm, a missing one does not.
func (k *kernel) replace(wanted map[kernelRoute]bool) error {
	has, err := list()
	if err != nil {
		return err
	}
	handle, err := open()
	if err != nil {
		return err
	}
	defer handle.Close()
	for route := range has {
		if !wanted[route] {
			if err := handle.RouteDel(route.message()); err != nil && !errors.Is(err, syscall.ESRCH) {
				return explain("remove", route, err)
			}
		}
	}
	for route := range wanted {
		if !has[route] {
			if err := handle.RouteAdd(route.message()); err != nil && !errors.Is(err, syscall.EEXIST) {
				return explain("add", route, err)
			}
		}
	}
	k.has, k.readAt = wanted, time.Now()
	return nil
}

func explain(verb string, route kernelRoute, err error) error {
	remedy := ""
	if errors.Is(err, syscall.EPERM) {
		remedy = ": the agent needs CAP_NET_ADMIN: install agent-routes.conf"
	}
	return fmt.Errorf("kernel routes: %s %s in table %d: %w%s", verb, route.prefix, route.table, err, remedy)
}

func (r kernelRoute) message() *netlink.Route {
	return &netlink.Route{
		Dst:   &net.IPNet{IP: r.prefix.Addr().AsSlice(), Mask: net.CIDRMask(r.prefix.Bits(), r.prefix.Addr().BitLen())},
		Table: int(r.table), Priority: int(r.metric), Protocol: Protocol, Type: unix.RTN_BLACKHOLE,
	}
}

func open() (*netlink.Handle, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("kernel routes: %w", err)
	}
	if err := handle.SetSocketTimeout(kernelTimeout); err != nil {
		handle.Close()
		return nil, fmt.Errorf("kernel routes: %w", err)
	}
	return handle, nil
}

// list reads the routes with our protocol number from all tables. The kernel selects them: a host may have all routes of the Internet.
func list() (map[kernelRoute]bool, error) {
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("kernel routes: %w", err)
	}
	defer socket.Close()
	// Linux before 4.20 returns all routes.
	_ = unix.SetsockoptInt(socket.GetFd(), unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1)
	found := map[kernelRoute]bool{}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		request := nl.NewNetlinkRequest(unix.RTM_GETROUTE, unix.NLM_F_DUMP)
		request.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: socket}}
		request.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: family, Protocol: Protocol}})
		messages, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWROUTE)
		if err != nil && !errors.Is(err, syscall.ENOENT) {
			return nil, fmt.Errorf("kernel routes: %w", err)
		}
		for _, message := range messages {
			if route, ok := parseRoute(message); ok {
				found[route] = true
			}
		}
	}
	return found, nil
}

// parseRoute parses a message of type RTM_NEWROUTE; false: it is no route of ours.
func parseRoute(message []byte) (route kernelRoute, ok bool) {
	if len(message) < unix.SizeofRtMsg {
		return route, false
	}
	head := nl.DeserializeRtMsg(message)
	if head.Protocol != Protocol || head.Flags&unix.RTM_F_CLONED != 0 {
		return route, false
	}
	attributes, err := nl.ParseRouteAttr(message[unix.SizeofRtMsg:])
	if err != nil {
		return route, false
	}
	route.table = uint32(head.Table)
	for _, one := range attributes {
		switch one.Attr.Type {
		case unix.RTA_DST:
			address, valid := netip.AddrFromSlice(one.Value)
			route.prefix, ok = netip.PrefixFrom(address, int(head.Dst_len)), valid
		case unix.RTA_TABLE:
			route.table = nl.NativeEndian().Uint32(one.Value)
		case unix.RTA_PRIORITY:
			route.metric = nl.NativeEndian().Uint32(one.Value)
		}
	}
	return route, ok
}

// Remove removes all kernel routes that an agent has left, and returns their prefixes.
func Remove() ([]netip.Prefix, error) {
	found, err := list()
	if err != nil || len(found) == 0 {
		return nil, err
	}
	var prefixes []netip.Prefix
	for route := range found {
		prefixes = append(prefixes, route.prefix)
	}
	return prefixes, new(kernel).set(model.KernelRoutes{}, nil)
}
