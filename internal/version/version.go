// SPDX-License-Identifier: Apache-2.0

// Package version holds the build's version.
package version

// Build names this build; meson.build sets the same name for the forwarder.
const Build = "0.1.0"
