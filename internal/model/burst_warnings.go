// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"time"
)

// Warnings about bursts that are far too small for their rates: those that correspond to less than these times.
const (
	// Senders, cards and the network send packets in bunches: traffic within the rate over 10 ms may exceed it over 1 ms.
	minLimitBurst = 10 * time.Millisecond
	// A worker that waits for the next packet's time may wake this late on a machine that has other work.
	minShapingBurst = 500 * time.Microsecond
)

// burstWarnings returns those of limits and of shaped ports.
func (c *Config) burstWarnings() []Warning {
	var warnings []Warning
	for i := range c.Limits {
		if limit := &c.Limits[i]; limit.Spec.bursts() < minLimitBurst {
			warnings = append(warnings, Warning{fmt.Sprintf("limits[%d].burst", i), limit.burstWarning()})
		}
	}
	for i := range c.Shaping {
		port := &c.Shaping[i]
		if spec := port.burstSpec(); spec.bursts() < minShapingBurst {
			warnings = append(warnings, Warning{fmt.Sprintf("shaping[%d].burst", i), fmt.Sprintf(
				"a burst of %s is %s times %s: after a late wake-up of its worker the port cannot catch up beyond the burst, "+
					"so it sends less than the rate: use at least %s, which is %s of the rate, or remove `burst`", spec.Amount(spec.Burst), spec.Rate(), spec.bursts(),
				spec.written(spec.within(minShapingBurst)), minShapingBurst)})
		}
	}
	return warnings
}

func (l *ConfigLimit) burstWarning() string {
	s := l.Spec
	why := "packets arrive in bunches, so even senders within the rate lose some, and TCP stays far below it"
	if s.Unit == LimitSessions {
		why = "new sessions arrive in bunches, so some are refused although fewer begin than the rate allows"
	}
	return fmt.Sprintf("a burst of %s is %s times %s: %s: use at least %s, which is %s of the rate, or remove `burst` for the default, 250ms",
		s.Amount(s.Burst), s.Rate(), s.bursts(), why, s.written(s.within(minLimitBurst)), minLimitBurst)
}

func (s *ConfigShaping) burstSpec() LimitSpec {
	return LimitSpec{Unit: LimitBits, PerSecond: s.Rate, Burst: s.Burst}
}

// scale is how many units of the rate, over nanoseconds, are one of the burst.
func (s LimitSpec) scale() uint64 {
	if s.Unit == LimitBits {
		return 8e9
	}
	return 1e9
}

// bursts returns the burst as a time at the limit's rate, with three digits.
func (s LimitSpec) bursts() time.Duration {
	took := time.Duration(float64(s.Burst) * float64(s.scale()) / float64(s.PerSecond))
	digit := time.Duration(1)
	for took/digit > 999 {
		digit *= 10
	}
	return took.Truncate(digit)
}

// within returns the rate times a short time, rounded up to three digits.
func (s LimitSpec) within(took time.Duration) uint64 {
	n := (s.PerSecond*uint64(took) + s.scale() - 1) / s.scale() // at most 400 Gbit/s in 10 ms
	digit := uint64(1)
	for n > 999*digit {
		digit *= 10
	}
	return (n + digit - 1) / digit * digit
}

// written returns an amount as a file has it.
func (s LimitSpec) written(n uint64) string {
	number, prefix := decimal(n)
	if s.Unit == LimitBits {
		prefix += "B"
	}
	return number + prefix
}
