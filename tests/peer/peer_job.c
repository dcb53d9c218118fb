// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <string.h>

#include "peer_job.h"

#define WRITE_DEFAULT 16384

enum kind { NUMBER, SWITCH, PARTS, OPTION, OPTION_SWITCH };

struct word {
	const char *name, *help;
	enum kind kind;
	size_t at; /* in the job, or the stack's option */
};

#define AT(field) offsetof(struct job, field)
static const struct word words[] = {
        {"seed", "names the stream's bytes (1)", NUMBER, AT(seed)},
        {"send", "bytes of the stream to send, then this side's end (0)", NUMBER, AT(send)},
        {"write", "bytes of one call (16384)", NUMBER, AT(max)},
        {"echo", "on: sends back what arrives instead", SWITCH, AT(echo)},
        {"answer", "with echo: waits for so many bytes, and sends them back together", NUMBER,
         AT(answer)},
        {"after-end", "on: sends once the peer has ended its side", SWITCH, AT(after_end)},
        {"end-first", "on: ends its side at once, although the peer has not", SWITCH,
         AT(end_first)},
        {"hold", "on: reads nothing until \"resume JOB\"", SWITCH, AT(hold)},
        {"read", "reads at most so many bytes at a time, …", NUMBER, AT(read)},
        {"read-ms", "… and pauses for so long", NUMBER, AT(read_ms)},
        {"reset-after", "resets the connection after so many bytes", NUMBER, AT(reset_after)},
        {"urgent", "the last of so many bytes is urgent", NUMBER, AT(urgent)},
        {"asks", "questions to a peer that echoes, one after the other", NUMBER, AT(asks)},
        {"parts", "bytes of the calls that make a question: 100,50", PARTS, 0},
        {"part-ms", "a pause between them, at least", NUMBER, AT(part_ms)},
        {"more", "on: all but a question's last call say that more follows", SWITCH, AT(more)},
        {"times", "connect: so many connections at once (1); listen: ends after so many", NUMBER,
         AT(times)},
        {"rounds", "connect: and again, from the same port (1)", NUMBER, AT(rounds)},
        {"no-delay", "on: without Nagle", OPTION_SWITCH, SY_STACK_NO_DELAY},
        {"cork", "on: only full segments", OPTION_SWITCH, SY_STACK_CORK},
        {"quick-ack", "on: acknowledges at once", OPTION_SWITCH, SY_STACK_QUICK_ACK},
        {"linger-abort", "on: close resets", OPTION_SWITCH, SY_STACK_LINGER_ABORT},
        {"keepalive", "seconds before the first probe", OPTION, SY_STACK_KEEPALIVE_S},
        {"keepalive-interval", "seconds between probes", OPTION, SY_STACK_KEEPALIVE_INTERVAL_S},
        {"keepalive-probes", "unanswered probes that end it", OPTION, SY_STACK_KEEPALIVE_PROBES},
        {"user-timeout", "milliseconds", OPTION, SY_STACK_USER_TIMEOUT_MS},
        {"send-buffer", "bytes", OPTION, SY_STACK_SEND_BYTES},
        {"receive-buffer", "bytes", OPTION, SY_STACK_RECEIVE_BYTES},
        {"tos", "the whole byte", OPTION, SY_STACK_TOS},
        {"mss", "bytes", OPTION, SY_STACK_MSS},
};

void job_help(FILE *out)
{
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		fprintf(out, "  %-20s %s\n", words[i].name, words[i].help);
}

static bool number_read(const char *text, uint64_t *out)
{
	char *end;
	*out = text ? strtoull(text, &end, 10) : 0;
	return text && end != text && *end == '\0' && *text != '-';
}

static bool parts_read(struct job *j, char *text)
{
	for (char *one; (one = strsep(&text, ",")); j->parts++)
		if (j->parts == JOB_PARTS || !number_read(one, &j->part[j->parts]) ||
		    j->part[j->parts] == 0)
			return false;
	return j->parts > 0;
}

static bool option_add(struct job *j, const struct word *w, uint64_t value)
{
	if (j->options == JOB_OPTIONS || value > UINT32_MAX)
		return false;
	j->option[j->options].option = (enum sy_stack_option)w->at;
	j->option[j->options++].value = (uint32_t)value;
	return true;
}

static bool word_apply(struct job *j, const struct word *w, char *text)
{
	bool on = text && strcmp(text, "on") == 0, off = text && strcmp(text, "off") == 0;
	void *field = (char *)j + w->at;
	uint64_t value;

	if (w->kind == PARTS)
		return text && parts_read(j, text);
	if (w->kind == SWITCH) {
		*(bool *)field = on;
		return on || off;
	}
	if (w->kind == OPTION_SWITCH)
		return (on || off) && option_add(j, w, on);
	if (!number_read(text, &value))
		return false;
	if (w->kind == OPTION)
		return option_add(j, w, value);
	*(uint64_t *)field = value;
	return true;
}

static bool endpoint_read(char **rest, struct sy_stack_endpoint *e)
{
	char *address = strsep(rest, " "), *port = strsep(rest, " ");
	uint64_t number;

	if (!address || sy_addr_parse(address, &e->addr) || !number_read(port, &number) ||
	    number > UINT16_MAX)
		return false;
	e->port = rte_cpu_to_be_16((uint16_t)number);
	return true;
}

static bool words_read(struct job *j, char *rest, char *error)
{
	for (char *name; (name = strsep(&rest, " "));) {
		char *value = strsep(&rest, " ");
		size_t i = 0, count = sizeof(words) / sizeof(*words);
		while (i < count && strcmp(words[i].name, name) != 0)
			i++;
		if (i == count || !word_apply(j, &words[i], value)) {
			snprintf(error, JOB_ERROR, "\"%s %s\" is not possible; see --help", name,
			         value ? value : "");
			return false;
		}
	}
	return true;
}

/* Checks options against each other. */
static const char *job_check(const struct job *j)
{
	if (j->max == 0 || (!j->listens && (j->times == 0 || j->rounds == 0)))
		return "write, times and rounds are at least 1";
	if (j->read_ms && !j->read)
		return "read-ms needs read";
	if (j->asks && (!j->parts || j->send || j->echo))
		return "asks needs parts, and neither send nor echo";
	if (j->echo && (j->send || j->after_end || j->end_first))
		return "echo sends only what arrives";
	if (!j->listens && j->rounds > 1 && j->times > 1)
		return "rounds need times 1";
	return NULL;
}

struct job *job_read(char *line, char error[static JOB_ERROR])
{
	struct job *j = calloc(1, sizeof(*j));
	char *rest = line, *verb = strsep(&rest, " ");
	const char *problem = NULL;
	bool fine;

	if (!j) {
		snprintf(error, JOB_ERROR, "no memory");
		return NULL;
	}
	*j = (struct job){.seed = 1, .max = WRITE_DEFAULT, .rounds = 1};
	j->listens = strcmp(verb, "listen") == 0;
	j->times = j->listens ? 0 : 1;
	fine = (j->listens || strcmp(verb, "connect") == 0) && endpoint_read(&rest, &j->from) &&
	       (j->listens || endpoint_read(&rest, &j->to));
	if (!fine)
		snprintf(error, JOB_ERROR,
		         "write listen ADDRESS PORT … or connect ADDRESS PORT ADDRESS PORT …");
	else
		fine = words_read(j, rest, error);
	if (fine && (problem = job_check(j)))
		snprintf(error, JOB_ERROR, "%s", problem);
	if (fine && !problem && !(j->stream = stream_new(j->seed))) {
		problem = "no memory";
		snprintf(error, JOB_ERROR, "%s", problem);
	}
	if (!fine || problem) {
		job_free(j);
		return NULL;
	}
	j->left = j->listens ? (j->times ? j->times : 1) : j->times * j->rounds;
	return j;
}

void job_free(struct job *j)
{
	if (j)
		stream_free(j->stream);
	free(j);
}
