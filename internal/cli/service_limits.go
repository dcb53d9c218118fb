// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"steelyard/internal/dpclient"
	pb "steelyard/internal/gen/agentpb"
	"steelyard/internal/model"
)

// serviceLimitView is a limit that applies to a service. `describe limit` shows the rest.
type serviceLimitView struct {
	Name      string `json:"name"`
	Of        string `json:"of"`
	Unit      string `json:"unit"`
	PerSecond uint64 `json:"per_second"`
	Burst     uint64 `json:"burst"`

	text string
}

// serviceShapingView is a service's shaping on a port.
type serviceShapingView struct {
	Port       string `json:"port"`
	Tenant     string `json:"tenant"` // empty: none
	Shared     bool   `json:"shared"` // shared with other services: no entry of its own
	Guaranteed uint64 `json:"guaranteed"`
	Maximum    uint64 `json:"maximum"`
	Weight     uint8  `json:"weight"`
	Class      string `json:"class"` // empty: by DSCP

	classes uint32
}

// viewLimitsAndShaping sets a service's limits and shaping.
func (s *serviceView) viewLimitsAndShaping(info *pb.ServiceInfo) error {
	s.Limits, s.Shaping = []serviceLimitView{}, []serviceShapingView{}
	for _, one := range info.GetLimits() {
		limit, err := dpclient.LimitFromWire(one.GetLimit())
		if err != nil {
			return err
		}
		s.Limits = append(s.Limits, serviceLimitView{limit.Name, one.GetOf(), limitUnits[limit.Spec.Unit], limit.Spec.PerSecond, limit.Spec.Burst,
			limit.Spec.String()})
	}
	for _, one := range info.GetShaping() {
		of, err := dpclient.ShapingServiceFromWire(one.GetService())
		if err != nil {
			return err
		}
		s.Shaping = append(s.Shaping, serviceShapingView{one.GetPort(), one.GetTenant(), of.Name == "", of.Guaranteed, of.Maximum, of.Weight,
			of.Class, one.GetClasses()})
	}
	return nil
}

// printLimitsAndShaping shows the limits and the shaping of a service.
func (a *app) printLimitsAndShaping(s serviceView) {
	name := "Limits"
	for _, limit := range s.Limits {
		a.pair(name, fmt.Sprintf("%s, of %s: %s", limit.Name, limit.Of, limit.text))
		name = ""
	}
	name = "Shaping"
	for _, port := range s.Shaping {
		a.pair(name, port.String())
		name = ""
	}
}

func (p serviceShapingView) String() string {
	parts := []string{"port " + p.Port}
	switch {
	case p.Shared && p.Tenant == "":
		parts = append(parts, "with all others on the port")
	case p.Shared:
		parts = append(parts, "with the others of tenant "+p.Tenant)
	case p.Tenant != "":
		parts = append(parts, "tenant "+p.Tenant)
	}
	if !p.Shared {
		parts = append(parts, fmt.Sprintf("weight %d", p.Weight))
	}
	if p.Guaranteed > 0 {
		parts = append(parts, "guaranteed "+model.BitRate(p.Guaranteed))
	}
	if p.Maximum > 0 {
		parts = append(parts, "at most "+model.BitRate(p.Maximum))
	}
	switch {
	case p.Class != "":
		parts = append(parts, "class "+p.Class)
	case p.classes > 1:
		parts = append(parts, "classes by DSCP")
	}
	return strings.Join(parts, ", ")
}
