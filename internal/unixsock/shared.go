// SPDX-License-Identifier: Apache-2.0

package unixsock

import (
	"context"
	"net"
	"os"
	"sync"
	"syscall"
)

// Shared returns a listener that closes connections above a user's share at once: perUser connections, and
// total for all users together. Root and this process's user have no limit.
func Shared(listener net.Listener, total, perUser int) net.Listener {
	return &shared{Listener: listener, total: total, perUser: perUser, open: map[uint32]int{}}
}

type shared struct {
	net.Listener
	total, perUser int

	mu   sync.Mutex
	all  int
	open map[uint32]int // by user
}

func (s *shared) Accept() (net.Conn, error) {
	for {
		conn, err := s.Listener.Accept()
		if err != nil {
			return nil, err
		}
		user, err := peer(conn)
		switch {
		case err != nil:
			conn.Close()
		case user == 0 || int(user) == os.Geteuid():
			return conn, nil
		case s.take(user):
			return &counted{Conn: conn, done: sync.OnceFunc(func() { s.release(user) })}, nil
		default:
			conn.Close()
		}
	}
}

func (s *shared) take(user uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == s.total || s.open[user] == s.perUser {
		return false
	}
	s.all++
	s.open[user]++
	return true
}

func (s *shared) release(user uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.open[user]--; s.open[user] == 0 {
		delete(s.open, user)
	}
}

type counted struct {
	net.Conn
	done func()
}

func (c *counted) Close() error {
	defer c.done()
	return c.Conn.Close()
}

type peerKey struct{}

// WithPeer adds the user of a connection to the context of its requests.
func WithPeer(ctx context.Context, conn net.Conn) context.Context {
	if one, ok := conn.(*counted); ok {
		conn = one.Conn
	}
	if _, ok := conn.(syscall.Conn); !ok {
		return ctx
	}
	user, err := peer(conn)
	if err != nil {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, user)
}

// Peer returns the user of a request's connection; false: it is not a Unix socket.
func Peer(ctx context.Context) (uint32, bool) {
	user, known := ctx.Value(peerKey{}).(uint32)
	return user, known
}

// peer returns the user at the other end of a connection.
func peer(conn net.Conn) (uint32, error) {
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var found *syscall.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		found, failed = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return 0, err
	}
	return found.Uid, nil
}
