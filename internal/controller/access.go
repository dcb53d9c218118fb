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

// caller is who sends a request.
type caller struct {
	pki.Name
	member
	certificate *x509.Certificate // nil: on the Unix socket
	revision    int64             // of the member's entry
	relayed     bool              // by another controller, which has checked the rights and made the record
}

// socketKind is the kind of callers on the Unix socket.
const socketKind = "socket"

func (c caller) String() string { return c.Name.String() }

func (c caller) admin() bool { return c.Role == pb.Role_ROLE_ADMIN }

func (c caller) mayRead() bool {
	return c.admin() || c.Role == pb.Role_ROLE_OPERATOR || c.Role == pb.Role_ROLE_VIEWER
}

func (c caller) mayApply(project string) bool {
	return c.admin() || c.Role == pb.Role_ROLE_OPERATOR && slices.Contains(c.Projects, project)
}

// mayDrain reports whether the caller may drain servers of a service; "": of all services.
func (c caller) mayDrain(service string) bool {
	project, _, long := strings.Cut(service, ".")
	if !long {
		project = defaultProject
	}
	return c.admin() || service != "" && c.mayApply(project)
}

// identify returns the member whose certificate a connection has shown.
func (s *Server) identify(ctx context.Context, state tls.ConnectionState) (caller, error) {
	if len(state.PeerCertificates) == 0 {
		return caller{}, connect.NewError(connect.CodeUnauthenticated, errors.New("this needs a certificate: join first"))
	}
	certificate := state.PeerCertificates[0]
	name, err := pki.HolderOf(certificate)
	if err != nil {
		return caller{}, connect.NewError(connect.CodeUnauthenticated, err)
	}
	who := caller{Name: name, certificate: certificate}
	if err := s.authorities.Load().hold(who, s.now()); err != nil { // the handshake may have been before they changed
		return caller{}, err
	}
	if name.Kind == pki.Controller {
		return who, nil
	}
	record, entry, err := read[member](ctx, s.store, keyMembers+name.Name)
	if err != nil {
		return caller{}, err
	}
	// A member that was removed, or has joined again elsewhere, has a certificate that is good but void.
	if entry.Revision == 0 || record.kind() != name.Kind || record.Key != pki.KeyHash(certificate) {
		return caller{}, connect.NewError(connect.CodeUnauthenticated, fmt.Errorf("%s was removed, or has joined again from elsewhere", name))
	}
	who.member, who.revision = record, entry.Revision
	s.seeTrust(ctx, who, state.PeerCertificates)
	return who, nil
}

type callerKey struct{}

// behalfHeader names the caller of a request that a controller hands to another one.
const behalfHeader = "Steelyard-On-Behalf"

// callerOf returns the caller of a request.
func (s *Server) callerOf(r *http.Request) (caller, error) {
	if local, ok := r.Context().Value(callerKey{}).(caller); ok {
		return local, nil
	}
	if r.TLS == nil {
		return caller{}, connect.NewError(connect.CodeUnauthenticated, errors.New("no TLS"))
	}
	who, err := s.identify(r.Context(), *r.TLS)
	if err == nil && who.Kind == pki.Controller {
		kind, name, _ := strings.Cut(r.Header.Get(behalfHeader), "/")
		who = caller{Name: pki.Name{Kind: kind, Name: name}, member: member{Role: pb.Role_ROLE_ADMIN}, certificate: who.certificate, relayed: true}
	}
	return who, err
}

// localCaller is the context of connections to the Unix socket, whose file says who may connect.
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
	return context.WithValue(ctx, callerKey{}, caller{Name: pki.Name{Kind: socketKind, Name: name}, member: member{Role: pb.Role_ROLE_ADMIN}})
}

// authenticated adds the caller to the context of a service's methods.
func (s *Server) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := s.callerOf(r)
		if err != nil {
			if connect.CodeOf(err) == connect.CodeUnauthenticated {
				w.Header().Set("Connection", "close") // the next one shows the certificate that the caller has now
			}
			_ = connect.NewErrorWriter().Write(w, r, err)
			return
		}
		if !admitted(r.Context(), who) {
			w.Header().Set("Connection", "close")
			_ = connect.NewErrorWriter().Write(w, r, connect.NewError(connect.CodeResourceExhausted,
				fmt.Errorf("%s has %d connections here already: close some", who, maxConnectionsOf)))
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, who)))
	})
}

func from(ctx context.Context) caller {
	who, _ := ctx.Value(callerKey{}).(caller)
	return who
}
