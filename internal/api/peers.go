// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"

	"steelyard/internal/dpclient"
)

// peersOf requests the forwarder's peers. Returns nil if it has none, or is of a version without peers.
func peersOf(ctx context.Context, client *dpclient.Client) (*dpclient.PeerList, error) {
	list, err := client.Peers(ctx)
	if refusal := (*dpclient.Error)(nil); errors.As(err, &refusal) && refusal.Unknown() {
		return nil, nil
	}
	if list.GetNode() == 0 {
		return nil, err
	}
	return list, err
}

// judgePeers reports peers that would not continue all sessions, while this host serves; and fails a host that should serve, but waits for sessions.
func (r *report) judgePeers(list *dpclient.PeerList) {
	names := map[uint32]string{}
	for _, peer := range list.GetPeers() {
		names[peer.GetNode()] = dpclient.PeerName(peer)
	}
	for _, problem := range dpclient.PeerProblems(list) {
		of := "peers"
		if problem.Node != 0 {
			of = "peer " + names[problem.Node]
		}
		level := degraded
		if problem.Fails {
			level = failing
		}
		r.note(level, "%s: %s: %s", of, problem.Text, problem.Remedy)
	}
}
