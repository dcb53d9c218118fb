// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	forwarderpb "steelyard/internal/gen/forwarderpb"
)

var (
	drainSteps = flag.Int("drain-steps", 120, "orders and faults in a history of drains")
	drainSeed  = flag.Uint64("drain-seed", 16, "which ones")
)

// drainHistory sends random orders for one forwarder, to controllers and to its agent's socket, and tracks the expected state.
type drainHistory struct {
	*lab
	gates     []*gate
	f         *runningAgent
	random    *rand.Rand
	away      bool
	ownStored bool            // orders were given at the socket since all agreed
	want      map[string]bool // drained
	unheard   map[string]bool // the agent may lack a controller's order; if it is disconnected, it does
	log       []string
}

func (h *drainHistory) say(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

// order sends one order to a random place.
func (h *drainHistory) order() {
	h.Helper()
	server := []string{server, secondServer}[h.random.IntN(2)]
	drains := h.random.IntN(2) == 0
	if h.random.IntN(2) == 0 {
		if h.unheard[server] && !h.away {
			h.agree()
		}
		h.mustOrder(h.socket(), "", server, drains)
		h.say("%s=%v at its socket", server[7:9], drains)
		h.ownStored = true
		if !h.unheard[server] { // otherwise the controllers' order is newer than the agent's last one
			h.want[server] = drains
		}
		return
	}
	heard := h.mustOrder(h.controllers[h.random.IntN(len(h.controllers))].admin, "f1", server, drains)
	h.say("%s=%v by a controller (heard: %v)", server[7:9], drains, heard)
	h.want[server], h.unheard[server] = drains, true
	if heard {
		clear(h.unheard)
	}
	if h.away && heard {
		h.Error("no agent is connected, and no warning says so")
	}
}

// fault starts or ends one fault.
func (h *drainHistory) fault() {
	h.Helper()
	switch h.random.IntN(5) {
	case 0:
		if h.away {
			h.back()
			return
		}
		if len(h.unheard) > 0 {
			h.agree()
		}
		h.say("cut")
		h.away = true
		h.cut(h.gates, "f1")
	case 1:
		h.say("the agent starts again")
		h.f.stop()
		h.f.options.Token = ""
		h.start(h.f)
		h.ready()
	case 2:
		if h.ownStored { // own orders that are not stored would be lost with their host
			h.back()
			h.agree()
		}
		h.say("the host is replaced")
		h.f.stop()
		h.back()
		h.replace(h.f, "f1")
		h.ready()
		h.agree()
	case 3:
		if !h.away {
			i := h.random.IntN(len(h.gates))
			h.say("controller %d loses its agents", i)
			h.gates[i].set(true)
			h.gates[i].set(false)
		}
	case 4:
		h.back()
		h.agree()
	}
}

func (h *drainHistory) socket() user { return h.lab.own(h.f) }

// ready waits until the agent has its configuration and answers.
func (h *drainHistory) ready() {
	h.Helper()
	h.until("the agent has its configuration", func() bool {
		_, err := order(h.Context(), h.socket(), "", "10.1.0.23", false)
		return err == nil
	})
}

// back ends a cut.
func (h *drainHistory) back() {
	h.Helper()
	if !h.away {
		return
	}
	h.say("healed")
	h.away = false
	for _, g := range h.gates {
		g.set(false)
	}
}

// agree waits until the last order is in force and stored, and the agent has received all orders.
func (h *drainHistory) agree() {
	h.Helper()
	h.say("agree")
	defer func() {
		if h.Failed() {
			h.Logf("seed %d: %s", *drainSeed, strings.Join(h.log, "; "))
		}
	}()
	h.until(fmt.Sprintf("all agree on %v", h.want), func() bool {
		for _, server := range []string{server, secondServer} {
			state := map[bool]forwarderpb.ServerState{true: stateDrain, false: stateUp}[h.want[server]]
			stored, _, err := read[drainRecord](h.Context(), h.store, keyDrains+"f1/tcp/10.0.0.80:80/"+server)
			if err != nil {
				h.Fatal(err)
			}
			if h.f.Server(vip, server).GetState() != state || stored.Drain != h.want[server] {
				return false
			}
		}
		return h.mustOrder(h.controllers[0].admin, "f1", "10.1.0.23", false)
	})
	h.ownStored = false
	clear(h.unheard)
}

// Orders come from controllers and at the agent's socket, while they are cut off from each other, the agent restarts, its host is replaced and
// controllers take over. The last order is in force in the end; a controller's order that the agent had not received wins.
func TestTheLastOrderIsInForce(t *testing.T) {
	l, gates := gatedLab(t, 3)
	h := &drainHistory{lab: l, gates: gates, f: l.addForwarder("f1"), random: rand.New(rand.NewPCG(*drainSeed, 51)),
		want: map[string]bool{server: false, secondServer: false}, unheard: map[string]bool{}}
	if _, err := apply(t.Context(), l.controllers[0].admin, "f1", "", twoServers+"      - { address: 10.1.0.23, port: 8080 }\n"); err != nil {
		t.Fatal(err)
	}
	h.agree()
	for range *drainSteps {
		if h.random.IntN(4) == 0 {
			h.fault()
		} else {
			h.order()
		}
	}
	h.back()
	h.agree()
	t.Logf("seed %d: %s", *drainSeed, strings.Join(h.log, "; "))
}
