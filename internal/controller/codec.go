// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

type protoMessage = proto.Message

// codec reads and writes the one message of a unary request in connect's protocol.
type codec struct {
	unmarshal func([]byte, proto.Message) error
	marshal   func(proto.Message) ([]byte, error)
}

var codecs = map[string]codec{
	"application/proto": {proto.Unmarshal, proto.Marshal},
	"application/json":  {protojson.Unmarshal, protojson.Marshal},
}
