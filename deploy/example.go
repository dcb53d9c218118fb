// SPDX-License-Identifier: Apache-2.0

// Package deploy holds what an installation puts on a host; the code needs the example for the
// reference of the configuration.
package deploy

import _ "embed"

// Example is an example of the configuration file.
//
//go:embed steelyard.yaml
var Example string
