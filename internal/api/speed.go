// SPDX-License-Identifier: Apache-2.0

package api

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"steelyard/internal/dpclient"
)

// interfaces is the kernel's directory of network interfaces.
const interfaces = "/sys/class/net"

// linkSpeeds returns the speeds of ports that are interfaces of this host's kernel.
func linkSpeeds(ports []*dpclient.Port) map[string]uint64 {
	speeds := map[string]uint64{}
	for _, port := range ports {
		if port.GetIfIndex() == 0 {
			continue
		}
		paths, _ := filepath.Glob(interfaces + "/*/ifindex") // the pattern is valid
		for _, path := range paths {
			if number(path) != int64(port.GetIfIndex()) {
				continue
			}
			if mbit := number(filepath.Join(filepath.Dir(path), "speed")); mbit > 0 { // -1: no link, or unknown
				speeds[port.GetName()] = uint64(mbit) * 1_000_000
			}
		}
	}
	return speeds
}

// number reads a file with one number; 0: there is none.
func number(path string) int64 {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	return n
}
