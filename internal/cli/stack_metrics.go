// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"steelyard/internal/connlimit"
	"steelyard/internal/stacks"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"
	"github.com/spf13/cobra"
)

func (a *app) stackMetricsCommand(o *stackOptions) *cobra.Command {
	listen := ""
	command := &cobra.Command{
		Use: "metrics", Short: "Print the counters of all programs for Prometheus, or serve them", Args: args(0, 0),
		Long: "Prometheus' text format, once, for node_exporter's textfile collector; with --listen, an HTTP server that queries the programs at each scrape, until it is " +
			"interrupted. Series have the program's name (stack), and a number for each of its stacks.",
		Example: "  steelyard stack metrics >/var/lib/node_exporter/stacks.prom.new && mv /var/lib/node_exporter/stacks.prom.new /var/lib/node_exporter/stacks.prom\n" +
			"  steelyard stack metrics --listen 127.0.0.1:9466",
	}
	command.Flags().StringVar(&listen, "listen", "", "serve /metrics at this `ADDRESS:PORT`, by plain HTTP")
	command.RunE = func(c *cobra.Command, _ []string) error {
		registry := prometheus.NewRegistry()
		if err := registry.Register(&stacks.Collector{Directory: o.directory, Patience: min(a.timeout, stackPatience)}); err != nil {
			return err
		}
		if listen != "" {
			return a.serveStacks(c.Context(), listen, registry)
		}
		families, err := registry.Gather()
		for _, family := range families { // print incomplete metrics rather than none
			if _, err := expfmt.MetricFamilyToText(a.out, family); err != nil {
				return err
			}
		}
		return err
	}
	return command
}

func (a *app) serveStacks(ctx context.Context, listen string, registry *prometheus.Registry) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("--listen %s: %w", listen, err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: 4}))
	server := &http.Server{
		Handler: mux, ReadTimeout: 10 * time.Second, WriteTimeout: 2 * time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
	}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	fmt.Fprintf(a.out, "serving http://%s/metrics\n", listener.Addr())
	if err := server.Serve(connlimit.Listen(listener, 128, 32)); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
