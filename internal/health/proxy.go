// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"net"

	"steelyard/internal/model"
)

// PROXY protocol headers for a connection of the balancer's own (proxy-protocol.txt 2.1, 2.2).
var proxyHeaders = map[model.ClientAddress]string{
	model.ProxyV1: "PROXY UNKNOWN\r\n",
	model.ProxyV2: "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00",
}

type headerKey struct{}

// withHeader sends the configured header first on connections of this check. A check of
// another port than the server's own sends none, as clients do not use that port.
func withHeader(ctx context.Context, policy model.Health, ref model.ServerRef) context.Context {
	if policy.Port != 0 && policy.Port != ref.Address.Port() {
		return ctx
	}
	return context.WithValue(ctx, headerKey{}, proxyHeaders[policy.Proxy])
}

// introduce sends the header of the check for which conn was opened.
func introduce(ctx context.Context, conn net.Conn) (net.Conn, error) {
	header, _ := ctx.Value(headerKey{}).(string)
	if header == "" {
		return conn, nil
	}
	// A few bytes into an empty buffer: this does not block.
	if _, err := conn.Write([]byte(header)); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}
