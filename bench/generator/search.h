// SPDX-License-Identifier: Apache-2.0
/*
 * RFC 2544, section 26.1: the highest rate at which no more than a share of the packets is lost,
 * by halving the interval. Pure logic; a trial is the caller's.
 */
#ifndef GENERATOR_SEARCH_H
#define GENERATOR_SEARCH_H

struct search {
	double ceiling;    /* the highest rate to try, in the caller's unit */
	double loss;       /* the share that may be lost: 0 for NDR, 0.00001 for PDR */
	double resolution; /* the interval is small enough at this share of the ceiling */
	unsigned tries;    /* a rate is too high once so many trials in a row have failed */
};

/* One trial at a rate; returns the share of packets lost, or below 0 to give the search up. */
typedef double (*search_trial)(void *ctx, double rate);

/* The highest rate that passed, 0 if none did, below 0 if the search was given up. */
double search_rate(const struct search *s, search_trial trial, void *ctx);

#endif
