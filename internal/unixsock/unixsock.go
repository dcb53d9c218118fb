// SPDX-License-Identifier: Apache-2.0

// Package unixsock opens Unix sockets whose owner, group and mode decide which users may connect.
package unixsock

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Reading returns the path of the reading socket that belongs to a socket: agent.sock, agent-read.sock.
func Reading(socket string) string {
	return strings.TrimSuffix(socket, ".sock") + "-read.sock"
}

// Group returns the name of a file's group, or its number if it has no name; "" if there is no such file.
func Group(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	id := strconv.FormatUint(uint64(stat.Gid), 10)
	if group, err := user.LookupGroupId(id); err == nil {
		return group.Name
	}
	return id
}

// Members returns intro and the name of the file's group, if members of that group may write to the file.
func Members(path, intro string) string {
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm()&0o060 != 0o060 {
		return ""
	}
	return intro + Group(path)
}

// Listen replaces a socket that a dead process left, but never one on which a process answers. The
// members of the group may connect, a name or a number. If there is no such group, or the socket cannot
// be given to it, this is logged, and only this process's user may connect. what names the socket in
// messages.
func Listen(socket, group, what string, log *slog.Logger) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if taken, err := awaitFree(socket); taken {
		return nil, fmt.Errorf("an agent is running already, on %s: stop it, or use another --socket", socket)
	} else if errors.Is(err, syscall.ECONNREFUSED) {
		if err := os.Remove(socket); err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
	}
	// No other user may connect before the file has its group.
	before := syscall.Umask(0o177)
	listener, err := net.Listen("unix", socket)
	syscall.Umask(before)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if err := share(socket, group); err != nil {
		log.Warn(what+": only its own user and root may connect", "socket", socket, "group", group, "error", err)
	}
	return listener, nil
}

func share(socket, group string) error {
	id, err := strconv.ParseUint(group, 10, 31)
	if err != nil {
		known, err := user.LookupGroup(group)
		if err != nil {
			return err
		}
		if id, err = strconv.ParseUint(known.Gid, 10, 31); err != nil {
			return err
		}
	}
	if err := os.Lchown(socket, -1, int(id)); err != nil {
		return err
	}
	return os.Chmod(socket, 0o660)
}
