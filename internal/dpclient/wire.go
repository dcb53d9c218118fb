// SPDX-License-Identifier: Apache-2.0

package dpclient

import pb "steelyard/internal/gen/forwarderpb"

// The forwarder's answers, which the agent's API passes on unchanged. Their names are declared here to
// keep the wire format out of other packages: TestOnlyThisPackageKnowsTheWireFormat ensures that.
type (
	Status         = pb.Status
	Adoption       = pb.Adoption
	Service        = pb.Service
	ServiceStats   = pb.ServiceStats
	DefenceStats   = pb.DefenceStats
	Server         = pb.Server
	Traffic        = pb.Traffic
	Session        = pb.Session
	Drop           = pb.Drop
	Port           = pb.Port
	Worker         = pb.Worker
	Slot           = pb.Slot
	SnatStats      = pb.SnatStats
	Attack         = pb.Attack
	Sample         = pb.Sample
	Samples        = pb.Samples
	AccessStats    = pb.AccessStats
	AccessSetStats = pb.AccessSetStats
	Protocol       = pb.Protocol
	ServerState    = pb.ServerState
	Phase          = pb.Phase
	EventDevice    = pb.EventDevice
	LimitStats     = pb.LimitStats
	LimitCounts    = pb.LimitCounts
)

// TCP is the protocol in those answers.
const TCP = pb.Protocol_PROTOCOL_TCP

// States of servers in those answers.
const (
	ServerUp   = pb.ServerState_SERVER_STATE_UP
	ServerDown = pb.ServerState_SERVER_STATE_DOWN
)

// EndsExisting is that of access lists which end existing sessions.
const EndsExisting = pb.ExistingSessions_EXISTING_SESSIONS_END
