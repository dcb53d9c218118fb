// SPDX-License-Identifier: Apache-2.0

package config

import "steelyard/internal/model"

// When a reset tells TCP peers that their session is over.

type rawResets struct {
	at      position
	expired value[bool]
	down    value[bool]
	unknown value[bool]
}

var resetsFields = []field[rawResets]{
	scalar(fieldDoc{name: "expired", kind: "true or false", def: "true",
		doc: "Both ends of a session that was idle for longer than its timeout. `false` where `sloppy_tcp` lets an idle connection go on later."},
		func(r *rawResets) *value[bool] { return &r.expired }, parseBool),
	scalar(fieldDoc{name: "down", kind: "true or false", def: "false",
		doc: "The clients of a server whose health checks fail: its sessions end. Without it they go on."},
		func(r *rawResets) *value[bool] { return &r.down }, parseBool),
	scalar(fieldDoc{name: "unknown", kind: "true or false", def: "false",
		doc: "Whoever sends a packet of no session, so many a second at most: after a crash that lost the sessions, for instance, clients " +
			"connect again at once."},
		func(r *rawResets) *value[bool] { return &r.unknown }, parseBool),
}

const resetsDoc = "TCP: who is told by a reset that a session is over, instead of hearing nothing."

var resetsObject = docsOf("resets", "Who is told by a reset that a TCP session is over. Both ends of a session always are "+
	"if the user ended it: its server was removed or killed, or the deadline of its drain has passed.", resetsFields)

func (b *builder) resets(raw *rawService, protocol model.Protocol) model.Resets {
	own, common := &raw.resets, &b.raw.defaults.resets
	if protocol != model.TCP {
		if own.at != (position{}) {
			b.fail(own.at, raw.path+".resets", "only TCP has resets: use `protocol: tcp`, or remove this")
		}
		return model.Resets{}
	}
	return model.Resets{
		Expired: own.expired.over(common.expired).or(!raw.sloppyTCP.v),
		Down:    own.down.over(common.down).v,
		Unknown: own.unknown.over(common.unknown).v,
	}
}
