// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"steelyard/internal/cluster"
	"steelyard/internal/config"
	pb "steelyard/internal/gen/nfvpb"
	"steelyard/internal/model"
	"steelyard/internal/nfv"

	"connectrpc.com/connect"
)

// maxSharers bounds the requests of a VIP.
const maxSharers = 64

// holder is the record of a VIP: its requests, all of one project. The first one is in the fields that older versions read.
type holder struct {
	Project string `json:"project"`
	heldBy
	More []heldBy `json:"more,omitempty"`
}

// heldBy is a request of a VIP, and its services.
type heldBy struct {
	Request  string   `json:"request"`
	Servers  uint32   `json:"servers,omitempty"`
	Services uint32   `json:"services,omitempty"` // 0: one
	Ports    []string `json:"ports,omitempty"`    // "tcp/80", in the order of the request's services; none: an older version wrote it
}

func usageOf(wanted *pb.Balancing) usage {
	return usage{Services: uint32(len(nfv.Services(wanted))), Servers: uint32(nfv.Reals(wanted))}
}

func portText(protocol string, port uint32) string { return protocol + "/" + strconv.Itoa(int(port)) }

func portsOf(wanted *pb.Balancing) []string {
	var ports []string
	for _, v := range nfv.Services(wanted) {
		ports = append(ports, portText(v.GetProtocol(), v.GetVport()))
	}
	return ports
}

func heldByOf(wanted *pb.Balancing) heldBy {
	own := usageOf(wanted)
	return heldBy{wanted.GetId(), own.Servers, own.Services, portsOf(wanted)}
}

// all returns all requests of the VIP.
func (h *holder) all() []heldBy { return append([]heldBy{h.heldBy}, h.More...) }

// usage sums up the services and servers of all requests of the VIP.
func (h *holder) usage() usage {
	var sum usage
	for _, one := range h.all() {
		sum.Services += max(one.Services, 1)
		sum.Servers += one.Servers
	}
	return sum
}

// serviceOf returns the request that has a service, and the service's name; empty if there is none.
func (h *holder) serviceOf(key model.ServiceKey) (request, name string) {
	port := portText(key.Protocol.String(), uint32(key.Port))
	for _, one := range h.all() {
		switch n := slices.Index(one.Ports, port); {
		case n == 0 || len(one.Ports) == 0: // a request of an older version has the whole VIP
			return one.Request, h.Project + "." + one.Request
		case n > 0:
			protocol, number, _ := strings.Cut(port, "/")
			return one.Request, h.Project + "." + one.Request + "." + protocol + "-" + number
		}
	}
	return "", ""
}

// claimVIP adds a new request to those of its VIP. Requests of one project may have different ports of a VIP.
func (w workflowService) claimVIP(ctx context.Context, txn *cluster.Txn, wanted *pb.Balancing) error {
	vip, own := wanted.GetVirtual().GetVip(), heldByOf(wanted)
	has, held, err := read[holder](ctx, w.server.store, keyVIPs+vip)
	if err != nil {
		return err
	}
	txn.Unchanged(held)
	if held.Revision == 0 {
		txn.Put(held.Key, encode(holder{Project: wanted.GetProject(), heldBy: own}), 0)
		forgetMoving(txn, vip, nil) // a controller of an older version leaves its orders in the store
		return nil
	}
	if has.Project != wanted.GetProject() {
		owner := "another project"
		if from(ctx).admin() {
			owner = fmt.Sprintf("the request %s of the project %s", has.Request, has.Project)
		}
		return connect.NewError(connect.CodeAlreadyExists, fmt.Errorf("the VIP %s belongs to %s: a VIP belongs to one project, with all its ports: use another address", vip, owner))
	}
	if err := w.joinVIP(ctx, &has, wanted); err != nil {
		return err
	}
	has.More = append(has.More, own)
	txn.Put(held.Key, encode(has), 0)
	forgetMoving(txn, vip, own.Ports)
	return nil
}

// claimAddresses checks the addresses that a request claims, and makes its transaction fail if a file claims addresses meanwhile. Requests for
// different VIPs do not conflict.
func (w workflowService) claimAddresses(ctx context.Context, txn *cluster.Txn, wanted *pb.Balancing, record project) error {
	text, err := nfv.Text([]*pb.Balancing{wanted})
	if err != nil {
		return invalid(err)
	}
	beside, err := w.server.claimedBeside(ctx, wanted.GetProject())
	if err != nil {
		return err
	}
	fresh := usesOf(config.Addresses(text), func(*model.Service) bool { return true })
	check := claimCheck{claimed: beside, project: wanted.GetProject(), record: record, operator: !from(ctx).admin()}
	txn.Unchanged(beside.entry)
	return check.all(fresh)
}

// joinVIP checks a request against the project's other requests for the VIP.
func (w workflowService) joinVIP(ctx context.Context, has *holder, wanted *pb.Balancing) error {
	vip := wanted.GetVirtual().GetVip()
	if len(has.More)+1 >= maxSharers {
		return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("%s has %d requests, the maximum: request several ports in one request (--vip several times)",
			vip, maxSharers))
	}
	for _, one := range has.all() {
		_, other, _, err := w.find(ctx, one.Request)
		if err != nil {
			return err
		}
		for _, port := range portsOf(other) {
			if slices.Contains(portsOf(wanted), port) {
				return connect.NewError(connect.CodeAlreadyExists, fmt.Errorf("the request %s has %s port %s already: use another port, or delete that request first "+
					"(`steelyard nfv delete %s`)", one.Request, vip, port, one.Request))
			}
		}
		if other.GetGroup() != wanted.GetGroup() {
			return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("the request %s has %s in %s: requests for one VIP have one forwarder, and so one group: name the same group",
				one.Request, vip, groupText(other.GetGroup())))
		}
	}
	if first := &has.heldBy; len(first.Ports) == 0 { // of an older version
		_, other, _, err := w.find(ctx, first.Request)
		if err != nil {
			return err
		}
		first.Ports = portsOf(other)
	}
	return nil
}

func groupText(group string) string {
	if group == "" {
		return "no group"
	}
	return "the group " + group
}

// release adds to a transaction the removal of a request's claims, and of the orders to drain its servers.
func (s *Server) release(ctx context.Context, txn *cluster.Txn, wanted *pb.Balancing) error {
	vip := wanted.GetVirtual().GetVip()
	has, held, err := read[holder](ctx, s.store, keyVIPs+vip)
	if err != nil {
		return err
	}
	rest := slices.DeleteFunc(has.all(), func(one heldBy) bool { return one.Request == wanted.GetId() })
	txn.Unchanged(held)
	switch {
	case held.Revision == 0: // a controller of an older version has removed it with another request
		forgetMoving(txn, vip, portsOf(wanted))
	case len(rest) == 0:
		forgetMoving(txn.Delete(held.Key), vip, nil)
	default:
		txn.Put(held.Key, encode(holder{Project: has.Project, heldBy: rest[0], More: rest[1:]}), 0)
		forgetMoving(txn, vip, portsOf(wanted))
	}
	return nil
}

// forgetMoving adds to a transaction the removal of orders to drain servers of requests, for some ports of a VIP; nil: for all ports.
func forgetMoving(txn *cluster.Txn, vip string, ports []string) {
	if ports == nil {
		txn.DeleteAll(keyMoving + vip + "/")
	}
	for _, one := range ports {
		protocol, port, _ := strings.Cut(one, "/")
		txn.DeleteAll(keyMoving + vip + "/" + protocol + "/" + net.JoinHostPort(vip, port) + "/")
	}
	txn.Put(keyForgotten+AllForwarders, nil, 0)
}

// requestsOf sums up the services and servers of a project's open requests, from the records of VIPs.
func requestsOf(project string, held []cluster.Entry) (usage, error) {
	var open usage
	for _, entry := range held {
		var has holder
		if err := decodeRecord(entry, &has); err != nil {
			return usage{}, err
		}
		if has.Project == project {
			own := has.usage()
			open.Services += own.Services
			open.Servers += own.Servers
		}
	}
	return open, nil
}
