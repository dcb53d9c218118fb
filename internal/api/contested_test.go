// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"steelyard/internal/dpclient"
	"steelyard/internal/dpclient/dptest"
	pb "steelyard/internal/gen/agentpb"

	"connectrpc.com/connect"
)

// Named addresses are claimed, and no others; without names, all are.
func TestClaimAddressesClaimsTheNamedOnes(t *testing.T) {
	f := dptest.New(t)
	s := &Server{Dial: func(ctx context.Context) (*dpclient.Client, error) { return dpclient.Dial(ctx, f.Socket) }}
	f.Contest("10.0.0.80", "fd00::80", "10.0.0.81")
	claim := func(want uint32, left []string, addresses ...string) {
		t.Helper()
		response, err := s.ClaimAddresses(t.Context(), connect.NewRequest(&pb.ClaimAddressesRequest{Addresses: addresses}))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, text := range f.Contested() {
			address, _, _ := strings.Cut(text, " ")
			got = append(got, netip.MustParseAddr(address).String())
		}
		if response.Msg.GetClaimed() != want || !slices.Equal(got, left) {
			t.Errorf("%v: claimed %d, left %q", addresses, response.Msg.GetClaimed(), got)
		}
	}
	claim(0, []string{"10.0.0.80", "fd00::80", "10.0.0.81"}, "10.0.0.8")
	claim(2, []string{"10.0.0.81"}, "::ffff:10.0.0.80", "fd00:0::80", "10.0.0.99")
	claim(1, nil)
	for _, bad := range []string{"", "x", "fe80::1%eth0", "10.0.0.0/8"} {
		_, err := s.ClaimAddresses(t.Context(), connect.NewRequest(&pb.ClaimAddressesRequest{Addresses: []string{bad}}))
		if connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
