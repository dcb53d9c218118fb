// SPDX-License-Identifier: Apache-2.0

package dptest

import (
	"slices"

	pb "steelyard/internal/gen/forwarderpb"
)

// AddSamples lets workers sample further packets.
func (f *Forwarder) AddSamples(samples ...*pb.Sample) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Samples = append(f.Samples, samples...)
}

// SetAttacks replaces the attacks that the forwarder lists.
func (f *Forwarder) SetAttacks(attacks ...*pb.Attack) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Attacks = attacks
}

// Fetches returns the requests for samples so far.
func (f *Forwarder) Fetches() []*pb.FetchSamplesRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.fetches)
}

func (f *Forwarder) fetchSamples(request *pb.FetchSamplesRequest) *pb.Response {
	f.fetches = append(f.fetches, request)
	last := uint64(len(f.Samples)) + 1
	answer := &pb.Samples{Last: last, Taken: uint64(len(f.Samples)), Lost: 7}
	if request.GetAfter() > 0 && request.GetAfter() <= last {
		for _, sample := range f.Samples[request.GetAfter()-1:] {
			wanted := request.GetReceived()
			if sample.GetDrop() != "" {
				wanted = request.GetDropped()
			}
			if wanted > 0 {
				answer.Samples = append(answer.Samples, sample)
			}
		}
	}
	return &pb.Response{Body: &pb.Response_FetchSamples{FetchSamples: answer}}
}
