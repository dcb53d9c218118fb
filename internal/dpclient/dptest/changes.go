// SPDX-License-Identifier: Apache-2.0

package dptest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	pb "steelyard/internal/gen/forwarderpb"

	"google.golang.org/protobuf/proto"
)

func keyOf(key *pb.ServiceKey) string {
	return fmt.Sprintf("%x %05d-%05d %d", key.GetVip(), key.GetPort(), key.GetLastPort(), key.GetProtocol())
}

// do applies one change, or returns why it is not possible.
func (c *config) do(change *pb.Change) error {
	switch kind := change.GetKind().(type) {
	case *pb.Change_PutService:
		return c.putService(kind.PutService)
	case *pb.Change_DeleteService:
		return c.deleteService(kind.DeleteService)
	case *pb.Change_PutServer:
		return c.putServer(kind.PutServer)
	case *pb.Change_DeleteServer:
		return c.deleteServer(kind.DeleteServer)
	case *pb.Change_PutLocalAddress:
		return c.putLocal(kind.PutLocalAddress)
	case *pb.Change_DeleteLocalAddress:
		return c.deleteLocal(string(kind.DeleteLocalAddress.GetAddress()))
	case *pb.Change_PutSnat:
		return c.putSNAT(kind.PutSnat)
	case *pb.Change_DeleteSnat:
		if c.snat[kind.DeleteSnat] == nil {
			return errors.New("no such rule of snat to delete")
		}
		delete(c.snat, kind.DeleteSnat)
		return nil
	case *pb.Change_PutAccessList:
		if kind.PutAccessList.GetName() == "" || kind.PutAccessList.GetOtherwise() == pb.AccessAction_ACCESS_ACTION_UNSPECIFIED {
			return errors.New("an access list without a name, or without otherwise")
		}
		for _, rule := range kind.PutAccessList.GetRules() {
			for _, set := range rule.GetFromSets() {
				if c.sets[set] == nil {
					return errors.New("a rule names an access set that does not exist")
				}
			}
		}
		c.access[kind.PutAccessList.GetName()] = proto.CloneOf(kind.PutAccessList)
		return nil
	case *pb.Change_DeleteAccessList:
		if c.access[kind.DeleteAccessList] == nil || c.global == kind.DeleteAccessList {
			return errors.New("no such access list to delete, or it is in use")
		}
		delete(c.access, kind.DeleteAccessList)
		return nil
	case *pb.Change_PutAccessSet:
		if kind.PutAccessSet.GetName() == "" {
			return errors.New("an access set without a name")
		}
		c.sets[kind.PutAccessSet.GetName()] = proto.CloneOf(kind.PutAccessSet)
		return nil
	case *pb.Change_DeleteAccessSet:
		if c.sets[kind.DeleteAccessSet] == nil {
			return errors.New("no such access set to delete")
		}
		delete(c.sets, kind.DeleteAccessSet)
		return nil
	case *pb.Change_PutGlobalAccess:
		if kind.PutGlobalAccess != "" && c.access[kind.PutGlobalAccess] == nil {
			return errors.New("no such access list")
		}
		c.global = kind.PutGlobalAccess
		return nil
	case *pb.Change_PutShaping:
		return c.putShaping(kind.PutShaping)
	case *pb.Change_DeleteShaping:
		if c.shaping[kind.DeleteShaping] == nil {
			return errors.New("no such shaping to delete")
		}
		delete(c.shaping, kind.DeleteShaping)
	case *pb.Change_PutLimit:
		return c.putLimit(kind.PutLimit)
	case *pb.Change_DeleteLimit:
		if c.limits[kind.DeleteLimit] == nil {
			return errors.New("no such limit to delete")
		}
		delete(c.limits, kind.DeleteLimit)
		return nil
	}
	return errors.New("unknown change")
}

// setStats returns the forwarder's listing of a set.
func (c *config) setStats(name string) *pb.AccessSetStats {
	stats := &pb.AccessSetStats{Name: name}
	for _, prefix := range c.sets[name].GetPrefixes() {
		if len(prefix.GetAddress()) == 4 {
			stats.Prefixes4++
		} else {
			stats.Prefixes6++
		}
	}
	for _, list := range slices.Sorted(maps.Keys(c.access)) {
		if slices.ContainsFunc(c.access[list].GetRules(), func(r *pb.AccessRule) bool { return slices.Contains(r.GetFromSets(), name) }) {
			stats.Lists = append(stats.Lists, list)
		}
	}
	return stats
}

func (c *config) putSNAT(rule *pb.Snat) error {
	if rule.GetName() == "" || len(rule.GetName()) > 63 {
		return errors.New("a rule of snat without a name")
	}
	for _, address := range rule.GetPool() {
		if c.vips[string(address)] > 0 || c.servers[string(address)] > 0 || c.locals[string(address)] != nil {
			return errors.New("a pool address that has another role")
		}
	}
	c.snat[rule.GetName()] = proto.CloneOf(rule)
	return nil
}

func (c *config) putService(service *pb.Service) error {
	key := service.GetKey()
	if c.servers[string(key.GetVip())] > 0 || c.locals[string(key.GetVip())] != nil {
		return errors.New("a VIP that has another role")
	}
	if key.GetPort() > 65535 || key.GetLastPort() > 65535 || len(service.GetName()) > 63 {
		return errors.New("a service's field is out of range")
	}
	if list := service.GetAccessList(); list != "" && c.access[list] == nil {
		return errors.New("a service names an access list that does not exist")
	}
	if service.GetMode() == pb.Mode_MODE_UNSPECIFIED || service.GetScheduler() == pb.Scheduler_SCHEDULER_UNSPECIFIED {
		return errors.New("a service without mode or scheduler")
	}
	if service.GetClientAddress() != 0 && (key.GetProtocol() != pb.Protocol_PROTOCOL_TCP || service.GetMode() != pb.Mode_MODE_FNAT) {
		return errors.New("a client address that the mode cannot pass on")
	}
	entry := c.services[keyOf(key)]
	if entry != nil && len(entry.Servers) > 0 && entry.Service.GetMode() != service.GetMode() {
		return errors.New("a service with servers that changes its mode")
	}
	if entry == nil {
		entry = &pb.Config_Entry{}
		c.services[keyOf(key)] = entry
		c.vips[string(key.GetVip())]++
	}
	entry.Service = proto.CloneOf(service)
	return nil
}

func (c *config) deleteService(key *pb.ServiceKey) error {
	entry := c.services[keyOf(key)]
	if entry == nil {
		return errors.New("no such service to delete")
	}
	for _, server := range entry.Servers {
		c.servers[string(server.GetAddress())]--
	}
	c.vips[string(key.GetVip())]--
	delete(c.services, keyOf(key))
	return nil
}

func (c *config) putServer(of *pb.Change_ServerOf) error {
	entry, server := c.services[keyOf(of.GetService())], of.GetServer()
	if entry == nil {
		return errors.New("a server of no service")
	}
	mode := entry.Service.GetMode()
	if !needsLocal(mode) && len(server.GetAddress()) != len(of.GetService().GetVip()) {
		return errors.New("a server of another family than its VIP")
	}
	if c.vips[string(server.GetAddress())] > 0 || c.locals[string(server.GetAddress())] != nil {
		return errors.New("a server that has another role")
	}
	key := of.GetService()
	many := key.GetPort() == 0 || key.GetLastPort() != 0
	if server.GetPort() == 0 && !many || server.GetPort() > 65535 || server.GetWeight() > 65535 ||
		server.GetState() == pb.ServerState_SERVER_STATE_UNSPECIFIED {
		return errors.New("a server's field is out of range")
	}
	if (mode == pb.Mode_MODE_DR || mode == pb.Mode_MODE_IPIP) && !(many && server.GetPort() == 0) && server.GetPort() != key.GetPort() {
		return errors.New("a server on another port, and none is changed")
	}
	if mark := server.GetCheckMark(); mark != 0 && (mode != pb.Mode_MODE_DR && mode != pb.Mode_MODE_IPIP || mark>>24 != 0x53) {
		return errors.New("a check mark out of range, or where servers have no VIP")
	}
	if needsLocal(mode) && !c.hasLocal(len(server.GetAddress())) {
		return errors.New("no local address of the server's family")
	}
	if i := indexOf(entry, server); i >= 0 {
		entry.Servers[i] = proto.CloneOf(server)
	} else {
		entry.Servers = append(entry.Servers, proto.CloneOf(server))
		c.servers[string(server.GetAddress())]++
	}
	return nil
}

func (c *config) deleteServer(of *pb.Change_ServerOf) error {
	entry := c.services[keyOf(of.GetService())]
	if entry == nil || indexOf(entry, of.GetServer()) < 0 {
		return errors.New("no such server to delete")
	}
	i := indexOf(entry, of.GetServer())
	entry.Servers = slices.Delete(entry.Servers, i, i+1)
	c.servers[string(of.GetServer().GetAddress())]--
	return nil
}

func (c *config) putLocal(local *pb.LocalAddress) error {
	address := string(local.GetAddress())
	if c.vips[address] > 0 || c.servers[address] > 0 {
		return errors.New("a local address that has another role")
	}
	c.locals[address] = proto.CloneOf(local)
	return c.checkLocals(len(address))
}

func (c *config) deleteLocal(address string) error {
	if c.locals[address] == nil {
		return errors.New("no such local address to delete")
	}
	delete(c.locals, address)
	return c.checkLocals(len(address))
}

// checkLocals fails if servers of a family need a local address and there is none of this forwarder's own.
func (c *config) checkLocals(length int) error {
	if c.hasLocal(length) {
		return nil
	}
	for _, entry := range c.services {
		if needsLocal(entry.Service.GetMode()) && slices.ContainsFunc(entry.Servers, func(s *pb.Server) bool { return len(s.GetAddress()) == length }) {
			return errors.New("the last local address of a family in use")
		}
	}
	return nil
}

func indexOf(entry *pb.Config_Entry, server *pb.Server) int {
	return slices.IndexFunc(entry.Servers, func(s *pb.Server) bool {
		return bytes.Equal(s.GetAddress(), server.GetAddress()) && s.GetPort() == server.GetPort()
	})
}

func needsLocal(mode pb.Mode) bool {
	return mode == pb.Mode_MODE_FNAT || mode == pb.Mode_MODE_IPIP
}

func (c *config) hasLocal(length int) bool {
	for address, local := range c.locals {
		if len(address) == length && !local.GetOfPeer() {
			return true
		}
	}
	return false
}
