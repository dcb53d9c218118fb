// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"

	"steelyard/internal/model"

	"go.yaml.in/yaml/v4"
)

// Shaping of ports, as in the file.

type rawShaping struct {
	at       position
	path     string
	port     value[string]
	rate     value[uint64]
	burst    value[quantity]
	count    value[model.LimitLayer]
	classes  []rawShapingClass
	tenants  []rawShapingBranch
	services []rawShapingBranch
	loose    bool // it names an unknown tenant, or a service has several tenants on it
}

type rawShapingClass struct {
	at         position
	path       string
	name       value[string]
	dscp       []value[model.DSCP]
	priority   value[int]
	weight     value[int]
	queue      value[int]
	guaranteed value[uint64]
	maximum    value[uint64]
	early      rawShapingEarly
}

type rawShapingEarly struct {
	at      position
	path    string
	from    value[int]
	to      value[int]
	percent value[int]
}

// rawShapingBranch is a tenant or a service.
type rawShapingBranch struct {
	at         position
	path       string
	name       value[string]
	guaranteed value[uint64]
	maximum    value[uint64]
	weight     value[int]
	class      value[string]
}

// The forwarder's limits, and defaults.
const (
	maxShapedPorts      = 16
	maxShapingClasses   = 8
	maxShapingTenants   = 1023 // besides the one for all others
	maxShapingServices  = 1024 // including the implicit ones, one per tenant and one for the port
	maxShapingQueue     = 65535
	maxShapingWeight    = 100
	defaultShapingQueue = 256
	lowestPriority      = 7
	minShapingBurst     = 16_000
	shapingBurstsPerS   = 500 // 2 ms
)

const (
	guaranteedDoc = "The rate that it gets under any load. Others may use the part that it does not use."
	maximumDoc    = "The maximum rate; excess packets are queued. Without it, that of the level above."
)

func shapingRate[T any](name, def, doc string, pick func(*T) *value[uint64]) field[T] {
	return scalar(fieldDoc{name: name, kind: "number of bits in a second, 8k to 400G", def: def, required: name == "rate", doc: doc},
		pick, parseRate(model.LimitBits))
}

func shapingWeight[T any](doc string, pick func(*T) *value[int]) field[T] {
	return scalar(fieldDoc{name: "weight", kind: "number, 1 to 100", def: "1", doc: doc}, pick, parseNumber(1, maxShapingWeight))
}

var shapingEarlyFields = []field[rawShapingEarly]{
	scalar(fieldDoc{name: "from", kind: "percentage of the queue, 0% to 99%", def: "25%", doc: "Packets are dropped if the mean length of the queue is above this."},
		func(e *rawShapingEarly) *value[int] { return &e.from }, parsePercent(99)),
	scalar(fieldDoc{name: "to", kind: "percentage of the queue, 1% to 100%", def: "75%", doc: "Above this mean length all packets are dropped."},
		func(e *rawShapingEarly) *value[int] { return &e.to }, parsePercent(100)),
	scalar(fieldDoc{name: "probability", kind: "percentage, 1% to 100%", def: "10%",
		doc: "The probability of drops just below `to`; it rises linearly from `from`. Packets of drop precedence 2 and 3, such as af12 and af13, have three quarters and half of both lengths."},
		func(e *rawShapingEarly) *value[int] { return &e.percent }, parsePercent(100)),
}

var shapingClassFields = []field[rawShapingClass]{
	scalar(fieldDoc{name: "name", kind: "name", required: true, doc: "A name that is unique among the classes."},
		func(c *rawShapingClass) *value[string] { return &c.name }, parseName),
	{fieldDoc{name: "dscp", kind: "list of DSCPs", doc: "The packets of the class: names such as ef, af41 or cs1, or numbers, 0 to 63. A DSCP has one class; unlisted DSCPs have the last class."},
		func(d *decoder, n *yaml.Node, path string, into *rawShapingClass) {
			readList(d, n, path, func(n *yaml.Node, path string) {
				into.dscp = append(into.dscp, readScalar(d, n, path, parseDSCP))
			})
		}},
	scalar(fieldDoc{name: "priority", kind: "number, 0 to 7", def: "7", doc: "Strict priority in all services and tenants: packets of a lower number are sent first; 0 is the highest priority."},
		func(c *rawShapingClass) *value[int] { return &c.priority }, parseNumber(0, lowestPriority)),
	shapingWeight("The class's share of its service, among classes of the same priority.", func(c *rawShapingClass) *value[int] { return &c.weight }),
	scalar(fieldDoc{name: "queue", kind: "number of packets, 1 to 65535", def: fmt.Sprint(defaultShapingQueue),
		doc: "The queue's maximum length, in each service. Further packets are dropped as `shaping-full`."},
		func(c *rawShapingClass) *value[int] { return &c.queue }, parseNumber(1, maxShapingQueue)),
	shapingRate("guaranteed", "", "The rate that the class gets in each service before other classes, whatever their priority.", func(c *rawShapingClass) *value[uint64] { return &c.guaranteed }),
	shapingRate("maximum", "", "The maximum rate of the class in each service; excess packets are queued.", func(c *rawShapingClass) *value[uint64] { return &c.maximum }),
	{fieldDoc{name: "early_drops", kind: "mapping", object: shapingEarlyObject,
		doc: "Drops some packets before the queue is full (WRED), as `shaping-early`, so that TCP senders slow down and the queue stays short; `{}`: with the defaults. Without it, none."},
		func(d *decoder, n *yaml.Node, path string, into *rawShapingClass) {
			into.early.at, into.early.path = positionOf(n), path
			readObject(d, n, path, shapingEarlyFields, &into.early)
		}},
}

var shapingTenantFields = []field[rawShapingBranch]{
	scalar(fieldDoc{name: "tenant", kind: "name of a tenant", required: true, doc: "A tenant of `tenants`. A service that several of them name belongs to one only: list one of these."},
		func(t *rawShapingBranch) *value[string] { return &t.name }, parseName),
	shapingRate("guaranteed", "", guaranteedDoc+" All tenants together may have at most the port's rate. Without it, the sum of its services' rates.", func(t *rawShapingBranch) *value[uint64] { return &t.guaranteed }),
	shapingRate("maximum", "", maximumDoc, func(t *rawShapingBranch) *value[uint64] { return &t.maximum }),
	shapingWeight("The tenant's share of the rate that remains after all guaranteed rates.", func(t *rawShapingBranch) *value[int] { return &t.weight }),
}

var shapingServiceFields = []field[rawShapingBranch]{
	scalar(fieldDoc{name: "service", kind: "name of a service", required: true, doc: "A service that has a rate, a weight or a class of its own."},
		func(s *rawShapingBranch) *value[string] { return &s.name }, parseName),
	shapingRate("guaranteed", "", guaranteedDoc+" The services of a tenant together may have at most the tenant's rate.", func(s *rawShapingBranch) *value[uint64] { return &s.guaranteed }),
	shapingRate("maximum", "", maximumDoc, func(s *rawShapingBranch) *value[uint64] { return &s.maximum }),
	shapingWeight("The service's share of its tenant. The tenant's services without an entry have 1 together.", func(s *rawShapingBranch) *value[int] { return &s.weight }),
	scalar(fieldDoc{name: "class", kind: "name of a class", def: "by DSCP", doc: "The class of all packets of the service, whatever their DSCP."},
		func(s *rawShapingBranch) *value[string] { return &s.class }, parseName),
}

var shapingFields = []field[rawShaping]{
	scalar(fieldDoc{name: "port", kind: "name of a port", required: true, doc: "The port on which packets are sent, as `steelyard get ports` shows it."},
		func(s *rawShaping) *value[string] { return &s.port }, parsePortName),
	shapingRate("rate", "", "The port's rate, such as `950M`: that of the link behind it, or a little less.", func(s *rawShaping) *value[uint64] { return &s.rate }),
	scalar(fieldDoc{name: "burst", kind: "bytes", def: "the rate times 2 ms; at least 16kB",
		doc: "The capacity of the token bucket. A larger one keeps the rate on a host whose CPUs are busy, but needs longer queues behind the port. Bursts of tenants, services and classes are in the same proportion to their rates."},
		func(s *rawShaping) *value[quantity] { return &s.burst }, parseQuantity),
	scalar(fieldDoc{name: "count", kind: "l3, l2, l2+fcs or l1", def: "l1", doc: "The bytes of a sent packet that count, as in `limits`. The nominal rate of a link is `l1`."},
		func(s *rawShaping) *value[model.LimitLayer] { return &s.count }, parseWord(model.LimitLayers...)),
	mappings(fieldDoc{name: "classes", object: shapingClassObject, doc: "Classes of packets, 1 to 8; each service has a queue for each. Without them there is one class, `default`."},
		func(s *rawShaping) *[]rawShapingClass { return &s.classes },
		func(at position, path string) rawShapingClass { return rawShapingClass{at: at, path: path} }, shapingClassFields),
	mappings(fieldDoc{name: "tenants", object: shapingTenantObject, doc: "Tenants with their own rates. All others share the remaining rate, with weight 1 together."},
		func(s *rawShaping) *[]rawShapingBranch { return &s.tenants },
		func(at position, path string) rawShapingBranch { return rawShapingBranch{at: at, path: path} }, shapingTenantFields),
	mappings(fieldDoc{name: "services", object: shapingServiceObject, doc: "Services with their own rates, within their tenant's."},
		func(s *rawShaping) *[]rawShapingBranch { return &s.services },
		func(at position, path string) rawShapingBranch { return rawShapingBranch{at: at, path: path} }, shapingServiceFields),
}

var (
	shapingEarlyObject   = docsOf("early_drops", "When packets are dropped before a queue is full.", shapingEarlyFields)
	shapingClassObject   = docsOf("classes of shaping", "Classes of packets on a shaped port.", shapingClassFields)
	shapingTenantObject  = docsOf("tenants of shaping", "Tenants on a shaped port.", shapingTenantFields)
	shapingServiceObject = docsOf("services of shaping", "Services on a shaped port.", shapingServiceFields)
	shapingObject        = docsOf("shaping", "Ports with hierarchical traffic shaping. See docs/shaping.md.", shapingFields)
)

// parsePortName parses the name of a kernel interface or a device.
func parsePortName(text string) (string, error) {
	if text == "" || len(text) > 31 {
		return "", fmt.Errorf("%q is not a port: use a name that `steelyard get ports` shows", text)
	}
	return text, nil
}
