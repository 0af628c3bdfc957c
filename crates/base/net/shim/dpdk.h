/*
 * What Sprat needs of DPDK, and no more: the hot calls of DPDK are inline functions over structures whose
 * layout is its own business, so they are called from here, a burst at a time.
 *
 * Functions that can fail return 0 or a negative errno. None keeps a pointer it is given, unless it says so.
 */
#ifndef SPRAT_DPDK_H
#define SPRAT_DPDK_H

#include <stdint.h>

struct rte_mbuf;
struct rte_mempool;

/* A frame: who owns one of these owns its buffer. */
struct sprat_frame {
	struct rte_mbuf *mbuf;
	uint8_t *data;
	/* Received: bytes of the frame. Allocated: bytes there is room for. To send: bytes to send. */
	uint32_t len;
	/* Received: SPRAT_CHECKED. To send: 0, or SPRAT_CHECKSUM | l2_len << 8 | l3_len << 16 [| SPRAT_IPV6]. */
	uint32_t flags;
};

#define SPRAT_CHECKED 1u
#define SPRAT_CHECKSUM 2u
#define SPRAT_IPV6 4u

/* What a device is. */
struct sprat_device {
	char driver[32];
	uint8_t mac[6];
	/* Largest IP packet; 0 when the device does not say. */
	uint16_t max_mtu;
	/* Bits of SPRAT_CAN_*. */
	uint32_t can;
	/* NUMA node it is attached to; -1 when it does not say. */
	int32_t numa;
	/* Most queues, each way. */
	uint16_t max_queues;
};

#define SPRAT_CAN_CHECK_RECEIVED 1u
#define SPRAT_CAN_CHECK_SENT 2u
/* Takes in frames of chosen VLANs only, if used. */
#define SPRAT_CAN_FILTER_VLAN 4u
/* Tells when frames arrive, if used. Not described: it shows when it is asked for its bell. */
#define SPRAT_CAN_RING 8u

/* How a device is to be set up. */
struct sprat_setup {
	/* Where the frames of each queue come from: as many as there are queues. */
	struct rte_mempool *const *pools;
	/* Hardware address to take; NULL keeps the device's own. */
	const uint8_t *mac;
	/* Largest IP packet; 0 leaves it to the device. */
	uint16_t mtu;
	uint16_t descriptors;
	uint16_t queues;
	/* Bits of SPRAT_CAN_*: what of it is to be used. */
	uint32_t use;
};

/* What a device has counted. */
struct sprat_counters {
	uint64_t missed;
	uint64_t errors_in;
	uint64_t errors_out;
	uint64_t no_buffer;
};

/* Once a process, on a thread that may end. */
int sprat_dpdk_init(int argc, char **argv);
/* The last lines DPDK has logged, ended by a 0; they are forgotten. */
void sprat_dpdk_take_log(char *text, uint32_t size);
/* Gives the calling thread caches of its own; to be undone on the same thread. */
int sprat_dpdk_thread_enter(void);
void sprat_dpdk_thread_leave(void);

/* numa: the node whose memory it is to lie in; -1 for any. */
int sprat_dpdk_pool(const char *name, uint32_t frames, uint32_t room, int32_t numa, struct rte_mempool **pool);
/* Only when every frame is back. */
void sprat_dpdk_pool_free(struct rte_mempool *pool);
/* Frames that are not in the pool. */
uint32_t sprat_dpdk_pool_used(struct rte_mempool *pool);

/* Has DPDK find a device, such as "0000:01:00.1" or "net_memif0,role=server". */
int sprat_dpdk_attach(const char *arguments, const char *name, uint16_t *port);
/* The first device from `from` on that DPDK has found by itself. */
int sprat_dpdk_next(uint16_t from, uint16_t *port);
int sprat_dpdk_describe(uint16_t port, struct sprat_device *device);
int sprat_dpdk_setup(uint16_t port, const struct sprat_setup *setup);
int sprat_dpdk_start(uint16_t port);
/* Have a started device take in frames to a group, by its hardware address; frames of a VLAN. */
int sprat_dpdk_hear_group(uint16_t port, const uint8_t *group);
int sprat_dpdk_hear_vlan(uint16_t port, uint16_t vlan);
/* Has a started device take in frames to everybody, until it is closed. One that knows no such thing does so anyway. */
int sprat_dpdk_hear_all(uint16_t port);
/* Stops, closes and removes it. */
void sprat_dpdk_close(uint16_t port);
/* 1 up, 0 down. */
int sprat_dpdk_link(uint16_t port);
int sprat_dpdk_counters(uint16_t port, struct sprat_counters *counters);
/*
 * The descriptor that polls readable when a frame arrives after the bell has been armed: the device's, until it is
 * stopped. Negative if it has none.
 */
int sprat_dpdk_bell(uint16_t port, uint16_t queue);
/* 1: have the bell ring for the next frame, and say so only if it can; 0: no more. */
int sprat_dpdk_arm(uint16_t port, uint16_t queue, int armed);
/* Has the device itself put datagrams for a UDP port into a queue. */
int sprat_dpdk_steer(uint16_t port, uint16_t queue, uint16_t udp_port, int ipv6);

/* Fills frames with up to count that have arrived; the caller owns them. */
uint16_t sprat_dpdk_receive(uint16_t port, uint16_t queue, struct sprat_frame *frames, uint16_t count);
/* Takes count frames from the pool, or none. */
uint16_t sprat_dpdk_alloc(struct rte_mempool *pool, struct sprat_frame *frames, uint16_t count);
/* Hands frames to the device; returns how many of the first it took. The caller owns the others still. */
uint16_t sprat_dpdk_transmit(uint16_t port, uint16_t queue, const struct sprat_frame *frames, uint16_t count);
/*
 * Sends one frame that begins with head and ends with len bytes at data, which belong to somebody else: only for devices
 * that have copied a frame, and let go of it, when they have taken it. Returns 1, and head is the device's; or 0, and
 * nothing has happened.
 */
uint16_t sprat_dpdk_transmit_with(uint16_t port, uint16_t queue, struct rte_mempool *pool, const struct sprat_frame *head,
				  void *data, uint16_t len);
void sprat_dpdk_free(const struct sprat_frame *frames, uint16_t count);

/* 1 if the kernel's BPF program of that number has that name, else 0. */
int sprat_program_is(uint32_t number, const char *name);

#endif
