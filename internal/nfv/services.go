// SPDX-License-Identifier: Apache-2.0

package nfv

import (
	"errors"
	"fmt"
	"slices"

	pb "steelyard/internal/gen/nfvpb"
)

// maxServices bounds the ports of a request.
const maxServices = 64

// Services returns all virtual services of a request. They share the VIP, and so the route and the forwarder, and end together.
func Services(b *pb.Balancing) []*pb.VirtualService {
	return append([]*pb.VirtualService{b.GetVirtual()}, b.GetMore()...)
}

// ServiceName returns the name of the n-th virtual service of a request in its project's file. No ID of a request has a dot.
func ServiceName(b *pb.Balancing, n int) string {
	if n == 0 {
		return b.GetId()
	}
	v := b.GetMore()[n-1]
	return fmt.Sprintf("%s.%s-%d", b.GetId(), v.GetProtocol(), v.GetVport())
}

// ServiceNames returns the names of all virtual services of a request, as its project's file has them.
func ServiceNames(b *pb.Balancing) []string {
	names := make([]string, 1+len(b.GetMore()))
	for n := range names {
		names[n] = ServiceName(b, n)
	}
	return names
}

// Reals counts the real services of a request.
func Reals(b *pb.Balancing) int {
	count := 0
	for _, v := range Services(b) {
		count += len(v.GetRealServices())
	}
	return count
}

// normalServices validates the virtual services of a request, and fills in defaults.
func normalServices(b *pb.Balancing) error {
	if b.GetVirtual() == nil {
		return errors.New("the virtual service is missing")
	}
	if len(b.GetMore()) >= maxServices {
		return fmt.Errorf("%d virtual services, at most %d are possible", 1+len(b.GetMore()), maxServices)
	}
	if b.GetVirtual().GetSettings() != "" {
		return errors.New("the first virtual service uses the settings of the request: remove its own")
	}
	var keys []string
	for n, v := range Services(b) {
		if n > 0 && v.GetVip() == "" {
			v.Vip = b.GetVirtual().GetVip()
		}
		if err := normalService(v); err != nil {
			if n > 0 {
				return fmt.Errorf("further service %d: %w", n, err)
			}
			return err
		}
		if v.GetVip() != b.GetVirtual().GetVip() {
			return fmt.Errorf("%s and %s: the services of a request share one VIP and one route: send a request for each VIP", b.GetVirtual().GetVip(), v.GetVip())
		}
		if slices.Contains(keys, v.GetKey()) {
			return fmt.Errorf("%s %s port %d is listed twice: remove one", v.GetProtocol(), v.GetVip(), v.GetVport())
		}
		keys = append(keys, v.GetKey())
	}
	if reals := Reals(b); reals > maxReals {
		return fmt.Errorf("%d real services, at most %d are possible", reals, maxReals)
	}
	return nil
}

func normalService(v *pb.VirtualService) error {
	if v.Protocol == "" {
		v.Protocol = "tcp"
	}
	if v.Protocol != "tcp" && v.Protocol != "udp" {
		return fmt.Errorf("%q is no protocol: use tcp or udp", v.Protocol)
	}
	vip, err := address(v.Vip, v.Vport)
	if err != nil {
		return fmt.Errorf("the virtual service: %w", err)
	}
	v.Vip, v.Key = vip.Addr().String(), Key(v.Protocol, vip.Addr(), vip.Port())
	for i, r := range v.RealServices {
		dip, err := address(r.GetDip(), r.GetDport())
		if err != nil {
			return fmt.Errorf("real service %d: %w", i+1, err)
		}
		if r.Weight == 0 {
			r.Weight = 1
		}
		r.Dip, r.Protocol, r.Key = dip.Addr().String(), v.Protocol, Key(v.Protocol, dip.Addr(), dip.Port())
		r.Health, r.Reserved = 0, nil
	}
	return nil
}
