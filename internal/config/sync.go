// SPDX-License-Identifier: Apache-2.0

package config

import (
	"time"

	"steelyard/internal/model"

	"go.yaml.in/yaml/v4"
)

const maxSyncAge = time.Hour

// rawSync is the mapping that `sync` may be instead of a word.
type rawSync struct {
	olderThan value[uint32]
}

var syncFields = []field[rawSync]{
	scalar(fieldDoc{name: "older_than", kind: "duration of whole seconds, 1s to 1h", required: true,
		doc: "The minimum age of a session that peers keep. Shorter sessions cost nothing, and end with this host; older ones get there within a second."},
		func(s *rawSync) *value[uint32] { return &s.olderThan }, parseWholeSeconds(maxSyncAge)),
}

var syncObject = docsOf("sync", "Keeps long sessions only.", syncFields)

// syncField is a field with a word or a mapping.
func syncField[T any](doc string, pick func(*T) *value[model.Sync]) field[T] {
	named := fieldDoc{name: "sync", kind: syncKind, def: model.SyncEstablished.String(), doc: doc, object: syncObject}
	return field[T]{named, func(d *decoder, n *yaml.Node, path string, into *T) {
		if target(n).Kind != yaml.MappingNode {
			*pick(into) = readScalar(d, n, path, parseSync)
			return
		}
		var raw rawSync
		at := positionOf(n)
		readObject(d, n, path, syncFields, &raw)
		*pick(into) = value[model.Sync]{path: path, at: at, v: model.Sync{OlderThan: raw.olderThan.v}, set: true}
	}}
}

func parseSync(text string) (model.Sync, error) {
	from, err := parseWord(model.SyncsFrom...)(text)
	return model.Sync{From: from}, err
}
