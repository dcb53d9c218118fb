// SPDX-License-Identifier: Apache-2.0

package unixsock

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	dyingStep  = 10 * time.Millisecond
	dyingGrace = 100 * time.Millisecond // between the delivery of SIGKILL and the flag
	dyingMax   = 30 * time.Second       // to unmap the memory of a large process on a busy host
	pfExiting  = 0x4                    // the kernel's; in field 9 of /proc/PID/stat
	sigkillBit = 1 << (syscall.SIGKILL - 1)
)

// awaitFree waits while a process that was killed, and has not released its files yet, still answers on a socket. Returns whether a
// live process has the socket.
func awaitFree(socket string) (taken bool, err error) {
	for begun := time.Now(); ; time.Sleep(dyingStep) {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			return false, err
		}
		dying := isDying(listener(conn))
		conn.Close()
		waited := time.Since(begun)
		if waited > dyingGrace+dyingMax || waited > dyingGrace && !dying {
			return true, nil
		}
	}
}

// listener returns the process that listens at the other end; 0: unknown.
func listener(conn net.Conn) int {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	_ = raw.Control(func(fd uintptr) { // on an error, the process is unknown
		if peer, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			pid = int(peer.Pid)
		}
	})
	return pid
}

// isDying reports whether a process was killed or exits: proc(5), its pending signals and its flags.
func isDying(pid int) bool {
	if pid <= 0 {
		return false
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if errors.Is(err, os.ErrNotExist) {
		return true
	}
	for line := range bytes.Lines(status) {
		name, value, _ := strings.Cut(string(line), ":")
		if name != "SigPnd" && name != "ShdPnd" {
			continue
		}
		if mask, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64); err == nil && mask&sigkillBit != 0 {
			return true
		}
	}
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // from the state on
	if len(fields) < 7 {
		return false
	}
	flags, err := strconv.ParseUint(fields[6], 10, 64)
	return fields[0] == "Z" || fields[0] == "X" || err == nil && flags&pfExiting != 0
}
