// SPDX-License-Identifier: Apache-2.0

package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
)

// Own marks an error that does not contain data from the remote side.
type Own struct{ Err error }

func (o Own) Error() string { return o.Err.Error() }

// Unwrap returns the error itself.
func (o Own) Unwrap() error { return o.Err }

// Explain returns an error of an HTTP request without data from the remote side, which errors of package net/http quote.
func Explain(err error) error {
	var refused *Refusal
	var own Own
	var failed *net.OpError
	var name *net.DNSError
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	switch {
	case err == nil, errors.As(err, &refused), errors.As(err, &own):
		return err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, os.ErrDeadlineExceeded):
		return err
	case errors.As(err, &certificate):
		return errors.New("the certificate is not valid here")
	case errors.As(err, &record):
		return errors.New("the answer is no TLS")
	case errors.As(err, &name):
		return name
	case errors.As(err, &failed):
		if alert := new(tls.AlertError); errors.As(err, alert) {
			return errors.New("TLS failed")
		}
		return failed
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the connection ended before the answer did")
	}
	return errors.New("the answer is no HTTP, or has too long a header")
}
