// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"steelyard/internal/model"
)

// Dial opens a connection; a net.Dialer's DialContext.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// NewProbe returns the probe for TCP and HTTP checks.
func NewProbe(dial Dial) Probe {
	transport := &http.Transport{
		DialContext:            dial,
		DisableKeepAlives:      true, // each check proves that the server accepts
		DisableCompression:     true,
		MaxResponseHeaderBytes: 64 << 10,
	}
	return func(ctx context.Context, policy model.Health, ref model.ServerRef) error {
		address := ref.Address
		if policy.Port != 0 {
			address = netip.AddrPortFrom(address.Addr(), policy.Port)
		}
		var err error
		if policy.Type == model.HealthHTTP {
			err = probeHTTP(ctx, transport, policy, address.String())
		} else {
			err = probeTCP(ctx, dial, address.String())
		}
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("no answer from %s within %s", address, policy.Timeout)
		}
		return err
	}
}

func probeTCP(ctx context.Context, dial Dial, address string) error {
	conn, err := dial(ctx, "tcp", address)
	if err != nil {
		return err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetLinger(0) // a reset leaves no TIME_WAIT, here or there
	}
	return conn.Close()
}

func probeHTTP(ctx context.Context, transport http.RoundTripper, policy model.Health, address string) error {
	path, query, _ := strings.Cut(policy.Path, "?")
	request := (&http.Request{
		Method: http.MethodGet,
		URL:    &url.URL{Scheme: "http", Host: address, Opaque: "", Path: path, RawPath: path, RawQuery: query},
		Host:   policy.Host,
		Header: http.Header{"User-Agent": {"steelyard"}},
	}).WithContext(ctx)
	if unescaped, err := url.PathUnescape(path); err == nil {
		request.URL.Path = unescaped
	}
	// The transport follows no redirect: that is a client's business.
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	response.Body.Close()
	status := response.StatusCode
	if status < int(policy.Expect.First) || status > int(policy.Expect.Last) {
		return fmt.Errorf("%s answered %s, expected %s", address, response.Status, policy.Expect)
	}
	return nil
}
