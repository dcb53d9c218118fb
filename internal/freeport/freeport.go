// SPDX-License-Identifier: Apache-2.0

// Package freeport allocates addresses for tests whose listeners are restarted.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"syscall"
	"testing"
)

// Ports below those that Linux allocates to connections: net.ipv4.ip_local_port_range begins at 32768. A connection of another test cannot occupy the
// address while its listener is down.
const first, end = 10000, 32768

// Address returns a loopback address without a listener.
func Address(t testing.TB) string {
	t.Helper()
	for {
		address := fmt.Sprintf("127.0.0.1:%d", first+rand.IntN(end-first))
		listener, err := net.Listen("tcp", address)
		if err == nil {
			listener.Close()
			return address
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatal(err)
		}
	}
}
