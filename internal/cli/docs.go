// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"steelyard/internal/config"

	"github.com/spf13/cobra"
)

// docsCommand prints the documents that are generated from the code.
func (a *app) docsCommand() *cobra.Command {
	docs := &cobra.Command{Use: "docs", Short: "Print documents that are generated from the code", Hidden: true}
	for _, document := range []struct {
		name  string
		write func() string
	}{
		{"configuration", config.Reference}, {"steelyard.1", commandManual}, {"steelyard-run.1", runManual}, {"steelyard.yaml.5", config.Manual},
	} {
		docs.AddCommand(&cobra.Command{
			Use: document.name, Args: args(0, 0),
			Run: func(*cobra.Command, []string) { fmt.Fprint(a.out, document.write()) },
		})
	}
	return docs
}
