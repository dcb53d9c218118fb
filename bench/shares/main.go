// SPDX-License-Identifier: Apache-2.0

// Shares simulates what shares of new sessions do, in virtual time, around the real computation (internal/share, internal/feedback):
//
//	go run ./bench/shares paper   the HVLB paper's experiment at its own scale: 600 Mbit/s, 2.2 ms, 60 flows
//	go run ./bench/shares scale   100 forwarders, 1000 servers, 10 000 services: time to converge, processor time, bytes
package main

import (
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	quick := flag.Bool("quick", false, "less of each")
	flag.Parse()
	if err := do(flag.Arg(0), *quick); err != nil {
		fmt.Fprintln(os.Stderr, "shares:", err)
		os.Exit(1)
	}
}

func do(what string, quick bool) error {
	switch what {
	case "paper":
		return paper(quick)
	case "scale":
		if quick {
			return scale(100, 1000, 1000, 10, 300)
		}
		return scale(100, 10_000, 1000, 10, 300)
	}
	return fmt.Errorf("say paper or scale")
}

// The load that the paper does not say: what a flow sends, and what of a server's processor that takes.
var scenarios = []scenario{
	{"half of the links, 60 % of the processors", 25e6, 0.6},
	{"half of the links, 40 % of the processors", 25e6, 0.4},
	{"47 Mbit/s a flow (94 % of the links), 60 % of the processors", 47e6, 0.6},
}

var policies = []string{"rr", "maglev", "capability", "p2c", "capability, p2c", "capability, p2c x delay", "capability, wlc", learning}

func paper(quick bool) error {
	seeds := uint64(3)
	some := scenarios
	if quick {
		seeds, some = 1, scenarios[:1]
	}
	for _, s := range some {
		fmt.Printf("%s\n%24s %26s %26s   throughput, RTT against rr | maglev; shares of the five hosts\n", s.name, "", "steady: Mbit/s, mean RTT", "disturbed: Mbit/s, mean RTT")
		var base [2]result
		for p, policy := range policies {
			var steady, disturbed result
			for seed := range seeds {
				a, b := simulate(policy, s, seed, usual)
				steady.add(a, seeds)
				disturbed.add(b, seeds)
			}
			if p < 2 {
				base[p] = disturbed
			}
			fmt.Printf("%24s %14.0f %8.2f ms %14.0f %8.2f ms ", policy, steady.throughput, steady.mean.Seconds()*1e3, disturbed.throughput, disturbed.mean.Seconds()*1e3)
			for _, b := range base {
				if b.throughput > 0 {
					fmt.Printf(" %+5.1f %% %+5.1f %% |", 100*(disturbed.throughput/b.throughput-1), 100*(disturbed.mean.Seconds()/b.mean.Seconds()-1))
				}
			}
			if len(disturbed.share) > 0 && disturbed.share[0] > 0 {
				fmt.Printf(" %.2f", disturbed.share)
			}
			fmt.Println()
		}
	}
	return nil
}

// add adds one of n runs to their mean.
func (r *result) add(one result, n uint64) {
	r.throughput += one.throughput / float64(n)
	r.mean += time.Duration(float64(one.mean) / float64(n))
	for i := range r.share {
		r.share[i] += one.share[i] / float64(n)
	}
}
