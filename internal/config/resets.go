// SPDX-License-Identifier: Apache-2.0

package config

import "steelyard/internal/model"

// When the forwarder sends resets to the ends of a TCP session that has ended.

type rawResets struct {
	at      position
	expired value[bool]
	down    value[bool]
	unknown value[bool]
}

var resetsFields = []field[rawResets]{
	scalar(fieldDoc{name: "expired", kind: "true or false", def: "true",
		doc: "Both ends get a reset when a session ends because it was idle for longer than its timeout. The default is `false` with `sloppy_tcp`, where an idle connection may continue later."},
		func(r *rawResets) *value[bool] { return &r.expired }, parseBool),
	scalar(fieldDoc{name: "down", kind: "true or false", def: "false",
		doc: "Clients get a reset when their server goes down by its health checks, and its sessions end. With `false` the sessions continue."},
		func(r *rawResets) *value[bool] { return &r.down }, parseBool),
	scalar(fieldDoc{name: "unknown", kind: "true or false", def: "false",
		doc: "The sender of a TCP packet without a session gets a reset, at a limited rate. After a crash that lost the sessions, for example, clients then " +
			"reconnect at once."},
		func(r *rawResets) *value[bool] { return &r.unknown }, parseBool),
}

const resetsDoc = "TCP: which ends get a reset when a session ends."

var resetsObject = docsOf("resets", "Which ends get a reset when a TCP session ends. Both always get one "+
	"if the operator ended the session: by removing or killing its server, or by the deadline of a drain.", resetsFields)

func (b *builder) resets(raw *rawService, protocol model.Protocol) model.Resets {
	own, common := &raw.resets, &b.raw.defaults.resets
	if protocol != model.TCP {
		if own.at != (position{}) {
			b.fail(own.at, raw.path+".resets", "only TCP has resets: use `protocol: tcp`, or remove this line")
		}
		return model.Resets{}
	}
	return model.Resets{
		Expired: own.expired.over(common.expired).or(!raw.sloppyTCP.v),
		Down:    own.down.over(common.down).v,
		Unknown: own.unknown.over(common.unknown).v,
	}
}
