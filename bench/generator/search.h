// SPDX-License-Identifier: Apache-2.0
/* RFC 2544, section 26.1: the highest rate at which at most a given share of the packets is lost,
 * by halving the interval. Pure logic; the caller runs the trials. */
#ifndef GENERATOR_SEARCH_H
#define GENERATOR_SEARCH_H

struct search {
	double ceiling;    /* the highest rate to try, in the caller's unit */
	double loss;       /* the share that may be lost: 0 for NDR, 0.00001 for PDR */
	double resolution; /* stop when the interval is at most this share of the ceiling */
	unsigned tries;    /* failed trials in a row after which a rate is too high */
};

/* Runs one trial at a rate; returns the share of packets lost, or a value below 0 to give up the
 * search. */
typedef double (*search_trial)(void *ctx, double rate);

/* The highest rate that passed, 0 if none did, below 0 if the search was given up. */
double search_rate(const struct search *s, search_trial trial, void *ctx);

#endif
