// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"syscall"
	"time"
)

// Routes to this host, to all of a network, and to the nearest of several hosts: rtnetlink(7).
const (
	routeLocal     = 2
	routeBroadcast = 3
	routeAnycast   = 4
)

// answerTimeout bounds the wait for the kernel, which answers at once.
const answerTimeout = time.Second

// kernelHas reports whether the kernel delivers what is sent to an address to this host. It looks the route up, as an interface's list of addresses has
// neither 127.0.0.2 nor local routes.
func kernelHas(address netip.Addr) (bool, error) {
	socket, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, syscall.NETLINK_ROUTE)
	if err != nil {
		return false, err
	}
	defer syscall.Close(socket)
	limit := syscall.NsecToTimeval(answerTimeout.Nanoseconds())
	if err := syscall.SetsockoptTimeval(socket, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &limit); err != nil {
		return false, err
	}
	if err := syscall.Sendto(socket, routeRequest(address), 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return false, err
	}
	answer := make([]byte, 8192)
	for {
		n, _, err := syscall.Recvfrom(socket, answer, 0)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return false, err
		}
		return isLocal(answer[:n])
	}
}

// routeRequest is an RTM_GETROUTE for one destination.
func routeRequest(address netip.Addr) []byte {
	raw, family := address.AsSlice(), byte(syscall.AF_INET6)
	if address.Is4() {
		family = syscall.AF_INET
	}
	const attribute = syscall.NLMSG_HDRLEN + syscall.SizeofRtMsg
	request := make([]byte, attribute+syscall.SizeofRtAttr+len(raw))
	binary.NativeEndian.PutUint32(request[0:], uint32(len(request)))
	binary.NativeEndian.PutUint16(request[4:], syscall.RTM_GETROUTE)
	binary.NativeEndian.PutUint16(request[6:], syscall.NLM_F_REQUEST)
	request[syscall.NLMSG_HDRLEN] = family
	request[syscall.NLMSG_HDRLEN+1] = byte(len(raw) * 8)
	binary.NativeEndian.PutUint16(request[attribute:], uint16(syscall.SizeofRtAttr+len(raw)))
	binary.NativeEndian.PutUint16(request[attribute+2:], syscall.RTA_DST)
	copy(request[attribute+syscall.SizeofRtAttr:], raw)
	return request
}

func isLocal(answer []byte) (bool, error) {
	messages, err := syscall.ParseNetlinkMessage(answer)
	if err != nil {
		return false, err
	}
	for _, message := range messages {
		switch {
		case message.Header.Type == syscall.NLMSG_ERROR: // no route, as for an unreachable network
			return false, nil
		case message.Header.Type == syscall.RTM_NEWROUTE && len(message.Data) >= syscall.SizeofRtMsg:
			kind := message.Data[7] // rtm_type
			return kind == routeLocal || kind == routeBroadcast || kind == routeAnycast, nil
		}
	}
	return false, nil
}
