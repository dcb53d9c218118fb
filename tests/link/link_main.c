// SPDX-License-Identifier: Apache-2.0
/* steelyard-link: a bad link between two interfaces. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "lane.h"
#include "link_control.h"
#include "link_options.h"
#include "predict.h"

#define NS_PER_S      1000000000ull
#define CONTROL_EVERY 1000000u /* ns: interval of checks for commands while packets arrive */
#define BEHIND        64u      /* bytes in front of an IP packet: Ethernet, tags */

static int say(int failed, const char *what)
{
	fprintf(stderr, "steelyard-link: %s: %s\n", what, strerror(-failed));
	return failed;
}

/* ---- the loop -------------------------------------------------------------------------------- */

/* Sleeps until something arrives, or until shortly before it is time. */
static void link_sleep(const struct link *l, const struct control *c, int signals, uint64_t ns)
{
	struct pollfd fds[CONTROL_POLLED + 3];
	unsigned count = control_poll(c, fds);
	fds[count++] = (struct pollfd){.fd = signals, .events = POLLIN};
	for (int i = 0; i < 2; i++)
		fds[count++] = (struct pollfd){.fd = l->port[i].in, .events = POLLIN};
	struct timespec timeout = {(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};
	if (ppoll(fds, count, &timeout, NULL) <= 0)
		return;
	for (unsigned i = count - 2; i < count; i++)
		if (fds[i].revents & POLLERR)
			port_forgive(fds[i].fd);
}

static void link_run(struct link *l, struct control *c, int signals, uint64_t spin)
{
	uint64_t looked = 0;
	while (!c->quit) {
		bool busy = false;
		uint64_t next = UINT64_MAX;
		for (int i = 0; i < 2; i++)
			busy |= lane_receive(&l->lane[i]);
		for (int i = 0; i < 2; i++) {
			uint64_t due = lane_send(&l->lane[i]);
			next = due < next ? due : next;
		}
		uint64_t now = clock_ns();
		if (now - looked >= CONTROL_EVERY) {
			struct signalfd_siginfo info;
			looked = now;
			control_serve(c, l);
			if (read(signals, &info, sizeof(info)) > 0)
				return;
		}
		if (busy || next <= now + spin)
			continue;
		uint64_t wait = next - now - spin;
		link_sleep(l, c, signals, wait < NS_PER_S ? wait : NS_PER_S);
		looked = 0;
	}
}

static int signals_open(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

/* ---- begin and end --------------------------------------------------------------------------- */

static int sets_execute(struct link *l, const struct options *o)
{
	for (unsigned i = 0; i < o->sets; i++) {
		struct control none = {0};
		char *line, *answer;
		if (asprintf(&line, "set %s", o->set[i]) < 0)
			return -ENOMEM;
		answer = control_execute(&none, l, line);
		free(line);
		bool done = answer && strcmp(answer, "ok") == 0;
		if (!done)
			fprintf(stderr, "steelyard-link: --set \"%s\": %s\n", o->set[i],
			        answer ? answer : "no memory");
		free(answer);
		if (!done)
			return -EINVAL;
	}
	return 0;
}

static void report_print(struct link *l)
{
	char *text = link_report(l);
	if (text)
		puts(text);
	free(text);
}

static int link_serve(struct link *l, const struct options *o)
{
	struct control control;
	const struct sched_param lowest = {.sched_priority = 1};
	if (o->realtime && sched_setscheduler(0, SCHED_FIFO, &lowest))
		return say(-errno, "--realtime");
	int signals = signals_open();
	int failed = control_open(&control, o->socket, o->input);
	if (failed)
		return say(failed, o->socket);
	/* The default timer slack may add 50 us. */
	prctl(PR_SET_TIMERSLACK, 1);
	fprintf(stderr, "steelyard-link is ready: %s, %s\n", o->interface[0], o->interface[1]);
	link_run(l, &control, signals, o->spin);
	control_close(&control);
	close(signals);
	report_print(l);
	return 0;
}

static int link_between(const struct options *o)
{
	struct link l = {0};
	struct port port[2];
	char error[PORT_ERROR];
	for (int i = 0; i < 2; i++)
		if (port_open(&port[i], o->interface[i], (uint32_t)o->ring, error)) {
			fprintf(stderr, "steelyard-link: %s\n", error);
			if (i)
				port_close(&port[0]);
			return -EIO;
		}
	uint32_t mtu = port[0].mtu > port[1].mtu ? port[0].mtu : port[1].mtu;
	uint32_t slot = (mtu + BEHIND + 255) & ~255u;
	int failed = link_open(&l, (uint32_t)o->packets, slot, o->seed);
	if (failed)
		return say(failed, "--packets");
	for (int i = 0; i < 2; i++)
		l.port[i] = port[i];
	failed = sets_execute(&l, o);
	if (!failed)
		failed = link_serve(&l, o);
	for (int i = 0; i < 2; i++)
		port_close(&l.port[i]);
	link_close(&l);
	return failed;
}

static int link_predicted(const struct options *o)
{
	struct link l = {0};
	int failed = link_open(&l, (uint32_t)o->packets, 2048, o->seed);
	if (failed)
		return say(failed, "--packets");
	failed = sets_execute(&l, o);
	if (!failed) {
		link_predict(&l, o->predict);
		report_print(&l);
	}
	link_close(&l);
	return failed;
}

int main(int argc, char **argv)
{
	struct options o;
	int ended = options_read(&o, argc, argv);
	if (ended == 0)
		ended = o.predict ? link_predicted(&o) : link_between(&o);
	return ended < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
