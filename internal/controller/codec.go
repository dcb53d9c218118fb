// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/binary"
	"errors"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

type protoMessage = proto.Message

// codec decodes and encodes the single message of a unary request.
type codec struct {
	unmarshal func([]byte, proto.Message) error
	marshal   func(proto.Message) ([]byte, error)
}

var (
	binaryCodec = codec{proto.Unmarshal, proto.Marshal}
	jsonCodec   = codec{protojson.Unmarshal, protojson.Marshal}
)

var codecs = map[string]codec{
	"application/proto": binaryCodec, "application/json": jsonCodec,
	"application/grpc": framed(binaryCodec), "application/grpc+proto": framed(binaryCodec), "application/grpc+json": framed(jsonCodec),
	"application/grpc-web": framed(binaryCodec), "application/grpc-web+proto": framed(binaryCodec), "application/grpc-web+json": framed(jsonCodec),
}

// codecOf returns the codec of a content type.
func codecOf(contentType string) (codec, bool) {
	kind, _, _ := strings.Cut(contentType, ";")
	c, ok := codecs[strings.ToLower(strings.TrimSpace(kind))]
	return c, ok
}

// frame is the size of gRPC's prefix of a message: a byte of flags, and the length.
const frame = 5

// framed is the codec of gRPC and gRPC-web, whose unary requests have one frame.
func framed(c codec) codec {
	return codec{func(body []byte, m proto.Message) error {
		switch {
		case len(body) < frame || uint64(binary.BigEndian.Uint32(body[1:])) != uint64(len(body)-frame):
			return errors.New("the body is not one message of gRPC")
		case body[0] != 0:
			return errors.New("this method accepts no compressed messages through a controller: send it uncompressed")
		}
		return c.unmarshal(body[frame:], m)
	}, func(m proto.Message) ([]byte, error) {
		data, err := c.marshal(m)
		if err != nil {
			return nil, err
		}
		return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(data))), data...), nil
	}}
}
