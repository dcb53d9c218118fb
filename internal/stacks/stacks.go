// SPDX-License-Identifier: Apache-2.0

// Package stacks queries processes with the TCP stack, and controls their hooks:
// api/steelyard/stack/v1. Each
// has a Unix socket, one for all processes of a `steelyard run`.
package stacks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"syscall"

	"steelyard/internal/dpclient"
	pb "steelyard/internal/gen/stackpb"

	"google.golang.org/protobuf/proto"
)

// Directory is where the sockets are.
const Directory = "/run/steelyard/stack"

const suffix = ".sock"

// A Stack is a process with the stack, or all processes of a `steelyard run`.
type Stack struct {
	Name   string
	Socket string
}

// Find lists the stacks of this host that answer. Sockets that killed processes left are none.
func Find(directory string) ([]Stack, error) {
	entries, err := os.ReadDir(directory)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var found []Stack
	for _, entry := range entries {
		name, is := strings.CutSuffix(entry.Name(), suffix)
		if !is {
			continue
		}
		one := Stack{Name: name, Socket: filepath.Join(directory, entry.Name())}
		conn, err := net.Dial("unix", one.Socket)
		if err == nil {
			conn.Close()
		}
		if err == nil || errors.Is(err, syscall.EACCES) {
			found = append(found, one)
		}
	}
	sort.Slice(found, func(i, j int) bool { return found[i].Name < found[j].Name })
	return found, nil
}

// Named returns the stack with a name, or with a socket at a path.
func Named(directory, name string) Stack {
	if strings.Contains(name, "/") {
		return Stack{Name: strings.TrimSuffix(filepath.Base(name), suffix), Socket: name}
	}
	return Stack{Name: name, Socket: filepath.Join(directory, name+suffix)}
}

// Error is a refusal.
type Error struct{ Text string }

func (e *Error) Error() string { return e.Text }

// Ask sends one request.
func (s Stack) Ask(ctx context.Context, request *pb.Request) (*pb.Response, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", s.Socket)
	if err != nil {
		return nil, s.explain(err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	request.Version = uint32(pb.Version_VERSION_CURRENT)
	response := new(pb.Response)
	err = dpclient.WriteFrame(conn, request)
	if err == nil {
		err = dpclient.ReadFrame(conn, response)
	}
	switch {
	case errors.Is(ctx.Err(), context.Canceled): // the user's end of it
		return nil, ctx.Err()
	case ctx.Err() != nil:
		return nil, fmt.Errorf("stack %s does not answer: another user may be served, or it hangs", s.Name)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return nil, fmt.Errorf("stack %s closed the connection: it serves root and its own user, and no other version's requests", s.Name)
	case err != nil:
		return nil, fmt.Errorf("stack %s: %w", s.Name, err)
	}
	if refused := response.GetError(); refused != nil {
		return nil, &Error{refused.GetText()}
	}
	return response, nil
}

// An Answer of one of several stacks.
type Answer struct {
	Response *pb.Response
	Err      error
}

// AskAll queries all stacks concurrently, so that one that hangs does not delay the others. The answers are in the order of the stacks.
func AskAll(ctx context.Context, all []Stack, request *pb.Request) []Answer {
	request.Version = uint32(pb.Version_VERSION_CURRENT)
	answers := make([]Answer, len(all))
	var asked sync.WaitGroup
	for i, one := range all {
		asked.Go(func() { answers[i].Response, answers[i].Err = one.Ask(ctx, proto.CloneOf(request)) })
	}
	asked.Wait()
	return answers
}

func (s Stack) explain(err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("stack %s does not answer: another user may be served, or it hangs", s.Name)
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no stack %s: nothing answers on %s; `steelyard stack list` shows those that run", s.Name, s.Socket)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("permission denied for %s: run this as root, or as the user of the process", s.Socket)
	}
	return fmt.Errorf("stack %s: %w", s.Name, err)
}
