// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// portRange is a range of ports, both ends included.
type portRange struct{ first, last int }

func (r portRange) String() string {
	if r.first == r.last {
		return strconv.Itoa(r.first)
	}
	return fmt.Sprintf("%d-%d", r.first, r.last)
}

// parsePortRange parses "61000-65535", "61000 65535" or "61000".
func parsePortRange(text string) (portRange, error) {
	words := strings.FieldsFunc(text, func(c rune) bool { return c == '-' || c == ' ' || c == '\t' || c == '\n' })
	if len(words) != 1 && len(words) != 2 {
		return portRange{}, fmt.Errorf("%q is not a range of ports: write 61000-65535", text)
	}
	first, err := strconv.ParseUint(words[0], 10, 16)
	last := first
	if err == nil && len(words) == 2 {
		last, err = strconv.ParseUint(words[1], 10, 16)
	}
	if err != nil || last < first {
		return portRange{}, fmt.Errorf("%q is not a range of ports: write 61000-65535", text)
	}
	return portRange{int(first), int(last)}, nil
}

// sharedPorts returns the ports of ours that Linux may assign to connections of other programs; ok is false if there are none.
func sharedPorts(ours, linux portRange, reserved []portRange) (shared portRange, ok bool) {
	for port := max(ours.first, linux.first); port <= min(ours.last, linux.last); port++ {
		skipped := false
		for _, one := range reserved {
			skipped = skipped || (port >= one.first && port <= one.last)
		}
		if skipped {
			continue
		}
		if !ok {
			shared.first = port
		}
		shared.last, ok = port, true
	}
	return shared, ok
}

// checkLocalPorts rejects ports that Linux assigns to connections of other programs, because their packets would arrive at the stack.
func (o *runOptions) checkLocalPorts() error {
	return o.checkLocalPortsOf("/proc/sys/net/ipv4/")
}

func (o *runOptions) checkLocalPortsOf(directory string) error {
	ours, err := parsePortRange(o.LocalPorts)
	if err != nil {
		return fmt.Errorf("--local-ports: %w", err)
	}
	text, err := os.ReadFile(directory + "ip_local_port_range")
	if err != nil {
		return err
	}
	linux, err := parsePortRange(string(text))
	if err != nil {
		return fmt.Errorf("net.ipv4.ip_local_port_range: %w", err)
	}
	var reserved []portRange
	text, err = os.ReadFile(directory + "ip_local_reserved_ports")
	if err != nil {
		return err
	}
	for _, one := range strings.FieldsFunc(string(text), func(c rune) bool { return c == ',' || c == '\n' }) {
		ports, err := parsePortRange(one)
		if err != nil {
			return fmt.Errorf("net.ipv4.ip_local_reserved_ports: %w", err)
		}
		reserved = append(reserved, ports)
	}
	if shared, ok := sharedPorts(ours, linux, reserved); ok {
		return fmt.Errorf("--local-ports %s: Linux assigns ports %s to connections of other programs (net.ipv4.ip_local_port_range is %s), whose packets would "+
			"arrive at the stack; remedy: sysctl -w net.ipv4.ip_local_reserved_ports=%s (in addition to its value), or other ports here", o.LocalPorts, shared, linux, ours)
	}
	return nil
}
