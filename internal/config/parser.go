// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"slices"
	"strings"
	"sync"

	"steelyard/internal/model"
)

// Parser is Parse with a cache: it decodes only the services whose text has changed since the previous file. Its result shares the unchanged services.
// Safe for concurrent use. The zero value is ready.
type Parser struct {
	mu   sync.Mutex
	last knownFile
}

// knownFile is a valid, cached file whose services can be separated by their text.
type knownFile struct {
	split  splitFile
	text   string
	config *model.Config
	byText map[string]*model.Service
	values int // upper limit of its number of values
}

// Parse parses like the package's Parse.
func (p *Parser) Parse(file string, data []byte) (*model.Config, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(data) > MaxFileBytes { // refused before it is copied
		_, _, err := parse(file, data, false)
		return nil, err
	}
	text := string(data)
	if p.last.config != nil && text == p.last.text {
		return p.last.config, nil
	}
	split, ok := splitServices(text)
	if ok && p.last.config != nil && split.before == p.last.split.before && split.after == p.last.split.after {
		if next, ok := p.last.change(file, text, split); ok {
			p.last = next
			return next.config, nil
		}
	}
	config, values, err := parse(file, data, false)
	if err == nil {
		p.last = remember(text, split, config, values)
	}
	return config, err
}

// remember returns the cache entry of a file, or an empty value if the file's services cannot be separated.
func remember(text string, split splitFile, config *model.Config, values int) knownFile {
	if len(split.services) != len(config.Services) {
		return knownFile{}
	}
	byText := make(map[string]*model.Service, len(split.services))
	for i, service := range split.services {
		byText[service] = &config.Services[i]
	}
	return knownFile{split, text, config, byText, values}
}

// change parses a file that differs from r only in services. Returns false if there are other differences or the file has an error; then the caller
// must parse the whole file.
func (r *knownFile) change(file, text string, split splitFile) (knownFile, bool) {
	var fresh strings.Builder
	var at []int
	services := make([]model.Service, len(split.services))
	for i, service := range split.services {
		if known := r.byText[service]; known != nil {
			services[i] = *known
			continue
		}
		at = append(at, i)
		fresh.WriteString(service)
	}
	values := r.values
	if len(at) > 0 {
		part, more, err := parse(file, []byte(split.before+fresh.String()+split.after), true)
		if err != nil || len(part.Services) != len(at) {
			return knownFile{}, false
		}
		for n, i := range at {
			services[i] = part.Services[n]
		}
		values += more
	}
	config := *r.config
	config.Services = services
	if values > maxValues || len(text) > MaxFileBytes || contradicts(&config) || movesShaped(r.config, &config) {
		return knownFile{}, false
	}
	return remember(text, split, &config, values), true
}

// splitFile is a file split at the items of its services, so each service is a separate text.
type splitFile struct {
	before   string // up to and including the line `services:`
	services []string
	after    string
}

const servicesLine = "services:\n"

// maxServices bounds the texts that a file is split into; maxNodes allows fewer services.
const maxServices = maxNodes / 8

// splitServices splits a file whose services are a list in block style, the usual case. Returns false if the text of a service may depend on others:
// anchors, and tabs, which do not count as indentation. A line that only looks like an item, as inside quoted text, yields more texts than there are
// services; remember() detects that.
func splitServices(text string) (splitFile, bool) {
	start := strings.Index(text, "\n"+servicesLine)
	if start < 0 || strings.ContainsAny(text, "&\t\r") {
		return splitFile{}, false
	}
	start += 1 + len(servicesLine)
	split := splitFile{before: text[:start]}
	indent, item, at := -1, -1, start
	for at < len(text) {
		end := at + strings.IndexByte(text[at:], '\n') + 1
		if end == at {
			return splitFile{}, false // the last line is not terminated
		}
		line := text[at : end-1]
		depth := len(line) - len(strings.TrimLeft(line, " "))
		switch body := line[depth:]; {
		case body == "" || body[0] == '#':
		case (indent < 0 || depth == indent) && (body == "-" || strings.HasPrefix(body, "- ")):
			if item >= 0 {
				split.services = append(split.services, text[item:at])
			}
			if len(split.services) == maxServices {
				return splitFile{}, false
			}
			indent, item = depth, at
		case item < 0 || depth <= indent:
			return split.end(text, item, at)
		}
		at = end
	}
	return split.end(text, item, at)
}

func (s splitFile) end(text string, item, at int) (splitFile, bool) {
	if item < 0 {
		return splitFile{}, false
	}
	s.services = append(s.services, text[item:at])
	s.after = text[at:]
	return s, true
}

// contradicts reports whether services of a configuration, each valid by itself, contradict each other
// or the rest of the configuration.
func contradicts(config *model.Config) bool {
	names := make(map[string]struct{}, len(config.Services))
	keys := make(map[model.ServiceKey]struct{}, len(config.Services))
	vips := make(map[netip.Addr]struct{}, len(config.Services))
	ranges := map[netip.Addr][]model.ServiceKey{}
	others := map[netip.Addr]struct{}{} // addresses that belong to the forwarder alone
	for _, local := range slices.Concat(config.LocalAddresses, config.PeerLocals) {
		others[local] = struct{}{}
	}
	for _, rule := range config.SNAT {
		for _, address := range rule.Pool {
			others[address] = struct{}{}
		}
	}
	for i := range config.Services {
		service := &config.Services[i]
		names[service.Name] = struct{}{}
		keys[service.Key] = struct{}{}
		vips[service.Key.VIP] = struct{}{}
		if _, taken := others[service.Key.VIP]; taken {
			return true
		}
		if !service.Key.Many() {
			continue
		}
		of := ranges[service.Key.VIP]
		if slices.ContainsFunc(of, func(k model.ServiceKey) bool { return k.SamePorts(service.Key) || k.Crosses(service.Key) }) {
			return true
		}
		ranges[service.Key.VIP] = append(of, service.Key)
	}
	if len(names) < len(config.Services) || len(keys) < len(config.Services) || lacksLimited(config, names) {
		return true
	}
	for i := range config.Services {
		for _, server := range config.Services[i].Servers {
			_, isVIP := vips[server.Address.Addr()]
			_, isOther := others[server.Address.Addr()]
			if isVIP || isOther {
				return true
			}
		}
	}
	return false
}

// lacksLimited reports whether a tenant, a limit or a port's shaping names a service or server that does not exist.
func lacksLimited(config *model.Config, names map[string]struct{}) bool {
	lacks := func(name string) bool { _, ok := names[name]; return !ok }
	for i := range config.Tenants {
		if slices.ContainsFunc(config.Tenants[i].Services, lacks) {
			return true
		}
	}
	for i := range config.Shaping {
		for _, service := range config.Shaping[i].Services {
			if lacks(service.Service) {
				return true
			}
		}
	}
	servers := map[model.NamedServer]bool{} // that limits name; true: found
	for i := range config.Limits {
		of := &config.Limits[i].Of
		if slices.ContainsFunc(of.Services, lacks) {
			return true
		}
		if of.Server.Service != "" {
			servers[of.Server] = false
		}
	}
	missing := len(servers)
	for i := 0; i < len(config.Services) && missing > 0; i++ {
		for _, server := range config.Services[i].Servers {
			named := model.NamedServer{Service: config.Services[i].Name, Address: server.Address}
			if found, limited := servers[named]; limited && !found {
				servers[named] = true
				missing--
			}
		}
	}
	return missing > 0
}

// movesShaped reports whether a service with shaping has another VIP than before, and so maybe another tenant. Only a parse of the whole file compares
// the tenant's rates with the service's.
func movesShaped(before, after *model.Config) bool {
	shaped := map[string]netip.Addr{} // before
	for i := range after.Shaping {
		for _, service := range after.Shaping[i].Services {
			shaped[service.Service] = netip.Addr{}
		}
	}
	if len(shaped) == 0 {
		return false
	}
	for i := range before.Services {
		if _, ok := shaped[before.Services[i].Name]; ok {
			shaped[before.Services[i].Name] = before.Services[i].Key.VIP
		}
	}
	return slices.ContainsFunc(after.Services, func(s model.Service) bool {
		was, ok := shaped[s.Name]
		return ok && was != s.Key.VIP
	})
}
