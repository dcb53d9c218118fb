// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"slices"
	"time"

	"steelyard/internal/model"

	"go.yaml.in/yaml/v4"
)

// Announcement of addresses to routers.

type rawRoutes struct {
	at            position
	path          string
	announce      []value[model.RouteKind]
	announceSet   bool
	withdrawAfter value[time.Duration]
	kernel        rawKernelRoutes
	bgp           rawBGP
}

type rawKernelRoutes struct {
	at     position
	table  value[int]
	metric value[int]
}

const (
	defaultRouteTable    = 202
	maxRouteTable        = 252 // the tables default, main and local follow
	defaultRouteMetric   = 100
	defaultWithdrawAfter = 500 * time.Millisecond
	maxRouteMetric       = 1 << 30 // addresses of other nodes have a higher one
)

var kernelRoutesFields = []field[rawKernelRoutes]{
	scalar(fieldDoc{name: "table", kind: "number, 1 to 252", def: fmt.Sprint(defaultRouteTable),
		doc: "The routing table. This host must not look it up by a rule, and no other program may use it."},
		func(k *rawKernelRoutes) *value[int] { return &k.table }, parseNumber(1, maxRouteTable)),
	scalar(fieldDoc{name: "metric", kind: fmt.Sprintf("number, 1 to %d", maxRouteMetric), def: fmt.Sprint(defaultRouteMetric),
		doc: "Their metric, which the filters for the routing daemon make the MED."},
		func(k *rawKernelRoutes) *value[int] { return &k.metric }, parseNumber(1, maxRouteMetric)),
}

var kernelRoutesObject = docsOf("kernel", "Routes of this host with protocol number 202, of type `blackhole`, for BIRD to learn.", kernelRoutesFields)

var routesFields = []field[rawRoutes]{
	{fieldDoc{name: "announce", kind: "list of vips, local_addresses and snat_pools", def: "all of them",
		doc: "Which addresses are announced: a VIP while one of its services has a healthy server, local and pool addresses while this host serves. Those in `peer_local_addresses` have a metric and a MED that is worse by 1000."},
		func(d *decoder, n *yaml.Node, path string, into *rawRoutes) {
			into.announceSet = true
			readList(d, n, path, func(n *yaml.Node, path string) {
				into.announce = append(into.announce, readScalar(d, n, path, parseWord(model.RouteKinds...)))
			})
		}},
	scalar(fieldDoc{name: "withdraw_after", kind: "duration, 0s to 10s", def: defaultWithdrawAfter.String(),
		doc: "How long the forwarder may not answer until all routes are withdrawn. With the default, a restart after a crash moves no flows. All other faults withdraw at once."},
		func(r *rawRoutes) *value[time.Duration] { return &r.withdrawAfter }, parseDuration(0, 10*time.Second)),
	{fieldDoc{name: "kernel", kind: "mapping", object: kernelRoutesObject,
		doc: "Kernel routes for a routing daemon of this host. The agent needs CAP_NET_ADMIN (`agent-routes.conf`)."},
		func(d *decoder, n *yaml.Node, path string, into *rawRoutes) {
			into.kernel.at = positionOf(n)
			readObject(d, n, path, kernelRoutesFields, &into.kernel)
		}},
	{fieldDoc{name: "bgp", kind: "mapping", object: bgpObject, doc: "BGP sessions of the agent, for hosts without a routing daemon."},
		func(d *decoder, n *yaml.Node, path string, into *rawRoutes) {
			into.bgp.at, into.bgp.path = positionOf(n), path
			readObject(d, n, path, bgpFields, &into.bgp)
		}},
}

var routesObject = docsOf("routes", "Announces VIPs, local and pool addresses to routers while this host can serve them: see docs/routes.md.", routesFields)

var routesField = field[rawFile]{fieldDoc{name: "routes", kind: "mapping", object: routesObject,
	doc: "Announcement of addresses to routers. Without this section the agent announces none."},
	func(d *decoder, n *yaml.Node, path string, into *rawFile) {
		into.routes.at, into.routes.path = positionOf(n), path
		readObject(d, n, path, routesFields, &into.routes)
	}}

func (b *builder) routes() model.Routes {
	raw := &b.raw.routes
	if raw.at == (position{}) {
		return model.Routes{}
	}
	routes := model.Routes{WithdrawAfter: raw.withdrawAfter.or(defaultWithdrawAfter)}
	for _, kind := range raw.announce {
		if slices.Contains(routes.Announce, kind.v) && kind.set {
			b.fail(kind.at, kind.path, "%s is in this list already: remove one", kind.v)
		}
		routes.Announce = append(routes.Announce, kind.v)
	}
	switch {
	case !raw.announceSet:
		routes.Announce = model.RouteKinds
	case len(raw.announce) == 0:
		b.fail(raw.at, raw.path, "nothing is announced: add vips, local_addresses or snat_pools to `announce`, or remove `routes`")
	}
	if raw.kernel.at != (position{}) {
		routes.Kernel = model.KernelRoutes{Table: uint32(raw.kernel.table.or(defaultRouteTable)), Metric: uint32(raw.kernel.metric.or(defaultRouteMetric))}
	} else if raw.bgp.at == (position{}) {
		b.fail(raw.at, raw.path, "no routes can be announced: add `kernel: {}` for a routing daemon of this host, or `bgp`")
	}
	routes.BGP = b.bgp()
	return routes
}
