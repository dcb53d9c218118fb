// SPDX-License-Identifier: Apache-2.0
/* Calls that receive and send. */
#include <errno.h>
#include <stdint.h>
#include <sys/uio.h>
#include <unistd.h>

#include "conformance.h"

#define RESULT(call)                                                                               \
	({                                                                                         \
		long rc_ = (call);                                                                 \
		rc_ < 0 ? -errno : rc_;                                                            \
	})
#define ACTION(name) static long name(int fd)

/* ---- receive --------------------------------------------------------------------------------- */

static long receive(int fd, size_t len, int flags)
{
	char bytes[64] = {0};
	long first = RESULT(recv(fd, bytes, len, flags));

	if (first > 0)
		more("%.*s ", (int)first, bytes);
	more("then %s", error_name(recv(fd, bytes, len, flags | MSG_DONTWAIT) < 0 ? errno : 0));
	return first;
}

#define RECEIVE(name, len, flags)                                                                  \
	ACTION(name)                                                                               \
	{                                                                                          \
		return receive(fd, len, flags);                                                    \
	}
RECEIVE(recv_plain, 3, 0)
RECEIVE(recv_dontwait, 9, MSG_DONTWAIT)
RECEIVE(recv_peek, 3, MSG_PEEK)
RECEIVE(recv_waitall, 9, MSG_WAITALL)
RECEIVE(recv_oob, 1, MSG_OOB)
RECEIVE(recv_errqueue, 9, MSG_ERRQUEUE)
RECEIVE(recv_nothing, 0, 0)
RECEIVE(recv_peek_nothing, 0, MSG_PEEK)
RECEIVE(recv_unknown_flag, 3, 0x02000000)

ACTION(recv_trunc)
{
	return RESULT(recv(fd, null, 4, MSG_TRUNC));
}

ACTION(recv_null)
{
	return RESULT(recv(fd, null, 5, 0));
}

ACTION(recv_kernel)
{
	return RESULT(recv(fd, kernel, 5, 0));
}

ACTION(recvfrom_address)
{
	struct sockaddr_storage a;
	socklen_t len = sizeof(a);
	char bytes[9];
	long rc = RESULT(recvfrom(fd, bytes, sizeof(bytes), 0, (void *)&a, &len));

	if (rc >= 0)
		more("length %u", len);
	return rc;
}

ACTION(read_plain)
{
	char bytes[9];

	return RESULT(read(fd, bytes, sizeof(bytes)));
}

ACTION(read_nothing)
{
	return RESULT(read(fd, bad, 0));
}

ACTION(read_bad)
{
	return RESULT(read(fd, bad, 5));
}

ACTION(readv_parts)
{
	char bytes[9];
	struct iovec part[3] = {{bytes, 2}, {NULL, 0}, {bytes + 2, 7}};

	return RESULT(readv(fd, part, 3));
}

ACTION(readv_second_bad)
{
	char bytes[9];
	struct iovec part[2] = {{bytes, 2}, {bad, 7}};

	return RESULT(readv(fd, part, 2));
}

ACTION(readv_counts)
{
	struct iovec part = {bad, 0};

	more("%s ", error_name(readv(fd, &part, minus_one) < 0 ? errno : 0));
	more("%s ", error_name(readv(fd, null, 1) < 0 ? errno : 0));
	return RESULT(readv(fd, &part, 0));
}

ACTION(readv_too_long)
{
	struct iovec part[2] = {{bad, SIZE_MAX}, {bad, 9}};

	return RESULT(readv(fd, part, 2));
}

ACTION(recvmsg_parts)
{
	char bytes[9], control[64];
	struct sockaddr_storage a;
	struct iovec part[2] = {{bytes, 2}, {bytes + 2, 7}};
	struct msghdr m = {.msg_name = &a,
	                   .msg_namelen = sizeof(a),
	                   .msg_iov = part,
	                   .msg_iovlen = 2,
	                   .msg_control = control,
	                   .msg_controllen = sizeof(control)};
	long rc = RESULT(recvmsg(fd, &m, 0));

	if (rc >= 0)
		more("name %u, control %zu, flags %x", m.msg_namelen, m.msg_controllen,
		     m.msg_flags);
	return rc;
}

ACTION(recvmsg_null)
{
	struct msghdr m = {.msg_iov = bad, .msg_iovlen = 1};

	more("%s ", error_name(recvmsg(fd, null, 0) < 0 ? errno : 0));
	return RESULT(recvmsg(fd, &m, 0));
}

static long receive_two(int fd, int flags)
{
	char bytes[10] = {0};
	struct iovec part[2] = {{bytes, 2}, {bytes + 2, 7}};
	struct mmsghdr m[2] = {{.msg_hdr = {.msg_iov = part, .msg_iovlen = 1}},
	                       {.msg_hdr = {.msg_iov = part + 1, .msg_iovlen = 1}}};
	long rc = RESULT(recvmmsg(fd, m, 2, flags, NULL));

	if (rc > 0)
		more("%u %u %s", m[0].msg_len, m[1].msg_len, bytes);
	return rc;
}

ACTION(recvmmsg_two)
{
	return receive_two(fd, MSG_DONTWAIT);
}

ACTION(recvmmsg_one)
{
	return receive_two(fd, MSG_WAITFORONE);
}

ACTION(recvmmsg_null)
{
	return RESULT(recvmmsg(fd, null, 1, MSG_DONTWAIT, NULL));
}

/* ---- send ------------------------------------------------------------------------------------ */

static long transmit(int fd, size_t len, int flags)
{
	long rc = RESULT(send(fd, "abcdefg", len, flags));

	more("then %s", error_name(send(fd, "abcdefg", len, flags) < 0 ? errno : 0));
	return rc;
}

#define SEND(name, len, flags)                                                                     \
	ACTION(name)                                                                               \
	{                                                                                          \
		return transmit(fd, len, flags);                                                   \
	}
SEND(send_plain, 3, 0)
SEND(send_dontwait, 3, MSG_DONTWAIT)
SEND(send_nosignal, 3, MSG_NOSIGNAL)
SEND(send_more, 3, MSG_MORE)
SEND(send_oob, 1, MSG_OOB)
SEND(send_confirm, 1, MSG_CONFIRM)
SEND(send_nothing, 0, 0)

ACTION(send_null)
{
	return RESULT(send(fd, null, 5, 0));
}

ACTION(send_kernel)
{
	return RESULT(send(fd, kernel, 5, 0));
}

ACTION(sendto_address)
{
	struct sockaddr_storage a;
	socklen_t len = address_of(peer.address, peer.refused, &a);

	return RESULT(sendto(fd, "abc", 3, 0, (void *)&a, len));
}

ACTION(write_nothing)
{
	return RESULT(write(fd, bad, 0));
}

ACTION(write_bad)
{
	return RESULT(write(fd, bad, 5));
}

ACTION(writev_parts)
{
	struct iovec part[3] = {{"ab", 2}, {NULL, 0}, {"cde", 3}};

	return RESULT(writev(fd, part, 3));
}

ACTION(writev_second_bad)
{
	struct iovec part[2] = {{"ab", 2}, {bad, 7}};

	return RESULT(writev(fd, part, 2));
}

ACTION(writev_counts)
{
	struct iovec part = {bad, 0};

	more("%s ", error_name(writev(fd, &part, minus_one) < 0 ? errno : 0));
	more("%s ", error_name(writev(fd, null, 1) < 0 ? errno : 0));
	return RESULT(writev(fd, &part, 0));
}

ACTION(sendmsg_name)
{
	struct sockaddr_storage a;
	struct iovec part = {"abc", 3};
	struct msghdr m = {.msg_name = &a,
	                   .msg_namelen = address_of(peer.address, peer.refused, &a),
	                   .msg_iov = &part,
	                   .msg_iovlen = 1};

	return RESULT(sendmsg(fd, &m, 0));
}

ACTION(sendmsg_null)
{
	struct msghdr m = {.msg_iov = bad, .msg_iovlen = 1};

	more("%s ", error_name(sendmsg(fd, null, 0) < 0 ? errno : 0));
	return RESULT(sendmsg(fd, &m, 0));
}

ACTION(sendmmsg_two)
{
	struct iovec part = {"abc", 3};
	struct mmsghdr m[2] = {{.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}},
	                       {.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}}};
	long rc = RESULT(sendmmsg(fd, m, 2, MSG_DONTWAIT));

	if (rc > 0)
		more("%u %u", m[0].msg_len, m[1].msg_len);
	return rc;
}

ACTION(sendmmsg_null)
{
	return RESULT(sendmmsg(fd, null, 1, MSG_DONTWAIT));
}

const struct call transfers[] = {
        MODES(recv_plain),      ONCE(recv_dontwait),    MODES(recv_peek),
        MODES(recv_waitall),    ONCE(recv_oob),         FEW(recv_errqueue),
        MODES(recv_nothing),    FEW(recv_peek_nothing), FEW(recv_unknown_flag),
        ONCE(recv_trunc),       ONCE(recv_null),        FEW(recv_kernel),
        ONCE(recvfrom_address), MODES(read_plain),      ONCE(read_nothing),
        FEW(read_bad),          ONCE(readv_parts),      FEW(readv_second_bad),
        FEW(readv_counts),      FEW(readv_too_long),    ONCE(recvmsg_parts),
        FEW(recvmsg_null),      ONCE(recvmmsg_two),     ONCE(recvmmsg_one),
        FEW(recvmmsg_null),     MODES(send_plain),      ONCE(send_dontwait),
        ONCE(send_nosignal),    ONCE(send_more),        ONCE(send_oob),
        FEW(send_confirm),      MODES(send_nothing),    ONCE(send_null),
        FEW(send_kernel),       ONCE(sendto_address),   ONCE(write_nothing),
        FEW(write_bad),         ONCE(writev_parts),     FEW(writev_second_bad),
        FEW(writev_counts),     FEW(sendmsg_name),      FEW(sendmsg_null),
        ONCE(sendmmsg_two),     FEW(sendmmsg_null),
};
const size_t transfer_count = sizeof(transfers) / sizeof(*transfers);
