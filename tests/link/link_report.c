// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <stdlib.h>

#include "lane.h"

static double us(uint64_t ns)
{
	return (double)ns / 1000;
}

static void lane_report(struct lane *l, FILE *out)
{
	const struct direction *d = &l->direction;
	const struct direction_counts *c = &d->counts;
	if (l->from->name)
		direction_refuse(&l->direction, port_lost(l->from), DROP_RECEIVE);
	fprintf(out, "{\"params\": ");
	params_print(&d->params, out);
#define X(name) fprintf(out, ", \"" #name "\": %lu", c->name);
	DIRECTION_COUNTS(X)
#undef X
	uint64_t all = 0;
	fprintf(out, ", \"drops\": {");
	for (unsigned why = 0; why < DROP_COUNT; why++) {
		fprintf(out, "%s\"%s\": %lu", why ? ", " : "", direction_drop_name(why),
		        c->drop[why]);
		all += c->drop[why];
	}
	fprintf(out, "}, \"dropped\": %lu", all);
	fprintf(out, ", \"on_the_way\": %lu, \"on_the_way_most\": %lu", lane_on_the_way(l),
	        c->way_max);
	fprintf(out, ", \"queue\": {\"packets\": %u, \"bytes\": %lu}", d->queue.packets,
	        d->queue.bytes);
	fprintf(out, ", \"send_waits\": %lu", l->to->waited);
	fprintf(out,
	        ", \"late_us\": {\"p50\": %.3f, \"p99\": %.3f, \"p999\": %.3f, \"most\": %.3f}}",
	        us(lateness_share(&l->late, 0.5)), us(lateness_share(&l->late, 0.99)),
	        us(lateness_share(&l->late, 0.999)), us(l->late.max));
}

char *link_report(struct link *l)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	if (!out)
		return NULL;
	fprintf(out, "{\"seed\": %lu", l->seed);
	for (int i = 0; i < 2; i++) {
		fprintf(out, ", \"%s\": ", i ? "ba" : "ab");
		lane_report(&l->lane[i], out);
	}
	fprintf(out, ", \"packets\": {\"room\": %u, \"used\": %u}}", l->pool.count, l->pool.used);
	if (fclose(out)) {
		free(text);
		return NULL;
	}
	return text;
}
