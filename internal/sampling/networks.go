// SPDX-License-Identifier: Apache-2.0

package sampling

import (
	"cmp"
	"container/heap"
	"net/netip"
	"slices"
)

const (
	maxNetworks  = 1024
	shownSources = 10
	minSamples   = 20 // minimum for a result
	minSeen      = 3  // by a network that is named
)

// Source is a source network of an attack.
type Source struct {
	Network netip.Prefix
	Percent float64 // of the attack's samples, at least
}

// Sources describes the sources of an attack.
type Sources struct {
	Networks []Source // the most frequent ones, each with 1 % or more
	Clients  bool     // others that have are clients with validated sessions, which are not named
	Spoofed  bool     // none has, and most samples are of new networks: forged addresses, or very many
	Many     bool     // none has, although networks recur
	Samples  uint64
}

// counter estimates the packets of a network from samples: at most count, and at least count - excess.
type counter struct {
	network       netip.Prefix
	count, excess uint64
	samples       uint64 // since the network has the counter
	at            int    // in the heap
}

// networks counts the packets of networks, for which samples stand, in bounded memory, by the space-saving algorithm (Metwally,
// Agrawal, El Abbadi 2005): one that has no counter takes over the smallest, whose count becomes its error.
type networks struct {
	samples      uint64
	total, fresh uint64 // packets that the samples represent; those of networks without a counter
	of           map[netip.Prefix]*counter
	minimum      []*counter // a heap, the smallest first
}

func newNetworks() *networks {
	return &networks{of: map[netip.Prefix]*counter{}}
}

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (n *networks) Len() int           { return len(n.minimum) }
func (n *networks) Less(i, j int) bool { return n.minimum[i].count < n.minimum[j].count }
func (n *networks) Swap(i, j int) {
	n.minimum[i], n.minimum[j] = n.minimum[j], n.minimum[i]
	n.minimum[i].at, n.minimum[j].at = i, j
}
func (n *networks) Push(x any) {
	c := x.(*counter)
	c.at = len(n.minimum)
	n.minimum = append(n.minimum, c)
}
func (n *networks) Pop() any {
	last := n.minimum[len(n.minimum)-1]
	n.minimum = n.minimum[:len(n.minimum)-1]
	return last
}

// networkOf is the network that an address is counted under: /24, and /48 of IPv6.
func networkOf(address netip.Addr) netip.Prefix {
	bits := 24
	if address.Is6() {
		bits = 48
	}
	network, _ := address.Prefix(bits)
	return network
}

// add counts a sample that stands for so many packets: the rate of samples follows that of the attack, so they differ.
func (n *networks) add(address netip.Addr, packets uint64) {
	network := networkOf(address)
	n.samples++
	n.total += packets
	if c := n.of[network]; c != nil {
		c.count += packets
		c.samples++
		heap.Fix(n, c.at)
		return
	}
	n.fresh += packets
	if len(n.minimum) < maxNetworks {
		c := &counter{network: network, count: packets, samples: 1}
		n.of[network] = c
		heap.Push(n, c)
		return
	}
	c := n.minimum[0]
	delete(n.of, c.network)
	c.network, c.excess, c.samples = network, c.count, 1
	c.count += packets
	n.of[network] = c
	heap.Fix(n, 0)
}

// frequent returns the networks that have 1 % or more of the packets, the most frequent first.
func (n *networks) frequent() []Source {
	var list []Source
	if n.samples < minSamples {
		return nil
	}
	for _, c := range n.minimum {
		if seen := c.count - c.excess; c.samples >= minSeen && 100*seen >= n.total {
			list = append(list, Source{c.network, 100 * float64(seen) / float64(n.total)})
		}
	}
	slices.SortFunc(list, func(a, b Source) int {
		return cmp.Or(cmp.Compare(b.Percent, a.Percent), a.Network.Addr().Compare(b.Network.Addr()))
	})
	return list
}

// sources evaluates the samples. has returns the state of a network's validated sessions.
func (n *networks) sources(has func(netip.Prefix) validity) Sources {
	s := Sources{Samples: n.samples}
	if n.samples < minSamples {
		return s
	}
	frequent := n.frequent()
	for _, source := range frequent {
		switch has(source.Network) {
		case validated:
			s.Clients = true
		case unvalidated:
			if len(s.Networks) < shownSources {
				s.Networks = append(s.Networks, source)
			}
		}
	}
	if len(frequent) == 0 {
		s.Spoofed = 2*n.fresh > n.total
		s.Many = !s.Spoofed
	}
	return s
}
