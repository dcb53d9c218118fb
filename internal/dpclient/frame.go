// SPDX-License-Identifier: Apache-2.0

// Package dpclient talks to a forwarder. Only this package knows the wire format: a Unix stream socket
// whose frames are a 32-bit big-endian length and one protobuf message.
package dpclient

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"
)

// MaxFrame is the largest message in bytes.
const MaxFrame = 4 << 20

// ErrTooLarge means that a frame's length is above MaxFrame.
var ErrTooLarge = errors.New("frame is too large")

// WriteFrame sends one message.
func WriteFrame(w io.Writer, m proto.Message) error {
	frame, err := proto.MarshalOptions{}.MarshalAppend(make([]byte, 4, 256), m)
	if err != nil {
		return err
	}
	if len(frame)-4 > MaxFrame {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(frame)-4, MaxFrame)
	}
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	_, err = w.Write(frame)
	return err
}

// ReadFrame reads one message into m. It returns io.EOF only between two frames. Memory grows with the
// bytes received, not with the announced length.
func ReadFrame(r io.Reader, m proto.Message) error {
	var header [4]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return err
	}
	length := binary.BigEndian.Uint32(header[:])
	if length > MaxFrame {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, length, MaxFrame)
	}
	body, err := io.ReadAll(io.LimitReader(r, int64(length)))
	if err != nil {
		return err
	}
	if len(body) < int(length) {
		return io.ErrUnexpectedEOF
	}
	return proto.Unmarshal(body, m)
}
