// SPDX-License-Identifier: Apache-2.0

package dpclient

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"

	pb "steelyard/internal/gen/forwarderpb"
	"steelyard/internal/model"
)

func prefixesToWire(prefixes []netip.Prefix) []*pb.Prefix {
	var wire []*pb.Prefix
	for _, prefix := range prefixes {
		wire = append(wire, &pb.Prefix{Address: prefix.Addr().AsSlice(), Length: uint32(prefix.Bits())})
	}
	return wire
}

func prefixesFromWire(wire []*pb.Prefix) ([]netip.Prefix, error) {
	var prefixes []netip.Prefix
	for _, one := range wire {
		address, err := addressFromWire(one.GetAddress())
		if err != nil {
			return nil, err
		}
		prefix := netip.PrefixFrom(address, int(one.GetLength()))
		if !prefix.IsValid() {
			return nil, fmt.Errorf("prefix length %d from the forwarder", one.GetLength())
		}
		prefixes = append(prefixes, prefix)
	}
	return prefixes, nil
}

func accessSetToWire(set model.AccessSet) *pb.AccessSet {
	wire := &pb.AccessSet{Name: set.Name, Prefixes: prefixesToWire(set.Prefixes)}
	if set.Data != nil {
		wire.Digest = set.Data.Digest[:]
	}
	return wire
}

func accessSetFromWire(wire *pb.AccessSet) (model.AccessSet, error) {
	prefixes, err := prefixesFromWire(wire.GetPrefixes())
	if err != nil {
		return model.AccessSet{}, fmt.Errorf("access set %s: %w", wire.GetName(), err)
	}
	set := model.AccessSet{Name: wire.GetName(), Prefixes: prefixes}
	if digest := wire.GetDigest(); len(digest) > 0 && !wire.GetMissing() { // a set that lost its data is empty
		set.Data = &model.SetData{}
		if copy(set.Data.Digest[:], digest) != len(digest) || len(digest) < len(set.Data.Digest) {
			return set, fmt.Errorf("access set %s: a digest of %d bytes from the forwarder", wire.GetName(), len(digest))
		}
	}
	return set, nil
}

// setPiece is the size of a piece of a set's data.
const setPiece = 1 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// PutSet gives the forwarder the data of a set, unless it has it, for the next transaction on this
// connection. After an error that is not an *Error that is Refused, the connection is closed.
func (c *Client) PutSet(ctx context.Context, data *model.SetData) error {
	request := &pb.PutSetDataRequest{Digest: data.Digest[:], Size: uint64(len(data.Bytes)), Crc32C: crc32.Checksum(data.Bytes, castagnoli)}
	for {
		response, err := c.call(ctx, &pb.Request{Body: &pb.Request_PutSetData{PutSetData: request}})
		if err != nil {
			var refusal *Error
			if !errors.As(err, &refusal) || !refusal.Refused() {
				c.conn.Close()
			}
			return err
		}
		next := response.GetPutSetData().GetNext()
		if next == request.Size {
			return nil
		}
		if next != request.Offset+uint64(len(request.Piece)) || next > request.Size {
			c.conn.Close()
			return fmt.Errorf("forwarder: it requests byte %d of a set's data after byte %d", next, request.Offset)
		}
		request.Offset, request.Piece = next, data.Bytes[next:min(next+setPiece, request.Size)]
	}
}

// AccessListToWire writes an access list.
func AccessListToWire(list model.AccessList) *pb.AccessList {
	wire := &pb.AccessList{Name: list.Name, Otherwise: pb.AccessAction(list.Otherwise)}
	if list.Existing == model.EndExisting {
		wire.Existing = pb.ExistingSessions_EXISTING_SESSIONS_END
	}
	for _, rule := range list.Rules {
		one := &pb.AccessRule{Name: rule.Name, Action: pb.AccessAction(rule.Action), Protocol: pb.Protocol(rule.Protocol), LogEvery: rule.LogEvery,
			From: prefixesToWire(rule.From), FromSets: rule.Sets}
		for _, ports := range rule.Ports {
			one.Ports = append(one.Ports, &pb.PortRange{First: uint32(ports.First), Last: uint32(ports.Last)})
		}
		wire.Rules = append(wire.Rules, one)
	}
	return wire
}

// AccessListFromWire reads an access list.
func AccessListFromWire(wire *pb.AccessList) (model.AccessList, error) {
	list := model.AccessList{Name: wire.GetName(), Otherwise: model.AccessAction(wire.GetOtherwise())}
	if wire.GetExisting() == pb.ExistingSessions_EXISTING_SESSIONS_END {
		list.Existing = model.EndExisting
	}
	for _, one := range wire.GetRules() {
		rule := model.AccessRule{Name: one.GetName(), Action: model.AccessAction(one.GetAction()), Protocol: model.Protocol(one.GetProtocol()),
			LogEvery: one.GetLogEvery(), Sets: one.GetFromSets()}
		var err error
		if rule.From, err = prefixesFromWire(one.GetFrom()); err != nil {
			return list, fmt.Errorf("access list %s: %w", list.Name, err)
		}
		for _, ports := range one.GetPorts() {
			first, err := portFromWire(ports.GetFirst())
			if err != nil {
				return list, fmt.Errorf("access list %s: %w", list.Name, err)
			}
			last, err := portFromWire(ports.GetLast())
			if err != nil {
				return list, fmt.Errorf("access list %s: %w", list.Name, err)
			}
			rule.Ports = append(rule.Ports, model.PortRange{First: first, Last: last})
		}
		list.Rules = append(list.Rules, rule)
	}
	return list, nil
}

// Access returns all access lists with their counts of matches, and all sets.
func (c *Client) Access(ctx context.Context) (*pb.AccessLists, error) {
	response, err := c.call(ctx, &pb.Request{Body: &pb.Request_ListAccess{ListAccess: &pb.ListAccessRequest{}}})
	return response.GetListAccess(), err
}
