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

	"steelyard/internal/egress"
	"steelyard/internal/model"
)

// Answered receives the answer to an HTTP check that passed, before its body is closed.
type Answered func(server Server, response *http.Response)

// NewProbe returns the probe for TCP and HTTP checks; answered may be nil. Errors of this host are a HostError.
func NewProbe(dial Dial, answered Answered) Probe {
	dial = newCloser().dial(timed(dial))
	transport := &http.Transport{
		// An address does not identify the server when several servers share it.
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := dial(ctx, ctx.Value(endpointKey{}).(Endpoint))
			if err == nil {
				conn, err = introduce(ctx, conn)
			}
			if err != nil {
				return nil, egress.Own{Err: err}
			}
			return conn, nil
		},
		DisableKeepAlives:      true, // each check proves that the server accepts
		DisableCompression:     true,
		MaxResponseHeaderBytes: 64 << 10,
	}
	return func(ctx context.Context, policy model.Health, server Server) error {
		own := server.Ref.Address
		if policy.Port != 0 {
			own = netip.AddrPortFrom(own.Addr(), policy.Port)
		}
		to, name := Endpoint{Address: own}, own.String()
		if server.Mark != 0 {
			to = Endpoint{netip.AddrPortFrom(server.Ref.Service.VIP, own.Port()), server.Mark, own.Addr()}
			name = fmt.Sprintf("%s at %s", to.Address, own.Addr())
		}
		ctx = withLinger(ctx, lingering{policy.Linger, policy.Type == model.HealthHTTP})
		var err error
		if policy.Type == model.HealthHTTP {
			ctx := context.WithValue(withHeader(ctx, policy, server.Ref), endpointKey{}, to)
			err = probeHTTP(ctx, transport, policy, own.String(), name, func(response *http.Response) {
				if answered != nil {
					answered(server, response)
				}
			})
		} else {
			err = probeTCP(ctx, dial, to)
		}
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("no answer from %s within %s", name, policy.Timeout)
			if trackingIsFull() {
				err = &HostError{fmt.Errorf("%w; %w", err, errTracking)}
			}
			return err
		}
		return ofHost(withoutQuery(err, policy.Path), to.Address.Addr())
	}
}

type endpointKey struct{}

// withoutQuery returns an error whose text does not quote the query: a server may echo it.
func withoutQuery(err error, path string) error {
	if err == nil {
		return nil
	}
	if text := model.HideQueryIn(err.Error(), path); text != err.Error() {
		return &hiddenQuery{text, err}
	}
	return err
}

// hiddenQuery is an error in other words.
type hiddenQuery struct {
	text string
	err  error
}

func (e *hiddenQuery) Error() string { return e.text }
func (e *hiddenQuery) Unwrap() error { return e.err }

func probeTCP(ctx context.Context, dial Dial, to Endpoint) error {
	conn, err := dial(ctx, to)
	if err != nil {
		return err
	}
	return conn.Close()
}

func probeHTTP(ctx context.Context, transport http.RoundTripper, policy model.Health, address, name string, passed func(*http.Response)) error {
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
	// The transport follows no redirect: a redirect is for clients.
	response, err := transport.RoundTrip(request)
	if err != nil {
		return egress.Explain(err)
	}
	defer response.Body.Close()
	status := response.StatusCode
	if status < int(policy.Expect.First) || status > int(policy.Expect.Last) {
		return fmt.Errorf("%s answered %d %s, expected %s", name, status, http.StatusText(status), policy.Expect)
	}
	passed(response)
	return nil
}
