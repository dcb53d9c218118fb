// SPDX-License-Identifier: Apache-2.0

// Package version holds the build's version.
package version

// Build names this build; the forwarder says the same, from meson.build.
const Build = "0.1.0"
