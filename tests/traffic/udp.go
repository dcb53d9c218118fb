// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// query keeps a UDP flow in use: it repeatedly queries a DNS server's name from one port.
func (o options) query(f *flow, address string, due time.Time, end <-chan struct{}) error {
	// Connected, so that it receives ICMP errors.
	conn, err := net.Dial("udp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	f.local = conn.LocalAddr()
	for id := uint16(0); pause(due, end); id++ {
		q := f.ask()
		who, err := o.exchange(f, conn, id)
		if err != nil {
			return err
		}
		if err := f.answered(q, who); err != nil {
			return err
		}
		due = next(due, o.period)
	}
	return nil
}

// exchange repeats one query until it is answered.
func (o options) exchange(f *flow, conn net.Conn, id uint16) (string, error) {
	buffer := make([]byte, 512)
	for began := time.Now(); ; f.resent() {
		if _, err := conn.Write(dnsQuery(id)); err != nil {
			return "", err
		}
		conn.SetReadDeadline(time.Now().Add(o.resend))
		for {
			n, err := conn.Read(buffer)
			if errors.Is(err, os.ErrDeadlineExceeded) && time.Since(began) < o.patience {
				break
			}
			if err != nil {
				return "", err
			}
			// The second answer to a repeated query.
			if n >= 2 && binary.BigEndian.Uint16(buffer) == id {
				return dnsText(buffer[:n])
			}
		}
	}
}

// RFC 1035, 4.1: header, then the question.
const (
	dnsHeader   = 12
	dnsQuestion = "\x03who\x03lab\x00\x00\x10\x00\x01" // who.lab, TXT, IN
)

func dnsQuery(id uint16) []byte {
	header := [dnsHeader]byte{2: 1 /* recursion desired */, 5: 1 /* question */}
	binary.BigEndian.PutUint16(header[:], id)
	return append(header[:], dnsQuestion...)
}

// dnsText returns the first string of the first answer, a TXT record.
func dnsText(message []byte) (string, error) {
	const record = 2 + 2 + 2 + 4 + 2 // compressed name, type, class, TTL, length
	at := dnsHeader + len(dnsQuestion) + record
	if len(message) <= at || message[3]&0xf != 0 || message[7] != 1 {
		return "", fmt.Errorf("%w: DNS message %x", errCorrupt, message)
	}
	text := message[at+1:]
	if int(message[at]) > len(text) || string(message[dnsHeader:dnsHeader+len(dnsQuestion)]) != dnsQuestion {
		return "", fmt.Errorf("%w: DNS message %x", errCorrupt, message)
	}
	return string(text[:message[at]]), nil
}
