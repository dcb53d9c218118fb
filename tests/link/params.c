// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "params.h"

enum kind { KIND_TIME, KIND_RATE, KIND_NUMBER, KIND_SHARE, KIND_WORD, KIND_IPV4, KIND_IPV6 };

static const struct known {
	const char *name;
	enum kind kind;
	size_t at;
	const char *words[2]; /* of KIND_WORD, for 0 and 1 */
	const char *help;
} known[] = {
#define AT(field) offsetof(struct params, field)
        {"delay", KIND_TIME, AT(delay), {}, "the least delay"},
        {"jitter", KIND_TIME, AT(jitter), {}, "how much more it is at most"},
        {"distribution", KIND_WORD, AT(distribution), {"uniform", "normal"}, "of the jitter"},
        {"order", KIND_WORD, AT(order), {"keep", "free"}, "whether jitter may reorder"},
        {"rate", KIND_RATE, AT(rate), {}, "of the transmitter; 0: no limit"},
        {"overhead", KIND_NUMBER, AT(overhead), {}, "bytes a frame takes beside its own"},
        {"queue_bytes", KIND_NUMBER, AT(queue_bytes), {}, "that wait for the transmitter at most"},
        {"queue_packets", KIND_NUMBER, AT(queue_packets), {}, "likewise; 0: no limit"},
        {"red_min", KIND_NUMBER, AT(red_min), {}, "bytes in the queue from which some are dropped"},
        {"red_max", KIND_NUMBER, AT(red_max), {}, "bytes from which all are; 0: never"},
        {"red_probability", KIND_SHARE, AT(red_probability), {}, "of a drop just below red_max"},
        {"ecn", KIND_WORD, AT(ecn), {"off", "on"}, "mark instead, where the packet allows it"},
        {"loss", KIND_SHARE, AT(loss), {}, "of packets; in bursts: outside of them"},
        {"burst_enter", KIND_SHARE, AT(burst_enter), {}, "a packet begins a burst of losses"},
        {"burst_leave", KIND_SHARE, AT(burst_leave), {}, "a packet ends it"},
        {"burst_loss", KIND_SHARE, AT(burst_loss), {}, "of packets in a burst"},
        {"reorder", KIND_SHARE, AT(reorder), {}, "of packets that others overtake"},
        {"reorder_distance", KIND_NUMBER, AT(reorder_distance), {}, "how many others"},
        {"reorder_delay", KIND_TIME, AT(reorder_delay), {}, "its longest wait for them"},
        {"duplicate", KIND_SHARE, AT(duplicate), {}, "of packets that arrive twice"},
        {"corrupt", KIND_SHARE, AT(corrupt), {}, "of packets with a flipped bit behind Ethernet"},
        {"mtu", KIND_NUMBER, AT(mtu), {}, "bytes of an IP packet at most; 0: no limit"},
        {"too_big", KIND_WORD, AT(too_big), {"icmp", "silent"}, "what is above: an error, or not"},
        {"router4", KIND_IPV4, AT(router4), {}, "the source of errors over IPv4"},
        {"router6", KIND_IPV6, AT(router6), {}, "and over IPv6"},
#undef AT
};

#define KNOWN (sizeof(known) / sizeof(known[0]))

/* Suffixes of a value, and their factors. */
static const struct unit {
	const char *name;
	double factor;
} times[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {NULL, 0}},
  rates[] = {{"bit", 1}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}, {NULL, 0}},
  numbers[] = {{"", 1}, {NULL, 0}}, shares[] = {{"", 1}, {"%", 0.01}, {NULL, 0}};

/* Longer delays, faster rates and larger sizes are mistakes, and would overflow. */
#define VALUE_MAX 1e12

void params_default(struct params *p)
{
	*p = (struct params){.queue_packets = 1000,
	                     .red_probability = 0.1,
	                     .burst_leave = 0.25,
	                     .burst_loss = 1,
	                     .reorder_delay = 10000000};
	/* RFC 7600 has the first for routers without an address of their own. */
	inet_pton(AF_INET, "192.0.0.8", &p->router4);
	inet_pton(AF_INET6, "fd00:ffff::1", &p->router6);
}

static bool value_read(const char *text, const struct unit *units, double max, double *out)
{
	char *end;
	*out = strtod(text, &end);
	if (end == text || !isfinite(*out) || *out < 0)
		return false;
	for (; units->name; units++)
		if (strcmp(end, units->name) == 0) {
			*out *= units->factor;
			return *out <= max;
		}
	return *out == 0 && *end == '\0';
}

static bool known_read(const struct known *k, const char *text, struct params *p)
{
	static const struct unit *const units[] = {times, rates, numbers, shares};
	void *field = (char *)p + k->at;
	double value;
	switch (k->kind) {
	case KIND_TIME:
	case KIND_RATE:
	case KIND_NUMBER:
		if (!value_read(text, units[k->kind], VALUE_MAX, &value))
			return false;
		*(uint64_t *)field = (uint64_t)(value + 0.5);
		return true;
	case KIND_SHARE:
		return value_read(text, units[k->kind], 1, field);
	case KIND_WORD:
		for (unsigned i = 0; i < 2; i++)
			if (strcmp(text, k->words[i]) == 0) {
				*(uint64_t *)field = i;
				return true;
			}
		return false;
	case KIND_IPV4:
		return inet_pton(AF_INET, text, field) == 1;
	case KIND_IPV6:
		return inet_pton(AF_INET6, text, field) == 1;
	}
	return false;
}

static const char *form_of(const struct known *k)
{
	static const char *const forms[] = {"a time: 20ms, 500us",
	                                    "a rate: 10mbit, 1gbit",
	                                    "a number",
	                                    "a share: 0.01, 1%",
	                                    "a word",
	                                    "an IPv4 address",
	                                    "an IPv6 address"};
	return forms[k->kind];
}

/* Why parameters do not go together, or NULL. */
static const char *params_conflict(const struct params *p)
{
	if (p->red_max < p->red_min)
		return "red_max is below red_min";
	if (p->burst_enter > 0 && p->burst_leave == 0)
		return "a burst would never end: set burst_leave";
	if (p->reorder > 0 && p->reorder_delay == 0)
		return "reordered packets need a reorder_delay: their longest wait";
	if (p->mtu && p->mtu < 68)
		return "RFC 791 has 68 bytes as the least mtu";
	return NULL;
}

int params_read(struct params *p, char *text, char error[static PARAMS_ERROR])
{
	struct params new = *p;
	char *rest = text, *key;
	while ((key = strsep(&rest, " \t")) != NULL) {
		if (*key == '\0')
			continue;
		if (strcmp(key, "defaults") == 0) {
			params_default(&new);
			continue;
		}
		const struct known *k = known;
		while (k < known + KNOWN && strcmp(k->name, key) != 0)
			k++;
		if (k == known + KNOWN) {
			snprintf(error, PARAMS_ERROR, "no parameter %.40s; --help names all", key);
			return -EINVAL;
		}
		char *value = strsep(&rest, " \t");
		if (!value || !known_read(k, value, &new)) {
			char words[40];
			snprintf(words, sizeof(words), "%s or %s", k->words[0], k->words[1]);
			snprintf(error, PARAMS_ERROR, "%s needs %s, not \"%.40s\"", k->name,
			         k->kind == KIND_WORD ? words : form_of(k), value ? value : "");
			return -EINVAL;
		}
	}
	const char *conflict = params_conflict(&new);
	if (conflict) {
		snprintf(error, PARAMS_ERROR, "%s", conflict);
		return -EINVAL;
	}
	*p = new;
	return 0;
}

void params_print(const struct params *p, FILE *out)
{
	char address[INET6_ADDRSTRLEN];
	for (const struct known *k = known; k < known + KNOWN; k++) {
		const void *field = (const char *)p + k->at;
		fprintf(out, "%s\"%s\": ", k == known ? "{" : ", ", k->name);
		if (k->kind == KIND_SHARE)
			fprintf(out, "%.12g", *(const double *)field);
		else if (k->kind == KIND_WORD)
			fprintf(out, "\"%s\"", k->words[*(const uint64_t *)field]);
		else if (k->kind == KIND_IPV4 || k->kind == KIND_IPV6)
			fprintf(out, "\"%s\"",
			        inet_ntop(k->kind == KIND_IPV4 ? AF_INET : AF_INET6, field, address,
			                  sizeof(address)));
		else
			fprintf(out, "%lu", *(const uint64_t *)field);
	}
	fprintf(out, "}");
}

void params_help(FILE *out)
{
	for (const struct known *k = known; k < known + KNOWN; k++) {
		fprintf(out, "  %-17s %s", k->name, k->help);
		if (k->kind == KIND_WORD)
			fprintf(out, " (%s, %s)", k->words[0], k->words[1]);
		fprintf(out, "\n");
	}
	fprintf(out, "Times are in ns, us, ms or s; rates in bit, kbit, mbit or gbit;\n"
	             "shares from 0 to 1, or in %%. The word `defaults` resets all of them.\n");
}
