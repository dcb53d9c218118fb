// SPDX-License-Identifier: Apache-2.0

package dpclient_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"steelyard/internal/dpclient"
	"steelyard/internal/dpclient/dptest"
	pb "steelyard/internal/gen/forwarderpb"
	"steelyard/internal/model"

	"google.golang.org/protobuf/proto"
)

func dial(t *testing.T, f *dptest.Forwarder) *dpclient.Client {
	t.Helper()
	client, err := dpclient.Dial(t.Context(), f.Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// manyServices returns a table of n services with two servers each, of both families and protocols.
func manyServices(n int) *model.Table {
	table := model.NewTable()
	for _, local := range []string{"10.1.0.10", "fd00:1::10"} {
		table.LocalAddresses[netip.MustParseAddr(local)] = model.LocalSpec{}
	}
	table.LocalAddresses[netip.MustParseAddr("10.1.0.11")] = model.LocalSpec{OfPeer: true}
	for i := range n {
		key := model.ServiceKey{Protocol: model.TCP, VIP: netip.AddrFrom4([4]byte{10, 2, byte(i >> 8), byte(i)}), Port: 80}
		server := netip.AddrFrom4([4]byte{10, 3, byte(i >> 8), byte(i)})
		if i%2 == 1 {
			key.Protocol = model.UDP
			key.VIP = netip.AddrFrom16([16]byte{0: 0xfd, 14: byte(i >> 8), 15: byte(i)})
			server = netip.AddrFrom16([16]byte{0: 0xfd, 1: 1, 14: byte(i >> 8), 15: byte(i)})
		}
		first := netip.AddrPortFrom(server, 8080)
		switch i % 5 {
		case 3:
			key.LastPort, first = 99, netip.AddrPortFrom(server, 0)
		case 4:
			key.Port = 0
		}
		table.Services[key] = &model.TableService{
			Spec: model.ServiceSpec{
				Name: fmt.Sprintf("s%d", i), Mode: model.FNAT, Policy: model.Policy{Scheduler: model.Maglev, HashOn: model.HashTuple, SlowStart: 3, OnePacket: true, SloppyTCP: i%2 == 0, Unavailable: model.WhenUnavailable(i % 3), Sync: model.Sync{From: model.SyncFrom(i % 3), OlderThan: uint32(i % 4)},
					MaxSessions: 9, Clients: model.ClientLimits{NewPerSecond: 7, Burst: 8, Sessions: 9}, Resets: model.Resets{Expired: i%3 == 0, Down: i%3 == 1, Unknown: i%2 == 0}, Persistence: model.Persistence{Timeout: 60, Prefix4: 24, Prefix6: 64}}, Timeouts: model.DefaultTimeouts,
			},
			Servers: map[netip.AddrPort]model.ServerSpec{
				first:                            {Weight: 3, State: model.Up, Backup: true, MaxSessions: 4},
				netip.AddrPortFrom(server, 8081): {Weight: 0, State: model.Down},
			},
		}
		if key.Protocol == model.TCP {
			table.Services[key].Spec.Policy.ClientAddress = model.ProxyV2
			table.Services[key].Spec.Policy.Mark = model.Mark{Set: true, DSCP: 46}
		}
	}
	return table
}

func TestLargeTableGoesThereAndBack(t *testing.T) {
	f := dptest.New(t)
	f.Page = 300
	client := dial(t, f)
	want := manyServices(1000)
	changes := model.Diff(model.NewTable(), want)
	revision, err := client.Apply(t.Context(), changes)
	if err != nil || revision != 1 {
		t.Fatalf("revision %d, %v", revision, err)
	}
	requests, largest := f.Applies()
	if requests != (len(changes)+999)/1000 || largest > 1000 {
		t.Errorf("%d changes in %d requests of at most %d", len(changes), requests, largest)
	}
	if commits := f.Commits(); len(commits) != 1 || len(commits[0]) != len(changes) {
		t.Errorf("%d transactions", len(commits))
	}
	got, revision, err := client.ReadTable(t.Context())
	if err != nil || revision != 1 || !reflect.DeepEqual(got, want) {
		t.Errorf("revision %d, %v; tables are equal: %v", revision, err, reflect.DeepEqual(got, want))
	}
	seen := 0
	err = client.EachService(t.Context(), nil, func(*pb.ServiceStats) error { seen++; return nil })
	if err != nil || seen != 1000 {
		t.Errorf("%d services listed, %v", seen, err)
	}
}

func TestMissingTimeoutsAreTheDefaults(t *testing.T) {
	f := dptest.New(t)
	client := dial(t, f)
	table := manyServices(1)
	for _, service := range table.Services {
		service.Spec.Timeouts = model.Timeouts{model.Established: 7}
	}
	if _, err := client.Apply(t.Context(), model.Diff(model.NewTable(), table)); err != nil {
		t.Fatal(err)
	}
	got, _, err := client.ReadTable(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := model.DefaultTimeouts
	want[model.Established] = 7
	for _, service := range got.Services {
		if service.Spec.Timeouts != want {
			t.Errorf("got %v, want %v", service.Spec.Timeouts, want)
		}
	}
}

func TestRefusalChangesNothing(t *testing.T) {
	f := dptest.New(t)
	client := dial(t, f)
	changes := model.Diff(model.NewTable(), manyServices(1))
	orphan := changes[len(changes)-1]
	orphan.Service.Port = 9
	_, err := client.Apply(t.Context(), append(changes, orphan))
	var refusal *dpclient.Error
	if !errors.As(err, &refusal) || refusal.Code != pb.Code_CODE_INVALID || int(refusal.Change) != len(changes) {
		t.Fatalf("%v", err)
	}
	got, revision, err := client.ReadTable(t.Context()) // the connection continues
	if err != nil || revision != 0 || len(got.Services) != 0 {
		t.Errorf("revision %d, %v, %v", revision, got, err)
	}
	if _, err := client.Apply(t.Context(), changes); err != nil || len(f.Commits()[0]) != len(changes) {
		t.Errorf("what was staged before is still there: %v", err)
	}
}

func TestSessionsArePagedFilteredAndLimited(t *testing.T) {
	f := dptest.New(t)
	f.Page = 7
	for i := range 40 {
		f.Sessions = append(f.Sessions, &pb.Session{
			Protocol: pb.Protocol_PROTOCOL_TCP, Client: []byte{192, 0, 2, byte(i % 2)}, ClientPort: uint32(i + 1),
			Vip: []byte{10, 0, 0, 80}, Vport: uint32(80 + i%4),
		})
	}
	client := dial(t, f)
	key := model.ServiceKey{Protocol: model.TCP, VIP: netip.MustParseAddr("10.0.0.80"), Port: 80}
	for _, test := range []struct {
		filter dpclient.SessionFilter
		limit  int
		want   int
		more   bool
	}{
		{dpclient.SessionFilter{}, 100, 40, false},
		{dpclient.SessionFilter{}, 40, 40, false},
		{dpclient.SessionFilter{}, 39, 39, true},
		{dpclient.SessionFilter{Client: netip.MustParseAddr("192.0.2.1")}, 100, 20, false},
		{dpclient.SessionFilter{Service: &key}, 100, 10, false},
		{dpclient.SessionFilter{Service: &key}, 7, 7, true},
	} {
		got, more, err := client.Sessions(t.Context(), test.filter, test.limit)
		if err != nil || len(got) != test.want || more != test.more {
			t.Errorf("%+v, limit %d: %d sessions, more %v, %v", test.filter, test.limit, len(got), more, err)
		}
	}
}

func TestDeathOfTheForwarderIsNoticed(t *testing.T) {
	f := dptest.New(t)
	client := dial(t, f)
	f.Stop()
	<-client.Done()
	if _, err := client.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "closed the connection") {
		t.Errorf("%v", err)
	}
	_, err := dpclient.Dial(t.Context(), f.Socket)
	if err == nil || !strings.Contains(err.Error(), "systemctl start steelyard-forwarder") {
		t.Errorf("%v", err)
	}
}

func TestContextEndsTheConnection(t *testing.T) {
	f := dptest.New(t)
	client := dial(t, f)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := client.Status(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := client.Status(t.Context()); err != nil {
		t.Errorf("a request that was never sent did harm: %v", err)
	}
}

func frame(length uint32, body []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, length), body...)
}

func TestBadFrames(t *testing.T) {
	message, err := proto.Marshal(&pb.Response{Id: 7})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		data []byte
		want error
	}{
		"nothing":          {nil, io.EOF},
		"half a header":    {[]byte{0, 0}, io.ErrUnexpectedEOF},
		"no body":          {frame(4, nil), io.ErrUnexpectedEOF},
		"half a body":      {frame(uint32(len(message)), message[:1]), io.ErrUnexpectedEOF},
		"too large":        {frame(dpclient.MaxFrame+1, nil), dpclient.ErrTooLarge},
		"not a message":    {frame(1, []byte{0xff}), proto.Error},
		"an empty message": {frame(0, nil), nil},
		"a message":        {frame(uint32(len(message)), message), nil},
	} {
		if err := dpclient.ReadFrame(bytes.NewReader(test.data), &pb.Response{}); !errors.Is(err, test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzReadFrame: all input gets an answer, and understood messages can be sent again.
func FuzzReadFrame(f *testing.F) {
	var buffer bytes.Buffer
	for _, response := range []*pb.Response{
		{Id: 1, Error: &pb.Error{Code: pb.Code_CODE_INVALID, Text: "x"}},
		{Id: 2, Body: &pb.Response_GetConfig{GetConfig: &pb.Config{Revision: 3, Entries: []*pb.Config_Entry{{}}}}},
		{Id: 3, Body: &pb.Response_ListSessions{ListSessions: &pb.SessionList{Sessions: []*pb.Session{{Slot: 4}}}}},
	} {
		if err := dpclient.WriteFrame(&buffer, response); err != nil {
			f.Fatal(err)
		}
		f.Add(bytes.Clone(buffer.Bytes()))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		reader := bytes.NewReader(data)
		for {
			response := &pb.Response{}
			if dpclient.ReadFrame(reader, response) != nil {
				return
			}
			var again bytes.Buffer
			copied := &pb.Response{}
			if err := errors.Join(dpclient.WriteFrame(&again, response), dpclient.ReadFrame(&again, copied)); err != nil {
				t.Fatal(err)
			}
			if !proto.Equal(response, copied) {
				t.Fatalf("%v became %v", response, copied)
			}
		}
	})
}
