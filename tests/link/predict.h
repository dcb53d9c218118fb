// SPDX-License-Identifier: Apache-2.0
#ifndef LINK_PREDICT_H
#define LINK_PREDICT_H

#include "lane.h"

/* Sends so many packets of 1500 bytes each way, in virtual time, one every 12 us. */
void link_predict(struct link *l, uint64_t packets);

#endif
