// SPDX-License-Identifier: Apache-2.0
/* A tree in virtual time, with senders before it and a line behind it. */
#ifndef LINE_H
#define LINE_H

#include <errno.h>

#include <sy_shape.h>

#define LINE_FLOWS 64
#define MBIT       UINT64_C(1000000)
#define GBIT       UINT64_C(1000000000)
#define MS         UINT64_C(1000000)

struct flow {
	unsigned service;
	uint8_t dscp;
	uint16_t len;      /* bytes of a frame */
	uint64_t every_ns; /* 0: always has packets to send */
	uint64_t due_ns;
	/* Since line_forget(). */
	uint64_t put, refused[2]; /* full, early */
	uint64_t sent, bytes;
	uint64_t max_delay_ns, delay_sum_ns;
	/* Always. */
	uint32_t next, expected; /* numbers of packets */
	uint64_t in_order;
};

struct line {
	struct sy_shape *shape;
	uint64_t now_ns, step_ns;
	struct flow flow[LINE_FLOWS];
	unsigned flows;
};

/* A group's set-up: EAL and buffers. */
int line_setup(void **state);
/* Buffers that are not in use. */
unsigned line_free(void);
/* A configuration of one class, one tenant, one service, to add to. */
struct sy_shape_config *line_config(uint64_t rate);
unsigned line_tenant(struct sy_shape_config *c, const char *name, uint64_t guaranteed,
                     uint64_t maximum, uint8_t weight);
unsigned line_service(struct sy_shape_config *c, unsigned tenant, const char *name,
                      uint64_t guaranteed, uint64_t maximum, uint8_t weight);
unsigned line_class(struct sy_shape_config *c, const char *name, uint8_t priority, uint8_t weight,
                    unsigned dscp);
struct sy_shape *line_shape(const struct line *l, const struct sy_shape_config *c, unsigned room);
void line_open(struct line *l, const struct sy_shape_config *c);
void line_close(struct line *l);
struct flow *line_flow(struct line *l, unsigned service, uint8_t dscp, uint16_t len,
                       uint64_t every_ns);
/* Lets the senders send and the tree work for so long. */
void line_run(struct line *l, uint64_t ns);
void line_forget(struct line *l);
/* Puts one packet of a flow. */
enum sy_drop line_put(struct line *l, struct flow *f);
/* Receives the packets that may leave. */
void line_receive(struct line *l);

#endif
