// SPDX-License-Identifier: Apache-2.0

package health

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"steelyard/internal/egress"
	"steelyard/internal/model"

	"golang.org/x/sys/unix"
)

// Endpoint is the destination of a check.
type Endpoint struct {
	Address netip.AddrPort
	// Mark selects the server; Address is the VIP then. 0: Address is the server's own.
	Mark   uint32
	Server netip.Addr
}

// Dial opens a connection.
type Dial func(ctx context.Context, to Endpoint) (net.Conn, error)

// connection is the connection of one check. It is in the check's context, because the dialer is below the probe.
type connection struct{ ns atomic.Int64 }

type connectionKey struct{}

// took returns the time to connect; 0: there was no connection.
func (c *connection) took() time.Duration { return time.Duration(c.ns.Load()) }

// timed measures the time to connect.
func timed(dial Dial) Dial {
	return func(ctx context.Context, to Endpoint) (net.Conn, error) {
		begun := time.Now()
		conn, err := dial(ctx, to)
		if of, ok := ctx.Value(connectionKey{}).(*connection); ok && err == nil {
			of.ns.Store(int64(max(1, time.Since(begun))))
		}
		return conn, err
	}
}

// Connect is the Dial of the agent.
func Connect(ctx context.Context, to Endpoint) (net.Conn, error) {
	dialer := net.Dialer{Control: func(_, address string, _ syscall.RawConn) error {
		server, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		return egress.Of(ctx, server.Addr())
	}}
	if to.Mark != 0 {
		if err := egress.Of(ctx, to.Server); err != nil { // the address is the VIP
			return nil, err
		}
		// The kernel would choose the VIP as source, as the VIP seems to be its own.
		source, err := sourceTo(to.Server, to.Address.Addr().Is4())
		if err != nil {
			return nil, err
		}
		dialer.LocalAddr = &net.TCPAddr{IP: source.AsSlice()}
		dialer.Control = func(_, _ string, conn syscall.RawConn) error {
			if err := bindWithoutPort(conn); err != nil {
				return err
			}
			return setMark(conn, to.Mark)
		}
	}
	return dialer.DialContext(ctx, "tcp", to.Address.String())
}

// bindWithoutPort defers the port's allocation from bind() to connect(), which needs a port that is free for this destination only. Otherwise each port
// would serve one check, of all servers, until it leaves TIME-WAIT.
func bindWithoutPort(conn syscall.RawConn) error {
	var failed error
	err := conn.Control(func(fd uintptr) {
		failed = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	})
	return cmp.Or(err, os.NewSyscallError("setsockopt", failed))
}

func setMark(conn syscall.RawConn, mark uint32) error {
	var failed error
	err := conn.Control(func(fd uintptr) {
		failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_MARK, int(mark))
	})
	if err == nil && failed != nil {
		err = &HostError{fmt.Errorf("the check cannot be marked (SO_MARK): %w: the agent needs CAP_NET_RAW, before Linux 5.17 CAP_NET_ADMIN", failed)}
	}
	return err
}

// MayMark returns nil if this process may mark checks; otherwise the reason and the remedy.
func MayMark() error {
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv6loopback})
	if err != nil {
		conn, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	}
	if err != nil {
		return err
	}
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	return setMark(raw, model.FirstMark)
}

// sourceTo returns this host's address, of a family, that a server receives checks from.
func sourceTo(server netip.Addr, want4 bool) (netip.Addr, error) {
	conn, err := net.Dial("udp", netip.AddrPortFrom(server, 9).String()) // sends nothing
	if err != nil {
		return netip.Addr{}, err
	}
	defer conn.Close()
	own := conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
	if own.Is4() == want4 {
		return own.WithZone(""), nil
	}
	return neighbourOf(own.WithZone(""), want4)
}

// neighbourOf returns an address of the other family on the interface with `own`, or else on any interface.
// Deprecated addresses are skipped: they are VIPs and local addresses, which the forwarder has claimed.
func neighbourOf(own netip.Addr, want4 bool) (netip.Addr, error) {
	addresses, err := hostAddresses()
	if err != nil {
		return netip.Addr{}, &HostError{fmt.Errorf("the addresses of this host: %w", err)}
	}
	var interfaceIndex uint32
	for _, a := range addresses {
		if a.address == own {
			interfaceIndex = a.interfaceIndex
		}
	}
	var other netip.Addr
	for _, a := range addresses {
		if a.address.Is4() != want4 || a.deprecated || !a.address.IsGlobalUnicast() {
			continue
		}
		if a.interfaceIndex == interfaceIndex {
			return a.address, nil
		}
		if !other.IsValid() {
			other = a.address
		}
	}
	if !other.IsValid() {
		return other, &HostError{fmt.Errorf("this host has no IPv%d address for checks: add one", map[bool]int{true: 4, false: 6}[want4])}
	}
	return other, nil
}

type hostAddress struct {
	address        netip.Addr
	interfaceIndex uint32
	deprecated     bool
}

// hostAddresses queries the kernel by netlink, because package net does not report deprecated addresses.
func hostAddresses() ([]hostAddress, error) {
	table, err := syscall.NetlinkRIB(syscall.RTM_GETADDR, syscall.AF_UNSPEC)
	if err != nil {
		return nil, err
	}
	messages, err := syscall.ParseNetlinkMessage(table)
	if err != nil {
		return nil, err
	}
	var found []hostAddress
	for _, message := range messages {
		if message.Header.Type != syscall.RTM_NEWADDR || len(message.Data) < syscall.SizeofIfAddrmsg {
			continue
		}
		attributes, err := syscall.ParseNetlinkRouteAttr(&message)
		if err != nil {
			return nil, err
		}
		// struct ifaddrmsg: family, prefix length, flags, scope, index.
		one := hostAddress{
			deprecated:     message.Data[2]&syscall.IFA_F_DEPRECATED != 0,
			interfaceIndex: binary.NativeEndian.Uint32(message.Data[4:8]),
		}
		for _, attribute := range attributes {
			if attribute.Attr.Type == syscall.IFA_ADDRESS && !one.address.IsValid() || attribute.Attr.Type == syscall.IFA_LOCAL {
				one.address, _ = netip.AddrFromSlice(attribute.Value)
			}
		}
		if one.address.IsValid() {
			found = append(found, one)
		}
	}
	return found, nil
}
