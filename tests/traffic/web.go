// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"
)

// connect opens the flow's only connection. receive is the size of its receive buffer, 0 for the system's default.
func (o options) connect(f *flow, address string, receive int) (net.Conn, error) {
	dialer := net.Dialer{Timeout: o.patience}
	if receive > 0 {
		// Before the handshake, so that the peer never sees a larger window.
		dialer.Control = func(_, _ string, c syscall.RawConn) error {
			var failed error
			err := c.Control(func(fd uintptr) {
				failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, receive)
			})
			return errors.Join(err, failed)
		}
	}
	conn, err := dialer.Dial("tcp", address)
	if err == nil {
		f.local = conn.LocalAddr()
	}
	return conn, err
}

func request(conn net.Conn, path string) error {
	_, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: lab\r\n\r\n", path)
	return err
}

// hold keeps a connection in use: it repeatedly requests the server's name.
func (o options) hold(f *flow, address string, due time.Time, end <-chan struct{}) error {
	if !pause(due, end) {
		return nil
	}
	first := f.ask()
	conn, err := o.connect(f, address, 0)
	if err != nil {
		return err
	}
	defer conn.Close()
	answers := bufio.NewReaderSize(conn, 512)
	for q := first; ; q = f.ask() {
		conn.SetDeadline(time.Now().Add(o.patience))
		if err := request(conn, "/"); err != nil {
			return err
		}
		who, err := readName(answers)
		if err != nil {
			return err
		}
		if err := f.answered(q, who); err != nil {
			return err
		}
		if due = next(due, o.period); !pause(due, end) {
			return nil
		}
	}
}

// readName reads an answer whose body is the server's name.
func readName(answers *bufio.Reader) (string, error) {
	answer, err := http.ReadResponse(answers, nil)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 256))
	if err != nil {
		return "", err
	}
	if answer.StatusCode != http.StatusOK || answer.Close {
		return "", fmt.Errorf("%w: %s, %d bytes, close %v", errCorrupt, answer.Status, len(body), answer.Close)
	}
	return strings.TrimSpace(string(body)), nil
}

// content is the web servers' file for downloads: the same bytes for every client.
func content(size int) []byte {
	all := make([]byte, size)
	rand.NewChaCha8([32]byte([]byte("what is weighed and not wanting."))).Read(all)
	return all
}

const (
	// Bytes that a download reads at once.
	block = 4 << 10
	// Of the kernel, which doubles it and counts its own overhead in: no stall is hidden by what waits there unread.
	smallBuffer = block
	largeBuffer = 1 << 20
	// That and what bufio holds is less than this: of so much some has crossed the network since the first was asked for.
	lap = 3 * block
)

// download reads the content at a steady rate, and at full speed after `hurry`. It compares every byte, and the SHA-256
// of all of them.
func (o options) download(f *flow, address string, all []byte, due time.Time, hurry <-chan struct{}) error {
	pause(due, hurry)
	q := f.ask()
	conn, err := o.connect(f, address, smallBuffer)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(o.patience))
	if err := request(conn, o.path); err != nil {
		return err
	}
	answer, err := http.ReadResponse(bufio.NewReaderSize(conn, block), nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK || answer.ContentLength != int64(len(all)) {
		return fmt.Errorf("%w: %s, %d bytes instead of %d", errCorrupt, answer.Status, answer.ContentLength, len(all))
	}
	sum, part := sha256.New(), make([]byte, block)
	between := time.Duration(block) * time.Second / time.Duration(o.rate)
	lapRound := q.round
	for at := 0; at < len(all); q = f.ask() {
		if at%lap == 0 {
			lapRound = q.round
		}
		conn.SetDeadline(time.Now().Add(o.patience))
		n, err := io.ReadFull(answer.Body, part[:min(block, len(all)-at)])
		if err != nil {
			return fmt.Errorf("after %d of %d bytes: %w", at+n, len(all), err)
		}
		if !bytes.Equal(part[:n], all[at:at+n]) {
			return fmt.Errorf("%w within the %d bytes at %d", errCorrupt, n, at)
		}
		sum.Write(part[:n])
		q.round = 0 // it may have been on its way before
		if at += n; at%lap == 0 {
			q.round = lapRound
		}
		if err := f.answered(q, answer.Header.Get("X-Served-By")); err != nil {
			return err
		}
		if due = next(due, between); !pause(due, hurry) {
			if err := conn.(*net.TCPConn).SetReadBuffer(largeBuffer); err != nil {
				return err
			}
		}
	}
	select {
	case <-hurry:
	default:
		return errors.New("at its end before the finish: the content is too small for the pace")
	}
	if [sha256.Size]byte(sum.Sum(nil)) != sha256.Sum256(all) {
		return fmt.Errorf("%w: SHA-256 differs", errCorrupt)
	}
	f.complete()
	return nil
}
