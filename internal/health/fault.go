// SPDX-License-Identifier: Apache-2.0

package health

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// HostError is an error of this host. It is no evidence about the checked server.
type HostError struct{ err error }

func (e *HostError) Error() string { return e.err.Error() }
func (e *HostError) Unwrap() error { return e.err }

// hostErrnos are errors that only this host can cause, with remedies. No answer of a server, and no ICMP error, results in one of them, except EACCES over
// IPv6. ENETUNREACH is not included: the forwarder uses the same routes as checks, so clients cannot reach a server without a route either.
var hostErrnos = []struct {
	errno  syscall.Errno
	remedy string
}{
	{syscall.EMFILE, "raise the agent's limit of open files (LimitNOFILE= of its unit)"},
	{syscall.ENFILE, "raise fs.file-max"},
	{syscall.EADDRNOTAVAIL, "no local port or address is left: widen net.ipv4.ip_local_port_range, or set a longer `interval`"},
	{syscall.EADDRINUSE, "no local port is left: widen net.ipv4.ip_local_port_range, or set a longer `interval`"},
	{syscall.ENOBUFS, "the kernel has no buffers left: add memory to this host"},
	{syscall.ENOMEM, "add memory to this host, or raise the agent's limit"},
	{syscall.EPERM, "a firewall, a seccomp filter or missing capabilities of this host forbid it"},
	{syscall.EACCES, "a route or a rule of this host prohibits it"},
	{syscall.ENETDOWN, "an interface of this host is down"},
	{syscall.ENODEV, "an interface of this host is missing"},
	{syscall.EAFNOSUPPORT, "this host has no such address family: is IPv6 disabled?"},
	{syscall.EPROTONOSUPPORT, "this host's kernel lacks the protocol"},
	{syscall.EAGAIN, "this host's kernel is short of a resource"},
	{syscall.ENOSYS, "a seccomp filter of this host forbids it"},
}

// errTracking means that the kernel drops packets of this host's new connections, without an error.
var errTracking = errors.New("this host's table of tracked connections is full (net.netfilter.nf_conntrack_max)")

// trackingFiles have the connections that the kernel tracks, and the most.
var trackingFiles = [2]string{"/proc/sys/net/netfilter/nf_conntrack_count", "/proc/sys/net/netfilter/nf_conntrack_max"}

// trackingIsFull reports whether the kernel drops connections that it cannot track.
func trackingIsFull() bool {
	var numbers [2]int
	for i, file := range trackingFiles {
		data, err := os.ReadFile(file)
		if err != nil {
			return false
		}
		if numbers[i], err = strconv.Atoi(strings.TrimSpace(string(data))); err != nil {
			return false
		}
	}
	return numbers[1] > 0 && numbers[0] >= numbers[1]-numbers[1]/20
}

// Remedy returns the remedy for an error of this host.
func Remedy(err error) string {
	for _, one := range hostErrnos {
		if isErrno(err, one.errno) {
			return one.remedy
		}
	}
	if errors.Is(err, errTracking) {
		return "raise net.netfilter.nf_conntrack_max, or let firewall rules not track connections (notrack)"
	}
	return "see the agent's log"
}

// isErrno reports whether an error has an errno in it. The resolver of package net may keep its text alone.
func isErrno(err error, errno syscall.Errno) bool {
	if errors.Is(err, errno) {
		return true
	}
	var lookup *net.DNSError
	return errors.As(err, &lookup) && strings.Contains(lookup.Err, errno.Error())
}

// localCalls are system calls whose errors never come from the network.
var localCalls = []string{"socket", "bind", "setsockopt", "getsockname", "fcntl", "epoll_ctl", "netlinkrib"}

// ofHost marks an error of a check as this host's if it is. server is the destination of the check's packets.
func ofHost(err error, server netip.Addr) error {
	if err == nil {
		return nil
	}
	var known *HostError
	if errors.As(err, &known) {
		return err
	}
	var call *os.SyscallError
	if errors.As(err, &call) && slices.Contains(localCalls, call.Syscall) {
		return &HostError{err}
	}
	if isErrno(err, syscall.EACCES) && server.Is6() && !prohibits(server) {
		return err // by ICMPv6: administratively prohibited (RFC 4443 3.1), at the server or on the path
	}
	for _, one := range hostErrnos {
		if isErrno(err, one.errno) {
			return &HostError{err}
		}
	}
	return err
}

// prohibits reports whether this host's own routes refuse an address. Connecting a datagram socket sends nothing.
func prohibits(address netip.Addr) bool {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(address, 9)))
	if err != nil {
		return true
	}
	conn.Close()
	return false
}
