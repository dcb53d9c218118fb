// SPDX-License-Identifier: Apache-2.0

package dpclient_test

import (
	"testing"

	"steelyard/internal/dpclient"
	"steelyard/internal/dpclient/dptest"
	pb "steelyard/internal/gen/forwarderpb"
)

// TestSamples: a first request brings none, later ones what came in between, of the kinds asked for.
func TestSamples(t *testing.T) {
	forwarder := dptest.New(t)
	client, err := dpclient.Dial(t.Context(), forwarder.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	forwarder.AddSamples(&pb.Sample{Length: 60})
	rates := dpclient.SampleRates{Received: 10, Dropped: 0}
	first, err := client.Samples(t.Context(), 0, rates)
	if err != nil || len(first.GetSamples()) != 0 {
		t.Fatalf("%v, %v", first, err)
	}
	forwarder.AddSamples(&pb.Sample{Length: 61, Drop: "no-service"}, &pb.Sample{Length: 62})
	second, err := client.Samples(t.Context(), first.GetLast(), rates)
	if err != nil || len(second.GetSamples()) != 1 || second.GetSamples()[0].GetLength() != 62 {
		t.Fatalf("%v, %v", second, err)
	}
	if requests := forwarder.Fetches(); len(requests) != 2 || requests[1].GetReceived() != 10 || requests[1].GetDropped() != 0 {
		t.Errorf("%v", requests)
	}
}
