// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"bufio"
	"context"
	"strconv"

	"steelyard/internal/dpclient"
)

// delayValues are the delays of a server's answers to SYNs, measured by the forwarder.
type delayValues struct {
	buckets          []uint64
	samples, sumNs   uint64
	smoothedNs, lost uint64 // SYNs
	watched, missed  uint64 // segments
}

func delayValuesOf(d *dpclient.DelayStats) delayValues {
	return delayValues{d.GetBuckets(), d.GetSamples(), d.GetSumNs(), d.GetSmoothedNs(), d.GetSynRepeated(), d.GetSegments(), d.GetSegmentsLost()}
}

// maxHistograms is the number of servers up to which all have a histogram. Above, those of services that the request names have.
const maxHistograms = 1000

// delayBuckets is the number of buckets, of which the last one is open.
const delayBuckets = 24

// writeDelays writes the delays of servers that have answered SYNs.
func (a *serviceSeries) writeDelays(ctx context.Context, w *bufio.Writer, named bool) bool {
	if len(a.delays) == 0 {
		return true
	}
	const histogram = "steelyard_server_syn_answer_seconds"
	if named || len(a.delays) <= maxHistograms {
		writeHead(w, histogram, "histogram", "Time from a SYN on its way to the server to its answer, as the forwarder saw both.")
		for i := range a.delays {
			if ctx.Err() != nil {
				return false
			}
			writeHistogram(w, histogram, &a.delays[i])
		}
	}
	writeHead(w, "steelyard_server_syn_answer_smoothed_seconds", "gauge", "The same, smoothed by an eighth at each.")
	for i := range a.delays {
		writeSeconds(w, "steelyard_server_syn_answer_smoothed_seconds", a.delays[i].labels, a.delays[i].values.smoothedNs)
	}
	return writeMetric(ctx, w, "server_syn_repeated_total", "counter", "SYNs that clients repeated before the server had answered.", a.delays, 0,
		func(v *delayValues, _ int) uint64 { return v.lost }) &&
		writeMetric(ctx, w, "server_segments_watched_total", "counter", "Segments with data, in both directions, of the few sessions that were watched.", a.delays, 0,
			func(v *delayValues, _ int) uint64 { return v.watched }) &&
		writeMetric(ctx, w, "server_segments_lost_total", "counter", "Of these, the ones that were lost between forwarder and server.", a.delays, 0,
			func(v *delayValues, _ int) uint64 { return v.missed })
}

func writeHistogram(w *bufio.Writer, name string, one *series[delayValues]) {
	sum := uint64(0)
	for i := range delayBuckets - 1 {
		if i < len(one.values.buckets) {
			sum += one.values.buckets[i]
		}
		writeNumber(w, name+"_bucket", one.labels+`,le="`+strconv.FormatFloat(float64(uint64(1)<<i)/1e6, 'g', -1, 64)+`"`, sum)
	}
	writeNumber(w, name+"_bucket", one.labels+`,le="+Inf"`, one.values.samples)
	writeSeconds(w, name+"_sum", one.labels, one.values.sumNs)
	writeNumber(w, name+"_count", one.labels, one.values.samples)
}

func writeNumber(w *bufio.Writer, name, labels string, value uint64) {
	w.WriteString(name + "{" + labels + "} " + strconv.FormatUint(value, 10) + "\n")
}

func writeSeconds(w *bufio.Writer, name, labels string, ns uint64) {
	w.WriteString(name + "{" + labels + "} " + strconv.FormatFloat(float64(ns)/1e9, 'g', -1, 64) + "\n")
}
