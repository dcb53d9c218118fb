// SPDX-License-Identifier: Apache-2.0

// Package egress decides which addresses the agent connects to on behalf of a configuration: for health checks, sources of load and samples.
// docs/design/0054-ownership-and-egress.md.
package egress

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
)

// Author is the party that is responsible for a line of the configuration.
type Author uint8

const (
	// Administrator is root on this host, by the agent's own file, or an admin of a controller.
	Administrator Author = iota
	// Tenant is an operator of a project, or a user of the agent's socket other than root.
	Tenant
)

// Policy is the set of destinations of the agent. The zero value allows the defaults only.
type Policy struct {
	Allow   []netip.Prefix                     // by root: `steelyard agent --allow-egress`
	Control func() []netip.Addr                // addresses of controllers; nil: none
	IsLocal func(netip.Addr) (bool, error)     // nil: the kernel's answer
	Resolve func(string) ([]netip.Addr, error) // nil: the resolver's answer
}

// Refusal is the error for an address that the policy does not allow.
type Refusal struct {
	Address netip.Addr
	What    string
}

func (r *Refusal) Error() string {
	return fmt.Sprintf("the agent does not connect to %s, %s: root allows it by `steelyard agent --allow-egress %s`", r.Address, r.What, r.Address)
}

// Check returns an error unless a line of the author may lead to the address.
func (p *Policy) Check(address netip.Addr, by Author) error {
	address = address.WithZone("").Unmap()
	if slices.ContainsFunc(p.Allow, func(allowed netip.Prefix) bool { return allowed.Contains(address) }) {
		return nil
	}
	for _, one := range append(embedded(address), address) {
		what := special(one)
		if what == "" && by == Tenant {
			var err error
			if what, err = p.own(one); err != nil {
				return err
			}
		}
		if what != "" {
			return &Refusal{address, what}
		}
	}
	return nil
}

// own describes the part of this host or of the control plane that has an address; "": none.
func (p *Policy) own(address netip.Addr) (string, error) {
	if address.IsLoopback() {
		return "a loopback address", nil
	}
	if p.Control != nil && slices.Contains(p.Control(), address) {
		return "the address of a controller", nil
	}
	isLocal := p.IsLocal
	if isLocal == nil {
		isLocal = kernelHas
	}
	local, err := isLocal(address)
	if err != nil {
		return "", fmt.Errorf("whether %s is an address of this host is not known: %w", address, err)
	}
	if local {
		return "an address of this host", nil
	}
	return "", nil
}

// metadata are the services of clouds that hand credentials to any client on the host. Link-local ones are refused anyway.
var metadata = []netip.Prefix{
	netip.MustParsePrefix("fd00:ec2::/32"),      // Amazon: metadata, credentials of containers (::23), and others
	netip.MustParsePrefix("fd20:ce::254/128"),   // Google
	netip.MustParsePrefix("fd00:c1::/32"),       // Oracle
	netip.MustParsePrefix("fd00:42::42/128"),    // Scaleway
	netip.MustParsePrefix("100.100.100.200/32"), // Alibaba
	netip.MustParsePrefix("168.63.129.16/32"),   // Azure
	netip.MustParsePrefix("192.0.0.192/32"),     // Oracle
}

// special describes an address that no server has; "": a server may have it.
func special(address netip.Addr) string {
	switch {
	case address.IsUnspecified(), address.Is4() && address.As4()[0] == 0:
		return "the unspecified address"
	case address.IsLinkLocalUnicast():
		return "a link-local address, such as that of a cloud's metadata"
	case slices.ContainsFunc(metadata, func(p netip.Prefix) bool { return p.Contains(address) }):
		return "the address of a cloud's metadata"
	case address.IsMulticast(), address.Is4() && address.As4()[0] >= 240:
		return "a multicast, broadcast or reserved address"
	}
	return ""
}

// embedded returns the IPv4 address to which a translator or a tunnel may lead an IPv6 address.
func embedded(address netip.Addr) []netip.Addr {
	if !address.Is6() {
		return nil
	}
	raw := address.As16()
	at := -1
	switch {
	case address.IsUnspecified(), address.IsLoopback():
	case netip.MustParsePrefix("::/96").Contains(address), // IPv4-compatible
		netip.MustParsePrefix("64:ff9b::/96").Contains(address),    // NAT64, RFC 6052
		netip.MustParsePrefix("64:ff9b:1::/48").Contains(address),  // NAT64 of the own network, RFC 8215, with the usual 96 bits
		netip.MustParsePrefix("::ffff:0:0:0/96").Contains(address), // SIIT, RFC 2765
		isISATAP(raw): // RFC 5214
		at = 12
	case netip.MustParsePrefix("2002::/16").Contains(address): // 6to4, RFC 3056
		at = 2
	}
	if at < 0 {
		return nil
	}
	return []netip.Addr{netip.AddrFrom4([4]byte(raw[at : at+4]))}
}

// isISATAP reports whether the interface identifier of an address has an IPv4 address: RFC 5214, 6.1.
func isISATAP(raw [16]byte) bool {
	return raw[8]&^2 == 0 && raw[9] == 0 && raw[10] == 0x5e && raw[11] == 0xfe
}

// Dialer returns a dialer that checks each address at the moment of connecting, so that no name and no redirect leads past the policy.
func (p *Policy) Dialer(by Author) *net.Dialer {
	return &net.Dialer{Control: func(network, address string, _ syscall.RawConn) error { return p.control(network, address, by) }}
}

func (p *Policy) control(network, address string, by Author) error {
	if !strings.HasPrefix(network, "tcp") && !strings.HasPrefix(network, "udp") {
		return fmt.Errorf("the agent does not connect by %s", network)
	}
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	return p.Check(to.Addr(), by)
}

// CheckURL checks the host of a URL as it is now: an address, or all that a name leads to. A name that does not resolve passes, as connecting checks it
// again.
func (p *Policy) CheckURL(text string, by Author) error {
	to, err := url.Parse(text)
	if err != nil {
		return err
	}
	host := strings.TrimSuffix(to.Hostname(), ".")
	if address, err := netip.ParseAddr(host); err == nil {
		return p.Check(address, by)
	}
	resolve := p.Resolve
	if resolve == nil {
		resolve = func(name string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(context.Background(), "ip", name)
		}
	}
	addresses, err := resolve(host)
	if err != nil {
		return nil
	}
	for _, address := range addresses {
		if err := p.Check(address, by); err != nil {
			return fmt.Errorf("%s: %w", host, err)
		}
	}
	return nil
}

// ParseAllow reads the values of --allow-egress.
func ParseAllow(texts []string) ([]netip.Prefix, error) {
	var allowed []netip.Prefix
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if address, failed := netip.ParseAddr(text); failed == nil {
			address = address.WithZone("").Unmap()
			prefix, err = netip.PrefixFrom(address, address.BitLen()), nil
		}
		if err != nil {
			return nil, fmt.Errorf("--allow-egress %s: write an address or a prefix, such as 127.0.0.1 or 10.1.0.0/24", text)
		}
		allowed = append(allowed, prefix.Masked())
	}
	return allowed, nil
}

type authorKey struct{}

// By adds the author of a line to the context of the work for that line.
func By(ctx context.Context, p *Policy, by Author) context.Context {
	return context.WithValue(ctx, authorKey{}, func(address netip.Addr) error { return p.Check(address, by) })
}

// Of checks an address against the policy of a context. Without one, all addresses pass.
func Of(ctx context.Context, address netip.Addr) error {
	if check, ok := ctx.Value(authorKey{}).(func(netip.Addr) error); ok {
		return check(address)
	}
	return nil
}
