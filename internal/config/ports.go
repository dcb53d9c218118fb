// SPDX-License-Identifier: Apache-2.0

package config

import (
	"steelyard/internal/model"
)

// Services with many ports.

// rangeAt is a service with many ports, and its position in the file.
type rangeAt struct {
	key model.ServiceKey
	at  position
}

// checkRange checks that of two services with common ports, one range contains the other.
func (b *builder) checkRange(raw *rawService, key model.ServiceKey) {
	if !key.Many() {
		return
	}
	for _, other := range b.ranges[key.VIP] {
		if key.SamePorts(other.key) {
			b.fail(raw.port.at, raw.port.path, "%s has the same ports as %s, in line %d: put all servers into one",
				key, other.key, other.at.line)
			return
		}
		if key.Crosses(other.key) {
			b.fail(raw.port.at, raw.port.path, "%s overlaps with %s, in line %d: put one range within the other, "+
				"or separate them", key, other.key, other.at.line)
			return
		}
	}
	b.ranges[key.VIP] = append(b.ranges[key.VIP], rangeAt{key, raw.port.at})
}

// serverPort returns the port on which a server listens; 0: the client's destination port.
func (b *builder) serverPort(raw *rawService, s rawServer) uint16 {
	key := model.ServiceKey{Port: raw.port.v.first, LastPort: raw.port.v.last}
	own := key.Port
	if key.Many() {
		own = 0
	}
	port := s.port.or(own)
	if port == own || !raw.port.set || raw.mode.v != model.DR && raw.mode.v != model.IPIP {
		return port
	}
	if own == 0 {
		b.fail(s.port.at, s.port.path, "%s translates no ports, so the server must listen on those that clients connect to: "+
			"remove this line, or use fnat", raw.mode.v)
	} else {
		b.fail(s.port.at, s.port.path, "%s translates no ports, so the server must listen on the service's, "+
			"%d: use that, or fnat", raw.mode.v, own)
	}
	return port
}

// checkPorts checks that health checks have a port.
func (b *builder) checkPorts(raw *rawService, service *model.Service) {
	if !raw.port.set || !service.Key.Many() || service.Health.Type == model.HealthNone || service.Health.Port != 0 {
		return
	}
	for _, server := range service.Servers {
		if server.Address.Port() == 0 {
			b.fail(raw.port.at, raw.port.path, "checks need one port: name it as `port` in `health`, "+
				"or use `type: none` there")
			return
		}
	}
}
