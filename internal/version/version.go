// SPDX-License-Identifier: Apache-2.0

// Package version holds what the build says about itself.
package version

// Build names this build; the linker sets it (-X steelyard/internal/version.Build=…).
var Build = "unreleased"
