// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"time"
)

// Warnings about bursts that are far too small for their rates: what the rate brings in less than these.
const (
	// Senders, cards and the network send packets in bunches: what keeps to the rate over 10 ms need not over 1 ms.
	leastLimitBurst = 10 * time.Millisecond
	// A worker that waits for the next packet's time may wake this late on a machine that has other work.
	leastShapingBurst = 500 * time.Microsecond
)

// burstWarnings returns those of limits and of shaped ports.
func (c *Config) burstWarnings() []Warning {
	var warnings []Warning
	for i := range c.Limits {
		if limit := &c.Limits[i]; limit.Spec.bursts() < leastLimitBurst {
			warnings = append(warnings, Warning{fmt.Sprintf("limits[%d].burst", i), limit.burstWarning()})
		}
	}
	for i := range c.Shaping {
		port := &c.Shaping[i]
		if spec := port.burstSpec(); spec.bursts() < leastShapingBurst {
			warnings = append(warnings, Warning{fmt.Sprintf("shaping[%d].burst", i), fmt.Sprintf(
				"a burst of %s is what %s brings in %s: what the port cannot send within the burst when its worker wakes late is lost to the rate, "+
					"so the port sends less: use at least %s, what comes in %s, or leave `burst` out", spec.Amount(spec.Burst), spec.Rate(), spec.bursts(),
				spec.written(spec.within(leastShapingBurst)), leastShapingBurst)})
		}
	}
	return warnings
}

func (l *ConfigLimit) burstWarning() string {
	s := l.Spec
	why := "packets come in bunches, so senders lose some that keep to the rate, and TCP does not come near it"
	if s.Unit == LimitSessions {
		why = "new sessions come in bunches, so some are refused though fewer begin than the rate allows"
	}
	return fmt.Sprintf("a burst of %s is what %s brings in %s: %s: use at least %s, what comes in %s, or leave `burst` out, for 250ms",
		s.Amount(s.Burst), s.Rate(), s.bursts(), why, s.written(s.within(leastLimitBurst)), leastLimitBurst)
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

// bursts returns how long the rate takes to bring a burst, with three digits.
func (s LimitSpec) bursts() time.Duration {
	took := time.Duration(float64(s.Burst) * float64(s.scale()) / float64(s.PerSecond))
	digit := time.Duration(1)
	for took/digit > 999 {
		digit *= 10
	}
	return took.Truncate(digit)
}

// within returns what the rate brings in a short time, rounded up to three digits.
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
