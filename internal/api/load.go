// SPDX-License-Identifier: Apache-2.0

package api

import (
	"time"

	pb "steelyard/internal/gen/agentpb"
	"steelyard/internal/model"
)

// load returns a server's load; nil: it is not read.
func (s *Server) load(ref model.ServerRef) *pb.LoadState {
	if s.Load == nil {
		return nil
	}
	r, ok := s.Load(ref)
	if !ok {
		return nil
	}
	state := &pb.LoadState{Load: r.CPU, Rps: r.RPS, ReadUnixMs: unixMillis(r.At), Source: r.Source, Error: r.Err, Failures: r.Failed}
	if !r.At.IsZero() {
		state.AgeMs = uint64(max(0, time.Since(r.At).Milliseconds()))
	}
	return state
}
