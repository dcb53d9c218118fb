// SPDX-License-Identifier: Apache-2.0

// Command steelyard is the agent and the command line of the Steelyard load balancer.
package main

import (
	"os"

	"steelyard/internal/cli"
)

func main() {
	os.Exit(cli.Run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
