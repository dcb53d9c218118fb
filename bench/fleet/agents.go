// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	agentpb "steelyard/internal/gen/agentpb"
	"steelyard/internal/gen/agentpb/agentpbconnect"
	pb "steelyard/internal/gen/controllerpb"
	"steelyard/internal/gen/controllerpb/controllerpbconnect"
	"steelyard/internal/member"
	"steelyard/internal/pki"

	"connectrpc.com/connect"
)

// willing is an agent that takes any newer configuration, and says when.
type willing struct {
	agentpbconnect.UnimplementedAgentServiceHandler
	controllerpbconnect.UnimplementedMemberServiceHandler
	tell *tell

	mu  sync.Mutex
	has int64
}

type tell struct{ mu sync.Mutex }

// SetDesired implements the service.
func (w *willing) SetDesired(_ context.Context, request *connect.Request[pb.SetDesiredRequest]) (*connect.Response[pb.SetDesiredResponse], error) {
	now := time.Now().UnixNano()
	w.mu.Lock()
	defer w.mu.Unlock()
	answer := &pb.SetDesiredResponse{Outcome: pb.SetDesiredResponse_OUTCOME_OLDER, Revision: w.has}
	if wanted := request.Msg.GetRevision(); wanted >= w.has {
		if wanted > w.has {
			w.tell.mu.Lock()
			fmt.Println(now)
			w.tell.mu.Unlock()
		}
		w.has = wanted
		answer = &pb.SetDesiredResponse{Outcome: pb.SetDesiredResponse_OUTCOME_APPLIED, Revision: wanted, ForwarderRevision: uint64(wanted), Changes: 1}
	}
	return connect.NewResponse(answer), nil
}

// GetStatus implements the service.
func (w *willing) GetStatus(context.Context, *connect.Request[agentpb.GetStatusRequest]) (*connect.Response[agentpb.GetStatusResponse], error) {
	return connect.NewResponse(&agentpb.GetStatusResponse{}), nil
}

// runAgents runs one for each token, until it is killed.
func runAgents(url string) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	told := &tell{}
	var running sync.WaitGroup
	for scanner := bufio.NewScanner(os.Stdin); scanner.Scan(); {
		identity, _, err := member.Join(context.Background(), "", []string{url}, scanner.Text(), pki.Forwarder)
		if err != nil {
			return err
		}
		one := &willing{tell: told}
		mux := http.NewServeMux()
		mux.Handle(controllerpbconnect.NewMemberServiceHandler(one))
		mux.Handle(agentpbconnect.NewAgentServiceHandler(one))
		agent := &member.Member{Identity: identity, Handler: mux, Log: log, Controllers: []string{url}}
		running.Go(func() { agent.Run(context.Background()) })
	}
	running.Wait()
	return nil
}
