// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"

	pb "steelyard/internal/gen/controllerpb"
	"steelyard/internal/pki"

	"connectrpc.com/connect"
)

// principal is the sender of a request: a member with its certificate, or a user of the Unix socket.
type principal struct {
	pki.Name
	member
	certificate *x509.Certificate // nil: a user of the Unix socket
	revision    int64             // of the member's entry in etcd
	relayed     bool              // by another controller, which has checked the rights and written the audit record
}

// socketKind is the kind of principals on the Unix socket.
const socketKind = "socket"

func (c principal) String() string { return c.Name.String() }

func (c principal) admin() bool { return c.Role == pb.Role_ROLE_ADMIN }

func (c principal) mayRead() bool {
	return c.admin() || c.Role == pb.Role_ROLE_OPERATOR || c.Role == pb.Role_ROLE_VIEWER
}

func (c principal) mayApply(project string) bool {
	return c.admin() || c.Role == pb.Role_ROLE_OPERATOR && slices.Contains(c.Projects, project)
}

// mayDrain reports whether the caller may drain servers of a service; "" means all services.
func (c principal) mayDrain(service string) bool {
	project, _, long := strings.Cut(service, ".")
	if !long {
		project = defaultProject
	}
	return c.admin() || service != "" && c.mayApply(project)
}

// identify returns the member that a connection's certificate names. Fails if the certificate is void.
func (s *Server) identify(ctx context.Context, state tls.ConnectionState) (principal, error) {
	if len(state.PeerCertificates) == 0 {
		return principal{}, connect.NewError(connect.CodeUnauthenticated, errors.New("this needs a certificate: join first, by `steelyard context add` or `steelyard agent --controller`"))
	}
	certificate := state.PeerCertificates[0]
	name, err := pki.HolderOf(certificate)
	if err != nil {
		return principal{}, connect.NewError(connect.CodeUnauthenticated, err)
	}
	caller := principal{Name: name, certificate: certificate}
	if err := s.authorities.Load().check(caller, s.now()); err != nil { // the authorities may have changed since the handshake
		return principal{}, err
	}
	if name.Kind == pki.Controller {
		return caller, nil
	}
	record, entry, err := read[member](ctx, s.store, keyMembers+name.Name)
	if err != nil {
		return principal{}, err
	}
	// The certificate of a member that was removed, or has joined again elsewhere, is well-formed but void.
	if entry.Revision == 0 || record.kind() != name.Kind || record.Key != pki.KeyHash(certificate) {
		return principal{}, connect.NewError(connect.CodeUnauthenticated, fmt.Errorf("%s was removed, or has joined again from elsewhere", name))
	}
	caller.member, caller.revision = record, entry.Revision
	s.recordTrust(ctx, caller, state.PeerCertificates)
	return caller, nil
}

type callerKey struct{}

// behalfHeader names the original caller of a request that a controller forwards to another one.
const behalfHeader = "Steelyard-On-Behalf"

// callerOf returns the principal that sent a request.
func (s *Server) callerOf(r *http.Request) (principal, error) {
	if local, ok := r.Context().Value(callerKey{}).(principal); ok {
		return local, nil
	}
	if r.TLS == nil {
		return principal{}, connect.NewError(connect.CodeUnauthenticated, errors.New("no TLS"))
	}
	caller, err := s.identify(r.Context(), *r.TLS)
	if err == nil && caller.Kind == pki.Controller {
		kind, name, _ := strings.Cut(r.Header.Get(behalfHeader), "/")
		caller = principal{Name: pki.Name{Kind: kind, Name: name}, member: member{Role: pb.Role_ROLE_ADMIN}, certificate: caller.certificate, relayed: true}
	}
	return caller, err
}

// localCaller marks the context of connections to the Unix socket. The socket's file mode decides which users may connect.
func localCaller(ctx context.Context, conn net.Conn) context.Context {
	name := "unknown"
	if unix, ok := conn.(*net.UnixConn); ok {
		if raw, err := unix.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) {
				if peer, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
					name = fmt.Sprintf("uid=%d", peer.Uid)
				}
			})
		}
	}
	return context.WithValue(ctx, callerKey{}, principal{Name: pki.Name{Kind: socketKind, Name: name}, member: member{Role: pb.Role_ROLE_ADMIN}})
}

// authenticated adds the caller to the request's context before it runs the next handler.
func (s *Server) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, err := s.callerOf(r)
		if err != nil {
			if connect.CodeOf(err) == connect.CodeUnauthenticated {
				w.Header().Set("Connection", "close") // the client's next connection presents its current certificate
			}
			_ = connect.NewErrorWriter().Write(w, r, err)
			return
		}
		if !accepted(r.Context(), caller) {
			w.Header().Set("Connection", "close")
			_ = connect.NewErrorWriter().Write(w, r, connect.NewError(connect.CodeResourceExhausted,
				fmt.Errorf("%s has %d connections here already: close some", caller, maxConnectionsOf)))
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, caller)))
	})
}

func from(ctx context.Context) principal {
	caller, _ := ctx.Value(callerKey{}).(principal)
	return caller
}
